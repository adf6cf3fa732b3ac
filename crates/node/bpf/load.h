/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the node has to do, as sums that only grow; the agent makes reports of them. A flow whose responses can no
 * longer be followed counts as a flow, but none of its requests do.
 */
#ifndef NODE_LOAD_H
#define NODE_LOAD_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "framing.h"
#include "maps.h"
#include "node_maps.h"

static __always_inline struct sb_load *this_load(void)
{
        __u32 zero = 0;

        return bpf_map_lookup_elem(&load, &zero);
}

static __always_inline __u64 clock_us(void)
{
        return bpf_ktime_get_ns() / 1000;
}

/* Of a clock that wraps. */
static __always_inline __u32 now_us(void)
{
        return (__u32)clock_us();
}

static __always_inline __u16 unanswered(const struct sb_owned *flow)
{
        return flow->requests - flow->responses;
}

/*
 * Begin and end of a flow are also seen where a packet may come in between, in the server's own system calls: hence the
 * atomic additions, which a packet's cannot be lost in.
 */
static __always_inline void load_begin(void)
{
        struct sb_load *sums = this_load();

        if (sums)
                __sync_fetch_and_add(&sums->flows, 1);
}

/* `flow` is given up, whatever it waits for. */
static __always_inline void load_end(const struct sb_owned *flow, __u8 state)
{
        struct sb_load *sums = this_load();

        if (!sums || state == SB_OWN_RELEASED)
                return;
        if (state == SB_OWN_OPEN)
                __sync_fetch_and_add(&sums->ended, 1);
        if (flow->framing.state != SB_FRAMING_LOST)
                __sync_fetch_and_add(&sums->abandoned, (__u64)unanswered(flow));
}

static __always_inline void load_requests(const struct sb_owned *flow, __u16 more)
{
        struct sb_load *sums = this_load();

        if (sums && flow->framing.state != SB_FRAMING_LOST)
                sums->requests += more;
}

/* The flow's responses cannot be followed from here on. */
static __always_inline void load_lose(const struct sb_owned *flow)
{
        struct sb_load *sums = this_load();

        if (sums)
                sums->abandoned += unanswered(flow);
}

static __always_inline void load_response(void)
{
        struct sb_load *sums = this_load();

        if (sums)
                sums->responses++;
}

/* The first byte of the next response leaves. Behind other requests it has waited for their responses, too. */
static __always_inline void load_first_byte(const struct sb_owned *flow)
{
        struct sb_load *sums = this_load();

        if (!sums || unanswered(flow) != 1 || flow->asked_us == 0)
                return;
        sums->first_bytes++;
        sums->waited_us += now_us() - flow->asked_us;
}

#endif
