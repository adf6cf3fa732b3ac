/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Sockets get only what the switch has read (docs/decisions/0026). A switch reads a request once, in the
 * packet that it forwards; it forwards a later copy of the same bytes unread. So the node follows the mark,
 * in order: data that has to be read comes in a packet that says so and continues at the mark, or is refused.
 */
#ifndef NODE_INTAKE_H
#define NODE_INTAKE_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "follow.h"
#include "framing.h"
#include "handoff.h"
#include "load.h"
#include "maps.h"
#include "node_maps.h"
#include "outlive.h"
#include "packet.h"
#include "received.h"
#include "sequence.h"
#include "socket.h"

/* If the socket takes nothing of what it was handed for so long, it has dropped that, in microseconds. */
#define NOT_TAKEN_US 2000000

enum intake {
        INTAKE_TAKE,
        INTAKE_DROP,      /* the socket is about to get this data from an earlier packet */
        INTAKE_UNREAD,    /* the switch has to read on from the mark */
        INTAKE_NOT_TAKEN, /* the socket has not taken data that nobody else has */
};

/*
 * Framing at the mark. A request for another protocol depends on the server's answer: 101, or its final
 * response, which all other requests have by then. If responses cannot be followed, a last status of 101
 * decides.
 */
static __always_inline __be16 at_mark(const struct sb_owned *flow)
{
        __u16 framing = bpf_ntohs(flow->mark_framing);
        int lost = flow->framing.state == SB_FRAMING_LOST;

        if (!(framing & SB_MARK_UPGRADING) || (!lost && flow->responses != flow->requests))
                return flow->mark_framing;
        framing &= ~SB_MARK_UPGRADING;
        return bpf_htons(lost && flow->framing.status == 101 ? framing | SB_MARK_TUNNEL : framing);
}

/* Which of the last 32 requests were HEAD, as in sb_flow_state.heads. */
static __always_inline __u32 latest_heads(struct sb_owned *flow)
{
        __u32 heads = 0;

        for (int i = 0; i < 32; i++)
                heads |= (__u32)is_head(flow, flow->requests - i) << i;
        return heads;
}

static __always_inline void describe(struct sb_flow_state *said, struct sb_owned *flow)
{
        said->origin = bpf_htonl(flow->origin);
        said->next = bpf_htonl(flow->next);
        said->left = flow->mark_left;
        said->heads = bpf_htonl(latest_heads(flow));
        said->requests = bpf_htons(flow->requests);
        said->framing = at_mark(flow);
        said->mss = bpf_htons(flow->mss);
        said->options = flow->options;
        said->wscale = flow->wscale;
        said->session = flow->cookies.session;
        said->generation = bpf_htonl(flow->generation);
}

/* Answers with the contents of a flow entry. */
static __noinline int answer_mark(struct handoff *h, struct sb_owned *flow, enum sb_op op)
{
        set_answer(h, op, SB_REASON_NONE);
        describe(&h->option.payload.flow, flow);
        return ANSWER;
}

static __always_inline int refuse_unread(struct handoff *h, struct sb_owned *flow)
{
        count(SB_NODE_UNREAD);
        return answer_mark(h, flow, SB_OP_UNREAD);
}

/* Answers as the node of this machine that owns the flow, which need not be the one that was asked. */
static __always_inline int answer_as_owner(struct handoff *h, struct sb_owned *flow)
{
        h->node = flow->node;
        return answer_mark(h, flow, SB_OP_OWNED);
}

/* Tells a switch that knows an earlier adoption what is true. */
static __always_inline int answer_outdated(struct handoff *h, struct sb_owned *flow)
{
        count(SB_NODE_OUTDATED);
        return answer_as_owner(h, flow);
}

/* Sets the mark and what has been read before it, as the packet says. `end` is the end of its data. */
static __always_inline void set_mark(struct sb_owned *flow, const struct handoff *h, __u32 end)
{
        int begins = h->option.op == SB_OP_ADOPT || h->option.flags & SB_HANDOVER_REQUEST;

        flow->next = bpf_ntohl(h->option.payload.flow.next);
        flow->mark_framing = h->option.payload.flow.framing;
        flow->mark_left = h->option.payload.flow.left;
        flow->read = begins ? h->seq + bpf_ntohs(h->option.payload.handover.boundary) : end;
        flow->read_us = now_us();
}

/* Whether the mark may move to `to` unread: all data up to there is body. */
static __always_inline int passes_to(const struct sb_owned *flow, __u32 to)
{
        return bpf_ntohs(flow->mark_framing) & SB_FRAMING_SKIP && is_before(flow->next, to) &&
               to - flow->next <= bpf_ntohl(flow->mark_left);
}

/* Follows the switch's mark over data that needs no reading. */
static __always_inline void pass_on_mark(struct sb_owned *flow, const struct handoff *h)
{
        __u32 next = bpf_ntohl(h->option.payload.flow.next);

        if (!passes_to(flow, next) || bpf_ntohs(h->option.payload.flow.requests) != flow->requests)
                return;
        flow->next = next;
        flow->mark_framing = h->option.payload.flow.framing;
        flow->mark_left = h->option.payload.flow.left;
}

static __always_inline int is_same_mark(const struct sb_owned *flow, const struct handoff *h)
{
        return bpf_ntohl(h->option.payload.flow.next) == flow->next &&
               h->option.payload.flow.framing == flow->mark_framing &&
               h->option.payload.flow.left == flow->mark_left;
}

/*
 * Whether the packet brings a request that its switch has read in another way than the node was given it. The switch may
 * have taken the flow over, and hold what the client has sent in the place of the head that the server is getting.
 */
static __always_inline int is_read_otherwise(const struct sb_owned *flow, const struct handoff *h)
{
        return h->option.flags & SB_HANDOVER_REQUEST && is_same_mark(flow, h) &&
               h->seq + bpf_ntohs(h->option.payload.handover.boundary) != flow->read;
}

/*
 * Whether the socket may get the packet's data. Nothing may replace what has been read of a request; what
 * follows of its body may be anything. A request is not taken while data before it is missing: the packet
 * with that data could bring another version of the request, too.
 */
__noinline int take_in(struct sb_owned *flow, const struct handoff *h, const struct socket_facts *facts)
{
        __u32 end, first, from;
        __u8 flags;

        if (!flow || !h || !facts)
                return INTAKE_DROP;
        end = h->seq + h->payload;
        if (!h->payload || h->tcp_flags & SB_TCP_RST || facts->kind != SOCKET_LIVE ||
            at_mark(flow) & bpf_htons(SB_MARK_TUNNEL) || !is_before(facts->rcv_nxt, end))
                return INTAKE_TAKE;
        flags = h->option.op == SB_OP_DIRECT ? 0 : h->option.flags & (SB_HANDOVER_REQUEST | SB_HANDOVER_READ);
        if (flags & SB_HANDOVER_REQUEST)
                from = h->seq;
        else
                from = flags ? h->seq + bpf_ntohs(h->option.payload.handover.boundary) : end;
        first = later_of(h->seq, facts->rcv_nxt);
        flow->passed = later_of(flow->passed, facts->rcv_nxt);
        /* In a long body nothing more is read: after 2^31 bytes an old number would seem to be ahead. */
        flow->read = later_of(flow->read, facts->rcv_nxt);
        if (is_before(first, flow->read) && is_read_otherwise(flow, h))
                from = end;
        if (!flags && h->option.op != SB_OP_DIRECT)
                pass_on_mark(flow, h);
        if (is_before(first, from)) {
                if (is_before(first, flow->read))
                        return now_us() - flow->read_us < NOT_TAKEN_US ? INTAKE_DROP : INTAKE_NOT_TAKEN;
                if (is_before(flow->next, from) && !passes_to(flow, from))
                        return INTAKE_UNREAD;
        }
        if (is_before(flow->passed, h->seq))
                return flags ? INTAKE_UNREAD : INTAKE_TAKE;
        if (flags && !is_same_mark(flow, h)) {
                if (from != flow->next && !passes_to(flow, from))
                        return INTAKE_UNREAD;
                note_requests(flow, h);
                if (flags & SB_HANDOVER_REQUEST) {
                        note_beginning(flow, h, facts->write_seq);
                        sb_copy_v6(flow->switch_address, h->sender);
                }
                set_mark(flow, h, end);
        }
        flow->passed = later_of(flow->passed, end);
        return INTAKE_TAKE;
}

#endif
