/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * SYN cookies (RFC 4987 section 3.6) that any switch of the cluster can check, because the key is the cluster's and
 * not the kernel's own.
 *
 * With timestamps, the TSval of our SYN-ACK carries what the SYN offered and which process answered, and the client
 * echoes it:
 *
 *     TSval   mss 16 | wscale 4 | sack 1 | ecn 1 | instance 10
 *     cookie  slot 1 | MAC 31
 *
 * A window scale of 15 says that none was offered. Without timestamps (Windows by default), all of it must fit into the
 * sequence number:
 *
 *     cookie  slot 1 | combination of options 3 | MAC 28
 *
 * There is no room for the process that answered, but the slot tells when that was: in an epoch that has begun after this
 * process, no other one has.
 *
 * The slot names one of two keys, this epoch's and the last one's, so that exactly one MAC is tried.
 */
#ifndef SWITCH_SYN_COOKIE_H
#define SWITCH_SYN_COOKIE_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "handoff.h"
#include "packet.h"
#include "siphash.h"
#include "switch_maps.h"

#define COOKIE_NO_WSCALE    15
#define OUR_WSCALE          7
#define COOKIE_MIN_MSS_V6   1220
#define COOKIE_COMBINATIONS 8

struct syn_cookie {
        __u32 isn;
        __u32 tsval;
};

/* Whose cookie it is. */
enum maker {
        MADE_BY_NOBODY,
        MADE_HERE,
        MADE_ANYWHERE, /* by this process or another one */
        MADE_ELSEWHERE,
};

/* What is settled with a client without timestamps. */
struct combination {
        __u16 mss;
        __u8 options; /* SB_SYN_* */
        __u8 wscale;
};

/* Each is better than those before it. Windows has a window scale of 8, most other systems have 7. */
const struct combination combinations[COOKIE_COMBINATIONS] = {
    {.mss = 536},
    {.mss = 1220},
    {.mss = 1220, .options = SB_SYN_SACK},
    {.mss = 1380, .options = SB_SYN_SACK},
    {.mss = 1380, .options = SB_SYN_SACK | SB_SYN_WSCALE, .wscale = 7},
    {.mss = 1220, .options = SB_SYN_SACK | SB_SYN_WSCALE, .wscale = 8},
    {.mss = 1380, .options = SB_SYN_SACK | SB_SYN_WSCALE, .wscale = 8},
    {.mss = 1460, .options = SB_SYN_SACK | SB_SYN_WSCALE, .wscale = 8},
};

/* The number of the best combination that has nothing that the SYN does not offer. */
static __always_inline __u32 best_combination(const struct sb_tcp_options *syn)
{
        __u32 best = 0;

#pragma unroll
        for (int i = 1; i < COOKIE_COMBINATIONS; i++) {
                const struct combination *c = &combinations[i];

                if (c->mss <= syn->mss && !(c->options & ~syn->seen) &&
                    (!(c->options & SB_SYN_WSCALE) || c->wscale == syn->wscale))
                        best = i;
        }
        return best;
}

__noinline __u64 cookie_mac(const struct sb_key *key, const struct sb_cookie_input *input)
{
        if (!key || !input)
                return 0;
        return sb_siphash(key, (const __u32 *)input, sizeof(*input) / 4);
}

static __always_inline __u32 cookie_assemble(const struct sb_switch_settings *s, __u32 slot,
                                             const struct sb_flow *flow, __u32 client_isn, __u32 settled,
                                             int with_timestamps)
{
        struct sb_cookie_input input = {
            .flow = *flow,
            .client_isn = bpf_htonl(client_isn),
            .settled = settled,
            .with_timestamps = with_timestamps,
        };
        __u32 mac = (__u32)cookie_mac(slot ? &s->cookie_keys[1] : &s->cookie_keys[0], &input);

        if (with_timestamps)
                return slot << 31 | (mac & 0x7fffffff);
        return slot << 31 | settled << 28 | (mac & 0x0fffffff);
}

/* Leaves in `syn` and `ecn` what is accepted of the offer. */
static __always_inline struct syn_cookie cookie_make(const struct sb_switch_settings *s,
                                                     const struct sb_flow *flow, __u32 client_isn,
                                                     struct sb_tcp_options *syn, int *ecn)
{
        __u32 wscale = syn->seen & SB_SYN_WSCALE ? syn->wscale : COOKIE_NO_WSCALE;
        __u32 sack = !!(syn->seen & SB_SYN_SACK);
        __u32 slot = s->cookie_slot & 1;
        struct syn_cookie cookie = {};
        __u32 settled;

        if (syn->seen & SB_SYN_TSTAMP) {
                settled = (__u32)syn->mss << 16 | wscale << 12 | sack << 11 | !!*ecn << 10 |
                          (s->instance & (SB_INSTANCES - 1));
                cookie.tsval = settled;
        } else {
                settled = best_combination(syn);
                syn->seen = combinations[settled & (COOKIE_COMBINATIONS - 1)].options;
                *ecn = 0;
        }
        cookie.isn = cookie_assemble(s, slot, flow, client_isn, settled, !!(syn->seen & SB_SYN_TSTAMP));
        return cookie;
}

/* Who has made `isn` as a cookie for this client, if anybody; then fills in what the handshake settled. */
static __always_inline enum maker cookie_check(const struct sb_switch_settings *s, const struct sb_flow *flow,
                                               __u32 client_isn, __u32 isn,
                                               const struct sb_tcp_options *options,
                                               struct sb_flow_entry *entry)
{
        int with_timestamps = !!(options->seen & SB_SYN_TSTAMP);
        __u32 settled = with_timestamps ? options->tsecr : isn >> 28 & (COOKIE_COMBINATIONS - 1);
        const struct combination *c = &combinations[settled & (COOKIE_COMBINATIONS - 1)];
        __u32 wscale = c->wscale;
        enum maker maker;

        if (cookie_assemble(s, isn >> 31, flow, client_isn, settled, with_timestamps) != isn)
                return MADE_BY_NOBODY;
        if (with_timestamps) {
                entry->mss = settled >> 16;
                wscale = settled >> 12 & 15;
                entry->options = SB_SYN_TSTAMP;
                if (settled >> 11 & 1)
                        entry->options |= SB_SYN_SACK;
                if (settled >> 10 & 1)
                        entry->options |= SB_SYN_ECN;
                if (wscale != COOKIE_NO_WSCALE)
                        entry->options |= SB_SYN_WSCALE;
                maker = (settled & (SB_INSTANCES - 1)) == s->instance ? MADE_HERE : MADE_ELSEWHERE;
        } else {
                entry->mss = c->mss;
                entry->options = c->options;
                maker = s->shared_slots >> (isn >> 31) & 1 ? MADE_ANYWHERE : MADE_HERE;
        }
        /* RFC 9293 section 3.7.1: what every IPv6 host can take; the node's kernel adopts no less. */
        if (!sb_is_v4(flow->client) && entry->mss < COOKIE_MIN_MSS_V6)
                entry->mss = COOKIE_MIN_MSS_V6;
        entry->wscale = entry->options & SB_SYN_WSCALE ? wscale << 4 | OUR_WSCALE : 0;
        return maker;
}

#endif
