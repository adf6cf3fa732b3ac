/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Answers for VIPs: ARP (RFC 826), neighbour discovery (RFC 4861) and ping. VIPs are no addresses of the
 * switch's kernel, which would answer their TCP packets with RST whenever the program is not attached.
 */
#ifndef SWITCH_NEIGHBOUR_H
#define SWITCH_NEIGHBOUR_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/icmpv6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "arp.h"
#include "counters.h"
#include "flow.h"
#include "handoff.h"
#include "maps.h"
#include "packet.h"
#include "parse.h"

/* Header of ICMP echo. linux/icmp.h needs the C library's headers of the target, which BPF lacks. */
struct echo {
        __u8 type;
        __u8 code;
        __be16 checksum;
        __be16 id;
        __be16 sequence;
};

/*
 * Neighbour solicitation or advertisement with one link-layer address option, RFC 4861 sections 4.3 and 4.4.
 */
struct neighbour {
        struct icmp6hdr icmp;
        __u8 target[16];
        __u8 option_type;
        __u8 option_length; /* in units of 8 bytes */
        __u8 mac[ETH_ALEN];
} __attribute__((packed));

#define ICMP_ECHO         8
#define ICMP_ECHOREPLY    0
#define ND_SOLICIT        135
#define ND_ADVERT         136
#define ND_TARGET_LL      2
#define ND_FLAG_SOLICITED 0x40000000
#define ND_FLAG_OVERRIDE  0x20000000

static __always_inline int is_vip(const __u8 address[16])
{
        return bpf_map_lookup_elem(&vip_addresses, address) != NULL;
}

/* Hardware address of the interface, as user space has found it. */
static __always_inline const struct our_interface *this_interface(struct xdp_md *ctx)
{
        __u32 ifindex = ctx->ingress_ifindex;

        return bpf_map_lookup_elem(&interfaces, &ifindex);
}

static __noinline int on_arp(struct xdp_md *ctx)
{
        void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
        const struct our_interface *interface = this_interface(ctx);
        struct ethhdr *eth = data;
        struct arp_ipv4 *arp = (void *)(eth + 1);
        __u8 target[16], wanted[4];
        __be32 ip;

        if (!interface || (void *)(arp + 1) > end || arp->op != bpf_htons(ARP_REQUEST) ||
            arp->protocol != bpf_htons(ETH_P_IP) || arp->hardware_len != ETH_ALEN || arp->protocol_len != 4)
                return XDP_PASS;
        __builtin_memcpy(&ip, arp->target_ip, sizeof(ip));
        sb_map_v4(target, ip);
        if (!is_vip(target))
                return XDP_PASS;
        __builtin_memcpy(wanted, arp->target_ip, sizeof(wanted));
        __builtin_memcpy(arp->target_ip, arp->sender_ip, sizeof(wanted));
        __builtin_memcpy(arp->target_mac, arp->sender_mac, ETH_ALEN);
        __builtin_memcpy(arp->sender_ip, wanted, sizeof(wanted));
        __builtin_memcpy(arp->sender_mac, interface->mac, ETH_ALEN);
        arp->op = bpf_htons(ARP_REPLY);
        __builtin_memcpy(eth->h_dest, arp->target_mac, ETH_ALEN);
        __builtin_memcpy(eth->h_source, interface->mac, ETH_ALEN);
        count(SB_SWITCH_ARP_ANSWERED);
        return SEND_BACK;
}

static __always_inline void turn_ethernet(struct ethhdr *eth, const struct our_interface *interface)
{
        __builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
        __builtin_memcpy(eth->h_source, interface->mac, ETH_ALEN);
}

/*
 * Answers a neighbour solicitation. It comes to a multicast address, or to the VIP from a neighbour that
 * knows the address already (RFC 4861 section 7.3.3); the target inside is what counts.
 */
static __noinline int on_icmp6(struct xdp_md *ctx, const struct packet *p)
{
        void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
        const struct our_interface *interface = this_interface(ctx);
        struct ethhdr *eth = data;
        struct ipv6hdr *ip = (void *)(eth + 1);
        struct neighbour *nd = (void *)(ip + 1);
        struct sb_flow reply = {};
        __u8 target[16];

        if (!interface || (void *)(nd + 1) > end || nd->icmp.icmp6_type != ND_SOLICIT ||
            ip->hop_limit != 255 || p->ip_len != sizeof(*ip) + sizeof(*nd))
                return XDP_PASS;
        sb_copy_v6(target, nd->target);
        if (!is_vip(target))
                return XDP_PASS;
        turn_ethernet(eth, interface);
        sb_copy_v6(&ip->daddr, p->flow.client);
        sb_copy_v6(&ip->saddr, target);
        nd->icmp.icmp6_type = ND_ADVERT;
        nd->icmp.icmp6_code = 0;
        nd->icmp.icmp6_dataun.un_data32[0] = bpf_htonl(ND_FLAG_SOLICITED | ND_FLAG_OVERRIDE);
        nd->option_type = ND_TARGET_LL;
        nd->option_length = 1;
        __builtin_memcpy(nd->mac, interface->mac, ETH_ALEN);
        sb_copy_v6(reply.client, p->flow.client);
        sb_copy_v6(reply.vip, target);
        nd->icmp.icmp6_cksum = 0;
        nd->icmp.icmp6_cksum =
            sb_fold(sb_pseudo_sum(&reply, IPPROTO_ICMPV6, sizeof(*nd)) + sb_sum(nd, sizeof(*nd) / 2));
        count(SB_SWITCH_ARP_ANSWERED);
        return SEND_BACK;
}

/*
 * Answers an echo request. ICMP and ICMPv6 differ in type numbers only, and the change of type gives the new
 * checksum (RFC 1624).
 */
static __noinline int on_ping(struct xdp_md *ctx, const struct packet *p)
{
        void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
        const struct our_interface *interface = this_interface(ctx);
        int v4 = p->l3_len == sizeof(struct iphdr);
        struct ethhdr *eth = data;
        struct echo *icmp = sb_at(data, p->start + p->l3_len);
        __u8 request = v4 ? ICMP_ECHO : ICMPV6_ECHO_REQUEST;
        __u8 reply = v4 ? ICMP_ECHOREPLY : ICMPV6_ECHO_REPLY;

        if (!interface || data + sizeof(*eth) + sizeof(struct iphdr) > end || (void *)(icmp + 1) > end ||
            p->ip_len < p->l3_len + sizeof(*icmp) || icmp->type != request || icmp->code != 0)
                return XDP_PASS;
        turn_ethernet(eth, interface);
        if (v4) {
                struct iphdr *ip = (void *)(eth + 1);

                ip->ttl = SB_TTL;
                ip->saddr = sb_v4_of(p->flow.vip);
                ip->daddr = sb_v4_of(p->flow.client);
                ip->check = 0;
                ip->check = sb_fold(sb_sum(ip, sizeof(*ip) / 2));
        } else {
                struct ipv6hdr *ip = (void *)(eth + 1);

                if ((void *)(ip + 1) > end)
                        return XDP_PASS;
                ip->hop_limit = SB_TTL;
                sb_copy_v6(&ip->saddr, p->flow.vip);
                sb_copy_v6(&ip->daddr, p->flow.client);
        }
        icmp->type = reply;
        icmp->checksum =
            sb_fold((__u64)(__u16)~icmp->checksum + (__u16)~bpf_htons(request << 8) + bpf_htons(reply << 8));
        count(SB_SWITCH_PING_ANSWERED);
        return SEND_BACK;
}

#endif
