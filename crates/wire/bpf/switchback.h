/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What crosses a boundary: the handoff packets between switch and nodes, and the BPF maps between a program and
 * its user-space half. This is the only definition; src/generated.rs is made from it (see CONTRIBUTING.md).
 *
 * Network byte order is spelled __be16 and __be32. Addresses are 16 bytes; IPv4 is written as ::ffff:a.b.c.d
 * (RFC 4291 section 2.5.5.2).
 */
#ifndef SWITCHBACK_H
#define SWITCHBACK_H

#include <linux/types.h>

/* --- handoff packets: Geneve (RFC 8926) over UDP, one option ------------------------------------------------- */

#define SB_GENEVE_PORT 6081
/* Experimental range, RFC 8926 section 7. */
#define SB_OPTION_CLASS 0xff5b
/* The high bit makes the option critical: a receiver that does not know it drops the packet. */
#define SB_OPTION_TYPE 0x81
#define SB_TTL         64

/*
 * The clock of a node counts from a random number on, so that no two boots have a time in common, in steps of
 * 2^SB_CLOCK_SHIFT ns of CLOCK_MONOTONIC. An epoch has 2^SB_EPOCH_SHIFT steps: 4.3 s. Handoff packets between a switch
 * and a node carry the low byte of the node's epoch in the last byte of the VNI, and have all of it under their tags; a
 * receiver takes those of the epoch that it has, the one before and the one after. With a second candidate the byte
 * before is of that one's epoch.
 */
#define SB_CLOCK_SHIFT 20
#define SB_EPOCH_SHIFT 12

enum sb_op {
        /* Switch to node. */
        SB_OP_ADOPT = 1,   /* become the owner of the flow; the inner packet begins a request */
        SB_OP_FORWARD = 2, /* one more packet of a flow that the node owns */
        SB_OP_RELEASE = 3, /* give the flow up, if the last response is complete and acknowledged */
        SB_OP_PROBE =
            4, /* who owns this flow? `origin` is that of its connection, or 0 if that is not known */
        SB_OP_ICMP = 5, /* the inner packet is an ICMP error about a packet of the flow's server */
        SB_OP_CONFIRM =
            6, /* how far have you come? With data: as FORWARD, unless the node has all up to its end */
        SB_OP_HELLO = 7, /* here is a switch that wants REPORTs; no flow, no data */
        SB_OP_SYNC = 9,  /* what does your clock say? `origin` and `next` are a nonce; of epoch 0 */
        /* Client to node, under the client's own key; see struct sb_introduction. */
        SB_OP_DIRECT = 8, /* one more packet of a flow that the node owns */
        /* Node to switch. */
        SB_OP_ADOPTED = 16,
        SB_OP_REFUSED = 17,   /* carries the refused packet and a reason */
        SB_OP_RELEASED = 18,  /* the inner header says from where the next owner goes on: ACK number, TSecr */
        SB_OP_BUSY = 19,      /* not released: the response is not complete and acknowledged yet */
        SB_OP_CLOSED = 20,    /* the flow's socket is gone */
        SB_OP_OWNED = 21,     /* the answer to PROBE, with what a flow entry needs */
        SB_OP_CONFIRMED = 22, /* `next` is up to where the node has all data */
        SB_OP_REPORT = 23,    /* how a listener of the node is doing; see struct sb_option */
        SB_OP_SIZED = 24,   /* `detail` is how many bytes the response to a request for `session.path` had */
        SB_OP_FACTS = 28,   /* what became of responses; see struct sb_facts */
        SB_OP_UNOWNED = 30, /* the other answer to PROBE: the flow is not here */
        /* As OWNED, but nobody has asked: data was refused, because it is to be read from this mark on. */
        SB_OP_UNREAD = 32,
        SB_OP_SYNCED =
            31, /* the answer to SYNC: the clock is in `detail` (high half) and `left`; of epoch 0 */
        /*
         * The node has given the flow up for another one, which expects it: `detail` is FNV-1a of that node's name. The
         * inner packet is what it is to be adopted with: no data, the numbers and the clock from which it goes on.
         */
        SB_OP_MOVE = 29,
        /* Node to client, under the client's own key. */
        SB_OP_HEARD = 25,    /* a DIRECT that asked has arrived */
        SB_OP_GONE = 26,     /* a DIRECT has arrived, but the flow is not here */
        SB_OP_TUNNELED = 27, /* a packet of the flow's server */
};

enum sb_reason {
        SB_REASON_NONE = 0,
        SB_REASON_QUEUE_FULL = 1,
        SB_REASON_NO_LISTENER = 2,
        SB_REASON_DRAINING = 3,
        SB_REASON_NO_SOCKET = 4,  /* a request was forwarded to a node that has no socket for its flow */
        SB_REASON_FAILED = 5,     /* the kernel refused the adoption */
        SB_REASON_CLOSING = 6,    /* not released: the server is closing the connection */
        SB_REASON_DUPLICATE = 7,  /* not released: the node has this request already */
        SB_REASON_RESPONDING = 8, /* released on demand, in the middle of a response */
        SB_REASON_UNHEALTHY = 9,  /* REPORT: the health check fails */
        SB_REASON_PASSED_ON = 10, /* in a node's own memory: its second candidate has got the adoption */
        SB_REASON_FROZEN =
            11, /* likewise: its agent is about to give the flow to another node, or goes on with it */
        SB_REASON_SERVED =
            12, /* UNOWNED: the request was answered here, on the connection that began at `origin` */
};

/*
 * In `reason` of an ADOPT: the share of the listener's accept queue, in percent, up to which the node adopts. With 0 it
 * does not look, and what is too much for the queue is lost as with any SYN.
 */
#define SB_QUEUE_WHOLE 100

/* What the SYN-ACK allows a client to send; a node's kernel takes as much. */
#define SB_WINDOW 64240

/* What the client and the switch agreed on in the handshake; bits of sb_flow_entry.options and sb_option.flags. */
#define SB_SYN_WSCALE 0x01
#define SB_SYN_SACK   0x02
#define SB_SYN_TSTAMP 0x04
#define SB_SYN_ECN    0x08
#define SB_SYN_ALL    0x0f
/* In sb_option.flags only. */
#define SB_FLAG_REQUEST 0x10 /* FORWARD: a request begins here; without a socket, REFUSED is due */
#define SB_FLAG_ABORT   0x20 /* RELEASE: although the request is not complete */

/*
 * FORWARD without SB_FLAG_REQUEST: the switch has acknowledged data that the node does not have yet, and the packet's
 * TSecr says nothing. A client takes no timestamps from segments that acknowledge less than it has heard already.
 */
#define SB_FLAG_AHEAD 0x20
/* ADOPT, FORWARD with SB_FLAG_REQUEST: no other node could go on with the connection behind this request. */
#define SB_FLAG_LAST 0x20
/*
 * Likewise: the request is one packet, and it does no harm to make it twice (RFC 9110 section 9.2.2). If the server goes
 * away before it answers, the client is not to know: another node answers.
 */
#define SB_FLAG_AGAIN 0x80
/* FORWARD, CONFIRM: the switch has read the packet's data, from `head` bytes on, in a request that has begun before it. */
#define SB_FLAG_READ 0x40
/* DIRECT: the client wants to know whether it arrives. */
#define SB_FLAG_ASK 0x10
/* HELLO: the switch wants FACTS, too. */
#define SB_FLAG_FACTS 0x10

/*
 * A session, as far as switches and nodes speak of it: which pool's it is, and which of the pool's nodes has it. Both are
 * codes that src/session.rs makes of names and the cluster key, of three characters that a cookie's name may have. With
 * a pool of zeroes, nodes have nothing to do with cookies on the flow; with a node of zeroes, the request has no cookie
 * that names one.
 */
struct sb_session {
        __u8 pool[3];
        __u8 node[3];
        __be16
            path; /* names the request's path to its switch, which wants to know how long the response is; 0: it does not */
};

/* Geneve base header, RFC 8926 section 3.4. */
struct sb_geneve {
        __u8 ver_opt_len; /* option length in 4-byte words */
        __u8 flags;
        __be16 protocol; /* EtherType of the inner packet: 0x0800 or 0x86dd */
        __be32 vni;
};

#define SB_GENEVE_OAM      0x80
#define SB_GENEVE_CRITICAL 0x40

/*
 * A REPORT names the listener by the inner header's flow (VIP and port; the client is the node itself, port 0), and
 * uses the fields of the option and the header in its own way:
 *
 *   origin    FNV-1a of the name of the pool that the report is for
 *   requests  number of the report, modulo 2^16: a later one replaces an earlier one
 *   reason    SB_REASON_NONE, or why the pool is to have no requests here: NO_LISTENER, UNHEALTHY, DRAINING
 *   detail    length (high half) and limit of the accept queue, as in ADOPTED
 *   next      requests that this node has and has not answered whole
 *   mss       share of the machine's CPU time in use, in thousandths
 *   TCP seq   time to first byte in microseconds, a mean of the last period; 0: no request began to be answered
 *   TCP ack   flows that this node has
 *
 * A DIRECT by IPv4 says in `origin` and `requests` which address and port its client has in its own eyes: behind a NAT
 * they are not those of the flow. The answer repeats them. Its other fields, and those of TUNNELED, are 0.
 */
struct sb_option {
        __be16 opt_class;
        __u8 type;
        __u8 length; /* of what follows, in 4-byte words */
        __u8 op;     /* enum sb_op */
        __u8 flags;  /* SB_SYN_*, SB_FLAG_* */
        __u8 reason; /* enum sb_reason */
        __u8 wscale; /* high nibble: the client's; low nibble: ours */
        /* Sequence number of the client's first byte: tells connections of one 4-tuple apart. */
        __be32 origin;
        __be16 mss;      /* the client's */
        __be16 requests; /* how many the node has been given on this flow since it adopted it, modulo 2^16 */
        __be32 next;     /* sequence number at which the client's next request begins */
        /*
         * ADOPTED, REFUSED, REPORT: length (high half) and limit of the listener's accept queue, each saturated at
         * 65535. Everywhere else: which of the last 32 requests were HEAD, the latest in the lowest bit.
         */
        __be32 detail;
        struct sb_session session; /* of the last request that the packet is about, or comes after */
        __be16 framing;            /* at `next`: sb_framing.state, SB_FRAMING_UPGRADING, SB_FRAMING_TUNNEL */
        /*
         * ADOPT, and with SB_FLAG_REQUEST: so much has been read, from the packet's first byte on; what follows up to `next`
         * is more of its body. With SB_FLAG_READ: so much of the packet comes before what has been read with it.
         */
        __be16 head;
        __be32 left; /* sb_framing.left at `next`, saturated at 2^32 - 1 */
        __u8 tag[8]; /* SipHash-2-4 of struct sb_tag_input, little endian */
};

/*
 * Behind the option of an ADOPT, if there is room in the packet: another node, to which the first one passes the packet
 * on when it has no room for the flow itself. The tag is what the option's would be for that node.
 */
#define SB_SECOND_TYPE 0x02
#define SB_SECOND_USED 0x03 /* the packet has been passed on */
struct sb_second {
        __be16 opt_class;
        __u8 type;
        __u8 length;
        __u8 node[16];
        __u8 tag[8];
};

/*
 * A FACTS packet belongs to no flow; its inner packet has data: this header and, behind it, as many struct sb_fact as
 * there is room for. In the option, `origin` is a number that each agent draws when it begins, `next` the number of the
 * packet from 1 on. An agent sends a packet again until a HELLO with the same `origin` says in `next` that it has come, with
 * all before it.
 */
struct sb_facts {
        __u8 tag
            [8]; /* SipHash-2-4 of "facts" and everything behind it, little endian: the option's covers no data */
        __be32 epoch; /* `origin` and `next` of the option */
        __be32 number;
        __be32 lost; /* facts that the node has had no room for since its programs were loaded */
        __be32 reserved;
};

/* How a response came to its end. */
enum sb_end {
        SB_END_COMPLETE = 1, /* the server has sent all of it */
        SB_END_CLIENT = 2,   /* the client closed the connection, or was not there any more */
        SB_END_SERVER = 3,   /* the server did */
        SB_END_UNKNOWN = 4,  /* the connection went on in a way that cannot be followed */
};

/* What a node's egress program has seen of one response. */
struct sb_fact {
        __u8 client[16]; /* the flow's fields, as in struct sb_flow */
        __u8 vip[16];
        __be16 client_port;
        __be16 vip_port;
        __be32 origin;
        __be16 request; /* its number, as in sb_option.requests */
        __be16 status;  /* 0: there was none */
        __u8 end;       /* enum sb_end */
        __u8 reserved[3];
        __be32 head_bytes;    /* those in front of the body, interim responses included */
        __be32 first_byte_us; /* from the time when it was the request's turn; 2^32 - 1: no byte came */
        __be64 duration_us;   /* likewise, to the last byte that the node has seen */
        __be64 bytes;         /* that the server sent */
};

/* A flow is one client connection. */
struct sb_flow {
        __u8 client[16];
        __u8 vip[16];
        __be16 client_port;
        __be16 vip_port;
} __attribute__((aligned(4)));

#define SB_TAGGED_LEN 36

/* The message under an option's tag: binds it to a node, a switch, a time, a flow and a position in it. */
struct sb_tag_input {
        __u8 node[16];
        __u8 switch_address[16]; /* zeroes between a node and a client, as is the epoch */
        __be64 epoch;            /* of the node; 0 in SYNC and SYNCED, which find it out */
        struct sb_flow flow;
        __be32 seq; /* of the inner TCP header, as is the next */
        __be32 ack;
        __u8 option[SB_TAGGED_LEN]; /* struct sb_option from op up to the tag */
};

/* What every handoff packet puts in front of the inner IP packet, after the outer IP header. */
struct sb_shim {
        __be16 source; /* UDP */
        __be16 dest;
        __be16 len;
        __be16 check;
        struct sb_geneve geneve;
        struct sb_option option;
};

/* --- clients that know nodes ------------------------------------------------------------------------------------ */

struct sb_key {
        __u64 k0;
        __u64 k1;
};

/* The message under each half of a client's key, whose number is 0 or 1: SipHash-2-4 with the cluster's key for clients. */
struct sb_client_key_input {
        __u8 client[16]; /* its address as the cluster sees it */
        __u64 half;      /* little endian */
};

/* Experimental, RFC 4727; the identifier behind it is ours, RFC 6994. */
#define SB_TCPOPT_EXPERIMENT 253
#define SB_INTRODUCTION_ID   0x5bc1

/*
 * How a node introduces itself to a client: the one TCP option of a packet from the VIP that has the flags ACK and no
 * data. To a client without a shim it is an acknowledgment of nothing new with an unknown option.
 */
struct sb_introduction {
        __u8 kind;     /* SB_TCPOPT_EXPERIMENT */
        __u8 length;   /* of all of it: the longest list of options that TCP has */
        __be16 id;     /* SB_INTRODUCTION_ID */
        __u8 node[16]; /* where DIRECT packets go */
        __be32 next;   /* sequence number up to which the client's data may go there */
        __u8 tag[8];   /* SipHash-2-4 of struct sb_introduction_input under the client's key, little endian */
        __be32 client; /* as the node sees it, by IPv4; else 0 */
        __be16 client_port;
        __u8 wscale; /* the client's */
        __u8 reserved;
};

struct sb_introduction_input {
        __u8 node[16];
        struct sb_flow flow; /* as the cluster sees it */
        __be32 seq;          /* of the packet */
        __be32 ack;
        __be32 next;
        __u8 wscale;
        __u8 reserved[3];
};

/* --- SYN cookies ------------------------------------------------------------------------------------------------ */

/* Processes that the TSval of a SYN-ACK tells apart. */
#define SB_INSTANCES 1024

/* The message under a cookie: what the client's first packets repeat, plus what the handshake settled. */
struct sb_cookie_input {
        struct sb_flow flow;
        __be32 client_isn;
        __u32 settled; /* with timestamps: the TSval of our SYN-ACK; without: the data bits of the cookie */
        __u32 with_timestamps;
};

/* --- where messages end ------------------------------------------------------------------------------------------- */

/*
 * Both programs follow messages byte by byte, with automata that crates/http/src/framing makes: the switch the
 * chunked bodies of requests, a node the responses, and where it touches cookies the requests too. A cell has the next state in its low byte and an action in its
 * high byte. States that the walker itself has to know:
 */
#define SB_FRAMING_NONE    0      /* nothing to follow */
#define SB_FRAMING_HEAD    1      /* a response begins */
#define SB_FRAMING_CHUNK   2      /* the size of a chunk begins */
#define SB_FRAMING_TRAILER 3      /* the line after the last chunk begins */
#define SB_FRAMING_BODY    4      /* with SB_FRAMING_SKIP: a body of known length, and then the end */
#define SB_FRAMING_LOST    5      /* where this message ends cannot be told */
#define SB_FRAMING_TEXT    6      /* the rest of a line, of which no byte matters but its end */
#define SB_FRAMING_NAME    7      /* the name of a cookie, which is compared with the wanted one */
#define SB_FRAMING_OTHER   8      /* the rest of a cookie that is not, or whose name has been read */
#define SB_FRAMING_SKIP    0x8000 /* with a state: `left` bytes of data come before it */
/* In sb_option.framing only, beside the state: SB_MODE_TUNNEL and SB_MODE_UPGRADING. */
#define SB_FRAMING_TUNNEL    0x4000
#define SB_FRAMING_UPGRADING 0x2000

#define SB_FRAMING_STATES        128
#define SB_FRAMING_TRAILER_MAX   4096
#define SB_FRAMING_EXTENSION_MAX 4096 /* of all chunks of a body together */

enum sb_framing_action {
        SB_FRAMING_GO = 0,           /* to the next state */
        SB_FRAMING_REJECT = 1,       /* not to be followed; the low byte is the reason's number */
        SB_FRAMING_HEX = 2,          /* a digit of a chunk's size, into `left`; below 2^63 */
        SB_FRAMING_DECIMAL = 3,      /* a digit of Content-Length, likewise */
        SB_FRAMING_STATUS = 4,       /* a digit of the status */
        SB_FRAMING_LENGTH = 5,       /* there is a Content-Length; a second one is a reject */
        SB_FRAMING_CHUNKED = 6,      /* there is Transfer-Encoding: chunked; likewise */
        SB_FRAMING_CHUNK_BEGINS = 7, /* `left` bytes of data and the next state; none: SB_FRAMING_TRAILER */
        SB_FRAMING_COUNT = 8,     /* a byte of a trailer section, of which there are SB_FRAMING_TRAILER_MAX */
        SB_FRAMING_HEAD_ENDS = 9, /* RFC 9112 section 6.3 says what follows */
        SB_FRAMING_ENDS = 10,     /* the message is complete */
        SB_FRAMING_CLOSE = 11,    /* the connection ends with this message */
        SB_FRAMING_EXTEND = 12,   /* a byte of a chunk extension; a body has SB_FRAMING_EXTENSION_MAX */
};

#define SB_FRAMING_HAS_LENGTH  0x01
#define SB_FRAMING_HAS_CHUNKED 0x02
#define SB_FRAMING_HAS_CLOSE   0x04

/* How far a message has been followed. */
struct sb_framing {
        __u64 left;    /* bytes of data to skip, or the number that is being read */
        __u64 allowed; /* bytes of data that a request's body may still have */
        __u16 state;   /* SB_FRAMING_NONE: between messages */
        __u16 status;  /* of the response; in the chunks of a request: bytes of their extensions */
        __u8 flags;    /* SB_FRAMING_HAS_* */
        __u8 matched;  /* in SB_FRAMING_NAME: so many bytes are those of the wanted name */
        __u8 reserved[2];
};

/* --- maps of the switch ----------------------------------------------------------------------------------------- */

struct sb_endpoint {
        __u8 address[16];
        __be16 port;
        __u16 reserved;
} __attribute__((aligned(4)));

struct sb_vip {
        __u32 mss;      /* what we advertise; leaves room for the handoff headers */
        __u32 verdicts; /* where this service's verdicts begin in `verdicts` */
        __u16 start;    /* the state in which a head begins; 0: every request goes to the L7 thread */
        __u16 hosts;    /* host classes: columns of its verdicts */
        __u16 bank;     /* which half of the tables holds this configuration */
        __u16 service;  /* for counting */
};

struct sb_switch_settings {
        struct sb_key cookie_keys[2]; /* by the lowest bit of their epoch */
        struct sb_key sign;           /* handoff packets */
        struct sb_key accept;         /* also accepted on handoff packets, while keys rotate */
        __u64 period;                 /* ns in which nodes may be asked so much */
        __u32 cookie_slot;            /* which of cookie_keys makes new cookies */
        __u32 is_node;                /* this machine is a node, too */
        __u32 questions;              /* unknown flows that each CPU may ask about in a period */
        __u32 instance;               /* this process, below SB_INSTANCES */
        __u32 shared_slots; /* a bit for each of cookie_keys: cookies under it may be another process's */
        __u32 reserved;
};

enum sb_mode {
        SB_MODE_HELD = 0,     /* no node yet: every packet with data goes to the L7 thread */
        SB_MODE_REQUESTS = 1, /* data below `next` goes to the node, the rest to the L7 thread */
        SB_MODE_TUNNEL = 2,   /* everything goes to the node */
        SB_MODE_ANSWERED = 3, /* the switch answers itself: everything goes to the L7 thread */
        /*
         * As SB_MODE_REQUESTS, but the last request asks for another protocol: what comes behind it goes to the L7
         * thread, until the node has seen whether the server agrees (101).
         */
        SB_MODE_UPGRADING = 4,
        /*
         * As SB_MODE_HELD, but another process may have given the first request to a node: the L7 thread asks the nodes
         * before it does so.
         */
        SB_MODE_SOUGHT = 5,
};

/*
 * The mark, `next`, is where what has been read of the client's stream ends: data before it goes to the node
 * unread. `framing` says what comes at the mark: a request, or more of a body. Sequence numbers tell past from future
 * up to 2^31, so a long body moves the mark in steps.
 */
#define SB_MARK_STEP (1 << 29)
#define SB_MARK_NEAR (1 << 28) /* so close to such a mark, its next step is due */
#define SB_MARK_LATE (1 << 26) /* more than a client has on its way to a node */

struct sb_flow_entry {
        __u32 node;   /* index into `nodes` */
        __u32 origin; /* sequence number of the client's first byte */
        __u32 next;   /* the mark */
        __u16 mss;    /* of the client */
        __u8 options; /* SB_SYN_* */
        __u8 wscale;  /* high nibble: the client's; low nibble: ours */
        __u8 mode;    /* enum sb_mode */
        __u8
            asked; /* the L7 thread has a packet of the flow: it alone moves the mark until it writes the entry */
        __u16 requests;            /* given to the node since it adopted the flow */
        __u32 heads;               /* which of the last 32 were HEAD, the latest in the lowest bit */
        struct sb_framing framing; /* at the mark */
        struct sb_session session; /* of the last request; with a pool, every request goes to the L7 thread */
        __u32 begins; /* sequence number of the last request's first byte; the mark, if it is not known */
        __u8 tries;   /* how often that request has come back, because its server had gone away */
        __u8 ahead;   /* SB_FLAG_AHEAD holds for what is forwarded */
        __u8
            contested; /* a SYN has come that may begin another connection of the flow's addresses and ports */
        __u8 turn;     /* how often the mark has gone back, modulo 2^8: entries of an earlier turn are old */
};

struct sb_node {
        __u8 address[16]; /* where handoff packets go; all zero: no such node */
        __u8 source[16];  /* our address towards it */
        __u32 ifindex;    /* of the next hop; 0: not resolved, user space sends */
        __u8 next_hop[6];
        __u8 our_mac[6];
        __u32
            dead; /* nothing has been heard of it for so long that the L7 thread sees all data of its flows */
        __u32 here;  /* it is this machine: what is for it goes up this machine's own stack */
        __u64 clock; /* what its clock is ahead of this machine's; 0: not known yet */
};

enum sb_record_kind {
        SB_RECORD_REQUEST = 1, /* data that may begin a request; entry says what is known of the flow */
        SB_RECORD_HANDOFF = 2, /* a verified packet from a node */
        SB_RECORD_FORWARD = 3, /* the route to the node needs the kernel: send it from user space */
        SB_RECORD_UNKNOWN = 4, /* neither a flow entry nor a valid cookie: ask the nodes */
};

/*
 * The automaton that recognises plain heads, see crates/switch/src/automaton.rs. There are two banks of everything,
 * so that a new configuration is written beside the one in use.
 */
#define SB_EXPRESS_HEAD_MAX      600 /* longer heads go to the L7 thread; also bounds the number of fields */
#define SB_EXPRESS_STATES        4096
#define SB_EXPRESS_COLUMNS       128
#define SB_EXPRESS_VERDICTS      65536
#define SB_EXPRESS_POOLS         512
#define SB_EXPRESS_NODES         1024
#define SB_EXPRESS_SERVICES      256
#define SB_EXPRESS_STATE         0x0fff
#define SB_EXPRESS_END_OF_TARGET 0x1000
#define SB_EXPRESS_END_OF_HOST   0x2000
#define SB_EXPRESS_ACCEPT        0x4000
#define SB_EXPRESS_NO_POOL       0xffff

/* What the program tells of requests that it forwards by itself, for the access log and the metrics. */
#define SB_OBSERVE_NOTHING  0
#define SB_OBSERVE_REQUESTS 1

/* One of these requests, in a ring of its own; its head comes behind. */
struct sb_express_request {
        struct sb_flow flow;
        __u32 origin;
        __u32 begins; /* sequence number of its first byte */
        __u32 node;   /* index into `nodes` */
        __u16 number; /* among those that the node was given, as in sb_option.requests */
        __u16 len;    /* of the head */
        __u32 reserved;
        __u64 at_ns; /* of CLOCK_MONOTONIC */
};

/* Packet bytes a record can carry; longer packets are dropped and counted. */
#define SB_RECORD_SMALL 448
#define SB_RECORD_LARGE 1984

struct sb_record {
        __u32 kind; /* enum sb_record_kind */
        struct sb_flow flow;
        struct sb_flow_entry entry;
        struct sb_option option; /* HANDOFF only */
        __u8 node[16];           /* HANDOFF only: who sent it */
        __u32 len;               /* of the IP packet that follows */
        __u32 reserved;
};

/* --- maps of a node --------------------------------------------------------------------------------------------- */

struct sb_node_settings {
        __u8 address[16]; /* the node's own, under every tag */
        struct sb_key sign;
        struct sb_key accept;
        __u64 netns_cookie; /* only sockets of this network namespace are ours */
        __u64 clock;        /* where the node's clock has begun */
        __be32 arp_sender;  /* the interface's own IPv4 address; 0: it has none */
        __u32 draining;     /* adopt nothing */
        __u32 is_switch;    /* this machine is a switch, too */
        __u32 ifindex;      /* of the interface by which handoff packets come in */
        __u32 hidden;       /* answer nobody but switches */
        __u32 reserved;
};

/* Of an address in a node's map of VIPs. */
#define SB_VIP_HELD     1 /* a switch answers for it */
#define SB_VIP_SWITCHED 2 /* and that is this machine */

/* On packets that the switch of this machine sends by itself: the node's programs leave them alone. */
#define SB_MARK_SWITCH 0x5b000010

/* What the node's program counts for REPORT, on each CPU; the sums over all CPUs mean something. */
struct sb_load {
        __u64 requests;    /* given to this node, on flows whose responses can be followed */
        __u64 responses;   /* of these, answered whole */
        __u64 abandoned;   /* likewise, which never will be: their flow is gone */
        __u64 flows;       /* begun */
        __u64 ended;       /* of these */
        __u64 first_bytes; /* responses whose time to first byte is in `waited_us` */
        __u64 waited_us;   /* sum of these times */
};

/* A switch that wants reports; its address is the key. */
struct sb_listening_switch {
        __u64 heard_ns; /* bpf_ktime_get_ns() of its last HELLO */
        __u32 epoch;    /* SB_FLAG_FACTS: all FACTS of this agent up to this number have come */
        __u32 number;
        __u32 facts; /* it wants them */
        __u32 reserved;
};

/*
 * Adoptions that a listener has not seen yet. The key is a hash of the listener's address in the kernel, from 1 to
 * SB_ADOPTING_SLOTS - 1; two listeners of one hash are refused adoptions a little early.
 */
#define SB_ADOPTING_SLOTS 256
struct sb_adopting {
        __u64 last_ns; /* bpf_ktime_get_ns() of the last change */
        __s64 count;
};

/* How a node takes part in the sessions of a pool. */
enum sb_session_mode {
        SB_SESSION_REWRITE = 1, /* the server's cookie carries the session's code in its name */
        SB_SESSION_INSERT = 2,  /* a cookie of our own is added to responses */
};

#define SB_KEYWORD        "SB" /* begins every rewritten name */
#define SB_CODE_LEN       8    /* of the keyword, the pool's code and the node's: what is rewritten */
#define SB_NAME_MAX       32   /* longest name of a cookie */
#define SB_SET_COOKIE_MAX 256  /* longest line that is inserted */

/* What a node knows of a pool whose sessions it takes part in; the key is the pool's code, with a zero behind it. */
struct sb_persistence {
        __u8 mode;                    /* enum sb_session_mode */
        __u8 name_len;                /* REWRITE */
        __u16 line_len;               /* INSERT */
        __u8 code[SB_CODE_LEN];       /* keyword, pool and this node, under the key that is in use */
        __u8 name[SB_NAME_MAX];       /* of the server's cookie */
        __u8 line[SB_SET_COOKIE_MAX]; /* a header line with its end */
};

/*
 * Names of cookies that have been changed on a flow in one direction, and may have to be changed again when they are sent
 * again; by the sequence numbers of their first bytes.
 */
#define SB_CHANGED_MAX 4
struct sb_changed {
        __u32 at[SB_CHANGED_MAX];
        __u32 undecided; /* likewise, of a name that did not end with its packet */
        __u8 count;
        __u8 tries; /* packets kept back because of the undecided name; 0: there is none */
        __u8 reserved[2];
};

/* What a node does about the cookies of a flow. */
struct sb_cookies {
        struct sb_session session;
        __u32 heard; /* sequence number up to which the requests have been followed */
        __u8 reserved[4];
        struct sb_framing request; /* at `heard` */
        struct sb_changed restored;
        struct sb_changed rewritten;
};

enum sb_ownership {
        SB_OWN_ADOPTING = 0, /* given to the kernel, no socket seen yet */
        SB_OWN_OPEN = 1,     /* the kernel has an established socket */
        SB_OWN_RELEASED = 2, /* another node may speak: this one is mute */
};

/* Requests without a whole response that a node can tell HEAD from others for. */
#define SB_HEADS 256

struct sb_owned {
        __u8 switch_address[16]; /* who handed the flow over, for CLOSED */
        __u32 origin;
        __u32 next;
        __u32
            answered; /* the socket's write_seq when the last request arrived; or when the flow was released */
        __u32 tsval;  /* of a released flow: the timestamp from which the next owner must go on */
        __u32 followed;             /* sequence number up to which the responses have been followed */
        __u16 requests;             /* that this node was given since it adopted the flow */
        __u16 responses;            /* that it has sent whole */
        struct sb_framing framing;  /* of the response at `followed` */
        __u64 heads[SB_HEADS / 64]; /* a bit for each request by number: it is HEAD */
        __u16 mss;
        __u16 queue_len;
        __u16 queue_limit;
        __u8 options;
        __u8 wscale;
        __u8 state;          /* enum sb_ownership */
        __u8 hooked;         /* enum sb_hook */
        __u8 reason;         /* enum sb_reason, of a released flow */
        __u8 slot;           /* of the listener in whose `adopting` this flow counts; 0: in none */
        __u32 asked_us;      /* when the last request arrived, of a clock that wraps */
        __u32 asked;         /* sequence number of its first byte */
        __u8 again;          /* SB_FLAG_AGAIN holds for it, and it has not been acknowledged */
        __u8 keeps;          /* the connection goes on after it, as far as client and server have said */
        __be16 mark_framing; /* at `next`: sb_option.framing and .left */
        __be32 mark_left;
        __u32 read; /* what comes before this has been read, so nothing else may take its place */
        __u32
            passed; /* up to here without a gap data has been handed to the socket, which may not have taken it yet */
        __u32 read_us; /* when the last of what has been read was, of a clock that wraps */
        __u32 latest;  /* TSval of what has been handed to the socket */
        __u8 reserved[4];
        __be16 path;         /* of the last request: sb_session.path */
        __u16 path_request;  /* the number of that request */
        __u32 began;         /* sequence number up to which the response's bytes are in `sent` */
        __u64 sent;          /* bytes of the response */
        __u64 turn_us;       /* when it was its request's turn, of a clock that does not wrap */
        __u32 first_byte_us; /* after that */
        __u32 head_bytes;    /* 0: its head is not over */
        struct sb_cookies cookies;
};

/* How long a response was, from the node's program to its agent. */
struct sb_sized {
        __u8 switch_address[16]; /* who wants to know */
        __u32 bytes;
        __be16 path;
        __u8 reserved[2];
};

/* Whether the server's writes on a flow pass the program that inserts a cookie. */
enum sb_hook {
        SB_HOOK_NONE = 0,
        SB_HOOK_WANTED = 1, /* they are to, as soon as there is a socket; it gets no data before */
        SB_HOOK_SET = 2,    /* they do, until a response has got the cookie */
        SB_HOOK_DONE = 3,   /* one has, and the next packet takes the socket out again */
};

/* What a node has to do with clients that run the shim. */
struct sb_node_clients {
        struct sb_key sign; /* of the cluster, for clients */
        struct sb_key accept;
        __u32 tunnel; /* responses to them go in a tunnel */
        __u32 reserved;
};

/* A network, as a trie of longest prefixes wants it. */
struct sb_network {
        __u32 prefix_len; /* of the 16 bytes, in bits */
        __u8 address[16];
};

/* A fact, from the node's program to its agent, and whom it is for. */
struct sb_seen {
        __u8 switch_address[16];
        struct sb_fact fact;
};

/* One flow whose socket is gone, from the node's program to its agent. */
struct sb_closed {
        struct sb_flow flow;
        __u8 end; /* enum sb_end, of responses that were not complete */
        __u8 reserved[3];
        __u64 at_us; /* when, of the clock of sb_owned.turn_us */
        struct sb_owned owned;
};

/* --- maps of a client ------------------------------------------------------------------------------------------- */

struct sb_client_settings {
        __u32 thin_acks; /* so many ACKs in a row may be left out */
        __u32 firewall;  /* something on the way to the services follows connections */
};

/* The keys of one address of this client; one of zeroes is none. */
struct sb_client_keys {
        struct sb_key sign;
        struct sb_key accept;
};

enum sb_direct_state {
        SB_DIRECT_ON = 0,  /* packets go to the node */
        SB_DIRECT_OFF = 1, /* they go to the switch, until a node introduces itself */
};

/* A flow of which a node has introduced itself; the key is the flow as this machine sees it. */
struct sb_direct_flow {
        __u64 asked_ns; /* when the first of `asks` was sent */
        __u64 last_ns;  /* when the last ASK was */
        __u8 node[16];
        __u8 client[16]; /* as the cluster sees it */
        __be16 client_port;
        __u8 state;     /* enum sb_direct_state */
        __u8 asks;      /* without an answer since the last one */
        __u32 next;     /* up to here data may go to the node */
        __u32 sent;     /* and up to here it has been sent once */
        __u32 acked;    /* the last ACK number that went out */
        __u32 left_out; /* and the last that did not */
        __u32 in_order; /* the server's data has come without a gap up to here */
        __u32 highest;  /* and up to here with gaps; a FIN leaves one behind it */
        __u32 thinned;  /* ACKs that have been left out in a row */
        __u32 edge;     /* of the last window that went to the switch */
        __u8 watched;   /* something on the way there follows the connection */
        __u8 wscale;    /* the client's */
        __u8 reserved[2];
};

/* What this client has with a node, whose address is the key. */
struct sb_direct_node {
        __u64 introductions;
        __u64 packets;   /* sent to it directly */
        __u64 fallbacks; /* flows that went back to the switch because it did not answer */
        __u64 avoid_ns;  /* until then it gets none */
};

/* --- counters: one list each; C, Rust, the CLI and the docs iterate it -------------------------------------------- */

#define SB_SWITCH_COUNTERS(X)                                                                                \
        X(SYN_ANSWERED, "SYNs answered with a cookie")                                                       \
        X(ARP_ANSWERED, "ARP requests and neighbour solicitations for a VIP answered")                       \
        X(PING_ANSWERED, "ICMP echo requests to a VIP answered")                                             \
        X(PROBE_ANSWERED, "keep-alive probes answered on connections without a request")                     \
        X(REQUEST, "packets that may begin a request, given to the L7 thread")                               \
        X(EXPRESS, "requests forwarded by the automaton, without the L7 thread")                             \
        X(CHUNKS, "packets with the size of a chunk, forwarded without the L7 thread")                       \
        X(URGENT, "packets whose urgent data became ordinary data")                                          \
        X(ICMP_FORWARDED, "path MTU messages sent to the node of their flow")                                \
        X(FORWARDED, "packets sent to the node of their flow")                                               \
        X(FORWARDED_SLOWLY, "packets left to the L7 thread to forward: the next hop is not resolved")        \
        X(HANDOFF_RECEIVED, "verified packets from nodes")                                                   \
        X(CLOSED, "flow entries removed because the node reported the end")                                  \
        X(HANDSHAKE_ACK, "ACKs that completed a handshake; nothing is stored for them")                      \
        X(SUCCEEDED, "flow entries removed because their client has begun another connection")               \
        X(RESET_SENT, "RSTs sent to clients that closed before any request")                                 \
        X(DROP_COOKIE, "dropped: no flow entry, and no valid cookie of a connection that is not over")       \
        X(DROP_UNASKED, "dropped: perhaps begun by another process, and nodes are asked too much")           \
        X(DROP_TAG, "dropped: handoff packet with a wrong tag")                                              \
        X(DROP_EPOCH, "dropped: handoff packet of another time, such as a recorded one")                     \
        X(DROP_MALFORMED, "dropped: truncated or inconsistent headers")                                      \
        X(DROP_FRAGMENT, "dropped: IP fragments, IP options and extension headers")                          \
        X(DROP_CHECKSUM, "dropped: wrong checksum where a request is read")                                  \
        X(DROP_ICMP, "dropped: ICMP that is about no flow of ours, or of no use to a node")                  \
        X(DROP_FLAGS, "dropped: TCP flags that begin nothing")                                               \
        X(DROP_HELD, "dropped: packets without data of a flow that has no node yet")                         \
        X(DROP_NO_NODE, "dropped: the flow's node is not in the configuration")                              \
        X(DROP_TOO_LONG, "dropped: longer than the L7 thread accepts")                                       \
        X(DROP_RING_FULL, "dropped: the L7 thread does not keep up")                                         \
        X(UNOBSERVED, "requests forwarded by the automaton that the access log does not know")

#define SB_NODE_COUNTERS(X)                                                                                  \
        X(ADOPTED, "flows adopted")                                                                          \
        X(REPEATED, "adoptions of connections that are over, not made again")                                \
        X(FORWARDED, "packets handed to the socket of their flow")                                           \
        X(RELEASED, "flows released")                                                                        \
        X(BUSY, "releases refused because a response was not complete and acknowledged")                     \
        X(OWNED, "probes answered")                                                                          \
        X(CONFIRMED, "switches told that data has arrived")                                                  \
        X(CURED, "stale sockets removed before an adoption")                                                 \
        X(REFUSED_QUEUE_FULL, "adoptions refused: accept queue full")                                        \
        X(REFUSED_DRAINING, "adoptions refused: the node is draining")                                       \
        X(PASSED_ON, "adoptions passed on to their second candidate")                                        \
        X(HELLO, "switches that asked for reports")                                                          \
        X(SYNCED, "switches told the time")                                                                  \
        X(REFUSED_NO_LISTENER, "adoptions refused: nobody listens")                                          \
        X(REFUSED_NO_SOCKET, "requests refused: the flow has no socket here")                                \
        X(REFUSED_FAILED, "adoptions refused: the kernel would not")                                         \
        X(WITHHELD, "acknowledgments of requests without a response, and early FINs, kept back")             \
        X(OUTLIVED, "flows that go on without the server that ended them")                                   \
        X(MUTED, "packets of released flows kept back")                                                      \
        X(REMEMBERED, "flows known again by a request, after their entry had given way to others")           \
        X(FORGOTTEN, "flows ended because their entry had given way to others")                              \
        X(UNREAD, "packets refused because their data has to be read first")                                 \
        X(NOT_TAKEN, "flows ended because their socket did not take what had been read")                     \
        X(ABORTED, "flows released before their request was complete")                                       \
        X(RESPONSES, "responses followed to their end")                                                      \
        X(LOST_TRACK, "responses whose end cannot be told")                                                  \
        X(FACT, "facts of responses that a switch wants to know")                                            \
        X(FACT_LOST, "facts for which there was no room")                                                    \
        X(ICMP, "path MTU messages given to the kernel")                                                     \
        X(ARP_IGNORED, "ARP requests for a VIP left to the switch")                                          \
        X(ARP_ANNOUNCE, "ARP packets of ours kept from announcing a VIP")                                    \
        X(DROP_TAG, "dropped: handoff packet with a wrong tag")                                              \
        X(DROP_EPOCH, "dropped: handoff packet of another time, such as a recorded one")                     \
        X(DROP_MALFORMED, "dropped: truncated or inconsistent headers")                                      \
        X(DROP_PLAIN, "dropped: packet to a VIP that did not come through a switch")                         \
        X(DROP_NO_SOCKET, "dropped: no socket for a forwarded packet")                                       \
        X(DROP_STALE, "dropped: a delayed adoption, or a stale socket that would not go")                    \
        X(HIDDEN, "dropped: packets to a hidden node that are from no switch")                               \
        X(TOLD_HERE, "packets to the switch of this machine")                                                \
        X(DROP_RING_FULL, "dropped: the switch of this machine does not keep up")                            \
        X(DROP_REPEATED, "dropped: data that was handed to the socket a moment ago, sent again")             \
        X(DROP_BEHIND_GAP, "dropped: part of a request with cookies, behind a gap")                          \
        X(DROP_OVERTAKING, "dropped: part of a response that has overtaken an earlier one")                  \
        X(COOKIE_RESTORED, "cookies given back the name that their server knows")                            \
        X(COOKIE_REWRITTEN, "session cookies whose names were rewritten")                                    \
        X(COOKIE_INSERTED, "session cookies inserted")                                                       \
        X(COOKIE_WAITED, "packets sent again because a cookie's name was not all in them")                   \
        X(COOKIE_MISSED, "session cookies left as the server set them, or not inserted")                     \
        X(INTRODUCED, "introductions sent to clients")                                                       \
        X(DIRECT, "packets that came from clients directly")                                                 \
        X(HEARD, "clients told that what they sent directly has arrived")                                    \
        X(GONE, "clients told that a flow is not here")                                                      \
        X(TUNNELED, "packets sent to clients in a tunnel")                                                   \
        X(DROP_CLIENT, "dropped: direct packet of another client's flow")                                    \
        X(DROP_BEYOND, "dropped: direct packet with data of a request that the switch has not read")

#define SB_CLIENT_COUNTERS(X)                                                                                \
        X(INTRODUCED, "introductions of nodes")                                                              \
        X(INTRODUCED_LATE, "introductions for a request that is over")                                       \
        X(AVOIDED, "introductions of nodes that have not answered lately")                                   \
        X(DIRECT, "packets sent to a node directly")                                                         \
        X(ASKED, "of these, packets that asked the node for an answer")                                      \
        X(HEARD, "answers of nodes")                                                                         \
        X(AGAIN, "data that is sent again, left to the switch")                                              \
        X(SHOWN, "packets left to the switch so that what is on the way there sees them")                    \
        X(BEYOND, "flows left to the switch because their next request begins")                              \
        X(FALLBACK, "flows left to the switch because their node does not answer")                           \
        X(GONE, "flows left to the switch because their node does not have them any more")                   \
        X(TUNNELED, "packets of servers taken out of their tunnel")                                          \
        X(THINNED, "acknowledgments left out")                                                               \
        X(DROP_TAG, "dropped: introduction or packet of a node with a wrong tag")                            \
        X(DROP_MALFORMED, "dropped: packet of a node that makes no sense")                                   \
        X(DROP_FOREIGN, "dropped: packet in a tunnel that is not from a service")                            \
        X(DROP_ROOM, "dropped: the kernel would not make room for the headers")

#define SB_ENUM_SWITCH(name, help) SB_SWITCH_##name,
#define SB_ENUM_NODE(name, help)   SB_NODE_##name,
#define SB_ENUM_CLIENT(name, help) SB_CLIENT_##name,
enum sb_switch_counter { SB_SWITCH_COUNTERS(SB_ENUM_SWITCH) SB_SWITCH_COUNTERS_LEN };
enum sb_node_counter { SB_NODE_COUNTERS(SB_ENUM_NODE) SB_NODE_COUNTERS_LEN };
enum sb_client_counter { SB_CLIENT_COUNTERS(SB_ENUM_CLIENT) SB_CLIENT_COUNTERS_LEN };

#endif
