/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Data of clients that a switch is about to acknowledge, and that no server has (docs/decisions/0041): another
 * switch can ask for it if that one dies. What is kept gives way to later data only.
 */
#ifndef NODE_KEPT_H
#define NODE_KEPT_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bytes.h"
#include "counters.h"
#include "flow.h"
#include "handoff.h"
#include "intake.h"
#include "keys.h"
#include "maps.h"
#include "read.h"
#include "received.h"

#define KEPT_PACKETS 4096
#define KEPT_BYTES   2048
/* Longer than clients wait for an answer to half a request. */
#define KEPT_NS (60ULL * 1000 * 1000 * 1000)

/* What is kept of a flow: packets from the mark in `state` to `end`. */
struct kept {
        struct sb_flow_state state;
        __u32 end;
        __u64 at_ns; /* of the last KEEP, by bpf_ktime_get_ns() */
};

struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, KEPT_PACKETS);
        __type(key, struct sb_flow);
        __type(value, struct kept);
} kept SEC(".maps");

struct kept_place {
        struct sb_flow flow;
        __u32 seq; /* of the packet's first byte */
};

struct kept_packet {
        __u32 origin; /* of the flow's connection */
        __u16 len;
        __u16 payload;
        __u8 bytes[KEPT_BYTES]; /* from the IP header on */
};

struct {
        __uint(type, BPF_MAP_TYPE_LRU_HASH);
        __uint(max_entries, KEPT_PACKETS);
        __type(key, struct kept_place);
        __type(value, struct kept_packet);
} kept_packets SEC(".maps");

/* Where a packet is composed: it is too large for the stack. */
struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct kept_packet);
} kept_packet SEC(".maps");

/* What is kept of the flow. A question about an unknown flow has no origin, and any connection will do. */
static __noinline struct kept *kept_of(const struct handoff *h)
{
        struct kept *known;
        __be32 origin;

        if (!h)
                return NULL;
        known = sb_flow_lookup(&kept, &h->flow);
        origin = h->option.payload.flow.origin;
        if (!known || (origin && known->state.origin != origin) ||
            bpf_ktime_get_ns() - known->at_ns > KEPT_NS)
                return NULL;
        return known;
}

static __always_inline int keep_packet(struct __sk_buff *skb, const struct handoff *h)
{
        __u32 len = (__u32)h->inner_len + h->tcp_len + h->payload, zero = 0;
        __u32 origin = bpf_ntohl(h->option.payload.flow.origin);
        struct kept_place place = {.flow = h->flow, .seq = h->seq};
        struct kept_packet *packet = bpf_map_lookup_elem(&kept_packets, &place);

        /* A switch may know less of the data than the one that had it kept. */
        if (packet && packet->origin == origin && packet->payload >= h->payload)
                return 0;
        packet = bpf_map_lookup_elem(&kept_packet, &zero);
        if (!packet)
                return -1;
        packet->origin = origin;
        packet->len = len;
        packet->payload = h->payload;
        if (sb_load_some(skb, sizeof(struct ethhdr) + h->outer_len + shim_len(h), packet->bytes, len,
                         KEPT_BYTES))
                return -1;
        return bpf_map_update_elem(&kept_packets, &place, packet, BPF_ANY);
}

__noinline int on_keep(struct __sk_buff *skb, struct handoff *h)
{
        struct kept now = {.at_ns = bpf_ktime_get_ns()}, *known;

        if (!h)
                return TCX_DROP;
        if (!h->payload || keep_packet(skb, h))
                return drop(SB_NODE_DROP_MALFORMED);
        now.state = h->option.payload.flow;
        now.end = bpf_ntohl(h->option.payload.kept.end);
        known = kept_of(h);
        if (known && known->state.next == now.state.next)
                now.end = later_of(known->end, now.end);
        if (sb_flow_update(&kept, &h->flow, &now))
                return drop(SB_NODE_DROP_MALFORMED);
        now.end = h->option.payload.kept.end;
        set_answer(h, SB_OP_KEPT, SB_REASON_NONE);
        h->option.payload.kept.end = now.end;
        count(SB_NODE_KEPT);
        return ANSWER;
}

/* Puts the kept packet in the place of the question's header, and reads it there. */
static __always_inline int insert_packet(struct __sk_buff *skb, struct handoff *h,
                                         const struct kept_packet *packet)
{
        __u32 start = sizeof(struct ethhdr) + h->outer_len + shim_len(h), len = packet->len;
        __be16 ethertype = bpf_htons(h->inner_len == sizeof(struct iphdr) ? ETH_P_IP : ETH_P_IPV6);

        if (bpf_skb_change_tail(skb, start + len, 0) ||
            sb_store_some(skb, start, packet->bytes, len, KEPT_BYTES))
                return -1;
        if (skb->data_end - skb->data < HEADERS_MAX)
                bpf_skb_pull_data(skb, skb->len < HEADERS_MAX ? skb->len : HEADERS_MAX);
        return read_inner(skb, h, start, skb->len, ethertype);
}

__noinline int on_restore(struct __sk_buff *skb, struct handoff *h)
{
        struct kept_packet *packet;
        struct kept_place place = {};
        struct kept *known;

        if (!h)
                return TCX_DROP;
        known = kept_of(h);
        if (!known)
                return drop(SB_NODE_DROP_NOT_KEPT);
        place.flow = h->flow;
        place.seq = h->option.payload.flow.origin ? h->seq : bpf_ntohl(known->state.next);
        packet = bpf_map_lookup_elem(&kept_packets, &place);
        if (!packet || packet->origin != bpf_ntohl(known->state.origin))
                return drop(SB_NODE_DROP_NOT_KEPT);
        if (insert_packet(skb, h, packet))
                return drop(SB_NODE_DROP_MALFORMED);
        set_answer(h, SB_OP_RESTORED, SB_REASON_NONE);
        h->option.payload.kept.flow = known->state;
        h->option.payload.kept.end = bpf_htonl(known->end);
        count(SB_NODE_RESTORED);
        return ANSWER_WHOLE;
}

#endif
