/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Second candidate of an ADOPT. A node without room passes the packet on to it, and not back to the switch.
 * The outer source remains the switch, to which the second node answers. The option is marked as used, so
 * that no packet is passed on twice.
 */
#ifndef NODE_SECOND_H
#define NODE_SECOND_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "handoff.h"
#include "maps.h"
#include "packet.h"
#include "received.h"

/*
 * Sends the packet to its second candidate. Less than zero if that is impossible; then the packet is
 * unchanged.
 */
static __noinline int pass_on(struct __sk_buff *skb, const struct handoff *h)
{
        __u32 start = sizeof(struct ethhdr) + h->outer_len;
        void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
        struct ethhdr *eth = data;
        struct sb_second *second;
        struct sb_shim *shim;

        if (h->second != SB_SECOND_TYPE)
                return -1;
        shim = sb_at(data, start);
        second = (void *)(shim + 1);
        if (data + sizeof(*eth) + sizeof(struct ipv6hdr) > end || (void *)(second + 1) > end)
                return -1;
        if (sb_is_v4(second->node) != (h->outer_len == sizeof(struct iphdr)))
                return -1;
        if (h->outer_len == sizeof(struct iphdr)) {
                struct iphdr *ip = (void *)(eth + 1);

                ip->daddr = sb_v4_of(second->node);
                ip->check = 0;
                ip->check = sb_fold(sb_sum(ip, sizeof(*ip) / 2));
        } else {
                struct ipv6hdr *ip = (void *)(eth + 1);

                sb_copy_v6(&ip->daddr, second->node);
        }
        __builtin_memcpy(shim->option.tag, second->tag, sizeof(second->tag));
        shim->geneve.vni = bpf_htonl(bpf_ntohl(shim->geneve.vni) >> 8 & 0xff00);
        second->type = SB_SECOND_USED;
        count(SB_NODE_PASSED_ON);
        skb->mark = 0;
        return bpf_redirect_neigh(skb->ifindex, NULL, 0, 0);
}

struct headers_v4 {
        struct iphdr ip;
        struct sb_shim shim;
};

struct headers_v6 {
        struct ipv6hdr ip;
        struct sb_shim shim;
};

/* Removes the second option and moves the headers before it. Lengths in headers stay as they are. */
static __noinline int remove_second(struct __sk_buff *skb, const struct handoff *h)
{
        const __s32 shrink = -(__s32)sizeof(struct sb_second);

        if (h->outer_len == sizeof(struct iphdr)) {
                struct headers_v4 kept;

                if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &kept, sizeof(kept)) ||
                    bpf_skb_adjust_room(skb, shrink, BPF_ADJ_ROOM_MAC, 0))
                        return -1;
                kept.shim.geneve.ver_opt_len = sizeof(struct sb_option) / 4;
                return bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &kept, sizeof(kept), 0);
        } else {
                struct headers_v6 kept;

                if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &kept, sizeof(kept)) ||
                    bpf_skb_adjust_room(skb, shrink, BPF_ADJ_ROOM_MAC, 0))
                        return -1;
                kept.shim.geneve.ver_opt_len = sizeof(struct sb_option) / 4;
                return bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &kept, sizeof(kept), 0);
        }
}

#endif
