/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Session cookies of a flow when its requests arrive. */
#ifndef NODE_SESSION_H
#define NODE_SESSION_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "away.h"
#include "counters.h"
#include "framing.h"
#include "handoff.h"
#include "insert.h"
#include "node_maps.h"
#include "received.h"
#include "restore.h"
#include "session_cookie.h"

/*
 * Prepares the session's cookie for the first request of an adoption. Less than zero if the packet is not
 * delivered.
 */
static __always_inline int begin_session(struct __sk_buff *skb, const struct handoff *h,
                                         struct sb_owned *flow)
{
        struct sb_persistence *p;

        if (!h || !flow)
                return -1;
        p = persistence_of(flow);
        if (p && p->mode == SB_SESSION_REWRITE)
                return restore_names(skb, h, flow, p, server_seq(h));
        pass_requests(&flow->cookies);
        flow->hooked = h->payload && needs_cookie(skb, h, p) ? SB_HOOK_WANTED : SB_HOOK_NONE;
        /* The program that inserts cookies needs the server's socket. */
        if (flow->hooked == SB_HOOK_WANTED && is_away(flow)) {
                flow->hooked = SB_HOOK_NONE;
                count(SB_NODE_COOKIE_MISSED);
        }
        return 0;
}

/*
 * Handles the session's cookie in a packet with data. Less than zero if the packet must not be delivered now.
 */
__noinline int go_on_with_session(struct __sk_buff *skb, const struct handoff *h, struct sb_owned *flow,
                                  __u32 rcv_nxt)
{
        struct sb_persistence *p;
        int begins;

        if (!h || !flow)
                return -1;
        /* A late copy says nothing about the next request. */
        begins = h->option.flags & SB_HANDOVER_REQUEST && (__s32)(h->seq - rcv_nxt) >= 0;
        if (begins) {
                flow->cookies.session = h->option.payload.flow.session;
                if (flow->cookies.request.state == SB_FRAMING_LOST)
                        begin_requests(&flow->cookies, h->seq);
        }
        p = persistence_of(flow);
        if (p && p->mode == SB_SESSION_REWRITE)
                return restore_names(skb, h, flow, p, rcv_nxt);
        pass_requests(&flow->cookies);
        if (begins && needs_cookie(skb, h, p))
                hook(skb, h, flow);
        return 0;
}

#endif
