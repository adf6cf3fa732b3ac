/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Handoff packets from nodes. */
#ifndef SWITCH_RECEIVE_H
#define SWITCH_RECEIVE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "choices.h"
#include "counters.h"
#include "entry.h"
#include "express.h"
#include "guard.h"
#include "handoff.h"
#include "l7.h"
#include "maps.h"
#include "packet.h"
#include "parse.h"
#include "switch_maps.h"

/*
 * Epoch in which a node has sent the packet, by the node's clock. Less than zero if that is not now, or no
 * node of the configuration has sent it.
 */
static __noinline int read_epoch(const struct sb_node_address *address, const struct sb_option *option,
                                 __be32 vni, __u64 *epoch)
{
        struct sb_node *node;
        __u32 *id;

        *epoch = 0;
        if (option->op == SB_OP_SYNCED)
                return 0;
        id = bpf_map_lookup_elem(&node_ids, address);
        node = id ? bpf_map_lookup_elem(&nodes, id) : NULL;
        return node && sb_read_epoch(vni, sb_epoch(node->clock), epoch) ? 0 : -1;
}

/*
 * Whether what a node says in CLOSED is about the entry's connection, and not by a node that had the flow before an
 * adoption that is known here.
 */
static __always_inline int has_ended(const struct sb_flow_entry *entry, const struct sb_flow_state *said)
{
        __u32 generation = bpf_ntohl(said->generation);

        if (entry->origin != bpf_ntohl(said->origin))
                return 0;
        return !generation || !entry->generation || !sb_is_newer(entry->generation, generation);
}

/*
 * Notes that the node has adopted the flow that the program itself has given it; 0 if the L7 thread has to know, because
 * it has a packet of the flow.
 */
static __noinline int confirm(const struct sb_flow *flow, const struct sb_option *option,
                              const struct sb_node_address *sender)
{
        const struct sb_outcome *said = &option->payload.outcome;
        struct sb_flow_entry *place, *entry = read_entry(&flows, flow, &place);
        __u32 *id = bpf_map_lookup_elem(&node_ids, sender), row;
        struct sb_vip *vip = find_vip(flow);

        if (!entry || !id || entry->mode != SB_MODE_ADOPTING || entry->locked || entry->node != *id)
                return 0;
        if (entry->origin != bpf_ntohl(said->flow.origin) || !is_still_at(&flows, flow, place))
                return 0;
        place->mode = SB_MODE_REQUESTS;
        count(SB_SWITCH_CONFIRMED);
        sb_add_one(&placed_by_node, *id);
        sb_add_one(&express_by_node, *id);
        if (!vip)
                return 1;
        sb_add_one(&express_by_service, vip->service);
        row = vip->listener * SB_NODES + *id;
        if (said->queue.limit && row < SB_LISTENERS * SB_NODES)
                listener_queues[row] = (__u32)bpf_ntohs(said->queue.len) << 16 | bpf_ntohs(said->queue.limit);
        return 1;
}

/*
 * Takes a UDP packet to the Geneve port, whose outer IP header is in `outer`. A packet with the option must
 * have a valid tag; other Geneve traffic passes.
 */
static __noinline int on_handoff(struct xdp_md *ctx, const struct packet *outer,
                                 const struct sb_switch_settings *s)
{
        void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
        __u32 start = (__u32)outer->start + outer->l3_len + sizeof(struct sb_shim);
        struct sb_cursor cursor = sb_cursor_at(data, end, outer->start + outer->l3_len);
        struct sb_shim *shim = cursor.at;
        struct record_parts parts = {.kind = SB_RECORD_HANDOFF};
        const struct sb_option *option;
        struct sb_tag_input *input;
        struct sb_flow_entry *entry;
        struct sb_node_address sender __attribute__((aligned(8))) = {};
        struct packet inner = {};
        __be16 protocol;
        __be32 vni;
        __u64 epoch;

        if ((void *)(shim + 1) > end)
                return XDP_PASS;
        if (shim->dest != bpf_htons(SB_GENEVE_PORT) ||
            shim->geneve.ver_opt_len != sizeof(struct sb_option) / 4 || !sb_has_option(shim))
                return XDP_PASS;
        /* Another switch sends it to the node on this machine. */
        if (s->is_node && shim->option.op < SB_OP_ADOPTED)
                return XDP_PASS;
        protocol = shim->geneve.protocol;
        if (protocol != bpf_htons(ETH_P_IP) && protocol != bpf_htons(ETH_P_IPV6))
                return drop(SB_SWITCH_DROP_MALFORMED);
        option = &shim->option;
        vni = shim->geneve.vni;
        cursor.at = shim + 1;
        /* Behind the outer packet there may be padding. */
        if (parse_ip(ctx, &cursor, start, protocol, &inner) != IPPROTO_TCP || parse_tcp(&cursor, &inner) ||
            start + inner.ip_len > outer->start + outer->ip_len)
                return drop(SB_SWITCH_DROP_MALFORMED);
        input = sb_new_tag_input();
        if (!input)
                return drop(SB_SWITCH_DROP_TAG);
        sb_copy_v6(sender.machine, outer->flow.client);
        sender.number = sb_number_of(vni);
        if (read_epoch(&sender, option, vni, &epoch))
                return drop(SB_SWITCH_DROP_EPOCH);
        sb_copy_v6(input->node, sender.machine);
        sb_copy_v6(input->switch_address, outer->flow.vip);
        input->epoch = sb_tagged_epoch(epoch, sender.number);
        input->flow = inner.flow;
        input->seq = bpf_htonl(inner.seq);
        input->ack = bpf_htonl(inner.ack);
        __builtin_memcpy(input->option, &option->version, SB_TAGGED_LEN);
        if (!sb_tag_valid(&s->sign, &s->accept, input, option))
                return drop(SB_SWITCH_DROP_TAG);
        if (sb_is_later(option))
                return drop(SB_SWITCH_DROP_VERSION);
        if (option->op == SB_OP_CLOSED) {
                entry = bpf_map_lookup_elem(&flows, &inner.flow);
                if (entry && has_ended(entry, &option->payload.flow)) {
                        remember_end(&inner.flow, bpf_ntohl(option->payload.flow.origin), 0);
                        end_entry(&flows, &inner.flow);
                        count(SB_SWITCH_CLOSED);
                }
                return XDP_DROP;
        }
        if (option->op == SB_OP_ADOPTED && confirm(&inner.flow, option, &sender))
                return XDP_DROP;
        parts.flow = &inner.flow;
        parts.option = option;
        parts.node = &sender;
        parts.start = inner.start;
        parts.len = inner.ip_len;
        return to_l7(ctx, &parts, SB_SWITCH_HANDOFF_RECEIVED);
}

#endif
