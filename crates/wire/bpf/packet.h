/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What all programs read and write in packets: addresses, TCP options, checksums, outer headers and tags of
 * handoff packets.
 */
#ifndef SWITCHBACK_PACKET_H
#define SWITCHBACK_PACKET_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "handoff.h"
#include "siphash.h"

#define SB_IP_MF     0x2000
#define SB_IP_OFFSET 0x1fff
#define SB_IP_DF     0x4000

#define SB_TCP_FIN 0x01
#define SB_TCP_SYN 0x02
#define SB_TCP_RST 0x04
#define SB_TCP_PSH 0x08
#define SB_TCP_ACK 0x10
#define SB_TCP_URG 0x20
#define SB_TCP_ECE 0x40
#define SB_TCP_CWR 0x80

#define SB_TCPOPT_MSS    2
#define SB_TCPOPT_WSCALE 3
#define SB_TCPOPT_SACKOK 4
#define SB_TCPOPT_TSTAMP 8
/* First word of aligned timestamps, RFC 7323 appendix A: NOP, NOP, kind 8, length 10. */
#define SB_TCPOPT_TSTAMP_ALIGNED bpf_htonl(0x0101080a)

/*
 * Flags of bpf_skb_adjust_room(), which linux/bpf.h of some distributions lacks: the inner packet may be of
 * the other IP version.
 */
#define SB_DECAP_L3_IPV4 (1ULL << 7)
#define SB_DECAP_L3_IPV6 (1ULL << 8)

/*
 * Pointer into the packet, with `offset` below 256. The verifier must see the bound on one pointer, so the
 * compiler may neither drop the mask nor split the sum.
 */
static __always_inline void *sb_at(void *data, __u32 offset)
{
        void *at;

        asm volatile("%0 &= 0xff" : "+r"(offset));
        at = data + offset;
        asm volatile("" : "+r"(at));
        return at;
}

static __always_inline __u8 sb_tcp_flags(const struct tcphdr *tcp)
{
        return ((const __u8 *)tcp)[13];
}

static __always_inline void sb_map_v4(__u8 to[16], __be32 addr)
{
        __u32 *words = (__u32 *)to;

        words[0] = 0;
        words[1] = 0;
        words[2] = bpf_htonl(0xffff);
        words[3] = addr;
}

static __always_inline void sb_copy_v6(void *to, const void *from)
{
        __builtin_memcpy(to, from, 16);
}

/*
 * Copies an address out of a packet, which may be read unaligned, to memory that is aligned to 4. Stores of
 * single bytes would stall the loads that follow.
 */
static __always_inline void sb_copy_words(void *to, const void *from)
{
        __u32 *a = to;
        const __u32 *b = from;

        a[0] = b[0];
        a[1] = b[1];
        a[2] = b[2];
        a[3] = b[3];
}

/* Compares words: addresses in structures have an alignment of 4. */
static __always_inline int sb_same_v6(const __u8 one[16], const __u8 other[16])
{
        const __u32 *a = (const __u32 *)one, *b = (const __u32 *)other;

        return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

static __always_inline int sb_is_v4(const __u8 addr[16])
{
        const __u32 *words = (const __u32 *)addr;

        return words[0] == 0 && words[1] == 0 && words[2] == bpf_htonl(0xffff);
}

static __always_inline __be32 sb_v4_of(const __u8 addr[16])
{
        return ((const __u32 *)addr)[3];
}

static __always_inline __u16 sb_fold(__u64 sum)
{
        sum = (sum & 0xffffffff) + (sum >> 32);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        return (__u16)~sum;
}

static __always_inline __u64 sb_sum(const void *data, const int halfwords)
{
        const __u16 *at = data;
        __u64 sum = 0;

#pragma unroll
        for (int i = 0; i < halfwords; i++)
                sum += at[i];
        return sum;
}

/* Sum of the pseudo-header of RFC 9293 section 3.1 (IPv4) and RFC 8200 section 8.1 (IPv6). */
static __always_inline __u64 sb_pseudo_sum(const struct sb_flow *flow, __u8 protocol, __u32 len)
{
        __u64 sum = 0;

        if (sb_is_v4(flow->vip))
                sum = sb_sum(flow->client + 12, 2) + sb_sum(flow->vip + 12, 2);
        else
                sum = sb_sum(flow->client, 8) + sb_sum(flow->vip, 8);
        return sum + bpf_htons(protocol) + bpf_htons(len);
}

/*
 * Cursor for parsing headers. It stands on the next header. A parser checks that the header is in readable
 * memory, hands out its contents, moves the cursor behind it, and returns the type of what follows, or an
 * error of enum sb_parse_error. It counts nothing and does not compare lengths with that of the frame, which
 * may have a trailer or may not be in memory as a whole: that is up to the caller.
 */
struct sb_cursor {
        void *at;
        void *end; /* of readable memory */
};

enum sb_parse_error {
        SB_MALFORMED = -1, /* truncated, not of the EtherType's IP version, or impossible lengths */
        SB_FRAGMENT = -2,  /* the cursor has moved: the first fragment has the next header */
        SB_OPTIONS = -3,   /* IPv4 options or IPv6 extension headers, which no program parses */
};

struct sb_ip {
        __u32 len;        /* of header and payload, as the header says */
        __u16 header_len; /* 20 or 40 */
        __u8 protocol;    /* IPv4 protocol or IPv6 next header */
        __u8 traffic_class;
};

static __always_inline struct sb_cursor sb_cursor_at(void *data, void *end, __u32 offset)
{
        struct sb_cursor cursor = {.at = sb_at(data, offset), .end = end};

        return cursor;
}

/*
 * Parses an IP header of the version that the EtherType names. Returns the protocol. The addresses, which are
 * aligned to 4, are set unless the result is SB_MALFORMED.
 */
static __always_inline int sb_parse_ip(struct sb_cursor *cursor, __be16 ethertype, __u8 source[16],
                                       __u8 dest[16], struct sb_ip *out)
{
        if (ethertype == bpf_htons(ETH_P_IP)) {
                struct iphdr *ip = cursor->at;

                if ((void *)(ip + 1) > cursor->end || ip->version != 4)
                        return SB_MALFORMED;
                sb_map_v4(source, ip->saddr);
                sb_map_v4(dest, ip->daddr);
                out->len = bpf_ntohs(ip->tot_len);
                out->header_len = sizeof(*ip);
                out->protocol = ip->protocol;
                out->traffic_class = ip->tos;
                if (ip->ihl != 5)
                        return SB_OPTIONS;
                cursor->at = ip + 1;
                if (ip->frag_off & bpf_htons(SB_IP_MF | SB_IP_OFFSET))
                        return SB_FRAGMENT;
        } else if (ethertype == bpf_htons(ETH_P_IPV6)) {
                struct ipv6hdr *ip = cursor->at;

                if ((void *)(ip + 1) > cursor->end || ip->version != 6)
                        return SB_MALFORMED;
                sb_copy_words(source, &ip->saddr);
                sb_copy_words(dest, &ip->daddr);
                out->len = sizeof(*ip) + bpf_ntohs(ip->payload_len);
                out->header_len = sizeof(*ip);
                out->protocol = ip->nexthdr;
                out->traffic_class = (__u8)(ip->priority << 4 | ip->flow_lbl[0] >> 4);
                cursor->at = ip + 1;
                if (ip->nexthdr == IPPROTO_FRAGMENT || ip->nexthdr == IPPROTO_HOPOPTS ||
                    ip->nexthdr == IPPROTO_ROUTING || ip->nexthdr == IPPROTO_DSTOPTS)
                        return SB_OPTIONS;
        } else {
                return SB_MALFORMED;
        }
        return out->protocol;
}

/*
 * Parses the TCP header of a packet of `ip->len` bytes. Returns the length of its data. The cursor stands
 * behind the fixed header; options need not be readable.
 */
static __always_inline int sb_parse_tcp(struct sb_cursor *cursor, const struct sb_ip *ip, struct tcphdr **out)
{
        struct tcphdr *tcp = cursor->at;
        __u32 headers;

        if ((void *)(tcp + 1) > cursor->end)
                return SB_MALFORMED;
        headers = (__u32)ip->header_len + tcp->doff * 4;
        if (tcp->doff < sizeof(*tcp) / 4 || headers > ip->len)
                return SB_MALFORMED;
        cursor->at = tcp + 1;
        *out = tcp;
        return ip->len - headers;
}

/* First 8 bytes of a TCP header, which ICMP errors quote (RFC 792). */
struct sb_tcp_start {
        __be16 source;
        __be16 dest;
        __be32 seq;
};

/* Congestion Experienced, RFC 3168 section 5. */
static __always_inline int sb_is_congested(const struct sb_ip *ip)
{
        return (ip->traffic_class & 3) == 3;
}

/*
 * Bits of sb_flow_state.options for a round trip in microseconds; 0: unknown. No way to a client is longer than two
 * seconds: it has waited for something else.
 */
static __always_inline __u8 sb_round_trip_bits(__u32 us)
{
        __u8 code = !!us;

#pragma unroll
        for (int i = 0; i < 11; i++)
                code += us > 1000U << i;
        return us > 2048000 ? 0 : code << SB_ROUND_TRIP_SHIFT;
}

/* The round trip in milliseconds, rounded up. 0: unknown. */
static __always_inline __u32 sb_round_trip_ms(__u8 options)
{
        __u8 code = options >> SB_ROUND_TRIP_SHIFT;

        return code ? 1U << (code - 1) : 0;
}

/* Options of a SYN, and timestamps of any packet. */
struct sb_tcp_options {
        __u32 tsval;
        __u32 tsecr;
        __u16 mss;
        __u8 wscale;
        __u8 seen; /* SB_SYN_WSCALE, SB_SYN_SACK, SB_SYN_TSTAMP */
};

#define SB_TCPOPT_SPACE 40

/* Room for the longest list of options, and for reading behind a truncated last option. */
struct sb_tcp_space {
        __u8 bytes[SB_TCPOPT_SPACE + 16];
};

struct sb_option_walk {
        struct sb_tcp_space space;
        struct sb_tcp_options found;
        __u32 len;
        __u32 at;
};

static __always_inline __u32 sb_be32_at(const __u8 *bytes)
{
        return (__u32)bytes[0] << 24 | (__u32)bytes[1] << 16 | (__u32)bytes[2] << 8 | bytes[3];
}

static long sb_next_tcp_option(__u32 index, struct sb_option_walk **place)
{
        struct sb_option_walk *walk = *place;
        const __u8 *bytes = walk->space.bytes;
        __u32 at = walk->at;
        __u8 kind, size;

        if (at >= walk->len || at >= SB_TCPOPT_SPACE)
                return 1;
        kind = bytes[at];
        if (kind == 0)
                return 1;
        if (kind == 1) {
                walk->at = at + 1;
                return 0;
        }
        size = bytes[at + 1];
        if (size < 2 || at + size > walk->len)
                return 1;
        if (kind == SB_TCPOPT_MSS && size == 4) {
                walk->found.mss = (__u16)bytes[at + 2] << 8 | bytes[at + 3];
        } else if (kind == SB_TCPOPT_WSCALE && size == 3) {
                walk->found.wscale = bytes[at + 2] > 14 ? 14 : bytes[at + 2];
                walk->found.seen |= SB_SYN_WSCALE;
        } else if (kind == SB_TCPOPT_SACKOK && size == 2) {
                walk->found.seen |= SB_SYN_SACK;
        } else if (kind == SB_TCPOPT_TSTAMP && size == 10) {
                walk->found.tsval = sb_be32_at(bytes + at + 2);
                walk->found.tsecr = sb_be32_at(bytes + at + 6);
                walk->found.seen |= SB_SYN_TSTAMP;
        }
        walk->at = at + size;
        return 0;
}

/*
 * Parses TCP options, RFC 9293 section 3.1: kind 0 ends the list, kind 1 is one byte, the others have a
 * length. Parsing stops at a malformed option and keeps the ones before. The caller sets `space` and `len`.
 */
static __always_inline void sb_parse_tcp_options(struct sb_option_walk *walk)
{
        bpf_loop(SB_TCPOPT_SPACE, sb_next_tcp_option, &walk, 0);
}

/* The one entry of a per-CPU array, with `size` zeroes. NULL does not happen, but the verifier does not know that. */
static __always_inline void *sb_zeroed(void *map, const __u32 size)
{
        __u32 zero = 0;
        void *entry = bpf_map_lookup_elem(map, &zero);

        if (entry)
                __builtin_memset(__builtin_assume_aligned(entry, 8), 0, size);
        return entry;
}

/* Not on the stack, where the verifier would follow the values of each step. */
struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct sb_option_walk);
} option_walks SEC(".maps");

static __always_inline struct sb_option_walk *sb_new_option_walk(void)
{
        return sb_zeroed(&option_walks, sizeof(struct sb_option_walk));
}

/*
 * Message under the tag of the current packet. It is too large for the stack: all frames together have 512
 * bytes.
 */
struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct sb_tag_input);
} tag_inputs SEC(".maps");

static __always_inline struct sb_tag_input *sb_new_tag_input(void)
{
        __u32 zero = 0;

        return bpf_map_lookup_elem(&tag_inputs, &zero);
}

__noinline __u64 sb_tag(const struct sb_key *key, const struct sb_tag_input *input)
{
        if (!key || !input)
                return 0;
        return sb_siphash(key, (const __u32 *)input, sizeof(*input) / 4);
}

/* Spreads flows. The high bits are the best. */
static __always_inline __u32 sb_flow_hash(const struct sb_flow *flow)
{
        const __u32 *words = (const __u32 *)flow;
        __u32 hash = 0;

#pragma unroll
        for (int i = 0; i < (int)(sizeof(*flow) / 4); i++)
                hash = (hash ^ words[i]) * 0x9e3779b1u;
        return hash;
}

/* Outer UDP source port. It spreads flows over receive queues and equal-cost paths (RFC 8926 section 3.3). */
static __always_inline __be16 sb_source_port(const struct sb_flow *flow)
{
        return bpf_htons(0xc000 | sb_flow_hash(flow) >> 18);
}

/* Writes EtherType, and an IP header in front of UDP. The caller has checked that the packet has room. */
static __always_inline void sb_write_outer(void *data, const __u8 source[16], const __u8 dest[16],
                                           __u8 traffic_class, __u32 udp_len, int v4)
{
        struct ethhdr *eth = data;

        if (v4) {
                struct iphdr *ip = (void *)(eth + 1);

                eth->h_proto = bpf_htons(ETH_P_IP);
                __builtin_memset(ip, 0, sizeof(*ip));
                ip->version = 4;
                ip->ihl = 5;
                ip->tos = traffic_class;
                ip->tot_len = bpf_htons(sizeof(*ip) + udp_len);
                ip->frag_off = bpf_htons(SB_IP_DF);
                ip->ttl = SB_TTL;
                ip->protocol = IPPROTO_UDP;
                ip->saddr = sb_v4_of(source);
                ip->daddr = sb_v4_of(dest);
                ip->check = sb_fold(sb_sum(ip, sizeof(*ip) / 2));
        } else {
                struct ipv6hdr *ip = (void *)(eth + 1);

                eth->h_proto = bpf_htons(ETH_P_IPV6);
                __builtin_memset(ip, 0, sizeof(*ip));
                ip->version = 6;
                ip->priority = traffic_class >> 4;
                ip->flow_lbl[0] = traffic_class << 4;
                ip->payload_len = bpf_htons(udp_len);
                ip->nexthdr = IPPROTO_UDP;
                ip->hop_limit = SB_TTL;
                sb_copy_v6(&ip->saddr, source);
                sb_copy_v6(&ip->daddr, dest);
        }
}

/* Clock that is `ahead` of CLOCK_MONOTONIC, in steps of 2^SB_CLOCK_SHIFT ns. */
static __always_inline __u64 sb_clock(__u64 ahead)
{
        return ahead + (bpf_ktime_get_coarse_ns() >> SB_CLOCK_SHIFT);
}

static __always_inline __u64 sb_epoch(__u64 ahead)
{
        return sb_clock(ahead) >> SB_EPOCH_SHIFT;
}

static __always_inline __be32 sb_vni_of(__u64 epoch, __u16 number)
{
        return bpf_htonl((__u32)number << 16 | (__u32)(epoch & 0xff) << 8);
}

/* Number of the node. */
static __always_inline __u16 sb_number_of(__be32 vni)
{
        __u16 number = bpf_ntohl(vni) >> 16;

        return number < SB_NUMBER_MIN ? 0 : number;
}

/* Epoch and number of a node as they are under a tag. */
static __always_inline __be64 sb_tagged_epoch(__u64 epoch, __u16 number)
{
        return bpf_cpu_to_be64(epoch ^ (__u64)number << 48);
}

/* Derives the epoch from the VNI. Returns 0 if it is not the present one or next to it. */
static __always_inline int sb_read_epoch(__be32 vni, __u64 present, __u64 *epoch)
{
        __s8 later = (__s8)((__u8)(bpf_ntohl(vni) >> 8) - (__u8)present);

        *epoch = present + later;
        return later >= -1 && later <= 1;
}

/* Writes UDP, Geneve and the header of the option, in front of an IP packet of `inner_len` bytes. */
static __always_inline void sb_write_shim(struct sb_shim *shim, __be16 source, __be16 dest, __u32 inner_len,
                                          __be32 vni, int v4)
{
        shim->source = source;
        shim->dest = dest;
        shim->len = bpf_htons(sizeof(*shim) + inner_len);
        shim->check = 0;
        shim->geneve.ver_opt_len = sizeof(shim->option) / 4;
        shim->geneve.flags = SB_GENEVE_CRITICAL;
        shim->geneve.protocol = v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
        shim->geneve.vni = vni;
        shim->option.opt_class = bpf_htons(SB_OPTION_CLASS);
        shim->option.type = SB_OPTION_TYPE;
        shim->option.length = (sizeof(shim->option) - 4) / 4;
        shim->option.version = SB_VERSION_USUAL;
}

/* Whether the first Geneve option is ours. */
static __always_inline int sb_has_option(const struct sb_shim *shim)
{
        return shim->option.opt_class == bpf_htons(SB_OPTION_CLASS) && shim->option.type == SB_OPTION_TYPE &&
               shim->option.length == (sizeof(shim->option) - 4) / 4;
}

/* Whether the tag was made with one of the two keys. `accept` of zeroes is no key. */
static __always_inline int sb_tag_valid(const struct sb_key *sign, const struct sb_key *accept,
                                        const struct sb_tag_input *input, const struct sb_option *option)
{
        __u64 tag;

        __builtin_memcpy(&tag, option->tag, sizeof(tag));
        if (sb_tag(sign, input) == tag)
                return 1;
        return (accept->k0 | accept->k1) != 0 && sb_tag(accept, input) == tag;
}

/* Whether an adoption of this generation is newer than that one. */
static __always_inline int sb_is_newer(__u32 generation, __u32 than)
{
        return (__s32)(generation - than) > 0;
}

/*
 * Whether the sender speaks a later version than this program. Of a packet without a valid tag that would say
 * nothing.
 */
static __always_inline int sb_is_later(const struct sb_option *option)
{
        return option->version > SB_VERSION;
}

/* Adds one to a 64-bit number in a map, which has one for each CPU. */
static __always_inline void sb_add_one(void *map, __u32 key)
{
        __u64 *value = bpf_map_lookup_elem(map, &key);

        if (value)
                (*value)++;
}

#endif
