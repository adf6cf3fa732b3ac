/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Room in accept queues. A socket is in the queue only when its packet has reached the listener, but packets
 * of one batch all come here first. So an adoption reserves a place, and returns it when the socket exists or
 * the adoption fails.
 */
#ifndef NODE_QUEUE_H
#define NODE_QUEUE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "handoff.h"
#include "kernel.h"
#include "maps.h"
#include "node_maps.h"

/* Nanoseconds after which unused places are lost, together with packets. */
#define RESERVATION_NS 100000000LL

/* Slot of the listener in `adopting`. */
static __always_inline __u8 slot_of(struct tcp_sock *listener)
{
        __u64 address = 0;

        /* The verifier forbids arithmetic on a pointer to a socket; a value read from memory is a number. */
        bpf_probe_read_kernel(&address, sizeof(address), &listener);
        return 1 + (address * 0x9e3779b97f4a7c15ULL >> 32) % (SB_ADOPTING_SLOTS - 1);
}

/* Reserves a place. Returns how many were reserved before. */
static __noinline __u32 reserve(__u32 slot)
{
        struct sb_adopting *places = bpf_map_lookup_elem(&adopting, &slot);
        __u64 now = bpf_ktime_get_ns(), last;
        __s64 before;

        if (!places)
                return 0;
        before = __sync_fetch_and_add(&places->count, 1);
        last = *(volatile __u64 *)&places->last_ns;
        if (before <= 0) {
                places->last_ns = now;
                return 0;
        }
        /* One of several CPUs removes the lost places. */
        if ((__s64)(now - last) > RESERVATION_NS &&
            __sync_val_compare_and_swap(&places->last_ns, last, now) == last) {
                __sync_fetch_and_add(&places->count, -before);
                return 0;
        }
        places->last_ns = now;
        return before;
}

static __noinline int unreserve(__u32 slot)
{
        struct sb_adopting *places = bpf_map_lookup_elem(&adopting, &slot);

        if (!places)
                return 0;
        places->last_ns = bpf_ktime_get_ns();
        /* The place may have been removed as lost. */
        if (__sync_fetch_and_add(&places->count, -1) <= 0)
                __sync_fetch_and_add(&places->count, 1);
        return 0;
}

/* Returns the flow's place, if it has one. */
static __always_inline void give_back(struct sb_owned *flow)
{
        __u8 slot = flow->slot;

        if (!slot)
                return;
        flow->slot = 0;
        unreserve(slot);
}

/*
 * Whether the flow's share of the queue (SB_QUEUE_WHOLE) is used up. The kernel admits one more than the
 * limit: sk_acceptq_is_full(), include/net/sock.h.
 */
static __always_inline int is_full(__u64 taken, __u64 limit, __u8 share)
{
        __u64 room = (limit + 1) * (share < SB_QUEUE_WHOLE ? share : SB_QUEUE_WHOLE) / 100;

        return share && taken >= (room ? room : 1);
}

#endif
