/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Releasing a flow without a packet to the client, and telling switches which flows the node owns. */
#ifndef NODE_RELEASE_H
#define NODE_RELEASE_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "again.h"
#include "counters.h"
#include "decap.h"
#include "deliver.h"
#include "facts.h"
#include "framing.h"
#include "generation.h"
#include "handoff.h"
#include "insure.h"
#include "intake.h"
#include "kept.h"
#include "kernel.h"
#include "keys.h"
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
        set_answer(h, op, reason);
        if (op == SB_OP_BUSY)
                count(SB_NODE_BUSY);
        return ANSWER;
}

/* Whether another node can go on from where the flow was released. */
static __always_inline int can_go_on(const struct sb_owned *flow)
{
        return flow->reason == SB_REASON_NONE || flow->reason == SB_REASON_NO_SOCKET;
}

/*
 * Answers that the flow has been released: for the adoption that RELEASE announces if the node was the owner,
 * else with the state of the flow, of which the switch may know less.
 */
static __always_inline int answer_released(struct handoff *h, struct sb_owned *flow, __u8 reason)
{
        __u32 next = bpf_ntohl(h->option.payload.question.next_generation);

        if (is_orphan(flow) && generation_of(h) == flow->generation)
                flow->generation = next;
        if (flow->generation == next) {
                h->option.payload.flow.options = flow->options;
                answer_release(h, SB_OP_RELEASED, reason);
                h->option.payload.flow.generation = bpf_htonl(next);
                return ANSWER;
        }
        if (can_go_on(flow))
                describe(&h->option.payload.flow, flow);
        return answer_release(h, SB_OP_RELEASED, reason);
}

/* Whether everything that the server has written is sent and acknowledged. */
static __always_inline int is_quiet(const struct socket_facts *facts, const struct handoff *h)
{
        int acknowledged = facts->snd_una == facts->snd_nxt || h->ack == facts->snd_nxt;

        return acknowledged && facts->write_seq == facts->snd_nxt;
}

/*
 * Whether the server has read all requests and answered them. If responses cannot be followed, one that has
 * begun counts as complete.
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

/* Whether no other request than the last one, which is incomplete, is open. */
static __always_inline int is_last(const struct sb_owned *flow)
{
        return flow->framing.state == SB_FRAMING_LOST || (__u16)(flow->requests - flow->responses) <= 1;
}

/* Whether no byte of the last response has been sent, except interim responses. */
static __always_inline int is_unanswered(const struct sb_owned *flow)
{
        return flow->requests != flow->responses &&
               (flow->framing.state == SB_FRAMING_NONE || flow->framing.state == SB_FRAMING_HEAD);
}

/* Whether a release loses nothing. */
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
 * Releases a flow that has a socket here but was evicted from `owned`. Nobody knows whether its responses are
 * complete, so the switch has to end the connection.
 */
static __noinline int give_up_forgotten(struct __sk_buff *skb, struct handoff *h,
                                        const struct socket_facts *facts)
{
        struct sb_owned *flow = fresh_entry();

        if (!flow)
                return drop(SB_NODE_DROP_MALFORMED);
        flow->origin = bpf_ntohl(h->option.payload.flow.origin);
        flow->next = h->seq;
        flow->answered = facts->write_seq;
        flow->tsval = clock_of(facts);
        flow->state = SB_OWN_RELEASED;
        flow->reason = SB_REASON_RESPONDING;
        flow->node = h->node;
        flow->generation = bpf_ntohl(h->option.payload.question.next_generation);
        if (sb_flow_update(&owned, &h->flow, flow) || come_again(skb, 0))
                return drop(SB_NODE_DROP_MALFORMED);
        count(SB_NODE_FORGOTTEN);
        return reset_locally(skb, h, NULL, facts->rcv_nxt);
}

__noinline int on_release(struct __sk_buff *skb, struct handoff *h)
{
        struct socket_facts facts = {};
        struct sb_owned *flow;
        __u8 before;
        int abort;

        if (!h)
                return TCX_DROP;
        flow = sb_flow_lookup(&owned, &h->flow);
        abort = h->option.flags & SB_RELEASE_ABORT;
        if (is_owned(flow, h) && is_bequeathed(flow)) {
                if (is_outdated(flow, h))
                        return disown(h, flow, flow->generation, SB_REASON_NONE);
                return answer_release(h, SB_OP_BUSY, SB_REASON_BEQUEATHED);
        }
        if (is_owned(flow, h) && flow->state == SB_OWN_RELEASED) {
                /* The request may be older than the end of the response, and so are its numbers. */
                h->ack = flow->answered;
                h->tsecr = flow->tsval;
                /* The client waits for the response to an earlier request, which nobody can give. */
                if (is_orphan(flow) && flow->again && h->seq != flow->asked)
                        return answer_release(h, SB_OP_RELEASED, SB_REASON_RESPONDING);
                return answer_released(h, flow, flow->reason);
        }
        read_socket(skb, h, flow, &facts);
        if (facts.kind == SOCKET_NONE || facts.kind == SOCKET_LISTENER)
                return answer_release(h, SB_OP_RELEASED, SB_REASON_NONE);
        if (!flow && facts.state == TCP_ESTABLISHED)
                return give_up_forgotten(skb, h, &facts);
        if (!is_owned(flow, h) || (facts.state != TCP_ESTABLISHED && !abort))
                return answer_release(h, SB_OP_BUSY, SB_REASON_CLOSING);
        if (flow->state == SB_OWN_OPEN && is_outdated(flow, h))
                return answer_outdated(h, flow);
        pass_on_mark(flow, h);
        if (is_before(h->seq, facts.rcv_nxt) || is_before(bpf_ntohl(h->option.payload.flow.next), flow->next))
                return answer_release(h, SB_OP_BUSY, SB_REASON_DUPLICATE);
        /* The node has not seen a request before this one. */
        if (bpf_ntohl(h->option.payload.flow.next) != flow->next)
                return refuse_unread(h, flow);
        /* A flow that stays must not be mute for a moment: its responses would be followed with a gap. */
        if (!can_go(&facts, h, flow, abort))
                return answer_release(h, SB_OP_BUSY, SB_REASON_NONE);
        /* Mutes the flow, then checks again: what the server writes from now on does not leave. */
        before = flow->state;
        flow->state = SB_OWN_RELEASED;
        read_socket(skb, h, flow, &facts);
        if (!can_go(&facts, h, flow, abort)) {
                flow->state = before;
                return answer_release(h, SB_OP_BUSY, SB_REASON_NONE);
        }
        flow->next = h->seq;
        flow->answered = facts.write_seq;
        flow->reason = abort && !is_unanswered(flow) ? SB_REASON_RESPONDING : SB_REASON_NONE;
        flow->tsval = clock_of(&facts);
        flow->options = (flow->options & SB_SYN_ALL) | sb_round_trip_bits(facts.srtt_us);
        flow->generation = bpf_ntohl(h->option.payload.question.next_generation);
        load_end(flow, before);
        tell_fact(flow, &h->flow);
        if (has_been_reported(flow))
                report_insurable_end(flow, &h->flow, 0);
        count(abort ? SB_NODE_ABORTED : SB_NODE_RELEASED);
        if (come_again(skb, 0))
                return drop(SB_NODE_DROP_MALFORMED);
        return reset_locally(skb, h, flow, facts.rcv_nxt);
}

/* Answers PROBE, and may promise to accept no adoption before the one that it announces. */
static __always_inline int answer_unowned(struct handoff *h, const struct sb_owned *flow,
                                          enum sb_reason reason)
{
        const struct sb_owned *ours = is_owned(flow, h) ? flow : NULL;

        return disown(h, ours, promise(ours, h), reason);
}

/*
 * Answers a PROBE about a flow that has been released. If its client has all that was sent, and another node can
 * go on, the state is given: the switch that was to go on with the flow may have gone.
 */
static __always_inline int answer_from_released(struct handoff *h, struct sb_owned *flow)
{
        const struct sb_owned *ours = is_owned(flow, h) ? flow : NULL;
        __u32 newest = promise(ours, h);

        if ((h->option.payload.flow.origin && !ours) || !can_go_on(flow))
                return disown(h, ours, newest, SB_REASON_NONE);
        if (!newest || sb_is_newer(flow->generation, newest))
                newest = flow->generation;
        answer_mark(h, flow, SB_OP_UNOWNED);
        h->option.reason = SB_REASON_RELEASED;
        h->option.payload.flow.generation = bpf_htonl(newest);
        return ANSWER;
}

/*
 * A socket in TIME_WAIT answers for itself: a retransmitted FIN gets its ACK, a late request its RST. A PROBE
 * with an origin is about a first request, and was_served() has found that it is not of that connection.
 */
static __always_inline int answer_from_time_wait(struct __sk_buff *skb, struct handoff *h)
{
        struct socket_facts facts = {};

        if (h->option.payload.flow.origin)
                return answer_unowned(h, NULL, SB_REASON_NONE);
        read_socket(skb, h, NULL, &facts);
        return facts.kind == SOCKET_TIME_WAIT ? deliver(skb, h, NULL)
                                              : answer_unowned(h, NULL, SB_REASON_NONE);
}

/* Whether the packet's request has been answered, on a connection that is over or has moved on. */
static __always_inline int was_served(const struct sb_owned *flow, const struct handoff *h)
{
        if (!is_owned(flow, h))
                return is_over(h);
        return flow->state == SB_OWN_RELEASED && flow->reason != SB_REASON_PASSED_ON && is_past(flow, h);
}

static __noinline int say_owner(struct __sk_buff *skb, struct handoff *h)
{
        struct sb_owned *flow = sb_flow_lookup(&owned, &h->flow);

        if (was_served(flow, h))
                return answer_unowned(h, flow, SB_REASON_SERVED);
        if (!flow)
                return answer_from_time_wait(skb, h);
        if (flow->state == SB_OWN_RELEASED)
                return answer_from_released(h, flow);
        /* The adoption is under way: the switch has to ask again. */
        if (flow->state != SB_OWN_OPEN)
                return TCX_DROP;
        sb_copy_v6(flow->switch_address, h->sender);
        note_switch(flow, h);
        count(SB_NODE_OWNED);
        return answer_as_owner(h, flow);
}

__noinline int on_probe(struct __sk_buff *skb, struct handoff *h)
{
        int handled, keeps;

        if (!h)
                return TCX_DROP;
        keeps = kept_of(h) != NULL;
        handled = say_owner(skb, h);
        if (handled == ANSWER && keeps)
                h->option.flags |= SB_PROBE_KEPT;
        return handled;
}

#endif
