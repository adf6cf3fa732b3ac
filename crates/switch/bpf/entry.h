/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Access to entries of the flow maps. The kernel gives an element of an LRU map to another flow as soon as it
 * is deleted, replaced or evicted, even while a program on another CPU holds a pointer to its value
 * (docs/decisions/0035). So the program works on a copy, which is valid if the flow still has the element
 * after copying, and checks that once more before it writes to the element.
 */
#ifndef SWITCH_ENTRY_H
#define SWITCH_ENTRY_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "packet.h"
#include "switch_maps.h"

/* Attempts to copy an entry. An entry that is being replaced is in another element at the next attempt. */
#define ENTRY_LOOKS 3

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct sb_flow_entry);
} entries_in_hand SEC(".maps");

static __always_inline int is_still_at(void *map, const struct sb_flow *flow,
                                       const struct sb_flow_entry *place)
{
        return bpf_map_lookup_elem(map, flow) == place;
}

/* What read_entry() has copied, or new_entry() begun. */
static __always_inline struct sb_flow_entry *entry_in_hand(void)
{
        __u32 zero = 0;

        return bpf_map_lookup_elem(&entries_in_hand, &zero);
}

/* Copies the flow's entry. Returns NULL if there is none; `place` is the element in the map. */
static __always_inline struct sb_flow_entry *read_entry(void *map, const struct sb_flow *flow,
                                                        struct sb_flow_entry **place)
{
        struct sb_flow_entry *entry = entry_in_hand();

        if (!entry)
                return NULL;
#pragma unroll
        for (int i = 0; i < ENTRY_LOOKS; i++) {
                *place = bpf_map_lookup_elem(map, flow);
                if (!*place)
                        return NULL;
                *entry = **place;
                if (is_still_at(map, flow, *place))
                        return entry;
        }
        return NULL;
}

/* An entry to be filled, in the place of what read_entry() has copied. */
static __always_inline struct sb_flow_entry *new_entry(void)
{
        return sb_zeroed(&entries_in_hand, sizeof(struct sb_flow_entry));
}

/* Writes the mark of the copy to the map. */
static __always_inline void move_mark(struct sb_flow_entry *place, const struct sb_flow_entry *entry)
{
        place->next = entry->next;
        place->framing = entry->framing;
        place->begins = entry->begins;
        place->tries = entry->tries;
        place->requests = entry->requests;
        place->heads = entry->heads;
}

#endif
