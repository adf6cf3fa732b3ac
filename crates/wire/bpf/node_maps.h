/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Maps and ring records of the programs of a node.
 */
#ifndef SWITCHBACK_NODE_MAPS_H
#define SWITCHBACK_NODE_MAPS_H

#include <linux/bpf.h>
#include <linux/types.h>

#include "flow.h"
#include "framing.h"
#include "handoff.h"

struct sb_node_settings {
        __u8 address[16]; /* of the machine's nodes, under every tag */
        struct sb_key sign;
        struct sb_key accept;
        __u64 netns_cookie; /* of the network namespace whose sockets count */
        __u64 clock;        /* random start of the node's clock */
        __be32 arp_sender;  /* IPv4 address of the interface; 0: none */
        __u32 is_switch;    /* this machine is a switch, too */
        __u32 ifindex;      /* of the interface for handoff packets */
        __u32 hidden;       /* answers switches only */
        __u32 reserved;
        __be16
            resume_port; /* of the agent's listeners at 127.0.0.1 and ::1 for flows that are resumed here; 0: none */
        __u8 repeats;       /* long responses get fingerprints */
        __u8 adoption;      /* enum sb_adoption */
        __u64 resume_after; /* bytes of a response behind which it can be resumed elsewhere; 0: none can */
};

/* How listeners get the flows that the node adopts. */
enum sb_adoption {
        SB_ADOPTION_AUTO = 0,   /* by the kernel where kernel and listener allow that, else by replay */
        SB_ADOPTION_KERNEL = 1, /* bpf_sk_assign_tcp_reqsk() makes the socket, with the client's numbers */
        SB_ADOPTION_REPLAY = 2, /* a handshake makes the socket, and numbers are translated */
};

/* Nodes that a machine can have. */
#define SB_NODES_HERE 256

/* A node of this machine. The key is its number. */
struct sb_node_here {
        __u32 draining; /* adopts no flows */
};

/* A listener that is not at its VIP. */
struct sb_listener {
        struct sb_endpoint vip;
        __u16 node; /* number of the node */
        __u16 reserved;
};

/* Where it is. */
struct sb_server {
        struct sb_endpoint at;
        __u32 ifindex; /* of the interface behind which it is; 0: on this machine */
};

/* A listener whose responses are judged. The key is struct sb_listener. */
struct sb_judged {
        __u32 fails; /* the last response that the agent has been told of was a failure */
};

/* A response of such a listener, from the node's program to its agent: a failure, or the first success behind some. */
struct sb_judgment {
        struct sb_listener listener;
        __u16 status;
        __u16 reserved;
};

/* Values in the map of VIPs. */
#define SB_VIP_HELD     1 /* a switch answers ARP for it */
#define SB_VIP_SWITCHED 2 /* the switch of this machine answers ARP for it */

/*
 * skb->mark of packets that the switch of this machine sends from user space. The node's programs leave them
 * alone.
 */
#define SB_SKB_MARK_SWITCH 0x5b000010

/* Sums for REPORT on each CPU, of a node. Only the sum over all CPUs has a meaning. */
struct sb_load {
        __u64 requests;    /* given to the node, on flows whose responses are followed */
        __u64 responses;   /* of these requests, answered completely */
        __u64 abandoned;   /* of these requests, never to be answered: the flow is gone */
        __u64 flows;       /* adopted */
        __u64 ended;       /* of these flows, over */
        __u64 first_bytes; /* number of responses in `waited_us` */
        __u64 waited_us;   /* sum of times to first byte, in microseconds */
};

/* A switch that wants reports of a node of this machine. */
struct sb_asking {
        __u8 switch_address[16];
        __u32 node; /* number of the node */
        __u32 reserved;
};

/* What it has said last. */
struct sb_listening_switch {
        __u64 heard_ns; /* of its last HELLO, by bpf_ktime_get_ns() */
        __u32 epoch;    /* `epoch` and `number` acknowledge FACTS of this agent */
        __u32 number;
        __u32 facts;  /* wants FACTS */
        __u32 newest; /* version of the format that it knows */
        __u32 list;   /* epoch of the list of flows that it wants; 0: none */
        __u32 listed; /* number of the last FLOWS of that list that it has taken */
        __u32 order;  /* number of its order to the node; 0: none */
        __u32 drain;  /* the order is to drain */
        struct sb_switch_self own;
};

/* A flow whose server waits for an acknowledgment, with the numbers of a window probe. */
struct sb_stalled {
        struct sb_flow flow;
        __u32 seq;   /* of the last byte that the client has acknowledged */
        __u32 ack;   /* as the server's socket has sent it last, with the window */
        __u32 tsval; /* TSval and TSecr, if the connection has timestamps */
        __u32 tsecr;
        __u16 window; /* scaled, as in the header */
        __u16 has_timestamps;
};

/*
 * Reserved places in accept queues, for adoptions that have not reached their listener. The key is a hash of
 * the listener's address in the kernel, from 1 to SB_ADOPTING_SLOTS - 1. Listeners with the same hash share a
 * slot, and refuse adoptions a little early.
 */
#define SB_ADOPTING_SLOTS 256
struct sb_adopting {
        __u64 last_ns; /* of the last change, by bpf_ktime_get_ns() */
        __s64 count;
};

/* How nodes keep the sessions of a pool. */
enum sb_session_mode {
        SB_SESSION_REWRITE = 1, /* the name of the server's cookie carries the code of the session */
        SB_SESSION_INSERT = 2,  /* responses get a cookie of the load balancer */
};

#define SB_KEYWORD        "SB" /* beginning of every rewritten name */
#define SB_CODE_LEN       8    /* bytes that are rewritten: keyword, code of the pool, code of the node */
#define SB_SET_COOKIE_MAX 256  /* bytes of an inserted header line */

/* A pool as a node of this machine knows it. */
struct sb_pool_here {
        __u8 code[4]; /* with a zero behind it */
        __u16 node;   /* number of the node */
        __u16 reserved;
};

/* Its sessions. */
struct sb_persistence {
        __u8 mode;                    /* enum sb_session_mode */
        __u8 name_len;                /* SB_SESSION_REWRITE */
        __u16 line_len;               /* SB_SESSION_INSERT */
        __u8 code[SB_CODE_LEN];       /* keyword, pool and node, under the current key */
        __u8 name[SB_NAME_MAX];       /* of the server's cookie */
        __u8 line[SB_SET_COOKIE_MAX]; /* header line with its end */
};

/*
 * Names of cookies that have been changed in one direction of a flow, by the sequence numbers of their first
 * bytes. They are changed again in retransmissions.
 */
#define SB_CHANGED_MAX 4
struct sb_changed {
        __u32 at[SB_CHANGED_MAX];
        __u32 undecided; /* sequence number of a name that was cut by the end of a packet */
        __u8 count;
        __u8 tries; /* packets kept back because of `undecided`; 0: there is none */
        __u8 reserved[2];
};

/* Cookies of a flow. */
struct sb_cookies {
        struct sb_session session;
        __u32 heard; /* sequence number up to which requests have been followed */
        __u8 reserved[4];
        struct sb_framing request; /* position at `heard` */
        struct sb_changed restored;
        struct sb_changed rewritten;
};

enum sb_ownership {
        SB_OWN_ADOPTING = 0, /* given to the kernel, no socket yet */
        SB_OWN_OPEN = 1,     /* the kernel has an established socket */
        SB_OWN_RELEASED = 2, /* another node may speak; this one is mute */
};

/* The last response that has been sent whole, until its client has acknowledged it. */
struct sb_ended {
        __u64 bytes;
        __u64 duration_us;
        __u32 end; /* sequence number behind it */
        __u32 head_bytes;
        __u32 first_byte_us;
        __u16 number; /* of its request */
        __u16 status; /* 0: there is none */
};

/* Number of unanswered requests of which the node knows the methods. */
#define SB_HEADS 256

enum sb_replay {
        SB_REPLAY_NONE = 0,     /* the server has the numbers that its client knows */
        SB_REPLAY_SYN = 1,      /* the server has been sent a SYN */
        SB_REPLAY_ANSWERED = 2, /* it has answered */
        SB_REPLAY_UNFIT = 3,    /* its answer lacks an option that the client uses */
        SB_REPLAY_AGAIN = 4,    /* it has been sent the SYN once more */
        SB_REPLAY_READY = 5,    /* it has answered that, too */
        SB_REPLAY_DONE = 6,     /* it has been sent the request */
        SB_REPLAY_FAILED = 7,   /* it has been sent a RST */
};

/*
 * How the numbers of a server become those that its client knows, after a replayed handshake (docs/decisions/0053).
 * Sequence numbers of the client are the same on both sides.
 */
struct sb_masquerade {
        __u32 seq;   /* added to the server's sequence numbers */
        __u32 tsval; /* added to the server's TSvals */
        __u8 stage;  /* enum sb_replay */
        __u8 theirs; /* window scale of the server */
        __u8 ours;   /* window scale that the client knows */
        __u8 reserved;
};

/* The server of a flow that is behind an interface, as packets tell. Numbers are those that the client knows. */
struct sb_away {
        struct sb_endpoint server;
        __u32 ifindex;    /* 0: the server is on this machine */
        __u32 rcv_nxt;    /* acknowledged by the server */
        __u32 snd_nxt;    /* sent by it */
        __u32 snd_una;    /* acknowledged to it */
        __u32 clock;      /* its last TSval, less the milliseconds of CLOCK_MONOTONIC then */
        __u32 client_end; /* behind the client's FIN */
        __u8 ended;       /* SB_AWAY_* */
        __u8 reserved[3];
};

#define SB_AWAY_CLIENT_FIN 1
#define SB_AWAY_SERVER_FIN 2
/* The server has been sent a RST. */
#define SB_AWAY_RESET 4

struct sb_owned {
        __u8 switch_address[16]; /* of the switch that handed the flow over */
        __u32 origin;
        __u32 next;
        __u32 answered;             /* write_seq of the socket at the last request, or at the release */
        __u32 tsval;                /* of a released flow: TSval from which the next owner goes on */
        __u32 followed;             /* sequence number up to which responses have been followed */
        __u16 requests;             /* given to this node since it adopted the flow */
        __u16 responses;            /* sent completely */
        struct sb_framing framing;  /* position in the response at `followed` */
        __u64 heads[SB_HEADS / 64]; /* bit for each request, by number: it is HEAD */
        __u16 mss;
        __u16 queue_len;
        __u16 queue_limit;
        __u8 options;
        __u8 wscale;
        __u8 state;          /* enum sb_ownership */
        __u8 hooked;         /* enum sb_hook */
        __u8 reason;         /* enum sb_reason of a released flow */
        __u8 slot;           /* in `adopting` where the flow has reserved a place; 0: none */
        __u32 asked_us;      /* time of the last request, of a clock that wraps */
        __u32 asked;         /* sequence number of the last request, as the client knows it */
        __u8 again;          /* SB_HANDOVER_AGAIN applies to the last request, which is not acknowledged */
        __u8 keeps;          /* client and server keep the connection open behind the last request */
        __be16 mark_framing; /* at `next`: sb_flow_state.framing and .left */
        __be32 mark_left;
        __u32 read;       /* sequence number up to which the switch has read; no other data may come before */
        __u32 passed;     /* sequence number up to which the socket has been handed data without a gap */
        __u32 read_us;    /* time of the last data that was read, of a clock that wraps */
        __u32 latest;     /* highest TSval handed to the socket */
        __u32 generation; /* of the adoption; of a released flow: of the adoption that follows */
        __be16 path;      /* sb_session.path of the last request */
        __u16 path_request;  /* number of that request */
        __u32 began;         /* sequence number up to which the response is counted in `sent` */
        __u64 sent;          /* bytes of the response under way */
        __u64 turn_us;       /* time of the response's turn, of a clock that does not wrap */
        __u32 first_byte_us; /* time from the turn to the first byte */
        __u32 head_bytes;    /* 0: the head is not over */
        __u32 via;           /* end of the address of the switch that the flow came by last */
        __u32 insure;        /* KiB from which on the response is insurable, and SB_INSURE_*; 0: not known */
        __u16 node;          /* number of the node of this machine that has it */
        /*
         * Bytes by which the last request's head is longer for the server than the client has sent it. Its first byte has
         * that many numbers less for the server than `asked`, and its end the client's number.
         */
        __s16 grown;
        struct sb_masquerade masquerade;
        struct sb_away away;
        struct sb_ended ended;
        struct sb_cookies cookies;
};

/* In sb_owned.insure: the response has been reported as insurable. */
#define SB_INSURE_REPORTED 0x80000000
/* The agent sends the response, in the place of another node. */
#define SB_INSURE_RESUMED 0x40000000
/* The body has had fingerprints from its first byte on. */
#define SB_INSURE_FINGERPRINTED 0x20000000
/* Instead of a number: the response is not insurable, or not from here on. */
#define SB_INSURE_NEVER 0x1fffffff
/* KiB after which a long response is reported once more: sequence numbers wrap. */
#define SB_INSURE_AGAIN (1 << 18)

#define SB_INSURED_REQUEST  4096 /* bytes of a request's head; one with more is not resumed */
#define SB_INSURED_RESPONSE 2048 /* of a response's head */

/* Heads of the last request of a socket, and of its response. */
struct sb_heads {
        __u32 request_seq;  /* of the request's first byte */
        __u16 request_len;  /* bytes of the request without a gap from there on */
        __u16 response_len; /* bytes of the response's head; 0: unknown */
        __u8 request[SB_INSURED_REQUEST];
        __u8 response[SB_INSURED_RESPONSE];
};

/* A response with which another node could go on, from the node's program to its agent. */
struct sb_insurable {
        struct sb_flow flow;
        __u32 seq;  /* a sequence number of the response's body up to which the client has it */
        __u64 sent; /* bytes of the response before it */
        struct sb_owned owned;
        struct sb_heads heads;
};

/* The end of such a response here. */
struct sb_insurable_end {
        struct sb_flow flow;
        __u32 origin;
        __u32 bequeathed; /* the server has gone, and another node is to go on */
};

/* A response of another node with which this one can go on, from the agent to the node's program. */
struct sb_insured {
        __u32 origin;
        __u32 next;
        __u32 seq; /* as in struct sb_insurable */
        __u32 head_bytes;
        __u64 sent;
        __u64 bytes;      /* of the whole response; SB_INSURED_UNKNOWN: its end is not known yet */
        __u32 generation; /* at the node whose response it is */
        __u16 status;
        __u8 keeps;         /* as in sb_owned */
        __u8 served;        /* from the program: the client has all of it */
        __u8 fingerprinted; /* the agent gives `fingerprints` what the client has before it sends anything */
        __u8 over_tls; /* the agent encrypts: nothing is known here of where the response begins and ends */
        __u8 reserved[6];
};

#define SB_INSURED_UNKNOWN (1ULL << 62)

/* Nodes that get the fingerprints of a response. */
#define SB_HEIRS 2

/* Who can go on with a response of this node, from the agent. */
struct sb_heirs {
        __u32 origin;
        __u8 count;    /* of those that get fingerprints */
        __u8 over_tls; /* the agent encrypts the response */
        __u8 reserved[2];
        __u8 addresses[SB_HEIRS][16];
};

/* What has been sent of a body: SipHash-1-3 of it, up to now (docs/decisions/0051). */
struct sb_fingerprint {
        __u64 v[4];
        __u64 tail; /* bytes of an incomplete word, the first one lowest */
        __u64 len;
        __u64 check; /* all before it, one XOR the other: the agent may read while the program writes */
        struct sb_key key;
        __u32 origin;
        __u32 end; /* sequence number behind it */
};

/* The last fingerprint that another node has told of a response that this one could make once more. */
struct sb_heard_fingerprint {
        struct bpf_spin_lock lock;
        __u32 origin;
        struct sb_key key; /* of the response */
        __u64 len;
        __u64 value;
};

/* Length of a response, from the node's program to its agent. */
struct sb_sized {
        struct sb_asking by;
        __u32 bytes;
        __be16 path;
        __u8 reserved[2];
};

/* Whether the server's writes on a flow pass the program that inserts a cookie. */
enum sb_hook {
        SB_HOOK_NONE = 0,
        SB_HOOK_WANTED = 1, /* from the moment when there is a socket, which gets no data before */
        SB_HOOK_SET = 2,    /* until a response has the cookie */
        SB_HOOK_DONE = 3,   /* a response has it: the next packet takes the socket out of the map */
};

/* Settings for clients with the shim. */
struct sb_node_clients {
        struct sb_key sign; /* the cluster's key for clients */
        struct sb_key accept;
        __u32 tunnel; /* packets to these clients go in a tunnel */
        __u32 reserved;
};

/* A fact, from the node's program to its agent, with the switch that wants it. */
struct sb_seen {
        struct sb_asking by;
        struct sb_fact fact;
};

/* A flow whose socket is gone, from the node's program to its agent. */
struct sb_closed {
        struct sb_flow flow;
        __u8 end; /* enum sb_end of the responses that are not complete */
        __u8 reserved[3];
        __u64 at_us; /* clock of sb_owned.turn_us */
        struct sb_owned owned;
};

#endif
