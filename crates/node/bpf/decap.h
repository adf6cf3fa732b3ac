/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Taking packets off their tunnel. */
#ifndef NODE_DECAP_H
#define NODE_DECAP_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "maps.h"
#include "packet.h"
#include "received.h"
#include "tcx.h"

/*
 * Removes `len` bytes of headers, and makes the packet one of the other IP version. Linux before 6.3 cannot do both at once:
 * bpf_skb_change_proto() removes or adds the difference of the headers' lengths.
 */
static __noinline int remove_foreign(struct __sk_buff *skb, __s32 len, int v4)
{
        const __s32 more = sizeof(struct ipv6hdr) - sizeof(struct iphdr);

        if (!bpf_skb_adjust_room(skb, -len, BPF_ADJ_ROOM_MAC, v4 ? SB_DECAP_L3_IPV4 : SB_DECAP_L3_IPV6))
                return 0;
        if (bpf_skb_change_proto(skb, v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6), 0))
                return -1;
        return bpf_skb_adjust_room(skb, v4 ? more - len : -more - len, BPF_ADJ_ROOM_MAC, 0);
}

/* Removes outer IP, UDP, Geneve and options. The client's packet to the VIP remains. */
static __noinline int decapsulate(struct __sk_buff *skb, const struct handoff *h)
{
        __s32 len = h->outer_len + shim_len(h);
        int v4 = h->inner_len == sizeof(struct iphdr);
        void *data, *end;
        struct ethhdr *eth;

        if (h->outer_len == h->inner_len ? bpf_skb_adjust_room(skb, -len, BPF_ADJ_ROOM_MAC, 0)
                                         : remove_foreign(skb, len, v4))
                return -1;
        data = (void *)(long)skb->data;
        end = (void *)(long)skb->data_end;
        eth = data;
        if ((void *)(eth + 1) > end)
                return -1;
        eth->h_proto = v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
        if (h->congested)
                bpf_skb_ecn_set_ce(skb);
        return 0;
}

/* Writes a word of the TCP header at offset `tcp`, and corrects the checksum. */
static __noinline int write_tcp(struct __sk_buff *skb, __u32 tcp, __u32 at, __be32 from, __be32 to)
{
        if (from == to)
                return 0;
        bpf_l4_csum_replace(skb, tcp + offsetof(struct tcphdr, check), from, to, sizeof(to));
        return bpf_skb_store_bytes(skb, tcp + at, &to, sizeof(to), 0);
}

/* Gives the decapsulated packet of an ADOPT the sequence number that its data has for the server. */
static __always_inline int number_for_server(struct __sk_buff *skb, const struct handoff *h)
{
        return write_tcp(skb, sizeof(struct ethhdr) + h->inner_len, offsetof(struct tcphdr, seq),
                         bpf_htonl(h->seq), bpf_htonl(server_seq(h)));
}

/* ECN field of a packet, RFC 3168 section 5. */
enum ecn {
        ECN_STAYS,
        ECN_CLEARED,
};

/* Cuts the decapsulated packet behind a TCP header of `len` bytes, which the caller writes. */
static __noinline int cut(struct __sk_buff *skb, const struct handoff *h, __u32 len, enum ecn ecn)
{
        void *data, *end;

        if (bpf_skb_change_tail(skb, sizeof(struct ethhdr) + h->inner_len + len, 0))
                return -1;
        data = (void *)(long)skb->data;
        end = (void *)(long)skb->data_end;
        if (h->inner_len == sizeof(struct iphdr)) {
                struct iphdr *ip = data + sizeof(struct ethhdr);

                if ((void *)(ip + 1) > end)
                        return -1;
                ip->tot_len = bpf_htons(sizeof(*ip) + len);
                if (ecn == ECN_CLEARED)
                        ip->tos &= ~3;
                ip->check = 0;
                ip->check = sb_fold(sb_sum(ip, sizeof(*ip) / 2));
        } else {
                struct ipv6hdr *ip = data + sizeof(struct ethhdr);

                if ((void *)(ip + 1) > end)
                        return -1;
                ip->payload_len = bpf_htons(len);
                if (ecn == ECN_CLEARED)
                        ip->flow_lbl[0] &= ~0x30;
        }
        return 0;
}

#endif
