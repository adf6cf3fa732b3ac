/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Packets that come in again. A clone of a packet is queued behind it, and comes in when the kernel has done its work on
 * the packet. skb->mark says how far a clone has come; packets from the wire have none.
 */
#ifndef NODE_AGAIN_H
#define NODE_AGAIN_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define SKB_MARK_CURED     0x5b000001
#define SKB_MARK_CONFIRMED 0x5b000002
#define SKB_MARK_BEHIND    0x5b000003
#define SKB_MARK_AFTER     0x5b000004
#define SKB_MARK_INTRODUCE 0x5b000005 /* becomes the introduction to its client */
#define SKB_MARK_HEARD     0x5b000006 /* becomes the answer to its client */

/*
 * Queues a clone of the handoff packet behind it. Not inlined: the verifier allows no pointer arithmetic on the
 * context, which the compiler would share between uses of one field.
 */
static __noinline int come_again(struct __sk_buff *skb, __u32 skb_mark)
{
        int err;

        skb->mark = skb_mark;
        err = bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
        skb->mark = 0;
        return err;
}

#endif
