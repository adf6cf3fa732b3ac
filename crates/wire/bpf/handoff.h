/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Handoff packets between switches, nodes and clients: Geneve (RFC 8926) over UDP, with one or two options.
 * And the TCP option by which a node introduces itself to a client. docs/wire-format.md draws the packets and
 * gives the rules.
 */
#ifndef SWITCHBACK_HANDOFF_H
#define SWITCHBACK_HANDOFF_H

#include <linux/types.h>

#include "flow.h"

#define SB_GENEVE_PORT 6081
/* Experimental range, RFC 8926 section 7. */
#define SB_OPTION_CLASS 0xff5b
/* The high bit makes the option critical: a receiver that does not know it has to drop the packet. */
#define SB_OPTION_TYPE 0x81
#define SB_TTL         64

/*
 * Time of a node. Its clock counts steps of 2^SB_CLOCK_SHIFT ns of CLOCK_MONOTONIC from a random number, so
 * that two boots have no time in common. An epoch has 2^SB_EPOCH_SHIFT steps: 4.3 s. The tag of a handoff
 * packet between a switch and a node covers the node's epoch, of which the last byte of the VNI is the low
 * byte; a receiver accepts its own epoch, the one before and the one after. In a packet with a second
 * candidate the byte before is that of the second node's epoch.
 */
#define SB_CLOCK_SHIFT 20
#define SB_EPOCH_SHIFT 12

enum sb_op {
        /* From switch to node. */
        SB_OP_ADOPT = 1,   /* own the flow; the inner packet begins a request */
        SB_OP_FORWARD = 2, /* one more packet of a flow of the node */
        SB_OP_RELEASE = 3, /* give up the flow, if the last response is complete and acknowledged */
        SB_OP_PROBE = 4,   /* who owns the flow? `origin` is its connection's, or 0 if unknown */
        SB_OP_ICMP = 5,    /* the inner packet is an ICMP error about a packet of the server */
        SB_OP_CONFIRM =
            6,           /* up to where is all data there? With data: a FORWARD, unless the node has it all */
        SB_OP_HELLO = 7, /* a switch wants REPORTs; no flow, no data */
        SB_OP_SYNC = 9,  /* what does the clock say? `origin` and `next` are a nonce; epoch 0 */
        /* From client to node, under the client's key; see struct sb_introduction. */
        SB_OP_DIRECT = 8, /* one more packet of a flow of the node */
        /* From node to switch. */
        SB_OP_ADOPTED = 16,
        SB_OP_REFUSED = 17,   /* with the refused packet and a reason */
        SB_OP_RELEASED = 18,  /* ACK number and TSecr of the inner header are those of the next owner */
        SB_OP_BUSY = 19,      /* not released: the response is not complete and acknowledged */
        SB_OP_CLOSED = 20,    /* the flow's socket is gone */
        SB_OP_OWNED = 21,     /* answer to PROBE: contents of a flow entry */
        SB_OP_CONFIRMED = 22, /* the node has all data before `next` */
        SB_OP_REPORT = 23,    /* state of a listener; see struct sb_option */
        SB_OP_SIZED =
            24, /* `detail` is the length of the response to a request for `session.path`, in bytes */
        SB_OP_FACTS = 28,   /* how responses ended; see struct sb_facts */
        SB_OP_UNOWNED = 30, /* answer to PROBE: the node does not have the flow */
        /*
         * Contents of a flow entry, as in OWNED: data was refused, because a switch has to read on from this
         * mark.
         */
        SB_OP_UNREAD = 32,
        SB_OP_SYNCED = 31, /* answer to SYNC: `detail` (high half) and `left` are the clock; epoch 0 */
        /*
         * The node has given up the flow for another node, which expects it. `detail` is FNV-1a of that
         * node's name. The inner packet is for the adoption there: no data; numbers and timestamps from which
         * to go on.
         */
        SB_OP_MOVE = 29,
        /* From node to client, under the client's key. */
        SB_OP_HEARD = 25,    /* a DIRECT with SB_FLAG_ASK has arrived */
        SB_OP_GONE = 26,     /* a DIRECT has arrived, but the node does not have the flow */
        SB_OP_TUNNELED = 27, /* a packet of the server */
};

enum sb_reason {
        SB_REASON_NONE = 0,
        SB_REASON_QUEUE_FULL = 1,
        SB_REASON_NO_LISTENER = 2,
        SB_REASON_DRAINING = 3,
        SB_REASON_NO_SOCKET = 4,  /* no socket for the flow of a forwarded request */
        SB_REASON_FAILED = 5,     /* the kernel has refused the adoption */
        SB_REASON_CLOSING = 6,    /* not released: the server is closing the connection */
        SB_REASON_DUPLICATE = 7,  /* not released: the node has the request already */
        SB_REASON_RESPONDING = 8, /* released on demand, in the middle of a response */
        SB_REASON_UNHEALTHY = 9,  /* REPORT: the health check fails */
        SB_REASON_PASSED_ON = 10, /* in the node's map only: the second candidate has the adoption */
        SB_REASON_FROZEN = 11,    /* in the node's map only: the agent moves the flow to another node */
        SB_REASON_SERVED = 12, /* UNOWNED: the connection that began at `origin` has answered the request */
};

/*
 * `reason` of an ADOPT is the share of the listener's accept queue, in percent, up to which the node adopts.
 * With 0 the node does not check, and the kernel drops what exceeds the queue, as it does with a SYN.
 */
#define SB_QUEUE_WHOLE 100

/* Receive window in the SYN-ACK and in introductions, in bytes. The node's kernel accepts as much. */
#define SB_WINDOW 64240

/* Options that the handshake has settled. Bits of sb_flow_entry.options and sb_option.flags. */
#define SB_SYN_WSCALE 0x01
#define SB_SYN_SACK   0x02
#define SB_SYN_TSTAMP 0x04
#define SB_SYN_ECN    0x08
#define SB_SYN_ALL    0x0f
/* Bits of sb_option.flags only. */
#define SB_FLAG_REQUEST 0x10 /* FORWARD: a request begins; without a socket the node answers REFUSED */
#define SB_FLAG_ABORT   0x20 /* RELEASE: even though the request is not complete */

/*
 * FORWARD without SB_FLAG_REQUEST: the switch has acknowledged data that the node lacks, and the packet's
 * TSecr is of no use. A client ignores timestamps of segments whose ACK number is older than the last one.
 */
#define SB_FLAG_AHEAD 0x20
/*
 * ADOPT, and FORWARD with SB_FLAG_REQUEST: no other node could go on with the connection behind this request.
 */
#define SB_FLAG_LAST 0x20
/*
 * ADOPT, and FORWARD with SB_FLAG_REQUEST: the request is one packet and idempotent (RFC 9110 section 9.2.2).
 * If the server goes away before it answers, another node answers instead.
 */
#define SB_FLAG_AGAIN 0x80
/*
 * FORWARD, CONFIRM: the switch has read the packet's data from `head` bytes on, in a request that began
 * before it.
 */
#define SB_FLAG_READ 0x40
/* DIRECT: the node answers HEARD. */
#define SB_FLAG_ASK 0x10
/* HELLO: the switch wants FACTS. */
#define SB_FLAG_FACTS 0x10

/*
 * Session of a request: the pool, and the node of the pool that has the session, as codes that src/session.rs
 * makes of their names and the cluster's key. A code has three characters that may occur in a cookie's name.
 * If `pool` is zero, nodes do not handle cookies of the flow. If `node` is zero, no cookie of the request
 * names a node.
 */
struct sb_session {
        __u8 pool[3];
        __u8 node[3];
        __be16 path; /* tells the switch which path SIZED is about; 0: it wants no SIZED */
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
 * Option of handoff packets.
 *
 * A REPORT names the listener by the flow of the inner header (VIP and port; the client is the node, port 0),
 * and has fields of its own:
 *
 *   origin    FNV-1a of the name of the pool that the report is for
 *   requests  number of the report, modulo 2^16: a later one replaces an earlier one
 *   reason    SB_REASON_NONE, or why the pool gets no requests here: NO_LISTENER, UNHEALTHY, DRAINING
 *   detail    length (high half) and limit of the accept queue, as in ADOPTED
 *   next      requests that this node has and has not answered completely
 *   mss       share of the machine's CPU time in use, in thousandths
 *   TCP seq   mean time to first byte in the last period, in microseconds; 0: no response began
 *   TCP ack   flows of this node
 *
 * `origin` and `requests` of a DIRECT over IPv4 are address and port of the client as it sees them: behind a
 * NAT they are not those of the flow. The answer repeats them. The other fields of DIRECT and TUNNELED are 0.
 */
struct sb_option {
        __be16 opt_class;
        __u8 type;
        __u8 length; /* of the rest of the option, in 4-byte words */
        __u8 op;     /* enum sb_op */
        __u8 flags;  /* SB_SYN_*, SB_FLAG_* */
        __u8 reason; /* enum sb_reason */
        __u8 wscale; /* high nibble: the client's; low nibble: the switch's */
        /* Sequence number of the client's first byte. Tells connections of one 4-tuple apart. */
        __be32 origin;
        __be16 mss;      /* the client's */
        __be16 requests; /* given to the node on this flow since it adopted it, modulo 2^16 */
        __be32 next;     /* sequence number at which the client's next request begins */
        /*
         * ADOPTED, REFUSED, REPORT: length (high half) and limit of the listener's accept queue, each
         * saturated at 65535. Otherwise: which of the last 32 requests were HEAD, the latest in the lowest
         * bit.
         */
        __be32 detail;
        struct sb_session session; /* of the last request in the packet or before it */
        __be16 framing;            /* at `next`: sb_framing.state, SB_FRAMING_UPGRADING, SB_FRAMING_TUNNEL */
        /*
         * Length in bytes. ADOPT, and SB_FLAG_REQUEST: data that has been read, from the packet's first byte
         * on; from there to `next` is body. SB_FLAG_READ: data before that which has been read.
         */
        __be16 head;
        __be32 left; /* sb_framing.left at `next`, saturated at 2^32 - 1 */
        __u8 tag[8]; /* SipHash-2-4 of struct sb_tag_input, little endian */
};

/*
 * Second option of an ADOPT, if there is room in the packet: a node to which the first one passes the packet
 * on if it has no room for the flow. `tag` replaces the first option's tag there.
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
 * Header of the data of a FACTS packet, which belongs to no flow. As many struct sb_fact follow as there is
 * room for. In the option, `origin` is a random number of the agent's process, `next` the number of the
 * packet, from 1 on. The agent repeats a packet until a HELLO with the same `origin` acknowledges it and all
 * before it in `next`.
 */
struct sb_facts {
        __u8 tag[8];  /* SipHash-2-4 of "facts" and the rest of the data, little endian */
        __be32 epoch; /* `origin` and `next` of the option */
        __be32 number;
        __be32 lost; /* since the programs were loaded, because there was no room */
        __be32 reserved;
};

/* How a response ended. */
enum sb_end {
        SB_END_COMPLETE = 1, /* the server has sent it completely */
        SB_END_CLIENT = 2,   /* the client has closed the connection, or was gone */
        SB_END_SERVER = 3,   /* the server has closed the connection */
        SB_END_UNKNOWN = 4,  /* the program has lost track of the responses */
};

/* One response, as the node's egress program has seen it. */
struct sb_fact {
        __u8 client[16]; /* flow: fields of struct sb_flow */
        __u8 vip[16];
        __be16 client_port;
        __be16 vip_port;
        __be32 origin;
        __be16 request; /* number of the request, as in sb_option.requests */
        __be16 status;  /* 0: none */
        __u8 end;       /* enum sb_end */
        __u8 reserved[3];
        __be32 head_bytes;    /* before the body, interim responses included */
        __be32 first_byte_us; /* from the request's turn to the first byte; 2^32 - 1: no byte */
        __be64 duration_us;   /* from the request's turn to the last byte */
        __be64 bytes;         /* sent by the server */
};

#define SB_TAGGED_LEN 36

/*
 * The message under an option's tag. It binds the option to a node, a switch, an epoch, a flow and a position
 * in it.
 */
struct sb_tag_input {
        __u8 node[16];
        __u8 switch_address[16]; /* zero between a node and a client */
        __be64 epoch;            /* of the node; 0 in SYNC and SYNCED, and between a node and a client */
        struct sb_flow flow;
        __be32 seq; /* of the inner TCP header, as is `ack` */
        __be32 ack;
        __u8 option[SB_TAGGED_LEN]; /* struct sb_option from `op` up to `tag` */
};

/* Headers between the outer IP header and the inner packet, as far as all handoff packets have them. */
struct sb_shim {
        __be16 source; /* UDP */
        __be16 dest;
        __be16 len;
        __be16 check;
        struct sb_geneve geneve;
        struct sb_option option;
};

/* The message under half 0 or half 1 of a client's key: SipHash-2-4 with the cluster's key for clients. */
struct sb_client_key_input {
        __u8 client[16]; /* address as the cluster sees it */
        __u64 half;      /* little endian */
};

/* Experimental TCP option, RFC 4727, and our experiment identifier, RFC 6994. */
#define SB_TCPOPT_EXPERIMENT 253
#define SB_INTRODUCTION_ID   0x5bc1

/*
 * Introduction of a node to a client: the only TCP option of a packet from the VIP with flags ACK and no
 * data. A client without the shim takes it for a duplicate acknowledgment with an unknown option.
 */
struct sb_introduction {
        __u8 kind;     /* SB_TCPOPT_EXPERIMENT */
        __u8 length;   /* of the option: the longest that TCP has room for */
        __be16 id;     /* SB_INTRODUCTION_ID */
        __u8 node[16]; /* address for DIRECT packets */
        __be32 next;   /* the client may send data before this sequence number to the node */
        __u8 tag[8];   /* SipHash-2-4 of struct sb_introduction_input under the client's key, little endian */
        __be32 client; /* IPv4 address as the node sees it; else 0 */
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
