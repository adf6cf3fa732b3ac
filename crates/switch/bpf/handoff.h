/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Handoff packets: forwarding a client's packet to its node, and receiving what nodes say. */
#ifndef SWITCH_HANDOFF_H
#define SWITCH_HANDOFF_H

static __always_inline void *ring_of_this_cpu(void)
{
        __u32 cpu = bpf_get_smp_processor_id();

        return bpf_map_lookup_elem(&rings, &cpu);
}

/* What a record says besides the packet; absent parts are NULL. */
struct record_parts {
        const struct sb_flow *flow;
        const struct sb_flow_entry *entry;
        const struct sb_option *option;
        const __u8 *node;
        __u32 kind;
        __u32 start; /* of the IP packet in the frame */
        __u32 len;
};

/*
 * Wakes the L7 thread if it sleeps. An interrupt for each record would cost more than all the rest. The record is in
 * the ring before the flag is looked at, and the exchange is a barrier: the thread, which clears the flag and then
 * looks at the rings once more, either sees the record or is woken.
 */
static __always_inline void wake_l7(void *ring)
{
        void *nothing;

        if (__sync_lock_test_and_set(&l7_awake, 1))
                return;
        nothing = bpf_ringbuf_reserve(ring, 8, 0);
        if (nothing)
                bpf_ringbuf_discard(nothing, BPF_RB_FORCE_WAKEUP);
        else
                l7_awake = 0;
}

/* Whether the record is in the ring. `size` is constant so that the verifier knows the reservation. */
static __always_inline int submit(struct xdp_md *ctx, void *ring, const struct record_parts *parts,
                                  const __u32 size)
{
        struct sb_record *record = bpf_ringbuf_reserve(ring, sizeof(*record) + size, 0);
        __u32 len = parts->len;

        if (!record) {
                count(SB_SWITCH_DROP_RING_FULL);
                return 0;
        }
        record->kind = parts->kind;
        record->flow = *parts->flow;
        record->len = len;
        if (parts->entry)
                record->entry = *parts->entry;
        if (parts->option)
                record->option = *parts->option;
        if (parts->node)
                sb_copy_v6(record->node, parts->node);
        if (len == 0)
                goto malformed;
        /* Keeps the compiler from making one comparison of the two, which the verifier does not understand. */
        asm volatile("" : "+r"(len));
        if (len > size || bpf_xdp_load_bytes(ctx, parts->start, record + 1, len))
                goto malformed;
        bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
        wake_l7(ring);
        return 1;
malformed:
        bpf_ringbuf_discard(record, 0);
        count(SB_SWITCH_DROP_MALFORMED);
        return 0;
}

/* Gives the IP packet to the L7 thread, if that keeps up. */
static __noinline int offer(struct xdp_md *ctx, const struct record_parts *parts, __u32 counter)
{
        void *ring = ring_of_this_cpu();

        if (!ring) {
                count(SB_SWITCH_DROP_RING_FULL);
                return 0;
        }
        count(counter);
        if (parts->len <= SB_RECORD_SMALL)
                return submit(ctx, ring, parts, SB_RECORD_SMALL);
        if (parts->len <= SB_RECORD_LARGE)
                return submit(ctx, ring, parts, SB_RECORD_LARGE);
        count(SB_SWITCH_DROP_TOO_LONG);
        return 0;
}

/* The L7 thread owns the packet from here on, or it is lost. */
static __always_inline int to_l7(struct xdp_md *ctx, const struct record_parts *parts, __u32 counter)
{
        offer(ctx, parts, counter);
        return XDP_DROP;
}

/* What sb_option.framing says besides the state. */
static __always_inline __u16 beside_state(__u8 mode)
{
        return mode == SB_MODE_TUNNEL      ? SB_FRAMING_TUNNEL
               : mode == SB_MODE_UPGRADING ? SB_FRAMING_UPGRADING
                                           : 0;
}

/* Writes UDP, Geneve and our option to packet memory. */
static __always_inline void write_shim(struct sb_shim *shim, struct sb_tag_input *input,
                                       const struct packet *p, const struct sb_flow_entry *entry,
                                       const struct sb_node *node, const struct sb_switch_settings *s)
{
        struct sb_option *option = &shim->option;
        __u64 epoch = sb_epoch(node->clock), tag;

        sb_write_shim(shim, sb_source_port(&p->flow), bpf_htons(SB_GENEVE_PORT), p->ip_len, epoch,
                      p->l3_len == sizeof(struct iphdr));
        option->op = p->handoff_op;
        option->flags = entry->options | p->handoff_flags;
        option->reason = SB_REASON_NONE;
        option->wscale = entry->wscale;
        option->origin = bpf_htonl(entry->origin);
        option->mss = bpf_htons(entry->mss);
        option->requests = bpf_htons(entry->requests);
        option->next = bpf_htonl(entry->next);
        option->detail = bpf_htonl(entry->heads);
        option->session = entry->session;
        option->framing = bpf_htons(entry->framing.state | beside_state(entry->mode));
        option->head = bpf_htons(p->handoff_head);
        option->left = bpf_htonl(entry->framing.left > ~0U ? ~0U : (__u32)entry->framing.left);
        sb_copy_v6(input->node, node->address);
        sb_copy_v6(input->switch_address, node->source);
        input->epoch = bpf_cpu_to_be64(epoch);
        input->flow = p->flow;
        input->seq = bpf_htonl(p->seq);
        input->ack = bpf_htonl(p->ack);
        __builtin_memcpy(input->option, &option->op, SB_TAGGED_LEN);
        tag = sb_tag(&s->sign, input);
        __builtin_memcpy(option->tag, &tag, sizeof(tag));
}

/*
 * Puts Ethernet, IP, UDP and Geneve in front of the client's IP packet and sends it to the node. If that is this machine,
 * the frame stays the one that came in, and goes on to the kernel, where the node's own program takes it.
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
                return drop(SB_SWITCH_DROP_MALFORMED);
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
        sb_write_outer(data, node->source, node->address, p->traffic_class,
                       sizeof(struct sb_shim) + p->ip_len, outer_len == sizeof(struct iphdr));
        write_shim(data + sizeof(*eth) + outer_len, input, p, entry, node, s);
        count(SB_SWITCH_FORWARDED);
        if (node->here)
                return XDP_PASS;
        if (node->ifindex == ctx->ingress_ifindex)
                return XDP_TX;
        return bpf_redirect(node->ifindex, 0);
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

        if (!node || is_unset(node->address))
                return drop(SB_SWITCH_DROP_NO_NODE);
        /* A router repeats what it says; a client waits for its data. */
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
        if (sb_is_v4(node->address))
                return encapsulate(ctx, p, entry, node, s, sizeof(struct iphdr));
        return encapsulate(ctx, p, entry, node, s, sizeof(struct ipv6hdr));
}

/* When a packet was made, by the clock of the node that it is from; less than zero if that was another time, or no node. */
static __noinline int read_epoch(const __u8 address[16], const struct sb_option *option, __be32 vni,
                                 __u64 *epoch)
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
 * A UDP packet to the Geneve port. `outer` describes the outer IP header. Geneve traffic of others passes; what
 * carries our option must carry a valid tag.
 */
static __noinline int on_handoff(struct xdp_md *ctx, const struct packet *outer,
                                 const struct sb_switch_settings *s)
{
        void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
        struct sb_shim *shim = sb_at(data, outer->start + outer->l3_len);
        struct record_parts parts = {.kind = SB_RECORD_HANDOFF};
        struct sb_option option;
        struct sb_tag_input *input;
        struct sb_flow_entry *entry;
        struct packet inner = {};
        __u8 next_header = 0;
        __be16 protocol;
        __be32 vni;
        __u64 epoch;

        if ((void *)(shim + 1) > end)
                return XDP_PASS;
        if (shim->dest != bpf_htons(SB_GENEVE_PORT) ||
            shim->geneve.ver_opt_len != sizeof(struct sb_option) / 4 || !sb_has_option(shim))
                return XDP_PASS;
        /* Another switch hands over to the node that this machine is. */
        if (s->is_node && shim->option.op < SB_OP_ADOPTED)
                return XDP_PASS;
        protocol = shim->geneve.protocol;
        if (protocol != bpf_htons(ETH_P_IP) && protocol != bpf_htons(ETH_P_IPV6))
                return drop(SB_SWITCH_DROP_MALFORMED);
        option = shim->option;
        vni = shim->geneve.vni;
        if (parse_ip(ctx, outer->start + outer->l3_len + sizeof(*shim), protocol, &inner, &next_header) !=
                PARSED_TCP ||
            parse_tcp(ctx, &inner))
                return drop(SB_SWITCH_DROP_MALFORMED);
        input = sb_new_tag_input();
        if (!input)
                return drop(SB_SWITCH_DROP_TAG);
        if (read_epoch(outer->flow.client, &option, vni, &epoch))
                return drop(SB_SWITCH_DROP_EPOCH);
        sb_copy_v6(input->node, outer->flow.client);
        sb_copy_v6(input->switch_address, outer->flow.vip);
        input->epoch = bpf_cpu_to_be64(epoch);
        input->flow = inner.flow;
        input->seq = bpf_htonl(inner.seq);
        input->ack = bpf_htonl(inner.ack);
        __builtin_memcpy(input->option, &option.op, SB_TAGGED_LEN);
        if (!sb_tag_valid(&s->sign, &s->accept, input, &option))
                return drop(SB_SWITCH_DROP_TAG);
        if (option.op == SB_OP_CLOSED) {
                entry = bpf_map_lookup_elem(&flows, &inner.flow);
                if (entry && entry->origin == bpf_ntohl(option.origin)) {
                        remember_end(&inner.flow, bpf_ntohl(option.origin));
                        bpf_map_delete_elem(&flows, &inner.flow);
                        count(SB_SWITCH_CLOSED);
                }
                return XDP_DROP;
        }
        parts.flow = &inner.flow;
        parts.option = &option;
        parts.node = outer->flow.client;
        parts.start = inner.start;
        parts.len = inner.ip_len;
        return to_l7(ctx, &parts, SB_SWITCH_HANDOFF_RECEIVED);
}

#endif
