/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Clones of packets. A clone is queued behind its packet, and comes in when the kernel has processed the
 * packet. skb->mark says what the clone is for; packets from the wire have 0.
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
#define SKB_MARK_HEARD     0x5b000006 /* becomes HEARD */

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

#endif
