/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Flows that outlive their servers. If a server crashes, is stopped or closes an idle connection, its socket
 * ends, but the client need not notice: another node can take the flow.
 *
 * Between requests it suffices to keep back the kernel's FIN or RST: the next request finds no socket here
 * and goes back to the switch. In the middle of an idempotent request the client must still have the request:
 * its acknowledgments are kept back until the response begins, though not so long that the client gives up.
 * So the client sends the request again, and it goes back to the switch.
 */
#ifndef NODE_OUTLIVE_H
#define NODE_OUTLIVE_H

#include <linux/bpf.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "away.h"
#include "counters.h"
#include "follow.h"
#include "framing.h"
#include "handoff.h"
#include "insure.h"
#include "kernel.h"
#include "load.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"
#include "received.h"
#include "tcx.h"

/*
 * Microseconds. A client sends again after 200 ms at the earliest, and after 400 ms more; its third packet is
 * acknowledged.
 */
#define WITHHOLD_US 500000

/* Notes that the last request begins with this packet. */
static __always_inline void note_beginning(struct sb_owned *flow, const struct handoff *h, __u32 write_seq)
{
        /* A copy says nothing new, and a late packet is about an earlier request. */
        if ((__s32)(h->seq - flow->asked) <= 0)
                return;
        note_path(flow, h);
        flow->answered = write_seq;
        flow->asked = h->seq;
        flow->grown = 0;
        flow->keeps = !(h->option.flags & SB_HANDOVER_LAST);
        flow->again = h->option.flags & SB_HANDOVER_AGAIN &&
                      (__u16)(bpf_ntohs(h->option.payload.flow.requests) - flow->responses) == 1;
}

/* Whether the flow's server is gone, and the client has not noticed. */
static __always_inline int is_orphan(const struct sb_owned *flow)
{
        return flow->state == SB_OWN_RELEASED && flow->reason == SB_REASON_NO_SOCKET;
}

/*
 * Whether the switch must see a packet of an orphan: the interrupted request, the one after it, or the
 * client's FIN. A retransmission does not say that a request begins, but the node knows where requests begin.
 */
static __always_inline int is_for_the_switch(const struct sb_owned *flow, const struct handoff *h)
{
        if (!is_orphan(flow))
                return 0;
        if (h->payload)
                return h->seq == flow->next;
        return h->tcp_flags & SB_TCP_FIN;
}

/* Whether the client still has the last request, and no byte of its response has left. */
static __always_inline int is_waiting(const struct sb_owned *flow)
{
        return flow->again && flow->framing.state == SB_FRAMING_NONE && unanswered(flow) == 1;
}

static __always_inline int is_idle(const struct sb_owned *flow)
{
        return flow->keeps && flow->framing.state == SB_FRAMING_NONE && unanswered(flow) == 0;
}

/* Makes the flow an orphan, which mutes the kernel. `seq` is the server's next sequence number. */
static __always_inline void orphan(struct sb_owned *flow, __u32 seq)
{
        load_end(flow, flow->state);
        flow->again = is_waiting(flow);
        /* The request may come back to this node, for another server. */
        if (flow->again)
                flow->next = flow->asked;
        flow->state = SB_OWN_RELEASED;
        flow->reason = SB_REASON_NO_SOCKET;
        flow->answered = seq;
        flow->tsval = 0;
        count(SB_NODE_OUTLIVED);
}

/*
 * Whether a socket that closes leaves an orphan. A server that has not read everything loses its socket at
 * once, before the RST. An error means that the client does not want the connection any more or is gone, or
 * that a request has met a closed server.
 */
static __always_inline int is_aborted(const struct tcp_sock *tcp, struct sb_owned *flow,
                                      const struct sb_flow *key, int old_state)
{
        if (!tcp->inet_conn.icsk_inet.sk.sk_err && is_insured(flow, key, 0)) {
                bequeath(flow, key, tcp->snd_una + flow->masquerade.seq);
                return 1;
        }
        /* Data in flight may have to be sent again. A FIN that was kept back counts as not sent. */
        if (tcp->snd_una != tcp->snd_nxt)
                return 0;
        if (old_state == TCP_ESTABLISHED) {
                if (tcp->inet_conn.icsk_inet.sk.sk_err || (!is_waiting(flow) && !is_idle(flow)))
                        return 0;
        } else if (old_state != TCP_FIN_WAIT1 || !is_waiting(flow)) {
                return 0;
        }
        orphan(flow, tcp->snd_nxt + flow->masquerade.seq);
        return 1;
}

static __always_inline int has_ended(struct __sk_buff *skb, const struct sb_owned *flow, __u8 tcp_flags)
{
        struct bpf_sock *sk;

        if (tcp_flags & SB_TCP_RST)
                return 1;
        if (is_away(flow))
                return tcp_flags & SB_TCP_FIN && !(flow->away.ended & SB_AWAY_CLIENT_FIN);
        sk = skb->sk;
        if (!(tcp_flags & SB_TCP_FIN) || !sk)
                return 0;
        sk = bpf_sk_fullsock(sk);
        /* The server has closed before the client did. */
        return sk && sk->state == TCP_FIN_WAIT1;
}

/*
 * Whether the kernel must not speak: the flow is another node's, or the RST comes from an adoption whose
 * listener has just closed. In the second case the switch takes another node.
 */
static __always_inline int is_mute(const struct sb_owned *flow, __u8 tcp_flags)
{
        return flow->state == SB_OWN_RELEASED || (flow->state == SB_OWN_ADOPTING && tcp_flags & SB_TCP_RST);
}

/* Whether the client has everything before `seq`. Only the server's socket can send it again. */
static __always_inline int is_heard(struct __sk_buff *skb, const struct sb_owned *flow, __u32 seq)
{
        struct bpf_tcp_sock *tcp;
        struct bpf_sock *sk;

        if (is_away(flow))
                return flow->away.snd_una == seq;
        sk = skb->sk;
        if (!sk)
                return 1;
        sk = bpf_sk_fullsock(sk);
        /* Without a socket of the flow, the kernel sends by one of its own. */
        if (!sk || sk->state == TCP_CLOSE)
                return 1;
        tcp = bpf_tcp_sock(sk);
        return !tcp || tcp->snd_una + flow->masquerade.seq == seq;
}

/* The verdict on a packet of the server with `len` bytes of data: TCX_NEXT unless it is kept from the client. */
static __noinline int keep_back(struct __sk_buff *skb, struct sb_owned *flow, const struct sb_flow *key,
                                const struct tcphdr *header, __u32 len)
{
        __u8 tcp_flags;
        __u32 seq, ack;

        if (!flow || !key || !header || flow->state != SB_OWN_OPEN)
                return TCX_NEXT;
        seq = bpf_ntohl(header->seq);
        ack = bpf_ntohl(header->ack_seq);
        tcp_flags = sb_tcp_flags(header);
        if (has_ended(skb, flow, tcp_flags) && is_insured(flow, key, len)) {
                bequeath(flow, key, flow->followed);
                return TCX_DROP;
        }
        if (len == 0 && (is_waiting(flow) || (is_idle(flow) && flow->followed == seq)) &&
            has_ended(skb, flow, tcp_flags)) {
                if (is_heard(skb, flow, seq)) {
                        orphan(flow, seq);
                        return TCX_DROP;
                }
                if (tcp_flags & SB_TCP_RST)
                        return TCX_NEXT;
                /* The kernel sends it again, at the latest when everything has been acknowledged. */
                return drop(SB_NODE_WITHHELD);
        }
        if ((__s32)(ack - first_byte(flow)) <= 0)
                return TCX_NEXT;
        if (len == 0 && is_waiting(flow) && !(tcp_flags & (SB_TCP_FIN | SB_TCP_RST)) &&
            now_us() - flow->asked_us < WITHHOLD_US) {
                count(SB_NODE_WITHHELD);
                return sb_lose();
        }
        flow->again = 0;
        return TCX_NEXT;
}

#endif
