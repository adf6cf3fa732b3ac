/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Nodes that the L7 thread has chosen ahead, in the order in which first requests are to take them. CPUs take
 * them one after the other, and the thread may withdraw them at any time.
 */
#ifndef SWITCH_CHOICES_H
#define SWITCH_CHOICES_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "switch_maps.h"

/* User space writes them through shared memory. */
struct sb_choices choices[SB_CHOICE_QUEUES];
/* Index of the queue of each pool at each VIP, or SB_NO_CHOICES. */
__u16 choice_places[SB_CHOICE_PLACES];

/*
 * Accept queue of each node's listener at each VIP, after the last adoption that the program has heard of: length in
 * the high half, limit in the low half. User space reads them.
 */
__u32 listener_queues[SB_LISTENERS * SB_NODES];

/* Adoptions that the program has heard of. */
struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, SB_NODES);
        __type(key, __u32);
        __type(value, __u64);
} placed_by_node SEC(".maps");

/* Attempts to take a choice, beside other CPUs. */
#define CHOICE_LOOKS 4

/* The queue of a pool at a VIP; NULL if the L7 thread has to choose. */
static __always_inline struct sb_choices *choices_of(const struct sb_vip *vip, __u32 pool)
{
        __u32 place = vip->places + pool, queue;

        if (place >= SB_CHOICE_PLACES)
                return NULL;
        queue = choice_places[place];
        if (queue >= SB_CHOICE_QUEUES)
                return NULL;
        return &choices[queue];
}

/*
 * Takes the next choice at this time (CLOCK_MONOTONIC, in ns); less than zero if there is none. A number is never used
 * for two choices, so a counter that has not changed means that the choice read is still the next one.
 */
static __always_inline int take_choice(struct sb_choices *queue, __u64 now, __u16 *left)
{
        if (now >= queue->until)
                return -1;
#pragma unroll
        for (int i = 0; i < CHOICE_LOOKS; i++) {
                __u64 counts = *(volatile __u64 *)&queue->counts;
                __u32 taken = (__u32)counts, made = counts >> 32;
                __u16 node = *(volatile __u16 *)&queue->nodes[taken & (SB_CHOICES - 1)];
                __u64 next = (__u64)made << 32 | (__u32)(taken + 1);

                if (taken == made)
                        return -1;
                if (__sync_val_compare_and_swap(&queue->counts, counts, next) != counts)
                        continue;
                *left = made - taken - 1;
                return node;
        }
        return -1;
}

#endif
