/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Giving a flow up without a word to the client, and telling a switch that we own one. */
#ifndef NODE_RELEASE_H
#define NODE_RELEASE_H

static __always_inline int answer_release(struct handoff *h, enum sb_op op, enum sb_reason reason)
{
        h->option.op = op;
        h->option.reason = reason;
        if (op == SB_OP_BUSY)
                count(SB_NODE_BUSY);
        return ANSWER;
}

/* Everything that the server was asked for has been read, answered, sent and acknowledged. */
static __always_inline int is_idle(const struct socket_facts *facts, const struct handoff *h,
                                   const struct sb_owned *flow)
{
        int acknowledged = facts->snd_una == facts->snd_nxt || h->ack == facts->snd_nxt;

        return acknowledged && facts->write_seq == facts->snd_nxt && facts->rcv_nxt == h->seq &&
               facts->copied_seq == facts->rcv_nxt && flow->answered != facts->write_seq;
}

static __noinline int on_release(struct __sk_buff *skb, struct handoff *h)
{
        struct sb_owned *flow = bpf_map_lookup_elem(&owned, &h->flow);
        struct socket_facts facts = {};
        __u8 before;

        if (is_owned(flow, h) && flow->state == SB_OWN_RELEASED) {
                /* The request may have been sent before the response was complete: its own numbers are too old. */
                h->ack = flow->answered;
                h->tsecr = flow->tsval;
                return answer_release(h, SB_OP_RELEASED, SB_REASON_NONE);
        }
        read_socket(skb, h, &facts);
        if (facts.kind == SOCKET_NONE || facts.kind == SOCKET_LISTENER)
                return answer_release(h, SB_OP_RELEASED, SB_REASON_NONE);
        if (!is_owned(flow, h) || facts.state != TCP_ESTABLISHED)
                return answer_release(h, SB_OP_BUSY, SB_REASON_CLOSING);
        if ((__s32)(facts.rcv_nxt - h->seq) > 0)
                return answer_release(h, SB_OP_BUSY, SB_REASON_DUPLICATE);
        /* Mute first, then look: what the server writes from here on does not leave. */
        before = flow->state;
        flow->state = SB_OWN_RELEASED;
        read_socket(skb, h, &facts);
        if (facts.kind != SOCKET_LIVE || facts.state != TCP_ESTABLISHED || !is_idle(&facts, h, flow)) {
                flow->state = before;
                return answer_release(h, SB_OP_BUSY, SB_REASON_NONE);
        }
        flow->next = h->seq;
        flow->answered = facts.write_seq;
        /* tcp_time_stamp_ms() and the socket's offset, include/net/tcp.h. */
        flow->tsval = (__u32)(bpf_ktime_get_ns() / 1000000) + facts.tsoffset;
        count(SB_NODE_RELEASED);
        if (come_again(skb, 0))
                return drop(SB_NODE_DROP_MALFORMED);
        return reset_locally(skb, h, facts.rcv_nxt);
}

/*
 * What is left of a connection that this node closed answers for itself: a FIN that is sent again gets its ACK, a
 * request that comes too late its RST.
 */
static __always_inline int answer_from_time_wait(struct __sk_buff *skb, struct handoff *h)
{
        struct socket_facts facts = {};

        read_socket(skb, h, &facts);
        return facts.kind == SOCKET_TIME_WAIT ? deliver(skb, h) : TCX_DROP;
}

static __noinline int on_probe(struct __sk_buff *skb, struct handoff *h)
{
        struct sb_owned *flow = bpf_map_lookup_elem(&owned, &h->flow);

        if (!flow)
                return answer_from_time_wait(skb, h);
        if (flow->state != SB_OWN_OPEN)
                return TCX_DROP;
        sb_copy_v6(flow->switch_address, h->sender);
        h->option.op = SB_OP_OWNED;
        h->option.flags = flow->options & 0x0f;
        h->option.wscale = flow->wscale;
        h->option.origin = bpf_htonl(flow->origin);
        h->option.mss = bpf_htons(flow->mss);
        h->option.next = bpf_htonl(flow->next);
        count(SB_NODE_OWNED);
        return ANSWER_WHOLE;
}

#endif
