/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Which packets go to a node directly, and which to the switch. */
#ifndef CLIENT_SEND_H
#define CLIENT_SEND_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "client_maps.h"
#include "counters.h"
#include "direct.h"
#include "handoff.h"
#include "maps.h"
#include "packet.h"
#include "read.h"
#include "tcx.h"
#include "thin.h"

/* A node that has not answered ASKS questions for so long is unreachable. */
#define PATIENCE_NS 200000000ULL
#define ASKS        2
/* Intervals of questions, with and without an answer to the last one. */
#define ASK_NS       250000000ULL
#define ASK_AGAIN_NS 50000000ULL
/* An unreachable node gets no flows for so long. */
#define AVOID_NS 5000000000ULL

/* Result besides the verdicts of linux/bpf.h: the packet goes to the node. */
#define DIRECTLY (-2)

/* Sends packets of the flow to the switch from now on, as without the programs. */
static __always_inline int give_up(struct sb_direct_flow *flow, enum sb_client_counter counter)
{
        flow->state = SB_DIRECT_OFF;
        return leave_alone(counter);
}

/* Whether a packet with data goes to the switch (TCX_NEXT) or to the node (DIRECTLY). */
static __always_inline int place_data(const struct packet *p, struct sb_direct_flow *flow)
{
        __u32 end = p->seq + p->payload;
        int again = is_after(flow->sent, p->seq);

        if (is_after(end, flow->sent))
                flow->sent = end;
        if (flow->state != SB_DIRECT_ON)
                return TCX_NEXT;
        if (is_after(end, flow->next))
                return give_up(flow, SB_CLIENT_BEYOND);
        /* A retransmission: something is wrong, and the switch may know better. */
        return again ? leave_alone(SB_CLIENT_AGAIN) : DIRECTLY;
}

/* Whether the packet asks for HEARD. Less than zero if the node is unreachable. */
static __always_inline int ask(struct sb_direct_flow *flow, struct sb_direct_node *node)
{
        __u64 now = bpf_ktime_get_ns();

        if (now < node->avoid_ns)
                return -1;
        if (flow->asks >= ASKS && now - flow->asked_ns > PATIENCE_NS) {
                node->avoid_ns = now + AVOID_NS;
                return -1;
        }
        if (flow->asks >= ASKS && now - flow->last_ns < ASK_AGAIN_NS)
                return 0;
        if (flow->asks == 0 && flow->last_ns && now - flow->last_ns < ASK_NS)
                return 0;
        if (flow->asks == 0)
                flow->asked_ns = now;
        if (flow->asks < 255)
                flow->asks++;
        flow->last_ns = now;
        return 1;
}

/* Changes the packet's source to what the cluster sees. */
static __noinline int translate(struct __sk_buff *skb, const struct packet *p,
                                const struct sb_direct_flow *flow)
{
        const __u32 address = p->start + offsetof(struct iphdr, saddr), port = p->tcp;
        const __u32 check = p->tcp + offsetof(struct tcphdr, check);
        __be32 before = sb_v4_of(p->flow.client), after = sb_v4_of(flow->client);

        if (!p->v4 || (before == after && p->flow.client_port == flow->client_port))
                return 0;
        if (bpf_l3_csum_replace(skb, p->start + offsetof(struct iphdr, check), before, after, 4) ||
            bpf_l4_csum_replace(skb, check, before, after, BPF_F_PSEUDO_HDR | 4) ||
            bpf_l4_csum_replace(skb, check, p->flow.client_port, flow->client_port, 2))
                return -1;
        return bpf_skb_store_bytes(skb, address, &after, sizeof(after), 0) ||
               bpf_skb_store_bytes(skb, port, &flow->client_port, sizeof(flow->client_port), 0);
}

/* Limits the window to the right edge of the last packet that went to the switch. */
static __noinline int limit_window(struct __sk_buff *skb, const struct packet *p,
                                   const struct sb_direct_flow *flow)
{
        __u32 most = (flow->edge - p->ack) >> (flow->wscale & 15);
        __be16 before = bpf_htons(p->window), after = bpf_htons(most);

        if (!flow->watched || p->window <= most)
                return 0;
        return bpf_l4_csum_replace(skb, p->tcp + offsetof(struct tcphdr, check), before, after, 2) ||
               bpf_skb_store_bytes(skb, p->tcp + offsetof(struct tcphdr, window), &after, sizeof(after), 0);
}

__noinline int send_directly(struct __sk_buff *skb, const struct packet *p, struct sb_direct_flow *flow,
                             int asks)
{
        struct sb_tunnel tunnel = {};
        struct sb_client_keys *own;

        if (!p || !flow)
                return TCX_DROP;
        own = bpf_map_lookup_elem(&keys, flow->client);
        /* The configuration has changed. */
        if (!own)
                return give_up(flow, SB_CLIENT_FALLBACK);
        if (translate(skb, p, flow) || limit_window(skb, p, flow))
                return drop(SB_CLIENT_DROP_ROOM);
        sb_copy_v6(tunnel.source, p->flow.client);
        sb_copy_v6(tunnel.dest, flow->node);
        sb_copy_v6(tunnel.node, flow->node);
        tunnel.flow = p->flow;
        sb_copy_v6(tunnel.flow.client, flow->client);
        tunnel.flow.client_port = flow->client_port;
        tunnel.key = own->sign;
        tunnel.option.op = SB_OP_DIRECT;
        tunnel.option.flags = asks ? SB_DIRECT_ASK : 0;
        if (p->v4) {
                tunnel.option.payload.direct.client = sb_v4_of(p->flow.client);
                tunnel.option.payload.direct.client_port = p->flow.client_port;
        }
        tunnel.source_port = sb_source_port(&tunnel.flow);
        tunnel.dest_port = bpf_htons(SB_GENEVE_PORT);
        if (sb_into_tunnel(skb, &tunnel))
                return drop(SB_CLIENT_DROP_ROOM);
        count(SB_CLIENT_DIRECT);
        if (asks)
                count(SB_CLIENT_ASKED);
        return bpf_redirect_neigh(skb->ifindex, NULL, 0, 0);
}

/*
 * Whether a packet goes to the switch for the sake of a NAT or firewall on the way, which passes only what
 * fits the connection that it tracks. It sees all data, the end, and an acknowledgment whenever half of the
 * window has been used since the last one.
 */
static __always_inline int is_shown(const struct packet *p, struct sb_direct_flow *flow)
{
        __u32 window = (__u32)p->window << (flow->wscale & 15);

        if (!flow->watched)
                return 0;
        if (p->payload == 0 && !(p->flags & (SB_TCP_FIN | SB_TCP_RST)) &&
            (__s32)(flow->edge - p->ack) >= (__s32)(window / 2))
                return 0;
        flow->edge = p->ack + window;
        return 1;
}

/* Sends a packet of a flow whose node has introduced itself. */
static __noinline int send(struct __sk_buff *skb, const struct packet *p, struct sb_direct_flow *flow)
{
        struct sb_direct_node *node;
        int asks, verdict;

        if (p->payload && place_data(p, flow) == TCX_NEXT)
                return TCX_NEXT;
        if (flow->state != SB_DIRECT_ON)
                return TCX_NEXT;
        if (is_shown(p, flow))
                return leave_alone(SB_CLIENT_SHOWN);
        node = bpf_map_lookup_elem(&nodes, flow->node);
        /* The node has been evicted from the map. */
        if (!node)
                return give_up(flow, SB_CLIENT_FALLBACK);
        /* A client does not repeat a RST, so it goes where it arrives for certain. */
        if (p->flags & SB_TCP_RST && flow->asks)
                return TCX_NEXT;
        if (is_left_out(skb, p, flow)) {
                count(SB_CLIENT_THINNED);
                return sb_lose();
        }
        asks = ask(flow, node);
        if (asks < 0) {
                node->fallbacks++;
                return give_up(flow, SB_CLIENT_FALLBACK);
        }
        verdict = send_directly(skb, p, flow, asks);
        if (verdict == TCX_REDIRECT)
                node->packets++;
        return verdict;
}

#endif
