/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Describing flows for the agent, which sends lists of them to switches. */
#ifndef NODE_LIST_H
#define NODE_LIST_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "handoff.h"
#include "intake.h"
#include "maps.h"
#include "node_maps.h"

#define DESCRIBED_MAX 240

struct described {
        struct sb_flow flow;
        struct sb_flow_state state;
        __u16 is_owned; /* a node of this machine has the flow, in this state */
        __u16 node;     /* its number */
};

/* The agent writes the keys here and runs describe_flows(). */
struct described described[DESCRIBED_MAX];
__u32 described_len;

static long describe_one(__u32 index, void *ctx)
{
        struct described *here;
        struct sb_owned *flow;

        (void)ctx;
        if (index >= DESCRIBED_MAX)
                return 1;
        here = &described[index];
        flow = bpf_map_lookup_elem(&owned, &here->flow);
        here->is_owned = flow && flow->state == SB_OWN_OPEN;
        if (here->is_owned) {
                here->node = flow->node;
                describe(&here->state, flow);
        }
        return 0;
}

SEC("syscall")
int describe_flows(void *ctx)
{
        (void)ctx;
        bpf_loop(described_len, describe_one, NULL, 0);
        return 0;
}

#endif
