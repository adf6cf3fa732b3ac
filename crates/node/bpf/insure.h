/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What another node needs to go on with a response of this one (docs/decisions/0050). The heads of a request and of its
 * response are kept with the socket; when enough of the response has been sent, the agent gets them.
 */
#ifndef NODE_INSURE_H
#define NODE_INSURE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bytes.h"
#include "counters.h"
#include "framing.h"
#include "handoff.h"
#include "kernel.h"
#include "keys.h"
#include "load.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"
#include "received.h"
#include "socket.h"

/* Bytes of a response behind which it is insurable; 0: responses are not. */
static __always_inline __u64 resume_after(void)
{
        struct sb_node_settings *s;
        __u32 zero = 0;

        s = bpf_map_lookup_elem(&settings, &zero);
        return s ? s->resume_after : 0;
}

/* Whether long responses get fingerprints. */
static __always_inline int repeats(void)
{
        struct sb_node_settings *s;
        __u32 zero = 0;

        s = bpf_map_lookup_elem(&settings, &zero);
        return s && s->repeats;
}

/*
 * Keeps a packet's data, if it begins a request or goes on with the head of one. Of a head there is room for two packets,
 * each in a half of its own as far as the verifier knows; the response to a request with a longer one is not insured.
 */
static __noinline int keep_request(struct __sk_buff *skb, const struct handoff *h)
{
        const int begins = h->option.op == SB_OP_ADOPT || h->option.flags & SB_HANDOVER_REQUEST;
        __u32 start, at, len = h->payload;
        struct bpf_sock *skc;
        struct sb_heads *kept;

        if (!len || h->option.flags & SB_HANDOVER_RESUME || !resume_after())
                return 0;
        skc = (struct bpf_sock *)lookup(skb, h);
        if (!skc)
                return 0;
        kept = bpf_sk_storage_get(&heads, skc, NULL, BPF_SK_STORAGE_GET_F_CREATE);
        bpf_sk_release(skc);
        if (!kept)
                return 0;
        if (begins && kept->request_seq != server_seq(h)) {
                kept->request_seq = server_seq(h);
                kept->request_len = 0;
        }
        at = server_seq(h) - kept->request_seq;
        if (at != kept->request_len)
                return 0;
        start = sizeof(struct ethhdr) + h->outer_len + shim_len(h) + h->inner_len + h->tcp_len;
        asm volatile("" : "+r"(at));
        if (at > SB_INSURED_REQUEST / 2 ||
            sb_load_some(skb, start, kept->request + at, len, SB_INSURED_REQUEST / 2))
                return 0;
        kept->request_len = at + len;
        return 0;
}

/* The sender's kept heads. A fast server's response may be there before its request is. */
static __always_inline struct sb_heads *heads_of_sender(struct __sk_buff *skb, __u64 flags)
{
        struct bpf_sock *sk = skb->sk;

        if (!sk)
                return NULL;
        sk = bpf_sk_fullsock(sk);
        return sk ? bpf_sk_storage_get(&heads, sk, NULL, flags) : NULL;
}

/* sb_owned.insure for a response that is insurable from `bytes` on. */
static __always_inline __u32 from_kib(__u64 bytes)
{
        return bytes >> 10 < SB_INSURE_NEVER ? bytes >> 10 : SB_INSURE_NEVER;
}

/* Whether the agent sends the response under way on the flow. */
static __always_inline int is_resumed(const struct sb_owned *flow)
{
        return flow->insure & SB_INSURE_RESUMED;
}

/* The agent, which makes a response once more, has found its end. */
static __noinline int learn_end(struct sb_owned *flow, const struct sb_flow *key)
{
        struct sb_insured *response;

        if (!flow || !key)
                return 0;
        response = sb_flow_lookup(&insured, key);
        if (response && response->origin == flow->origin && response->bytes < SB_INSURED_UNKNOWN)
                flow->framing.left = response->bytes - flow->sent;
        return 0;
}

/* Whether the body's length is known. Of a chunked one it is not. */
static __always_inline int has_length(const struct sb_owned *flow)
{
        return flow->framing.state == (SB_FRAMING_BODY | SB_FRAMING_SKIP);
}

/*
 * The head of a response is over: keeps it, if the response is long, or its length is not known and can be made once more,
 * and all of its head is in this packet, at offset `start`.
 */
static __noinline int keep_response(struct __sk_buff *skb, struct sb_owned *flow, __u32 start)
{
        __u64 after = resume_after();
        struct sb_heads *kept;
        __u32 len;

        if (!flow)
                return 0;
        len = flow->head_bytes;
        flow->insure = SB_INSURE_NEVER;
        if (!after || len == 0 || len > SB_INSURED_RESPONSE || flow->framing.state == SB_FRAMING_LOST ||
            (has_length(flow) ? flow->framing.left < after : !repeats()))
                return 0;
        kept = heads_of_sender(skb, BPF_SK_STORAGE_GET_F_CREATE);
        if (!kept)
                return 0;
        if (sb_load_some(skb, start, kept->response, len, SB_INSURED_RESPONSE))
                return 0;
        kept->response_len = len;
        flow->insure = from_kib(after + len);
        return 0;
}

/*
 * Enough of the response has been sent: the agent gets what another node needs. Not before the client has acknowledged the
 * head, which nobody else could send.
 */
static __noinline int report_insurable(struct __sk_buff *skb, struct sb_owned *flow,
                                       const struct sb_flow *key)
{
        struct sb_insurable *report;
        struct sb_heads *kept;
        struct bpf_sock *sk;
        struct tcp_sock *tcp;
        __u32 unacknowledged;

        if (!flow || !key)
                return 0;
        kept = heads_of_sender(skb, 0);
        sk = skb->sk;
        tcp = sk ? (void *)bpf_skc_to_tcp_sock(sk) : NULL;
        if (!kept || !tcp || kept->request_seq != first_byte(flow)) {
                flow->insure |= SB_INSURE_NEVER;
                return 0;
        }
        unacknowledged = flow->followed - (tcp->snd_una + flow->masquerade.seq);
        if (flow->sent < (__u64)flow->head_bytes + unacknowledged)
                return 0;
        report = bpf_ringbuf_reserve(&insurable, sizeof(*report), 0);
        if (!report) {
                count(SB_NODE_INSURABLE_LOST);
                return 0;
        }
        report->flow = *key;
        report->seq = flow->followed - unacknowledged;
        report->sent = flow->sent - unacknowledged;
        report->owned = *flow;
        if (bpf_probe_read_kernel(&report->heads, sizeof(report->heads), kept)) {
                bpf_ringbuf_discard(report, 0);
                return 0;
        }
        bpf_ringbuf_submit(report, BPF_RB_NO_WAKEUP);
        flow->insure = SB_INSURE_REPORTED | (flow->insure & SB_INSURE_FINGERPRINTED) |
                       from_kib(flow->sent + ((__u64)SB_INSURE_AGAIN << 10));
        count(SB_NODE_INSURABLE);
        return 0;
}

/* Whether so much of the response has been sent that it is to be reported, or reported again. */
static __always_inline int is_insurable(const struct sb_owned *flow)
{
        __u32 from = flow->insure & SB_INSURE_NEVER;

        return from && from != SB_INSURE_NEVER && flow->sent >> 10 >= from;
}

/* A response that has been reported is over, or not insurable any more. */
static __noinline int report_insurable_end(struct sb_owned *flow, const struct sb_flow *key, int bequeathed)
{
        struct sb_insurable_end *report;

        if (!flow || !key)
                return 0;
        flow->insure = (flow->insure & SB_INSURE_RESUMED) | SB_INSURE_NEVER;
        report = bpf_ringbuf_reserve(&insurable, sizeof(*report), 0);
        if (!report) {
                count(SB_NODE_INSURABLE_LOST);
                return 0;
        }
        report->flow = *key;
        report->origin = flow->origin;
        report->bequeathed = bequeathed;
        bpf_ringbuf_submit(report, BPF_RB_NO_WAKEUP);
        return 0;
}

/* Whether other nodes may have been told of the response that began last. */
static __always_inline int has_been_reported(const struct sb_owned *flow)
{
        return flow->insure & SB_INSURE_REPORTED;
}

/* The client acknowledges everything before `ack`. A response of which it lacks the end can still be lost. */
static __always_inline void insured_until(struct sb_owned *flow, const struct sb_flow *key, __u32 ack)
{
        if (has_been_reported(flow) && flow->framing.state == SB_FRAMING_NONE &&
            (__s32)(ack - flow->followed) >= 0)
                report_insurable_end(flow, key, 0);
}

/* Whether a response that has been reported is under way, and `len` bytes more are not all of it. */
static __always_inline int is_reported(const struct sb_owned *flow, __u32 len)
{
        if (!has_been_reported(flow))
                return 0;
        if (has_length(flow))
                return flow->framing.left > len;
        return flow->framing.state != SB_FRAMING_NONE && flow->framing.state != SB_FRAMING_LOST;
}

/*
 * Whether another node can go on with the response under way, of which `len` bytes more are about to leave. Of one over TLS
 * the agent alone says that.
 */
static __noinline int is_insured(const struct sb_owned *flow, const struct sb_flow *key, __u32 len)
{
        struct sb_heirs *heirs;

        if (!flow || !key)
                return 0;
        heirs = sb_flow_lookup(&have_heirs, key);
        return heirs && heirs->origin == flow->origin && (heirs->over_tls || is_reported(flow, len));
}

/*
 * The server has gone in the middle of a response with which another node can go on. The kernel says nothing more on the
 * flow. `snd_una` is what the client has acknowledged.
 */
static __noinline int bequeath(struct sb_owned *flow, const struct sb_flow *key, __u32 snd_una)
{
        if (!flow || !key)
                return 0;
        load_end(flow, flow->state);
        flow->state = SB_OWN_RELEASED;
        flow->reason = SB_REASON_BEQUEATHED;
        flow->answered = snd_una;
        flow->tsval = 0;
        report_insurable_end(flow, key, 1);
        count(SB_NODE_BEQUEATHED);
        return 0;
}

static __always_inline int is_bequeathed(const struct sb_owned *flow)
{
        return flow->state == SB_OWN_RELEASED && flow->reason == SB_REASON_BEQUEATHED;
}

#endif
