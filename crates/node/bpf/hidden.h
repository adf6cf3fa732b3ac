/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A hidden node. Its interface accepts handoff packets, neighbour discovery, and packets of connections that
 * the machine itself has begun. A scan of its addresses finds no open port, no closed port, and no answer to
 * a ping.
 */
#ifndef NODE_HIDDEN_H
#define NODE_HIDDEN_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "handoff.h"
#include "kernel.h"
#include "packet.h"

struct ports {
        __be16 source;
        __be16 dest;
};

/* ICMP answers and errors. */
static __always_inline int is_answer(__u8 type)
{
        return type == 0 /* echo reply */ || type == 3 /* unreachable */ || type == 11 /* time exceeded */;
}

/*
 * ICMPv6 answers and errors, and neighbour discovery, without which there is no IPv6 (RFC 4890 section 4.4).
 */
static __always_inline int is_answer6(__u8 type)
{
        return (type >= 1 && type <= 4) || type == 129 /* echo reply */ || (type >= 133 && type <= 137);
}

/*
 * Whether the connection exists. Connections of clients come in handoff packets, so this machine has begun
 * it.
 */
static __always_inline int is_known_tcp(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, __u32 len)
{
        struct bpf_sock *sk = bpf_skc_lookup_tcp(skb, tuple, len, BPF_F_CURRENT_NETNS, 0);
        int known;

        if (!sk)
                return 0;
        known = *(volatile __u32 *)&sk->state != TCP_LISTEN;
        bpf_sk_release(sk);
        return known;
}

/* Whether a socket is connected to the sender. */
static __always_inline int is_known_udp(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, __u32 len)
{
        struct bpf_sock *sk = bpf_sk_lookup_udp(skb, tuple, len, BPF_F_CURRENT_NETNS, 0);
        int known;

        if (!sk)
                return 0;
        known = sk->dst_port != 0;
        bpf_sk_release(sk);
        return known;
}

static __noinline int is_let_in(struct __sk_buff *skb)
{
        struct sb_cursor cursor = {.at = (void *)(long)skb->data + sizeof(struct ethhdr),
                                   .end = (void *)(long)skb->data_end};
        __u8 source[16] __attribute__((aligned(8))), dest[16] __attribute__((aligned(8)));
        struct bpf_sock_tuple tuple = {};
        struct ports *ports;
        struct sb_ip ip;
        int protocol;
        __u32 len;

        if (skb->protocol == bpf_htons(ETH_P_ARP))
                return 1;
        protocol = sb_parse_ip(&cursor, skb->protocol, source, dest, &ip);
        ports = cursor.at;
        if (protocol < 0 || (void *)(ports + 1) > cursor.end)
                return 0;
        if (skb->protocol == bpf_htons(ETH_P_IP)) {
                if (protocol == IPPROTO_ICMP)
                        return is_answer(*(__u8 *)ports);
                tuple.ipv4.saddr = sb_v4_of(source);
                tuple.ipv4.daddr = sb_v4_of(dest);
                tuple.ipv4.sport = ports->source;
                tuple.ipv4.dport = ports->dest;
                len = sizeof(tuple.ipv4);
        } else {
                if (protocol == IPPROTO_ICMPV6)
                        return is_answer6(*(__u8 *)ports);
                sb_copy_v6(tuple.ipv6.saddr, source);
                sb_copy_v6(tuple.ipv6.daddr, dest);
                tuple.ipv6.sport = ports->source;
                tuple.ipv6.dport = ports->dest;
                len = sizeof(tuple.ipv6);
        }
        if (protocol == IPPROTO_TCP)
                return is_known_tcp(skb, &tuple, len);
        return protocol == IPPROTO_UDP && is_known_udp(skb, &tuple, len);
}

#endif
