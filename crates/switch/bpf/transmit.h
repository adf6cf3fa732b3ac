/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Sending packets. XDP_TX and redirects fail on some interfaces: a veth drops them, or delays them until something
 * else is sent, if its other end has no NAPI or no XDP program (veth_xdp_xmit(), veth_xdp_flush()). There a
 * packet goes up to the program at TC ingress, which sends it as the kernel's own packets are sent.
 */
#ifndef SWITCH_TRANSMIT_H
#define SWITCH_TRANSMIT_H

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "maps.h"
#include "switch_maps.h"

/* Before the packet (data_meta) on its way to TC ingress. Only programs on this machine can write there. */
struct going_out {
        __u32 magic;
        __u32 ifindex;
};

#define GOING_OUT 0x5b676f21

/* Sends the packet on an interface, in the best of the ways (SB_SENDS_*) that work there. */
static __always_inline int transmit(struct xdp_md *ctx, __u32 ifindex, __u32 ways)
{
        struct going_out *out;

        if (ways & SB_SENDS_TX && ifindex == ctx->ingress_ifindex)
                return XDP_TX;
        if (ways & SB_SENDS_REDIRECT)
                return bpf_redirect(ifindex, 0);
        if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*out)))
                return drop(SB_SWITCH_DROP_HEADROOM);
        out = (void *)(long)ctx->data_meta;
        if ((void *)(out + 1) > (void *)(long)ctx->data)
                return drop(SB_SWITCH_DROP_MALFORMED);
        out->magic = GOING_OUT;
        out->ifindex = ifindex;
        return XDP_PASS;
}

SEC("tcx/ingress")
int switchback_transmit(struct __sk_buff *skb)
{
        struct going_out *out = (void *)(long)skb->data_meta;

        if ((void *)(out + 1) > (void *)(long)skb->data || out->magic != GOING_OUT)
                return TC_ACT_UNSPEC;
        /* Another switch may be at the other end of the cable. */
        out->magic = 0;
        return bpf_redirect(out->ifindex, 0);
}

#endif
