/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Clients with the shim. The node introduces itself to them at each request, in a packet of the VIP
 * (docs/decisions/0015), and takes what they send directly, under a key that it derives from the client's
 * address. Where the node's network drops packets with foreign source addresses, packets to these clients go
 * in a tunnel.
 *
 * Tags between client and node cover no sequence numbers, because the kernel may cut a packet into segments
 * after it has entered the tunnel.
 */
#ifndef NODE_CLIENT_H
#define NODE_CLIENT_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "again.h"
#include "counters.h"
#include "decap.h"
#include "deliver.h"
#include "direct.h"
#include "facts.h"
#include "flow.h"
#include "handoff.h"
#include "intake.h"
#include "keys.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"
#include "received.h"
#include "session_cookie.h"
#include "socket.h"
#include "tcx.h"
#include "vips.h"

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct sb_node_clients);
} client_master SEC(".maps");

/* Networks of clients that may have the shim. */
struct {
        __uint(type, BPF_MAP_TYPE_LPM_TRIE);
        __uint(max_entries, 256);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, struct sb_network);
        __type(value, __u32);
} clients SEC(".maps");

/* The node's settings, with the keys of one client. */
struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct sb_node_settings);
} towards_client SEC(".maps");

/*
 * Whether the client is in one of the networks, and has the IP version of the node's address, as a tunnel
 * needs.
 */
static __noinline int may_know_us(const __u8 address[16], const struct sb_node_settings *s)
{
        struct sb_network key = {.prefix_len = 128};

        if (sb_is_v4(address) != sb_is_v4(s->address))
                return 0;
        sb_copy_v6(key.address, address);
        return bpf_map_lookup_elem(&clients, &key) != NULL;
}

/* Derives the settings for the client. NULL if there are none. */
static __noinline struct sb_node_settings *settings_towards(const __u8 address[16])
{
        struct sb_client_key_input of = {};
        struct sb_node_settings *s, *towards;
        struct sb_node_clients *master;
        __u32 zero = 0;

        s = bpf_map_lookup_elem(&settings, &zero);
        master = bpf_map_lookup_elem(&client_master, &zero);
        towards = bpf_map_lookup_elem(&towards_client, &zero);
        if (!s || !master || !towards || (master->sign.k0 | master->sign.k1) == 0)
                return NULL;
        *towards = *s;
        sb_copy_v6(of.client, address);
        sb_client_key(&master->sign, &of, &towards->sign);
        sb_client_key(&master->accept, &of, &towards->accept);
        return towards;
}

/* Queues a clone that becomes the introduction, if the client may have the shim. */
static __noinline int meet(struct __sk_buff *skb, const struct handoff *h)
{
        struct sb_node_settings *s;
        __u32 zero = 0;

        s = bpf_map_lookup_elem(&settings, &zero);
        if (!s || !may_know_us(h->flow.client, s))
                return 0;
        return come_again(skb, SKB_MARK_INTRODUCE);
}

struct introduction_packet {
        struct tcphdr tcp;
        struct sb_introduction option;
};

/* Writes the TCP header and the option. Not inlined, because of the stack. */
static __noinline int fill_introduction(struct introduction_packet *packet, const struct handoff *h,
                                        const struct sb_node_settings *s, __u32 next)
{
        struct sb_introduction_input input = {
            .flow = h->flow, .seq = bpf_htonl(h->ack), .ack = bpf_htonl(h->seq), .next = bpf_htonl(next)};
        __u16 window = SB_WINDOW;
        __u64 tag;

        if (h->option.payload.flow.options & SB_SYN_WSCALE) {
                window >>= h->option.payload.flow.wscale & 15;
                input.wscale = h->option.payload.flow.wscale >> 4;
        }
        packet->tcp.source = h->flow.vip_port;
        packet->tcp.dest = h->flow.client_port;
        packet->tcp.seq = input.seq;
        packet->tcp.ack_seq = input.ack;
        packet->tcp.doff = sizeof(*packet) / 4;
        packet->tcp.ack = 1;
        packet->tcp.window = bpf_htons(window);
        packet->option.kind = SB_TCPOPT_EXPERIMENT;
        packet->option.length = sizeof(packet->option);
        packet->option.id = bpf_htons(SB_INTRODUCTION_ID);
        sb_copy_v6(packet->option.node, s->address);
        packet->option.next = input.next;
        packet->option.wscale = input.wscale;
        sb_copy_v6(input.node, s->address);
        tag = sb_introduction_tag(&s->sign, &input);
        __builtin_memcpy(packet->option.tag, &tag, sizeof(tag));
        if (h->inner_len == sizeof(struct iphdr)) {
                packet->option.client = sb_v4_of(h->flow.client);
                packet->option.client_port = h->flow.client_port;
        }
        packet->tcp.check = sb_fold(sb_pseudo_sum(&h->flow, IPPROTO_TCP, sizeof(*packet)) +
                                    sb_sum(packet, sizeof(*packet) / 2));
        return 0;
}

/* Replaces the packet behind Ethernet with an IP header and the introduction. */
static __noinline int store_introduction(struct __sk_buff *skb, const struct handoff *h,
                                         const struct introduction_packet *packet)
{
        const __u32 start = sizeof(struct ethhdr);

        if (bpf_skb_change_tail(skb, start + h->inner_len + sizeof(*packet), 0) ||
            bpf_skb_store_bytes(skb, start + h->inner_len, packet, sizeof(*packet), 0))
                return -1;
        if (h->inner_len == sizeof(struct iphdr)) {
                struct iphdr ip = {
                    .version = 4,
                    .ihl = 5,
                    .tot_len = bpf_htons(sizeof(ip) + sizeof(*packet)),
                    .frag_off = bpf_htons(SB_IP_DF),
                    .ttl = SB_TTL,
                    .protocol = IPPROTO_TCP,
                    .saddr = sb_v4_of(h->flow.vip),
                    .daddr = sb_v4_of(h->flow.client),
                };

                ip.check = sb_fold(sb_sum(&ip, sizeof(ip) / 2));
                return bpf_skb_store_bytes(skb, start, &ip, sizeof(ip), 0);
        } else {
                struct ipv6hdr ip = {
                    .version = 6,
                    .payload_len = bpf_htons(sizeof(*packet)),
                    .nexthdr = IPPROTO_TCP,
                    .hop_limit = SB_TTL,
                };

                sb_copy_v6(&ip.saddr, h->flow.vip);
                sb_copy_v6(&ip.daddr, h->flow.client);
                return bpf_skb_store_bytes(skb, start, &ip, sizeof(ip), 0);
        }
}

/*
 * Turns the clone of a request into the introduction. Where names of cookies have to be restored, the client
 * may send no data past the switch.
 */
__noinline int introduce(struct __sk_buff *skb, const struct handoff *h)
{
        struct introduction_packet packet = {};
        struct sb_node_settings *s;
        struct sb_persistence *p;
        struct sb_owned *flow;
        __u32 next;

        if (!h)
                return TCX_DROP;
        s = settings_towards(h->flow.client);
        flow = sb_flow_lookup(&owned, &h->flow);
        /* The flow has gone in the meantime. */
        if (!s || !flow || flow->state != SB_OWN_OPEN)
                return TCX_DROP;
        p = persistence_of(flow);
        next = p && p->mode == SB_SESSION_REWRITE ? h->seq : flow->next;
        if (decapsulate(skb, h))
                return drop(SB_NODE_DROP_MALFORMED);
        fill_introduction(&packet, h, s, next);
        if (store_introduction(skb, h, &packet))
                return drop(SB_NODE_DROP_MALFORMED);
        count(SB_NODE_INTRODUCED);
        /* Egress leaves its numbers alone: they are those that the client knows. */
        skb->mark = SKB_MARK_INTRODUCE;
        return bpf_redirect_neigh(skb->ifindex, NULL, 0, 0);
}

/*
 * Answers a client. The answer goes to the source port of the question, which may have come through a NAT,
 * and its tag covers no sequence numbers. It is as long as the question: the kernel refuses to cut packets
 * that left a tunnel on this machine.
 */
static __noinline int tell_client(struct __sk_buff *skb, struct handoff *h, enum sb_op op,
                                  enum sb_node_counter counter)
{
        struct sb_shim *shim = sb_at((void *)(long)skb->data, sizeof(struct ethhdr) + h->outer_len);
        __be16 port;

        if ((void *)(shim + 1) > (void *)(long)skb->data_end)
                return drop(SB_NODE_DROP_MALFORMED);
        port = shim->source;
        shim->source = shim->dest;
        shim->dest = port;
        set_answer(h, op, SB_REASON_NONE);
        h->seq = 0;
        h->ack = 0;
        count(counter);
        return ANSWER_WHOLE;
}

/* Checks the tag under the key of the client that the outer source names. */
static __noinline int is_from_client(const struct handoff *h, const struct sb_node_settings *s)
{
        struct sb_tag_input *input = sb_client_tag_input(s->address, &h->flow, &h->option);

        return input && sb_tag_valid(&s->sign, &s->accept, input, &h->option);
}

/* Takes a packet that a client has sent directly. ANSWER_WHOLE is for the settings of the client. */
__noinline int on_direct(struct __sk_buff *skb, struct handoff *h)
{
        __u32 skb_mark = *(volatile __u32 *)&skb->mark;
        struct sb_node_settings *s;
        struct sb_owned *flow;
        struct socket_facts facts = {};

        if (!h)
                return TCX_DROP;
        s = settings_towards(h->sender);
        if (!s || !is_from_client(h, s))
                return drop(SB_NODE_DROP_TAG);
        if (sb_is_later(&h->option))
                return drop(SB_NODE_DROP_VERSION);
        if (h->icmp || h->second || h->tcp_flags & SB_TCP_SYN)
                return drop(SB_NODE_DROP_MALFORMED);
        if (!sb_same_v6(h->sender, h->flow.client) || !may_know_us(h->sender, s))
                return drop(SB_NODE_DROP_CLIENT);
        if (skb_mark == SKB_MARK_HEARD)
                return tell_client(skb, h, SB_OP_HEARD, SB_NODE_HEARD);
        flow = sb_flow_lookup(&owned, &h->flow);
        read_socket(skb, h, flow, &facts);
        /* A socket in TIME_WAIT answers for itself. */
        if (!flow && facts.kind == SOCKET_TIME_WAIT) {
                count(SB_NODE_DIRECT);
                return deliver(skb, h, NULL);
        }
        if (!flow || flow->state != SB_OWN_OPEN || facts.kind == SOCKET_NONE || facts.kind == SOCKET_LISTENER)
                return tell_client(skb, h, SB_OP_GONE, SB_NODE_GONE);
        acknowledge(flow, h, facts.snd_una);
        if (take_in(flow, h, &facts) != INTAKE_TAKE)
                return drop(SB_NODE_DROP_BEYOND);
        if (h->option.flags & SB_DIRECT_ASK && come_again(skb, SKB_MARK_HEARD))
                return drop(SB_NODE_DROP_MALFORMED);
        count(SB_NODE_DIRECT);
        return deliver(skb, h, flow);
}

/* Length of the headers of a tunnel to the client, in bytes; 0 if packets to it go in none. */
static __noinline __u32 tunnel_len(const __u8 client[16])
{
        struct sb_node_clients *master;
        struct sb_node_settings *s;
        __u32 zero = 0;

        master = bpf_map_lookup_elem(&client_master, &zero);
        s = bpf_map_lookup_elem(&settings, &zero);
        if (!master || !s || !master->tunnel || !may_know_us(client, s))
                return 0;
        return sizeof(struct sb_shim) + (sb_is_v4(client) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
}

/* Smallest MSS that the kernel accepts for an adopted IPv4 connection, in bytes. */
#define SMALLEST_MSS 536

/* The MSS of the flow's client, less what a tunnel to it takes. */
static __always_inline __u16 mss_towards(const struct handoff *h)
{
        __u32 mss = bpf_ntohs(h->option.payload.flow.mss), tunnel = tunnel_len(h->flow.client);

        return mss > tunnel + SMALLEST_MSS ? mss - tunnel : mss;
}

/* Where a tunnel is composed: it is too large for the stack. */
struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct sb_tunnel);
} tunnels SEC(".maps");

/* Puts a packet that leaves from a VIP into a tunnel, if its client needs one. */
__noinline int leave(struct __sk_buff *skb, const struct sb_flow *flow)
{
        struct sb_node_settings *s;
        struct sb_tunnel *tunnel;

        if (!flow || !tunnel_len(flow->client))
                return TCX_NEXT;
        s = settings_towards(flow->client);
        tunnel = sb_zeroed(&tunnels, sizeof(*tunnel));
        if (!s || !tunnel)
                return TCX_NEXT;
        tunnel->flow = *flow;
        if (!is_vip(tunnel->flow.vip))
                return TCX_NEXT;
        sb_copy_v6(tunnel->source, s->address);
        sb_copy_v6(tunnel->dest, flow->client);
        sb_copy_v6(tunnel->node, s->address);
        tunnel->key = s->sign;
        tunnel->option.op = SB_OP_TUNNELED;
        tunnel->source_port = sb_source_port(flow);
        tunnel->dest_port = bpf_htons(SB_GENEVE_PORT);
        if (sb_into_tunnel(skb, tunnel))
                return drop(SB_NODE_DROP_MALFORMED);
        count(SB_NODE_TUNNELED);
        return TCX_NEXT;
}

#endif
