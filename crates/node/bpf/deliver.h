/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Giving packets to the kernel, with the numbers that their socket knows. */
#ifndef NODE_DELIVER_H
#define NODE_DELIVER_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "decap.h"
#include "maps.h"
#include "masquerade.h"
#include "node_maps.h"
#include "received.h"
#include "socket.h"
#include "tcx.h"

/* The masquerade of a socket whose flow has no entry: one that lives, or one in TIME_WAIT. */
static __noinline struct sb_masquerade *find_masquerade(struct __sk_buff *skb, const struct handoff *h)
{
        struct sb_masquerade *found = NULL;
        struct bpf_sock *skc;

        skc = (struct bpf_sock *)lookup(skb, h);
        if (!skc)
                return NULL;
        if (*(volatile __u32 *)&skc->state == TCP_TIME_WAIT)
                found = masquerade_of_ended(&h->flow);
        else
                found = masquerade_of_socket(skc);
        bpf_sk_release(skc);
        return found;
}

/* Translates the decapsulated packet. `flow` is the flow's entry, or NULL. */
static __noinline int translate(struct __sk_buff *skb, const struct handoff *h, const struct sb_owned *flow)
{
        const struct sb_masquerade *m = flow ? &flow->masquerade : find_masquerade(skb, h);

        if (!m || !m->stage)
                return 0;
        if (h->icmp)
                return quoted_to_server(skb, h, m->seq);
        return to_server(skb, sizeof(struct ethhdr) + h->inner_len, m);
}

/* Takes the packet off its tunnel. `flow` is the flow's entry, or NULL. */
static __always_inline int deliver(struct __sk_buff *skb, const struct handoff *h,
                                   const struct sb_owned *flow)
{
        if (decapsulate(skb, h) || translate(skb, h, flow))
                return drop(SB_NODE_DROP_MALFORMED);
        return TCX_PASS;
}

#endif
