/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* VIPs, which are addresses of this machine, and their ARP packets. */
#ifndef NODE_VIPS_H
#define NODE_VIPS_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "arp.h"
#include "counters.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"
#include "tcx.h"

static __always_inline int is_vip(const __u8 address[16])
{
        return bpf_map_lookup_elem(&vip_addresses, address) != NULL;
}

/* SB_VIP_* of the address, or 0. */
static __always_inline __u32 vip4(const __u8 ip[4])
{
        __u8 address[16] __attribute__((aligned(8)));
        __be32 word;
        __u32 *vip;

        __builtin_memcpy(&word, ip, sizeof(word));
        sb_map_v4(address, word);
        vip = bpf_map_lookup_elem(&vip_addresses, address);
        return vip ? *vip : 0;
}

static __noinline int asks_for_vip(struct __sk_buff *skb)
{
        struct arp_ipv4 *arp = (void *)(long)skb->data + sizeof(struct ethhdr);

        return (void *)(arp + 1) <= (void *)(long)skb->data_end && vip4(arp->target_ip);
}

/*
 * Handles ARP packets that leave. With arp_announce=0 the kernel takes the sender address of an ARP request
 * from the packet that waits for it, which often is a VIP, and the request would draw the VIP's traffic to
 * this node. Without an answer to it the client is never reached, so it leaves with the node's own address.
 * All other announcements of VIPs are dropped.
 */
static __noinline int on_arp_out(struct __sk_buff *skb, const struct sb_node_settings *s)
{
        const __u32 sender = sizeof(struct ethhdr) + offsetof(struct arp_ipv4, sender_ip);
        struct arp_ipv4 *arp = (void *)(long)skb->data + sizeof(struct ethhdr);

        if ((void *)(arp + 1) > (void *)(long)skb->data_end || !vip4(arp->sender_ip))
                return TCX_NEXT;
        /* The switch of this machine announces its VIPs (RFC 5227 section 3). */
        if (vip4(arp->target_ip) == SB_VIP_SWITCHED)
                return TCX_NEXT;
        count(SB_NODE_ARP_ANNOUNCE);
        if (arp->op != bpf_htons(ARP_REQUEST) || vip4(arp->target_ip) || s->arp_sender == 0)
                return TCX_DROP;
        if (bpf_skb_store_bytes(skb, sender, &s->arp_sender, sizeof(s->arp_sender), 0))
                return TCX_DROP;
        return TCX_NEXT;
}

#endif
