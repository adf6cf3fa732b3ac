/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#ifndef SWITCH_MAPS_H
#define SWITCH_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "flow.h"
#include "packet.h"
#include "switch_maps.h"

struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 262144);
        __type(key, struct sb_flow);
        __type(value, struct sb_flow_entry);
} flows SEC(".maps");

/*
 * Flows without a node so far. Whoever can receive packets can begin any number of them, so they evict each
 * other, and not flows with a node, which are in `flows` even after their node has gone.
 */
struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 65536);
        __type(key, struct sb_flow);
        __type(value, struct sb_flow_entry);
} waiting SEC(".maps");

/* Last connection of a 4-tuple whose entry was removed. */
struct end {
        __u32 origin;
        __u32 in_doubt; /* nodes know whether the connection has ended */
};

/* A copy of a connection's first packet, whose cookie may still be valid, must not begin it again. */
struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 65536);
        __type(key, struct sb_flow);
        __type(value, struct end);
} over SEC(".maps");

static __always_inline void remember_end(const struct sb_flow *flow, __u32 origin, int in_doubt)
{
        struct end end = {.origin = origin, .in_doubt = in_doubt};

        bpf_map_update_elem(&over, flow, &end, BPF_ANY);
}

/* How the flow's connection with this origin has ended; NULL if it has not. */
static __always_inline struct end *end_of(const struct sb_flow *flow, __u32 origin)
{
        struct end *end = bpf_map_lookup_elem(&over, flow);

        return end && end->origin == origin ? end : NULL;
}

static __always_inline int has_node(const struct sb_flow_entry *entry)
{
        return entry->mode != SB_MODE_HELD && entry->mode != SB_MODE_SOUGHT &&
               entry->mode != SB_MODE_ANSWERED && entry->mode != SB_MODE_RESUMING;
}

/* Changes to `flows` and `waiting`. An L7 thread writes them here and runs apply_changes(). */
enum change_kind {
        CHANGE_REPLACE,
        CHANGE_CREATE,
        CHANGE_REMOVE,  /* the connection has ended */
        CHANGE_FORGET,  /* the connection may go on, as its nodes say */
        CHANGE_ABANDON, /* removes it from `waiting` only */
        CHANGE_AHEAD,   /* sets `ahead` only: the rest belongs to whoever moves the mark */
};

struct change {
        struct sb_flow flow;
        enum change_kind kind;
        struct sb_flow_entry entry;
};

#define CHANGES_MAX 128

struct change_batch {
        struct change changes[CHANGES_MAX];
        __u32 len;
};

/* Argument of apply_changes(). */
struct change_context {
        __u32 thread;
};

/* By L7 thread. */
struct change_batch batches[SB_L7_THREADS];

/* A handshake under way, in the place that its cookie gives it. A later one may take the place. */
struct handshake {
        __u32 isn;     /* of the SYN-ACK */
        __u32 sent_us; /* time of the SYN-ACK */
        __u32 took_us; /* until it was acknowledged; 0: it has not been */
        __u32 begun;   /* the first request has begun to arrive */
};

/* One less than the size of `handshakes`, which is a power of two. */
const volatile __u32 handshakes_mask;

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct handshake);
} handshakes SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, SB_NODES);
        __type(key, __u32);
        __type(value, struct sb_node);
} nodes SEC(".maps");

/* Index of each node in `nodes`. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, SB_NODES);
        __type(key, struct sb_node_address);
        __type(value, __u32);
} node_ids SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 256);
        __type(key, struct sb_endpoint);
        __type(value, struct sb_vip);
} vips SEC(".maps");

static __always_inline struct sb_vip *find_vip(const struct sb_flow *flow)
{
        struct sb_endpoint endpoint = {.port = flow->vip_port};

        sb_copy_v6(endpoint.address, flow->vip);
        return bpf_map_lookup_elem(&vips, &endpoint);
}

/* Addresses of VIPs on any port. The program answers ARP, neighbour discovery and ping for them. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 256);
        __type(key, __u8[16]);
        __type(value, __u32);
} vip_addresses SEC(".maps");

/* Interfaces that the program is attached to, by index. */
struct our_interface {
        __u8 mac[6];
        __u16 ways; /* SB_SENDS_* */
};

/* Verdict of a function that has turned the packet into an answer to its sender. */
#define SEND_BACK 100

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 16);
        __type(key, __u32);
        __type(value, struct our_interface);
} interfaces SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct sb_switch_settings);
} settings SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, SB_SWITCH_COUNTERS_LEN);
        __type(key, __u32);
        __type(value, __u64);
} counters SEC(".maps");

/* Number of L7 threads. Each has the flows of a hash. */
const volatile __u32 l7_threads = 1;

/* For each CPU, a ring for each L7 thread, so that neither contend. User space fills the outer array. */
struct ring {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 1 << 21);
};

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
        __uint(max_entries, 1);
        __type(key, __u32);
        __array(values, struct ring);
} rings SEC(".maps");

struct l7_thread {
        /* Set while the thread polls its rings, or has been woken. The thread clears it before it sleeps. */
        __u32 awake;
} __attribute__((aligned(64)));

struct l7_thread l7_states[SB_L7_THREADS];

/*
 * Until this time (CLOCK_MONOTONIC, in nanoseconds) reports and facts wake no thread: the first will poll the rings then.
 */
__u64 reports_wait;

static __always_inline void count(__u32 counter)
{
        sb_add_one(&counters, counter);
}

static __always_inline int drop(__u32 counter)
{
        count(counter);
        return XDP_DROP;
}

#endif
