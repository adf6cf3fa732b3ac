/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * SYN cookies (RFC 4987 section 3.6). Their key is the cluster's and not the kernel's own, so that any switch
 * can check them.
 *
 * With timestamps, the TSval of the SYN-ACK carries the options of the SYN and, with the cookie, the process
 * that answered. The client echoes it:
 *
 *     TSval   mss 16 | wscale 4 | sack 1 | ecn 1 | instance 10
 *     cookie  slot 1 | switch 4 | MAC 27
 *
 * A window scale of 15 says that the SYN offered none. Without timestamps (Windows by default) the sequence
 * number carries everything:
 *
 *     cookie  slot 1 | combination of options 3 | MAC 28
 *
 * It has no room for the process that answered. But the slot tells the epoch, and in an epoch that began
 * after this process started no other process of this switch has made cookies.
 *
 * The slot names one of two keys, that of this epoch or that of the last one, so that exactly one MAC is
 * tried.
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
#define COOKIE_SWITCH_SHIFT 27

struct syn_cookie {
        __u32 isn;
        __u32 tsval;
};

/* Which process has made a cookie. */
enum maker {
        MADE_BY_NOBODY,
        MADE_HERE,
        MADE_ANYWHERE, /* by this process or by another one */
        MADE_ELSEWHERE,
};

/*
 * The maker of a cookie with timestamps, whose process and switch differ from ours in these bits, fewer than
 * SB_INSTANCES. Without a branch: the verifier of Linux 6.1 forgets, at the next call of a function, that it knows the
 * constants of two branches, and removes the code for one of them.
 */
static __always_inline enum maker maker_by(__u32 difference)
{
        return MADE_HERE + (MADE_ELSEWHERE - MADE_HERE) * ((difference + SB_INSTANCES - 1) / SB_INSTANCES);
}

/* Options of a connection without timestamps. */
struct combination {
        __u16 mss;
        __u8 options; /* SB_SYN_* */
        __u8 wscale;
};

/* In ascending order of preference. Windows has a window scale of 8, most other systems have 7. */
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

/* Index of the best combination of which the SYN offers everything. */
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
                                             int with_timestamps, __u32 switch_number)
{
        struct sb_cookie_input input = {
            .flow = *flow,
            .client_isn = bpf_htonl(client_isn),
            .settled = settled,
            .with_timestamps = with_timestamps,
            .switch_number = with_timestamps ? switch_number : 0,
        };
        __u32 mac = (__u32)cookie_mac(slot ? &s->cookie_keys[1] : &s->cookie_keys[0], &input);

        if (with_timestamps)
                return slot << 31 | switch_number << COOKIE_SWITCH_SHIFT |
                       (mac & ((1 << COOKIE_SWITCH_SHIFT) - 1));
        return slot << 31 | settled << 28 | (mac & 0x0fffffff);
}

/* Makes the cookie of a SYN. Reduces `syn` and `ecn` to what the cookie carries. */
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
        cookie.isn = cookie_assemble(s, slot, flow, client_isn, settled, !!(syn->seen & SB_SYN_TSTAMP),
                                     s->switch_number & (SB_COOKIE_SWITCHES - 1));
        return cookie;
}

/* Checks whether `isn` is a cookie for this client. If so, writes the options of the handshake to `entry`. */
static __always_inline enum maker cookie_check(const struct sb_switch_settings *s, const struct sb_flow *flow,
                                               __u32 client_isn, __u32 isn,
                                               const struct sb_tcp_options *options,
                                               struct sb_flow_entry *entry)
{
        int with_timestamps = !!(options->seen & SB_SYN_TSTAMP);
        __u32 settled = with_timestamps ? options->tsecr : isn >> 28 & (COOKIE_COMBINATIONS - 1);
        const struct combination *c = &combinations[settled & (COOKIE_COMBINATIONS - 1)];
        __u32 wscale = c->wscale, number = isn >> COOKIE_SWITCH_SHIFT & (SB_COOKIE_SWITCHES - 1);
        enum maker maker;

        if (cookie_assemble(s, isn >> 31, flow, client_isn, settled, with_timestamps, number) != isn)
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
                maker =
                    maker_by(((settled ^ s->instance) | (number ^ s->switch_number)) & (SB_INSTANCES - 1));
        } else {
                entry->mss = c->mss;
                entry->options = c->options;
                maker = MADE_HERE + (MADE_ANYWHERE - MADE_HERE) * (s->shared_slots >> (isn >> 31) & 1);
        }
        /*
         * RFC 9293 section 3.7.1: every IPv6 host can take that much. The node's kernel adopts no smaller
         * MSS.
         */
        if (!sb_is_v4(flow->client) && entry->mss < COOKIE_MIN_MSS_V6)
                entry->mss = COOKIE_MIN_MSS_V6;
        entry->wscale = entry->options & SB_SYN_WSCALE ? wscale << 4 | OUR_WSCALE : 0;
        return maker;
}

#endif
