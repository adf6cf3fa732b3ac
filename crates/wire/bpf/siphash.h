/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* SipHash-2-4 (Aumasson and Bernstein, 2012) of messages whose length is a multiple of 4 bytes. */
#ifndef SWITCHBACK_SIPHASH_H
#define SWITCHBACK_SIPHASH_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"

/* The state under a key of zeroes. */
#define SB_SIPHASH_V0 0x736f6d6570736575ULL
#define SB_SIPHASH_V1 0x646f72616e646f6dULL
#define SB_SIPHASH_V2 0x6c7967656e657261ULL
#define SB_SIPHASH_V3 0x7465646279746573ULL

#define SB_ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))

#define SB_SIPROUND(v0, v1, v2, v3)                                                                          \
        do {                                                                                                 \
                v0 += v1;                                                                                    \
                v2 += v3;                                                                                    \
                v1 = SB_ROTL(v1, 13) ^ v0;                                                                   \
                v3 = SB_ROTL(v3, 16) ^ v2;                                                                   \
                v0 = SB_ROTL(v0, 32);                                                                        \
                v2 += v1;                                                                                    \
                v0 += v3;                                                                                    \
                v1 = SB_ROTL(v1, 17) ^ v2;                                                                   \
                v3 = SB_ROTL(v3, 21) ^ v0;                                                                   \
                v2 = SB_ROTL(v2, 32);                                                                        \
        } while (0)

/* `words` is a constant at every call, so that the loop unrolls. */
static __always_inline __u64 sb_siphash(const struct sb_key *key, const __u32 *words, const int count)
{
        __u64 v0 = key->k0 ^ SB_SIPHASH_V0;
        __u64 v1 = key->k1 ^ SB_SIPHASH_V1;
        __u64 v2 = key->k0 ^ SB_SIPHASH_V2;
        __u64 v3 = key->k1 ^ SB_SIPHASH_V3;
        __u64 m;

#pragma unroll
        for (int i = 0; i + 1 < count; i += 2) {
                m = words[i] | (__u64)words[i + 1] << 32;
                v3 ^= m;
                SB_SIPROUND(v0, v1, v2, v3);
                SB_SIPROUND(v0, v1, v2, v3);
                v0 ^= m;
        }
        m = (__u64)(count * 4) << 56;
        if (count & 1)
                m |= words[count - 1];
        v3 ^= m;
        SB_SIPROUND(v0, v1, v2, v3);
        SB_SIPROUND(v0, v1, v2, v3);
        v0 ^= m;
        v2 ^= 0xff;
        SB_SIPROUND(v0, v1, v2, v3);
        SB_SIPROUND(v0, v1, v2, v3);
        SB_SIPROUND(v0, v1, v2, v3);
        SB_SIPROUND(v0, v1, v2, v3);
        return v0 ^ v1 ^ v2 ^ v3;
}

#endif
