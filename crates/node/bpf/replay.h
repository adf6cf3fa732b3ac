/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Adoption without bpf_sk_assign_tcp_reqsk(): the node replays the handshake with the listener (docs/decisions/0053).
 *
 *   1. The ADOPT becomes a SYN with what the client offered once, behind which a clone of the packet is queued. The
 *      SYN-ACK goes no farther than egress, which learns the server's numbers from it.
 *   2. The clone becomes the same SYN. A server that has seen a SYN twice takes no sample of the round trip from
 *      the handshake (RFC 6298 section 3), which on this way is not the client's.
 *   3. Its clone becomes the ACK of the handshake, with the request in it.
 *
 * The SYN has the sequence number before the client's first byte, so that the client's numbers stay as they are.
 */
#ifndef NODE_REPLAY_H
#define NODE_REPLAY_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/tcp.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "again.h"
#include "away.h"
#include "bytes.h"
#include "client.h"
#include "counters.h"
#include "decap.h"
#include "deliver.h"
#include "follow.h"
#include "kernel.h"
#include "load.h"
#include "maps.h"
#include "masquerade.h"
#include "node_maps.h"
#include "packet.h"
#include "queue.h"
#include "received.h"
#include "resume.h"
#include "socket.h"
#include "tcx.h"

/* Whether the handshake of the flow's adoption is under way. */
static __always_inline int is_replaying(const struct sb_owned *flow)
{
        return flow->state == SB_OWN_ADOPTING && flow->masquerade.stage != SB_REPLAY_NONE &&
               flow->masquerade.stage != SB_REPLAY_FAILED;
}

/* Whether the listener gets its flows by replay. The kernel makes no sockets for a listener that speaks MPTCP. */
static __always_inline int is_replayed(const struct socket_facts *listener)
{
        struct sb_node_settings *s;
        __u32 zero = 0;

        if (listener->away)
                return 1;
        s = bpf_map_lookup_elem(&settings, &zero);
        if (!s || s->adoption == SB_ADOPTION_KERNEL)
                return 0;
        if (s->adoption == SB_ADOPTION_REPLAY || !bpf_ksym_exists(bpf_sk_assign_tcp_reqsk))
                return 1;
        return listener->mptcp;
}

/* Reads `len` bytes of TCP options at offset `at`. NULL if there are none, or more than a header can have. */
static __always_inline const struct sb_tcp_options *read_tcp_options(struct __sk_buff *skb, __u32 at,
                                                                     __u32 len)
{
        struct sb_option_walk *walk = sb_new_option_walk();

        if (!walk || sb_load_some(skb, at, walk->space.bytes, len, SB_TCPOPT_SPACE))
                return NULL;
        walk->len = len;
        sb_parse_tcp_options(walk);
        return &walk->found;
}

/* Reads the timestamps of the client's packet, from which the kernel goes on. */
static __noinline void read_timestamps(struct __sk_buff *skb, struct handoff *h)
{
        __u32 len = (__u32)h->tcp_len - sizeof(struct tcphdr);
        __u32 start = sizeof(struct ethhdr) + h->inner_len + sizeof(struct tcphdr);
        const struct sb_tcp_options *options = read_tcp_options(skb, start, len);

        if (!options)
                return;
        h->tsval = options->tsval;
        h->tsecr = options->tsecr;
}

#define SYN_ACK     (SB_TCP_SYN | SB_TCP_ACK)
#define SYN_OPTIONS 20

struct syn {
        struct tcphdr tcp;
        __u8 options[SYN_OPTIONS];
};

/* Writes the SYN. Not inlined, because of the stack. */
static __noinline int fill_syn(struct syn *syn, const struct handoff *h, __u16 mss)
{
        const __u8 settled = h->option.payload.flow.options;
        __u8 *option = syn->options;

        syn->tcp.source = h->flow.client_port;
        syn->tcp.dest = h->flow.vip_port;
        syn->tcp.seq = bpf_htonl(server_seq(h) - 1);
        syn->tcp.doff = sizeof(*syn) / 4;
        syn->tcp.syn = 1;
        if (settled & SB_SYN_ECN) {
                syn->tcp.ece = 1;
                syn->tcp.cwr = 1;
        }
        syn->tcp.window = bpf_htons(SB_WINDOW);
        __builtin_memset(option, 1, SYN_OPTIONS);
        option[0] = SB_TCPOPT_MSS;
        option[1] = 4;
        option[2] = mss >> 8;
        option[3] = mss;
        if (settled & SB_SYN_SACK) {
                option[4] = SB_TCPOPT_SACKOK;
                option[5] = 2;
        }
        if (settled & SB_SYN_TSTAMP) {
                option[6] = SB_TCPOPT_TSTAMP;
                option[7] = 10;
                option[8] = h->tsval >> 24;
                option[9] = h->tsval >> 16;
                option[10] = h->tsval >> 8;
                option[11] = h->tsval;
                __builtin_memset(option + 12, 0, 4);
        }
        if (settled & SB_SYN_WSCALE) {
                option[17] = SB_TCPOPT_WSCALE;
                option[18] = 3;
                option[19] = h->option.payload.flow.wscale >> 4;
        }
        syn->tcp.check =
            sb_fold(sb_pseudo_sum(&h->flow, IPPROTO_TCP, sizeof(*syn)) + sb_sum(syn, sizeof(*syn) / 2));
        return 0;
}

/*
 * Gives the SYN to a listener that is not at the VIP. The second SYN finds what the first one has made. Linux before 6.6
 * refuses listeners with SO_REUSEPORT: bpf_sk_assign().
 */
static __noinline int steer(struct __sk_buff *skb, const struct handoff *h)
{
        struct bpf_sock *skc;
        int err = 0;

        if (is_resumption(h))
                skc = resume_listener(skb, h);
        else if (server_of(&h->flow, h->node))
                skc = lookup(skb, h);
        else
                return 0;
        if (!skc)
                return -1;
        if (*(volatile __u32 *)&skc->state == TCP_LISTEN)
                err = bpf_sk_assign(skb, skc, 0);
        bpf_sk_release(skc);
        return err;
}

/* Turns the packet into the SYN, with a clone behind it that goes on. */
static __noinline int send_syn(struct __sk_buff *skb, struct handoff *h, struct sb_owned *flow)
{
        const __u8 settled = h->option.payload.flow.options;
        struct syn syn = {};

        if (!flow || come_again(skb, SKB_MARK_REPLAY) || decapsulate(skb, h))
                return drop(SB_NODE_DROP_MALFORMED);
        if (settled & SB_SYN_TSTAMP)
                read_timestamps(skb, h);
        if (flow->masquerade.stage == SB_REPLAY_NONE) {
                flow->masquerade.seq = h->ack;
                flow->masquerade.tsval = h->tsecr + sb_round_trip_ms(settled);
                flow->masquerade.ours = settled & SB_SYN_WSCALE ? h->option.payload.flow.wscale & 15 : 0;
        }
        flow->masquerade.stage =
            flow->masquerade.stage == SB_REPLAY_ANSWERED ? SB_REPLAY_AGAIN : SB_REPLAY_SYN;
        fill_syn(&syn, h, mss_towards(h));
        /* A SYN with a congestion mark may be refused ECN: tcp_ecn_create_request(). */
        if (cut(skb, h, sizeof(syn), ECN_CLEARED) ||
            bpf_skb_store_bytes(skb, sizeof(struct ethhdr) + h->inner_len, &syn, sizeof(syn), 0))
                return drop(SB_NODE_DROP_MALFORMED);
        if (is_away(flow))
                return send_away(skb, &h->flow, flow);
        return steer(skb, h) ? drop(SB_NODE_DROP_MALFORMED) : TCX_PASS;
}

/* What a server answers to a SYN. */
struct syn_answer {
        __u32 seq; /* of its SYN */
        __u32 tsval;
        __u8 wscale;
        __u8 timestamps;
};

static __always_inline void learn(struct sb_owned *flow, const struct syn_answer *answer)
{
        struct sb_masquerade *m = &flow->masquerade;

        /* A client may drop what has no timestamps, RFC 7323 section 3.2. */
        if (flow->options & SB_SYN_TSTAMP && !answer->timestamps) {
                m->stage = SB_REPLAY_UNFIT;
                return;
        }
        m->seq -= answer->seq + 1;
        m->tsval -= answer->tsval;
        m->theirs = answer->wscale;
        m->stage = SB_REPLAY_ANSWERED;
}

/*
 * Learns the server's numbers from its SYN-ACK, which is for nobody else. `ack` is the packet's. The server must take it
 * for sent: tcp_rtx_synack() counts no retransmission that was dropped.
 */
static __noinline int on_syn_ack(struct __sk_buff *skb, struct sb_owned *flow,
                                 const struct tcp_numbers *numbers, __u32 ack)
{
        struct syn_answer answer = {.seq = numbers->seq};
        const struct sb_tcp_options *options;
        __u32 at = numbers->tcp + sizeof(struct tcphdr), len = numbers->start - at;

        if (flow->state != SB_OWN_ADOPTING || ack != first_byte(flow))
                return sb_lose();
        if (flow->masquerade.stage == SB_REPLAY_AGAIN)
                flow->masquerade.stage = SB_REPLAY_READY;
        if (flow->masquerade.stage != SB_REPLAY_SYN)
                return sb_lose();
        if (len > SB_TCPOPT_SPACE)
                return sb_lose();
        /* A server whose SYN-ACK has no options offers nothing. */
        options = read_tcp_options(skb, at, len);
        if (options) {
                answer.tsval = options->tsval;
                answer.wscale = options->seen & SB_SYN_WSCALE ? options->wscale : 0;
                answer.timestamps = !!(options->seen & SB_SYN_TSTAMP);
        }
        learn(flow, &answer);
        return sb_lose();
}

/*
 * Learns the server's numbers from the kernel, if the SYN-ACK has not come to egress: it waits there for the next hop's
 * address.
 */
static __noinline int read_request(struct __sk_buff *skb, const struct handoff *h, struct sb_owned *flow)
{
        struct syn_answer answer = {};
        struct tcp_request_sock *request = NULL;
        struct bpf_sock *skc;

        if (!flow)
                return 0;
        skc = (struct bpf_sock *)lookup(skb, h);
        if (!skc)
                return 0;
        /* Read as memory: bpf_skc_to_tcp_request_sock() knows none of a listener that speaks MPTCP. */
        if (*(volatile __u32 *)&skc->state == TCP_NEW_SYN_RECV)
                bpf_probe_read_kernel(&request, sizeof(request), &skc);
        if (request) {
                answer.seq = BPF_CORE_READ(request, snt_isn);
                answer.tsval = clock_with(BPF_CORE_READ(request, ts_off));
                answer.timestamps = BPF_CORE_READ_BITFIELD_PROBED(request, req.tstamp_ok);
                if (BPF_CORE_READ_BITFIELD_PROBED(request, req.wscale_ok))
                        answer.wscale = BPF_CORE_READ_BITFIELD_PROBED(request, req.rcv_wscale);
                learn(flow, &answer);
        }
        bpf_sk_release(skc);
        return 0;
}

/* Turns the decapsulated packet into the ACK of the handshake. */
static __noinline int end_replay(struct __sk_buff *skb, const struct handoff *h, struct sb_owned *flow)
{
        flow->masquerade.stage = SB_REPLAY_DONE;
        if (end_handshake(skb, sizeof(struct ethhdr) + h->inner_len, &flow->masquerade))
                return drop(SB_NODE_DROP_MALFORMED);
        if (!is_away(flow))
                return TCX_PASS;
        /* No socket tells that it has been made. */
        begin_away(flow, h);
        give_back(flow);
        load_begin(flow);
        flow->state = SB_OWN_OPEN;
        return send_away(skb, &h->flow, flow);
}

/* The handshake fails: the server forgets it, and a clone refuses the adoption. */
static __always_inline int fail_replay(struct __sk_buff *skb, const struct handoff *h, struct sb_owned *flow)
{
        /* That of an old connection, which the server has still. */
        __u32 rcv_nxt = flow->away.rcv_nxt ? flow->away.rcv_nxt : server_seq(h);

        flow->masquerade.stage = SB_REPLAY_FAILED;
        if (come_again(skb, SKB_MARK_CONFIRMED))
                return drop(SB_NODE_DROP_MALFORMED);
        return reset_locally(skb, h, flow, rcv_nxt);
}

/* The new socket keeps its masquerade, should the entry of its flow give way to others. */
static __noinline int keep_masquerade(struct __sk_buff *skb, const struct handoff *h,
                                      const struct sb_owned *flow)
{
        struct sb_masquerade *kept;
        struct bpf_sock *skc;

        if (!flow || !flow->masquerade.stage)
                return 0;
        skc = (struct bpf_sock *)lookup(skb, h);
        if (!skc)
                return 0;
        kept = bpf_sk_storage_get(&masquerades, skc, NULL, BPF_SK_STORAGE_GET_F_CREATE);
        bpf_sk_release(skc);
        if (kept)
                *kept = flow->masquerade;
        return 0;
}

#endif
