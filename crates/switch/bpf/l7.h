/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Records of packets for the L7 thread, in the ring of this CPU. */
#ifndef SWITCH_L7_H
#define SWITCH_L7_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "bytes.h"
#include "counters.h"
#include "flow.h"
#include "handoff.h"
#include "maps.h"
#include "packet.h"
#include "switch_maps.h"

static __always_inline void *ring_of_this_cpu(void)
{
        __u32 cpu = bpf_get_smp_processor_id();

        return bpf_map_lookup_elem(&rings, &cpu);
}

/* Contents of a record besides the packet. Absent parts are NULL. */
struct record_parts {
        const struct sb_flow *flow;
        const struct sb_flow_entry *entry;
        const struct sb_option *option;
        const struct sb_node_address *node;
        __u32 kind;
        __u32 start; /* offset of the IP packet in the frame */
        __u32 len;
};

/*
 * Wakes the L7 thread if it sleeps. An interrupt for each record would cost more than everything else. The
 * record is in the ring before the program reads the flag, and the exchange is a barrier. The thread clears
 * the flag and then looks at the rings once more. So it either sees the record or is woken.
 */
static __always_inline void wake_l7(void *ring)
{
        void *nothing;

        if (__sync_lock_test_and_set(&l7_awake, 1))
                return;
        nothing = bpf_ringbuf_reserve(ring, 8, 0);
        if (nothing)
                bpf_ringbuf_discard(nothing, BPF_RB_FORCE_WAKEUP);
        else
                l7_awake = 0;
}

/* Wakes the L7 thread without a record. */
static __always_inline void wake_l7_now(void)
{
        void *ring = ring_of_this_cpu();

        if (ring)
                wake_l7(ring);
}

/* Whether the L7 thread comes for it by itself. The record is in the ring before the program reads the clock. */
static __always_inline int can_wait(const struct sb_option *option)
{
        return option && option->op == SB_OP_REPORT && bpf_ktime_get_ns() < *(volatile __u64 *)&reports_wait;
}

/*
 * Writes a record into the ring; 0 if that fails. `size` is constant so that the verifier knows the
 * reservation.
 */
static __always_inline int submit(struct xdp_md *ctx, void *ring, const struct record_parts *parts,
                                  const __u32 size)
{
        struct sb_record *record = bpf_ringbuf_reserve(ring, sizeof(*record) + size, 0);
        __u32 len = parts->len;

        if (!record) {
                count(SB_SWITCH_DROP_RING_FULL);
                return 0;
        }
        record->kind = parts->kind;
        record->flow = *parts->flow;
        record->len = len;
        if (parts->entry)
                record->entry = *parts->entry;
        if (parts->option)
                record->option = *parts->option;
        if (parts->node)
                record->node = *parts->node;
        if (sb_xdp_load_some(ctx, parts->start, record + 1, len, size)) {
                bpf_ringbuf_discard(record, 0);
                count(SB_SWITCH_DROP_MALFORMED);
                return 0;
        }
        bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
        if (!can_wait(parts->option))
                wake_l7(ring);
        return 1;
}

/* Gives the IP packet to the L7 thread; 0 if there is no room. */
static __noinline int offer(struct xdp_md *ctx, const struct record_parts *parts, __u32 counter)
{
        void *ring = ring_of_this_cpu();

        if (!ring) {
                count(SB_SWITCH_DROP_RING_FULL);
                return 0;
        }
        count(counter);
        if (parts->len <= SB_RECORD_SMALL)
                return submit(ctx, ring, parts, SB_RECORD_SMALL);
        if (parts->len <= SB_RECORD_LARGE)
                return submit(ctx, ring, parts, SB_RECORD_LARGE);
        count(SB_SWITCH_DROP_TOO_LONG);
        return 0;
}

/* Gives the packet to the L7 thread, and drops it here. */
static __always_inline int to_l7(struct xdp_md *ctx, const struct record_parts *parts, __u32 counter)
{
        offer(ctx, parts, counter);
        return XDP_DROP;
}

#endif
