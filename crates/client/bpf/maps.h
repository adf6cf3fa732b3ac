/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#ifndef CLIENT_MAPS_H
#define CLIENT_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "client_maps.h"
#include "counters.h"
#include "flow.h"
#include "packet.h"
#include "tcx.h"

/* VIPs whose nodes are trusted. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 256);
        __type(key, struct sb_endpoint);
        __type(value, __u32);
} services SEC(".maps");

/* Keys by an address of this client, as the cluster sees it. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 64);
        __type(key, __u8[16]);
        __type(value, struct sb_client_keys);
} keys SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct sb_client_settings);
} settings SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 65536);
        __type(key, struct sb_flow);
        __type(value, struct sb_direct_flow);
} flows SEC(".maps");

/* Flows whose servers send through tunnels. Without the programs these flows are cut off. */
struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 65536);
        __type(key, struct sb_flow);
        __type(value, __u32);
} tunneled SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 1024);
        __type(key, __u8[16]);
        __type(value, struct sb_direct_node);
} nodes SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, SB_CLIENT_COUNTERS_LEN);
        __type(key, __u32);
        __type(value, __u64);
} counters SEC(".maps");

static __always_inline void count(__u32 counter)
{
        sb_add_one(&counters, counter);
}

static __always_inline int drop(__u32 counter)
{
        count(counter);
        return TCX_DROP;
}

/* Counts, and lets the packet go on as without the programs. */
static __always_inline int leave_alone(__u32 counter)
{
        count(counter);
        return TCX_NEXT;
}

#endif
