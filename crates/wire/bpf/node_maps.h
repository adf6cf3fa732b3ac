/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Maps and ring records of the programs of a node.
 */
#ifndef SWITCHBACK_NODE_MAPS_H
#define SWITCHBACK_NODE_MAPS_H

#include <linux/types.h>

#include "flow.h"
#include "framing.h"
#include "handoff.h"

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
#define SB_SKB_MARK_SWITCH 0x5b000010

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

#endif
