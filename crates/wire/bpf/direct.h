/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What nodes and clients with the shim share: keys of clients, introductions, and tunnels for packets that
 * the kernel may still cut into segments.
 */
#ifndef SWITCHBACK_DIRECT_H
#define SWITCHBACK_DIRECT_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "handoff.h"
#include "packet.h"
#include "siphash.h"

/*
 * Input for the tag of a packet that the kernel may cut into segments: it covers the flow, and no sequence
 * numbers.
 */
static __always_inline struct sb_tag_input *
sb_client_tag_input(const __u8 node[16], const struct sb_flow *flow, const struct sb_option *option)
{
        struct sb_tag_input *input = sb_new_tag_input();

        if (!input)
                return NULL;
        sb_copy_v6(input->node, node);
        __builtin_memset(input->switch_address, 0, sizeof(input->switch_address));
        input->epoch = 0;
        input->flow = *flow;
        input->seq = 0;
        input->ack = 0;
        __builtin_memcpy(input->option, &option->version, SB_TAGGED_LEN);
        return input;
}

/* Derives the key of a client from the cluster's key for clients. A key of zeroes gives a key of zeroes. */
__noinline int sb_client_key(const struct sb_key *master, const struct sb_client_key_input *of,
                             struct sb_key *key)
{
        struct sb_client_key_input input;

        if (!master || !of || !key)
                return -1;
        key->k0 = 0;
        key->k1 = 0;
        if ((master->k0 | master->k1) == 0)
                return 0;
        input = *of;
        input.half = 0;
        key->k0 = sb_siphash(master, (const __u32 *)&input, sizeof(input) / 4);
        input.half = 1;
        key->k1 = sb_siphash(master, (const __u32 *)&input, sizeof(input) / 4);
        return 0;
}

__noinline __u64 sb_introduction_tag(const struct sb_key *key, const struct sb_introduction_input *input)
{
        if (!key || !input)
                return 0;
        return sb_siphash(key, (const __u32 *)input, sizeof(*input) / 4);
}

/* Addresses, ports and option of a packet that goes into a tunnel. */
struct sb_tunnel {
        __u8 source[16];
        __u8 dest[16];
        __u8 node[16]; /* `source` or `dest` */
        struct sb_flow flow;
        struct sb_key key;
        struct sb_option option; /* `version` is set by sb_into_tunnel() */
        __be16 source_port;
        __be16 dest_port;
};

/*
 * Puts a TCP packet, which has its Ethernet header, into a tunnel of the same IP version as `dest`. If the
 * kernel cuts the packet into segments, each gets a copy of these headers with the same option, so the tag
 * covers no sequence numbers.
 */
__noinline int sb_into_tunnel(struct __sk_buff *skb, struct sb_tunnel *t)
{
        struct sb_tag_input *input;
        __u32 outer_len, start, inner_len;
        struct sb_shim *shim;
        void *data, *end;
        __u8 begins[2] = {}, traffic_class;
        __u64 flags, tag;
        int v4;

        if (!t)
                return -1;
        v4 = sb_is_v4(t->dest);
        outer_len = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
        flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
        flags |= v4 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV6;
        inner_len = skb->len - sizeof(struct ethhdr);
        bpf_skb_load_bytes(skb, sizeof(struct ethhdr), begins, sizeof(begins));
        /* The inner traffic class: the tunnel carries its congestion marks (RFC 6040). */
        traffic_class = v4 ? begins[1] : begins[0] << 4 | begins[1] >> 4;
        if (bpf_skb_adjust_room(skb, outer_len + sizeof(*shim), BPF_ADJ_ROOM_MAC, flags) ||
            bpf_skb_pull_data(skb, sizeof(struct ethhdr) + outer_len + sizeof(*shim)))
                return -1;
        data = (void *)(long)skb->data;
        end = (void *)(long)skb->data_end;
        start = sizeof(struct ethhdr) + outer_len;
        shim = sb_at(data, start);
        if (data + sizeof(struct ethhdr) + sizeof(struct ipv6hdr) > end || (void *)(shim + 1) > end)
                return -1;
        sb_write_outer(data, t->source, t->dest, traffic_class, sizeof(*shim) + inner_len, v4);
        sb_write_shim(shim, t->source_port, t->dest_port, inner_len, 0, v4);
        t->option.version = SB_VERSION_USUAL;
        input = sb_client_tag_input(t->node, &t->flow, &t->option);
        if (!input)
                return -1;
        tag = sb_tag(&t->key, input);
        __builtin_memcpy(&shim->option.version, &t->option.version, SB_TAGGED_LEN);
        __builtin_memcpy(shim->option.tag, &tag, sizeof(tag));
        return 0;
}

#endif
