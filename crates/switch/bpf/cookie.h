/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * SYN cookies (RFC 4987 section 3.6) that any switch of the cluster can check, because the key is the cluster's and
 * not the kernel's own.
 *
 * With timestamps, the TSval of our SYN-ACK carries what the SYN offered, and the client echoes it:
 *
 *     TSval   mss 16 | wscale 4 | sack 1 | ecn 1 | clock 10
 *     cookie  slot 1 | MAC 31
 *
 * Without (Windows by default), all of it must fit into the sequence number:
 *
 *     cookie  slot 1 | mss 2 | wscale 4 | sack 1 | ecn 1 | MAC 23
 *
 * A window scale of 15 says that none was offered. The slot names one of two keys, this epoch's and the last one's,
 * so that exactly one MAC is tried and a forged ACK passes with a probability of 2^-23 at the most.
 */
#ifndef SWITCH_COOKIE_H
#define SWITCH_COOKIE_H

#define COOKIE_NO_WSCALE  15
#define OUR_WSCALE        7
#define COOKIE_MIN_MSS_V6 1220

struct cookie {
        __u32 isn;
        __u32 tsval;
};

static __always_inline __u16 cookie_mss(__u32 index)
{
        return index == 3 ? 1460 : index == 2 ? 1380 : index == 1 ? 1220 : 536;
}

static __always_inline __u32 cookie_mss_index(__u16 mss)
{
        return mss >= 1460 ? 3 : mss >= 1380 ? 2 : mss >= 1220 ? 1 : 0;
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
        return slot << 31 | settled << 23 | (mac & 0x7fffff);
}

static __always_inline struct cookie cookie_make(const struct sb_switch_settings *s,
                                                 const struct sb_flow *flow, __u32 client_isn,
                                                 const struct sb_tcp_options *syn, int ecn)
{
        __u32 wscale = syn->seen & SB_SYN_WSCALE ? syn->wscale : COOKIE_NO_WSCALE;
        __u32 sack = !!(syn->seen & SB_SYN_SACK);
        __u32 slot = s->cookie_slot & 1;
        struct cookie cookie = {};
        __u32 settled;

        if (syn->seen & SB_SYN_TSTAMP) {
                settled = (__u32)syn->mss << 16 | wscale << 12 | sack << 11 | !!ecn << 10 |
                          (bpf_ktime_get_ns() >> 20 & 0x3ff);
                cookie.tsval = settled;
        } else {
                settled = cookie_mss_index(syn->mss) << 6 | wscale << 2 | sack << 1 | !!ecn;
        }
        cookie.isn = cookie_assemble(s, slot, flow, client_isn, settled, !!(syn->seen & SB_SYN_TSTAMP));
        return cookie;
}

/* Whether `isn` is a cookie of ours for this client; if so, fills in what the handshake settled. */
static __always_inline int cookie_check(const struct sb_switch_settings *s, const struct sb_flow *flow,
                                        __u32 client_isn, __u32 isn, const struct sb_tcp_options *options,
                                        struct sb_flow_entry *entry)
{
        int with_timestamps = !!(options->seen & SB_SYN_TSTAMP);
        __u32 settled = with_timestamps ? options->tsecr : isn >> 23 & 0xff;
        __u32 wscale, flags;

        if (cookie_assemble(s, isn >> 31, flow, client_isn, settled, with_timestamps) != isn)
                return 0;
        if (with_timestamps) {
                entry->mss = settled >> 16;
                wscale = settled >> 12 & 15;
                flags = settled >> 10 & 3;
        } else {
                entry->mss = cookie_mss(settled >> 6);
                wscale = settled >> 2 & 15;
                flags = settled & 3;
        }
        /* RFC 9293 section 3.7.1: what every IPv6 host can take; the node's kernel adopts no less. */
        if (!sb_is_v4(flow->client) && entry->mss < COOKIE_MIN_MSS_V6)
                entry->mss = COOKIE_MIN_MSS_V6;
        entry->options = with_timestamps ? SB_SYN_TSTAMP : 0;
        if (flags & 2)
                entry->options |= SB_SYN_SACK;
        if (flags & 1)
                entry->options |= SB_SYN_ECN;
        entry->wscale = 0;
        if (wscale != COOKIE_NO_WSCALE) {
                entry->options |= SB_SYN_WSCALE;
                entry->wscale = wscale << 4 | OUR_WSCALE;
        }
        return 1;
}

#endif
