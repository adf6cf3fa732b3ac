/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Leaving out acknowledgments. An ACK may be left out only if another one follows without any timer of ours:
 * data beyond it has come in already, and the kernel still has to acknowledge that. So the last ACK of a
 * burst is always sent. ACKs by which the server finds losses, and all that are not plainly the next one, are
 * sent, too.
 */
#ifndef CLIENT_THIN_H
#define CLIENT_THIN_H

#include <linux/bpf.h>
#include <linux/tcp.h>
#include <bpf/bpf_helpers.h>

#include "client_maps.h"
#include "maps.h"
#include "packet.h"
#include "read.h"

static __always_inline __u32 thin_acks(void)
{
        __u32 zero = 0;
        struct sb_client_settings *s = bpf_map_lookup_elem(&settings, &zero);

        return s ? s->thin_acks : 0;
}

/* Notes data of the server that comes in. */
static __always_inline void let_in(const struct packet *p)
{
        struct sb_direct_flow *flow = bpf_map_lookup_elem(&flows, &p->flow);
        __u32 end = p->seq + p->payload;

        if (!flow || (p->payload == 0 && !(p->flags & SB_TCP_FIN)))
                return;
        if (!is_after(p->seq, flow->in_order) && is_after(end, flow->in_order))
                flow->in_order = end;
        if (p->flags & SB_TCP_FIN)
                end++;
        if (is_after(end, flow->highest))
                flow->highest = end;
}

/* Whether the TCP header has no options but timestamps: no SACK. */
static __always_inline int is_plain(struct __sk_buff *skb, const struct packet *p)
{
        __be32 option = 0;

        if (p->tcp_len == sizeof(struct tcphdr))
                return 1;
        return p->tcp_len == sizeof(struct tcphdr) + 12 &&
               bpf_skb_load_bytes(skb, p->tcp + sizeof(struct tcphdr), &option, sizeof(option)) == 0 &&
               option == SB_TCPOPT_TSTAMP_ALIGNED;
}

/* Whether a packet of the client is left out. */
static __always_inline int is_left_out(struct __sk_buff *skb, const struct packet *p,
                                       struct sb_direct_flow *flow)
{
        __u32 most = thin_acks();

        if (!most)
                return 0;
        /* The kernel has acknowledged it, so there are no gaps before. */
        if (is_after(p->ack, flow->in_order))
                flow->in_order = p->ack;
        if (is_after(flow->in_order, flow->highest))
                flow->highest = flow->in_order;
        /* A repeated ACK is needed: data that came in has not reached the kernel. */
        if (p->flags == SB_TCP_ACK && p->payload == 0 && is_after(p->ack, flow->acked) &&
            is_after(p->ack, flow->left_out) && is_after(flow->in_order, p->ack) &&
            flow->highest == flow->in_order && flow->thinned < most && is_plain(skb, p)) {
                flow->left_out = p->ack;
                flow->thinned++;
                return 1;
        }
        if (is_after(p->ack, flow->acked)) {
                flow->acked = p->ack;
                flow->left_out = p->ack;
                flow->thinned = 0;
        }
        return 0;
}

#endif
