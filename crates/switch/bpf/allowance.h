/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Allowance for questions to nodes. Anybody can provoke a question with a forged packet, and each question
 * costs a packet to every node and room for a request. What is not used in a period is saved for some time, for
 * the flows that come all at once when another switch dies. The networks that packets claim to come from share
 * it: those that asked in the last period have equal shares of one half, the other half is for new ones.
 */
#ifndef SWITCH_ALLOWANCE_H
#define SWITCH_ALLOWANCE_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "packet.h"
#include "siphash.h"
#include "switch_maps.h"

#define ALLOWANCE_NETWORKS 1024
#define ALLOWANCE_SAVED    10 /* periods whose questions may be asked at once */

struct allowance {
        __u64 period;
        __u32 left;
        __u32 networks; /* number of networks that have asked in the period */
        __u32 share;    /* of each network */
        __u32 reserved;
};

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct allowance);
} allowances SEC(".maps");

/*
 * Networks in slots by a keyed hash, which nobody outside can predict. Networks in the same slot share one
 * part.
 */
struct network_allowance {
        __u64 period;
        __u64 used;
};

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, ALLOWANCE_NETWORKS);
        __type(key, __u32);
        __type(value, struct network_allowance);
} network_allowances SEC(".maps");

/* A network is 24 bits of an IPv4 address, or 56 bits of an IPv6 address. */
static __always_inline __u32 network_of(const struct sb_flow *flow, const struct sb_switch_settings *s)
{
        const __u32 *client = (const __u32 *)flow->client;
        __u32 words[4] = {};

        words[0] = client[0];
        words[1] = client[1] & bpf_htonl(0xffffff00);
        if (sb_is_v4(flow->client))
                words[3] = client[3] & bpf_htonl(0xffffff00);
        return (__u32)sb_siphash(&s->sign, words, 4) & (ALLOWANCE_NETWORKS - 1);
}

static __always_inline void begin_period(struct allowance *all, __u64 period, __u32 questions)
{
        __u64 most = (__u64)ALLOWANCE_SAVED * questions, passed = period - all->period;
        __u32 sharing = passed == 1 && all->networks ? all->networks : 1;
        __u64 left = passed < ALLOWANCE_SAVED ? all->left + passed * questions : most;

        all->left = left < most ? left : most;
        all->share = all->left / 2 / sharing;
        if (all->share == 0)
                all->share = 1;
        all->period = period;
        all->networks = 0;
}

static __noinline int may_ask(const struct sb_flow *flow, const struct sb_switch_settings *s)
{
        __u64 period = bpf_ktime_get_ns() / s->period;
        struct network_allowance *network;
        struct allowance *all;
        __u32 index = 0;

        all = bpf_map_lookup_elem(&allowances, &index);
        index = network_of(flow, s);
        network = bpf_map_lookup_elem(&network_allowances, &index);
        if (!all || !network)
                return 0;
        if (all->period != period)
                begin_period(all, period, s->questions);
        if (network->period != period) {
                network->period = period;
                network->used = 0;
                all->networks++;
        }
        if (network->used >= all->share || all->left == 0)
                return 0;
        network->used++;
        all->left--;
        return 1;
}

#endif
