// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The node's side of the handoff. Ingress takes handoff packets off their tunnel and gives them to the
 * kernel: an ADOPT becomes an established socket of the listening server by bpf_sk_assign_tcp_reqsk(), other
 * packets go to the socket of their flow. Egress mutes released flows. A tracepoint sees the states of
 * sockets.
 *
 * Each answer to the switch is the packet that asked, turned around in place, without user space. If a packet
 * has to go to the kernel and to be answered, its clone comes in again behind it.
 *
 * The verifier checks functions that are not static once, for any arguments, and not once for each path that
 * leads to them. So they check their pointers first.
 *
 * Where a pool has sessions, egress and ingress rewrite names of the servers' cookies, or a program inserts
 * cookies into what servers write.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "adopt.h"
#include "again.h"
#include "answer.h"
#include "away.h"
#include "client.h"
#include "counters.h"
#include "decap.h"
#include "deliver.h"
#include "fingerprint.h"
#include "flow.h"
#include "follow.h"
#include "forward.h"
#include "guard.h"
#include "handoff.h"
#include "here.h"
#include "hidden.h"
#include "insert.h"
#include "kept.h"
#include "kernel.h"
#include "list.h"
#include "load.h"
#include "maps.h"
#include "masquerade.h"
#include "node_maps.h"
#include "outlive.h"
#include "packet.h"
#include "plain_tcp.h"
#include "queue.h"
#include "read.h"
#include "received.h"
#include "release.h"
#include "replay.h"
#include "resume.h"
#include "socket.h"
#include "stalled.h"
#include "tcx.h"
#include "vips.h"

/* A switch wants reports. */
static __noinline int on_hello(const struct handoff *h)
{
        const struct sb_hello *said = &h->option.payload.hello;
        struct sb_listening_switch heard = {
            .heard_ns = bpf_ktime_get_ns(),
            .epoch = bpf_ntohl(said->taken.epoch),
            .number = bpf_ntohl(said->taken.number),
            .facts = !!(h->option.flags & SB_HELLO_FACTS),
            .newest = said->newest,
            .list = bpf_ntohl(said->listed.epoch),
            .listed = bpf_ntohl(said->listed.number),
            .order = bpf_ntohl(said->order),
            .drain = !!(h->option.flags & SB_HELLO_DRAIN),
            .own = said->own,
        };
        struct sb_asking asking = {.node = h->node};

        sb_copy_v6(asking.switch_address, h->sender);
        bpf_map_update_elem(&switches, &asking, &heard, BPF_ANY);
        return drop(SB_NODE_HELLO);
}

/* A switch wants to know the node's clock. */
static __always_inline int on_sync(struct handoff *h, const struct sb_node_settings *s)
{
        __u64 clock = sb_clock(s->clock);

        set_answer(h, SB_OP_SYNCED, SB_REASON_NONE);
        h->option.payload.sync.clock[0] = bpf_htonl(clock >> 32);
        h->option.payload.sync.clock[1] = bpf_htonl(clock);
        count(SB_NODE_SYNCED);
        return ANSWER;
}

/* A switch takes another node for dead. */
static __noinline int on_death(const struct handoff *h)
{
        __u32 node = bpf_ntohl(h->option.payload.death.node);
        __u64 now = bpf_ktime_get_ns();

        bpf_map_update_elem(&deaths, &node, &now, BPF_ANY);
        return drop(SB_NODE_DEATH);
}

static __always_inline int on_handoff(struct __sk_buff *skb, struct handoff *h,
                                      const struct sb_node_settings *s)
{
        if ((h->option.op == SB_OP_ICMP) != h->icmp || (h->second && h->option.op != SB_OP_ADOPT))
                return drop(SB_NODE_DROP_MALFORMED);
        switch (h->option.op) {
        case SB_OP_ADOPT:
                return on_adopt(skb, h);
        case SB_OP_FORWARD:
                return on_forward(skb, h);
        case SB_OP_CONFIRM:
                return on_confirm(skb, h);
        case SB_OP_RELEASE:
                return on_release(skb, h);
        case SB_OP_PROBE:
                return on_probe(skb, h);
        case SB_OP_KEEP:
                return on_keep(skb, h);
        case SB_OP_RESTORE:
                return on_restore(skb, h);
        case SB_OP_ICMP:
                count(SB_NODE_ICMP);
                return deliver(skb, h, bpf_map_lookup_elem(&owned, &h->flow));
        case SB_OP_HELLO:
                return on_hello(h);
        case SB_OP_SYNC:
                return on_sync(h, s);
        case SB_OP_DEAD:
                return on_death(h);
        default:
                /* A packet of this node's agent to the switch of this machine. */
                if (h->here && h->option.op >= SB_OP_ADOPTED)
                        return ANSWER_WHOLE;
                return drop(SB_NODE_DROP_MALFORMED);
        }
}

SEC("tcx/ingress")
int switchback_ingress(struct __sk_buff *skb)
{
        struct sb_node_settings *s;
        struct handoff *h = fresh_handoff();
        __u32 zero = 0;
        int handled;

        s = bpf_map_lookup_elem(&settings, &zero);
        if (!s || !h)
                return TCX_NEXT;
        switch (read_handoff(skb, h, s)) {
        case READ_HANDOFF:
                if (*(volatile __u32 *)&skb->mark == SKB_MARK_INTRODUCE)
                        return introduce(skb, h);
                /* Frames of the loopback interface have no addresses. */
                if (h->here)
                        bpf_skb_change_type(skb, PACKET_HOST);
                handled = on_handoff(skb, h, s);
                if (handled == ANSWER && h->option.op == SB_OP_ADOPTED && meet(skb, h))
                        return drop(SB_NODE_DROP_MALFORMED);
                if (handled != ANSWER && handled != ANSWER_WHOLE)
                        return handled;
                if (h->here)
                        return tell_switch(skb, h, handled == ANSWER_WHOLE);
                return answer(skb, h, s, handled == ANSWER_WHOLE);
        case READ_DIRECT:
                handled = on_direct(skb, h);
                s = bpf_map_lookup_elem(&towards_client, &zero);
                return handled == ANSWER_WHOLE && s ? answer(skb, h, s, 1) : handled;
        case READ_OTHER:
                return s->hidden && !is_let_in(skb) ? drop(SB_NODE_HIDDEN) : TCX_NEXT;
        case READ_FINGERPRINT:
                return hear_fingerprint(skb, h);
        case READ_PLAIN:
                return drop(SB_NODE_DROP_PLAIN);
        case READ_ARP_FOR_VIP:
                return drop(SB_NODE_ARP_IGNORED);
        case READ_WRONG_TAG:
                return drop(SB_NODE_DROP_TAG);
        case READ_WRONG_EPOCH:
                return drop(SB_NODE_DROP_EPOCH);
        case READ_LATER_VERSION:
                return drop(SB_NODE_DROP_VERSION);
        default:
                return drop(SB_NODE_DROP_MALFORMED);
        }
}

SEC("tcx/ingress")
int switchback_loopback(struct __sk_buff *skb)
{
        struct sb_node_settings *s;
        __u32 zero = 0;

        s = bpf_map_lookup_elem(&settings, &zero);
        return s ? on_loopback(skb, s) : TCX_NEXT;
}

SEC("tcx/ingress")
int switchback_guard(struct __sk_buff *skb)
{
        return on_other_interface(skb);
}

/* A packet of a flow that has no entry, or of no flow. */
static __always_inline int leave_unknown(struct __sk_buff *skb, const struct sb_flow *flow,
                                         const struct tcp_numbers *numbers)
{
        /* Of a handshake that was replayed and has failed: nobody else sends a SYN to a listener of a VIP. */
        if ((numbers->flags & SYN_ACK) == SYN_ACK && is_vip(flow->vip))
                return drop(SB_NODE_MUTED);
        if (unknown_to_client(skb, flow, numbers->tcp))
                return drop(SB_NODE_DROP_MALFORMED);
        return leave(skb, flow);
}

SEC("tcx/egress")
int switchback_egress(struct __sk_buff *skb)
{
        void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
        struct ethhdr *eth = data;
        struct sb_cursor cursor = {.at = eth + 1, .end = end};
        struct sb_flow flow = {};
        struct sb_node_settings *s;
        struct sb_owned *owned_flow;
        struct tcp_numbers numbers;
        struct tcphdr *tcp;
        struct sb_ip ip;
        __u32 zero = 0;
        int next, len, verdict;

        if (skb->mark == SKB_MARK_FINGERPRINT)
                return send_fingerprint(skb);
        if ((void *)(eth + 1) > end || skb->mark == SB_SKB_MARK_SWITCH)
                return TCX_NEXT;
        if (eth->h_proto == bpf_htons(ETH_P_ARP)) {
                s = bpf_map_lookup_elem(&settings, &zero);
                return s ? on_arp_out(skb, s) : TCX_NEXT;
        }
        next = sb_parse_ip(&cursor, eth->h_proto, flow.vip, flow.client, &ip);
        /* The first fragment has the TCP header, and without it a client cannot reassemble the packet. */
        if (next == SB_FRAGMENT)
                next = ip.protocol;
        if (next != IPPROTO_TCP)
                return TCX_NEXT;
        /* The IP header of a packet that exceeds its length field (BIG TCP) says 0. */
        ip.len = skb->len - sizeof(*eth);
        len = sb_parse_tcp(&cursor, &ip, &tcp);
        if (len < 0)
                return TCX_NEXT;
        flow.vip_port = tcp->source;
        flow.client_port = tcp->dest;
        numbers.seq = bpf_ntohl(tcp->seq);
        numbers.flags = sb_tcp_flags(tcp);
        numbers.tcp = sizeof(*eth) + ip.header_len;
        numbers.start = numbers.tcp + tcp->doff * 4;
        owned_flow = bpf_map_lookup_elem(&owned, &flow);
        if (!owned_flow)
                return leave_unknown(skb, &flow, &numbers);
        /* Only after a replayed handshake. */
        if (owned_flow->masquerade.stage) {
                if ((numbers.flags & SYN_ACK) == SYN_ACK)
                        return on_syn_ack(skb, owned_flow, &numbers, bpf_ntohl(tcp->ack_seq));
                if (skb->mark != SKB_MARK_INTRODUCE && to_client(skb, numbers.tcp, &owned_flow->masquerade))
                        return drop(SB_NODE_DROP_MALFORMED);
                tcp = sb_at((void *)(long)skb->data, numbers.tcp);
                if ((void *)(tcp + 1) > (void *)(long)skb->data_end)
                        return drop(SB_NODE_DROP_MALFORMED);
                numbers.seq = bpf_ntohl(tcp->seq);
        }
        if (is_mute(owned_flow, numbers.flags))
                return drop(SB_NODE_MUTED);
        if (is_away(owned_flow))
                note_from_away(skb, &owned_flow->away, numbers.tcp, len);
        verdict = keep_back(skb, owned_flow, &flow, tcp, len);
        if (verdict != TCX_NEXT)
                return verdict;
        unhook(owned_flow, &flow);
        verdict = follow_responses(skb, owned_flow, &flow, &numbers);
        if (is_away(owned_flow) && (numbers.flags & SB_TCP_RST || is_closed_away(&owned_flow->away)))
                end_away(&flow, owned_flow, SB_END_SERVER);
        return verdict == TCX_NEXT ? leave(skb, &flow) : verdict;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(switchback_socket_state, struct sock *sk, int old_state, int new_state)
{
        struct sb_node_settings *s;
        struct sb_owned *owned_flow;
        struct sb_flow flow = {};
        struct tcp_sock *tcp;
        __u32 zero = 0;

        if (new_state != TCP_ESTABLISHED && new_state != TCP_CLOSE)
                return 0;
        s = bpf_map_lookup_elem(&settings, &zero);
        if (!s || sk->__sk_common.skc_net.net->net_cookie != s->netns_cookie)
                return 0;
        tcp = (void *)bpf_skc_to_tcp_sock(sk);
        if (!tcp)
                return 0;
        flow_of_socket(tcp, &flow);
        owned_flow = bpf_map_lookup_elem(&owned, &flow);
        if (!owned_flow || owned_flow->state == SB_OWN_RELEASED)
                return 0;
        if (new_state == TCP_ESTABLISHED) {
                if (owned_flow->state == SB_OWN_ADOPTING) {
                        /* tcp_get_cookie_sock() has put the socket into the accept queue. */
                        give_back(owned_flow);
                        load_begin(owned_flow);
                }
                owned_flow->state = SB_OWN_OPEN;
                return 0;
        }
        if (owned_flow->state != SB_OWN_OPEN || is_aborted(tcp, owned_flow, &flow, old_state))
                return 0;
        load_end(owned_flow, SB_OWN_OPEN);
        end_flow(&flow, owned_flow,
                 sk->sk_err || sk->__sk_common.skc_flags >> SOCK_DONE & 1 ? SB_END_CLIENT : SB_END_SERVER);
        return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
