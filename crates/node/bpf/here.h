/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Switch and node on one machine. No packet between them uses a wire: the switch's XDP program sends packets
 * up the stack, where the node's ingress program takes them; its L7 thread sends by the loopback interface,
 * whose program redirects them to ingress; and answers of the node go into a ring that the L7 thread reads.
 */
#ifndef NODE_HERE_H
#define NODE_HERE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "answer.h"
#include "bytes.h"
#include "counters.h"
#include "handoff.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"
#include "received.h"
#include "switch_maps.h"
#include "tcx.h"

/* linux/if_packet.h: frame for this host. */
#define PACKET_HOST 0

/* Sets the length in the IP header of a packet that has been cut. */
static __always_inline void set_len(void *packet, const struct handoff *h, __u32 len)
{
        struct ipv6hdr *v6 = packet;
        struct iphdr *v4 = packet;

        if (h->inner_len == sizeof(*v4))
                v4->tot_len = bpf_htons(len);
        else
                v6->payload_len = bpf_htons(len - sizeof(*v6));
}

/* Writes a record into the ring. `size` is constant so that the verifier knows the reservation. */
static __always_inline int submit(struct __sk_buff *skb, const struct handoff *h, __u32 start, __u32 len,
                                  const __u32 size)
{
        struct sb_record *record = bpf_ringbuf_reserve(&to_switch, sizeof(*record) + size, 0);

        if (!record)
                return drop(SB_NODE_DROP_RING_FULL);
        __builtin_memset(record, 0, sizeof(*record));
        record->kind = SB_RECORD_HANDOFF;
        record->flow = h->flow;
        record->option = h->option;
        sb_copy_v6(record->node.machine, h->sender);
        record->node.number = h->node;
        record->len = len;
        if (sb_load_some(skb, start, record + 1, len, size)) {
                bpf_ringbuf_discard(record, 0);
                return drop(SB_NODE_DROP_MALFORMED);
        }
        set_len(record + 1, h, len);
        bpf_ringbuf_submit(record, 0);
        count(SB_NODE_TOLD_HERE);
        return TCX_DROP;
}

/*
 * Gives the switch of this machine the inner packet with `h->option`. Without `whole`, leaves out the
 * client's data.
 */
__noinline int tell_switch(struct __sk_buff *skb, const struct handoff *h, int whole)
{
        void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
        __u32 len, start;

        if (!h)
                return TCX_DROP;
        len = (__u32)h->inner_len + h->tcp_len + (whole ? h->payload : 0);
        start = sizeof(struct ethhdr) + h->outer_len + shim_len(h);
        if (continues(h) && write_continuation(data, end, start + h->inner_len, h))
                return drop(SB_NODE_DROP_MALFORMED);
        if (len <= SB_RECORD_SMALL)
                return submit(skb, h, start, len, SB_RECORD_SMALL);
        return submit(skb, h, start, len, SB_RECORD_LARGE);
}

/*
 * Redirects handoff packets, which this machine sends to itself, to the node's interface. They have tags like
 * any other.
 */
static __always_inline int on_loopback(struct __sk_buff *skb, const struct sb_node_settings *s)
{
        void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
        __u8 source[16] __attribute__((aligned(8))), dest[16] __attribute__((aligned(8)));
        struct ethhdr *eth = data;
        struct sb_cursor cursor = {.at = eth + 1, .end = end};
        struct sb_shim *shim;
        struct sb_ip ip;

        if ((void *)(eth + 1) > end || sb_parse_ip(&cursor, eth->h_proto, source, dest, &ip) != IPPROTO_UDP)
                return TCX_NEXT;
        shim = cursor.at;
        if ((void *)(shim + 1) > end)
                return TCX_NEXT;
        if (shim->dest != bpf_htons(SB_GENEVE_PORT) || !sb_same_v6(source, s->address))
                return TCX_NEXT;
        return bpf_redirect(s->ifindex, BPF_F_INGRESS);
}

#endif
