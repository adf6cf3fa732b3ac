/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Reading handoff packets. */
#ifndef NODE_READ_H
#define NODE_READ_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "handoff.h"
#include "node_maps.h"
#include "packet.h"
#include "received.h"
#include "vips.h"

/* Ethernet, outer IPv6, shim with both options, inner IPv6 and TCP with options. */
#define HEADERS_MAX                                                                                          \
        (sizeof(struct ethhdr) + 2 * sizeof(struct ipv6hdr) + sizeof(struct sb_shim) +                       \
         sizeof(struct sb_second) + 60)

enum read_result {
        READ_OTHER, /* none of our business */
        READ_HANDOFF,
        READ_DIRECT, /* from a client; whether its tag is right has not been looked at */
        READ_PLAIN,  /* for a VIP, but not from a switch */
        READ_ARP_FOR_VIP,
        READ_WRONG_TAG,
        READ_WRONG_EPOCH,
        READ_MALFORMED,
};

/* The packet that an ICMP error behind the shim is about, which this node's server has sent. */
static __always_inline int read_icmp(struct __sk_buff *skb, struct handoff *h, __u32 start)
{
        const __u32 about = start + h->inner_len + 8;
        void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
        struct tcp_start {
                __be16 source;
                __be16 dest;
                __be32 seq;
        } * tcp;

        if (h->inner_len == sizeof(struct iphdr)) {
                struct iphdr *ip = sb_at(data, about);

                if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_TCP)
                        return -1;
                sb_map_v4(h->flow.vip, ip->saddr);
                sb_map_v4(h->flow.client, ip->daddr);
        } else {
                struct ipv6hdr *ip = sb_at(data, about);

                if ((void *)(ip + 1) > end || ip->version != 6 || ip->nexthdr != IPPROTO_TCP)
                        return -1;
                sb_copy_v6(h->flow.vip, &ip->saddr);
                sb_copy_v6(h->flow.client, &ip->daddr);
        }
        tcp = sb_at(data, about + h->inner_len);
        if ((void *)(tcp + 1) > end)
                return -1;
        h->flow.vip_port = tcp->source;
        h->flow.client_port = tcp->dest;
        h->seq = bpf_ntohl(tcp->seq);
        h->icmp = 1;
        return 0;
}

/* The inner IP and TCP headers behind the shim. */
static __always_inline int read_inner(struct __sk_buff *skb, struct handoff *h, __u32 start, __be16 protocol)
{
        void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
        struct tcphdr *tcp;
        __u8 next_header;
        __u32 ip_len;

        if (protocol == bpf_htons(ETH_P_IP)) {
                struct iphdr *ip = sb_at(data, start);

                if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl != 5)
                        return -1;
                sb_map_v4(h->flow.client, ip->saddr);
                sb_map_v4(h->flow.vip, ip->daddr);
                h->inner_len = sizeof(*ip);
                ip_len = bpf_ntohs(ip->tot_len);
                next_header = ip->protocol;
        } else if (protocol == bpf_htons(ETH_P_IPV6)) {
                struct ipv6hdr *ip = sb_at(data, start);

                if ((void *)(ip + 1) > end || ip->version != 6)
                        return -1;
                sb_copy_v6(h->flow.client, &ip->saddr);
                sb_copy_v6(h->flow.vip, &ip->daddr);
                h->inner_len = sizeof(*ip);
                ip_len = sizeof(*ip) + bpf_ntohs(ip->payload_len);
                next_header = ip->nexthdr;
        } else {
                return -1;
        }
        if (start + ip_len > skb->len)
                return -1;
        if (next_header == (h->inner_len == sizeof(struct iphdr) ? IPPROTO_ICMP : IPPROTO_ICMPV6))
                return read_icmp(skb, h, start);
        if (next_header != IPPROTO_TCP)
                return -1;
        tcp = sb_at(data, start + h->inner_len);
        if ((void *)(tcp + 1) > end)
                return -1;
        h->flow.client_port = tcp->source;
        h->flow.vip_port = tcp->dest;
        h->seq = bpf_ntohl(tcp->seq);
        h->ack = bpf_ntohl(tcp->ack_seq);
        h->tcp_len = tcp->doff * 4;
        h->tcp_flags = sb_tcp_flags(tcp);
        if (h->tcp_len < sizeof(*tcp) || (__u32)h->inner_len + h->tcp_len > ip_len)
                return -1;
        h->payload = ip_len - h->inner_len - h->tcp_len;
        return 0;
}

/* The options behind the Geneve header: ours, and perhaps the second one. */
static __always_inline int read_options(struct handoff *h, const struct sb_shim *shim, const void *end)
{
        const struct sb_second *second = (const void *)(shim + 1);

        if (!sb_has_option(shim))
                return -1;
        h->option = shim->option;
        if (shim->geneve.ver_opt_len == sizeof(struct sb_option) / 4)
                return 0;
        if (shim->geneve.ver_opt_len != (sizeof(struct sb_option) + sizeof(*second)) / 4 ||
            (const void *)(second + 1) > end || second->opt_class != bpf_htons(SB_OPTION_CLASS) ||
            (second->type != SB_SECOND_TYPE && second->type != SB_SECOND_USED) ||
            second->length != (sizeof(*second) - 4) / 4)
                return -1;
        h->second = second->type;
        return 0;
}

/* Where this machine is a switch, too. */
static __always_inline int is_from_here(const __u8 sender[16], const struct sb_node_settings *s)
{
        return s->is_switch && sb_same_v6(sender, s->address);
}

static __noinline enum read_result read_handoff(struct __sk_buff *skb, struct handoff *h,
                                                const struct sb_node_settings *s)
{
        struct sb_tag_input *input;
        void *data, *end;
        struct ethhdr *eth;
        struct sb_shim *shim;
        __u8 destination[16] __attribute__((aligned(8)));
        __u8 next_header;
        __u64 epoch;

        if (skb->protocol == bpf_htons(ETH_P_ARP)) {
                bpf_skb_pull_data(skb, sizeof(struct ethhdr) + sizeof(struct arp_ipv4));
                return asks_for_vip(skb) ? READ_ARP_FOR_VIP : READ_OTHER;
        }
        if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
                return READ_OTHER;
        if (skb->data_end - skb->data < HEADERS_MAX)
                bpf_skb_pull_data(skb, skb->len < HEADERS_MAX ? skb->len : HEADERS_MAX);
        data = (void *)(long)skb->data;
        end = (void *)(long)skb->data_end;
        eth = data;
        if (skb->protocol == bpf_htons(ETH_P_IP)) {
                struct iphdr *ip = (void *)(eth + 1);

                if ((void *)(ip + 1) > end)
                        return READ_OTHER;
                sb_map_v4(h->sender, ip->saddr);
                sb_map_v4(destination, ip->daddr);
                h->outer_len = sizeof(*ip);
                h->congested = (ip->tos & 3) == 3;
                next_header = ip->ihl == 5 ? ip->protocol : IPPROTO_RAW;
        } else {
                struct ipv6hdr *ip = (void *)(eth + 1);

                if ((void *)(ip + 1) > end)
                        return READ_OTHER;
                sb_copy_v6(h->sender, &ip->saddr);
                sb_copy_v6(destination, &ip->daddr);
                h->outer_len = sizeof(*ip);
                h->congested = (ip->flow_lbl[0] >> 4 & 3) == 3;
                next_header = ip->nexthdr;
        }
        h->here = is_from_here(h->sender, s);
        if (is_vip(destination))
                return READ_PLAIN;
        shim = sb_at(data, sizeof(*eth) + h->outer_len);
        if (next_header != IPPROTO_UDP || (void *)(shim + 1) > end ||
            shim->dest != bpf_htons(SB_GENEVE_PORT) || read_options(h, shim, end))
                return READ_OTHER;
        if (read_inner(skb, h, sizeof(*eth) + h->outer_len + shim_len(h), shim->geneve.protocol))
                return READ_MALFORMED;
        if (h->option.op == SB_OP_DIRECT)
                return READ_DIRECT;
        if (!read_epoch(h, s, shim->geneve.vni, &epoch))
                return READ_WRONG_EPOCH;
        input = tag_input(h, s, epoch);
        if (!input || !sb_tag_valid(&s->sign, &s->accept, input, &h->option))
                return READ_WRONG_TAG;
        return READ_HANDOFF;
}

#endif
