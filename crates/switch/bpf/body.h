/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Bodies of requests: the program moves the mark over their data, chunk by chunk. */
#ifndef SWITCH_BODY_H
#define SWITCH_BODY_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "entry.h"
#include "framing.h"
#include "framing_walk.h"
#include "maps.h"
#include "parse.h"
#include "switch_maps.h"

/* Steps for the longest packet: each step advances by one byte at least, or ends a block of data. */
#define FRAMING_STEPS (2 * SB_RECORD_LARGE)

/*
 * Moves the mark over data that nobody needs to read, by SB_STEP_MAX at most, so that it is never taken for
 * the past. settle() in crates/flow/src/mark.rs does it in the L7 thread.
 */
static __always_inline void settle(struct sb_flow_entry *entry)
{
        struct sb_framing *framing = &entry->framing;
        __u64 step = framing->left < SB_STEP_MAX ? framing->left : SB_STEP_MAX;

        if (!(framing->state & SB_FRAMING_SKIP))
                return;
        entry->next += (__u32)step;
        framing->left -= step;
        if (framing->left)
                return;
        framing->state &= ~SB_FRAMING_SKIP;
        if (framing->state == SB_FRAMING_BODY)
                framing->state = SB_FRAMING_NONE;
}

/* Whether the mark is in the middle of data. */
static __always_inline int is_passing(const struct sb_flow_entry *entry)
{
        return !!(entry->framing.state & SB_FRAMING_SKIP);
}

static long body_step(__u32 index, struct framing_walk *walk)
{
        framing_step(walk);
        return walk->followed != FOLLOWED_MORE || walk->at >= walk->end;
}

/*
 * Follows a packet that reaches beyond the mark. If all of it is body, moves the mark to its end and returns
 * 1.
 */
static __noinline int follow_body(struct xdp_md *ctx, const struct packet *p, struct sb_flow_entry *place,
                                  struct sb_flow_entry *entry)
{
        __u32 start = (__u32)p->start + p->l3_len + p->tcp_len;
        struct framing_walk walk = {
            .ctx = ctx,
            .framing = entry->framing,
            .at = start + (entry->next - p->seq),
            .end = start + p->payload,
        };

        if (entry->next - p->seq > p->payload)
                return 0;
        bpf_loop(FRAMING_STEPS, body_step, &walk, 0);
        if (walk.at != walk.end || walk.followed == FOLLOWED_NOT || !is_still_at(&flows, &p->flow, place))
                return 0;
        if (walk.followed == FOLLOWED_ENDS)
                framing_begin(&walk.framing, SB_FRAMING_NONE);
        entry->framing = walk.framing;
        entry->next = p->seq + p->payload;
        settle(entry);
        move_mark(place, entry);
        count(SB_SWITCH_CHUNKS);
        return 1;
}

#endif
