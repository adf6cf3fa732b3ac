/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Statuses of responses at the listeners of pools with outliers. The agent counts failures in a row, so of successes it is
 * told only the first behind failures.
 */
#ifndef NODE_JUDGE_H
#define NODE_JUDGE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "flow.h"
#include "keys.h"
#include "maps.h"
#include "node_maps.h"

/* The head of a response has left. Not inlined, because of the stack. */
static __noinline int judge(const struct sb_owned *flow, const struct sb_flow *key, __u16 status)
{
        struct sb_listener listener = {.vip = vip_of(key), .node = flow->node};
        struct sb_judged *judged = bpf_map_lookup_elem(&judged_listeners, &listener);
        int fails = status >= 500 && status < 600;
        struct sb_judgment *judgment;

        if (!judged || (!fails && !judged->fails))
                return 0;
        judgment = bpf_ringbuf_reserve(&judgments, sizeof(*judgment), 0);
        if (!judgment) {
                count(SB_NODE_JUDGMENT_LOST);
                return 0;
        }
        judged->fails = fails;
        judgment->listener = listener;
        judgment->status = status;
        judgment->reserved = 0;
        bpf_ringbuf_submit(judgment, BPF_RB_NO_WAKEUP);
        count(SB_NODE_JUDGMENT);
        return 0;
}

#endif
