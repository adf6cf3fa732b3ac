/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Packets that the switch itself sends on a flow: SYN-ACK, the answer to a keep-alive probe, and RST to a
 * client that leaves before any request.
 */
#ifndef SWITCH_HANDSHAKE_H
#define SWITCH_HANDSHAKE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "guard.h"
#include "handoff.h"
#include "maps.h"
#include "packet.h"
#include "parse.h"
#include "switch_maps.h"
#include "syn_cookie.h"

/*
 * Lengths of option lists: MSS, SACK permitted with timestamps, window scale; the shorter lists leave out
 * options that the SYN lacks.
 */
#define SYNACK_OPTIONS_LONG  20
#define SYNACK_OPTIONS_SHORT 12
#define SYNACK_OPTIONS_SACK  8
#define SYNACK_OPTIONS_MSS   4

/*
 * Turns the frame around: swaps addresses and ports, and writes new headers with `tcp_len` bytes of TCP
 * header and no data. A longer frame grows at its head, because a frame that has been copied (veth) may have
 * no room behind it. Returns the TCP header, or NULL. The caller sets flags, numbers and checksum.
 */
static __always_inline struct tcphdr *turn_around(struct xdp_md *ctx, const struct packet *p,
                                                  const __u32 tcp_len)
{
        void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
        int growth = (int)(p->start + p->l3_len + tcp_len) - (int)(end - data);
        struct ethhdr *eth = data, before;
        struct tcphdr *tcp;
        __u8 label[3] = {};

        if ((void *)(eth + 1) + sizeof(struct ipv6hdr) > end)
                return NULL;
        before = *eth;
        if (p->l3_len != sizeof(struct iphdr))
                __builtin_memcpy(label, ((struct ipv6hdr *)(eth + 1))->flow_lbl, sizeof(label));
        if (growth > 0 ? bpf_xdp_adjust_head(ctx, -growth) : bpf_xdp_adjust_tail(ctx, growth))
                return NULL;
        data = (void *)(long)ctx->data;
        end = (void *)(long)ctx->data_end;
        eth = data;
        if ((void *)(eth + 1) > end)
                return NULL;
        __builtin_memcpy(eth->h_source, before.h_dest, ETH_ALEN);
        __builtin_memcpy(eth->h_dest, before.h_source, ETH_ALEN);
        eth->h_proto = before.h_proto;
        if (p->l3_len == sizeof(struct iphdr)) {
                struct iphdr *ip = (void *)(eth + 1);

                tcp = (void *)(ip + 1);
                if ((void *)tcp + tcp_len > end)
                        return NULL;
                __builtin_memset(ip, 0, sizeof(*ip));
                ip->version = 4;
                ip->ihl = 5;
                ip->tot_len = bpf_htons(sizeof(*ip) + tcp_len);
                ip->frag_off = bpf_htons(SB_IP_DF);
                ip->ttl = SB_TTL;
                ip->protocol = IPPROTO_TCP;
                ip->saddr = sb_v4_of(p->flow.vip);
                ip->daddr = sb_v4_of(p->flow.client);
                ip->check = sb_fold(sb_sum(ip, sizeof(*ip) / 2));
        } else {
                struct ipv6hdr *ip = (void *)(eth + 1);

                tcp = (void *)(ip + 1);
                if ((void *)tcp + tcp_len > end)
                        return NULL;
                __builtin_memset(ip, 0, sizeof(*ip));
                ip->version = 6;
                __builtin_memcpy(ip->flow_lbl, label, sizeof(label));
                ip->flow_lbl[0] &= 0x0f;
                ip->payload_len = bpf_htons(tcp_len);
                ip->nexthdr = IPPROTO_TCP;
                ip->hop_limit = SB_TTL;
                sb_copy_v6(&ip->saddr, p->flow.vip);
                sb_copy_v6(&ip->daddr, p->flow.client);
        }
        __builtin_memset(tcp, 0, sizeof(*tcp));
        tcp->source = p->flow.vip_port;
        tcp->dest = p->flow.client_port;
        tcp->doff = tcp_len / 4;
        return tcp;
}

static __always_inline void set_tcp_checksum(struct tcphdr *tcp, const struct packet *p, const __u32 tcp_len)
{
        tcp->check = sb_fold(sb_pseudo_sum(&p->flow, IPPROTO_TCP, tcp_len) + sb_sum(tcp, tcp_len / 2));
}

/*
 * `options_len` is constant at each call: with a variable length the compiler shares pointer arithmetic
 * between the cases in ways that the verifier cannot follow.
 */
static __always_inline int send_synack(struct xdp_md *ctx, const struct packet *p,
                                       const struct syn_cookie *cookie, const struct sb_tcp_options *syn,
                                       __u16 our_mss, int ecn, const __u32 options_len)
{
        const __u32 tcp_len = sizeof(struct tcphdr) + options_len;
        struct tcphdr *tcp = turn_around(ctx, p, tcp_len);
        __be32 *words;
        __u32 sack = syn->seen & SB_SYN_SACK ? 0x04020000 : 0x01010000;
        __u32 wscale = syn->seen & SB_SYN_WSCALE ? 0x01030300 | OUR_WSCALE : 0x01010101;

        if (!tcp)
                return drop(SB_SWITCH_DROP_HEADROOM);
        tcp->seq = bpf_htonl(cookie->isn);
        tcp->ack_seq = bpf_htonl(p->seq + 1);
        ((__u8 *)tcp)[13] = SB_TCP_SYN | SB_TCP_ACK | (ecn ? SB_TCP_ECE : 0);
        tcp->window = bpf_htons(SB_WINDOW);
        words = (__be32 *)(tcp + 1);
        words[0] = bpf_htonl(SB_TCPOPT_MSS << 24 | 4 << 16 | our_mss);
        if (options_len == SYNACK_OPTIONS_LONG) {
                words[1] = bpf_htonl(sack | SB_TCPOPT_TSTAMP << 8 | 10);
                words[2] = bpf_htonl(cookie->tsval);
                words[3] = bpf_htonl(syn->tsval);
                words[4] = bpf_htonl(wscale);
        } else if (options_len == SYNACK_OPTIONS_SHORT) {
                words[1] = bpf_htonl(sack | 0x0101);
                words[2] = bpf_htonl(wscale);
        } else if (options_len == SYNACK_OPTIONS_SACK) {
                words[1] = bpf_htonl(sack | 0x0101);
        }
        set_tcp_checksum(tcp, p, tcp_len);
        count(SB_SWITCH_SYN_ANSWERED);
        return SEND_BACK;
}

/*
 * Anybody can send a SYN, so an entry stays when one comes, as a connection does in RFC 5961 section 4.
 * Unless the SYN is a retransmission of the same connection, the program then checks packets of the flow for
 * the SYN-ACK's number.
 */
static __always_inline void contest(void *map, const struct packet *p)
{
        struct sb_flow_entry *entry = bpf_map_lookup_elem(map, &p->flow);

        if (entry && entry->origin != p->seq + 1)
                entry->contested = 1;
}

/*
 * Whether the packet acknowledges the SYN-ACK of another connection than the entry's, and not of one that is
 * over: the client has given up the entry's connection.
 */
static __noinline int is_successor(struct xdp_md *ctx, const struct packet *p,
                                   const struct sb_switch_settings *s, __u32 origin)
{
        struct sb_flow_entry settled;
        struct sb_tcp_options options;

        if (p->seq == origin || !(p->flags & SB_TCP_ACK) || p->flags & SB_TCP_RST)
                return 0;
        read_options(ctx, p, &options);
        return cookie_check(s, &p->flow, p->seq - 1, p->ack - 1, &options, &settled) != MADE_BY_NOBODY &&
               !end_of(&p->flow, p->seq);
}

static __always_inline struct handshake *handshake_of(__u32 isn)
{
        __u32 index = isn & handshakes_mask;

        return bpf_map_lookup_elem(&handshakes, &index);
}

/* `now` is by CLOCK_MONOTONIC, in ns. */
static __noinline int begin_handshake(__u32 isn, __u64 now)
{
        struct handshake *handshake = handshake_of(isn);

        if (!handshake)
                return 0;
        /* A late copy of the SYN gets the same cookie. */
        if (handshake->isn != isn)
                handshake->begun = 0;
        handshake->isn = isn;
        handshake->sent_us = now / 1000;
        handshake->took_us = 0;
        return 0;
}

/*
 * Bits of sb_flow_entry.options for the time from the SYN-ACK to the first packet that acknowledges it. 0: unknown,
 * because another switch has sent it, or later handshakes have taken its place.
 */
static __noinline __u8 end_handshake(__u32 isn)
{
        struct handshake *handshake = handshake_of(isn);

        if (!handshake || handshake->isn != isn)
                return 0;
        if (!handshake->took_us)
                handshake->took_us = ((__u32)(bpf_ktime_get_ns() / 1000) - handshake->sent_us) | 1;
        return sb_round_trip_bits(handshake->took_us);
}

/*
 * Claims the first data after the handshake: 1 once for each handshake, 0 if the handshake is not known any more. Only of
 * such data it is certain that the L7 thread holds nothing of the flow, and that no node has had it: entries give way to
 * others.
 */
static __noinline int claim_first_data(__u32 isn)
{
        struct handshake *handshake = handshake_of(isn);

        return handshake && handshake->isn == isn && !__sync_lock_test_and_set(&handshake->begun, 1);
}

static __noinline int on_syn(struct xdp_md *ctx, const struct packet *p, const struct sb_vip *vip,
                             const struct sb_switch_settings *s)
{
        int ecn = (p->flags & (SB_TCP_ECE | SB_TCP_CWR)) == (SB_TCP_ECE | SB_TCP_CWR);
        struct found_buckets found = {.now = bpf_ktime_get_ns()};
        const struct sb_guard *guard = guard_of(vip);
        struct sb_tcp_options syn;
        struct syn_cookie cookie;

        if (guard) {
                int verdict = welcome(&p->flow, guard, &found);

                if (verdict != WELCOME)
                        return verdict;
        }
        contest(&flows, p);
        contest(&waiting, p);
        read_options(ctx, p, &syn);
        /*
         * RFC 9293 section 3.7.1: the MSS is 536 if the option is missing. The kernel adopts no smaller one.
         */
        if (syn.mss < 536)
                syn.mss = 536;
        cookie = cookie_make(s, &p->flow, p->seq, &syn, &ecn);
        begin_handshake(cookie.isn, found.now);
        if (syn.seen & SB_SYN_TSTAMP)
                return send_synack(ctx, p, &cookie, &syn, vip->mss, ecn, SYNACK_OPTIONS_LONG);
        switch (syn.seen & (SB_SYN_SACK | SB_SYN_WSCALE)) {
        case 0:
                return send_synack(ctx, p, &cookie, &syn, vip->mss, ecn, SYNACK_OPTIONS_MSS);
        case SB_SYN_SACK | SB_SYN_WSCALE:
                return send_synack(ctx, p, &cookie, &syn, vip->mss, ecn, SYNACK_OPTIONS_SHORT);
        default:
                return send_synack(ctx, p, &cookie, &syn, vip->mss, ecn, SYNACK_OPTIONS_SACK);
        }
}

static __always_inline void fill_probe_answer(struct tcphdr *tcp, const struct packet *p)
{
        tcp->seq = bpf_htonl(p->ack);
        tcp->ack_seq = bpf_htonl(p->seq + 1);
        tcp->ack = 1;
        tcp->window = bpf_htons(SB_WINDOW);
}

/*
 * Answers a keep-alive probe (RFC 9293 section 3.8.4) on a connection without a request: no node knows such a
 * connection.
 */
static __noinline int answer_probe(struct xdp_md *ctx, const struct packet *p,
                                   const struct sb_tcp_options *options)
{
        const __u32 with_timestamps = sizeof(struct tcphdr) + SYNACK_OPTIONS_SHORT;
        struct tcphdr *tcp;
        __be32 *words;

        if (options->seen & SB_SYN_TSTAMP) {
                tcp = turn_around(ctx, p, with_timestamps);
                if (!tcp)
                        return drop(SB_SWITCH_DROP_HEADROOM);
                fill_probe_answer(tcp, p);
                words = (__be32 *)(tcp + 1);
                words[0] = bpf_htonl(0x01010000 | SB_TCPOPT_TSTAMP << 8 | 10);
                words[1] = bpf_htonl(options->tsecr);
                words[2] = bpf_htonl(options->tsval);
                set_tcp_checksum(tcp, p, with_timestamps);
        } else {
                tcp = turn_around(ctx, p, sizeof(*tcp));
                if (!tcp)
                        return drop(SB_SWITCH_DROP_HEADROOM);
                fill_probe_answer(tcp, p);
                set_tcp_checksum(tcp, p, sizeof(*tcp));
        }
        count(SB_SWITCH_PROBE_ANSWERED);
        return SEND_BACK;
}

/*
 * RFC 9293 section 3.10.7.1: the sequence number of a reset is the acknowledgment number of the packet that
 * it answers. If that has none, the reset acknowledges all of the packet.
 */
static __noinline int send_reset(struct xdp_md *ctx, const struct packet *p, __u32 counter)
{
        struct tcphdr *tcp = turn_around(ctx, p, sizeof(struct tcphdr));

        if (!tcp)
                return drop(SB_SWITCH_DROP_HEADROOM);
        tcp->rst = 1;
        if (p->flags & SB_TCP_ACK) {
                tcp->seq = bpf_htonl(p->ack);
        } else {
                tcp->ack = 1;
                tcp->ack_seq =
                    bpf_htonl(p->seq + p->payload + !!(p->flags & SB_TCP_SYN) + !!(p->flags & SB_TCP_FIN));
        }
        set_tcp_checksum(tcp, p, sizeof(struct tcphdr));
        count(counter);
        return SEND_BACK;
}

#endif
