/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#ifndef NODE_MAPS_H
#define NODE_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "flow.h"
#include "node_maps.h"
#include "packet.h"
#include "tcx.h"

struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 65536);
        __type(key, struct sb_flow);
        __type(value, struct sb_owned);
} owned SEC(".maps");

/* Last connection of a 4-tuple that has ended here. */
struct ended {
        struct sb_masquerade masquerade; /* for what its socket in TIME_WAIT says */
        __u32 origin;
        __u32 next; /* the mark: earlier requests are not adopted again */
};

struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 65536);
        __type(key, struct sb_flow);
        __type(value, struct ended);
} over SEC(".maps");

/* Of sockets made by a replayed handshake, for as long as they live. */
struct {
        __uint(type, BPF_MAP_TYPE_SK_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, int);
        __type(value, struct sb_masquerade);
} masquerades SEC(".maps");

/* What this node has said about adoptions of a flow that it does not own. */
struct claim {
        __u32 origin;
        __u32 generation; /* only newer adoptions are accepted */
        __u64 at_ns;      /* by bpf_ktime_get_ns() */
};

struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 65536);
        __type(key, struct sb_flow);
        __type(value, struct claim);
} claims SEC(".maps");

/* Where a new entry of `owned` is composed: it is too large for the stack. */
struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct sb_owned);
} fresh SEC(".maps");

static __always_inline struct sb_owned *fresh_entry(void)
{
        return sb_zeroed(&fresh, sizeof(struct sb_owned));
}

/* Addresses of the VIPs of this node. The value is SB_VIP_*. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 256);
        __type(key, __u8[16]);
        __type(value, __u32);
} vip_addresses SEC(".maps");

/* The nodes of this machine, by number. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, SB_NODES_HERE);
        __type(key, __u32);
        __type(value, struct sb_node_here);
} nodes_here SEC(".maps");

/* Listeners that are not at their VIP, and where they are. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 16384);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, struct sb_listener);
        __type(value, struct sb_server);
} servers SEC(".maps");

/* Listeners whose responses are judged. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 16384);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, struct sb_listener);
        __type(value, struct sb_judged);
} judged_listeners SEC(".maps");

/* Their failures, and the first success behind some: struct sb_judgment. */
struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 1 << 18);
} judgments SEC(".maps");

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

/* Lengths of responses that switches have asked for. */
struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 1 << 16);
} sized SEC(".maps");

/* Facts about responses. The ring holds those between two polls of the agent. */
struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 1 << 22);
} facts SEC(".maps");

/* Answers to the switch of this machine, in the records of the switch's program. */
struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 1 << 21);
} to_switch SEC(".maps");

/* Heads for `insurable`. */
struct {
        __uint(type, BPF_MAP_TYPE_SK_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, int);
        __type(value, struct sb_heads);
} heads SEC(".maps");

/* Responses with which other nodes could go on: struct sb_insurable, and struct sb_insurable_end. */
struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 1 << 21);
} insurable SEC(".maps");

/* Responses of this node with which another one can go on. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, 65536);
        __type(key, struct sb_flow);
        __type(value, struct sb_heirs);
} have_heirs SEC(".maps");

/* Fingerprints of responses under way. */
struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 65536);
        __type(key, struct sb_flow);
        __type(value, struct sb_fingerprint);
} fingerprints SEC(".maps");

/* Data on its way into a fingerprint: whole words, and what is left of the packet before. */
#define SB_PIECE 1024

struct piece {
        __u64 words[SB_PIECE / 8 + 2];
};

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct piece);
} pieces SEC(".maps");

/* Fingerprints of other nodes' responses; entries are the agent's. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, 65536);
        __type(key, struct sb_flow);
        __type(value, struct sb_heard_fingerprint);
} heard SEC(".maps");

/* The fingerprint that is being told. */
struct telling {
        struct sb_told_fingerprint told;
        struct sb_heirs heirs;
        __u32 next; /* of these heirs */
        __u32 reserved;
};

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct telling);
} tellings SEC(".maps");

/* Nodes that switches take for dead, by the hash of their name: when a switch has said so last, by bpf_ktime_get_ns(). */
struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 1024);
        __type(key, __u32);
        __type(value, __u64);
} deaths SEC(".maps");

/* Responses of other nodes with which this one can go on. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __uint(max_entries, 65536);
        __type(key, struct sb_flow);
        __type(value, struct sb_insured);
} insured SEC(".maps");

/* Load of the nodes of this machine, by number. */
struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
        __uint(max_entries, SB_NODES_HERE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, __u32);
        __type(value, struct sb_load);
} load SEC(".maps");

/* Switches that want reports. Silent ones are evicted. */
struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 64 * SB_NODES_HERE);
        __type(key, struct sb_asking);
        __type(value, struct sb_listening_switch);
} switches SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 16384);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, struct sb_pool_here);
        __type(value, struct sb_persistence);
} persistence SEC(".maps");

/* Sockets whose next response gets a cookie. */
struct {
        __uint(type, BPF_MAP_TYPE_SOCKHASH);
        __uint(max_entries, 16384);
        __type(key, struct sb_flow);
        __type(value, __u64);
} sockets SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, SB_ADOPTING_SLOTS);
        __type(key, __u32);
        __type(value, struct sb_adopting);
} adopting SEC(".maps");

static __always_inline void count(__u32 counter)
{
        sb_add_one(&counters, counter);
}

static __always_inline int drop(__u32 counter)
{
        count(counter);
        return TCX_DROP;
}

#endif
