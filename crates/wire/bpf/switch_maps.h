/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Maps and ring records of the switch's program, and the message under its SYN cookies. */
#ifndef SWITCHBACK_SWITCH_MAPS_H
#define SWITCHBACK_SWITCH_MAPS_H

#include <linux/types.h>

#include "flow.h"
#include "framing.h"
#include "handoff.h"

/* Number of processes that the TSval of a SYN-ACK can tell apart. */
#define SB_INSTANCES 1024

/* Number of switches that a SYN cookie can tell apart. */
#define SB_COOKIE_SWITCHES 16

/*
 * The message under a SYN cookie: what the client's next packets repeat, and what the handshake has settled.
 */
struct sb_cookie_input {
        struct sb_flow flow;
        __be32 client_isn;
        __u32 settled; /* with timestamps: TSval of the SYN-ACK; without: data bits of the cookie */
        __u32 with_timestamps;
        __u32 switch_number; /* with timestamps: of the switch, as in the cookie */
};

struct sb_vip {
        __u32 mss;      /* in SYN-ACKs; leaves room for the headers of handoff packets */
        __u32 verdicts; /* index of the service's first verdict in `verdicts` */
        __u16 start;    /* first state of a head; 0: every request goes to the L7 thread */
        __u16 hosts;    /* number of host classes: columns of the service's verdicts */
        __u16 bank;     /* half of the tables that holds this configuration */
        __u16 service;  /* index of its counter */
        __u32 places;   /* of the first pool at this VIP, in `choice_places`; SB_CHOICE_PLACES: none */
        __u16 listener; /* number of the VIP: row of `listener_queues` */
        __u16 guard;    /* place of the service in `guards`, counted from 1; 0: it has none */
};

/*
 * A token bucket, which gains a token after each `interval`. What is kept of it is the time at which it will be full
 * (the theoretical arrival time of GCRA, ITU-T I.371 annex A): it has a token as long as that is at most `tolerance`
 * ahead.
 */
struct sb_rate {
        __u64 interval;  /* in ns; 0: no limit */
        __u64 tolerance; /* in ns: `interval` for each token but one of a full bucket */
};

/* What a bucket counts; any other number is a hash of a route, whose requests it counts. */
#define SB_OF_CONNECTIONS 0
#define SB_OF_REQUESTS    1

struct sb_bucket {
        __u8 network[16]; /* of clients; zero: of all */
        __u32 service;    /* hash of its name */
        __u32 of;         /* SB_OF_* */
};

#define SB_EACH_CLIENT 0
#define SB_ALL_CLIENTS 1

/* Clients that a service lets in, and how often it does. There are two banks, as of the automaton. */
#define SB_GUARDS 512
#define SB_LISTED (1 << 21) /* networks of all services, at most */

/*
 * A cell is the block of addresses that begin with the same bits. It is marked in the trie's bitmap if the list treats
 * some of its clients otherwise than those that no network of it names, which SB_OTHERS_* says. Cells share bits.
 */
#define SB_CELL_V4    24 /* bits of an IPv4 address */
#define SB_CELL_V6    40 /* bits of an IPv6 address */
#define SB_MARKS_BITS 22 /* a bitmap has 2 to this power of bits */

#define SB_OTHERS_UNKNOWN  0 /* no cell is marked: the trie has the answer for each client */
#define SB_OTHERS_ADMITTED 1
#define SB_OTHERS_REFUSED  2

struct sb_guard {
        struct sb_rate rates[2][2]; /* by SB_OF_*, and by SB_EACH_CLIENT or SB_ALL_CLIENTS */
        __u8 masks[2][16];          /* bits of IPv6 and of IPv4-mapped addresses that tell clients apart */
        __u32 service;              /* of its buckets */
        __u16 list;          /* number of the trie with its clients, counted from 1; 0: all are let in */
        __u16 listed;        /* its number in the trie */
        __u32 concurrent[2]; /* connections at a time, by SB_EACH_CLIENT or SB_ALL_CLIENTS; 0: no limit */
        __u16 others_v4;     /* SB_OTHERS_*: IPv4 clients in cells that are not marked */
        __u16 others_v6;     /* the same for IPv6 */
        __u32 reserved;
};

/* Of a cell's bits, these, and SB_CELL_FACTOR the highest SB_MARKS_BITS of the product are its place in the bitmap. */
#define SB_CELL_IS_V4  (1ULL << SB_CELL_V6)
#define SB_CELL_LISTED (SB_CELL_V6 + 1) /* shift of the list's number in the trie */
#define SB_CELL_FACTOR 0x5851f42d4c957f2d

/* Key of a trie: the service's number and a network. */
struct sb_client_network {
        __u32 prefix_len; /* in bits, `service` included */
        __u32 service;
        __u8 address[16];
};

/* A token that a request takes of a bucket, perhaps before the bucket has it. */
struct sb_wish {
        struct sb_bucket bucket;
        struct sb_rate rate;
        __u64 patience; /* in ns: how early it may take the token */
};

/* A request takes one token of each bucket, or none if it comes too early for one of them. */
#define SB_WISHES 4

struct sb_taking {
        struct sb_wish wishes[SB_WISHES];
        __u32 count;
        __u32 taken; /* result: whether it has the tokens */
        __u64 wait;  /* result, in ns: until it may use them, or could take them */
};

struct sb_switch_settings {
        struct sb_key cookie_keys[2]; /* by the lowest bit of the epoch */
        struct sb_key sign;           /* of handoff packets */
        struct sb_key accept;         /* accepted on handoff packets while keys rotate; 0: none */
        __u64 period;                 /* of `questions`, in ns */
        __u32 cookie_slot;            /* index in cookie_keys of the key for new cookies */
        __u32 is_node;                /* this machine is a node, too */
        __u32 questions;              /* unknown flows that each CPU may ask nodes about in a period */
        __u32 instance;               /* number of this process, below SB_INSTANCES */
        __u32 shared_slots;           /* bit for each of cookie_keys: other processes may have used it */
        __u32 switch_number;          /* of this switch, below SB_COOKIE_SWITCHES */
        __u32 generation;             /* of the adoption by which a flow's first request begins */
        __u32 reserved;
};

enum sb_mode {
        SB_MODE_HELD = 0,     /* no node yet: packets with data go to the L7 thread */
        SB_MODE_REQUESTS = 1, /* data before `next` goes to the node, the rest to the L7 thread */
        SB_MODE_TUNNEL = 2,   /* everything goes to the node */
        SB_MODE_ANSWERED = 3, /* the switch answers: everything goes to the L7 thread */
        /*
         * SB_MODE_REQUESTS behind a request for another protocol: data at the mark goes to the L7 thread
         * until the node knows whether the server agrees (101).
         */
        SB_MODE_UPGRADING = 4,
        /*
         * SB_MODE_HELD, but another process may have given the first request to a node: the L7 thread asks
         * the nodes first.
         */
        SB_MODE_SOUGHT = 5,
        SB_MODE_RESUMED = 6, /* SB_MODE_REQUESTS, but the node takes no further request: the L7 thread does */
        SB_MODE_RESUMING = 7, /* about to be resumed: everything goes to the L7 thread */
        /*
         * SB_MODE_REQUESTS, but the program itself has given the first request to the node, which has not
         * answered: data goes to the L7 thread, which asks the nodes whether one has the flow.
         */
        SB_MODE_ADOPTING = 8,
};

/*
 * The mark of a flow, `next`, is the end of what the switch has read in the client's stream: data before it
 * goes to the node unread. `framing` is the position there: a request begins, or a body goes on. Sequence
 * numbers order past and future within 2^31, so the mark moves over a long body in steps of at most
 * SB_STEP_MAX.
 */
#define SB_STEP_MAX  (1 << 29)
#define SB_STEP_NEAR (1 << 28) /* the next step is due when the client is so close to the mark */
#define SB_STEP_LATE (1 << 26) /* more than a client has in flight to a node */

struct sb_flow_entry {
        __u32 node;                /* index into `nodes` */
        __u32 origin;              /* sequence number of the client's first byte */
        __u32 next;                /* the mark */
        __u16 mss;                 /* of the client */
        __u8 options;              /* SB_SYN_*, and the round trip */
        __u8 wscale;               /* high nibble: the client's; low nibble: the switch's */
        __u8 mode;                 /* enum sb_mode */
        __u8 locked;               /* the L7 thread has a packet, and alone moves the mark */
        __u16 requests;            /* given to the node since it adopted the flow */
        __u32 heads;               /* which of the last 32 were HEAD, the latest in the lowest bit */
        struct sb_framing framing; /* at the mark */
        struct sb_session session; /* of the last request; with a pool, the L7 thread reads every request */
        __u32 begins;              /* sequence number of the last request; if unknown, the mark */
        __u8 tries;                /* how often the last request has come back without an answer */
        __u8 ahead;                /* SB_HANDOVER_AHEAD applies to forwarded packets */
        __u8 contested;            /* a SYN may have begun another connection of the 4-tuple */
        __u8 turn;                 /* how often the mark has gone back, modulo 2^8; tells old entries */
        __u32 generation;          /* of the last adoption; 0: none */
        __u32 reserved;
};

/* Ways in which XDP can send on an interface. Without one the kernel sends. */
#define SB_SENDS_TX       1 /* XDP_TX */
#define SB_SENDS_REDIRECT 2

/* Nodes that a cluster can have, on all machines. */
#define SB_NODES 8192

/* What a node is known by. */
struct sb_node_address {
        __u8 machine[16];
        __u16 number; /* on that machine */
        __u16 reserved;
};

struct sb_node {
        struct sb_node_address address; /* of handoff packets; zero: no such node */
        __u8 source[16];                /* of the switch, towards the node */
        __u32 ifindex;                  /* of the next hop; 0: not resolved, user space sends */
        __u8 next_hop[6];
        __u8 our_mac[6];
        __u16 dead; /* silent for so long that data of its flows goes to the L7 thread */
        __u16 here; /* on this machine: packets go to this machine's kernel */
        __u16 ways; /* SB_SENDS_*, of the interface */
        __u16 reserved[3];
        __u64 clock; /* of the node, ahead of this machine's; 0: unknown */
};

enum sb_record_kind {
        SB_RECORD_REQUEST = 1, /* data that may begin a request, with the flow's entry */
        SB_RECORD_HANDOFF = 2, /* verified packet of a node */
        SB_RECORD_FORWARD = 3, /* user space sends it: the next hop is not resolved */
        SB_RECORD_UNKNOWN = 4, /* no flow entry, no valid cookie: ask the nodes */
        SB_RECORD_ICMP = 5,    /* path MTU message about a flow without an entry: ask the nodes */
};

/*
 * Tables of the automaton for plain heads, see crates/switch/src/automaton.rs. There are two banks, so that
 * user space writes a new configuration beside the one in use.
 */
#define SB_EXPRESS_HEAD_MAX      600 /* bytes; longer heads go to the L7 thread */
#define SB_EXPRESS_STATES        4096
#define SB_EXPRESS_COLUMNS       128
#define SB_EXPRESS_VERDICTS      65536
#define SB_EXPRESS_POOLS         512
#define SB_EXPRESS_SERVICES      256
#define SB_EXPRESS_STATE         0x0fff
#define SB_EXPRESS_EVENT         0xf000 /* one of the next five, or none */
#define SB_EXPRESS_END_OF_TARGET 0x1000
#define SB_EXPRESS_END_OF_HOST   0x2000
#define SB_EXPRESS_KEEP_ALIVE    0x3000
#define SB_EXPRESS_ACCEPT        0x4000
#define SB_EXPRESS_LAST          0x8000
#define SB_EXPRESS_NO_POOL       0xffff

#define SB_L7_THREADS 64 /* at most */

/*
 * Nodes for first requests, which the L7 thread chooses ahead: a queue for each pool at each VIP that allows it
 * (docs/decisions/0056). There are two banks, as of the automaton.
 */
#define SB_CHOICES       128    /* in a queue, at most; a power of two */
#define SB_CHOICE_QUEUES 512    /* of both banks */
#define SB_CHOICE_PLACES 32768  /* of both banks */
#define SB_NO_CHOICES    0xffff /* the L7 thread chooses for each request */
#define SB_LISTENERS     256    /* VIPs */

struct sb_choices {
        __u64 counts; /* low half: choices taken or withdrawn so far; high half: made so far */
        __u64 until;  /* CLOCK_MONOTONIC in ns, from which on none is taken */
        __u16 low;    /* number of choices left at which the L7 thread is woken */
        __u16 share;  /* sb_handover.queue_share */
        __u32 reserved;
        __u16 nodes[SB_CHOICES]; /* indices into `nodes`, by the number of the choice */
};

/* Which requests forwarded by the automaton the program reports, for the access log and the metrics. */
#define SB_OBSERVE_NOTHING  0
#define SB_OBSERVE_REQUESTS 1

/* A request forwarded by the automaton, in a ring of its own. Its head follows. */
struct sb_express_request {
        struct sb_flow flow;
        __u32 origin;
        __u32 begins; /* sequence number of the first byte */
        __u32 node;   /* index into `nodes` */
        __u16 number; /* number of the request, as in sb_flow_state.requests */
        __u16 len;    /* of the head, in bytes */
        __u32 first;  /* the flow's first request: its node was chosen for it */
        __u64 at_ns;  /* CLOCK_MONOTONIC */
};

/* Packet bytes in a record. Longer packets are dropped and counted. */
#define SB_RECORD_SMALL 448
#define SB_RECORD_LARGE 1984

struct sb_record {
        __u32 kind; /* enum sb_record_kind */
        struct sb_flow flow;
        struct sb_flow_entry entry;
        struct sb_option option;     /* SB_RECORD_HANDOFF */
        struct sb_node_address node; /* SB_RECORD_HANDOFF: the sender */
        __u32 len;                   /* of the IP packet that follows, in bytes */
};

#endif
