/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#ifndef SWITCH_MAPS_H
#define SWITCH_MAPS_H

struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 262144);
        __type(key, struct sb_flow);
        __type(value, struct sb_flow_entry);
} flows SEC(".maps");

/* What the L7 thread wants done to `flows`, which it writes here and has apply_changes() do. */
enum change_kind {
        CHANGE_REPLACE,
        CHANGE_CREATE,
        CHANGE_REMOVE,
        CHANGE_AHEAD, /* sets `ahead`, and leaves the rest to whoever moves the mark */
};

struct change {
        struct sb_flow flow;
        enum change_kind kind;
        struct sb_flow_entry entry;
};

#define CHANGES_MAX 128

struct change changes[CHANGES_MAX];
__u32 changes_len;

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1024);
        __type(key, __u32);
        __type(value, struct sb_node);
} nodes SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 256);
        __type(key, struct sb_endpoint);
        __type(value, struct sb_vip);
} vips SEC(".maps");

/* Addresses of the VIPs, whatever the port: ARP, neighbour discovery and ping are answered for them. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 256);
        __type(key, __u8[16]);
        __type(value, __u32);
} vip_addresses SEC(".maps");

/* The interfaces that the program is attached to, by index. */
struct our_interface {
        __u8 mac[6];
};

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

/* One ring for each CPU, so that receive queues do not contend; user space fills the outer array. */
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

/* The L7 thread looks at the rings by itself, or has been told to; it clears this before it sleeps. */
__u32 l7_awake;

/* Allowance for SB_RECORD_UNKNOWN, so that a flood of forged packets cannot crowd out requests. */
struct allowance {
        __u64 period;
        __u64 used;
};

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct allowance);
} unknown_allowance SEC(".maps");

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
