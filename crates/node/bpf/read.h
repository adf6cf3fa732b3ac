/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Reading handoff packets. */
#ifndef NODE_READ_H
#define NODE_READ_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "arp.h"
#include "handoff.h"
#include "node_maps.h"
#include "packet.h"
#include "received.h"
#include "vips.h"

/* Bytes of Ethernet, outer IPv6, shim with both options, inner IPv6 and TCP with options. */
#define HEADERS_MAX                                                                                          \
        (sizeof(struct ethhdr) + 2 * sizeof(struct ipv6hdr) + sizeof(struct sb_shim) +                       \
         sizeof(struct sb_second) + 60)

enum read_result {
        READ_OTHER, /* no handoff packet */
        READ_HANDOFF,
        READ_DIRECT, /* from a client; the tag has not been checked */
        READ_PLAIN,  /* to a VIP, but not from a switch */
        READ_ARP_FOR_VIP,
        READ_FINGERPRINT, /* perhaps of a response of another node; the tag has not been checked */
        READ_WRONG_TAG,
        READ_WRONG_EPOCH,
        READ_LATER_VERSION,
        READ_MALFORMED,
};

/*
 * Reads which flow an ICMP error is about. It quotes a packet of this node's server. The cursor stands on the
 * error.
 */
static __always_inline int read_icmp(struct sb_cursor *cursor, struct handoff *h, __be16 ethertype)
{
        const __u32 icmp_len = 8;
        struct sb_tcp_start *tcp;
        struct sb_ip ip;

        cursor->at += icmp_len;
        if (sb_parse_ip(cursor, ethertype, h->flow.vip, h->flow.client, &ip) != IPPROTO_TCP)
                return -1;
        tcp = cursor->at;
        if ((void *)(tcp + 1) > cursor->end)
                return -1;
        h->flow.vip_port = tcp->source;
        h->flow.client_port = tcp->dest;
        h->seq = bpf_ntohl(tcp->seq);
        h->icmp = 1;
        return 0;
}

/* Reads the inner packet, whose IP header is at `start`. The outer packet ends at `outer_end`; padding may follow. */
static __always_inline int read_inner(struct __sk_buff *skb, struct handoff *h, __u32 start, __u32 outer_end,
                                      __be16 ethertype)
{
        void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
        struct sb_cursor cursor = sb_cursor_at(data, end, start);
        struct tcphdr *tcp;
        struct sb_ip ip;
        int next, payload;

        next = sb_parse_ip(&cursor, ethertype, h->flow.client, h->flow.vip, &ip);
        if (next < 0 || start + ip.len > outer_end || outer_end > skb->len)
                return -1;
        h->inner_len = ip.header_len;
        if (next == (ethertype == bpf_htons(ETH_P_IP) ? IPPROTO_ICMP : IPPROTO_ICMPV6))
                return read_icmp(&cursor, h, ethertype);
        if (next != IPPROTO_TCP)
                return -1;
        payload = sb_parse_tcp(&cursor, &ip, &tcp);
        if (payload < 0)
                return -1;
        h->flow.client_port = tcp->source;
        h->flow.vip_port = tcp->dest;
        h->seq = bpf_ntohl(tcp->seq);
        h->ack = bpf_ntohl(tcp->ack_seq);
        h->tcp_len = tcp->doff * 4;
        h->tcp_flags = sb_tcp_flags(tcp);
        h->payload = payload;
        return 0;
}

/* Reads the options behind the Geneve header: ours, and perhaps the second one. */
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

/* Whether the switch of this machine has sent the packet. */
static __always_inline int is_from_here(const __u8 sender[16], const struct sb_node_settings *s)
{
        return s->is_switch && sb_same_v6(sender, s->address);
}

static __noinline enum read_result read_handoff(struct __sk_buff *skb, struct handoff *h,
                                                const struct sb_node_settings *s)
{
        __u8 destination[16] __attribute__((aligned(8)));
        struct sb_tag_input *input;
        struct sb_cursor cursor;
        struct sb_shim *shim;
        struct sb_ip ip;
        __u64 epoch;
        int next;

        if (skb->protocol == bpf_htons(ETH_P_ARP)) {
                bpf_skb_pull_data(skb, sizeof(struct ethhdr) + sizeof(struct arp_ipv4));
                return asks_for_vip(skb) ? READ_ARP_FOR_VIP : READ_OTHER;
        }
        if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
                return READ_OTHER;
        if (skb->data_end - skb->data < HEADERS_MAX)
                bpf_skb_pull_data(skb, skb->len < HEADERS_MAX ? skb->len : HEADERS_MAX);
        cursor = sb_cursor_at((void *)(long)skb->data, (void *)(long)skb->data_end, sizeof(struct ethhdr));
        next = sb_parse_ip(&cursor, skb->protocol, h->sender, destination, &ip);
        if (next == SB_MALFORMED)
                return READ_OTHER;
        h->outer_len = ip.header_len;
        h->congested = sb_is_congested(&ip);
        h->here = is_from_here(h->sender, s);
        if (is_vip(destination))
                return READ_PLAIN;
        shim = cursor.at;
        if (next != IPPROTO_UDP || (void *)(shim + 1) > cursor.end)
                return READ_OTHER;
        if (shim->dest == bpf_htons(SB_FINGERPRINT_PORT) && sb_same_v6(destination, s->address))
                return READ_FINGERPRINT;
        if (shim->dest != bpf_htons(SB_GENEVE_PORT) || read_options(h, shim, cursor.end))
                return READ_OTHER;
        if (read_inner(skb, h, sizeof(struct ethhdr) + h->outer_len + shim_len(h),
                       sizeof(struct ethhdr) + ip.len, shim->geneve.protocol))
                return READ_MALFORMED;
        if (h->option.op == SB_OP_DIRECT)
                return READ_DIRECT;
        h->node = sb_number_of(shim->geneve.vni);
        if (!read_epoch(h, s, shim->geneve.vni, &epoch))
                return READ_WRONG_EPOCH;
        input = tag_input(h, s, epoch);
        if (!input || !sb_tag_valid(&s->sign, &s->accept, input, &h->option))
                return READ_WRONG_TAG;
        return sb_is_later(&h->option) ? READ_LATER_VERSION : READ_HANDOFF;
}

#endif
