// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The switch's fast path. It keeps no state of a connection until its first data comes (SYN cookies),
 * forwards packets of dispatched requests by the flow map, and gives every packet that may begin a request to
 * the L7 thread. It never acknowledges data: until a node has a byte, the client still holds it.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "allowance.h"
#include "body.h"
#include "choices.h"
#include "counters.h"
#include "entry.h"
#include "express.h"
#include "flow.h"
#include "forward.h"
#include "framing.h"
#include "guard.h"
#include "handoff.h"
#include "handshake.h"
#include "icmp.h"
#include "l7.h"
#include "maps.h"
#include "neighbour.h"
#include "packet.h"
#include "parse.h"
#include "receive.h"
#include "switch_maps.h"
#include "syn_cookie.h"
#include "transmit.h"

static __always_inline int may_begin_request(struct xdp_md *ctx, const struct packet *p,
                                             const struct sb_flow_entry *entry)
{
        struct record_parts parts = {
            .kind = SB_RECORD_REQUEST, .flow = &p->flow, .entry = entry, .start = p->start, .len = p->ip_len};

        return to_l7(ctx, &parts, SB_SWITCH_REQUEST);
}

/*
 * The flow has been taken from a node, and its client is elsewhere: another switch has given it to a node, or has
 * seen it end and another connection begin.
 */
static __always_inline int is_elsewhere(const struct sb_flow_entry *entry, const struct packet *p)
{
        return entry->generation && p->seq != entry->next;
}

/* A packet of a flow without a node. */
static __noinline int on_held(struct xdp_md *ctx, const struct packet *p, const struct sb_flow_entry *entry)
{
        const int takes_all = entry->mode == SB_MODE_ANSWERED || entry->mode == SB_MODE_RESUMING;

        if (!takes_all && !p->payload && !(p->flags & (SB_TCP_FIN | SB_TCP_RST)) && !is_elsewhere(entry, p))
                return drop(SB_SWITCH_DROP_HELD);
        return is_damaged(ctx, p) ? drop(SB_SWITCH_DROP_CHECKSUM) : may_begin_request(ctx, p, entry);
}

/* Moves the mark behind a plain head, which is all of the packet's data. */
static __always_inline void begin_request(const struct packet *p, struct sb_flow_entry *entry, int plain)
{
        entry->begins = p->seq;
        entry->next = p->seq + p->payload;
        entry->requests++;
        entry->heads = entry->heads << 1 | !!(plain & PLAIN_HEAD);
}

/* Whether the program itself can send to the node. */
static __always_inline int is_resolved(__u32 index)
{
        struct sb_node *node = bpf_map_lookup_elem(&nodes, &index);

        return node && node->ifindex;
}

/* Whether the program can give the node flows. */
static __always_inline int is_usable(__u32 index)
{
        struct sb_node *node = bpf_map_lookup_elem(&nodes, &index);

        return node && node->ifindex && node->clock && !node->dead;
}

/*
 * Whether the other of the flow maps has the flow, too. The exchange is a barrier: of two programs that each write to
 * one map and look into the other, one sees the other's entry.
 */
static __always_inline int is_also_in(void *map, const struct sb_flow *flow)
{
        volatile __u32 barrier = 0;

        __sync_lock_test_and_set(&barrier, 1);
        return bpf_map_lookup_elem(map, flow) != NULL;
}

/*
 * Creates the entry of a connection with its first data, and gives the packet to the L7 thread. The entry has
 * to exist at once: the rest of a long head follows, and has no cookie that could be checked.
 */
static __noinline int begin_flow(struct xdp_md *ctx, const struct packet *p,
                                 const struct sb_flow_entry *entry, const struct sb_vip *vip)
{
        const struct sb_guard *guard = guard_of(vip);
        struct record_parts parts = {
            .kind = SB_RECORD_REQUEST, .flow = &p->flow, .entry = entry, .start = p->start, .len = p->ip_len};

        bpf_map_update_elem(&waiting, &p->flow, entry, BPF_NOEXIST);
        if (is_also_in(&flows, &p->flow)) {
                bpf_map_delete_elem(&waiting, &p->flow);
                return drop(SB_SWITCH_DROP_TWICE);
        }
        if (!offer(ctx, &parts, SB_SWITCH_REQUEST))
                bpf_map_delete_elem(&waiting, &p->flow);
        else if (guard)
                count_connection(&p->flow, guard, 1);
        return XDP_DROP;
}

/* Verdict of a function that has found the first packet of a new connection. Its entry is in hand. */
#define BEGINS_HERE 101

/* What has become of a first request. */
enum placing {
        PLACED,
        PLACED_TWICE,
        PLACED_NOT,
};

/*
 * Gives a first request to the node that the L7 thread has chosen ahead, if the request is plain. A copy of the packet
 * on another CPU may be on its way to the L7 thread: each makes its entry before it looks for the other's, so at most
 * one goes on.
 */
static __noinline enum placing place_first(struct xdp_md *ctx, struct packet *p, struct sb_flow_entry *entry,
                                           const struct sb_vip *vip, const struct sb_switch_settings *s)
{
        struct found_buckets found = {.now = bpf_ktime_get_ns()};
        const struct sb_guard *guard = guard_of(vip);
        struct sb_choices *queue;
        int plain, node;
        __u16 left = 0;

        if (p->ip_len > SB_RECORD_LARGE || p->flags & SB_TCP_FIN)
                return PLACED_NOT;
        plain = read_plain(ctx, p, vip);
        if (plain < 0)
                return PLACED_NOT;
        queue = choices_of(vip, plain & PLAIN_POOL);
        if (!queue || (guard && !have_tokens(&p->flow, guard, SB_OF_REQUESTS, &found)))
                return PLACED_NOT;
        node = take_choice(queue, found.now, &left);
        if (node < 0)
                return PLACED_NOT;
        if (left == queue->low)
                wake_l7_now();
        if (!is_usable(node))
                return PLACED_NOT;
        entry->node = node;
        entry->mode = SB_MODE_ADOPTING;
        entry->generation = s->generation;
        begin_request(p, entry, plain);
        if (bpf_map_update_elem(&flows, &p->flow, entry, BPF_NOEXIST))
                return PLACED_TWICE;
        if (is_also_in(&waiting, &p->flow)) {
                bpf_map_delete_elem(&flows, &p->flow);
                return PLACED_TWICE;
        }
        if (guard) {
                take_tokens_of(&p->flow, guard, SB_OF_REQUESTS, &found);
                count_connection(&p->flow, guard, 1);
        }
        p->handoff_op = SB_OP_ADOPT;
        p->handoff_flags = recovery_of(plain);
        p->handoff_share = queue->share;
        p->handoff_boundary = p->payload;
        count(SB_SWITCH_PLACED);
        if (observe != SB_OBSERVE_NOTHING)
                tell_request(p, entry, 1);
        return PLACED;
}

/* The L7 thread asks the nodes for the packet's flow. */
static __noinline int ask(struct xdp_md *ctx, const struct packet *p)
{
        struct record_parts parts = {
            .kind = SB_RECORD_UNKNOWN, .flow = &p->flow, .start = p->start, .len = p->ip_len};

        return is_damaged(ctx, p) ? drop(SB_SWITCH_DROP_CHECKSUM) : to_l7(ctx, &parts, SB_SWITCH_DROP_COOKIE);
}

/* Whether the packet is a keep-alive probe on a connection without a request. Not inlined, because of the stack. */
static __noinline int is_probe(const struct packet *p, const struct sb_switch_settings *s,
                               const struct sb_tcp_options *options)
{
        struct sb_flow_entry *entry;

        if (p->payload > 1 || p->flags != SB_TCP_ACK)
                return 0;
        entry = new_entry();
        return entry && cookie_check(s, &p->flow, p->seq, p->ack - 1, options, entry);
}

/*
 * A packet without a flow entry: the end of a handshake, a first request, or a packet of a flow that only its
 * node knows.
 */
static __noinline int on_unknown_flow(struct xdp_md *ctx, const struct packet *p, const struct sb_vip *vip,
                                      const struct sb_switch_settings *s)
{
        const struct sb_guard *guard = guard_of(vip);
        struct sb_flow_entry *entry = new_entry();
        struct sb_tcp_options options;
        enum maker maker;
        struct end *end;
        int verdict;

        if (!entry)
                return XDP_DROP;
        if (p->flags & SB_TCP_RST)
                return drop(SB_SWITCH_DROP_FLAGS);
        read_options(ctx, p, &options);
        maker = cookie_check(s, &p->flow, p->seq - 1, p->ack - 1, &options, entry);
        end = end_of(&p->flow, p->seq);
        if (maker && p->payload && (!end || end->in_doubt)) {
                if (is_damaged(ctx, p))
                        return drop(SB_SWITCH_DROP_CHECKSUM);
                if (guard) {
                        struct found_buckets found = {.now = bpf_ktime_get_ns()};

                        verdict = welcome(&p->flow, guard, &found);
                        if (verdict != WELCOME)
                                return verdict;
                        take_tokens_of(&p->flow, guard, SB_OF_CONNECTIONS, &found);
                }
                entry->origin = p->seq;
                entry->next = p->seq;
                entry->begins = p->seq;
                entry->mode = SB_MODE_HELD;
                entry->options |= end_handshake(p->ack - 1);
                if ((maker != MADE_HERE || end) && may_ask(&p->flow, s))
                        entry->mode = SB_MODE_SOUGHT;
                else if (maker == MADE_ELSEWHERE || end)
                        return drop(SB_SWITCH_DROP_UNASKED);
                if (maker == MADE_HERE && !end && claim_first_data(p->ack - 1))
                        return BEGINS_HERE;
                return begin_flow(ctx, p, entry, vip);
        }
        if (maker && !p->payload) {
                if (p->flags & SB_TCP_FIN)
                        return send_reset(ctx, p, SB_SWITCH_RESET_SENT);
                end_handshake(p->ack - 1);
                return drop(SB_SWITCH_HANDSHAKE_ACK);
        }
        if (!maker && is_probe(p, s, &options))
                return answer_probe(ctx, p, &options);
        return may_ask(&p->flow, s) ? ask(ctx, p) : drop(SB_SWITCH_DROP_COOKIE);
}

/*
 * Ends the entry of a connection whose client has begun another one. The L7 thread may still be at work on a request of
 * the first, and send ADOPT for it, so it gets the first data of the second too, in their order.
 */
static __always_inline void give_way(void *map, const struct packet *p, __u32 origin)
{
        remember_end(&p->flow, origin, 0);
        end_entry(map, &p->flow);
        claim_first_data(p->ack - 1);
        count(SB_SWITCH_SUCCEEDED);
}

/* A packet of a flow in `waiting`, or of an unknown one. */
static __always_inline int on_waiting_flow(struct xdp_md *ctx, const struct packet *p,
                                           const struct sb_vip *vip, const struct sb_switch_settings *s)
{
        struct sb_flow_entry *place, *entry = read_entry(&waiting, &p->flow, &place);

        if (entry && !(entry->contested && is_successor(ctx, p, s, entry->origin)))
                return on_held(ctx, p, entry);
        if (entry)
                give_way(&waiting, p, entry->origin);
        return on_unknown_flow(ctx, p, vip, s);
}

/* A packet of a flow that is not in `flows`. */
static __noinline int on_flow_without_node(struct xdp_md *ctx, struct packet *p, const struct sb_vip *vip,
                                           const struct sb_switch_settings *s)
{
        int verdict = on_waiting_flow(ctx, p, vip, s);
        struct sb_flow_entry *entry;

        if (verdict != BEGINS_HERE)
                return verdict;
        entry = entry_in_hand();
        if (!entry)
                return XDP_DROP;
        switch (place_first(ctx, p, entry, vip, s)) {
        case PLACED:
                return forward(ctx, p, entry, s);
        case PLACED_TWICE:
                return drop(SB_SWITCH_DROP_TWICE);
        case PLACED_NOT:
                break;
        }
        return begin_flow(ctx, p, entry, vip);
}

/* What becomes of data beyond the mark of a flow that has a node. */
enum beyond {
        BEYOND_FORWARD,
        BEYOND_ASK,
        BEYOND_DAMAGED,
};

static __always_inline enum beyond read_beyond(struct xdp_md *ctx, struct packet *p,
                                               struct sb_flow_entry *place, struct sb_flow_entry *entry,
                                               const struct sb_vip *vip)
{
        __s32 before = (__s32)(entry->next - p->seq);
        const struct sb_guard *guard = guard_of(vip);
        int plain;

        if (is_damaged(ctx, p))
                return BEYOND_DAMAGED;
        /* Data is missing before the packet, or the L7 thread is at work on it. */
        if (before < 0 || entry->locked || p->ip_len > SB_RECORD_LARGE || !is_resolved(entry->node))
                return BEYOND_ASK;
        if (entry->framing.state != SB_FRAMING_NONE) {
                if (!follow_body(ctx, p, place, entry))
                        return BEYOND_ASK;
                p->handoff_flags = SB_HANDOVER_READ;
                p->handoff_boundary = before;
                return BEYOND_FORWARD;
        }
        if (before != 0 || entry->mode != SB_MODE_REQUESTS)
                return BEYOND_ASK;
        /* Where the node handles cookies, each request goes to the L7 thread. */
        if (entry->session.pool[0] != 0)
                return BEYOND_ASK;
        plain = read_plain(ctx, p, vip);
        if (plain < 0 || !is_member(vip, plain & PLAIN_POOL, entry->node) ||
            !is_still_at(&flows, &p->flow, place) || (guard && !take_request(&p->flow, guard)))
                return BEYOND_ASK;
        entry->tries = 0;
        begin_request(p, entry, plain);
        move_mark(place, entry);
        p->handoff_flags = SB_HANDOVER_REQUEST | recovery_of(plain);
        p->handoff_boundary = p->payload;
        count(SB_SWITCH_EXPRESS);
        sb_add_one(&express_by_node, entry->node);
        sb_add_one(&express_by_service, vip->service);
        if (observe != SB_OBSERVE_NOTHING)
                tell_request(p, entry, 0);
        return BEYOND_FORWARD;
}

/* Whether nothing is heard of the node. Another node may have to answer what its clients send again. */
static __always_inline int is_dead(__u32 index)
{
        struct sb_node *node = bpf_map_lookup_elem(&nodes, &index);

        return node && node->dead;
}

static __always_inline int on_client(struct xdp_md *ctx, struct packet *p, const struct sb_vip *vip,
                                     const struct sb_switch_settings *s)
{
        __u32 end = p->seq + p->payload;
        struct sb_flow_entry *place, *entry;

        if (p->flags & SB_TCP_SYN) {
                if (p->flags & (SB_TCP_ACK | SB_TCP_RST | SB_TCP_FIN))
                        return drop(SB_SWITCH_DROP_FLAGS);
                return on_syn(ctx, p, vip, s);
        }
        /* No kernel accepts such a packet, so the switch reads nothing in it. */
        if (!(p->flags & (SB_TCP_ACK | SB_TCP_RST)))
                return drop(SB_SWITCH_DROP_FLAGS);
        if (p->flags & SB_TCP_URG)
                forget_urgency(ctx, p);
        entry = read_entry(&flows, &p->flow, &place);
        if (!entry)
                return on_flow_without_node(ctx, p, vip, s);
        if (entry->contested && is_successor(ctx, p, s, entry->origin)) {
                give_way(&flows, p, entry->origin);
                return on_flow_without_node(ctx, p, vip, s);
        }
        switch (entry->mode) {
        case SB_MODE_HELD:
        case SB_MODE_SOUGHT:
        case SB_MODE_ANSWERED:
        case SB_MODE_RESUMING:
                return on_held(ctx, p, entry);
        case SB_MODE_ADOPTING:
                if (!p->payload || p->flags & SB_TCP_RST)
                        break;
                if (is_damaged(ctx, p))
                        return drop(SB_SWITCH_DROP_CHECKSUM);
                if (is_still_at(&flows, &p->flow, place))
                        place->locked = 1;
                entry->locked = 1;
                return may_begin_request(ctx, p, entry);
        case SB_MODE_REQUESTS:
        case SB_MODE_UPGRADING:
        case SB_MODE_RESUMED:
                /* No kernel takes data from a RST. */
                if (!p->payload || p->flags & SB_TCP_RST)
                        break;
                /*
                 * The client has nearly reached a mark in the middle of a long body, or claims so. The L7
                 * thread asks the node before it moves the mark.
                 */
                if (is_passing(entry) && (__s32)(entry->next - end) < SB_STEP_NEAR)
                        return is_damaged(ctx, p) ? drop(SB_SWITCH_DROP_CHECKSUM)
                                                  : may_begin_request(ctx, p, entry);
                if ((__s32)(end - entry->next) <= 0)
                        break;
                switch (read_beyond(ctx, p, place, entry, vip)) {
                case BEYOND_FORWARD:
                        break;
                case BEYOND_ASK:
                        if (!entry->locked && is_still_at(&flows, &p->flow, place))
                                place->locked = 1;
                        entry->locked = 1;
                        return may_begin_request(ctx, p, entry);
                case BEYOND_DAMAGED:
                        return drop(SB_SWITCH_DROP_CHECKSUM);
                }
                break;
        }
        if (entry->ahead && !(p->handoff_flags & SB_HANDOVER_REQUEST))
                p->handoff_flags |= SB_HANDOVER_AHEAD;
        if (p->payload && !(p->flags & SB_TCP_RST) && entry->mode != SB_MODE_TUNNEL && is_dead(entry->node))
                return is_damaged(ctx, p) ? drop(SB_SWITCH_DROP_CHECKSUM) : may_begin_request(ctx, p, entry);
        return forward(ctx, p, entry, s);
}

/* The VIP has no service at this port. */
static __always_inline int on_closed_port(struct xdp_md *ctx, const struct packet *p)
{
        if (p->flags & SB_TCP_RST)
                return drop(SB_SWITCH_DROP_FLAGS);
        return send_reset(ctx, p, SB_SWITCH_NO_SERVICE);
}

static __always_inline int receive(struct xdp_md *ctx)
{
        void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
        struct ethhdr *eth = data;
        struct sb_cursor cursor = {.at = eth + 1, .end = end};
        struct sb_switch_settings *s;
        struct packet p = {.handoff_op = SB_OP_FORWARD};
        struct sb_vip *vip;
        __u32 zero = 0;
        int next;

        if ((void *)(eth + 1) > end)
                return XDP_PASS;
        if (eth->h_proto == bpf_htons(ETH_P_ARP))
                return on_arp(ctx);
        if (eth->h_proto != bpf_htons(ETH_P_IP) && eth->h_proto != bpf_htons(ETH_P_IPV6))
                return XDP_PASS;
        next = parse_ip(ctx, &cursor, sizeof(*eth), eth->h_proto, &p);
        s = bpf_map_lookup_elem(&settings, &zero);
        if (!s)
                return XDP_PASS;
        if (next == IPPROTO_UDP)
                return on_handoff(ctx, &p, s);
        if (next == IPPROTO_ICMPV6 && on_icmp6(ctx, &p) == SEND_BACK)
                return SEND_BACK;
        if (!is_vip(p.flow.vip))
                return XDP_PASS;
        if (next == SB_MALFORMED)
                return drop(SB_SWITCH_DROP_MALFORMED);
        if (next < 0)
                return drop(SB_SWITCH_DROP_FRAGMENT);
        if (next == IPPROTO_ICMP || next == IPPROTO_ICMPV6)
                return on_ping(ctx, &p) == SEND_BACK ? SEND_BACK : on_icmp(ctx, &p, s);
        if (next != IPPROTO_TCP)
                return XDP_PASS;
        if (parse_tcp(&cursor, &p))
                return drop(SB_SWITCH_DROP_MALFORMED);
        vip = find_vip(&p.flow);
        if (!vip)
                return on_closed_port(ctx, &p);
        return on_client(ctx, &p, vip, s);
}

SEC("xdp")
int switchback(struct xdp_md *ctx)
{
        const struct our_interface *interface;
        int verdict = receive(ctx);

        if (verdict != SEND_BACK)
                return verdict;
        interface = this_interface(ctx);
        return transmit(ctx, ctx->ingress_ifindex, interface ? interface->ways : 0);
}

/* The entry in the map, if it belongs to the change's connection. */
static __always_inline struct sb_flow_entry *entry_in(void *map, const struct change *change)
{
        struct sb_flow_entry *entry = bpf_map_lookup_elem(map, &change->flow);

        return entry && entry->origin == change->entry.origin ? entry : NULL;
}

static __always_inline void replace(struct change *change)
{
        struct sb_flow_entry *entry = entry_in(&flows, change);

        if (entry) {
                change->entry.contested |= entry->contested;
                bpf_map_update_elem(&flows, &change->flow, &change->entry, BPF_EXIST);
                return;
        }
        entry = entry_in(&waiting, change);
        if (!entry)
                return;
        change->entry.contested |= entry->contested;
        if (!has_node(&change->entry)) {
                bpf_map_update_elem(&waiting, &change->flow, &change->entry, BPF_EXIST);
                return;
        }
        /* In this order: one of the maps has the entry at any time. */
        bpf_map_update_elem(&flows, &change->flow, &change->entry, BPF_NOEXIST);
        bpf_map_delete_elem(&waiting, &change->flow);
}

/*
 * Creates the entry of a flow that a node has. It is contested from the start, because a SYN may have come
 * before.
 */
static __always_inline void create(struct change *change)
{
        struct sb_flow_entry *entry = bpf_map_lookup_elem(&waiting, &change->flow);

        if (entry && (entry->mode != SB_MODE_SOUGHT || entry->origin != change->entry.origin))
                return;
        change->entry.contested = 1;
        if (bpf_map_update_elem(&flows, &change->flow, &change->entry, BPF_NOEXIST) && !entry)
                return;
        if (entry)
                bpf_map_delete_elem(&waiting, &change->flow);
        else
                count_flow(&change->flow, 1);
}

static __always_inline void remove_from(void *map, const struct change *change)
{
        if (entry_in(map, change))
                end_entry(map, &change->flow);
}

static __always_inline void end(const struct change *change, int in_doubt)
{
        if (entry_in(&flows, change) || entry_in(&waiting, change))
                remember_end(&change->flow, change->entry.origin, in_doubt);
        remove_from(&flows, change);
        remove_from(&waiting, change);
}

static __always_inline void set_ahead(struct change *change)
{
        struct sb_flow_entry *entry = entry_in(&flows, change);

        if (!entry)
                entry = entry_in(&waiting, change);
        if (entry)
                entry->ahead = 1;
}

/*
 * Applies the changes of an L7 thread to the flow maps. The thread lags behind the packets: a connection
 * that it works on may have ended, by its node or because its client began another one, and its entry must
 * not come back. So each change applies to an entry of the same connection only. No connection can begin
 * between lookup and change: its SYN-ACK has to reach the client first, and the client's answer the switch.
 */
SEC("syscall")
int apply_changes(const struct change_context *ctx)
{
        __u32 thread = ctx->thread;
        struct change_batch *batch;
        struct change *change;

        if (thread >= SB_L7_THREADS)
                return 1;
        batch = &batches[thread];
        for (__u32 i = 0; i < CHANGES_MAX && i < batch->len; i++) {
                change = &batch->changes[i];
                switch (change->kind) {
                case CHANGE_REPLACE:
                        replace(change);
                        break;
                case CHANGE_CREATE:
                        create(change);
                        break;
                case CHANGE_REMOVE:
                        end(change, 0);
                        break;
                case CHANGE_FORGET:
                        end(change, 1);
                        break;
                case CHANGE_ABANDON:
                        remove_from(&waiting, change);
                        break;
                case CHANGE_AHEAD:
                        set_ahead(change);
                        break;
                }
        }
        return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
