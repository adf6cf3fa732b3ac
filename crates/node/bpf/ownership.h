/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Entries of `owned`: whether an entry belongs to the connection of a packet, and how entries begin and end.
 */
#ifndef NODE_OWNERSHIP_H
#define NODE_OWNERSHIP_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "follow.h"
#include "generation.h"
#include "handoff.h"
#include "intake.h"
#include "kept.h"
#include "keys.h"
#include "load.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"
#include "queue.h"
#include "received.h"

static __always_inline __u16 saturated(__u64 value)
{
        return value > 0xffff ? 0xffff : value;
}

static __always_inline int is_owned(const struct sb_owned *flow, const struct handoff *h)
{
        return flow && flow->origin == bpf_ntohl(h->option.payload.flow.origin);
}

/* Whether the request belongs to a connection that has ended here: a late copy, or a recorded packet. */
static __always_inline int is_over(const struct handoff *h)
{
        struct ended *ended = sb_flow_lookup(&over, &h->flow);

        return ended && ended->origin == bpf_ntohl(h->option.payload.flow.origin) &&
               (__s32)(h->seq - ended->next) < 0;
}

/* Whether the adoption is for another node of this machine than the one that has the entry. */
static __always_inline int is_for_another(const struct sb_owned *flow, const struct handoff *h)
{
        return flow->node != h->node;
}

/* Whether a packet was sent before the flow was released: later data was read, or the server spoke since. */
static __always_inline int is_past(const struct sb_owned *flow, const struct handoff *h)
{
        if (flow->reason == SB_REASON_FROZEN || (__s32)(h->seq - flow->next) < 0)
                return 1;
        return h->seq == flow->next && (__s32)(h->ack - flow->answered) < 0;
}

/* Remembers that the adoption was passed on. Copies of it are not adopted here, even if there is room. */
static __noinline int remember_passing(const struct handoff *h)
{
        struct sb_owned *flow = fresh_entry();

        if (!flow)
                return -1;
        flow->origin = bpf_ntohl(h->option.payload.flow.origin);
        flow->next = bpf_ntohl(h->option.payload.flow.next);
        flow->state = SB_OWN_RELEASED;
        flow->reason = SB_REASON_PASSED_ON;
        flow->generation = generation_of(h);
        flow->node = h->node;
        return sb_flow_update(&owned, &h->flow, flow);
}

static __always_inline int was_passed_on(const struct sb_owned *flow, const struct handoff *h)
{
        return flow->state == SB_OWN_RELEASED && flow->reason == SB_REASON_PASSED_ON &&
               flow->next == bpf_ntohl(h->option.payload.flow.next);
}

/*
 * Whether the socket of an old connection is being removed: there is an entry, but no place in the accept
 * queue.
 */
static __always_inline int is_being_cured(const struct sb_owned *flow)
{
        return flow && flow->state == SB_OWN_ADOPTING && !flow->slot;
}

/* Answers that the flow is not here. If it has been released, its next request begins at `next`. */
static __always_inline int disown(struct handoff *h, const struct sb_owned *ours, __u32 newest,
                                  enum sb_reason reason)
{
        set_answer(h, SB_OP_UNOWNED, reason);
        h->option.payload.flow.next = ours ? bpf_htonl(ours->next) : h->option.payload.flow.origin;
        h->option.payload.flow.generation = bpf_htonl(newest);
        return ANSWER;
}

/* Ends the entry of an adoption that has failed. */
static __always_inline void forget(const struct handoff *h, struct sb_owned *flow)
{
        give_back(flow);
        load_end(flow, flow->state);
        sb_flow_delete(&owned, &h->flow);
}

/*
 * Ends a connection: the agent tells the switches, and no late copy begins it once more. Not inlined: its callers
 * have no stack to spare.
 */
static __noinline int end_flow(const struct sb_flow *key, const struct sb_owned *flow, enum sb_end end)
{
        struct ended ended = {.origin = flow->origin, .next = flow->next, .masquerade = flow->masquerade};
        struct sb_closed *report;

        report = bpf_ringbuf_reserve(&closed, sizeof(*report), 0);
        if (report) {
                report->flow = *key;
                report->end = end;
                __builtin_memset(report->reserved, 0, sizeof(report->reserved));
                report->at_us = clock_us();
                report->owned = *flow;
                bpf_ringbuf_submit(report, BPF_RB_NO_WAKEUP);
        }
        sb_flow_update(&over, key, &ended);
        sb_flow_delete(&kept, key);
        return sb_flow_delete(&owned, key);
}

/* Ends a connection to a server behind an interface, of which no socket tells. */
static __always_inline void end_away(const struct sb_flow *key, struct sb_owned *flow, enum sb_end end)
{
        if (flow->state != SB_OWN_OPEN)
                return;
        load_end(flow, SB_OWN_OPEN);
        end_flow(key, flow, end);
}

static __always_inline __u32 via_of(const struct handoff *h)
{
        return *(const __u32 *)&h->sender[12];
}

/* Notes the switch that the flow comes by. */
static __always_inline void note_switch(struct sb_owned *flow, const struct handoff *h)
{
        __u32 via = via_of(h);

        if (flow->via == via)
                return;
        flow->via = via;
        count(SB_NODE_TAKEN_OVER);
}

/*
 * Creates the entry of the flow. `before` is its old entry or NULL; `taken` and `limit` are those of the
 * accept queue, in which `slot` has its place.
 */
static __noinline int own(const struct handoff *h, struct sb_owned *before, __u64 taken, __u32 limit,
                          __u8 slot)
{
        struct sb_owned *flow = fresh_entry();

        if (!flow)
                return -1;
        flow->origin = bpf_ntohl(h->option.payload.flow.origin);
        set_mark(flow, h, h->seq);
        flow->passed = server_seq(h) + h->payload;
        flow->answered = h->ack;
        flow->followed = h->ack;
        flow->asked = h->seq;
        flow->grown = grown_of(h);
        flow->again = !!(h->option.flags & SB_HANDOVER_AGAIN);
        flow->keeps = !(h->option.flags & SB_HANDOVER_LAST);
        /* One less, so that note_requests() counts it. */
        flow->requests = bpf_ntohs(h->option.payload.flow.requests) - 1;
        flow->responses = flow->requests;
        flow->framing.allowed = ~0ULL;
        flow->mss = bpf_ntohs(h->option.payload.flow.mss);
        flow->queue_len = saturated(taken + 1);
        flow->queue_limit = saturated(limit);
        flow->slot = slot;
        flow->options = h->option.payload.flow.options;
        flow->wscale = h->option.payload.flow.wscale;
        flow->state = SB_OWN_ADOPTING;
        flow->generation = generation_of(h);
        flow->node = h->node;
        flow->cookies.session = h->option.payload.flow.session;
        flow->cookies.heard = server_seq(h);
        flow->cookies.request.allowed = ~0ULL;
        sb_copy_v6(flow->switch_address, h->sender);
        flow->via = via_of(h);
        if (before) {
                load_end(before, before->state);
                /* Its server has to be told to forget the old connection. */
                flow->away = before->away;
        }
        note_requests(flow, h);
        note_path(flow, h);
        return sb_flow_update(&owned, &h->flow, flow);
}

#endif
