/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Following the server's responses to their ends. Each new byte of an adopted flow passes egress before it
 * can be acknowledged, in order unless packets overtake each other. The automaton reads heads and chunk
 * sizes, and skips data. What it has passed already is a retransmission. On the way the names of session
 * cookies are rewritten.
 */
#ifndef NODE_FOLLOW_H
#define NODE_FOLLOW_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "facts.h"
#include "fingerprint.h"
#include "flow.h"
#include "framing.h"
#include "insure.h"
#include "judge.h"
#include "kernel.h"
#include "load.h"
#include "maps.h"
#include "messages.h"
#include "node_maps.h"
#include "packet.h"
#include "received.h"
#include "session_cookie.h"
#include "tcx.h"

/*
 * Steps for the longest packet (BIG TCP: some 500 KB): each step advances by one byte at least, or ends a
 * block of data.
 */
#define FOLLOW_STEPS (1 << 20)

static __always_inline __u64 *heads_of(struct sb_owned *flow, __u16 number)
{
        return &flow->heads[number / 64 & (SB_HEADS / 64 - 1)];
}

static __always_inline int is_head(struct sb_owned *flow, __u16 number)
{
        return *heads_of(flow, number) >> (number & 63) & 1;
}

/*
 * Notes the number of requests that the switch has given to the node. Packets that said so may have been
 * lost, so each says which of the last 32 requests were HEAD. If more than 32 in a row are lost, a HEAD among
 * them is unknown.
 */
static __always_inline void note_requests(struct sb_owned *flow, const struct handoff *h)
{
        __u16 requests = bpf_ntohs(h->option.payload.flow.requests);
        __s16 more = (__s16)(requests - flow->requests);
        __u32 heads = bpf_ntohl(h->option.payload.flow.heads);
        __u64 now;

        if (more <= 0)
                return;
        now = clock_us();
        if (flow->requests == flow->responses)
                flow->turn_us = now;
        for (int i = 0; i < 32 && i < more; i++) {
                __u16 number = requests - i;
                __u64 bit = 1ULL << (number & 63);
                __u64 *word = heads_of(flow, number);

                *word = heads >> i & 1 ? *word | bit : *word & ~bit;
        }
        flow->requests = requests;
        flow->asked_us = (__u32)now;
        load_requests(flow, more);
}

/* Notes for which path the switch wants to know the length of the response to the last request. */
static __always_inline void note_path(struct sb_owned *flow, const struct handoff *h)
{
        flow->path = h->option.payload.flow.session.path;
        flow->path_request = bpf_ntohs(h->option.payload.flow.requests);
}

static __always_inline __u32 saturated_u32(__u64 value)
{
        return value < ~0U ? value : ~0U;
}

/*
 * Reports the length of the response to request `number`, which ends before sequence number `end`. If the
 * ring is full, the switch will ask again.
 */
static __always_inline void tell_size(struct sb_owned *flow, __u16 number, __u32 end)
{
        struct sb_sized *record;

        if (!flow->path || flow->path_request != number)
                return;
        record = bpf_ringbuf_reserve(&sized, sizeof(*record), 0);
        if (record) {
                __builtin_memset(record, 0, sizeof(*record));
                write_asking(&record->by, flow);
                record->bytes = saturated_u32(fact_bytes(flow, end));
                record->path = flow->path;
                bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
        }
        flow->path = 0;
}

struct response_walk {
        struct framing_walk framing;
        struct sb_owned *flow;
        const struct sb_flow *key;
        __u32 base;
        __u32 done;
};

/* Stops following. The status remains that of the response under way. */
static __always_inline void lose_track(struct sb_framing *framing, const struct sb_owned *flow)
{
        __u16 status = framing->status;

        if (framing->state == SB_FRAMING_LOST)
                return;
        framing_begin(framing, SB_FRAMING_LOST);
        framing->status = status;
        load_lose(flow);
        count(SB_NODE_LOST_TRACK);
}

static long response_step(__u32 index, struct response_walk *walk)
{
        struct framing_walk *w = &walk->framing;
        struct sb_owned *flow = walk->flow;
        __u16 number = flow->responses + 1;

        if (w->at >= w->end)
                return 1;
        if (w->framing.state == SB_FRAMING_NONE) {
                fact_begins(flow, walk->base + w->at);
                /* No request is open, or more than the node can tell apart. */
                if (flow->requests == flow->responses ||
                    (__u16)(flow->requests - flow->responses) > SB_HEADS) {
                        lose_track(&w->framing, flow);
                        return 1;
                }
                w->head = is_head(flow, number);
                load_first_byte(flow);
                framing_begin(&w->framing, SB_FRAMING_HEAD);
        }
        framing_step(w);
        if (w->head_end) {
                flow->head_bytes = fact_bytes(flow, walk->base + w->head_end);
                w->head_end = 0;
                /* Behind an interim response it is 0: a step does not come as far as the next one's. */
                _Static_assert(FRAMING_TURNS < sizeof("HTTP/1.1 "), "a step reads a part of a status");
                if (w->framing.status)
                        judge(flow, walk->key, w->framing.status);
        }
        if (w->followed == FOLLOWED_NOT) {
                lose_track(&w->framing, flow);
                return 1;
        }
        if (w->followed == FOLLOWED_NAME)
                note_name(w, &flow->cookies.rewritten, walk->base, walk->done, SB_NODE_COOKIE_REWRITTEN);
        if (w->followed == FOLLOWED_ENDS) {
                __u32 end = walk->base + w->at;

                if (w->framing.flags & SB_FRAMING_HAS_CLOSE)
                        flow->keeps = 0;
                flow->responses = number;
                tell_size(flow, number, end);
                fact_ends(flow, walk->key, number, w->framing.status, end);
                framing_begin(&w->framing, SB_FRAMING_NONE);
                w->followed = FOLLOWED_MORE;
                load_response(walk->flow);
                count(SB_NODE_RESPONSES);
        }
        return w->at >= w->end;
}

/* TCP sequence number and flags of a packet, with the offsets of TCP header and data. */
struct tcp_numbers {
        __u32 seq;
        __u32 tcp;
        __u32 start;
        __u8 flags;
};

/* Sequence numbers of the socket that sends the packet, as its client knows them. */
struct sender {
        __u32 snd_una;
        __u32 write_seq;
};

/*
 * Reads the sender. Without a socket returns 0, with numbers that say: nothing is acknowledged, and more may
 * follow.
 */
static __always_inline int read_sender(struct __sk_buff *skb, const struct sb_owned *flow,
                                       const struct data_place *data, struct sender *sender)
{
        struct bpf_sock *sk = skb->sk;
        struct tcp_sock *tcp;

        sender->snd_una = data->seq - (1 << 30);
        sender->write_seq = data->seq;
        if (!sk)
                return 0;
        tcp = (void *)bpf_skc_to_tcp_sock(sk);
        if (!tcp)
                return 0;
        sender->snd_una = tcp->snd_una + flow->masquerade.seq;
        sender->write_seq = tcp->write_seq + flow->masquerade.seq;
        return 1;
}

/*
 * The packet ends in what may be the wanted name. If the server has written nothing behind it, dropping makes
 * TCP send again, together with what follows. Otherwise the packet is taken away as if lost, and the next one
 * decides.
 */
static __always_inline int keep_cut(struct sb_owned *flow, const struct data_place *data,
                                    const struct sender *sender)
{
        struct sb_changed *rewritten = &flow->cookies.rewritten;
        __u32 end = data->seq + data->len, at = end - flow->framing.matched;

        if (data->last) {
                give_up_name(&flow->framing, rewritten);
                return TCX_NEXT;
        }
        count(SB_NODE_COOKIE_WAITED);
        if (sender->write_seq == end) {
                __s32 before = data->seq - at;

                flow->framing.matched = before > 0 ? before : 0;
                flow->followed = before > 0 ? data->seq : at;
                return TCX_DROP;
        }
        rewritten->undecided = at;
        rewritten->tries = 1;
        return sb_lose();
}

/*
 * The packet begins behind what has been followed. While a neighbour is being resolved, packets wait before
 * they come here, and later ones overtake them on another CPU (neigh_update()). Then the gap is not
 * acknowledged yet, and TCP sends this packet again. Otherwise data has left unseen.
 */
static __always_inline int on_gap(struct __sk_buff *skb, struct sb_owned *flow, const struct data_place *data)
{
        struct sender sender;

        if (read_sender(skb, flow, data, &sender) && (__s32)(sender.snd_una - flow->followed) <= 0)
                return drop(SB_NODE_DROP_OVERTAKING);
        lose_track(&flow->framing, flow);
        return TCX_NEXT;
}

/* Counts the bytes of responses whose ends are unknown. */
static __always_inline void follow_blindly(struct sb_owned *flow, const struct data_place *data)
{
        __u32 end = data->seq + data->len;

        if ((__s32)(end - flow->followed) <= 0)
                return;
        flow->followed = end;
        fact_goes_on(flow);
}

/* The packet ends in the middle of a response. */
static __always_inline void goes_on(struct __sk_buff *skb, struct sb_owned *flow, const struct sb_flow *key,
                                    const struct data_place *data)
{
        __u32 start = flow->began - data->seq, body = start + flow->head_bytes;

        if (!flow->insure && flow->head_bytes && resume_after()) {
                if (flow->sent == 0 && start < data->len)
                        keep_response(skb, flow, data->start + start);
                else
                        flow->insure = SB_INSURE_NEVER;
                if (flow->insure != SB_INSURE_NEVER && repeats())
                        begin_fingerprint(flow, key, data, body);
                if (flow->insure & SB_INSURE_FINGERPRINTED && body < data->len)
                        fingerprint(skb, flow, key, data, body);
        }
        fact_goes_on(flow);
        if (is_insurable(flow))
                report_insurable(skb, flow, key);
}

/* Follows the new data of a packet. Returns the verdict. */
__noinline int follow(struct __sk_buff *skb, struct sb_owned *flow, const struct sb_flow *key,
                      const struct sb_persistence *p, const struct data_place *data)
{
        struct response_walk walk = {};
        struct sender sender = {};
        int verdict = TCX_NEXT;
        __s32 seen;

        if (!flow || !key || !data)
                return TCX_NEXT;
        if (flow->framing.state == SB_FRAMING_LOST) {
                follow_blindly(flow, data);
                return TCX_NEXT;
        }
        seen = flow->followed - data->seq;
        if (seen >= (__s32)data->len) {
                if (p && is_undecided(&flow->framing, &flow->cookies.rewritten, data))
                        return sb_lose();
                return TCX_NEXT;
        }
        if (seen < 0)
                return on_gap(skb, flow, data);
        if (is_resumed(flow) && flow->framing.left > SB_INSURED_UNKNOWN / 2)
                learn_end(flow, key);
        if (flow->insure & SB_INSURE_FINGERPRINTED)
                fingerprint(skb, flow, key, data, seen);
        if (p) {
                read_sender(skb, flow, data, &sender);
                walk.framing.name_len = p->name_len;
                __builtin_memcpy(walk.framing.name, p->name, sizeof(p->name));
        }
        walk.flow = flow;
        walk.key = key;
        walk.base = data->seq - data->start;
        walk.done = sender.snd_una;
        walk.framing.ctx = skb;
        walk.framing.framing = flow->framing;
        walk.framing.at = data->start + seen;
        walk.framing.end = data->start + data->len;
        walk.framing.head = is_head(flow, flow->responses + 1);
        bpf_loop(FOLLOW_STEPS, response_step, &walk, 0);
        flow->framing = walk.framing.framing;
        flow->followed = data->seq + data->len;
        if (p && is_cut(&flow->framing))
                verdict = keep_cut(flow, data, &sender);
        else
                flow->cookies.rewritten.tries = 0;
        if (flow->framing.state != SB_FRAMING_NONE)
                goes_on(skb, flow, key, data);
        return verdict;
}

/* Follows a packet of the server on the flow `key`. Returns the verdict. */
__noinline int follow_responses(struct __sk_buff *skb, struct sb_owned *flow, const struct sb_flow *key,
                                const struct tcp_numbers *numbers)
{
        struct data_place data = {};
        struct sb_persistence *p;
        int verdict;

        if (!flow || !key || !numbers || skb->len <= numbers->start)
                return TCX_NEXT;
        data.tcp = numbers->tcp;
        data.start = numbers->start;
        data.seq = numbers->seq;
        data.len = skb->len - numbers->start;
        data.last = !!(numbers->flags & (SB_TCP_FIN | SB_TCP_RST));
        p = persistence_of(flow);
        if (p && p->mode != SB_SESSION_REWRITE)
                p = NULL;
        verdict = follow(skb, flow, key, p, &data);
        if (!p || verdict != TCX_NEXT)
                return verdict;
        return write_codes(skb, &data, &flow->cookies.rewritten, code_of(p->code)) ? TCX_DROP : TCX_NEXT;
}

#endif
