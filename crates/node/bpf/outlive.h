/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Flows outlive their servers. A server that crashes, is stopped or closes an idle connection ends a socket of this node,
 * but the client need not know: another node can have the flow.
 *
 * Between requests that is so as soon as the kernel's FIN or RST is kept back; the flow's next request finds no socket
 * here and goes back to the switch. In the middle of a request that can be made again, the client must still have it:
 * acknowledgments of the request are kept back until its response begins, but not for so long that the client doubts
 * the connection. So the client sends it once more, and that goes back to the switch.
 */
#ifndef NODE_OUTLIVE_H
#define NODE_OUTLIVE_H

#include <linux/bpf.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "follow.h"
#include "framing.h"
#include "handoff.h"
#include "kernel.h"
#include "load.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"
#include "received.h"

/* A client sends again after 200 ms at the earliest, then after 400 ms more; the answer to the third it gets. */
#define WITHHOLD_US 500000

/* The last request begins with this packet. */
static __always_inline void note_beginning(struct sb_owned *flow, const struct handoff *h, __u32 write_seq)
{
        /* A copy says nothing new, and one that comes late nothing true. */
        if ((__s32)(h->seq - flow->asked) <= 0)
                return;
        note_path(flow, h);
        flow->answered = write_seq;
        flow->asked = h->seq;
        flow->keeps = !(h->option.flags & SB_FLAG_LAST);
        flow->again =
            h->option.flags & SB_FLAG_AGAIN && (__u16)(bpf_ntohs(h->option.requests) - flow->responses) == 1;
}

/* Its server is gone, and the client does not know. */
static __always_inline int is_orphan(const struct sb_owned *flow)
{
        return flow->state == SB_OWN_RELEASED && flow->reason == SB_REASON_NO_SOCKET;
}

/*
 * A packet of such a flow that the switch must see: the request that has been cut off, one that comes after that, or the
 * client's own end. When a client sends a request again nothing says that it is one, but where requests begin is known.
 */
static __always_inline int is_for_the_switch(const struct sb_owned *flow, const struct handoff *h)
{
        if (!is_orphan(flow))
                return 0;
        if (h->payload)
                return h->seq == flow->next;
        return h->tcp_flags & SB_TCP_FIN;
}

/* Nothing of the last request's response has been sent, and the client still has the request. */
static __always_inline int is_waiting(const struct sb_owned *flow)
{
        return flow->again && flow->framing.state == SB_FRAMING_NONE && unanswered(flow) == 1;
}

static __always_inline int is_idle(const struct sb_owned *flow)
{
        return flow->keeps && flow->framing.state == SB_FRAMING_NONE && unanswered(flow) == 0;
}

/* From here on the kernel may say what it likes. `seq` is what the server would send next. */
static __always_inline void orphan(struct sb_owned *flow, __u32 seq)
{
        load_end(flow, flow->state);
        flow->again = is_waiting(flow);
        /* The request may come back to this node, to another server. */
        if (flow->again)
                flow->next = flow->asked;
        flow->state = SB_OWN_RELEASED;
        flow->reason = SB_REASON_NO_SOCKET;
        flow->answered = seq;
        flow->tsval = 0;
        count(SB_NODE_OUTLIVED);
}

/*
 * The socket is gone at once, as that of a server which has not read all: its RST comes later. An error means that
 * the client, or nobody, wants the connection any more; or that a request has met a server which had closed.
 */
static __always_inline int is_aborted(const struct tcp_sock *tcp, struct sb_owned *flow, int old_state)
{
        /* What is on its way to the client may have to be sent again. A FIN that is kept back counts as not sent. */
        if (tcp->snd_una != tcp->snd_nxt)
                return 0;
        if (old_state == TCP_ESTABLISHED) {
                if (tcp->inet_conn.icsk_inet.sk.sk_err || (!is_waiting(flow) && !is_idle(flow)))
                        return 0;
        } else if (old_state != TCP_FIN_WAIT1 || !is_waiting(flow)) {
                return 0;
        }
        orphan(flow, tcp->snd_nxt);
        return 1;
}

static __always_inline int has_ended(struct __sk_buff *skb, __u8 tcp_flags)
{
        struct bpf_sock *sk;

        if (tcp_flags & SB_TCP_RST)
                return 1;
        sk = skb->sk;
        if (!(tcp_flags & SB_TCP_FIN) || !sk)
                return 0;
        sk = bpf_sk_fullsock(sk);
        /* Not in answer to the client's FIN. */
        return sk && sk->state == TCP_FIN_WAIT1;
}

/*
 * Nothing of a flow that is another node's reaches the client, nor the kernel's RST for an adoption whose listener has just
 * closed: the switch hears of that, and takes another node.
 */
static __always_inline int is_mute(const struct sb_owned *flow, __u8 tcp_flags)
{
        return flow->state == SB_OWN_RELEASED || (flow->state == SB_OWN_ADOPTING && tcp_flags & SB_TCP_RST);
}

/* The client has all that comes before. What has been lost on its way, nobody but the server's socket has. */
static __always_inline int is_heard(struct __sk_buff *skb, __u32 seq)
{
        struct bpf_tcp_sock *tcp;
        struct bpf_sock *sk;

        sk = skb->sk;
        if (!sk)
                return 1;
        sk = bpf_sk_fullsock(sk);
        /* Where there is no socket any more, the kernel speaks through one of its own. */
        if (!sk || sk->state == TCP_CLOSE)
                return 1;
        tcp = bpf_tcp_sock(sk);
        return !tcp || tcp->snd_una == seq;
}

/* Whether a packet of the server, with `len` bytes of data, is kept from the client. */
static __noinline int keep_back(struct __sk_buff *skb, struct sb_owned *flow, const struct tcphdr *header,
                                __u32 len)
{
        __u8 tcp_flags;
        __u32 seq, ack;

        if (!flow || !header || flow->state != SB_OWN_OPEN)
                return 0;
        seq = bpf_ntohl(header->seq);
        ack = bpf_ntohl(header->ack_seq);
        tcp_flags = sb_tcp_flags(header);
        if (len == 0 && (is_waiting(flow) || (is_idle(flow) && flow->followed == seq)) &&
            has_ended(skb, tcp_flags)) {
                if (is_heard(skb, seq)) {
                        orphan(flow, seq);
                        return 1;
                }
                if (tcp_flags & SB_TCP_RST)
                        return 0;
                /* It comes again, at the latest when all has been acknowledged. */
                count(SB_NODE_WITHHELD);
                return 1;
        }
        if ((__s32)(ack - flow->asked) <= 0)
                return 0;
        if (len == 0 && is_waiting(flow) && !(tcp_flags & (SB_TCP_FIN | SB_TCP_RST)) &&
            now_us() - flow->asked_us < WITHHOLD_US) {
                count(SB_NODE_WITHHELD);
                return 1;
        }
        flow->again = 0;
        return 0;
}

#endif
