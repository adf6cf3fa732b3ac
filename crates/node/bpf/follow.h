/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Which responses the server has sent whole. Every new byte that it sends on an adopted flow passes egress once, in
 * order, before it can be acknowledged; the automaton reads heads and the sizes of chunks, and skips the rest. What
 * has gone by already is a retransmission.
 */
#ifndef NODE_FOLLOW_H
#define NODE_FOLLOW_H

#define FRAMING_CONTEXT                struct __sk_buff
#define FRAMING_LOAD(ctx, at, to, len) bpf_skb_load_bytes(ctx, at, to, len)
#include "framing.h"

/* Each step goes on by a byte at least, or ends data; the longest packet (BIG TCP) has some 500 KB. */
#define FOLLOW_STEPS (1 << 20)

static __always_inline __u64 *heads_of(struct sb_owned *flow, __u16 number)
{
        return &flow->heads[number / 64 & (SB_HEADS / 64 - 1)];
}

static __always_inline int is_head(struct sb_owned *flow, __u16 number)
{
        return *heads_of(flow, number) >> (number & 63) & 1;
}

/*
 * The switch has given the node so many requests. A packet that said so may have been lost, so each says which of the
 * last 32 were HEAD. That 32 such packets are lost in a row, and a HEAD among them, is not provided for.
 */
static __always_inline void note_requests(struct sb_owned *flow, const struct handoff *h)
{
        __u16 requests = bpf_ntohs(h->option.requests);
        __s16 more = (__s16)(requests - flow->requests);
        __u32 heads = bpf_ntohl(h->option.detail);

        if (more <= 0)
                return;
        for (int i = 0; i < 32 && i < more; i++) {
                __u16 number = requests - i;
                __u64 bit = 1ULL << (number & 63);
                __u64 *word = heads_of(flow, number);

                *word = heads >> i & 1 ? *word | bit : *word & ~bit;
        }
        flow->requests = requests;
        flow->asked_us = now_us();
        load_requests(flow, more);
}

struct response_walk {
        struct framing_walk framing;
        struct sb_owned *flow;
};

static __always_inline void lose_track(struct sb_framing *framing, const struct sb_owned *flow)
{
        if (framing->state == SB_FRAMING_LOST)
                return;
        framing_begin(framing, SB_FRAMING_LOST);
        load_lose(flow);
        count(SB_NODE_LOST_TRACK);
}

static long response_step(__u32 index, struct response_walk *walk)
{
        struct framing_walk *w = &walk->framing;
        struct sb_owned *flow = walk->flow;
        __u16 number = flow->responses + 1;

        if (w->at >= w->end)
                return 1;
        if (w->framing.state == SB_FRAMING_NONE) {
                /* Nobody has asked for it; or there are more requests than can be told apart. */
                if (flow->requests == flow->responses ||
                    (__u16)(flow->requests - flow->responses) > SB_HEADS) {
                        lose_track(&w->framing, flow);
                        return 1;
                }
                w->head = is_head(flow, number);
                load_first_byte(flow);
                framing_begin(&w->framing, SB_FRAMING_HEAD);
        }
        framing_step(w);
        if (w->followed == FOLLOWED_NOT) {
                lose_track(&w->framing, flow);
                return 1;
        }
        if (w->followed == FOLLOWED_ENDS) {
                if (w->framing.flags & SB_FRAMING_HAS_CLOSE)
                        flow->keeps = 0;
                framing_begin(&w->framing, SB_FRAMING_NONE);
                w->followed = FOLLOWED_MORE;
                flow->responses = number;
                load_response();
                count(SB_NODE_RESPONSES);
        }
        return w->at >= w->end;
}

/* Data of the server at `start` in the packet, whose sequence number is `seq`. */
static __noinline int follow_responses(struct __sk_buff *skb, struct sb_owned *flow, __u32 start, __u32 seq)
{
        __u32 len = skb->len - start, seen;
        struct response_walk walk = {};

        if (!flow || skb->len <= start)
                return 0;
        seen = flow->followed - seq;
        if ((__s32)(seen - len) >= 0)
                return 0;
        if (flow->framing.state == SB_FRAMING_LOST)
                return 0;
        if ((__s32)seen < 0) {
                lose_track(&flow->framing, flow);
                return 0;
        }
        walk.flow = flow;
        walk.framing.ctx = skb;
        walk.framing.framing = flow->framing;
        walk.framing.at = start + seen;
        walk.framing.end = start + len;
        walk.framing.head = is_head(flow, flow->responses + 1);
        bpf_loop(FOLLOW_STEPS, response_step, &walk, 0);
        flow->framing = walk.framing.framing;
        flow->followed = seq + len;
        return 0;
}

#endif
