/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Clones of packets. A clone is queued behind its packet, and comes in when the kernel has processed the
 * packet. skb->mark says what the clone is for; packets from the wire have 0.
 */
#ifndef NODE_AGAIN_H
#define NODE_AGAIN_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "maps.h"
#include "tcx.h"

#define SKB_MARK_CURED     0x5b000001
#define SKB_MARK_CONFIRMED 0x5b000002
#define SKB_MARK_BEHIND    0x5b000003
#define SKB_MARK_AFTER     0x5b000004
#define SKB_MARK_INTRODUCE 0x5b000005 /* becomes the introduction to its client */
#define SKB_MARK_HEARD     0x5b000006 /* becomes HEARD */

/* Goes on with the handshake that its adoption replays. */
#define SKB_MARK_REPLAY 0x5b000020
/* BEHIND once more, because that handshake is not over. */
#define SKB_MARK_FARTHER 0x5b000040
/* In these two: how often the clone has waited for nothing. */
#define SKB_MARK_TURNS 0xf

/*
 * Queues a clone of the handoff packet behind it. Not inlined: the compiler would share pointer arithmetic on
 * the context between uses of one field, which the verifier forbids.
 */
static __noinline int come_again(struct __sk_buff *skb, __u32 skb_mark)
{
        int err;

        skb->mark = skb_mark;
        err = bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
        skb->mark = 0;
        return err;
}

static __always_inline int is_replay(__u32 skb_mark)
{
        return (skb_mark & ~SKB_MARK_TURNS) == SKB_MARK_REPLAY;
}

/* Whether the clone has waited for an adoption to be over. */
static __always_inline int is_behind(__u32 skb_mark)
{
        return skb_mark == SKB_MARK_BEHIND || (skb_mark & ~SKB_MARK_TURNS) == SKB_MARK_FARTHER;
}

/* Whether the clone may wait once more. */
static __always_inline int has_turns(__u32 skb_mark)
{
        return (skb_mark & SKB_MARK_TURNS) != SKB_MARK_TURNS;
}

/*
 * Queues a clone of a packet that meets an adoption under way. A replayed handshake takes two turns, and some more with a
 * server behind an interface.
 */
static __always_inline int come_behind(struct __sk_buff *skb, __u32 skb_mark)
{
        __u32 next = SKB_MARK_BEHIND;

        if (skb_mark == SKB_MARK_BEHIND)
                next = SKB_MARK_FARTHER;
        else if (is_behind(skb_mark))
                next = skb_mark + 1;
        return come_again(skb, next) ? drop(SB_NODE_DROP_MALFORMED) : TCX_DROP;
}

#endif
