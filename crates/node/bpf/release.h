/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Giving a flow up without a word to the client, and telling a switch that we own one. */
#ifndef NODE_RELEASE_H
#define NODE_RELEASE_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "again.h"
#include "counters.h"
#include "decap.h"
#include "framing.h"
#include "handoff.h"
#include "intake.h"
#include "kernel.h"
#include "load.h"
#include "maps.h"
#include "node_maps.h"
#include "outlive.h"
#include "ownership.h"
#include "packet.h"
#include "received.h"
#include "socket.h"
#include "tcx.h"

static __always_inline int answer_release(struct handoff *h, enum sb_op op, __u8 reason)
{
        h->option.op = op;
        h->option.reason = reason;
        if (op == SB_OP_BUSY)
                count(SB_NODE_BUSY);
        return ANSWER;
}

/* All that the server has written has been sent and acknowledged. */
static __always_inline int is_quiet(const struct socket_facts *facts, const struct handoff *h)
{
        int acknowledged = facts->snd_una == facts->snd_nxt || h->ack == facts->snd_nxt;

        return acknowledged && facts->write_seq == facts->snd_nxt;
}

/*
 * Everything that the server was asked for has been read and answered. Where its responses cannot be followed, one
 * that has begun is taken for complete.
 */
static __always_inline int is_done(const struct socket_facts *facts, const struct handoff *h,
                                   const struct sb_owned *flow)
{
        if (facts->rcv_nxt != h->seq || facts->copied_seq != facts->rcv_nxt)
                return 0;
        if (flow->framing.state == SB_FRAMING_LOST)
                return flow->answered != facts->write_seq;
        return flow->framing.state == SB_FRAMING_NONE && flow->responses == flow->requests &&
               flow->followed == facts->snd_nxt;
}

/* Whether only the last request, which is not complete, is without a response. */
static __always_inline int is_last(const struct sb_owned *flow)
{
        return flow->framing.state == SB_FRAMING_LOST || (__u16)(flow->requests - flow->responses) <= 1;
}

/* Nothing of the last request's response has been sent, but perhaps interim ones. */
static __always_inline int is_unanswered(const struct sb_owned *flow)
{
        return flow->requests != flow->responses &&
               (flow->framing.state == SB_FRAMING_NONE || flow->framing.state == SB_FRAMING_HEAD);
}

/* Nobody would miss anything. */
static __always_inline int can_go(const struct socket_facts *facts, const struct handoff *h,
                                  const struct sb_owned *flow, int abort)
{
        if (facts->kind != SOCKET_LIVE || !is_quiet(facts, h))
                return 0;
        if (abort)
                return is_last(flow);
        return facts->state == TCP_ESTABLISHED && is_done(facts, h, flow);
}

/*
 * The flow has a socket here, but its entry has given way to others, so nobody can tell whether its responses are complete.
 * The switch has to end the connection.
 */
static __noinline int give_up_forgotten(struct __sk_buff *skb, struct handoff *h,
                                        const struct socket_facts *facts)
{
        struct sb_owned *flow = fresh_entry();

        if (!flow)
                return drop(SB_NODE_DROP_MALFORMED);
        flow->origin = bpf_ntohl(h->option.origin);
        flow->next = h->seq;
        flow->answered = facts->write_seq;
        flow->tsval = clock_of(facts);
        flow->state = SB_OWN_RELEASED;
        flow->reason = SB_REASON_RESPONDING;
        if (bpf_map_update_elem(&owned, &h->flow, flow, BPF_ANY) || come_again(skb, 0))
                return drop(SB_NODE_DROP_MALFORMED);
        count(SB_NODE_FORGOTTEN);
        return reset_locally(skb, h, facts->rcv_nxt);
}

__noinline int on_release(struct __sk_buff *skb, struct handoff *h)
{
        struct socket_facts facts = {};
        struct sb_owned *flow;
        __u8 before;
        int abort;

        if (!h)
                return TCX_DROP;
        flow = bpf_map_lookup_elem(&owned, &h->flow);
        abort = h->option.flags & SB_FLAG_ABORT;
        if (is_owned(flow, h) && flow->state == SB_OWN_RELEASED) {
                /* The request may have been sent before the response was complete: its own numbers are too old. */
                h->ack = flow->answered;
                h->tsecr = flow->tsval;
                /* The client waits for a response to a request before this one, which nobody can give any more. */
                if (is_orphan(flow) && flow->again && h->seq != flow->asked)
                        return answer_release(h, SB_OP_RELEASED, SB_REASON_RESPONDING);
                return answer_release(h, SB_OP_RELEASED, flow->reason);
        }
        read_socket(skb, h, &facts);
        if (facts.kind == SOCKET_NONE || facts.kind == SOCKET_LISTENER)
                return answer_release(h, SB_OP_RELEASED, SB_REASON_NONE);
        if (!flow && facts.state == TCP_ESTABLISHED)
                return give_up_forgotten(skb, h, &facts);
        if (!is_owned(flow, h) || (facts.state != TCP_ESTABLISHED && !abort))
                return answer_release(h, SB_OP_BUSY, SB_REASON_CLOSING);
        pass_on_mark(flow, h);
        if (is_before(h->seq, facts.rcv_nxt) || is_before(bpf_ntohl(h->option.next), flow->next))
                return answer_release(h, SB_OP_BUSY, SB_REASON_DUPLICATE);
        /* Of a request before this one it has heard nothing. */
        if (bpf_ntohl(h->option.next) != flow->next)
                return refuse_unread(h, flow);
        /* A flow that stays is never mute, not even for a moment: its responses would be followed with a gap. */
        if (!can_go(&facts, h, flow, abort))
                return answer_release(h, SB_OP_BUSY, SB_REASON_NONE);
        /* Mute, then look again: what the server writes from here on does not leave. */
        before = flow->state;
        flow->state = SB_OWN_RELEASED;
        read_socket(skb, h, &facts);
        if (!can_go(&facts, h, flow, abort)) {
                flow->state = before;
                return answer_release(h, SB_OP_BUSY, SB_REASON_NONE);
        }
        flow->next = h->seq;
        flow->answered = facts.write_seq;
        flow->reason = abort && !is_unanswered(flow) ? SB_REASON_RESPONDING : SB_REASON_NONE;
        flow->tsval = clock_of(&facts);
        load_end(flow, before);
        count(abort ? SB_NODE_ABORTED : SB_NODE_RELEASED);
        if (come_again(skb, 0))
                return drop(SB_NODE_DROP_MALFORMED);
        return reset_locally(skb, h, facts.rcv_nxt);
}

/* Where the flow has been released, its next request begins there. */
static __always_inline int answer_unowned(struct handoff *h, const struct sb_owned *flow,
                                          enum sb_reason reason)
{
        h->option.op = SB_OP_UNOWNED;
        h->option.reason = reason;
        h->option.next = is_owned(flow, h) ? bpf_htonl(flow->next) : h->option.origin;
        return ANSWER;
}

/*
 * What is left of a connection that this node closed answers for itself: a FIN that is sent again gets its ACK, a
 * request that comes too late its RST. A question with an origin is about a first request, and was_served() has not found it to
 * be this connection's.
 */
static __always_inline int answer_from_time_wait(struct __sk_buff *skb, struct handoff *h)
{
        struct socket_facts facts = {};

        if (h->option.origin)
                return answer_unowned(h, NULL, SB_REASON_NONE);
        read_socket(skb, h, &facts);
        return facts.kind == SOCKET_TIME_WAIT ? deliver(skb, h) : answer_unowned(h, NULL, SB_REASON_NONE);
}

/* The request that the packet begins with has been answered on a connection that is over, or has moved on since. */
static __always_inline int was_served(const struct sb_owned *flow, const struct handoff *h)
{
        if (!is_owned(flow, h))
                return is_over(h);
        return flow->state == SB_OWN_RELEASED && flow->reason != SB_REASON_PASSED_ON && is_past(flow, h);
}

__noinline int on_probe(struct __sk_buff *skb, struct handoff *h)
{
        struct sb_owned *flow;

        if (!h)
                return TCX_DROP;
        flow = bpf_map_lookup_elem(&owned, &h->flow);
        if (was_served(flow, h))
                return answer_unowned(h, flow, SB_REASON_SERVED);
        if (!flow)
                return answer_from_time_wait(skb, h);
        if (flow->state == SB_OWN_RELEASED)
                return answer_unowned(h, flow, SB_REASON_NONE);
        /* It will be the flow's owner, or will not: who asks again hears. */
        if (flow->state != SB_OWN_OPEN)
                return TCX_DROP;
        sb_copy_v6(flow->switch_address, h->sender);
        count(SB_NODE_OWNED);
        return answer_mark(h, flow, SB_OP_OWNED);
}

#endif
