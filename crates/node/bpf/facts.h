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
#include "load.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"

/* The first byte of the next response leaves. */
static __always_inline void fact_begins(struct sb_owned *flow, __u32 seq)
{
        __u64 waited = clock_us() - flow->turn_us;

        flow->began = seq;
        flow->sent = 0;
        flow->head_bytes = 0;
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

static __always_inline int is_wanted(const struct sb_owned *flow)
{
        struct sb_listening_switch *who = bpf_map_lookup_elem(&switches, flow->switch_address);

        return who && who->facts;
}

/*
 * The response to request `number` has ended before sequence number `end`. The next response's turn begins.
 */
static __always_inline void tell_fact(struct sb_owned *flow, const struct sb_flow *key, __u16 number,
                                      __u16 status, __u32 end)
{
        __u64 now = clock_us(), before = flow->turn_us;
        struct sb_seen *seen;
        struct sb_fact *fact;

        flow->turn_us = now;
        if (!is_wanted(flow))
                return;
        seen = bpf_ringbuf_reserve(&facts, sizeof(*seen), 0);
        if (!seen) {
                count(SB_NODE_FACT_LOST);
                return;
        }
        fact = &seen->fact;
        sb_copy_v6(seen->switch_address, flow->switch_address);
        sb_copy_v6(fact->client, key->client);
        sb_copy_v6(fact->vip, key->vip);
        fact->client_port = key->client_port;
        fact->vip_port = key->vip_port;
        fact->origin = bpf_htonl(flow->origin);
        fact->request = bpf_htons(number);
        fact->status = bpf_htons(status);
        fact->end = SB_END_COMPLETE;
        __builtin_memset(fact->reserved, 0, sizeof(fact->reserved));
        fact->head_bytes = bpf_htonl(flow->head_bytes);
        fact->first_byte_us = bpf_htonl(flow->first_byte_us);
        fact->duration_us = bpf_cpu_to_be64(now - before);
        fact->bytes = bpf_cpu_to_be64(fact_bytes(flow, end));
        bpf_ringbuf_submit(seen, BPF_RB_NO_WAKEUP);
        count(SB_NODE_FACT);
}

#endif
