/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Packets of flows that the node owns: FORWARD and CONFIRM. */
#ifndef NODE_FORWARD_H
#define NODE_FORWARD_H

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
#include "facts.h"
#include "framing.h"
#include "generation.h"
#include "handoff.h"
#include "insure.h"
#include "intake.h"
#include "kernel.h"
#include "keys.h"
#include "load.h"
#include "maps.h"
#include "node_maps.h"
#include "outlive.h"
#include "ownership.h"
#include "packet.h"
#include "received.h"
#include "replay.h"
#include "resume.h"
#include "session.h"
#include "socket.h"
#include "tcx.h"

/*
 * Creates the entry of a flow again that has a socket here but was evicted from `owned`. Its responses cannot
 * be followed.
 */
static __noinline int remember_again(struct __sk_buff *skb, const struct handoff *h)
{
        struct sb_masquerade *m;
        struct sb_owned *flow;

        if (own(h, NULL, 0, 0, 0))
                return -1;
        flow = sb_flow_lookup(&owned, &h->flow);
        if (!flow)
                return -1;
        load_lose(flow);
        flow->framing.state = SB_FRAMING_LOST;
        flow->cookies.request.state = SB_FRAMING_LOST;
        flow->state = SB_OWN_OPEN;
        m = find_masquerade(skb, h);
        if (m)
                flow->masquerade = *m;
        count(SB_NODE_REMEMBERED);
        return 0;
}

/* Distance of TSvals: a packet that is no older than this is late, an older one is a duplicate. */
#define LATE_MAX (1 << 16)

/*
 * Gives the packet to its socket, with numbers that the kernel accepts.
 *
 * A packet that waited in the switch may come behind later ones. Its TSval would make it a duplicate (PAWS,
 * RFC 7323 section 5), its ACK number an attack (RFC 5961 section 5); and once a request follows it, nobody
 * else may bring its data. So it gets the latest TSval and ACK number.
 *
 * The client of a resumed response may have data of the earlier node behind a gap. Once the gap is closed, it
 * acknowledges what this socket has not sent, which the kernel would ignore without end (tcp_ack()).
 *
 * Where the switch has acknowledged data that is not here yet, TSecr is older than what the client
 * acknowledges. The kernel would take the difference for a round trip, and its own retransmissions for
 * spurious ones. A TSecr of zero tells it nothing (tcp_rtt_tsopt_us(), tcp_packet_delayed()).
 */
static __noinline int deliver_in_time(struct __sk_buff *skb, const struct handoff *h, struct sb_owned *flow,
                                      const struct socket_facts *facts)
{
        const __u32 tcp = sizeof(struct ethhdr) + h->inner_len;
        int timed = is_owned(flow, h) && facts->kind == SOCKET_LIVE && !(h->tcp_flags & SB_TCP_RST);
        struct tcp_with_timestamps header;
        __u32 tsval, ack = h->ack;

        if (decapsulate(skb, h))
                return drop(SB_NODE_DROP_MALFORMED);
        if (timed && h->payload && is_before(ack, facts->snd_una))
                ack = facts->snd_una;
        if (timed && is_resumed(flow) && is_before(facts->snd_nxt, ack))
                ack = facts->snd_nxt;
        write_tcp(skb, tcp, offsetof(struct tcphdr, ack_seq), bpf_htonl(h->ack), bpf_htonl(ack));
        if (!bpf_skb_load_bytes(skb, tcp, &header, sizeof(header)) &&
            header.kinds == SB_TCPOPT_TSTAMP_ALIGNED) {
                if ((h->option.flags & (SB_HANDOVER_REQUEST | SB_HANDOVER_AHEAD)) == SB_HANDOVER_AHEAD)
                        write_tcp(skb, tcp, offsetof(struct tcp_with_timestamps, tsecr), header.tsecr, 0);
                tsval = bpf_ntohl(header.tsval);
                if (timed && (!flow->latest || !is_before(tsval, flow->latest)))
                        flow->latest = tsval;
                else if (timed && h->payload && flow->latest - tsval < LATE_MAX)
                        write_tcp(skb, tcp, offsetof(struct tcp_with_timestamps, tsval), header.tsval,
                                  bpf_htonl(flow->latest));
        }
        return hand_on(skb, h, flow);
}

/*
 * Returns the packet to a switch that knows an earlier adoption, with the flow's state: it has to read the
 * data again from the flow's mark on.
 */
static __always_inline int return_outdated(struct handoff *h, struct sb_owned *flow)
{
        answer_outdated(h, flow);
        return ANSWER_WHOLE;
}

/*
 * Returns a request to the switch, because the flow has no server here. If the node was the flow's last owner,
 * it says which adoption follows, and so to one switch only.
 */
static __always_inline int refuse_without_socket(struct handoff *h, struct sb_owned *flow)
{
        __u32 generation = generation_of(h), next = 0;

        if (generation && is_owned(flow, h) && is_orphan(flow) && flow->generation == generation) {
                next = following(generation);
                flow->generation = next;
        }
        refuse(h, SB_REASON_NO_SOCKET, SB_NODE_REFUSED_NO_SOCKET);
        h->option.payload.flow.generation = bpf_htonl(next);
        return ANSWER_WHOLE;
}

/*
 * Whether the packet's adoption has not been carried out here, or its connection has ended: the adoption may be
 * under way, the process that wanted it may have died before it heard of a refusal, and a switch may have missed
 * CLOSED.
 */
static __always_inline int lacks_adoption(const struct sb_owned *flow, const struct handoff *h)
{
        if (!h->payload || !generation_of(h))
                return 0;
        return !is_owned(flow, h) || (flow->state == SB_OWN_RELEASED && !is_orphan(flow));
}

/*
 * Whether the client ends a connection that has been released here and has got no other node: a switch passes its
 * FIN or RST on, so that the others hear of the end.
 */
static __always_inline int ends_released(const struct sb_owned *flow, const struct handoff *h)
{
        return is_owned(flow, h) && flow->state == SB_OWN_RELEASED && flow->reason == SB_REASON_NONE &&
               flow->requests == flow->responses && !h->payload && h->seq == flow->next &&
               h->tcp_flags & (SB_TCP_FIN | SB_TCP_RST);
}

/*
 * Takes one more packet of a flow. Without a socket the packet is dropped, and the kernel sends no RST: an
 * adoption may be under way. The switch hears of it if the packet has data.
 */
__noinline int on_forward(struct __sk_buff *skb, struct handoff *h)
{
        __u32 skb_mark = *(volatile __u32 *)&skb->mark;
        struct socket_facts facts = {};
        struct sb_owned *flow;

        if (!h)
                return TCX_DROP;
        flow = sb_flow_lookup(&owned, &h->flow);
        /* The request's first packet has arrived in the same batch, and has not reached its socket. */
        if (is_owned(flow, h) && flow->state == SB_OWN_ADOPTING &&
            (!is_behind(skb_mark) || (has_turns(skb_mark) && is_replaying(flow))))
                return come_behind(skb, skb_mark);
        read_socket(skb, h, flow, &facts);
        if (facts.kind == SOCKET_NONE || facts.kind == SOCKET_LISTENER ||
            (flow && flow->state == SB_OWN_RELEASED)) {
                /* Its client sends again what it has sent meanwhile, when the response goes on elsewhere. */
                if (is_owned(flow, h) && is_bequeathed(flow) && !is_outdated(flow, h))
                        return drop(SB_NODE_DROP_NO_SOCKET);
                if (ends_released(flow, h)) {
                        end_flow(&h->flow, flow, SB_END_CLIENT);
                        return TCX_DROP;
                }
                if (h->option.flags & SB_HANDOVER_REQUEST ||
                    (is_owned(flow, h) && is_for_the_switch(flow, h)))
                        return refuse_without_socket(h, flow);
                /* The flow's owner needs the packet, if only for the acknowledgment in it. */
                if (is_owned(flow, h) && is_outdated(flow, h)) {
                        count(SB_NODE_OUTDATED);
                        return disown(h, flow, flow->generation, SB_REASON_NONE);
                }
                if (lacks_adoption(flow, h)) {
                        count(SB_NODE_LACKED);
                        return disown(h, NULL, generation_of(h), SB_REASON_NO_SOCKET);
                }
                return drop(SB_NODE_DROP_NO_SOCKET);
        }
        if (is_owned(flow, h) && flow->state == SB_OWN_OPEN && is_outdated(flow, h))
                return return_outdated(h, flow);
        if (!flow && h->option.flags & SB_HANDOVER_REQUEST && facts.state == TCP_ESTABLISHED &&
            facts.rcv_nxt == h->seq && !remember_again(skb, h)) {
                flow = sb_flow_lookup(&owned, &h->flow);
                if (flow)
                        flow->answered = facts.write_seq;
        }
        if (is_owned(flow, h)) {
                note_switch(flow, h);
                acknowledge(flow, h, facts.snd_una);
                switch (take_in(flow, h, &facts)) {
                case INTAKE_TAKE:
                        if (h->option.flags & (SB_HANDOVER_REQUEST | SB_HANDOVER_READ))
                                keep_request(skb, h);
                        /* Nobody else has a request that its client has sent ahead. */
                        if (h->option.flags & SB_HANDOVER_REQUEST && has_been_reported(flow))
                                report_insurable_end(flow, &h->flow, 0);
                        break;
                case INTAKE_UNREAD:
                        return refuse_unread(h, flow);
                case INTAKE_NOT_TAKEN:
                        count(SB_NODE_NOT_TAKEN);
                        return reset_locally(skb, h, flow, facts.rcv_nxt);
                case INTAKE_DROP:
                        return drop(SB_NODE_DROP_REPEATED);
                }
                if (h->payload && go_on_with_session(skb, h, flow, facts.rcv_nxt) < 0)
                        return TCX_DROP;
        }
        if (h->option.flags & SB_HANDOVER_REQUEST && is_owned(flow, h) && meet(skb, h))
                return drop(SB_NODE_DROP_MALFORMED);
        count(SB_NODE_FORWARDED);
        return deliver_in_time(skb, h, flow, &facts);
}

/*
 * Answers up to which sequence number the node has all data. Data in the packet has been acknowledged by the
 * switch, so the client will not send it again: if it is missing, it is forwarded.
 */
__noinline int on_confirm(struct __sk_buff *skb, struct handoff *h)
{
        __u32 skb_mark = *(volatile __u32 *)&skb->mark;
        struct socket_facts facts = {};
        struct sb_owned *flow;

        if (!h)
                return TCX_DROP;
        flow = sb_flow_lookup(&owned, &h->flow);
        if (is_owned(flow, h) && flow->state == SB_OWN_OPEN && is_outdated(flow, h))
                return return_outdated(h, flow);
        read_socket(skb, h, flow, &facts);
        /* Data may have arrived in the same batch, and not have reached the socket. */
        if (is_owned(flow, h) && flow->state != SB_OWN_RELEASED && h->payload == 0 && !is_behind(skb_mark) &&
            (facts.kind != SOCKET_LIVE || is_before(facts.rcv_nxt, flow->passed)))
                return come_behind(skb, skb_mark);
        if (is_owned(flow, h) && flow->state == SB_OWN_OPEN && facts.kind == SOCKET_LIVE &&
            (h->payload == 0 || (__s32)(facts.rcv_nxt - (h->seq + h->payload)) >= 0)) {
                set_answer(h, SB_OP_CONFIRMED, SB_REASON_NONE);
                h->option.payload.confirmed.arrived = bpf_htonl(facts.rcv_nxt);
                h->ack = facts.snd_nxt;
                h->tsecr = clock_of(&facts);
                count(SB_NODE_CONFIRMED);
                return ANSWER;
        }
        return h->payload ? on_forward(skb, h) : TCX_DROP;
}

#endif
