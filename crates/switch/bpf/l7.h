/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Records of packets for the L7 threads, in the rings of this CPU. */
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

/* Whether the message is the node's own, not a flow's. */
static __always_inline int is_of_no_flow(__u8 op)
{
        return op == SB_OP_REPORT || op == SB_OP_SIZED || op == SB_OP_SYNCED || op == SB_OP_FACTS ||
               op == SB_OP_FLOWS || op == SB_OP_SWITCHES;
}

/* The L7 thread that has the flow. The first also has all that belongs to no flow. */
static __always_inline __u32 thread_of(const struct record_parts *parts)
{
        if (l7_threads == 1 || (parts->option && is_of_no_flow(parts->option->op)))
                return 0;
        return (__u64)sb_flow_hash(parts->flow) * l7_threads >> 32;
}

static __always_inline void *ring_of(__u32 thread)
{
        __u32 number = bpf_get_smp_processor_id() * l7_threads + thread;

        return bpf_map_lookup_elem(&rings, &number);
}

/*
 * Wakes the thread if it sleeps. An interrupt for each record would cost more than everything else. The
 * record is in the ring before the program reads the flag, and the exchange is a barrier. The thread clears
 * the flag and then looks at the rings once more. So it either sees the record or is woken.
 */
static __always_inline void wake_l7(__u32 thread, void *ring)
{
        struct l7_thread *state;
        void *nothing;

        if (thread >= SB_L7_THREADS)
                return;
        state = &l7_states[thread];
        if (__sync_lock_test_and_set(&state->awake, 1))
                return;
        nothing = bpf_ringbuf_reserve(ring, 8, 0);
        if (nothing)
                bpf_ringbuf_discard(nothing, BPF_RB_FORCE_WAKEUP);
        else
                state->awake = 0;
}

/* Wakes the first thread without a record. */
static __always_inline void wake_l7_now(void)
{
        void *ring = ring_of(0);

        if (ring)
                wake_l7(0, ring);
}

/*
 * Whether the first thread comes for it by itself: a report, or facts, which are some 50 ms old already. The record is in
 * the ring before the program reads the clock.
 */
static __always_inline int can_wait(const struct sb_option *option)
{
        if (!option || (option->op != SB_OP_REPORT && option->op != SB_OP_FACTS))
                return 0;
        return bpf_ktime_get_ns() < *(volatile __u64 *)&reports_wait;
}

/*
 * Writes a record into the ring; 0 if that fails. `size` is constant so that the verifier knows the
 * reservation.
 */
static __always_inline int submit(struct xdp_md *ctx, __u32 thread, const struct record_parts *parts,
                                  const __u32 size)
{
        void *ring = ring_of(thread);
        struct sb_record *record = ring ? bpf_ringbuf_reserve(ring, sizeof(*record) + size, 0) : NULL;
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
                wake_l7(thread, ring);
        return 1;
}

/* Gives the IP packet to its L7 thread; 0 if there is no room. */
static __noinline int offer(struct xdp_md *ctx, const struct record_parts *parts, __u32 counter)
{
        __u32 thread = thread_of(parts);

        count(counter);
        if (parts->len <= SB_RECORD_SMALL)
                return submit(ctx, thread, parts, SB_RECORD_SMALL);
        if (parts->len <= SB_RECORD_LARGE)
                return submit(ctx, thread, parts, SB_RECORD_LARGE);
        count(SB_SWITCH_DROP_TOO_LONG);
        return 0;
}

/* Gives the packet to its L7 thread, and drops it here. */
static __always_inline int to_l7(struct xdp_md *ctx, const struct record_parts *parts, __u32 counter)
{
        offer(ctx, parts, counter);
        return XDP_DROP;
}

#endif
