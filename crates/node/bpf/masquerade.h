/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Translation between the numbers of a server, whose socket was made by a replayed handshake, and those that its client
 * knows. Only the server's own numbers differ: its sequence numbers with the acknowledgments and SACK blocks about them,
 * its TSvals with their echoes, and the scale of its windows.
 */
#ifndef NODE_MASQUERADE_H
#define NODE_MASQUERADE_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "answer.h"
#include "kernel.h"
#include "keys.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"
#include "received.h"

#define SB_TCPOPT_SACK 5

/* TCP header with the longest options, and room for reading behind a truncated last one. */
struct tcp_space {
        struct tcphdr tcp;
        __u8 options[SB_TCPOPT_SPACE + 16];
};

struct rewriting {
        struct tcp_space from;
        struct tcp_space to;
};

/* Where a header is rewritten: it is too large for the stack. */
struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct rewriting);
} rewritings SEC(".maps");

struct option_rewriting {
        __u8 *options;
        __u32 len;
        __u32 at;
        __u32 sack;  /* added to the edges of SACK blocks */
        __u32 tsval; /* added to TSval */
        __u32 tsecr; /* added to a TSecr that is not 0 */
        __u32 hides; /* TSecr becomes 0 instead */
};

static __always_inline void add_be32(__u8 *at, __u32 more)
{
        __u32 value = sb_be32_at(at) + more;

        at[0] = value >> 24;
        at[1] = value >> 16;
        at[2] = value >> 8;
        at[3] = value;
}

static long rewrite_option(__u32 index, struct option_rewriting *walk)
{
        __u32 at = walk->at;
        __u8 *option, size;

        if (at >= walk->len || at >= SB_TCPOPT_SPACE)
                return 1;
        option = walk->options + at;
        if (option[0] == 0)
                return 1;
        if (option[0] == 1) {
                walk->at = at + 1;
                return 0;
        }
        size = option[1];
        if (size < 2 || at + size > walk->len)
                return 1;
        if (option[0] == SB_TCPOPT_TSTAMP && size == 10) {
                add_be32(option + 2, walk->tsval);
                if (walk->hides)
                        __builtin_memset(option + 6, 0, 4);
                else if (sb_be32_at(option + 6))
                        add_be32(option + 6, walk->tsecr);
        }
        if (option[0] == SB_TCPOPT_SACK && walk->sack) {
#pragma unroll
                for (__u32 i = 0; i < 8; i++) {
                        __u32 edge = at + 2 + i * 4;

                        if (edge + 4 <= at + size && edge + 4 <= sizeof(((struct tcp_space *)0)->options))
                                add_be32(walk->options + edge, walk->sack);
                }
        }
        walk->at = at + size;
        return 0;
}

/* What is added to the numbers of a packet. */
struct shift {
        __u32 seq;
        __u32 ack;
        __u32 tsval;
        __u32 tsecr;
        __u8 from_scale; /* of the window */
        __u8 to_scale;
        __u8 hides_echo; /* TSecr becomes 0 instead */
};

static __always_inline __be16 rescaled(__be16 window, const struct shift *shift)
{
        __u32 bytes = (__u32)bpf_ntohs(window) << (shift->from_scale & 15) >> (shift->to_scale & 15);

        return bpf_htons(bytes < 0xffff ? bytes : 0xffff);
}

static __always_inline void rewrite_options(struct tcp_space *space, __u32 len, const struct shift *shift)
{
        struct tcp_with_timestamps *aligned = (void *)space;
        struct option_rewriting walk = {
            .options = space->options,
            .len = len,
            .sack = shift->ack,
            .tsval = shift->tsval,
            .tsecr = shift->tsecr,
            .hides = shift->hides_echo,
        };

        if (len == sizeof(*aligned) - sizeof(space->tcp) && aligned->kinds == SB_TCPOPT_TSTAMP_ALIGNED) {
                aligned->tsval = bpf_htonl(bpf_ntohl(aligned->tsval) + shift->tsval);
                if (shift->hides_echo)
                        aligned->tsecr = 0;
                else if (aligned->tsecr)
                        aligned->tsecr = bpf_htonl(bpf_ntohl(aligned->tsecr) + shift->tsecr);
                return;
        }
        bpf_loop(SB_TCPOPT_SPACE, rewrite_option, &walk, 0);
}

/* Rewrites the TCP header at offset `at`. Packets of local senders may have their checksums yet to come. */
static __noinline int rewrite(struct __sk_buff *skb, __u32 at, const struct shift *shift)
{
        __u32 zero = 0, len = sizeof(struct tcphdr);
        struct rewriting *r = bpf_map_lookup_elem(&rewritings, &zero);
        __s64 changed;

        if (!r || !shift || bpf_skb_load_bytes(skb, at, &r->from, len))
                return -1;
        len = r->from.tcp.doff * 4;
        if (len < sizeof(struct tcphdr) || len > sizeof(struct tcphdr) + SB_TCPOPT_SPACE)
                return -1;
        if (len > sizeof(struct tcphdr) && bpf_skb_load_bytes(skb, at, &r->from, len))
                return -1;
        r->to = r->from;
        r->to.tcp.seq = bpf_htonl(bpf_ntohl(r->from.tcp.seq) + shift->seq);
        if (r->from.tcp.ack)
                r->to.tcp.ack_seq = bpf_htonl(bpf_ntohl(r->from.tcp.ack_seq) + shift->ack);
        if (shift->from_scale != shift->to_scale)
                r->to.tcp.window = rescaled(r->from.tcp.window, shift);
        if (len > sizeof(struct tcphdr))
                rewrite_options(&r->to, len - sizeof(struct tcphdr), shift);
        changed = bpf_csum_diff((void *)&r->from, len, (void *)&r->to, len, 0);
        if (changed < 0 || bpf_skb_store_bytes(skb, at, &r->to, len, 0))
                return -1;
        return bpf_l4_csum_replace(skb, at + offsetof(struct tcphdr, check), 0, changed, 0);
}

/* Gives a client's packet, whose TCP header is at offset `at`, the numbers that the server knows. */
static __always_inline int to_server(struct __sk_buff *skb, __u32 at, const struct sb_masquerade *m)
{
        struct shift shift = {.ack = -m->seq, .tsecr = -m->tsval};

        return rewrite(skb, at, &shift);
}

/* The same for the packet that ends the handshake, without the echo of the TSval that another speaker has sent. */
static __always_inline int end_handshake(struct __sk_buff *skb, __u32 at, const struct sb_masquerade *m)
{
        struct shift shift = {.ack = -m->seq, .hides_echo = 1};

        return rewrite(skb, at, &shift);
}

/* Gives a server's packet the numbers that the client knows. */
static __always_inline int to_client(struct __sk_buff *skb, __u32 at, const struct sb_masquerade *m)
{
        struct shift shift = {.seq = m->seq, .tsval = m->tsval, .from_scale = m->theirs, .to_scale = m->ours};

        return rewrite(skb, at, &shift);
}

/* The same for the sequence number in the header that an ICMP error of a router quotes. */
static __noinline int quoted_to_server(struct __sk_buff *skb, const struct handoff *h, __u32 offset)
{
        const __u32 icmp_len = 8;
        __u32 icmp = sizeof(struct ethhdr) + h->inner_len;
        __u32 at = icmp + icmp_len + h->inner_len + offsetof(struct tcphdr, seq);
        __be32 from, to;

        if (bpf_skb_load_bytes(skb, at, &from, sizeof(from)))
                return -1;
        to = bpf_htonl(bpf_ntohl(from) - offset);
        if (bpf_skb_store_bytes(skb, at, &to, sizeof(to), 0))
                return -1;
        /* Type and code are before the checksum, RFC 792 and RFC 4443. */
        return bpf_l4_csum_replace(skb, icmp + 2, from, to, sizeof(to));
}

/* That of a socket whose flow has no entry. */
static __always_inline struct sb_masquerade *masquerade_of_socket(struct bpf_sock *sk)
{
        return bpf_sk_storage_get(&masquerades, sk, NULL, 0);
}

/* That of a connection of the 4-tuple that has ended, in TIME_WAIT. */
static __always_inline struct sb_masquerade *masquerade_of_ended(const struct sb_flow *key)
{
        struct ended *ended = sb_flow_lookup(&over, key);

        return ended ? &ended->masquerade : NULL;
}

/* Translates a packet that leaves and whose flow has no entry. */
static __noinline int unknown_to_client(struct __sk_buff *skb, const struct sb_flow *key, __u32 at)
{
        struct sb_masquerade *m = NULL;
        struct bpf_sock *sk = skb->sk;

        if (sk)
                sk = bpf_sk_fullsock(sk);
        if (sk)
                m = masquerade_of_socket(sk);
        /* Without a socket of the flow, the kernel sends by one of its own. */
        if (!sk || sk->state == TCP_CLOSE)
                m = masquerade_of_ended(key);
        return m && m->stage ? to_client(skb, at, m) : 0;
}

#endif
