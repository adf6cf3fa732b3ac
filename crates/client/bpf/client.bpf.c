// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The client's shim: it sends packets of flows to their nodes directly, beside the kernel's TCP and unknown
 * to it. Ingress takes introductions of nodes out of what comes from services, and packets of servers out of
 * tunnels. Egress puts packets of introduced flows into a tunnel to the node. Whatever is uncertain goes to
 * the switch, as it does without these programs.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "client_maps.h"
#include "counters.h"
#include "handoff.h"
#include "maps.h"
#include "packet.h"
#include "read.h"
#include "receive.h"
#include "send.h"
#include "tcx.h"
#include "thin.h"

/* A packet of a service, possibly out of a tunnel. */
static __always_inline int on_service(struct __sk_buff *skb, const struct packet *p)
{
        struct sb_introduction option = {};

        if (read_introduction(skb, p, &option))
                return on_introduction(p, &option);
        if (thin_acks())
                let_in(p);
        return TCX_NEXT;
}

__noinline int on_said(struct __sk_buff *skb)
{
        struct said said = {};

        switch (read_said(skb, &said)) {
        case READ_SAID:
                if (!is_signed(&said))
                        return drop(SB_CLIENT_DROP_TAG);
                if (sb_is_later(&said.option))
                        return drop(SB_CLIENT_DROP_VERSION);
                break;
        case READ_MALFORMED:
                return drop(SB_CLIENT_DROP_MALFORMED);
        default:
                return TCX_NEXT;
        }
        if (said.option.op != SB_OP_TUNNELED)
                return on_answer(&said);
        if (on_tunneled(skb, &said) != TCX_NEXT)
                return TCX_DROP;
        return on_service(skb, &said.inner);
}

SEC("tcx/ingress")
int switchback_client_ingress(struct __sk_buff *skb)
{
        struct packet p = {};

        pull_headers(skb);
        if (read_packet(skb, &p, sizeof(struct ethhdr), skb->protocol, IN))
                return on_said(skb);
        return is_service(&p.flow) ? on_service(skb, &p) : TCX_NEXT;
}

SEC("tcx/egress")
int switchback_client_egress(struct __sk_buff *skb)
{
        struct sb_direct_flow *flow;
        struct packet p = {};
        int verdict;

        pull_headers(skb);
        if (read_packet(skb, &p, sizeof(struct ethhdr), skb->protocol, OUT))
                return TCX_NEXT;
        if (p.flags & SB_TCP_SYN)
                bpf_map_delete_elem(&tunneled, &p.flow);
        flow = bpf_map_lookup_elem(&flows, &p.flow);
        if (!flow)
                return TCX_NEXT;
        verdict = p.flags & SB_TCP_SYN ? TCX_NEXT : send(skb, &p, flow);
        /* The connection ends, or another one begins. */
        if (p.flags & (SB_TCP_SYN | SB_TCP_RST))
                bpf_map_delete_elem(&flows, &p.flow);
        return verdict;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
