/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Reading and writing as many bytes of a packet as the packet says. Verifiers of Linux before 6.8 learn no lower bound from
 * a comparison with 0, so the length is compared as one less.
 */
#ifndef SWITCHBACK_BYTES_H
#define SWITCHBACK_BYTES_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __always_inline __u32 sb_one_less(__u32 len)
{
        len--;
        /* So that the compiler compares this number, and not the length itself. */
        asm volatile("" : "+r"(len));
        return len;
}

/* Reads `len` bytes, 1 to `most`, at offset `at`. Less than zero on errors. */
static __always_inline long sb_load_some(struct __sk_buff *skb, __u32 at, void *to, __u32 len,
                                         const __u32 most)
{
        __u32 less = sb_one_less(len);

        return less < most ? bpf_skb_load_bytes(skb, at, to, less + 1) : -1;
}

/* Writes `len` bytes, 1 to `most`, at offset `at`. Less than zero on errors. */
static __always_inline long sb_store_some(struct __sk_buff *skb, __u32 at, const void *from, __u32 len,
                                          const __u32 most)
{
        __u32 less = sb_one_less(len);

        return less < most ? bpf_skb_store_bytes(skb, at, from, less + 1, 0) : -1;
}

/* The same in an XDP program. */
static __always_inline long sb_xdp_load_some(struct xdp_md *ctx, __u32 at, void *to, __u32 len,
                                             const __u32 most)
{
        __u32 less = sb_one_less(len);

        return less < most ? bpf_xdp_load_bytes(ctx, at, to, less + 1) : -1;
}

#endif
