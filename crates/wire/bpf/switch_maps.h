/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Maps and ring records of the switch's program, and the message under its SYN cookies.
 */
#ifndef SWITCHBACK_SWITCH_MAPS_H
#define SWITCHBACK_SWITCH_MAPS_H

#include <linux/types.h>

#include "flow.h"
#include "framing.h"
#include "handoff.h"

/* Processes that the TSval of a SYN-ACK tells apart. */
#define SB_INSTANCES 1024

/* The message under a cookie: what the client's first packets repeat, plus what the handshake settled. */
struct sb_cookie_input {
        struct sb_flow flow;
        __be32 client_isn;
        __u32 settled; /* with timestamps: the TSval of our SYN-ACK; without: the data bits of the cookie */
        __u32 with_timestamps;
};

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
#define SB_STEP_MAX  (1 << 29)
#define SB_STEP_NEAR (1 << 28) /* so close to such a mark, its next step is due */
#define SB_STEP_LATE (1 << 26) /* more than a client has on its way to a node */

struct sb_flow_entry {
        __u32 node;   /* index into `nodes` */
        __u32 origin; /* sequence number of the client's first byte */
        __u32 next;   /* the mark */
        __u16 mss;    /* of the client */
        __u8 options; /* SB_SYN_* */
        __u8 wscale;  /* high nibble: the client's; low nibble: ours */
        __u8 mode;    /* enum sb_mode */
        __u8
            locked; /* the L7 thread has a packet of the flow: it alone moves the mark until it writes the entry */
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

#endif
