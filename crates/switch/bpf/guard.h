/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Which clients a service lets in, how often, and how many at a time. A connection counts with its first data: a SYN
 * costs nothing, and anybody can forge one. So a flood of SYNs in a client's name takes nothing from the client, and of
 * a client over its limits already the SYNs are dropped.
 *
 * Buckets evict each other, the least recently used first. One that is evicted begins anew, full.
 */
#ifndef SWITCH_GUARD_H
#define SWITCH_GUARD_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "flow.h"
#include "maps.h"
#include "packet.h"
#include "switch_maps.h"

/* Attempts to take a token, beside other CPUs. */
#define TOKEN_LOOKS 4

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, SB_GUARDS);
        __type(key, __u32);
        __type(value, struct sb_guard);
} guards SEC(".maps");

/* Written and read by an L7 thread, which runs take_tokens(). */
struct sb_taking takings[SB_L7_THREADS];

/* Time at which each bucket will be full (CLOCK_MONOTONIC, in ns). */
struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 65536);
        __type(key, struct sb_bucket);
        __type(value, __u64);
} buckets SEC(".maps");

/* Connections at a time. An entry that is evicted begins anew, at none, until user space has counted again. */
struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 65536);
        __type(key, struct sb_bucket);
        __type(value, __u32);
} connections SEC(".maps");

/* Whether the clients of a network are let in. User space fills the trie that is not in use, and then names it. */
struct list {
        __uint(type, BPF_MAP_TYPE_LPM_TRIE);
        __uint(max_entries, SB_LISTED);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, struct sb_client_network);
        __type(value, __u32);
};

struct list clients_1 SEC(".maps");
struct list clients_2 SEC(".maps");

/* The service's guard; NULL if it has none. */
static __always_inline struct sb_guard *guard_of(const struct sb_vip *vip)
{
        __u32 index = (__u32)vip->guard - 1;

        return vip->guard ? bpf_map_lookup_elem(&guards, &index) : NULL;
}

static __noinline int is_admitted(const struct sb_flow *flow, const struct sb_guard *guard)
{
        struct sb_client_network key = {.prefix_len = 8 * (sizeof(key.service) + sizeof(key.address)),
                                        .service = guard->listed};
        __u32 *admitted;

        if (!guard->list)
                return 1;
        sb_copy_v6(key.address, flow->client);
        if (guard->list == 1)
                admitted = bpf_map_lookup_elem(&clients_1, &key);
        else
                admitted = bpf_map_lookup_elem(&clients_2, &key);
        return !admitted || *admitted;
}

/* Time until the bucket has a token, in ns. */
static __always_inline __u64 wait_for_token(const struct sb_bucket *bucket, const struct sb_rate *rate,
                                            __u64 now)
{
        volatile __u64 *full = bpf_map_lookup_elem(&buckets, bucket);
        __u64 at = full ? *full : 0, soonest = now + rate->tolerance;

        return at > soonest ? at - soonest : 0;
}

/* The value of an entry. NULL if there was none, and there is one with this value now. */
static __always_inline void *find_or_begin(void *map, const struct sb_bucket *key, const void *value)
{
        void *found = bpf_map_lookup_elem(map, key);

        if (found || !bpf_map_update_elem(map, key, value, BPF_NOEXIST))
                return found;
        return bpf_map_lookup_elem(map, key);
}

/*
 * Takes a token, which the bucket may have later only. Of an entry that another bucket gets meanwhile that one is
 * charged.
 */
static __always_inline void take_token(const struct sb_bucket *bucket, const struct sb_rate *rate, __u64 now)
{
        __u64 before, after = now + rate->interval;
        __u64 *full = find_or_begin(&buckets, bucket, &after);

        if (!full)
                return;
#pragma unroll
        for (int i = 0; i < TOKEN_LOOKS; i++) {
                before = *(volatile __u64 *)full;
                after = (before > now ? before : now) + rate->interval;
                if (__sync_val_compare_and_swap(full, before, after) == before)
                        return;
        }
}

/* The part of a word that is in a prefix of which `bits` are left. */
static __always_inline __u32 masked(__u32 word, __s32 bits)
{
        if (bits >= 32)
                return word;
        return bits <= 0 ? 0 : word & bpf_htonl(~0u << (32 - bits));
}

static __always_inline void fill_bucket(struct sb_bucket *bucket, const struct sb_flow *flow,
                                        const struct sb_guard *guard, __u32 of, __u32 whose)
{
        const __u32 *client = (const __u32 *)flow->client;
        __u32 *network = (__u32 *)bucket->network;
        __s32 bits = sb_is_v4(flow->client) ? guard->prefix_v4 : guard->prefix_v6;

        bucket->service = guard->service;
        bucket->of = of;
#pragma unroll
        for (int i = 0; i < 4; i++)
                network[i] = whose == SB_EACH_CLIENT ? masked(client[i], bits - 32 * i) : 0;
}

/* Whether client and service have a token for something of this kind, SB_OF_*. */
static __noinline int have_tokens(const struct sb_flow *flow, const struct sb_guard *guard, __u32 of)
{
        __u64 now = bpf_ktime_get_ns();
        struct sb_bucket bucket;

        if (of > SB_OF_REQUESTS)
                return 1;
#pragma unroll
        for (int whose = SB_EACH_CLIENT; whose <= SB_ALL_CLIENTS; whose++) {
                const struct sb_rate *rate = &guard->rates[of][whose];

                if (!rate->interval)
                        continue;
                fill_bucket(&bucket, flow, guard, of, whose);
                if (wait_for_token(&bucket, rate, now))
                        return 0;
        }
        return 1;
}

static __noinline int take_tokens_of(const struct sb_flow *flow, const struct sb_guard *guard, __u32 of)
{
        __u64 now = bpf_ktime_get_ns();
        struct sb_bucket bucket;

        if (of > SB_OF_REQUESTS)
                return 0;
#pragma unroll
        for (int whose = SB_EACH_CLIENT; whose <= SB_ALL_CLIENTS; whose++) {
                const struct sb_rate *rate = &guard->rates[of][whose];

                if (!rate->interval)
                        continue;
                fill_bucket(&bucket, flow, guard, of, whose);
                take_token(&bucket, rate, now);
        }
        return 0;
}

/* Whether client and service may have one more connection. */
static __noinline int have_room(const struct sb_flow *flow, const struct sb_guard *guard)
{
        volatile __u32 *count;
        struct sb_bucket key;

#pragma unroll
        for (int whose = SB_EACH_CLIENT; whose <= SB_ALL_CLIENTS; whose++) {
                if (!guard->concurrent[whose])
                        continue;
                fill_bucket(&key, flow, guard, SB_OF_CONNECTIONS, whose);
                count = bpf_map_lookup_elem(&connections, &key);
                if (count && *count >= guard->concurrent[whose])
                        return 0;
        }
        return 1;
}

static __always_inline void count_one_more(const struct sb_bucket *key)
{
        __u32 one = 1, *count = find_or_begin(&connections, key, &one);

        if (count)
                __sync_fetch_and_add(count, 1);
}

static __always_inline void count_one_less(const struct sb_bucket *key)
{
        __u32 *count = bpf_map_lookup_elem(&connections, key), before;

        if (!count)
                return;
#pragma unroll
        for (int i = 0; i < TOKEN_LOOKS; i++) {
                before = *(volatile __u32 *)count;
                if (!before || __sync_val_compare_and_swap(count, before, before - 1) == before)
                        return;
        }
}

/* Counts a connection that has begun, or one that has ended. */
static __noinline int count_connection(const struct sb_flow *flow, const struct sb_guard *guard,
                                       int has_begun)
{
        struct sb_bucket key;

#pragma unroll
        for (int whose = SB_EACH_CLIENT; whose <= SB_ALL_CLIENTS; whose++) {
                if (!guard->concurrent[whose])
                        continue;
                fill_bucket(&key, flow, guard, SB_OF_CONNECTIONS, whose);
                if (has_begun)
                        count_one_more(&key);
                else
                        count_one_less(&key);
        }
        return 0;
}

/* The same for a connection whose service is not at hand. Not inlined, because of the stack. */
static __noinline int count_flow(const struct sb_flow *flow, int has_begun)
{
        const struct sb_vip *vip = find_vip(flow);
        const struct sb_guard *guard = vip ? guard_of(vip) : NULL;

        return guard ? count_connection(flow, guard, has_begun) : 0;
}

/* Deletes the entry of a connection that has ended. */
static __always_inline void end_entry(void *map, const struct sb_flow *flow)
{
        if (!bpf_map_delete_elem(map, flow))
                count_flow(flow, 0);
}

/* Verdict on a connection that may begin. */
#define WELCOME 102

/* Counts and drops what begins a connection that is not welcome. */
static __always_inline int welcome(const struct sb_flow *flow, const struct sb_guard *guard)
{
        if (!is_admitted(flow, guard))
                return drop(SB_SWITCH_DROP_CLIENT);
        if (!have_room(flow, guard))
                return drop(SB_SWITCH_DROP_CONCURRENT);
        return have_tokens(flow, guard, SB_OF_CONNECTIONS) ? WELCOME : drop(SB_SWITCH_DROP_RATE);
}

/* Takes the tokens of a request that the program itself forwards; 0 if the L7 thread has to see it. */
static __always_inline int take_request(const struct sb_flow *flow, const struct sb_guard *guard)
{
        if (!is_admitted(flow, guard) || !have_tokens(flow, guard, SB_OF_REQUESTS))
                return 0;
        take_tokens_of(flow, guard, SB_OF_REQUESTS);
        return 1;
}

/* Takes the tokens of a request that an L7 thread has read, and of which all agree with the request's patience. */
SEC("syscall")
int take_tokens(const struct change_context *ctx)
{
        __u64 now = bpf_ktime_get_ns(), wait = 0;
        __u32 thread = ctx->thread;
        struct sb_taking *taking;
        int is_late = 0;

        if (thread >= SB_L7_THREADS)
                return 1;
        taking = &takings[thread];
        for (__u32 i = 0; i < SB_WISHES && i < taking->count; i++) {
                const struct sb_wish *wish = &taking->wishes[i];
                __u64 longer = wait_for_token(&wish->bucket, &wish->rate, now);

                is_late |= longer > wish->patience;
                if (longer > wait)
                        wait = longer;
        }
        taking->wait = wait;
        taking->taken = !is_late;
        if (is_late)
                return 0;
        for (__u32 i = 0; i < SB_WISHES && i < taking->count; i++)
                take_token(&taking->wishes[i].bucket, &taking->wishes[i].rate, now);
        return 0;
}

#endif
