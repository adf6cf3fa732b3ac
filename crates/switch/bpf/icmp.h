/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Path MTU messages: a router on the way from a node to the client says that the response's packets are too long
 * (RFC 1191, RFC 8201). They come to the VIP, and so to the switch; they are for the kernel of the flow's node.
 */
#ifndef SWITCH_ICMP_H
#define SWITCH_ICMP_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "entry.h"
#include "forward.h"
#include "handoff.h"
#include "maps.h"
#include "neighbour.h"
#include "packet.h"
#include "parse.h"
#include "switch_maps.h"

#define ICMP_UNREACHABLE     3
#define ICMP_TOO_LONG        4 /* its code */
#define ICMP6_PACKET_TOO_BIG 2

/* What such a message begins with, and the beginning of the packet that it is about. */
struct too_long_v4 {
        struct echo icmp;
        struct iphdr ip;
        __be16 source;
        __be16 dest;
        __be32 seq;
} __attribute__((packed));

struct too_long_v6 {
        struct echo icmp;
        struct ipv6hdr ip;
        __be16 source;
        __be16 dest;
        __be32 seq;
} __attribute__((packed));

/* The flow that the message is about, into the packet. */
static __always_inline int parse_too_long(struct xdp_md *ctx, struct packet *p)
{
        void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
        void *start = sb_at(data, p->start + p->l3_len);

        if (p->l3_len == sizeof(struct iphdr)) {
                struct too_long_v4 *about = start;

                if ((void *)(about + 1) > end || p->ip_len < p->l3_len + sizeof(*about) ||
                    about->icmp.type != ICMP_UNREACHABLE || about->icmp.code != ICMP_TOO_LONG ||
                    about->ip.version != 4 || about->ip.ihl != 5 || about->ip.protocol != IPPROTO_TCP)
                        return -1;
                sb_map_v4(p->flow.vip, about->ip.saddr);
                sb_map_v4(p->flow.client, about->ip.daddr);
                p->flow.vip_port = about->source;
                p->flow.client_port = about->dest;
                p->seq = bpf_ntohl(about->seq);
        } else {
                struct too_long_v6 *about = start;

                if ((void *)(about + 1) > end || p->ip_len < p->l3_len + sizeof(*about) ||
                    about->icmp.type != ICMP6_PACKET_TOO_BIG || about->ip.version != 6 ||
                    about->ip.nexthdr != IPPROTO_TCP)
                        return -1;
                sb_copy_v6(p->flow.vip, &about->ip.saddr);
                sb_copy_v6(p->flow.client, &about->ip.daddr);
                p->flow.vip_port = about->source;
                p->flow.client_port = about->dest;
                p->seq = bpf_ntohl(about->seq);
        }
        return 0;
}

/* ICMP for a VIP that is no ping. */
static __noinline int on_icmp(struct xdp_md *ctx, struct packet *p, const struct sb_switch_settings *s)
{
        struct sb_flow_entry *place, *entry;

        if (parse_too_long(ctx, p))
                return drop(SB_SWITCH_DROP_ICMP);
        entry = read_entry(&flows, &p->flow, &place);
        if (!entry || !has_node(entry))
                return drop(SB_SWITCH_DROP_ICMP);
        p->handoff_op = SB_OP_ICMP;
        count(SB_SWITCH_ICMP_FORWARDED);
        return forward(ctx, p, entry, s);
}

#endif
