/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Names of session cookies. The first characters of the name of the server's cookie are replaced by a code of
 * the same length on the way to the client (follow.h), which says which node has the session, and restored on
 * the way to the server (restore.h). Sequence numbers do not change. The node remembers only where names were
 * changed, for retransmissions.
 *
 * The end of a packet can cut a name. Only the next packet shows whether it is the session's, so the first is
 * kept back, and its sender sends it again.
 */
#ifndef NODE_SESSION_COOKIE_H
#define NODE_SESSION_COOKIE_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/tcp.h>
#include <bpf/bpf_helpers.h>

#include "bytes.h"
#include "counters.h"
#include "framing.h"
#include "handoff.h"
#include "maps.h"
#include "messages.h"
#include "node_maps.h"

/* Number of times that a packet with a cut name is kept back. Then the name stays unchanged. */
#define CUT_TRIES 4

/* Data of a packet: offsets and sequence number. */
struct data_place {
        __u32 tcp;
        __u32 start;
        __u32 seq;
        __u32 len;
        __u32 done; /* the receiver has everything before this sequence number */
        __u32 last; /* no data follows */
};

/* The sessions of the pool of the flow's last request; NULL if it has none. Not inlined, because of the stack. */
static __noinline struct sb_persistence *persistence_of(const struct sb_owned *flow)
{
        const struct sb_session *session = &flow->cookies.session;
        struct sb_pool_here key = {.node = flow->node};

        if (session->pool[0] == 0)
                return NULL;
        __builtin_memcpy(key.code, session->pool, sizeof(session->pool));
        return bpf_map_lookup_elem(&persistence, &key);
}

/* Code as a number, in the order of memory. */
static __always_inline __u64 code_of(const __u8 code[SB_CODE_LEN])
{
        __u64 word;

        __builtin_memcpy(&word, code, sizeof(word));
        return word;
}

/*
 * Writes the part of the code that lies in the packet, and corrects the TCP checksum. `at` is the code's
 * sequence number.
 */
__noinline int write_code(struct __sk_buff *skb, const struct data_place *data, __u32 at, __u64 code)
{
        __u64 before = 0;
        __u32 skipped = 0, from, len;
        __s32 offset;
        __s64 sum;

        if (!data)
                return -1;
        offset = at - data->seq;
        if (offset <= -SB_CODE_LEN || offset >= (__s32)data->len)
                return 0;
        if (offset < 0) {
                skipped = -offset;
                offset = 0;
        }
        len = SB_CODE_LEN - skipped;
        if (len > data->len - offset)
                len = data->len - offset;
        code >>= 8 * (skipped & 7);
        if (len < sizeof(code))
                code &= (1ULL << 8 * len) - 1;
        from = data->start + offset;
        if (sb_load_some(skb, from, &before, len, sizeof(before)))
                return -1;
        sum = bpf_csum_diff((__be32 *)&before, sizeof(before), (__be32 *)&code, sizeof(code), 0);
        /* The checksum sums pairs of bytes; data begins at an even offset. */
        if (offset & 1) {
                sum = (sum & 0xffff) + (sum >> 16 & 0xffff);
                sum = (sum & 0xffff) + (sum >> 16);
                sum = __builtin_bswap16((__u16)sum);
        }
        if (bpf_l4_csum_replace(skb, data->tcp + offsetof(struct tcphdr, check), 0, sum, 0) ||
            sb_store_some(skb, from, &code, len, sizeof(code)))
                return -1;
        return 0;
}

/* Writes the parts of all codes that lie in the packet. Less than zero if memory is short. */
static __always_inline int write_codes(struct __sk_buff *skb, const struct data_place *data,
                                       const struct sb_changed *changed, __u64 code)
{
        for (__u32 i = 0; i < SB_CHANGED_MAX; i++) {
                if (i < changed->count && write_code(skb, data, changed->at[i], code))
                        return -1;
        }
        return 0;
}

/* Remembers a name at `at`. Forgets those that end before `done`. */
static __always_inline int remember(struct sb_changed *changed, __u32 at, __u32 done)
{
        __u32 kept = 0;

        for (__u32 i = 0; i < SB_CHANGED_MAX; i++) {
                __u32 other = changed->at[i];

                if (i < changed->count && (__s32)(other + SB_CODE_LEN - done) > 0)
                        changed->at[kept++ & (SB_CHANGED_MAX - 1)] = other;
        }
        changed->count = kept;
        if (kept == SB_CHANGED_MAX)
                return -1;
        changed->at[kept & (SB_CHANGED_MAX - 1)] = at;
        changed->count = kept + 1;
        return 0;
}

/*
 * The walk has found the wanted name. `base` is the sequence number that offset 0 of the packet would have.
 */
static __always_inline void note_name(struct framing_walk *w, struct sb_changed *changed, __u32 base,
                                      __u32 done, enum sb_node_counter counter)
{
        w->followed = FOLLOWED_MORE;
        count(remember(changed, base + w->at - w->name_len, done) ? SB_NODE_COOKIE_MISSED : counter);
}

/* Whether the packet ends in what may be the wanted name. */
static __always_inline int is_cut(const struct sb_framing *framing)
{
        return framing->state == SB_FRAMING_NAME && framing->matched != 0;
}

/* Leaves the cut name unchanged. */
static __always_inline void give_up_name(struct sb_framing *framing, struct sb_changed *changed)
{
        framing->state = SB_FRAMING_OTHER;
        framing->matched = 0;
        changed->tries = 0;
        count(SB_NODE_COOKIE_MISSED);
}

/* Whether a retransmission is kept back because of its cut name. */
static __always_inline int is_undecided(struct sb_framing *framing, struct sb_changed *changed,
                                        const struct data_place *data)
{
        if (changed->tries == 0 || !is_cut(framing) ||
            (__s32)(data->seq + data->len - changed->undecided) <= 0)
                return 0;
        if (++changed->tries > CUT_TRIES) {
                give_up_name(framing, changed);
                return 0;
        }
        count(SB_NODE_COOKIE_WAITED);
        return 1;
}

#endif
