/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Reading a TCP packet between this client and a service, in a tunnel or not. */
#ifndef CLIENT_READ_H
#define CLIENT_READ_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "handoff.h"
#include "maps.h"
#include "packet.h"

/* Ethernet, outer IPv6, shim, inner IPv6 and TCP with options. */
#define HEADERS_MAX (sizeof(struct ethhdr) + 2 * sizeof(struct ipv6hdr) + sizeof(struct sb_shim) + 60)

struct packet {
        struct sb_flow flow;
        __u32 start; /* of the IP header */
        __u32 tcp;   /* of the TCP header */
        __u32 seq;
        __u32 ack;
        __u32 payload;
        __u16 tcp_len; /* header with options */
        __u16 window;  /* not scaled */
        __u8 flags;
        __u8 v4;
};

/* Which side of a packet this client is. */
enum way {
        OUT,
        IN,
};

static __always_inline void pull_headers(struct __sk_buff *skb)
{
        if (skb->data_end - skb->data < HEADERS_MAX)
                bpf_skb_pull_data(skb, skb->len < HEADERS_MAX ? skb->len : HEADERS_MAX);
}

static __always_inline int read_ip(struct __sk_buff *skb, struct packet *p, __be16 protocol, enum way way,
                                   __u8 *next_header, __u32 *ip_len)
{
        void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
        __u8 *source = way == OUT ? p->flow.client : p->flow.vip;
        __u8 *dest = way == OUT ? p->flow.vip : p->flow.client;

        if (protocol == bpf_htons(ETH_P_IP)) {
                struct iphdr *ip = sb_at(data, p->start);

                if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl != 5 ||
                    ip->frag_off & bpf_htons(SB_IP_MF | SB_IP_OFFSET))
                        return -1;
                sb_map_v4(source, ip->saddr);
                sb_map_v4(dest, ip->daddr);
                p->v4 = 1;
                p->tcp = p->start + sizeof(*ip);
                *next_header = ip->protocol;
                *ip_len = bpf_ntohs(ip->tot_len);
        } else if (protocol == bpf_htons(ETH_P_IPV6)) {
                struct ipv6hdr *ip = sb_at(data, p->start);

                if ((void *)(ip + 1) > end || ip->version != 6)
                        return -1;
                sb_copy_v6(source, &ip->saddr);
                sb_copy_v6(dest, &ip->daddr);
                p->v4 = 0;
                p->tcp = p->start + sizeof(*ip);
                *next_header = ip->nexthdr;
                *ip_len = sizeof(*ip) + bpf_ntohs(ip->payload_len);
        } else {
                return -1;
        }
        return 0;
}

/* The packet of a connection whose IP header is at `start`; less than zero if it is none that is looked at. */
static __noinline int read_packet(struct __sk_buff *skb, struct packet *p, __u32 start, __be16 protocol,
                                  enum way way)
{
        void *data, *end;
        struct tcphdr *tcp;
        __u8 next_header;
        __u32 ip_len, headers;

        p->start = start;
        if (read_ip(skb, p, protocol, way, &next_header, &ip_len) || next_header != IPPROTO_TCP)
                return -1;
        data = (void *)(long)skb->data;
        end = (void *)(long)skb->data_end;
        tcp = sb_at(data, p->tcp);
        if ((void *)(tcp + 1) > end)
                return -1;
        p->flow.client_port = way == OUT ? tcp->source : tcp->dest;
        p->flow.vip_port = way == OUT ? tcp->dest : tcp->source;
        p->seq = bpf_ntohl(tcp->seq);
        p->ack = bpf_ntohl(tcp->ack_seq);
        p->tcp_len = tcp->doff * 4;
        p->window = bpf_ntohs(tcp->window);
        p->flags = sb_tcp_flags(tcp);
        headers = p->tcp - start + p->tcp_len;
        if (p->tcp_len < sizeof(*tcp) || headers > ip_len || start + ip_len > skb->len)
                return -1;
        p->payload = ip_len - headers;
        return 0;
}

static __always_inline int is_service(const struct sb_flow *flow)
{
        struct sb_endpoint endpoint = {.port = flow->vip_port};

        sb_copy_v6(endpoint.address, flow->vip);
        return bpf_map_lookup_elem(&services, &endpoint) != NULL;
}

/* The sequence number comes after the other. */
static __always_inline int is_after(__u32 one, __u32 other)
{
        return (__s32)(one - other) > 0;
}

#endif
