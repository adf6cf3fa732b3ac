/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Facts about responses, for the access log of the switch that handed over the requests and does not see the
 * responses. Responses that end are reported here; the others with the end of their flow (`closed`).
 */
#ifndef NODE_FACTS_H
#define NODE_FACTS_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "flow.h"
#include "handoff.h"
#include "insure.h"
#include "keys.h"
#include "load.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"
#include "received.h"

/* The first byte of the next response leaves. */
static __always_inline void fact_begins(struct sb_owned *flow, __u32 seq)
{
        __u64 waited = clock_us() - flow->turn_us;

        flow->began = seq;
        flow->sent = 0;
        flow->head_bytes = 0;
        flow->insure = 0;
        flow->first_byte_us = waited < ~0U ? waited : ~0U;
}

/* Number of bytes of the response before sequence number `end`. */
static __always_inline __u64 fact_bytes(const struct sb_owned *flow, __u32 end)
{
        return flow->sent + (__u32)(end - flow->began);
}

/* Counts the response up to `followed`. Runs for each packet, because sequence numbers wrap. */
static __always_inline void fact_goes_on(struct sb_owned *flow)
{
        flow->sent = fact_bytes(flow, flow->followed);
        flow->began = flow->followed;
}

/* Writes which switch has handed the flow over, as it asks for reports of the flow's node. */
static __always_inline void write_asking(struct sb_asking *asking, const struct sb_owned *flow)
{
        sb_copy_v6(asking->switch_address, flow->switch_address);
        asking->node = flow->node;
        asking->reserved = 0;
}

/* Not inlined: its callers have no stack to spare. */
static __noinline int is_wanted(const struct sb_owned *flow)
{
        struct sb_listening_switch *who;
        struct sb_asking asking;

        write_asking(&asking, flow);
        who = bpf_map_lookup_elem(&switches, &asking);
        return who && who->facts;
}

/*
 * Tells of the response that ended last. Not inlined: its callers have no stack to spare.
 */
static __noinline int tell_fact(struct sb_owned *flow, const struct sb_flow *key)
{
        const struct sb_ended *ended = &flow->ended;
        struct sb_seen *seen;
        struct sb_fact *fact;

        if (!flow->ended.status)
                return 0;
        seen = bpf_ringbuf_reserve(&facts, sizeof(*seen), 0);
        if (!seen) {
                count(SB_NODE_FACT_LOST);
                flow->ended.status = 0;
                return 0;
        }
        fact = &seen->fact;
        write_asking(&seen->by, flow);
        sb_copy_v6(fact->client, key->client);
        sb_copy_v6(fact->vip, key->vip);
        fact->client_port = key->client_port;
        fact->vip_port = key->vip_port;
        fact->origin = bpf_htonl(flow->origin);
        fact->request = bpf_htons(ended->number);
        fact->status = bpf_htons(ended->status);
        fact->end = SB_END_COMPLETE;
        __builtin_memset(fact->reserved, 0, sizeof(fact->reserved));
        fact->head_bytes = bpf_htonl(ended->head_bytes);
        fact->first_byte_us = bpf_htonl(ended->first_byte_us);
        fact->duration_us = bpf_cpu_to_be64(ended->duration_us);
        fact->bytes = bpf_cpu_to_be64(ended->bytes);
        bpf_ringbuf_submit(seen, BPF_RB_NO_WAKEUP);
        flow->ended.status = 0;
        count(SB_NODE_FACT);
        return 0;
}

/*
 * The response to request `number` has ended before sequence number `end`. The next response's turn begins. It is told of
 * when its client has acknowledged it; an earlier one, to a client that asks ahead, is told of now.
 */
static __always_inline void fact_ends(struct sb_owned *flow, const struct sb_flow *key, __u16 number,
                                      __u16 status, __u32 end)
{
        __u64 now = clock_us(), before = flow->turn_us;

        tell_fact(flow, key);
        flow->turn_us = now;
        if (!is_wanted(flow))
                return;
        flow->ended.bytes = fact_bytes(flow, end);
        flow->ended.duration_us = now - before;
        flow->ended.end = end;
        flow->ended.head_bytes = flow->head_bytes;
        flow->ended.first_byte_us = flow->first_byte_us;
        flow->ended.number = number;
        flow->ended.status = status;
}

/* Notes what the client's packet acknowledges; all before `before` was acknowledged already. */
static __always_inline void acknowledge(struct sb_owned *flow, const struct handoff *h, __u32 before)
{
        if (!(h->tcp_flags & SB_TCP_ACK))
                return;
        if ((__s32)(h->ack - before) > 0)
                count(SB_NODE_ACKNOWLEDGED);
        insured_until(flow, &h->flow, h->ack);
        if (flow->ended.status && (__s32)(h->ack - flow->ended.end) >= 0)
                tell_fact(flow, &h->flow);
}

#endif
