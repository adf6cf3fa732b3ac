/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#ifndef SWITCH_PARSE_H
#define SWITCH_PARSE_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bytes.h"
#include "counters.h"
#include "flow.h"
#include "handoff.h"
#include "maps.h"
#include "packet.h"
#include "switch_maps.h"

/* A TCP packet to a VIP. */
struct packet {
        struct sb_flow flow;
        __u32 seq;
        __u32 ack;
        __u16 start;   /* offset of the IP header in the frame */
        __u16 l3_len;  /* length of the IP header: 20 or 40 */
        __u16 ip_len;  /* length of IP header and payload */
        __u16 tcp_len; /* length of the TCP header with options */
        __u16 payload; /* length of the data */
        __u8 flags;
        __u8 traffic_class;
        __u8 handoff_op;        /* of the handoff packet: SB_OP_FORWARD, SB_OP_ADOPT or SB_OP_ICMP */
        __u8 handoff_flags;     /* of the handoff packet: SB_HANDOVER_* */
        __u16 handoff_boundary; /* of the handoff packet: sb_handover.boundary */
        __u8 handoff_share;     /* of the handoff packet: sb_handover.queue_share */
};

/*
 * Parses the IP header into `p`. Returns as sb_parse_ip(), and SB_MALFORMED if the frame is shorter than the
 * packet.
 */
static __always_inline int parse_ip(struct xdp_md *ctx, struct sb_cursor *cursor, __u32 start,
                                    __be16 ethertype, struct packet *p)
{
        void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
        struct sb_ip ip;
        int next;

        next = sb_parse_ip(cursor, ethertype, p->flow.client, p->flow.vip, &ip);
        if (next == SB_MALFORMED)
                return next;
        p->start = start;
        p->l3_len = ip.header_len;
        p->ip_len = ip.len;
        p->traffic_class = ip.traffic_class;
        return next >= 0 && start + ip.len > (__u64)(end - data) ? SB_MALFORMED : next;
}

/* Parses the TCP header into `p`. Less than zero if it is malformed. */
static __always_inline int parse_tcp(struct sb_cursor *cursor, struct packet *p)
{
        struct sb_ip ip = {.len = p->ip_len, .header_len = p->l3_len};
        struct tcphdr *tcp;
        int payload;

        payload = sb_parse_tcp(cursor, &ip, &tcp);
        if (payload < 0)
                return payload;
        p->flow.client_port = tcp->source;
        p->flow.vip_port = tcp->dest;
        p->seq = bpf_ntohl(tcp->seq);
        p->ack = bpf_ntohl(tcp->ack_seq);
        p->tcp_len = tcp->doff * 4;
        p->flags = sb_tcp_flags(tcp);
        p->payload = payload;
        return 0;
}

/*
 * Turns urgent data into ordinary data (RFC 6093 section 3.4 describes middleboxes that do so). A server that
 * does not ask for urgent data in line would not read it in the stream, and switch and server would read
 * different requests.
 */
static __always_inline void forget_urgency(struct xdp_md *ctx, struct packet *p)
{
        void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
        struct tcphdr *tcp = sb_at(data, p->start + p->l3_len);
        __u64 sum;

        if ((void *)(tcp + 1) > end)
                return;
        /* RFC 1624: takes flag and pointer out of the sum. */
        sum = (__u64)(__u16)~tcp->check + (__u16)~bpf_htons(SB_TCP_URG) + (__u16)~tcp->urg_ptr;
        tcp->check = sb_fold(sum);
        tcp->urg = 0;
        tcp->urg_ptr = 0;
        p->flags &= ~SB_TCP_URG;
        count(SB_SWITCH_URGENT);
}

#define CHECKSUM_BLOCK 512

struct checksum_block {
        __u8 bytes[CHECKSUM_BLOCK + 4];
};

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct checksum_block);
} checksum_blocks SEC(".maps");

/*
 * Whether a checksum is wrong. The node's kernel drops such a packet. If the switch had read a request in it,
 * the client could send another one in its place.
 */
static __noinline int is_damaged(struct xdp_md *ctx, const struct packet *p)
{
        void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
        __u32 zero = 0, len = p->ip_len - p->l3_len, at = p->start + p->l3_len;
        struct checksum_block *block = bpf_map_lookup_elem(&checksum_blocks, &zero);
        struct iphdr *ip = sb_at(data, p->start);
        __u64 sum = sb_pseudo_sum(&p->flow, IPPROTO_TCP, len);

        /* The L7 thread takes no longer packets, so nothing is read in this one. */
        if (p->ip_len > SB_RECORD_LARGE)
                return 0;
        if (!block || (void *)(ip + 1) > end)
                return 1;
        if (p->l3_len == sizeof(*ip) && sb_fold(sb_sum(ip, sizeof(*ip) / 2)) != 0)
                return 1;
        for (int i = 0; i < SB_RECORD_LARGE / CHECKSUM_BLOCK + 1 && len != 0; i++) {
                __u32 part = len < CHECKSUM_BLOCK ? len : CHECKSUM_BLOCK;
                __s64 folded;

                asm volatile("" : "+r"(part));
                if (part > CHECKSUM_BLOCK || sb_xdp_load_some(ctx, at, block->bytes, part, CHECKSUM_BLOCK))
                        return 1;
                /* bpf_csum_diff() takes whole words: zeroes fill the last one. */
                block->bytes[part] = 0;
                block->bytes[part + 1] = 0;
                block->bytes[part + 2] = 0;
                folded = bpf_csum_diff(NULL, 0, (void *)block->bytes, (part + 3) & ~3u, 0);
                if (folded < 0)
                        return 1;
                sum += (__u32)folded;
                at += part;
                len -= part;
        }
        return len != 0 || sb_fold(sum) != 0;
}

/* Reads the TCP options. Common stacks send timestamps alone, aligned as in RFC 7323 appendix A. */
static __noinline void read_options(struct xdp_md *ctx, const struct packet *p, struct sb_tcp_options *out)
{
        void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
        __be32 *words = sb_at(data, p->start + p->l3_len + sizeof(struct tcphdr));
        __u32 len = (__u32)p->tcp_len - sizeof(struct tcphdr);
        struct sb_option_walk *walk;

        __builtin_memset(out, 0, sizeof(*out));
        if (len == 12 && (void *)(words + 3) <= end && words[0] == SB_TCPOPT_TSTAMP_ALIGNED) {
                out->tsval = bpf_ntohl(words[1]);
                out->tsecr = bpf_ntohl(words[2]);
                out->seen = SB_SYN_TSTAMP;
                return;
        }
        walk = sb_new_option_walk();
        if (!walk || sb_xdp_load_some(ctx, p->start + p->l3_len + sizeof(struct tcphdr), walk->space.bytes,
                                      len, SB_TCPOPT_SPACE))
                return;
        walk->len = len;
        sb_parse_tcp_options(walk);
        *out = walk->found;
}

#endif
