/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Packets of nodes: introductions in packets of a VIP, and packets in tunnels. */
#ifndef CLIENT_RECEIVE_H
#define CLIENT_RECEIVE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "client_maps.h"
#include "counters.h"
#include "direct.h"
#include "flow.h"
#include "handoff.h"
#include "maps.h"
#include "packet.h"
#include "read.h"
#include "tcx.h"

static __noinline int read_introduction(struct __sk_buff *skb, const struct packet *p,
                                        struct sb_introduction *option)
{
        if (p->flags != SB_TCP_ACK || p->payload || p->tcp_len != sizeof(struct tcphdr) + sizeof(*option) ||
            bpf_skb_load_bytes(skb, p->tcp + sizeof(struct tcphdr), option, sizeof(*option)))
                return 0;
        return option->kind == SB_TCPOPT_EXPERIMENT && option->id == bpf_htons(SB_INTRODUCTION_ID) &&
               option->length == sizeof(*option);
}

/* Whether the introduction has a valid tag. `flow` is as the cluster sees it. */
static __noinline int is_introduced(const struct packet *p, const struct sb_introduction *option,
                                    const struct sb_flow *flow)
{
        struct sb_client_keys *own = bpf_map_lookup_elem(&keys, flow->client);
        struct sb_introduction_input input = {};
        __u64 tag;

        if (!own)
                return 0;
        sb_copy_v6(input.node, option->node);
        input.flow = *flow;
        input.seq = bpf_htonl(p->seq);
        input.ack = bpf_htonl(p->ack);
        input.next = option->next;
        input.wscale = option->wscale;
        __builtin_memcpy(&tag, option->tag, sizeof(tag));
        if (sb_introduction_tag(&own->sign, &input) == tag)
                return 1;
        return (own->accept.k0 | own->accept.k1) != 0 && sb_introduction_tag(&own->accept, &input) == tag;
}

/* Counts an introduction of the node. Less than zero if the node is to be avoided now. */
static __noinline int meet_node(const __u8 address[16])
{
        struct sb_direct_node fresh = {}, *node;

        node = bpf_map_lookup_elem(&nodes, address);
        if (!node) {
                bpf_map_update_elem(&nodes, address, &fresh, BPF_NOEXIST);
                node = bpf_map_lookup_elem(&nodes, address);
        }
        if (!node || bpf_ktime_get_ns() < node->avoid_ns)
                return -1;
        node->introductions++;
        return 0;
}

/* Whether the introduction says nothing new, except for the mark. */
static __always_inline int is_known(const struct sb_direct_flow *flow, const struct sb_introduction *option,
                                    const struct sb_flow *cluster)
{
        return flow && flow->state == SB_DIRECT_ON && sb_same_v6(flow->node, option->node) &&
               sb_same_v6(flow->client, cluster->client) && flow->client_port == cluster->client_port;
}

/* Whether a NAT or a firewall tracks the connection. */
static __always_inline int is_watched(const struct packet *p, const struct sb_flow *cluster)
{
        __u32 zero = 0;
        struct sb_client_settings *s = bpf_map_lookup_elem(&settings, &zero);

        return (s && s->firewall) || !sb_same_v6(p->flow.client, cluster->client) ||
               p->flow.client_port != cluster->client_port;
}

/* Starts sending packets of the flow to the node. */
static __noinline int begin(const struct packet *p, const struct sb_introduction *option,
                            const struct sb_flow *cluster, __u32 sent)
{
        struct sb_direct_flow flow = {
            .client_port = cluster->client_port,
            .state = SB_DIRECT_ON,
            .next = bpf_ntohl(option->next),
            .sent = sent,
            .acked = p->seq,
            .left_out = p->seq,
            .in_order = p->seq,
            .highest = p->seq,
            .edge = p->seq,
            .watched = is_watched(p, cluster),
            .wscale = option->wscale,
        };

        sb_copy_v6(flow.node, option->node);
        sb_copy_v6(flow.client, cluster->client);
        return bpf_map_update_elem(&flows, &p->flow, &flow, BPF_ANY);
}

/* Takes the introduction of a node. The packet says nothing else, and ends here. */
__noinline int on_introduction(const struct packet *p, const struct sb_introduction *option)
{
        struct sb_direct_flow *flow;
        struct sb_flow cluster;
        __u32 sent;

        if (!p || !option)
                return TCX_DROP;
        cluster = p->flow;
        if (p->v4) {
                sb_map_v4(cluster.client, option->client);
                cluster.client_port = option->client_port;
        }
        if (!is_introduced(p, option, &cluster))
                return drop(SB_CLIENT_DROP_TAG);
        if (sb_is_v4(option->node) != p->v4)
                return drop(SB_CLIENT_DROP_MALFORMED);
        flow = bpf_map_lookup_elem(&flows, &p->flow);
        /* The first byte of the request has been sent, and so has the packet that it is in. */
        sent = p->ack + 1;
        if (flow && is_after(flow->sent, sent))
                sent = flow->sent;
        if (flow && is_after(flow->sent, bpf_ntohl(option->next)))
                return drop(SB_CLIENT_INTRODUCED_LATE);
        if (meet_node(option->node))
                return drop(SB_CLIENT_AVOIDED);
        if (is_known(flow, option, &cluster))
                flow->next = bpf_ntohl(option->next);
        else
                begin(p, option, &cluster, sent);
        return drop(SB_CLIENT_INTRODUCED);
}

/* A packet from or to the Geneve port with our option. */
struct said {
        struct packet inner;
        __u8 sender[16];
        struct sb_option option;
        __u16 outer_len;
        __u8 congested; /* the outer header has a congestion mark, RFC 6040 */
};

enum read_result {
        READ_OTHER, /* no packet of a node */
        READ_SAID,
        READ_MALFORMED,
};

static __always_inline int is_from_node(__u8 op)
{
        return op == SB_OP_HEARD || op == SB_OP_GONE || op == SB_OP_TUNNELED;
}

static __noinline enum read_result read_said(struct __sk_buff *skb, struct said *said)
{
        __u8 dest[16] __attribute__((aligned(8)));
        struct sb_cursor cursor;
        struct sb_shim *shim;
        struct sb_ip ip;
        __u32 inner_end;

        cursor = sb_cursor_at((void *)(long)skb->data, (void *)(long)skb->data_end, sizeof(struct ethhdr));
        if (sb_parse_ip(&cursor, skb->protocol, said->sender, dest, &ip) != IPPROTO_UDP)
                return READ_OTHER;
        shim = cursor.at;
        if ((void *)(shim + 1) > cursor.end ||
            (shim->source != bpf_htons(SB_GENEVE_PORT) && shim->dest != bpf_htons(SB_GENEVE_PORT)) ||
            shim->geneve.ver_opt_len != sizeof(struct sb_option) / 4 || !sb_has_option(shim) ||
            !is_from_node(shim->option.op))
                return READ_OTHER;
        said->outer_len = ip.header_len;
        said->congested = sb_is_congested(&ip);
        said->option = shim->option;
        if (read_packet(skb, &said->inner, sizeof(struct ethhdr) + said->outer_len + sizeof(*shim),
                        shim->geneve.protocol, said->option.op == SB_OP_TUNNELED ? IN : OUT))
                return READ_MALFORMED;
        /* Behind the outer packet there may be padding. */
        inner_end = (__u32)said->inner.tcp + said->inner.tcp_len + said->inner.payload;
        return inner_end > sizeof(struct ethhdr) + ip.len ? READ_MALFORMED : READ_SAID;
}

static __noinline int is_signed(const struct said *said)
{
        struct sb_client_keys *own = bpf_map_lookup_elem(&keys, said->inner.flow.client);
        struct sb_tag_input *input;

        if (!own)
                return 0;
        input = sb_client_tag_input(said->sender, &said->inner.flow, &said->option);
        return input && sb_tag_valid(&own->sign, &own->accept, input, &said->option);
}

/* Takes the answer to a DIRECT. By IPv4 the option says which flow of this machine it is about. */
static __noinline int on_answer(const struct said *said)
{
        struct sb_flow local = said->inner.flow;
        struct sb_direct_flow *flow;

        if (said->inner.v4) {
                sb_map_v4(local.client, said->option.payload.direct.client);
                local.client_port = said->option.payload.direct.client_port;
        }
        flow = bpf_map_lookup_elem(&flows, &local);
        if (flow && sb_same_v6(flow->node, said->sender)) {
                if (said->option.op == SB_OP_HEARD)
                        flow->asks = 0;
                else
                        flow->state = SB_DIRECT_OFF;
        }
        return drop(said->option.op == SB_OP_HEARD ? SB_CLIENT_HEARD : SB_CLIENT_GONE);
}

/* Takes a packet of the server out of its tunnel, for the kernel. */
static __noinline int on_tunneled(struct __sk_buff *skb, struct said *said)
{
        __s32 shrink = -(__s32)(said->outer_len + sizeof(struct sb_shim));
        __u32 one = 1;

        if (!is_service(&said->inner.flow))
                return drop(SB_CLIENT_DROP_FOREIGN);
        if (sb_is_v4(said->sender) != said->inner.v4 ||
            bpf_skb_adjust_room(skb, shrink, BPF_ADJ_ROOM_MAC,
                                BPF_F_ADJ_ROOM_FIXED_GSO |
                                    (said->inner.v4 ? SB_DECAP_L3_IPV4 : SB_DECAP_L3_IPV6)))
                return drop(SB_CLIENT_DROP_MALFORMED);
        if (said->congested)
                bpf_skb_ecn_set_ce(skb);
        count(SB_CLIENT_TUNNELED);
        said->inner.start += shrink;
        said->inner.tcp += shrink;
        if (!bpf_map_lookup_elem(&tunneled, &said->inner.flow))
                bpf_map_update_elem(&tunneled, &said->inner.flow, &one, BPF_ANY);
        return TCX_NEXT;
}

#endif
