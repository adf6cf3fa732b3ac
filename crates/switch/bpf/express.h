/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Plain requests of a flow that has a node. An automaton that user space compiles from the routes reads the
 * head. If it accepts the head, and the flow's node belongs to the pool that it names, the program forwards
 * the packet and moves the mark behind it. All other requests go to the L7 thread.
 */
#ifndef SWITCH_EXPRESS_H
#define SWITCH_EXPRESS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "bytes.h"
#include "counters.h"
#include "handoff.h"
#include "maps.h"
#include "parse.h"
#include "switch_maps.h"

/* Tables of the automaton. User space writes them through shared memory. */
__u16 transitions[SB_EXPRESS_STATES * SB_EXPRESS_COLUMNS];
__u16 classes[SB_EXPRESS_STATES];
__u16 verdicts[SB_EXPRESS_VERDICTS];
/* Members of pools: a bit for each node, by bank and pool. */
__u64 members[SB_EXPRESS_POOLS * SB_NODES / 64];

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, SB_NODES);
        __type(key, __u32);
        __type(value, __u64);
} express_by_node SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, SB_EXPRESS_SERVICES);
        __type(key, __u32);
        __type(value, __u64);
} express_by_service SEC(".maps");

#define EXPRESS_STEP 16

struct express_walk {
        __u32 at;
        __u32 len;
        __u16 next; /* last transition */
        __u16 path_class;
        __u16 host_class;
        __u16 persistence; /* SB_EXPRESS_KEEP_ALIVE, SB_EXPRESS_LAST, or both */
};

/*
 * A head behind its record for the access log. `bytes` is a power of two that holds the longest head. The walk is not
 * on the stack, where the verifier would follow the values of each of its steps.
 */
struct head_copy {
        struct sb_express_request request;
        __u8 bytes[1024];
        struct express_walk walk;
};

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct head_copy);
} head_copies SEC(".maps");

static long express_step(__u32 index, struct head_copy **place)
{
        struct head_copy *head = *place;
        struct express_walk *walk = &head->walk;
        __u32 at = walk->at, len = walk->len, next = walk->next;

#pragma unroll
        for (int i = 0; i < EXPRESS_STEP; i++) {
                __u32 state = next & SB_EXPRESS_STATE;
                __u32 byte, place;

                if (at >= len || state == 0)
                        break;
                byte = head->bytes[at & (sizeof(head->bytes) - 1)];
                place = state << 7 | byte;
                /* The mask comes last: verifiers before Linux 6.8 forget the bounds of what `|` combines. */
                asm volatile("" : "+r"(place));
                next = byte & 0x80 ? 0 : transitions[place & (SB_EXPRESS_STATES * SB_EXPRESS_COLUMNS - 1)];
                switch (next & SB_EXPRESS_EVENT) {
                case SB_EXPRESS_END_OF_TARGET:
                        walk->path_class = classes[state];
                        break;
                case SB_EXPRESS_END_OF_HOST:
                        walk->host_class = classes[state];
                        break;
                case SB_EXPRESS_KEEP_ALIVE:
                case SB_EXPRESS_LAST:
                        walk->persistence |= next & SB_EXPRESS_EVENT;
                        break;
                }
                at++;
        }
        walk->at = at;
        walk->next = next;
        return at >= len || (next & SB_EXPRESS_STATE) == 0;
}

/* What read_plain() has found: the pool in the low half, and flags. */
#define PLAIN_NOT  -1
#define PLAIN_POOL 0xffff
#define PLAIN_HEAD 0x10000 /* the method is HEAD */
#define PLAIN_LAST 0x20000 /* the client announces no further request */

/*
 * The pool for the packet's data, if that is one plain head for a pool whose requests the program may dispatch.
 */
static __noinline int read_plain(struct xdp_md *ctx, const struct packet *p, const struct sb_vip *vip)
{
        __u32 zero = 0, len = p->payload, pool;
        struct head_copy *head = bpf_map_lookup_elem(&head_copies, &zero);
        struct express_walk *walk;

        if (!head || vip->start == 0)
                return PLAIN_NOT;
        if (sb_xdp_load_some(ctx, (__u32)p->start + p->l3_len + p->tcp_len, head->bytes, len,
                             SB_EXPRESS_HEAD_MAX))
                return PLAIN_NOT;
        walk = &head->walk;
        *walk = (struct express_walk){.len = len, .next = vip->start};
        bpf_loop(SB_EXPRESS_HEAD_MAX / EXPRESS_STEP + 1, express_step, &head, 0);
        if ((walk->next & SB_EXPRESS_EVENT) != SB_EXPRESS_ACCEPT || walk->at != walk->len)
                return PLAIN_NOT;
        /* HTTP/1.0 with `keep-alive`, or `close` beside it. */
        if (walk->persistence == (SB_EXPRESS_KEEP_ALIVE | SB_EXPRESS_LAST))
                return PLAIN_NOT;
        pool = vip->verdicts + (__u32)walk->path_class * vip->hosts + walk->host_class;
        pool = verdicts[pool & (SB_EXPRESS_VERDICTS - 1)];
        if (pool >= SB_EXPRESS_POOLS / 2)
                return PLAIN_NOT;
        if (head->bytes[0] == 'H')
                pool |= PLAIN_HEAD;
        if (walk->persistence == SB_EXPRESS_LAST)
                pool |= PLAIN_LAST;
        return pool;
}

/* SB_HANDOVER_* of a plain request that say how it can be recovered if its server goes away. */
static __always_inline __u8 recovery_of(int plain)
{
        return SB_HANDOVER_AGAIN | (plain & PLAIN_LAST ? SB_HANDOVER_LAST : 0);
}

/* Whether the program may forward requests for the pool on flows of the node. */
static __always_inline int is_member(const struct sb_vip *vip, __u32 pool, __u32 node)
{
        __u32 word;

        if (node >= SB_NODES)
                return 0;
        pool += (vip->bank & 1) * (SB_EXPRESS_POOLS / 2);
        word = (pool * SB_NODES + node) / 64;
        asm volatile("" : "+r"(word));
        return members[word & (SB_EXPRESS_POOLS * SB_NODES / 64 - 1)] >> (node & 63) & 1;
}

/* SB_OBSERVE_*, set by user space. */
__u32 observe;

/*
 * One ring for each CPU. Submitting wakes nobody. User space fills the outer array while it observes
 * requests.
 */
struct observed_ring {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 1 << 20);
};

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
        __uint(max_entries, 1);
        __type(key, __u32);
        __array(values, struct observed_ring);
} observed_rings SEC(".maps");

/* Reports the request whose head read_plain() has read. The entry counts the request already. */
static __noinline void tell_request(const struct packet *p, const struct sb_flow_entry *entry, int first)
{
        __u32 zero = 0, cpu = bpf_get_smp_processor_id(), len = p->payload;
        struct head_copy *head = bpf_map_lookup_elem(&head_copies, &zero);
        void *ring = bpf_map_lookup_elem(&observed_rings, &cpu);
        struct sb_express_request *request;

        if (!head || !ring || len > SB_EXPRESS_HEAD_MAX)
                return;
        request = &head->request;
        request->flow = p->flow;
        request->origin = entry->origin;
        request->begins = p->seq;
        request->node = entry->node;
        request->number = entry->requests;
        request->len = len;
        request->first = first;
        request->at_ns = bpf_ktime_get_ns();
        if (bpf_ringbuf_output(ring, head, sizeof(*request) + len, BPF_RB_NO_WAKEUP))
                count(SB_SWITCH_UNOBSERVED);
}

#endif
