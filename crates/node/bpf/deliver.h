/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Giving packets to the kernel, with the numbers that their socket knows. */
#ifndef NODE_DELIVER_H
#define NODE_DELIVER_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "away.h"
#include "counters.h"
#include "decap.h"
#include "maps.h"
#include "masquerade.h"
#include "node_maps.h"
#include "ownership.h"
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

/* Gives the decapsulated packet to the server. `flow` is the flow's entry, or NULL. */
static __noinline int hand_on(struct __sk_buff *skb, const struct handoff *h, struct sb_owned *flow)
{
        int verdict;

        if (translate(skb, h, flow))
                return drop(SB_NODE_DROP_MALFORMED);
        if (!flow || !is_away(flow) || h->icmp)
                return TCX_PASS;
        note_to_away(flow, h);
        verdict = send_away(skb, &h->flow, flow);
        if (h->tcp_flags & SB_TCP_RST || is_closed_away(&flow->away))
                end_away(&h->flow, flow, SB_END_CLIENT);
        return verdict;
}

/* Takes the packet off its tunnel. `flow` is the flow's entry, or NULL. */
static __always_inline int deliver(struct __sk_buff *skb, const struct handoff *h, struct sb_owned *flow)
{
        return decapsulate(skb, h) ? drop(SB_NODE_DROP_MALFORMED) : hand_on(skb, h, flow);
}

/*
 * Turns the packet into a RST that ends a socket of this node, without a packet to the client. The sequence
 * number is exactly what the socket expects (RFC 5961 section 3.2).
 */
static __noinline int reset_locally(struct __sk_buff *skb, const struct handoff *h, struct sb_owned *flow,
                                    __u32 rcv_nxt)
{
        struct tcphdr tcp = {
            .source = h->flow.client_port,
            .dest = h->flow.vip_port,
            .seq = bpf_htonl(rcv_nxt),
            .doff = sizeof(tcp) / 4,
            .rst = 1,
        };

        tcp.check =
            sb_fold(sb_pseudo_sum(&h->flow, IPPROTO_TCP, sizeof(tcp)) + sb_sum(&tcp, sizeof(tcp) / 2));
        if (decapsulate(skb, h) || cut(skb, h, sizeof(tcp), ECN_STAYS) ||
            bpf_skb_store_bytes(skb, sizeof(struct ethhdr) + h->inner_len, &tcp, sizeof(tcp), 0))
                return drop(SB_NODE_DROP_MALFORMED);
        if (!flow || !lives_away(flow))
                return TCX_PASS;
        flow->away.ended |= SB_AWAY_RESET;
        return send_away(skb, &h->flow, flow);
}

#endif
