/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Handoff packets between switches, nodes and clients: Geneve (RFC 8926) over UDP, with one or two options.
 * And the TCP option by which a node introduces itself to a client. docs/wire-format.md draws the packets
 * and gives the rules.
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
 * Newest version of the format (docs/decisions/0037). A receiver drops packets of a later version than it knows; so
 * a sender uses none that the receiver has not said that it knows, in HELLO or REPORT. Within a version,
 * reserved bytes are sent as 0 and ignored, and so are unknown flags.
 */
#define SB_VERSION 2
/* Version of all packets that need nothing of a later one. */
#define SB_VERSION_USUAL 1
/* Version of ADOPT with a head that is longer or shorter than the client's. */
#define SB_VERSION_GROWN 2

/*
 * Time of a node. Its clock counts steps of 2^SB_CLOCK_SHIFT ns of CLOCK_MONOTONIC from a random number, so
 * that two boots have no time in common. An epoch has 2^SB_EPOCH_SHIFT steps: 4.3 s. The tag of a handoff
 * packet between a switch and a node covers the node's epoch, of which the last byte of the VNI is the low
 * byte; a receiver accepts its own epoch, the one before and the one after. In a packet with a second
 * candidate the byte before is that of the second node's epoch.
 */
#define SB_CLOCK_SHIFT 20
#define SB_EPOCH_SHIFT 12

/*
 * Several nodes of one machine share its address. A packet between a switch and a node has the node's number there
 * (docs/decisions/0054) in the first two bytes of the VNI, and under its tag. It is at least SB_NUMBER_MIN, or 0
 * for a node whose server listens at the VIPs. Only of these nodes a packet can have two candidates: if the first byte
 * is 0, the second one is no number.
 */
#define SB_NUMBER_MIN 0x100

/*
 * Comments from here on have a form that crates/wire/generate reads, for the tables in docs/wire-format.md:
 * one before each enumerator, flag and field. A comment "From A to B." holds for the operations behind it.
 * "Inner packet: " begins the part about the packet in the tunnel. In flags and reasons the operations that
 * carry them come first, before a colon.
 */

enum sb_op {
        /* From switch to node. */

        /*
         * Order to become the owner of the flow. Inner packet: the client's, with the beginning of a
         * request.
         */
        SB_OP_ADOPT = 1,
        /* One more packet of a flow that the node owns. Inner packet: the client's. */
        SB_OP_FORWARD = 2,
        /*
         * Order to give the flow up if the last response is complete and acknowledged. Inner packet: a
         * header.
         */
        SB_OP_RELEASE = 3,
        /*
         * Question who owns the flow. Of its state, only `origin` is known, or nothing: 0. Inner packet:
         * header of the client's.
         */
        SB_OP_PROBE = 4,
        /*
         * Path MTU message of a router about a packet of the flow's server. Inner packet: ICMP or ICMPv6,
         * whole.
         */
        SB_OP_ICMP = 5,
        /*
         * Question up to where the node has the client's data. With data also FORWARD, unless the node has
         * all of it. Inner packet: the client's, or a header.
         */
        SB_OP_CONFIRM = 6,
        /*
         * Request for REPORTs, with the flag FACTS for FACTS, and with `listed` for FLOWS. Sent each second and in
         * answer to FACTS and FLOWS.
         * Inner packet: a header without meaning.
         */
        SB_OP_HELLO = 7,
        /* Question about the node's clock. Inner packet: a header without meaning. */
        SB_OP_SYNC = 9,
        /*
         * Order to keep data of the client that the switch is about to acknowledge, up to `end`, for any switch that
         * asks with RESTORE. Inner packet: the client's.
         */
        SB_OP_KEEP = 10,
        /*
         * Request for the packet of the client that the node keeps and that begins at the header's sequence number; with
         * `origin` 0 for the first one that it keeps of any connection of the flow. Inner packet: a header.
         */
        SB_OP_RESTORE = 11,
        /*
         * Another node is dead: whoever can go on with its responses is to say so (RESUME). Sent each second. Inner
         * packet: a header without meaning.
         */
        SB_OP_DEAD = 12,

        /* From client to node. */

        /* One more packet of a flow that the node owns. Inner packet: the client's. */
        SB_OP_DIRECT = 8,

        /* From node to switch. */

        /* The kernel has the flow. Inner packet: header of ADOPT. */
        SB_OP_ADOPTED = 16,
        /* The node does not take the packet. `reason` says why. Inner packet: as it came. */
        SB_OP_REFUSED = 17,
        /*
         * The node is mute on the flow from now on. To a switch to which it has not released the flow it says
         * the state in which it has. Inner packet: header of RELEASE, whose ACK number and TSecr are those from
         * which the next owner goes on.
         */
        SB_OP_RELEASED = 18,
        /* The node keeps the flow. `reason` says why. Inner packet: header of RELEASE. */
        SB_OP_BUSY = 19,
        /* The flow's socket is gone. Inner packet: a header. */
        SB_OP_CLOSED = 20,
        /*
         * Answer to PROBE, and to ADOPT, FORWARD, CONFIRM and RELEASE of an adoption before the flow's: the flow is
         * here, in the state given. Inner packet: header of the question; with FORWARD and CONFIRM as it came.
         */
        SB_OP_OWNED = 21,
        /*
         * Answer to CONFIRM: the node has all data before `arrived`. Inner packet: header of CONFIRM, with
         * the node's next sequence number as ACK number and its clock as TSecr.
         */
        SB_OP_CONFIRMED = 22,
        /*
         * State of a listener of the node, for one pool. Inner packet: a header, made up, from no address (all
         * zeroes) and port 0 to the listen address.
         */
        SB_OP_REPORT = 23,
        /* Length of the response to a request that named its path. Inner packet: a header without meaning. */
        SB_OP_SIZED = 24,
        /* What became of responses. Inner packet: a header, made up, and data. */
        SB_OP_FACTS = 28,
        /* Flows that the node has. Inner packet: a header without meaning, and data. */
        SB_OP_FLOWS = 33,
        /*
         * Switches that the node hears, and what they say of themselves. Sent each second. Inner packet: a header
         * without meaning, and data.
         */
        SB_OP_SWITCHES = 34,
        /*
         * Answer to PROBE, and to FORWARD of an adoption before the one that the flow was released for, or of one
         * that has not been carried out: the flow is not here. `next` is where its next request begins if the node
         * has released it, else the `origin` of the question. Inner packet: header of the question.
         */
        SB_OP_UNOWNED = 30,
        /*
         * Data of FORWARD or CONFIRM, or RELEASE, is refused: the flow's mark is an earlier one, in the state
         * given. Inner packet: header of that packet.
         */
        SB_OP_UNREAD = 32,
        /* Answer to SYNC. Inner packet: header of SYNC. */
        SB_OP_SYNCED = 31,
        /* Answer to KEEP: the node keeps the data. Inner packet: header of KEEP. */
        SB_OP_KEPT = 35,
        /*
         * Answer to RESTORE. The state of the flow is that of the last KEEP; what the node keeps ends at `end`. Inner
         * packet: the client's, as it came with KEEP.
         */
        SB_OP_RESTORED = 36,
        /*
         * The node has given the flow up for another one, which expects it. `next` is that of the adoption
         * that is given up; `requests`, `heads` and `session` are 0. Sent each 50 ms until the other node
         * says that it has the flow. Inner packet: a header, made up, with the numbers and the clock from
         * which the other node goes on; TSval 0.
         */
        SB_OP_MOVE = 29,
        /*
         * The node can go on with the response that was under way on a flow of `target`, which is dead, or with the
         * flag GONE has lost its server. `next` and `requests` are those of that node. Sent each 100 ms until the
         * node has the flow. Inner packet: a header, made up, with the ACK number of a byte that the client has.
         */
        SB_OP_RESUME = 37,

        /* From node to client. */

        /* A DIRECT with ASK has arrived. Inner packet: that of DIRECT. */
        SB_OP_HEARD = 25,
        /* A DIRECT has arrived, but the flow is not here. Inner packet: that of DIRECT. */
        SB_OP_GONE = 26,
        /* Packet of the flow's server. Inner packet: the server's. */
        SB_OP_TUNNELED = 27,
};

enum sb_reason {
        /* all: no reason; in BUSY: the response is not complete and acknowledged yet. */
        SB_REASON_NONE = 0,
        /* REFUSED: the share of the accept queue that ADOPT allows is used up. */
        SB_REASON_QUEUE_FULL = 1,
        /*
         * REFUSED, REPORT: nobody listens; in REPORT also: the listener speaks MPTCP, for which the kernel
         * takes no adopted flows.
         */
        SB_REASON_NO_LISTENER = 2,
        /* REFUSED, REPORT: the node adopts no flow that it does not have already. */
        SB_REASON_DRAINING = 3,
        /*
         * REFUSED, RELEASED: the flow has no server here (any more), and its client does not know. UNOWNED: the node has
         * not carried out the adoption of a packet with data.
         */
        SB_REASON_NO_SOCKET = 4,
        /* REFUSED: the kernel has made no socket. */
        SB_REASON_FAILED = 5,
        /* BUSY: the server is closing the connection, or the flow is not the node's. */
        SB_REASON_CLOSING = 6,
        /* BUSY: the node has this request already. */
        SB_REASON_DUPLICATE = 7,
        /*
         * RELEASED: ABORT came after the beginning of a response; or the server has gone away with a
         * request before this one.
         */
        SB_REASON_RESPONDING = 8,
        /* REPORT: the server fails the pool's health check. */
        SB_REASON_UNHEALTHY = 9,
        /* RELEASED: the second candidate has got the adoption. To a switch the same as NONE. */
        SB_REASON_PASSED_ON = 10,
        /*
         * RELEASED: the agent has another node take the flow, or goes on with it itself. To a switch the
         * same as NONE.
         */
        SB_REASON_FROZEN = 11,
        /*
         * UNOWNED: the request at the PROBE's sequence number has been answered here, on the connection of
         * its `origin`. REFUSED: the client has the whole response that was to be resumed.
         */
        SB_REASON_SERVED = 12,
        /* REFUSED: the node has released the flow for another adoption, or promised or declined one. */
        SB_REASON_OUTDATED = 13,
        /* UNOWNED: the node has released the flow, in the state given. Whoever finds no owner can go on with it. */
        SB_REASON_RELEASED = 14,
        /* REPORT: nobody acknowledges the responses of the node, which gets requests if no other can. */
        SB_REASON_UNACKNOWLEDGED = 15,
        /* BUSY: the server has gone in the middle of a response with which another node is to go on. */
        SB_REASON_BEQUEATHED = 16,
        /* REPORT: the server fails the pool's requests. The switch decides whether it can do without the node. */
        SB_REASON_FAILING = 17,
};

/* All of the accept queue, in percent: in `queue_share` of ADOPT. */
#define SB_QUEUE_WHOLE 100

/* Receive window in the SYN-ACK and in introductions, in bytes. The node's kernel accepts as much. */
#define SB_WINDOW 64240

/* Options that the handshake has settled: bits of sb_flow_entry.options and sb_flow_state.options. */

/* Client and switch use window scaling. */
#define SB_SYN_WSCALE 0x01
/* Client and switch use selective acknowledgments. */
#define SB_SYN_SACK 0x02
/* Client and switch use timestamps. */
#define SB_SYN_TSTAMP 0x04
/* Client and switch use ECN. */
#define SB_SYN_ECN 0x08
#define SB_SYN_ALL 0x0f
/* The bits above them are the round trip to the client. */
#define SB_ROUND_TRIP_SHIFT 4

/* Bits of sb_option.flags. The name begins with the operation; HANDOVER: those with struct sb_handover. */

/* FORWARD, CONFIRM: a request begins in this packet; a node without a socket for it answers REFUSED. */
#define SB_HANDOVER_REQUEST 0x01
/*
 * FORWARD, CONFIRM: the packet's data was read from `head` bytes on, in a request that has begun before it.
 */
#define SB_HANDOVER_READ 0x02
/*
 * ADOPT, FORWARD and CONFIRM with REQUEST: no other node could go on with the connection behind this
 * request: its client announces the end of the connection or asks for another protocol than HTTP/1.
 */
#define SB_HANDOVER_LAST 0x04
/*
 * ADOPT, FORWARD and CONFIRM with REQUEST: the request is one packet, and making it twice does no harm (RFC
 * 9110 section 9.2.2). Another node may answer it if the server goes away.
 */
#define SB_HANDOVER_AGAIN 0x08
/*
 * FORWARD without REQUEST: the switch has acknowledged data that the node does not have. The packet's TSecr
 * says nothing.
 */
#define SB_HANDOVER_AHEAD 0x10
/*
 * ADOPT: no request begins, and the client's packet has no data. The node's agent goes on with the response under
 * way.
 */
#define SB_HANDOVER_RESUME 0x20
/* RELEASE: also if the request is not complete. */
#define SB_RELEASE_ABORT 0x01
/* HELLO: the switch wants FACTS. */
#define SB_HELLO_FACTS 0x01
/* HELLO: the node is to drain, by the order `order`. */
#define SB_HELLO_DRAIN 0x02
/* RESUME: the flow's node lives, but not its server. */
#define SB_RESUME_GONE 0x01
/* OWNED, UNOWNED as answers to PROBE: the node keeps data of the client, for which RESTORE asks. */
#define SB_PROBE_KEPT 0x01
/* FLOWS: the last packet of the list. */
#define SB_FLOWS_LAST 0x01
/* DIRECT: the client asks whether the packet arrives. */
#define SB_DIRECT_ASK 0x01

/*
 * Session and path of a request. Codes are made by src/session.rs, of characters that a cookie's name may
 * have.
 */
struct sb_session {
        /* Code of the pool whose sessions nodes take part in; zeroes: none, and cookies are left alone. */
        __u8 pool[3];
        /* Code of the node that the request's cookie names; zeroes: none. */
        __u8 node[3];
        /* Number of the request's path, if the switch wants SIZED; else 0. */
        __be16 path;
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

/* Bits of sb_flow_state.framing besides sb_framing.state, for SB_MODE_TUNNEL, UPGRADING and RESUMED. */
#define SB_MARK_TUNNEL    0x4000
#define SB_MARK_UPGRADING 0x2000
#define SB_MARK_RESUMED   0x1000

/*
 * Generation of an adoption (docs/decisions/0038): counter (18 bits), number of the switch (6), attempt (8). A
 * later one is newer, in an order that wraps. 0: the sender knows no generations.
 */
#define SB_GENERATION_SWITCH_BITS  6
#define SB_GENERATION_ATTEMPT_BITS 8

/* State of a flow. */
struct sb_flow_state {
        /*
         * Sequence number of the client's first byte of data, which tells connections of one 4-tuple apart.
         */
        __be32 origin;
        /* Mark: sequence number at which the client's next request, or more of a body, begins. */
        __be32 next;
        /* `sb_framing.left` at the mark, saturated at 2^32 - 1. */
        __be32 left;
        /*
         * Which of the last 32 requests were HEAD, the latest in the lowest bit. In ADOPT of version 2 the upper half
         * is by how many bytes the head in the packet is longer than the one that the client has sent; negative: shorter.
         */
        __be32 heads;
        /* Requests that the node has been given on this flow since it adopted it, modulo 2^16; 1 in ADOPT. */
        __be16 requests;
        /*
         * What comes at the mark: `sb_framing.state` and three bits. TUNNEL (0x4000): nothing behind the mark
         * is read as HTTP. UPGRADING (0x2000): the last request asks for another protocol, and its server
         * decides; in OWNED and UNREAD the server's answer takes the place of the bit, if known. RESUMED (0x1000):
         * the node goes on with another one's response, and takes no further request.
         */
        __be16 framing;
        /* MSS of the client. */
        __be16 mss;
        /*
         * Options that the handshake has settled. In the high nibble n the round trip to the client, at most 2^(n-1) ms,
         * in RELEASED as the node has measured it; 0: unknown.
         */
        __u8 options;
        /* Window scales: the client's in the high nibble, the SYN-ACK's in the low one. */
        __u8 wscale;
        struct sb_session session;
        /*
         * Generation of the flow's adoption. In UNOWNED the newest one that the node has heard of, or with NO_SOCKET
         * that of the packet; in RELEASED, and in REFUSED as the answer to FORWARD and CONFIRM, that of the adoption
         * that follows, 0 if the node was not the owner. 0 in BUSY, ADOPTED, CONFIRMED and KEPT.
         */
        __be32 generation;
};

/* A packet of the client for its node. */
struct sb_handover {
        /* State of the flow, with this packet. */
        struct sb_flow_state flow;
        /*
         * Boundary between what the switch has read and what it has not, in bytes from the packet's first
         * byte of data on. In ADOPT and with REQUEST it has read what is before; what follows up to the mark is
         * more of the request's body. With READ it has read what is behind.
         */
        __be16 boundary;
        /*
         * In ADOPT the share of the listener's accept queue up to which the node adopts, in percent; more
         * than 100 counts as 100. With 0 the node does not look at the queue, and the kernel drops what
         * exceeds it, as it does with a SYN. Else 0.
         */
        __u8 queue_share;
        /* 0. */
        __u8 reserved;
};

/* Accept queue of a listener, in connections. */
struct sb_accept_queue {
        /* Length of the accept queue, saturated at 65,535. */
        __be16 len;
        /* Limit of the accept queue, saturated at 65,535. */
        __be16 limit;
};

/* What has become of a handover. */
struct sb_outcome {
        /* State of the flow, as in the packet that is answered. */
        struct sb_flow_state flow;
        /* In ADOPTED, and in REFUSED with QUEUE_FULL: length and limit of the accept queue (2 and 2 bytes); else
         * 0. */
        struct sb_accept_queue queue;
};

/* What a node has of a flow's data. */
struct sb_confirmed {
        /* State of the flow, as in CONFIRM. */
        struct sb_flow_state flow;
        /* Sequence number up to which the node has all data. */
        __be32 arrived;
};

/* A question about the flow's owner, or an order to it. */
struct sb_question {
        /* State of the flow. */
        struct sb_flow_state flow;
        /*
         * Generation of the adoption that is to follow. In RELEASE the node accepts no other one from then on. In
         * PROBE the node, unless it owns the flow, promises to accept none before it; 0: it promises nothing.
         */
        __be32 next_generation;
};

/* A flow that moves to another node. */
struct sb_move {
        /* State of the flow. */
        struct sb_flow_state flow;
        /* FNV-1a hash of the other node's name; in RESUME that of the node that had the flow. */
        __be32 target;
};

/* A node of which nothing is heard. */
struct sb_death {
        /* FNV-1a hash of its name. */
        __be32 node;
};

/* Data of a client that a node keeps. */
struct sb_kept {
        /* State of the flow; the data begins at `next`. */
        struct sb_flow_state flow;
        /* Sequence number at which the data ends: in KEEP and KEPT that of the packet, in RESTORED all. */
        __be32 end;
};

/* Place in a sequence of FACTS or FLOWS; zeroes in SWITCHES. */
struct sb_numbered {
        /* Epoch of the numbers: random, of the agent for FACTS, of the switch that asks for FLOWS. */
        __be32 epoch;
        /* Number of the packet, from 1 on. */
        __be32 number;
};

/* What a switch says of itself. */
struct sb_switch_self {
        /* Number of the switch in the configuration, from 1 on; 0: unknown. */
        __u8 number;
        /* Version of the program: major, minor, patch; zeroes: unknown. */
        __u8 program[3];
        /* First 4 bytes of the SHA-256 of the configuration's file; 0: unknown. */
        __be32 config;
        /* Flows of other switches that it has found since its start, saturated at 2^32 - 1. */
        __be32 taken_over;
        /* State of the switch; 0: unknown. */
        __u8 state;
        /* 0. */
        __u8 reserved[3];
};

/* What a switch wants from nodes. */
struct sb_hello {
        /* Epoch and number of the last FACTS taken (4 and 4 bytes). */
        struct sb_numbered taken;
        /* Newest version that the switch knows. */
        __u8 newest;
        /* 0. */
        __u8 reserved[3];
        /* Epoch and number of the last FLOWS taken (4 and 4 bytes); 0 and 0: no list of flows is wanted. */
        struct sb_numbered listed;
        /*
         * Random number of an order to the node, to drain or, without the flag DRAIN, to end that; 0: none. A node
         * carries an order out once.
         */
        __be32 order;
        struct sb_switch_self own;
};

/* A node's clock. */
struct sb_sync {
        /* Random number, which the answer repeats. */
        __u8 nonce[8];
        /* The node's clock, high half first; 0 in SYNC. */
        __be32 clock[2];
};

/* A listener of a node, for one pool. */
struct sb_report {
        /* FNV-1a hash of the pool's name, 32 bits. */
        __be32 pool;
        /*
         * Number of the report, modulo 2^16; the same in reports that are sent together. A later one
         * replaces an earlier one.
         */
        __be16 number;
        /* Share of the machine's CPU time in use, over the last half second, in thousandths. */
        __be16 cpu;
        /*
         * Length and limit of the accept queue (2 and 2 bytes), 0 without a listener; sums over listeners that
         * share the port (SO_REUSEPORT).
         */
        struct sb_accept_queue queue;
        /* Requests that this node has and has not answered whole, where responses can be followed. */
        __be32 in_flight;
        /*
         * Mean time to first byte in the last period, in microseconds, at least 1; 0 if no response began in
         * it. Requests that wait behind others do not count.
         */
        __be32 first_byte_us;
        /* Flows that this node has. */
        __be32 flows;
        /* Newest version that the node knows. */
        __u8 newest;
        /* Version of the program: major, minor, patch; zeroes: unknown. */
        __u8 program[3];
        /* First 4 bytes of the SHA-256 of the configuration's file; 0: unknown. */
        __be32 config;
};

/* Length of a response. */
struct sb_size {
        /* Bytes of the response, modulo 2^32. */
        __be32 bytes;
        /* Number of the request's path, as in its `session.path`. */
        __be16 path;
        /* 0. */
        __u8 reserved[2];
};

/* A client's address behind a NAT. */
struct sb_direct {
        /* By IPv4 the client's address in its own network; else 0. */
        __be32 client;
        /* By IPv4 the client's port in its own network; else 0. */
        __be16 client_port;
        /* 0. */
        __u8 reserved[2];
};

/* What an option says, by its operation. Bytes behind a structure are reserved. */
union sb_payload {
        /* ADOPT, FORWARD, CONFIRM. */
        struct sb_handover handover;
        /* ICMP, RELEASED, BUSY, CLOSED, OWNED, UNREAD, UNOWNED, RESTORE. */
        struct sb_flow_state flow;
        /* RELEASE, PROBE. */
        struct sb_question question;
        /* ADOPTED, REFUSED. */
        struct sb_outcome outcome;
        /* CONFIRMED. */
        struct sb_confirmed confirmed;
        /* MOVE, RESUME. */
        struct sb_move move;
        /* DEAD. */
        struct sb_death death;
        /* KEEP, KEPT, RESTORED. */
        struct sb_kept kept;
        /* HELLO. */
        struct sb_hello hello;
        /* SYNC, SYNCED. */
        struct sb_sync sync;
        /* REPORT. */
        struct sb_report report;
        /* FACTS, FLOWS, SWITCHES. */
        struct sb_numbered numbered;
        /* SIZED. */
        struct sb_size size;
        /* DIRECT, HEARD, GONE. In TUNNELED all is 0. */
        struct sb_direct direct;
};

#define SB_PAYLOAD_LEN 40

/*
 * Option of handoff packets: the same length in all versions. An answer has version and payload of the
 * question, except for what its operation says, and neither its flags nor its reserved bytes.
 */
struct sb_option {
        /* SB_OPTION_CLASS. */
        __be16 opt_class;
        /* SB_OPTION_TYPE. */
        __u8 type;
        /* Length of what follows, in 4-byte words. */
        __u8 length;
        /* Version of the format: SB_VERSION_USUAL, or that of what the packet needs. */
        __u8 version;
        /* Operation. */
        __u8 op;
        /* Flags. */
        __u8 flags;
        /* Reason. */
        __u8 reason;
        /* Payload, by the operation. */
        union sb_payload payload;
        /* Tag, little endian. */
        __u8 tag[8];
};

_Static_assert(sizeof(union sb_payload) == SB_PAYLOAD_LEN, "the payload has a fixed length");

/*
 * Behind the option of an ADOPT, if the packet has room: another node, which gets the packet if the first
 * one has no room.
 */
#define SB_SECOND_TYPE 0x02
/* The packet has been passed on. */
#define SB_SECOND_USED 0x03
struct sb_second {
        /* SB_OPTION_CLASS. */
        __be16 opt_class;
        /* SB_SECOND_TYPE; SB_SECOND_USED when the packet has been passed on. */
        __u8 type;
        /* Length of what follows, in 4-byte words. */
        __u8 length;
        /* Address of the node, of the outer header's IP version. */
        __u8 node[16];
        /* Tag of the first option at that node. */
        __u8 tag[8];
};

/*
 * Header in the data of FACTS, FLOWS and SWITCHES, before as many struct sb_fact, struct sb_listed or struct
 * sb_switch_heard as there is room for.
 */
struct sb_records {
        /*
         * SipHash-2-4 under the handoff key of the text `facts`, `flows` or `switches` and all data behind the
         * tag, little endian.
         */
        __u8 tag[8];
        /* Epoch of the numbers, as in the option. */
        __be32 epoch;
        /* Number of the packet, as in the option. */
        __be32 number;
        /* Facts that the node had no room for since its programs were loaded; 0 in FLOWS and SWITCHES. */
        __be32 lost;
        /* 0. */
        __be32 reserved;
};

/* A flow that the node has, as it would describe it in OWNED. */
struct sb_listed {
        /* Flow: the client's address, the VIP, the client's port, the VIP's port (16, 16, 2 and 2 bytes). */
        struct sb_flow flow;
        /* State of the flow. */
        struct sb_flow_state state;
};

/* State of a switch. If several apply, the last of these counts. */
enum sb_switch_state {
        /* Serving. */
        SB_SWITCH_SERVING = 1,
        /* It has just started, beside others, and gets lists of flows from nodes. */
        SB_SWITCH_LEARNING = 2,
        /* Withdrawn by `switchback drain --self`. */
        SB_SWITCH_WITHDRAWN = 3,
        /* It is about to end. */
        SB_SWITCH_LEAVING = 4,
};

/* A switch that the node hears. */
struct sb_switch_heard {
        struct sb_switch_self said;
        /* Time since its last HELLO, in milliseconds. */
        __be32 age_ms;
        /* Number of addresses that say that they are this switch; the rest is what the last one has said. */
        __u8 addresses;
        /* 0. */
        __u8 reserved[3];
};

/* How a response ended. */
enum sb_end {
        /* The server has sent all of it. */
        SB_END_COMPLETE = 1,
        /* The client closed the connection, or was gone. */
        SB_END_CLIENT = 2,
        /* The server closed the connection. */
        SB_END_SERVER = 3,
        /* The connection went on in a way that cannot be followed. */
        SB_END_UNKNOWN = 4,
};

/* What a node's egress program has seen of one response. */
struct sb_fact {
        /* Address of the client. */
        __u8 client[16];
        /* Address of the VIP. */
        __u8 vip[16];
        /* Port of the client. */
        __be16 client_port;
        /* Port of the VIP. */
        __be16 vip_port;
        /* `origin` of the flow. */
        __be32 origin;
        /* Number of the request, as in `sb_flow_state.requests`. */
        __be16 request;
        /* Status; 0 if there was none. */
        __be16 status;
        /* End of the response. */
        __u8 end;
        /* 0. */
        __u8 reserved[3];
        /* Bytes before the body, interim responses included. */
        __be32 head_bytes;
        /*
         * Microseconds from the request's turn at the node to the response's first byte; 2^32 - 1 if there
         * was none.
         */
        __be32 first_byte_us;
        /* Microseconds from the request's turn to the last byte that the node has seen. */
        __be64 duration_us;
        /* Bytes that the server sent. */
        __be64 bytes;
};

#define SB_TAGGED_LEN 44

/*
 * Message under an option's tag: binds it to a node, a switch, a time, a flow and a position in the flow.
 */
struct sb_tag_input {
        /* Address of the node, whichever side sends. */
        __u8 node[16];
        /* Address of the switch, the other one of the outer header; zeroes between node and client. */
        __u8 switch_address[16];
        /*
         * Epoch of the node, 0 in SYNC and SYNCED, with the node's number added (XOR) to its first two bytes; 0
         * between node and client.
         */
        __be64 epoch;
        /*
         * Flow: the client's address, the VIP, the client's port, the VIP's port (16, 16, 2 and 2 bytes).
         */
        struct sb_flow flow;
        /* Sequence number of the inner TCP header; 0 between node and client. */
        __be32 seq;
        /* Acknowledgment number of the inner TCP header; 0 between node and client. */
        __be32 ack;
        /* Option from `version` up to the tag. */
        __u8 option[SB_TAGGED_LEN];
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
        /* Address of the client as the cluster sees it. */
        __u8 client[16];
        /* Number of the half, 0 or 1, little endian. */
        __u64 half;
};

/* Experimental TCP option, RFC 4727, and our experiment identifier, RFC 6994. */
#define SB_TCPOPT_EXPERIMENT 253
#define SB_INTRODUCTION_ID   0x5bc1

/*
 * Introduction of a node to a client: the one TCP option of a packet from the VIP that has the flag ACK and
 * no data. A client without the shim takes it for a duplicate acknowledgment with an unknown option.
 */
struct sb_introduction {
        /* SB_TCPOPT_EXPERIMENT. */
        __u8 kind;
        /* 40, all that TCP has for options. */
        __u8 length;
        /* SB_INTRODUCTION_ID. */
        __be16 id;
        /* Address of the node, where DIRECT packets go. */
        __u8 node[16];
        /*
         * Sequence number up to which the client's data may go there: the flow's mark, or the request's
         * first byte where names of cookies are given back in requests.
         */
        __be32 next;
        /* SipHash-2-4 under the client's key, little endian. */
        __u8 tag[8];
        /* Address of the client as the cluster sees it, which behind a NAT is not its own; 0 by IPv6. */
        __be32 client;
        /* Port of the client as the cluster sees it; 0 by IPv6. */
        __be16 client_port;
        /* Window scale that the client's SYN has offered; 0 if none. */
        __u8 wscale;
        /* 0. */
        __u8 reserved;
};

/* Message under an introduction's tag. */
struct sb_introduction_input {
        /* Address of the node. */
        __u8 node[16];
        /* Flow as the cluster sees it, as in the message under an option's tag. */
        struct sb_flow flow;
        /* Sequence number of the packet. */
        __be32 seq;
        /* Acknowledgment number of the packet. */
        __be32 ack;
        /* `next` of the introduction. */
        __be32 next;
        /* `wscale` of the introduction. */
        __u8 wscale;
        /* 0. */
        __u8 reserved[3];
};

/* UDP port at which a node's program hears fingerprints of other nodes' responses. */
#define SB_FINGERPRINT_PORT  6082
#define SB_FINGERPRINT_MAGIC 0x5b460001

/* From node to node, over UDP and outside of the tunnel: a fingerprint of what is about to be sent to a client. */
struct sb_told_fingerprint {
        /* SB_FINGERPRINT_MAGIC. */
        __be32 magic;
        /* Sequence number of the client's first byte. */
        __be32 origin;
        /*
         * Not under the tag: the sender's network card writes here, where the packet from which this one is made had its
         * checksum.
         */
        __be16 offload;
        /* 0. */
        __be16 reserved;
        /* The connection. */
        struct sb_flow flow;
        /* Bytes of the body up to the end of what is about to be sent. */
        __be64 len;
        /* Their SipHash-1-3. */
        __be64 value;
        /* SipHash-2-4 of all before it, with `offload` 0, under the response's key with SB_FINGERPRINT_TAG added to both halves. */
        __u8 tag[8];
};

#define SB_FINGERPRINT_TAG 0x7461675f68656972ULL

#endif
