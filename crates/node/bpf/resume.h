/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Going on with the response of a node that is gone (docs/decisions/0050). The flow is adopted without a request, by a
 * socket of the agent, which sends the rest of the response.
 */
#ifndef NODE_RESUME_H
#define NODE_RESUME_H

#include <linux/bpf.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "framing.h"
#include "generation.h"
#include "handoff.h"
#include "keys.h"
#include "maps.h"
#include "messages.h"
#include "node_maps.h"
#include "packet.h"
#include "received.h"
#include "socket.h"

static __always_inline int is_resumption(const struct handoff *h)
{
        return h->option.op == SB_OP_ADOPT && h->option.flags & SB_HANDOVER_RESUME;
}

/* The insured response of the flow, unless the packet is of another connection, or of one that has got further. */
static __always_inline struct sb_insured *insured_by(const struct handoff *h)
{
        struct sb_insured *response = sb_flow_lookup(&insured, &h->flow);

        if (!response || response->origin != bpf_ntohl(h->option.payload.flow.origin) ||
            response->next != h->seq)
                return NULL;
        return response;
}

/* Bytes of the response that the client has, head and all. */
static __always_inline __s64 bytes_before(const struct sb_insured *response, const struct handoff *h)
{
        return (__s64)response->sent + (__s32)(h->ack - response->seq);
}

enum resumable {
        RESUMABLE,
        RESUMABLE_NOT,
        RESUMABLE_OVER,     /* the client has all of it */
        RESUMABLE_OUTDATED, /* the switch does not know of the last adoption */
};

static __always_inline enum resumable is_resumable(const struct handoff *h)
{
        struct sb_insured *response;

        response = insured_by(h);
        if (!response || bytes_before(response, h) < response->head_bytes)
                return RESUMABLE_NOT;
        if (response->generation && !sb_is_newer(generation_of(h), response->generation))
                return RESUMABLE_OUTDATED;
        return bytes_before(response, h) < (__s64)response->bytes ? RESUMABLE : RESUMABLE_OVER;
}

/* The agent offers the response no more. */
static __always_inline void note_served(const struct handoff *h)
{
        struct sb_insured *response = insured_by(h);

        if (response)
                response->served = 1;
}

/* Begins to follow the response in its middle. */
static __noinline int begin_resumed(struct sb_owned *flow, const struct handoff *h)
{
        struct sb_insured *response;

        if (!flow || !h)
                return 0;
        response = insured_by(h);
        if (!response)
                return 0;
        /* The agent tells other nodes itself. */
        flow->insure = SB_INSURE_RESUMED | SB_INSURE_NEVER;
        if (response->over_tls) {
                framing_begin(&flow->framing, SB_FRAMING_LOST);
                return 0;
        }
        flow->began = h->ack;
        flow->sent = bytes_before(response, h);
        flow->head_bytes = response->head_bytes;
        flow->framing.state = SB_FRAMING_BODY | SB_FRAMING_SKIP;
        flow->framing.left = response->bytes - flow->sent;
        flow->framing.status = response->status;
        flow->keeps = response->keeps;
        flow->again = 0;
        flow->insure |= SB_INSURE_REPORTED;
        if (response->fingerprinted)
                flow->insure |= SB_INSURE_FINGERPRINTED;
        return 0;
}

/* The agent's listener for resumed flows. */
static __always_inline struct bpf_sock *resume_listener(struct __sk_buff *skb, const struct handoff *h)
{
        __u8 loopback[16] __attribute__((aligned(8))) = {[15] = 1};
        struct sb_node_settings *s;
        __u32 zero = 0;

        s = bpf_map_lookup_elem(&settings, &zero);
        if (!s || !s->resume_port)
                return NULL;
        if (h->inner_len == sizeof(struct iphdr))
                sb_map_v4(loopback, bpf_htonl(0x7f000001));
        return lookup_at(skb, h, h->flow.client_port, loopback, s->resume_port);
}

#endif
