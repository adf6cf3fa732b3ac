/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Other interfaces than that for handoff packets. VIPs are addresses of this machine, but a packet to a VIP
 * that comes in here has passed no switch, and the kernel would answer ARP for a VIP.
 */
#ifndef NODE_GUARD_H
#define NODE_GUARD_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "arp.h"
#include "counters.h"
#include "maps.h"
#include "packet.h"
#include "tcx.h"
#include "vips.h"

/* linux/if_packet.h: frame for another host, as where containers share the interface. */
#define PACKET_OTHERHOST 3

/* Reads from the network header on: some interfaces have no Ethernet header. */
static __always_inline int at_network(struct __sk_buff *skb, __u32 offset, void *to, __u32 len)
{
        return bpf_skb_load_bytes_relative(skb, offset, to, len, BPF_HDR_START_NET);
}

static __always_inline int on_other_interface(struct __sk_buff *skb)
{
        __u8 address[16] __attribute__((aligned(8)));
        __be32 v4;

        if (skb->pkt_type == PACKET_OTHERHOST)
                return TCX_NEXT;
        if (skb->protocol == bpf_htons(ETH_P_ARP)) {
                if (at_network(skb, offsetof(struct arp_ipv4, target_ip), &v4, sizeof(v4)))
                        return TCX_NEXT;
                return vip4((__u8 *)&v4) ? drop(SB_NODE_ARP_IGNORED) : TCX_NEXT;
        }
        if (skb->protocol == bpf_htons(ETH_P_IP)) {
                if (at_network(skb, offsetof(struct iphdr, daddr), &v4, sizeof(v4)))
                        return TCX_NEXT;
                sb_map_v4(address, v4);
        } else if (skb->protocol != bpf_htons(ETH_P_IPV6) ||
                   at_network(skb, offsetof(struct ipv6hdr, daddr), address, sizeof(address))) {
                return TCX_NEXT;
        }
        return is_vip(address) ? drop(SB_NODE_DROP_PLAIN) : TCX_NEXT;
}

#endif
