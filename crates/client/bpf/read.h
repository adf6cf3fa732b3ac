/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Reading TCP packets between this client and a service, in a tunnel or not. */
#ifndef CLIENT_READ_H
#define CLIENT_READ_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "handoff.h"
#include "maps.h"
#include "packet.h"

/* Bytes of Ethernet, outer IPv6, shim, inner IPv6 and TCP with options. */
#define HEADERS_MAX (sizeof(struct ethhdr) + 2 * sizeof(struct ipv6hdr) + sizeof(struct sb_shim) + 60)

struct packet {
        struct sb_flow flow;
        __u32 start; /* offset of the IP header */
        __u32 tcp;   /* offset of the TCP header */
        __u32 seq;
        __u32 ack;
        __u32 payload;
        __u16 tcp_len; /* length of the TCP header with options */
        __u16 window;  /* as in the header, not scaled */
        __u8 flags;
        __u8 v4;
};

/* Direction of a packet, from this client's point of view. */
enum way {
        OUT,
        IN,
};

static __always_inline void pull_headers(struct __sk_buff *skb)
{
        if (skb->data_end - skb->data < HEADERS_MAX)
                bpf_skb_pull_data(skb, skb->len < HEADERS_MAX ? skb->len : HEADERS_MAX);
}

/*
 * Reads the TCP packet whose IP header is at `start`. Less than zero if it is none that the programs handle.
 */
static __noinline int read_packet(struct __sk_buff *skb, struct packet *p, __u32 start, __be16 ethertype,
                                  enum way way)
{
        struct sb_cursor cursor = sb_cursor_at((void *)(long)skb->data, (void *)(long)skb->data_end, start);
        __u8 *source = way == OUT ? p->flow.client : p->flow.vip;
        __u8 *dest = way == OUT ? p->flow.vip : p->flow.client;
        struct tcphdr *tcp;
        struct sb_ip ip;
        int payload;

        if (sb_parse_ip(&cursor, ethertype, source, dest, &ip) != IPPROTO_TCP || start + ip.len > skb->len)
                return -1;
        payload = sb_parse_tcp(&cursor, &ip, &tcp);
        if (payload < 0)
                return -1;
        p->start = start;
        p->tcp = start + ip.header_len;
        p->v4 = ethertype == bpf_htons(ETH_P_IP);
        p->flow.client_port = way == OUT ? tcp->source : tcp->dest;
        p->flow.vip_port = way == OUT ? tcp->dest : tcp->source;
        p->seq = bpf_ntohl(tcp->seq);
        p->ack = bpf_ntohl(tcp->ack_seq);
        p->tcp_len = tcp->doff * 4;
        p->window = bpf_ntohs(tcp->window);
        p->flags = sb_tcp_flags(tcp);
        p->payload = payload;
        return 0;
}

static __always_inline int is_service(const struct sb_flow *flow)
{
        struct sb_endpoint endpoint = {.port = flow->vip_port};

        sb_copy_v6(endpoint.address, flow->vip);
        return bpf_map_lookup_elem(&services, &endpoint) != NULL;
}

/* Whether a sequence number comes after another. */
static __always_inline int is_after(__u32 one, __u32 other)
{
        return (__s32)(one - other) > 0;
}

#endif
