/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Restoring the names of session cookies in requests. The cookie by which the switch has chosen the node gets
 * the name back that the server has given it.
 *
 * Names must be found in heads only, in whatever packets they come: the switch forwards retransmissions
 * unread. So the node follows requests itself, in order. A part of a head that comes too early is dropped,
 * and the client sends it again. Data of a body is skipped in any order.
 */
#ifndef NODE_RESTORE_H
#define NODE_RESTORE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "follow.h"
#include "framing.h"
#include "handoff.h"
#include "maps.h"
#include "messages.h"
#include "node_maps.h"
#include "received.h"
#include "session_cookie.h"

struct request_walk {
        struct framing_walk framing;
        struct sb_owned *flow;
        __u32 base;
        __u32 done;
};

static __always_inline void lose_requests(struct framing_walk *w)
{
        framing_begin(&w->framing, SB_FRAMING_LOST);
}

/*
 * Whether a request follows. Nothing follows the request that the switch has called the last one, though a
 * packet that came early may have announced that.
 */
static __always_inline int is_request(const struct request_walk *walk)
{
        __u32 at = walk->base + walk->framing.at;

        return walk->flow->keeps || (__s32)(at - first_byte(walk->flow)) <= 0;
}

static long request_step(__u32 index, struct request_walk *walk)
{
        struct framing_walk *w = &walk->framing;

        if (w->at >= w->end)
                return 1;
        if (w->framing.state == SB_FRAMING_NONE) {
                if (!is_request(walk)) {
                        lose_requests(w);
                        return 1;
                }
                framing_begin(&w->framing, SB_FRAMING_HEAD);
        }
        framing_step(w);
        if (w->followed == FOLLOWED_NOT) {
                lose_requests(w);
                return 1;
        }
        if (w->followed == FOLLOWED_NAME)
                note_name(w, &walk->flow->cookies.restored, walk->base, walk->done, SB_NODE_COOKIE_RESTORED);
        if (w->followed == FOLLOWED_ENDS) {
                framing_begin(&w->framing, SB_FRAMING_NONE);
                w->followed = FOLLOWED_MORE;
        }
        return w->at >= w->end;
}

/* Follows requests from `seq` on, where one begins. */
static __always_inline void begin_requests(struct sb_cookies *cookies, __u32 seq)
{
        cookies->heard = seq;
        cookies->restored.tries = 0;
        framing_begin(&cookies->request, SB_FRAMING_NONE);
}

/* Stops following until the switch says where a request begins. */
static __always_inline void pass_requests(struct sb_cookies *cookies)
{
        framing_begin(&cookies->request, SB_FRAMING_LOST);
}

/* Skips missing data, if all of it is in a body. Otherwise less than zero. */
static __always_inline int skip_gap(struct sb_framing *framing, __u32 gap)
{
        if (!(framing->state & SB_FRAMING_SKIP) || framing->left < gap)
                return -1;
        framing->left -= gap;
        if (framing->left)
                return 0;
        framing->state &= ~SB_FRAMING_SKIP;
        if (framing->state == SB_FRAMING_BODY)
                framing_begin(framing, SB_FRAMING_NONE);
        return 0;
}

/* Follows the new data of a packet. Less than zero if the packet comes too early, or has to wait. */
__noinline int hear(struct __sk_buff *skb, const struct handoff *h, struct sb_owned *flow,
                    const struct sb_persistence *p, const struct data_place *data)
{
        struct request_walk walk = {};
        struct sb_cookies *cookies;
        __s32 seen;

        if (!h || !flow || !p || !data)
                return -1;
        cookies = &flow->cookies;
        seen = cookies->heard - data->seq;
        if (cookies->request.state == SB_FRAMING_LOST)
                return 0;
        if (seen >= (__s32)data->len)
                return is_undecided(&cookies->request, &cookies->restored, data) ? -1 : 0;
        if (seen < 0) {
                if (skip_gap(&cookies->request, -seen)) {
                        count(SB_NODE_DROP_BEHIND_GAP);
                        return -1;
                }
                seen = 0;
        }
        walk.flow = flow;
        walk.base = data->seq - data->start;
        walk.done = data->done;
        walk.framing.ctx = skb;
        walk.framing.table = 1;
        walk.framing.framing = cookies->request;
        walk.framing.at = data->start + seen;
        walk.framing.end = data->start + data->len;
        if (h->option.payload.flow.session.node[0]) {
                walk.framing.name_len = p->name_len;
                __builtin_memcpy(walk.framing.name, p->name, sizeof(p->name));
                __builtin_memcpy(walk.framing.name, SB_KEYWORD, 2);
                __builtin_memcpy(walk.framing.name + 2, h->option.payload.flow.session.pool, 3);
                __builtin_memcpy(walk.framing.name + 5, h->option.payload.flow.session.node, 3);
        }
        bpf_loop(FOLLOW_STEPS, request_step, &walk, 0);
        cookies->request = walk.framing.framing;
        cookies->heard = data->seq + data->len;
        if (!is_cut(&cookies->request)) {
                cookies->restored.tries = 0;
                return 0;
        }
        /* An adoption cannot wait. The switch makes sure that its packet cuts no name. */
        if (h->option.op == SB_OP_ADOPT) {
                give_up_name(&cookies->request, &cookies->restored);
                return 0;
        }
        cookies->restored.undecided = cookies->heard - cookies->request.matched;
        cookies->restored.tries = 1;
        count(SB_NODE_COOKIE_WAITED);
        return -1;
}

/* Restores the names in a request. Less than zero if the packet must not be delivered now. */
__noinline int restore_names(struct __sk_buff *skb, const struct handoff *h, struct sb_owned *flow,
                             const struct sb_persistence *p, __u32 rcv_nxt)
{
        struct data_place data = {};

        if (!h || !flow || !p)
                return -1;
        if (h->payload == 0)
                return 0;
        data.tcp = sizeof(struct ethhdr) + h->outer_len + shim_len(h) + h->inner_len;
        data.start = data.tcp + h->tcp_len;
        data.seq = server_seq(h);
        data.len = h->payload;
        data.done = rcv_nxt;
        if (hear(skb, h, flow, p, &data))
                return -1;
        return write_codes(skb, &data, &flow->cookies.restored, code_of(p->name));
}

#endif
