/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Generations of adoptions (docs/decisions/0038): which of several switches may give this node a flow, and
 * which of them knows the flow's last adoption. Packets without a generation come from switches that know
 * none, and pass all checks.
 */
#ifndef NODE_GENERATION_H
#define NODE_GENERATION_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "handoff.h"
#include "keys.h"
#include "maps.h"
#include "node_maps.h"
#include "received.h"

/* Longer than a handoff packet can be late: its tag holds for three epochs. */
#define CLAIM_NS (16ULL * 1000 * 1000 * 1000)

static __always_inline __u32 generation_of(const struct handoff *h)
{
        return bpf_ntohl(h->option.payload.flow.generation);
}

/* The adoption that follows one whose owner has lost its server. */
static __always_inline __u32 following(__u32 generation)
{
        const __u32 one = 1 << (SB_GENERATION_SWITCH_BITS + SB_GENERATION_ATTEMPT_BITS);

        return (generation & ~((1U << SB_GENERATION_ATTEMPT_BITS) - 1)) + one;
}

/* Whether the sender of a packet does not know of the last adoption. */
static __always_inline int is_outdated(const struct sb_owned *flow, const struct handoff *h)
{
        __u32 generation = generation_of(h);

        return generation && flow->generation && sb_is_newer(flow->generation, generation);
}

/* The flow's claim. A PROBE about an unknown flow has no origin, and any connection of the 4-tuple will do. */
static __always_inline struct claim *claim_of(const struct handoff *h)
{
        struct claim *claim = sb_flow_lookup(&claims, &h->flow);
        __u32 origin = bpf_ntohl(h->option.payload.flow.origin);

        if (!claim || (origin && claim->origin != origin) || bpf_ktime_get_ns() - claim->at_ns > CLAIM_NS)
                return NULL;
        return claim;
}

/* The newest generation that a node without the flow has heard of; 0: none. */
static __always_inline __u32 newest_generation(const struct sb_owned *flow, const struct claim *claim)
{
        __u32 newest = flow ? flow->generation : 0;

        if (claim && (!newest || sb_is_newer(claim->generation, newest)))
                newest = claim->generation;
        return newest;
}

/* Whether a node without the flow may take the adoption. `flow` is the flow's entry, or NULL. */
static __noinline int is_barred(const struct sb_owned *flow, const struct handoff *h)
{
        __u32 generation, newest;

        if (!h)
                return 1;
        generation = generation_of(h);
        if (!generation)
                return 0;
        newest = newest_generation(flow, claim_of(h));
        return newest && !sb_is_newer(generation, newest);
}

static __always_inline void write_claim(const struct handoff *h, __u32 generation)
{
        struct claim claim = {
            .origin = bpf_ntohl(h->option.payload.flow.origin),
            .generation = generation,
            .at_ns = bpf_ktime_get_ns(),
        };

        sb_flow_update(&claims, &h->flow, &claim);
}

/* Remembers that the adoption was declined: no late copy of it is accepted when its flow is elsewhere. */
static __noinline int remember_declining(const struct handoff *h)
{
        if (h && generation_of(h))
                write_claim(h, generation_of(h));
        return 0;
}

/*
 * Promises not to accept an adoption before the one that a PROBE announces, unless a newer one is known.
 * Returns the newest generation.
 */
static __noinline __u32 promise(const struct sb_owned *flow, const struct handoff *h)
{
        __u32 announced, newest;

        if (!h)
                return 0;
        announced = bpf_ntohl(h->option.payload.question.next_generation);
        newest = newest_generation(flow, claim_of(h));
        if (!announced || (newest && !sb_is_newer(announced, newest)))
                return newest;
        write_claim(h, announced);
        return announced;
}

#endif
