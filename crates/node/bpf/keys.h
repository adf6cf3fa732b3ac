/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Operations on maps by flow. Linux before 6.2 takes no key that a function which is not static got as an
 * argument, so they copy it.
 */
#ifndef NODE_KEYS_H
#define NODE_KEYS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "packet.h"

static __always_inline struct sb_endpoint vip_of(const struct sb_flow *flow)
{
        struct sb_endpoint vip = {.port = flow->vip_port};

        sb_copy_v6(vip.address, flow->vip);
        return vip;
}

static __always_inline void *sb_flow_lookup(void *map, const struct sb_flow *flow)
{
        struct sb_flow key = *flow;

        return bpf_map_lookup_elem(map, &key);
}

static __always_inline long sb_flow_update(void *map, const struct sb_flow *flow, const void *value)
{
        struct sb_flow key = *flow;

        return bpf_map_update_elem(map, &key, value, BPF_ANY);
}

static __always_inline long sb_flow_delete(void *map, const struct sb_flow *flow)
{
        struct sb_flow key = *flow;

        return bpf_map_delete_elem(map, &key);
}

#endif
