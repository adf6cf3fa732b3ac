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

/* Bitmaps of marked cells, one for each trie. */
struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 2 << (SB_MARKS_BITS - 6));
        __type(key, __u32);
        __type(value, __u64);
} marks SEC(".maps");

/* The service's guard; NULL if it has none. */
static __always_inline struct sb_guard *guard_of(const struct sb_vip *vip)
{
        __u32 index = (__u32)vip->guard - 1;

        return vip->guard ? bpf_map_lookup_elem(&guards, &index) : NULL;
}

/* Whether the client's cell may be marked. */
static __always_inline int is_marked(const __u32 client[4], int v4, const struct sb_guard *guard)
{
        __u64 cell = (__u64)guard->listed << SB_CELL_LISTED, *word;
        __u32 bit, index;

        if (v4)
                cell |= SB_CELL_IS_V4 | bpf_ntohl(client[3]) >> (32 - SB_CELL_V4);
        else
                cell |= (__u64)bpf_ntohl(client[0]) << (SB_CELL_V6 - 32) |
                        bpf_ntohl(client[1]) >> (64 - SB_CELL_V6);
        bit = (cell * SB_CELL_FACTOR) >> (64 - SB_MARKS_BITS);
        index = (__u32)(guard->list - 1) << (SB_MARKS_BITS - 6) | bit >> 6;
        word = bpf_map_lookup_elem(&marks, &index);
        return !word || *word >> (bit & 63) & 1;
}

/* Whether the client is let in, by the trie. */
static __noinline int is_admitted_by_trie(const struct sb_flow *flow, const struct sb_guard *guard)
{
        struct sb_client_network key = {.prefix_len = 8 * (sizeof(key.service) + sizeof(key.address)),
                                        .service = guard->listed};
        __u32 *admitted;

        sb_copy_v6(key.address, flow->client);
        if (guard->list == 1)
                admitted = bpf_map_lookup_elem(&clients_1, &key);
        else
                admitted = bpf_map_lookup_elem(&clients_2, &key);
        return !admitted || *admitted;
}

/*
 * Whether the client is let in. A trie of many networks takes some twenty steps, each to memory that is in no cache, so
 * a bitmap comes first.
 */
static __always_inline int is_admitted(const struct sb_flow *flow, const struct sb_guard *guard)
{
        int v4 = sb_is_v4(flow->client);
        __u16 others = v4 ? guard->others_v4 : guard->others_v6;

        if (!guard->list)
                return 1;
        if (others != SB_OTHERS_UNKNOWN && !is_marked((const __u32 *)flow->client, v4, guard))
                return others == SB_OTHERS_ADMITTED;
        return is_admitted_by_trie(flow, guard);
}

/* Time until a bucket has a token, in ns. `full` is NULL for a bucket that has not begun. */
static __always_inline __u64 wait_for_token(const volatile __u64 *full, const struct sb_rate *rate, __u64 now)
{
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
 * Takes a token, which the bucket may have later only. Of an entry that another bucket has got since it was found that
 * one is charged.
 */
static __always_inline void take_token(__u64 *full, const struct sb_rate *rate, __u64 now)
{
        __u64 before, after;

#pragma unroll
        for (int i = 0; i < TOKEN_LOOKS; i++) {
                before = *(volatile __u64 *)full;
                after = (before > now ? before : now) + rate->interval;
                if (__sync_val_compare_and_swap(full, before, after) == before)
                        return;
        }
}

/* Takes a token of a bucket that has to be looked for. */
static __always_inline void take_token_of(const struct sb_bucket *bucket, const struct sb_rate *rate,
                                          __u64 now)
{
        __u64 after = now + rate->interval;
        __u64 *full = find_or_begin(&buckets, bucket, &after);

        if (full)
                take_token(full, rate, now);
}

static __always_inline void fill_bucket(struct sb_bucket *bucket, const struct sb_flow *flow,
                                        const struct sb_guard *guard, __u32 of, __u32 whose)
{
        const __u32 *client = (const __u32 *)flow->client;
        const __u32 *mask = (const __u32 *)guard->masks[sb_is_v4(flow->client)];
        __u32 *network = (__u32 *)bucket->network;

        bucket->service = guard->service;
        bucket->of = of;
#pragma unroll
        for (int i = 0; i < 4; i++)
                network[i] = whose == SB_EACH_CLIENT ? client[i] & mask[i] : 0;
}

/* The buckets of a client and of all clients, which have tokens. Each is looked for once. */
struct found_buckets {
        __u64 *full[2]; /* NULL: there is no limit, or the bucket has not begun */
        __u64 now;      /* CLOCK_MONOTONIC, in ns */
};

/* Whether client and service have a token for something of this kind, SB_OF_*. */
static __noinline int have_tokens(const struct sb_flow *flow, const struct sb_guard *guard, __u32 of,
                                  struct found_buckets *found)
{
        struct sb_bucket bucket;

        if (of > SB_OF_REQUESTS)
                return 1;
#pragma unroll
        for (int whose = SB_EACH_CLIENT; whose <= SB_ALL_CLIENTS; whose++) {
                const struct sb_rate *rate = &guard->rates[of][whose];
                __u64 *full;

                found->full[whose] = NULL;
                if (!rate->interval)
                        continue;
                fill_bucket(&bucket, flow, guard, of, whose);
                full = bpf_map_lookup_elem(&buckets, &bucket);
                if (wait_for_token(full, rate, found->now))
                        return 0;
                found->full[whose] = full;
        }
        return 1;
}

/* Takes the tokens that have_tokens() has found. */
static __noinline int take_tokens_of(const struct sb_flow *flow, const struct sb_guard *guard, __u32 of,
                                     const struct found_buckets *found)
{
        struct sb_bucket bucket;

        if (of > SB_OF_REQUESTS)
                return 0;
#pragma unroll
        for (int whose = SB_EACH_CLIENT; whose <= SB_ALL_CLIENTS; whose++) {
                const struct sb_rate *rate = &guard->rates[of][whose];

                if (!rate->interval)
                        continue;
                if (found->full[whose]) {
                        take_token(found->full[whose], rate, found->now);
                        continue;
                }
                fill_bucket(&bucket, flow, guard, of, whose);
                take_token_of(&bucket, rate, found->now);
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
static __always_inline int welcome(const struct sb_flow *flow, const struct sb_guard *guard,
                                   struct found_buckets *found)
{
        if (!is_admitted(flow, guard))
                return drop(SB_SWITCH_DROP_CLIENT);
        if (!have_room(flow, guard))
                return drop(SB_SWITCH_DROP_CONCURRENT);
        return have_tokens(flow, guard, SB_OF_CONNECTIONS, found) ? WELCOME : drop(SB_SWITCH_DROP_RATE);
}

/*
 * Takes the tokens of a request that the program itself forwards; 0 if the L7 thread has to see it. Not inlined, because
 * of the stack.
 */
static __noinline int take_request(const struct sb_flow *flow, const struct sb_guard *guard)
{
        const struct sb_rate *rates = guard->rates[SB_OF_REQUESTS];
        struct found_buckets found;

        if (!is_admitted(flow, guard))
                return 0;
        if (!rates[SB_EACH_CLIENT].interval && !rates[SB_ALL_CLIENTS].interval)
                return 1;
        found.now = bpf_ktime_get_ns();
        if (!have_tokens(flow, guard, SB_OF_REQUESTS, &found))
                return 0;
        take_tokens_of(flow, guard, SB_OF_REQUESTS, &found);
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
                const __u64 *full = bpf_map_lookup_elem(&buckets, &wish->bucket);
                __u64 longer = wait_for_token(full, &wish->rate, now);

                is_late |= longer > wish->patience;
                if (longer > wait)
                        wait = longer;
        }
        taking->wait = wait;
        taking->taken = !is_late;
        if (is_late)
                return 0;
        for (__u32 i = 0; i < SB_WISHES && i < taking->count; i++)
                take_token_of(&taking->wishes[i].bucket, &taking->wishes[i].rate, now);
        return 0;
}

#endif
