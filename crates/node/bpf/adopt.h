/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Adoption. An ADOPT may come in three times:
 *
 *   1. If the kernel still has a socket of the 4-tuple (the flow was here before, or the client reuses the
 *      port of a connection in TIME_WAIT), a clone is queued behind the packet, and the packet becomes the
 *      RST that removes the socket.
 *   2. The packet, or that clone, goes to the listener, with a clone queued behind it.
 *   3. That clone finds the outcome, and becomes the answer: ADOPTED, or REFUSED with the packet.
 *
 * The kernel takes packets that arrive together through TC as a list, so all of them come here before the
 * first one reaches its socket. Copies of the ADOPT and the rest of its request are queued behind it as
 * clones, too. So is an ADOPT that meets the adoption of an older connection of the same ports.
 */
#ifndef NODE_ADOPT_H
#define NODE_ADOPT_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "again.h"
#include "answer.h"
#include "client.h"
#include "counters.h"
#include "decap.h"
#include "deliver.h"
#include "generation.h"
#include "handoff.h"
#include "insert.h"
#include "insure.h"
#include "kernel.h"
#include "keys.h"
#include "maps.h"
#include "node_maps.h"
#include "ownership.h"
#include "packet.h"
#include "queue.h"
#include "received.h"
#include "replay.h"
#include "resume.h"
#include "second.h"
#include "session.h"
#include "socket.h"
#include "tcx.h"

/*
 * Hides from the kernel what the client echoes (tcp_ack_update_rtt()): the new socket's clock goes on from there, so
 * the round trip would seem to take no time, to which BBR adapts its window for ten seconds.
 */
static __always_inline void hide_echo(struct __sk_buff *skb, const struct handoff *h)
{
        const __u32 tcp = sizeof(struct ethhdr) + h->inner_len;
        struct tcp_with_timestamps header;

        if (!bpf_skb_load_bytes(skb, tcp, &header, sizeof(header)) &&
            header.kinds == SB_TCPOPT_TSTAMP_ALIGNED)
                write_tcp(skb, tcp, offsetof(struct tcp_with_timestamps, tsecr), header.tsecr, 0);
}

/* Gives the decapsulated packet to the listener, by bpf_sk_assign_tcp_reqsk() of Linux 6.9. */
static __noinline int assign(struct __sk_buff *skb, const struct handoff *h)
{
        __u8 settled = h->option.payload.flow.options;
        struct bpf_tcp_req_attrs attrs;
        struct bpf_sock *skc;
        struct sock *listener;
        int err = -1;

        /* The verifier of an older kernel must see neither the call nor its argument. */
        if (!bpf_ksym_exists(bpf_sk_assign_tcp_reqsk))
                return -1;
        attrs = (struct bpf_tcp_req_attrs){
            .rcv_tsval = h->tsval,
            /* The time at which the socket's clock begins. The packet's own TSecr is a round trip earlier. */
            .rcv_tsecr = h->tsecr + sb_round_trip_ms(settled),
            .mss = mss_towards(h),
            .snd_wscale = h->option.payload.flow.wscale >> 4,
            .rcv_wscale = h->option.payload.flow.wscale & 15,
            .wscale_ok = !!(settled & SB_SYN_WSCALE),
            .sack_ok = !!(settled & SB_SYN_SACK),
            .tstamp_ok = !!(settled & SB_SYN_TSTAMP),
            .ecn_ok = !!(settled & SB_SYN_ECN),
        };
        skc = is_resumption(h) ? resume_listener(skb, h) : lookup(skb, h);
        if (!skc)
                return -1;
        if (*(volatile __u32 *)&skc->state == TCP_LISTEN) {
                listener = (struct sock *)bpf_skc_to_tcp_sock(skc);
                if (listener)
                        err = bpf_sk_assign_tcp_reqsk(skb, listener, &attrs, sizeof(attrs));
        }
        bpf_sk_release(skc);
        return err;
}

static __always_inline void set_queue(struct handoff *h, __u16 len, __u16 limit)
{
        h->option.payload.outcome.queue.len = bpf_htons(len);
        h->option.payload.outcome.queue.limit = bpf_htons(limit);
}

static __always_inline int answer_adopted(struct handoff *h, const struct sb_owned *flow)
{
        set_answer(h, SB_OP_ADOPTED, SB_REASON_NONE);
        if (flow)
                set_queue(h, flow->queue_len, flow->queue_limit);
        return ANSWER;
}

/* Passes the flow on to its second candidate, or refuses it. */
static __always_inline int decline(struct __sk_buff *skb, struct handoff *h, enum sb_reason reason,
                                   enum sb_node_counter counter)
{
        int passed;

        if (h->second != SB_SECOND_TYPE || remember_passing(h)) {
                remember_declining(h);
                return refuse(h, reason, counter);
        }
        passed = pass_on(skb, h);
        return passed < 0 ? refuse(h, reason, counter) : passed;
}

/* Delivers the first data of a new socket, by way of the program that inserts a cookie. */
static __always_inline int deliver_first(struct __sk_buff *skb, struct handoff *h, struct sb_owned *flow)
{
        hook(skb, h, flow);
        if (come_again(skb, SKB_MARK_BEHIND) || decapsulate(skb, h) || number_for_server(skb, h))
                return drop(SB_NODE_DROP_MALFORMED);
        return hand_on(skb, h, flow);
}

/* Gives the request to the listener, which makes a socket for it. A clone finds out whether it has. */
static __always_inline int make_socket(struct __sk_buff *skb, struct handoff *h, struct sb_owned *flow)
{
        if (come_again(skb, SKB_MARK_CONFIRMED)) {
                forget(h, flow);
                return drop(SB_NODE_DROP_MALFORMED);
        }
        if (begin_session(skb, h, flow) < 0)
                return drop(SB_NODE_DROP_MALFORMED);
        if (is_resumption(h))
                begin_resumed(flow, h);
        if (decapsulate(skb, h) || number_for_server(skb, h) ||
            (flow->hooked == SB_HOOK_WANTED &&
             cut_to_handshake(skb, h, flow->masquerade.stage != SB_REPLAY_NONE)))
                return drop(SB_NODE_DROP_MALFORMED);
        if (h->option.payload.flow.options & SB_SYN_TSTAMP)
                read_timestamps(skb, h);
        flow->latest = h->tsval;
        /* If the kernel refuses, the clone finds no socket and answers REFUSED. */
        if (flow->masquerade.stage)
                return end_replay(skb, h, flow);
        if (h->option.payload.flow.options & SB_SYN_TSTAMP &&
            !sb_round_trip_ms(h->option.payload.flow.options))
                hide_echo(skb, h);
        return assign(skb, h) ? TCX_DROP : TCX_PASS;
}

/* take_place(): the listener gets the flow. */
#define PLACE_TAKEN -1

/*
 * Makes the entry of the flow, in the place that an earlier packet has reserved in the accept queue, or in a new one. A
 * flow for which there is none is declined.
 */
static __always_inline int take_place(struct __sk_buff *skb, struct handoff *h, struct sb_owned *flow,
                                      const struct socket_facts *listener)
{
        __u8 held = flow && flow->state == SB_OWN_ADOPTING ? flow->slot : 0;
        __u8 slot = held ? held : listener->slot;
        __u64 taken = listener->backlog;
        int handled;

        if (!held)
                taken += reserve(slot);
        if (!held && is_full(taken, listener->backlog_limit, h->option.payload.handover.queue_share)) {
                unreserve(slot);
                if (is_being_cured(flow))
                        forget(h, flow);
                handled = decline(skb, h, SB_REASON_QUEUE_FULL, SB_NODE_REFUSED_QUEUE_FULL);
                if (handled == ANSWER_WHOLE)
                        set_queue(h, saturated(taken), saturated(listener->backlog_limit));
                return handled;
        }
        own(h, flow, taken, listener->backlog_limit, slot);
        return PLACE_TAKEN;
}

enum adoption {
        /* The listener gets the flow, if its accept queue has room. */
        ADOPT_MAKE,
        /* The listener gets a SYN. */
        ADOPT_SYN,
        /* The listener gets the request, and makes a socket. */
        ADOPT_SOCKET,
        /* A clone comes in once more, because the server has not answered. */
        ADOPT_WAIT,
        /* A RST removes the socket of the 4-tuple, and a clone of the packet comes in behind it. */
        ADOPT_CURE,
        /* A clone comes in behind the adoption of another connection. */
        ADOPT_AFTER,
        /* A clone comes in behind the packet that adopts the flow. */
        ADOPT_BEHIND,
        /* The new socket gets its first data. */
        ADOPT_DELIVER,
        /* ADOPTED. */
        ADOPT_ANSWER,
        /* ADOPTED, although the connection is over: the switch must not look for another node. */
        ADOPT_OVER,
        /* REFUSED: the kernel has made no socket. */
        ADOPT_FAILED,
        /* Declined: passed on to the second candidate, or else refused. */
        ADOPT_PASS_ON,
        ADOPT_DRAINING,
        ADOPT_NO_LISTENER,
        /* OWNED: the flow has a newer adoption. */
        ADOPT_OWNED,
        /* REFUSED: the node has heard of a newer adoption. */
        ADOPT_BARRED,
        /* Dropped, and counted. */
        ADOPT_STALE,
        /* Dropped: the packet before this clone has been refused. */
        ADOPT_IGNORE,
};

/* What is known of an adoption before its socket is looked for. */
enum standing {
        STANDING_FREE,
        /* Its connection is over. */
        STANDING_OVER,
        /* The node has heard of a newer adoption. */
        STANDING_BARRED,
};

/* Whether the packet is a clone that finds the outcome of the adoption. */
static __always_inline int asks_outcome(__u32 skb_mark)
{
        return skb_mark == SKB_MARK_CONFIRMED || is_replay(skb_mark) || is_behind(skb_mark);
}

/*
 * How a replayed handshake goes on. A server behind an interface answers a moment later; if it does not while the clone has
 * turns, the next copy of the ADOPT goes on.
 */
static __always_inline enum adoption go_on(__u32 skb_mark, const struct sb_owned *flow)
{
        const int waits = is_away(flow) && has_turns(skb_mark);

        switch (flow->masquerade.stage) {
        case SB_REPLAY_SYN:
                if (is_away(flow))
                        return waits ? ADOPT_WAIT : ADOPT_IGNORE;
                return ADOPT_FAILED;
        case SB_REPLAY_ANSWERED:
                return ADOPT_SYN;
        case SB_REPLAY_AGAIN:
                return waits ? ADOPT_WAIT : ADOPT_SOCKET;
        case SB_REPLAY_READY:
                return ADOPT_SOCKET;
        default:
                return ADOPT_FAILED;
        }
}

/* What a copy of an ADOPT does whose handshake with a server behind an interface is under way. */
static __always_inline enum adoption go_on_late(const struct sb_owned *flow)
{
        switch (flow->masquerade.stage) {
        case SB_REPLAY_SYN:
                return ADOPT_SYN;
        case SB_REPLAY_UNFIT:
                return ADOPT_FAILED;
        default:
                return ADOPT_SOCKET;
        }
}

/* By how many bytes the packet's mark is behind the entry's. */
static __always_inline __s32 later_by(const struct sb_owned *flow, const struct handoff *h)
{
        return bpf_ntohl(h->option.payload.flow.next) - flow->next;
}

/* Whether the node drains. Less than zero if this machine does not know it. */
static __noinline int is_draining(const struct handoff *h)
{
        __u32 number = h->node;
        struct sb_node_here *node = bpf_map_lookup_elem(&nodes_here, &number);

        return node ? node->draining != 0 : -1;
}

/*
 * Decides about an ADOPT. The first row that applies counts. The entry is none, that of another connection of
 * the 4-tuple, or that of the packet's connection (ours), in a state of enum sb_ownership. A copy is a packet
 * of our connection for the entry's node with the entry's `next`, unless the flow has been released. Of two nodes
 * of this machine the one with the newest adoption gets the flow: the other one's socket goes.
 *
 *   mark            entry                   packet               socket     action
 *   REPLAY          ours, replaying         any                  -          go_on()
 *   REPLAY          any                     any                  -          IGNORE
 *   CONFIRMED       ours, of another node   any                  -          IGNORE
 *   BEHIND FARTHER
 *   CONFIRMED       ours, adopting          any                  -          FAILED
 *   CONFIRMED       ours, waits for data    any                  -          DELIVER
 *   CONFIRMED       any                     any                  -          ANSWER
 *   BEHIND FARTHER  none, another           any                  -          IGNORE
 *   BEHIND          ours, replaying         any                  -          BEHIND
 *   BEHIND FARTHER  ours, adopting          any                  -          FAILED
 *   BEHIND FARTHER  ours                    any                  -          ANSWER
 *   0 AFTER CURED   none, another           of a connection      any        OVER
 *                                           that is over
 *   0               another, adopting       any                  any        AFTER
 *   0 AFTER CURED   ours, open              outdated             any        OWNED
 *   0 AFTER CURED   ours, adopting          outdated             any        STALE
 *   0 AFTER         none, released, but     barred               any        BARRED
 *                   not passed on with
 *                   this `next`
 *   0 AFTER CURED   ours, passed on         same `next`, with    any        PASS_ON
 *                                           a second option
 *   0 AFTER CURED   ours, released, but     sent before the      any        STALE
 *                   not passed on with      release
 *                   this `next`
 *   0 AFTER CURED   ours, adopting, of the  earlier request      any        STALE
 *                   same node
 *   0 AFTER         ours, replaying with    copy                 any        go_on_late()
 *                   a server away
 *   0 AFTER         ours, adopting          copy                 any        BEHIND
 *   0 AFTER         none, another,          any; the node is     any        DRAINING
 *                   released, of another    draining
 *                   node
 *   0 AFTER CURED   any                     any                  none       NO_LISTENER
 *   0 AFTER CURED   any                     any                  listener   MAKE
 *   0 AFTER         ours, waits for data    copy                 live       DELIVER
 *   0 AFTER         ours, open              copy                 live       ANSWER
 *   0 AFTER CURED   ours, open, of the      data that the        live       ANSWER
 *                   same node               socket has
 *   0 AFTER CURED   any                     any                  request    STALE
 *   CURED           any                     any                  any        STALE
 *   0 AFTER         any                     any                  any        CURE
 *
 * src/programs/tests/adopt.rs tests all rows but that of a request socket.
 */
static __noinline enum adoption decide(__u32 skb_mark, const struct sb_owned *flow, const struct handoff *h,
                                       const struct socket_facts *socket, enum standing standing)
{
        const int ours = is_owned(flow, h), same = ours && !is_for_another(flow, h);
        int copy;

        if (is_replay(skb_mark))
                return same && is_replaying(flow) ? go_on(skb_mark, flow) : ADOPT_IGNORE;
        if (asks_outcome(skb_mark)) {
                if (ours && !same)
                        return ADOPT_IGNORE;
                if (is_behind(skb_mark) && !ours)
                        return ADOPT_IGNORE;
                if (is_behind(skb_mark) && has_turns(skb_mark) && ours && is_replaying(flow))
                        return ADOPT_BEHIND;
                if (ours && flow->state == SB_OWN_ADOPTING)
                        return ADOPT_FAILED;
                if (skb_mark == SKB_MARK_CONFIRMED && ours && flow->hooked == SB_HOOK_WANTED)
                        return ADOPT_DELIVER;
                return ADOPT_ANSWER;
        }
        if (standing == STANDING_OVER)
                return ADOPT_OVER;
        if (flow && !ours && flow->state == SB_OWN_ADOPTING && skb_mark == 0)
                return ADOPT_AFTER;
        if (ours && flow->state != SB_OWN_RELEASED && is_outdated(flow, h))
                return flow->state == SB_OWN_OPEN ? ADOPT_OWNED : ADOPT_STALE;
        if (standing == STANDING_BARRED)
                return ADOPT_BARRED;
        if (ours && was_passed_on(flow, h)) {
                if (h->second == SB_SECOND_TYPE)
                        return ADOPT_PASS_ON;
        } else if (ours && flow->state == SB_OWN_RELEASED && is_past(flow, h)) {
                return ADOPT_STALE;
        }
        if (same && flow->state == SB_OWN_ADOPTING && later_by(flow, h) < 0)
                return ADOPT_STALE;
        copy = same && later_by(flow, h) == 0 && flow->state != SB_OWN_RELEASED && skb_mark != SKB_MARK_CURED;
        if (copy && is_replaying(flow) && is_away(flow))
                return go_on_late(flow);
        if (copy && flow->state == SB_OWN_ADOPTING)
                return ADOPT_BEHIND;
        if (skb_mark != SKB_MARK_CURED && (!same || flow->state == SB_OWN_RELEASED) && !is_resumption(h) &&
            is_draining(h))
                return ADOPT_DRAINING;
        switch (socket->kind) {
        case SOCKET_NONE:
                return ADOPT_NO_LISTENER;
        case SOCKET_LISTENER:
                return ADOPT_MAKE;
        case SOCKET_LIVE:
                if (copy && flow->hooked == SB_HOOK_WANTED)
                        return ADOPT_DELIVER;
                /*
                 * While a server reads, the kernel may count the data late (rcv_nxt); that does not matter
                 * for a copy.
                 */
                if (copy ||
                    (same && flow->state == SB_OWN_OPEN && (__s32)(socket->rcv_nxt - server_seq(h)) > 0))
                        return ADOPT_ANSWER;
                break;
        case SOCKET_REQUEST:
                return ADOPT_STALE;
        case SOCKET_TIME_WAIT:
                break;
        }
        return skb_mark == SKB_MARK_CURED ? ADOPT_STALE : ADOPT_CURE;
}

/*
 * Removes the socket of the 4-tuple, so that the clone behind the packet finds the listener. The entry is
 * that of the new connection from now on: the end of the old socket does not end it, and packets that follow
 * wait for the new socket.
 */
static __always_inline int cure(struct __sk_buff *skb, struct handoff *h, struct sb_owned *flow,
                                __u32 rcv_nxt)
{
        own(h, flow, 0, 0, flow ? flow->slot : 0);
        flow = sb_flow_lookup(&owned, &h->flow);
        if (come_again(skb, SKB_MARK_CURED))
                return drop(SB_NODE_DROP_MALFORMED);
        count(SB_NODE_CURED);
        return reset_locally(skb, h, flow, rcv_nxt);
}

/*
 * Answers an ADOPT that resumes a response if that has been carried out, whatever has become of it, or if the response
 * cannot go on here. Else returns 0. Another switch may have been first, because the client's way has changed meanwhile.
 * Not inlined: its caller has no stack to spare.
 */
static __noinline int answer_resumption(const struct __sk_buff *skb, struct handoff *h)
{
        struct sb_owned *flow;

        if (!is_resumption(h) || asks_outcome(*(volatile __u32 *)&skb->mark))
                return 0;
        flow = sb_flow_lookup(&owned, &h->flow);
        if (is_owned(flow, h) && flow->state != SB_OWN_ADOPTING && flow->generation == generation_of(h))
                return answer_adopted(h, flow);
        if (is_owned(flow, h) && flow->state == SB_OWN_OPEN) {
                if (is_outdated(flow, h))
                        return answer_outdated(h, flow);
                /* A node that was dead may still have a response that was resumed before this one. */
                if (is_resumed(flow) && flow->next == h->seq) {
                        flow->generation = generation_of(h);
                        note_switch(flow, h);
                        return answer_adopted(h, flow);
                }
        }
        switch (is_resumable(h)) {
        case RESUMABLE:
                return 0;
        case RESUMABLE_OVER:
                note_served(h);
                return refuse(h, SB_REASON_SERVED, SB_NODE_REFUSED_NOT_INSURED);
        case RESUMABLE_OUTDATED:
                return refuse(h, SB_REASON_OUTDATED, SB_NODE_OUTDATED);
        default:
                return refuse(h, SB_REASON_NO_SOCKET, SB_NODE_REFUSED_NOT_INSURED);
        }
}

/* The adoption takes the flow from another node of this machine, which may have a place in an accept queue for it. */
static __noinline int supersede(struct sb_owned *flow, const struct handoff *h)
{
        if (flow && h && is_owned(flow, h) && is_for_another(flow, h))
                give_back(flow);
        return 0;
}

static __always_inline void on_new_socket(struct __sk_buff *skb, const struct handoff *h,
                                          const struct sb_owned *flow)
{
        count(SB_NODE_ADOPTED);
        if (flow && flow->masquerade.stage)
                count(SB_NODE_REPLAYED);
        keep_masquerade(skb, h, flow);
        if (is_resumption(h))
                count(SB_NODE_RESUMED);
        keep_request(skb, h);
}

__noinline int on_adopt(struct __sk_buff *skb, struct handoff *h)
{
        __u32 skb_mark = *(volatile __u32 *)&skb->mark;
        struct socket_facts socket = {};
        struct sb_owned *flow;
        enum adoption adoption;
        enum standing standing = STANDING_FREE;
        int handled, ours;

        if (!h)
                return TCX_DROP;
        if (is_draining(h) < 0)
                return refuse(h, SB_REASON_NO_LISTENER, SB_NODE_REFUSED_NO_NODE);
        if (is_resumption(h)) {
                handled = answer_resumption(skb, h);
                if (handled)
                        return handled;
        }
        flow = sb_flow_lookup(&owned, &h->flow);
        if (!asks_outcome(skb_mark)) {
                ours = is_owned(flow, h);
                if (!ours && !is_resumption(h) && is_over(h))
                        standing = STANDING_OVER;
                else if (skb_mark != SKB_MARK_CURED && (!ours || flow->state == SB_OWN_RELEASED) &&
                         !(ours && was_passed_on(flow, h)) && is_barred(ours ? flow : NULL, h))
                        standing = STANDING_BARRED;
                read_socket(skb, h, flow, &socket);
                /* The agent listens, whether the server does or not. */
                if (socket.kind == SOCKET_NONE && is_resumption(h)) {
                        socket.kind = SOCKET_LISTENER;
                        socket.slot = 1;
                }
        }
        if (is_replay(skb_mark) && is_owned(flow, h) && flow->masquerade.stage == SB_REPLAY_SYN &&
            !is_away(flow))
                read_request(skb, h, flow);
        adoption = decide(skb_mark, flow, h, &socket, standing);
        if (adoption == ADOPT_MAKE || adoption == ADOPT_CURE)
                supersede(flow, h);
        if (skb_mark == SKB_MARK_CONFIRMED && (adoption == ADOPT_DELIVER || adoption == ADOPT_ANSWER))
                on_new_socket(skb, h, flow);
        if (adoption == ADOPT_MAKE) {
                handled = take_place(skb, h, flow, &socket);
                if (handled != PLACE_TAKEN)
                        return handled;
                flow = sb_flow_lookup(&owned, &h->flow);
                if (flow)
                        find_server(flow, &h->flow, is_resumption(h));
                adoption = is_replayed(&socket) ? ADOPT_SYN : ADOPT_SOCKET;
        }
        switch (adoption) {
        case ADOPT_SYN:
                return flow ? send_syn(skb, h, flow) : drop(SB_NODE_DROP_MALFORMED);
        case ADOPT_SOCKET:
                return flow ? make_socket(skb, h, flow) : drop(SB_NODE_DROP_MALFORMED);
        case ADOPT_WAIT:
                return come_again(skb, skb_mark + 1) ? drop(SB_NODE_DROP_MALFORMED) : TCX_DROP;
        case ADOPT_CURE:
                return cure(skb, h, flow, socket.rcv_nxt);
        case ADOPT_AFTER:
                return come_again(skb, SKB_MARK_AFTER) ? drop(SB_NODE_DROP_MALFORMED) : TCX_DROP;
        case ADOPT_BEHIND:
                return come_behind(skb, skb_mark);
        case ADOPT_DELIVER:
                return flow ? deliver_first(skb, h, flow) : TCX_DROP;
        case ADOPT_ANSWER:
                return answer_adopted(h, flow);
        case ADOPT_OVER:
                count(SB_NODE_REPEATED);
                return answer_adopted(h, NULL);
        case ADOPT_FAILED:
                if (flow && is_replaying(flow))
                        return fail_replay(skb, h, flow);
                if (flow)
                        forget(h, flow);
                return refuse(h, SB_REASON_FAILED, SB_NODE_REFUSED_FAILED);
        case ADOPT_PASS_ON:
                return decline(skb, h, SB_REASON_QUEUE_FULL, SB_NODE_REFUSED_QUEUE_FULL);
        case ADOPT_DRAINING:
                return decline(skb, h, SB_REASON_DRAINING, SB_NODE_REFUSED_DRAINING);
        case ADOPT_NO_LISTENER:
                if (is_being_cured(flow))
                        forget(h, flow);
                return decline(skb, h, SB_REASON_NO_LISTENER, SB_NODE_REFUSED_NO_LISTENER);
        case ADOPT_OWNED:
                return flow ? answer_outdated(h, flow) : TCX_DROP;
        case ADOPT_BARRED:
                return refuse(h, SB_REASON_OUTDATED, SB_NODE_OUTDATED);
        case ADOPT_STALE:
                return drop(SB_NODE_DROP_STALE);
        case ADOPT_MAKE:
        case ADOPT_IGNORE:
                break;
        }
        return TCX_DROP;
}

#endif
