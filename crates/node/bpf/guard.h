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
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "arp.h"
#include "away.h"
#include "counters.h"
#include "follow.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"
#include "replay.h"
#include "tcx.h"
#include "vips.h"

/* linux/if_packet.h: frame for another host, as where containers share the interface. */
#define PACKET_OTHERHOST 3

/* Reads from the network header on: some interfaces have no Ethernet header. */
static __always_inline int at_network(struct __sk_buff *skb, __u32 offset, void *to, __u32 len)
{
        return bpf_skb_load_bytes_relative(skb, offset, to, len, BPF_HDR_START_NET);
}

/*
 * Reads which connection of a server a packet of it belongs to, and its TCP header. Returns its length, less than zero if it
 * is no whole TCP packet.
 */
static __always_inline int read_from_away(struct __sk_buff *skb, struct sb_flow *theirs,
                                          struct tcp_numbers *numbers, __be32 *ack)
{
        const __u32 headers = sizeof(struct ethhdr) + sizeof(struct ipv6hdr) + sizeof(struct tcphdr);
        __u32 len = skb->len - sizeof(struct ethhdr);
        struct sb_cursor cursor;
        struct tcphdr *tcp;
        struct ethhdr *eth;
        struct sb_ip ip;

        if (skb->data_end - skb->data < headers)
                bpf_skb_pull_data(skb, skb->len < headers ? skb->len : headers);
        cursor = sb_cursor_at((void *)(long)skb->data, (void *)(long)skb->data_end, sizeof(*eth));
        eth = (void *)(long)skb->data;
        /* Some interfaces have no Ethernet header. */
        if ((void *)(eth + 1) > cursor.end || eth->h_proto != skb->protocol ||
            sb_parse_ip(&cursor, skb->protocol, theirs->vip, theirs->client, &ip) != IPPROTO_TCP ||
            ip.len > len)
                return -1;
        /* The IP header of a packet that exceeds its length field (BIG TCP) says 0. */
        if (ip.len == 0 || (ip.len == sizeof(struct ipv6hdr) && skb->protocol == bpf_htons(ETH_P_IPV6)))
                ip.len = len;
        if (sb_parse_tcp(&cursor, &ip, &tcp) < 0)
                return -1;
        theirs->vip_port = tcp->source;
        theirs->client_port = tcp->dest;
        numbers->tcp = sizeof(*eth) + ip.header_len;
        numbers->start = numbers->tcp + tcp->doff * 4;
        numbers->seq = bpf_ntohl(tcp->seq);
        numbers->flags = sb_tcp_flags(tcp);
        *ack = tcp->ack_seq;
        return ip.len;
}

/*
 * A packet of a server behind this interface, on a connection that the node has adopted for it, leaves from the VIP.
 * TCX_NEXT if it is none.
 */
static __noinline int on_from_away(struct __sk_buff *skb)
{
        struct tcp_numbers numbers = {};
        struct sb_node_settings *s;
        struct sb_flow theirs = {}, key;
        struct readdressing r = {};
        struct sb_endpoint *vip;
        struct sb_owned *flow;
        __u32 zero = 0;
        __be32 ack;
        int len;

        len = read_from_away(skb, &theirs, &numbers, &ack);
        if (len < 0)
                return TCX_NEXT;
        vip = bpf_map_lookup_elem(&away, &theirs);
        if (!vip)
                return TCX_NEXT;
        sb_copy_v6(r.from, theirs.vip);
        r.from_port = theirs.vip_port;
        sb_copy_v6(r.to, vip->address);
        r.to_port = vip->port;
        r.source = 1;
        key = theirs;
        sb_copy_v6(key.vip, vip->address);
        key.vip_port = vip->port;
        s = bpf_map_lookup_elem(&settings, &zero);
        flow = bpf_map_lookup_elem(&owned, &key);
        /* Its flow has ended, is another server's by now, or its entry has given way to others. */
        if (!s || !flow || !is_away(flow) || !is_of_server(flow, &theirs) ||
            flow->away.ifindex != skb->ifindex)
                return drop(SB_NODE_DROP_AWAY);
        if ((numbers.flags & SYN_ACK) == SYN_ACK) {
                on_syn_ack(skb, flow, &numbers, bpf_ntohl(ack));
                return TCX_DROP;
        }
        /* Nobody listens, or the server still has a connection of these ports (RFC 9293 section 3.5.2). */
        if (is_replaying(flow)) {
                flow->masquerade.stage = SB_REPLAY_UNFIT;
                if (!(numbers.flags & SB_TCP_RST))
                        flow->away.rcv_nxt = bpf_ntohl(ack);
                return TCX_DROP;
        }
        /* Egress takes all of the frame for data, which is right for packets of this machine; others may have padding. */
        if (skb->len != sizeof(struct ethhdr) + len &&
            bpf_skb_change_tail(skb, sizeof(struct ethhdr) + len, 0))
                return drop(SB_NODE_DROP_MALFORMED);
        if (readdress(skb, &r))
                return drop(SB_NODE_DROP_MALFORMED);
        return bpf_redirect_neigh(s->ifindex, NULL, 0, 0);
}

static __always_inline int on_other_interface(struct __sk_buff *skb)
{
        __u8 address[16] __attribute__((aligned(8)));
        __be32 v4;
        int verdict;

        if (skb->pkt_type == PACKET_OTHERHOST)
                return TCX_NEXT;
        verdict = on_from_away(skb);
        if (verdict != TCX_NEXT)
                return verdict;
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
