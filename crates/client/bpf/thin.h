/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Fewer acknowledgments. One may be left out only if another one is certain to follow without any timer of ours: when
 * data beyond it has been let in already, the kernel has yet to acknowledge that. So the last of a burst always goes
 * out. What the server needs to find losses by, and all that is not plainly the next acknowledgment, goes out, too.
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

/* Data of the server comes in. */
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

/* Whether the TCP header has nothing but timestamps behind it: no SACK. */
static __always_inline int is_plain(struct __sk_buff *skb, const struct packet *p)
{
        __be32 option = 0;

        if (p->tcp_len == sizeof(struct tcphdr))
                return 1;
        return p->tcp_len == sizeof(struct tcphdr) + 12 &&
               bpf_skb_load_bytes(skb, p->tcp + sizeof(struct tcphdr), &option, sizeof(option)) == 0 &&
               option == SB_TCPOPT_TSTAMP_ALIGNED;
}

/* A packet of the client; whether it is left out. */
static __always_inline int is_left_out(struct __sk_buff *skb, const struct packet *p,
                                       struct sb_direct_flow *flow)
{
        __u32 most = thin_acks();

        if (!most)
                return 0;
        /* The kernel has it all: gaps have been filled up to here. */
        if (is_after(p->ack, flow->in_order))
                flow->in_order = p->ack;
        if (is_after(flow->in_order, flow->highest))
                flow->highest = flow->in_order;
        /* One that is repeated is needed: what was let in has not reached the kernel. */
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
