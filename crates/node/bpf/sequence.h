/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* TCP sequence numbers, which wrap: RFC 9293 section 3.4. */
#ifndef NODE_SEQUENCE_H
#define NODE_SEQUENCE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __always_inline int is_before(__u32 a, __u32 b)
{
        return (__s32)(a - b) < 0;
}

static __always_inline __u32 later_of(__u32 a, __u32 b)
{
        return is_before(a, b) ? b : a;
}

#endif
