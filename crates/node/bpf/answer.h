/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Turning a handoff packet around into its answer. */
#ifndef NODE_ANSWER_H
#define NODE_ANSWER_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "handoff.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"
#include "received.h"
#include "second.h"

/* TCP header with aligned timestamps, RFC 7323 appendix A. */
struct tcp_with_timestamps {
        struct tcphdr tcp;
        __be32 kinds; /* SB_TCPOPT_TSTAMP_ALIGNED */
        __be32 tsval;
        __be32 tsecr;
};

static __always_inline int continues(const struct handoff *h)
{
        return h->option.op == SB_OP_RELEASED || h->option.op == SB_OP_CONFIRMED;
}

/*
 * Sets the numbers from which another speaker goes on: the flow's next owner, or a switch that answers the
 * client.
 */
static __always_inline int write_continuation(void *data, void *end, __u32 offset, const struct handoff *h)
{
        struct tcp_with_timestamps *header = sb_at(data, offset);

        if ((void *)(&header->tcp + 1) > end)
                return -1;
        header->tcp.ack_seq = bpf_htonl(h->ack);
        if (h->tsecr && (void *)(header + 1) <= end && header->kinds == SB_TCPOPT_TSTAMP_ALIGNED)
                header->tsecr = bpf_htonl(h->tsecr);
        return 0;
}

/*
 * Sends the frame back to the neighbour that delivered it. If another node has passed the packet on, it needs
 * a route to the switch. Not inlined: the verifier forbids pointer arithmetic on the context.
 */
static __noinline int return_frame(struct __sk_buff *skb, const struct handoff *h)
{
        if (h->second == SB_SECOND_USED)
                return bpf_redirect_neigh(skb->ifindex, NULL, 0, 0);
        return bpf_redirect(skb->ifindex, 0);
}

/*
 * Turns the handoff packet into its answer, with `h->option`. Without `whole`, cuts off the client's data.
 * The frame goes back to the neighbour that delivered it, which on a routed path is the router.
 */
static __noinline int answer(struct __sk_buff *skb, struct handoff *h, const struct sb_node_settings *s,
                             int whole)
{
        __u32 inner_ip_len = (__u32)h->inner_len + h->tcp_len + (whole ? h->payload : 0);
        __u32 udp_len = sizeof(struct sb_shim) + inner_ip_len;
        __u32 start = sizeof(struct ethhdr) + h->outer_len;
        struct sb_tag_input *input;
        __u8 mac[ETH_ALEN];
        void *data, *end;
        struct ethhdr *eth;
        struct sb_shim *shim;
        __u64 epoch, tag;

        if (h->second && remove_second(skb, h))
                return drop(SB_NODE_DROP_MALFORMED);
        /*
         * Only if the length changes: the kernel refuses this helper for packets that left a tunnel on this
         * machine.
         */
        if (skb->len != start + udp_len && bpf_skb_change_tail(skb, start + udp_len, 0))
                return drop(SB_NODE_DROP_MALFORMED);
        data = (void *)(long)skb->data;
        end = (void *)(long)skb->data_end;
        eth = data;
        shim = sb_at(data, start);
        if (data + sizeof(*eth) + sizeof(struct ipv6hdr) > end || (void *)(shim + 1) > end)
                return drop(SB_NODE_DROP_MALFORMED);
        __builtin_memcpy(mac, eth->h_source, ETH_ALEN);
        __builtin_memcpy(eth->h_source, eth->h_dest, ETH_ALEN);
        __builtin_memcpy(eth->h_dest, mac, ETH_ALEN);
        if (h->outer_len == sizeof(struct iphdr)) {
                struct iphdr *ip = (void *)(eth + 1);
                __be32 address = ip->saddr;

                ip->saddr = ip->daddr;
                ip->daddr = address;
                ip->tos = 0;
                ip->ttl = SB_TTL;
                ip->tot_len = bpf_htons(sizeof(*ip) + udp_len);
                ip->check = 0;
                ip->check = sb_fold(sb_sum(ip, sizeof(*ip) / 2));
        } else {
                struct ipv6hdr *ip = (void *)(eth + 1);

                sb_copy_v6(&ip->saddr, s->address);
                sb_copy_v6(&ip->daddr, h->sender);
                ip->hop_limit = SB_TTL;
                ip->payload_len = bpf_htons(udp_len);
        }
        shim->len = bpf_htons(udp_len);
        shim->check = 0;
        /* The answer has the epoch of the question. */
        input = read_epoch(h, s, shim->geneve.vni, &epoch) ? tag_input(h, s, epoch) : NULL;
        if (!input)
                return drop(SB_NODE_DROP_MALFORMED);
        shim->geneve.vni = sb_vni_of(epoch, h->node);
        tag = sb_tag(&s->sign, input);
        __builtin_memcpy(h->option.tag, &tag, sizeof(tag));
        shim->option = h->option;
        start += sizeof(*shim);
        if (h->inner_len == sizeof(struct iphdr)) {
                struct iphdr *ip = sb_at(data, start);

                if ((void *)(ip + 1) > end)
                        return drop(SB_NODE_DROP_MALFORMED);
                ip->tot_len = bpf_htons(inner_ip_len);
                ip->check = 0;
                ip->check = sb_fold(sb_sum(ip, sizeof(*ip) / 2));
        } else {
                struct ipv6hdr *ip = sb_at(data, start);

                if ((void *)(ip + 1) > end)
                        return drop(SB_NODE_DROP_MALFORMED);
                ip->payload_len = bpf_htons(inner_ip_len - sizeof(*ip));
        }
        if (continues(h) && write_continuation(data, end, start + h->inner_len, h))
                return drop(SB_NODE_DROP_MALFORMED);
        return return_frame(skb, h);
}

/* Returns the packet; an ADOPT with its generation, which tells the switch's attempts apart. */
static __always_inline int refuse(struct handoff *h, enum sb_reason reason, enum sb_node_counter counter)
{
        __be32 generation = h->option.op == SB_OP_ADOPT ? h->option.payload.flow.generation : 0;

        count(counter);
        set_answer(h, SB_OP_REFUSED, reason);
        h->option.payload.flow.generation = generation;
        return ANSWER_WHOLE;
}

#endif
