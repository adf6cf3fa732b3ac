/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#ifndef NODE_MAPS_H
#define NODE_MAPS_H

struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 65536);
        __type(key, struct sb_flow);
        __type(value, struct sb_owned);
} owned SEC(".maps");

/* Addresses of the VIPs that this node answers from. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 256);
        __type(key, __u8[16]);
        __type(value, __u32);
} vip_addresses SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct sb_node_settings);
} settings SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, SB_NODE_COUNTERS_LEN);
        __type(key, __u32);
        __type(value, __u64);
} counters SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 1 << 20);
} closed SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct sb_load);
} load SEC(".maps");

/* By address. Those that say nothing any more give way to others. */
struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 64);
        __type(key, __u8[16]);
        __type(value, struct sb_listening_switch);
} switches SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, SB_ADOPTING_SLOTS);
        __type(key, __u32);
        __type(value, struct sb_adopting);
} adopting SEC(".maps");

static __always_inline void count(__u32 counter)
{
        __u64 *value = bpf_map_lookup_elem(&counters, &counter);

        if (value)
                (*value)++;
}

static __always_inline int drop(__u32 counter)
{
        count(counter);
        return TCX_DROP;
}

#endif
