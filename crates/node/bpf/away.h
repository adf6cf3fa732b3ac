/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Servers that are not on this machine, but behind one of its interfaces: in a container or a virtual machine. The node has
 * no socket of theirs. It replays the handshake (replay.h), gives their packets the VIP's address, and knows of their
 * connections what it sees in packets.
 */
#ifndef NODE_AWAY_H
#define NODE_AWAY_H

#include <asm-generic/errno-base.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "answer.h"
#include "counters.h"
#include "flow.h"
#include "keys.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"
#include "received.h"
#include "sequence.h"
#include "tcx.h"

/* VIPs of connections to such servers, by the connection as its server knows it. */
struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, 65536);
        __type(key, struct sb_flow);
        __type(value, struct sb_endpoint);
} away SEC(".maps");

static __always_inline int is_away(const struct sb_owned *flow)
{
        return flow->away.ifindex != 0;
}

/* Whether such a server has a connection of the flow. */
static __always_inline int lives_away(const struct sb_owned *flow)
{
        return is_away(flow) && !(flow->away.ended & SB_AWAY_RESET);
}

/* Whether the flow's server is the one whose connection this is, as that server knows it. */
static __always_inline int is_of_server(const struct sb_owned *flow, const struct sb_flow *theirs)
{
        return sb_same_v6(flow->away.server.address, theirs->vip) &&
               flow->away.server.port == theirs->vip_port;
}

/* The server that a node has for the flow's VIP, NULL if it listens at the VIP itself. Not inlined, because of the stack. */
static __noinline struct sb_server *server_of(const struct sb_flow *flow, __u16 node)
{
        struct sb_listener listener = {.vip = vip_of(flow), .node = node};

        return bpf_map_lookup_elem(&servers, &listener);
}

/* The same if it is away, else NULL. */
static __always_inline struct sb_server *away_server(const struct sb_flow *flow, __u16 node)
{
        struct sb_server *server = server_of(flow, node);

        return server && server->ifindex ? server : NULL;
}

/* Notes where the flow's server is. That of a resumed response is the agent. */
static __noinline int find_server(struct sb_owned *flow, const struct sb_flow *key, int resumed)
{
        struct sb_flow theirs = {};
        struct sb_server *server;
        struct sb_endpoint vip;

        if (!flow || !key)
                return -1;
        server = resumed ? NULL : away_server(key, flow->node);
        __builtin_memset(&flow->away, 0, sizeof(flow->away));
        if (!server)
                return 0;
        flow->away.server = server->at;
        flow->away.ifindex = server->ifindex;
        theirs = *key;
        sb_copy_v6(theirs.vip, server->at.address);
        theirs.vip_port = server->at.port;
        vip = vip_of(key);
        return bpf_map_update_elem(&away, &theirs, &vip, BPF_ANY);
}

/* Which of a packet's addresses is replaced, by what. Both are of the same IP version. */
struct readdressing {
        __u8 from[16];
        __u8 to[16];
        __be16 from_port;
        __be16 to_port;
        __u8 source; /* else the destination */
};

/* BPF_F_IPV6 of linux/bpf.h, which is missing there before Linux 6.16. */
#define CHECKSUM_F_IPV6 (1ULL << 7)

/*
 * Corrects a TCP checksum after a change of IPv6 addresses. Without the flag the kernel takes them for covered by a checksum
 * of the IP header as well, which makes a sum by the interface (CHECKSUM_COMPLETE) wrong. Older kernels do not have it.
 */
static __always_inline long replace_addresses6(struct __sk_buff *skb, __u32 check, __u64 changed)
{
        long err = bpf_l4_csum_replace(skb, check, 0, changed, BPF_F_PSEUDO_HDR | CHECKSUM_F_IPV6);

        return err == -EINVAL ? bpf_l4_csum_replace(skb, check, 0, changed, BPF_F_PSEUDO_HDR) : err;
}

/* Replaces an address and port of a TCP packet behind an Ethernet header. */
static __noinline int readdress(struct __sk_buff *skb, const struct readdressing *r)
{
        const int v4 = sb_is_v4(r->from);
        const __u32 ip = sizeof(struct ethhdr),
                    tcp = ip + (v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
        const __u32 check = tcp + offsetof(struct tcphdr, check);
        const __u32 port =
            tcp + (r->source ? offsetof(struct tcphdr, source) : offsetof(struct tcphdr, dest));
        __be32 from4, to4;
        __u32 at;
        __s64 changed;

        if (bpf_l4_csum_replace(skb, check, r->from_port, r->to_port, sizeof(r->to_port)) ||
            bpf_skb_store_bytes(skb, port, &r->to_port, sizeof(r->to_port), 0))
                return -1;
        if (v4) {
                at = ip + (r->source ? offsetof(struct iphdr, saddr) : offsetof(struct iphdr, daddr));
                from4 = sb_v4_of(r->from);
                to4 = sb_v4_of(r->to);
                return bpf_l4_csum_replace(skb, check, from4, to4, BPF_F_PSEUDO_HDR | sizeof(to4)) ||
                       bpf_l3_csum_replace(skb, ip + offsetof(struct iphdr, check), from4, to4,
                                           sizeof(to4)) ||
                       bpf_skb_store_bytes(skb, at, &to4, sizeof(to4), 0);
        }
        at = ip + (r->source ? offsetof(struct ipv6hdr, saddr) : offsetof(struct ipv6hdr, daddr));
        changed = bpf_csum_diff((void *)r->from, sizeof(r->from), (void *)r->to, sizeof(r->to), 0);
        return changed < 0 || replace_addresses6(skb, check, changed) ||
               bpf_skb_store_bytes(skb, at, r->to, sizeof(r->to), 0);
}

/* Sends the client's decapsulated packet to the server. */
static __noinline int send_away(struct __sk_buff *skb, const struct sb_flow *key, const struct sb_owned *flow)
{
        struct readdressing r = {.from_port = key->vip_port, .to_port = flow->away.server.port};

        sb_copy_v6(r.from, key->vip);
        sb_copy_v6(r.to, flow->away.server.address);
        if (readdress(skb, &r))
                return drop(SB_NODE_DROP_MALFORMED);
        skb->mark = 0;
        return bpf_redirect_neigh(flow->away.ifindex, NULL, 0, 0);
}

/* The connection begins with the client's packet that ends the handshake. */
static __always_inline void begin_away(struct sb_owned *flow, const struct handoff *h)
{
        flow->away.rcv_nxt = server_seq(h);
        flow->away.snd_nxt = h->ack;
        flow->away.snd_una = h->ack;
}

/* Whether both sides have closed the connection and know it. */
static __always_inline int is_closed_away(const struct sb_away *away)
{
        return away->ended == (SB_AWAY_CLIENT_FIN | SB_AWAY_SERVER_FIN) && away->snd_una == away->snd_nxt &&
               !is_before(away->rcv_nxt, away->client_end);
}

/* A packet of the client goes to the server. */
static __always_inline void note_to_away(struct sb_owned *flow, const struct handoff *h)
{
        flow->away.snd_una = later_of(flow->away.snd_una, h->ack);
        if (h->tcp_flags & SB_TCP_FIN) {
                flow->away.ended |= SB_AWAY_CLIENT_FIN;
                flow->away.client_end = server_seq(h) + h->payload + 1;
        }
}

/* A packet of the server, whose TCP header is at offset `at`, has `len` bytes of data and goes to the client. */
static __noinline int note_from_away(struct __sk_buff *skb, struct sb_away *away, __u32 at, __u32 len)
{
        struct tcp_with_timestamps header = {};
        __u32 now = bpf_ktime_get_ns() / 1000000;

        if (!away || bpf_skb_load_bytes(skb, at, &header.tcp, sizeof(header.tcp)))
                return -1;
        away->rcv_nxt = later_of(away->rcv_nxt, bpf_ntohl(header.tcp.ack_seq));
        away->snd_nxt = later_of(away->snd_nxt, bpf_ntohl(header.tcp.seq) + len + header.tcp.fin);
        if (header.tcp.fin)
                away->ended |= SB_AWAY_SERVER_FIN;
        if (!bpf_skb_load_bytes(skb, at, &header, sizeof(header)) && header.kinds == SB_TCPOPT_TSTAMP_ALIGNED)
                away->clock = bpf_ntohl(header.tsval) - now;
        return 0;
}

#endif
