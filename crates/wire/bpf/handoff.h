/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Handoff packets between switch, nodes and clients: Geneve (RFC 8926) over UDP with one option, or two. And the
 * introduction of a node to a client, which is a TCP option.
 */
#ifndef SWITCHBACK_HANDOFF_H
#define SWITCHBACK_HANDOFF_H

#include <linux/types.h>

#include "flow.h"

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

/* --- clients that know nodes -------------------------------------------------------------------------------- */

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

#endif
