/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Load of the nodes, as sums of which the agent makes reports. A flow whose responses cannot be followed
 * counts as a flow, but its requests do not count.
 */
#ifndef NODE_LOAD_H
#define NODE_LOAD_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "framing.h"
#include "maps.h"
#include "node_maps.h"

/* The sums of the flow's node. */
static __always_inline struct sb_load *load_of(const struct sb_owned *flow)
{
        __u32 node = flow->node;

        return bpf_map_lookup_elem(&load, &node);
}

static __always_inline __u64 clock_us(void)
{
        return bpf_ktime_get_ns() / 1000;
}

/* Microseconds of a clock that wraps. */
static __always_inline __u32 now_us(void)
{
        return (__u32)clock_us();
}

static __always_inline __u16 unanswered(const struct sb_owned *flow)
{
        return flow->requests - flow->responses;
}

/*
 * Flows also begin and end in system calls of the server, which a packet may interrupt: the additions are
 * atomic.
 */
static __always_inline void load_begin(const struct sb_owned *flow)
{
        struct sb_load *sums = load_of(flow);

        if (sums)
                __sync_fetch_and_add(&sums->flows, 1);
}

/* The node gives up `flow`. */
static __always_inline void load_end(const struct sb_owned *flow, __u8 state)
{
        struct sb_load *sums = load_of(flow);

        if (!sums || state == SB_OWN_RELEASED)
                return;
        if (state == SB_OWN_OPEN)
                __sync_fetch_and_add(&sums->ended, 1);
        if (flow->framing.state != SB_FRAMING_LOST)
                __sync_fetch_and_add(&sums->abandoned, (__u64)unanswered(flow));
}

static __always_inline void load_requests(const struct sb_owned *flow, __u16 more)
{
        struct sb_load *sums = load_of(flow);

        if (sums && flow->framing.state != SB_FRAMING_LOST)
                sums->requests += more;
}

/* The flow's responses cannot be followed any more. */
static __always_inline void load_lose(const struct sb_owned *flow)
{
        struct sb_load *sums = load_of(flow);

        if (sums)
                sums->abandoned += unanswered(flow);
}

static __always_inline void load_response(const struct sb_owned *flow)
{
        struct sb_load *sums = load_of(flow);

        if (sums)
                sums->responses++;
}

/*
 * The first byte of the next response leaves. With several open requests, the time includes earlier
 * responses.
 */
static __always_inline void load_first_byte(const struct sb_owned *flow)
{
        struct sb_load *sums = load_of(flow);

        if (!sums || unanswered(flow) != 1 || flow->asked_us == 0)
                return;
        sums->first_bytes++;
        sums->waited_us += now_us() - flow->asked_us;
}

#endif
