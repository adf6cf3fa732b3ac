/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Path MTU messages (RFC 1191, RFC 8201). A router between a node and a client sends them to the VIP, and so
 * to a switch, which forwards them to the kernel of the flow's node. The L7 thread asks which node that is if
 * another switch has the flow.
 */
#ifndef SWITCH_ICMP_H
#define SWITCH_ICMP_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "allowance.h"
#include "counters.h"
#include "entry.h"
#include "forward.h"
#include "handoff.h"
#include "l7.h"
#include "maps.h"
#include "neighbour.h"
#include "packet.h"
#include "parse.h"
#include "switch_maps.h"

#define ICMP_UNREACHABLE     3
#define ICMP_TOO_LONG        4 /* code of ICMP_UNREACHABLE */
#define ICMP6_PACKET_TOO_BIG 2

/*
 * Reads the flow of the packet that the message quotes into `p`. Less than zero if it is no path MTU message,
 * or not about TCP.
 */
static __always_inline int parse_too_long(struct xdp_md *ctx, struct packet *p)
{
        void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
        struct sb_cursor cursor = sb_cursor_at(data, end, p->start + p->l3_len);
        int v4 = p->l3_len == sizeof(struct iphdr);
        struct echo *icmp = cursor.at;
        struct sb_tcp_start *tcp;
        struct sb_ip ip = {};

        if ((void *)(icmp + 1) > end || icmp->type != (v4 ? ICMP_UNREACHABLE : ICMP6_PACKET_TOO_BIG) ||
            (v4 && icmp->code != ICMP_TOO_LONG))
                return -1;
        cursor.at = icmp + 1;
        if (sb_parse_ip(&cursor, v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6), p->flow.vip,
                        p->flow.client, &ip) != IPPROTO_TCP)
                return -1;
        tcp = cursor.at;
        if ((void *)(tcp + 1) > end ||
            p->ip_len < (__u32)p->l3_len + sizeof(*icmp) + ip.header_len + sizeof(*tcp))
                return -1;
        p->flow.vip_port = tcp->source;
        p->flow.client_port = tcp->dest;
        p->seq = bpf_ntohl(tcp->seq);
        return 0;
}

/* ICMP to a VIP, other than echo requests. */
static __noinline int on_icmp(struct xdp_md *ctx, struct packet *p, const struct sb_switch_settings *s)
{
        struct sb_flow_entry *place, *entry;

        if (parse_too_long(ctx, p))
                return drop(SB_SWITCH_DROP_ICMP);
        entry = read_entry(&flows, &p->flow, &place);
        if (!entry && is_vip(p->flow.vip) && !bpf_map_lookup_elem(&waiting, &p->flow) &&
            may_ask(&p->flow, s)) {
                struct record_parts parts = {
                    .kind = SB_RECORD_ICMP, .flow = &p->flow, .start = p->start, .len = p->ip_len};

                return to_l7(ctx, &parts, SB_SWITCH_DROP_ICMP);
        }
        if (!entry || !has_node(entry))
                return drop(SB_SWITCH_DROP_ICMP);
        p->handoff_op = SB_OP_ICMP;
        count(SB_SWITCH_ICMP_FORWARDED);
        return forward(ctx, p, entry, s);
}

#endif
