/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Forwarding packets of clients to the node of their flow, in handoff packets. */
#ifndef SWITCH_FORWARD_H
#define SWITCH_FORWARD_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "handoff.h"
#include "l7.h"
#include "maps.h"
#include "packet.h"
#include "parse.h"
#include "switch_maps.h"
#include "transmit.h"

/* Bits of sb_flow_state.framing besides the state. */
static __always_inline __u16 beside_state(__u8 mode)
{
        switch (mode) {
        case SB_MODE_TUNNEL:
                return SB_MARK_TUNNEL;
        case SB_MODE_UPGRADING:
                return SB_MARK_UPGRADING;
        case SB_MODE_RESUMED:
                return SB_MARK_RESUMED;
        default:
                return 0;
        }
}

/* Writes UDP, Geneve and the option into the packet. */
static __always_inline void write_shim(struct sb_shim *shim, struct sb_tag_input *input,
                                       const struct packet *p, const struct sb_flow_entry *entry,
                                       const struct sb_node *node, const struct sb_switch_settings *s)
{
        struct sb_option *option = &shim->option;
        struct sb_handover *said = &option->payload.handover;
        __u64 epoch = sb_epoch(node->clock), tag;

        sb_write_shim(shim, sb_source_port(&p->flow), bpf_htons(SB_GENEVE_PORT), p->ip_len,
                      sb_vni_of(epoch, node->address.number), p->l3_len == sizeof(struct iphdr));
        option->op = p->handoff_op;
        option->flags = p->handoff_flags;
        option->reason = SB_REASON_NONE;
        said->flow.origin = bpf_htonl(entry->origin);
        said->flow.next = bpf_htonl(entry->next);
        said->flow.left = bpf_htonl(entry->framing.left > ~0U ? ~0U : (__u32)entry->framing.left);
        said->flow.heads = bpf_htonl(entry->heads);
        said->flow.requests = bpf_htons(entry->requests);
        said->flow.framing = bpf_htons(entry->framing.state | beside_state(entry->mode));
        said->flow.mss = bpf_htons(entry->mss);
        said->flow.options = entry->options;
        said->flow.wscale = entry->wscale;
        said->flow.session = entry->session;
        said->flow.generation = bpf_htonl(entry->generation);
        said->boundary = bpf_htons(p->handoff_boundary);
        said->queue_share = p->handoff_share;
        said->reserved = 0;
        sb_copy_v6(input->node, node->address.machine);
        sb_copy_v6(input->switch_address, node->source);
        input->epoch = sb_tagged_epoch(epoch, node->address.number);
        input->flow = p->flow;
        input->seq = bpf_htonl(p->seq);
        input->ack = bpf_htonl(p->ack);
        __builtin_memcpy(input->option, &option->version, SB_TAGGED_LEN);
        tag = sb_tag(&s->sign, input);
        __builtin_memcpy(option->tag, &tag, sizeof(tag));
}

/*
 * Puts Ethernet, IP, UDP and Geneve in front of the client's IP packet, and sends it to the node. If the node
 * is on this machine, the frame keeps its Ethernet addresses and goes to the kernel, where the node's program
 * takes it.
 */
static __always_inline int encapsulate(struct xdp_md *ctx, const struct packet *p,
                                       const struct sb_flow_entry *entry, const struct sb_node *node,
                                       const struct sb_switch_settings *s, const __u32 outer_len)
{
        const __u32 grow = outer_len + sizeof(struct sb_shim);
        struct sb_tag_input *input;
        void *data, *end;
        struct ethhdr *eth;

        input = sb_new_tag_input();
        if (!input || bpf_xdp_adjust_head(ctx, -(int)grow))
                return drop(SB_SWITCH_DROP_HEADROOM);
        data = (void *)(long)ctx->data;
        end = (void *)(long)ctx->data_end;
        eth = data;
        if (data + sizeof(*eth) + grow > end)
                return drop(SB_SWITCH_DROP_MALFORMED);
        if (node->here) {
                __builtin_memcpy(eth, data + grow, 2 * ETH_ALEN);
        } else {
                __builtin_memcpy(eth->h_dest, node->next_hop, ETH_ALEN);
                __builtin_memcpy(eth->h_source, node->our_mac, ETH_ALEN);
        }
        sb_write_outer(data, node->source, node->address.machine, p->traffic_class,
                       sizeof(struct sb_shim) + p->ip_len, outer_len == sizeof(struct iphdr));
        write_shim(data + sizeof(*eth) + outer_len, input, p, entry, node, s);
        count(SB_SWITCH_FORWARDED);
        if (node->here)
                return XDP_PASS;
        return transmit(ctx, node->ifindex, node->ways);
}

static __always_inline int is_unset(const __u8 address[16])
{
        const __u64 *halves = (const __u64 *)address;

        return (halves[0] | halves[1]) == 0;
}

static __noinline int forward(struct xdp_md *ctx, const struct packet *p, const struct sb_flow_entry *entry,
                              const struct sb_switch_settings *s)
{
        __u32 index = entry->node;
        struct sb_node *node = bpf_map_lookup_elem(&nodes, &index);

        if (!node || is_unset(node->address.machine))
                return drop(SB_SWITCH_DROP_NO_NODE);
        /*
         * A router sends its ICMP error again; a client has to wait for its data, so that is left to user
         * space.
         */
        if (node->ifindex == 0 && p->handoff_op == SB_OP_ICMP)
                return drop(SB_SWITCH_DROP_ICMP);
        if (node->ifindex == 0) {
                struct record_parts parts = {.kind = SB_RECORD_FORWARD,
                                             .flow = &p->flow,
                                             .entry = entry,
                                             .start = p->start,
                                             .len = p->ip_len};

                return to_l7(ctx, &parts, SB_SWITCH_FORWARDED_SLOWLY);
        }
        if (sb_is_v4(node->address.machine))
                return encapsulate(ctx, p, entry, node, s, sizeof(struct iphdr));
        return encapsulate(ctx, p, entry, node, s, sizeof(struct ipv6hdr));
}

#endif
