/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Reading a handoff packet and taking it off its tunnel. */
#ifndef NODE_DECAP_H
#define NODE_DECAP_H

/* Ethernet, outer IPv6, shim with both options, inner IPv6 and TCP with options. */
#define HEADERS_MAX                                                                                          \
        (sizeof(struct ethhdr) + 2 * sizeof(struct ipv6hdr) + sizeof(struct sb_shim) +                       \
         sizeof(struct sb_second) + 60)

struct handoff {
        struct sb_flow flow;
        __u8 sender[16];
        struct sb_option option;
        __u32 seq;
        __u32 ack;
        __u32 tsval;     /* of the client's packet, read when it is adopted */
        __u32 tsecr;     /* likewise; in RELEASED and CONFIRMED, what somebody else goes on from */
        __u16 outer_len; /* outer IP header: 20 or 40 */
        __u16 inner_len; /* inner IP header, likewise */
        __u16 payload;
        __u8 tcp_len; /* TCP header with options */
        __u8 tcp_flags;
        __u8 here;      /* from the switch that this machine is */
        __u8 icmp;      /* the inner packet is an ICMP error about a packet of the flow */
        __u8 congested; /* the outer header says so; RFC 6040 */
        __u8 second;    /* type of the second option; 0: there is none */
};

/* What a handler wants done with the packet, besides the verdicts of linux/bpf.h. */
enum handled {
        ANSWER = 100, /* turn it around with h->option, without the client's data */
        ANSWER_WHOLE, /* with it */
};

enum read_result {
        READ_OTHER, /* none of our business */
        READ_HANDOFF,
        READ_DIRECT, /* from a client; whether its tag is right has not been looked at */
        READ_PLAIN,  /* for a VIP, but not from a switch */
        READ_ARP_FOR_VIP,
        READ_WRONG_TAG,
        READ_WRONG_EPOCH,
        READ_MALFORMED,
};

#define ARPOP_REQUEST 1

struct arp_ipv4 {
        __be16 hardware;
        __be16 protocol;
        __u8 hardware_len;
        __u8 protocol_len;
        __be16 op;
        __u8 sender_mac[ETH_ALEN];
        __u8 sender_ip[4];
        __u8 target_mac[ETH_ALEN];
        __u8 target_ip[4];
} __attribute__((packed));

static __always_inline int is_vip(const __u8 address[16])
{
        return bpf_map_lookup_elem(&vip_addresses, address) != NULL;
}

/* What the address is here: SB_VIP_*, or zero. */
static __always_inline __u32 vip4(const __u8 ip[4])
{
        __u8 address[16] __attribute__((aligned(8)));
        __be32 word;
        __u32 *vip;

        __builtin_memcpy(&word, ip, sizeof(word));
        sb_map_v4(address, word);
        vip = bpf_map_lookup_elem(&vip_addresses, address);
        return vip ? *vip : 0;
}

static __noinline int asks_for_vip(struct __sk_buff *skb)
{
        struct arp_ipv4 *arp = (void *)(long)skb->data + sizeof(struct ethhdr);

        return (void *)(arp + 1) <= (void *)(long)skb->data_end && vip4(arp->target_ip);
}

/*
 * The kernel takes the source of the packet that waits for an ARP request's sender address (arp_announce=0),
 * which here is often a VIP: the request would draw the VIP's traffic to this node. But without an answer to it
 * the client is never reached, so it goes out under the node's own address. What else would announce a VIP is
 * dropped.
 */
static __noinline int on_arp_out(struct __sk_buff *skb, const struct sb_node_settings *s)
{
        const __u32 sender = sizeof(struct ethhdr) + offsetof(struct arp_ipv4, sender_ip);
        struct arp_ipv4 *arp = (void *)(long)skb->data + sizeof(struct ethhdr);

        if ((void *)(arp + 1) > (void *)(long)skb->data_end || !vip4(arp->sender_ip))
                return TCX_NEXT;
        /* Our own switch tells the network whose it is (RFC 5227 section 3). */
        if (vip4(arp->target_ip) == SB_VIP_SWITCHED)
                return TCX_NEXT;
        count(SB_NODE_ARP_ANNOUNCE);
        if (arp->op != bpf_htons(ARPOP_REQUEST) || vip4(arp->target_ip) || s->arp_sender == 0)
                return TCX_DROP;
        if (bpf_skb_store_bytes(skb, sender, &s->arp_sender, sizeof(s->arp_sender), 0))
                return TCX_DROP;
        return TCX_NEXT;
}

/* The packet that an ICMP error behind the shim is about, which this node's server has sent. */
static __always_inline int read_icmp(struct __sk_buff *skb, struct handoff *h, __u32 start)
{
        const __u32 about = start + h->inner_len + 8;
        void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
        struct tcp_start {
                __be16 source;
                __be16 dest;
                __be32 seq;
        } * tcp;

        if (h->inner_len == sizeof(struct iphdr)) {
                struct iphdr *ip = sb_at(data, about);

                if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_TCP)
                        return -1;
                sb_map_v4(h->flow.vip, ip->saddr);
                sb_map_v4(h->flow.client, ip->daddr);
        } else {
                struct ipv6hdr *ip = sb_at(data, about);

                if ((void *)(ip + 1) > end || ip->version != 6 || ip->nexthdr != IPPROTO_TCP)
                        return -1;
                sb_copy_v6(h->flow.vip, &ip->saddr);
                sb_copy_v6(h->flow.client, &ip->daddr);
        }
        tcp = sb_at(data, about + h->inner_len);
        if ((void *)(tcp + 1) > end)
                return -1;
        h->flow.vip_port = tcp->source;
        h->flow.client_port = tcp->dest;
        h->seq = bpf_ntohl(tcp->seq);
        h->icmp = 1;
        return 0;
}

/* The inner IP and TCP headers behind the shim. */
static __always_inline int read_inner(struct __sk_buff *skb, struct handoff *h, __u32 start, __be16 protocol)
{
        void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
        struct tcphdr *tcp;
        __u8 next_header;
        __u32 ip_len;

        if (protocol == bpf_htons(ETH_P_IP)) {
                struct iphdr *ip = sb_at(data, start);

                if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl != 5)
                        return -1;
                sb_map_v4(h->flow.client, ip->saddr);
                sb_map_v4(h->flow.vip, ip->daddr);
                h->inner_len = sizeof(*ip);
                ip_len = bpf_ntohs(ip->tot_len);
                next_header = ip->protocol;
        } else if (protocol == bpf_htons(ETH_P_IPV6)) {
                struct ipv6hdr *ip = sb_at(data, start);

                if ((void *)(ip + 1) > end || ip->version != 6)
                        return -1;
                sb_copy_v6(h->flow.client, &ip->saddr);
                sb_copy_v6(h->flow.vip, &ip->daddr);
                h->inner_len = sizeof(*ip);
                ip_len = sizeof(*ip) + bpf_ntohs(ip->payload_len);
                next_header = ip->nexthdr;
        } else {
                return -1;
        }
        if (start + ip_len > skb->len)
                return -1;
        if (next_header == (h->inner_len == sizeof(struct iphdr) ? IPPROTO_ICMP : IPPROTO_ICMPV6))
                return read_icmp(skb, h, start);
        if (next_header != IPPROTO_TCP)
                return -1;
        tcp = sb_at(data, start + h->inner_len);
        if ((void *)(tcp + 1) > end)
                return -1;
        h->flow.client_port = tcp->source;
        h->flow.vip_port = tcp->dest;
        h->seq = bpf_ntohl(tcp->seq);
        h->ack = bpf_ntohl(tcp->ack_seq);
        h->tcp_len = tcp->doff * 4;
        h->tcp_flags = sb_tcp_flags(tcp);
        if (h->tcp_len < sizeof(*tcp) || (__u32)h->inner_len + h->tcp_len > ip_len)
                return -1;
        h->payload = ip_len - h->inner_len - h->tcp_len;
        return 0;
}

/* Between a node and a client there is no switch. */
static __always_inline int is_of_client(__u8 op)
{
        return op == SB_OP_DIRECT || op == SB_OP_HEARD || op == SB_OP_GONE;
}

/* When a packet was made, as its VNI says, or the question to which it is the answer. False if that was another time. */
static __always_inline int read_epoch(const struct handoff *h, const struct sb_node_settings *s, __be32 vni,
                                      __u64 *epoch)
{
        *epoch = 0;
        return is_of_client(h->option.op) || h->option.op == SB_OP_SYNC || h->option.op == SB_OP_SYNCED ||
               sb_read_epoch(vni, sb_epoch(s->clock), epoch);
}

/* Of a packet that has come, or of the answer to it: the sender is the switch either way. */
static __always_inline struct sb_tag_input *tag_input(const struct handoff *h,
                                                      const struct sb_node_settings *s, __u64 epoch)
{
        struct sb_tag_input *input = sb_new_tag_input();

        if (!input)
                return NULL;
        sb_copy_v6(input->node, s->address);
        if (is_of_client(h->option.op))
                __builtin_memset(input->switch_address, 0, sizeof(input->switch_address));
        else
                sb_copy_v6(input->switch_address, h->sender);
        input->epoch = bpf_cpu_to_be64(epoch);
        input->flow = h->flow;
        input->seq = bpf_htonl(h->seq);
        input->ack = bpf_htonl(h->ack);
        __builtin_memcpy(input->option, &h->option.op, SB_TAGGED_LEN);
        return input;
}

/* Everything between the outer and the inner IP header. */
static __always_inline __u32 shim_len(const struct handoff *h)
{
        return sizeof(struct sb_shim) + (h->second ? sizeof(struct sb_second) : 0);
}

/* The options behind the Geneve header: ours, and perhaps the second one. */
static __always_inline int read_options(struct handoff *h, const struct sb_shim *shim, const void *end)
{
        const struct sb_second *second = (const void *)(shim + 1);

        if (!sb_has_option(shim))
                return -1;
        h->option = shim->option;
        if (shim->geneve.ver_opt_len == sizeof(struct sb_option) / 4)
                return 0;
        if (shim->geneve.ver_opt_len != (sizeof(struct sb_option) + sizeof(*second)) / 4 ||
            (const void *)(second + 1) > end || second->opt_class != bpf_htons(SB_OPTION_CLASS) ||
            (second->type != SB_SECOND_TYPE && second->type != SB_SECOND_USED) ||
            second->length != (sizeof(*second) - 4) / 4)
                return -1;
        h->second = second->type;
        return 0;
}

/* Where this machine is a switch, too. */
static __always_inline int is_from_here(const __u8 sender[16], const struct sb_node_settings *s)
{
        return s->is_switch && sb_same_v6(sender, s->address);
}

static __noinline enum read_result read_handoff(struct __sk_buff *skb, struct handoff *h,
                                                const struct sb_node_settings *s)
{
        struct sb_tag_input *input;
        void *data, *end;
        struct ethhdr *eth;
        struct sb_shim *shim;
        __u8 destination[16] __attribute__((aligned(8)));
        __u8 next_header;
        __u64 epoch;

        if (skb->protocol == bpf_htons(ETH_P_ARP)) {
                bpf_skb_pull_data(skb, sizeof(struct ethhdr) + sizeof(struct arp_ipv4));
                return asks_for_vip(skb) ? READ_ARP_FOR_VIP : READ_OTHER;
        }
        if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
                return READ_OTHER;
        if (skb->data_end - skb->data < HEADERS_MAX)
                bpf_skb_pull_data(skb, skb->len < HEADERS_MAX ? skb->len : HEADERS_MAX);
        data = (void *)(long)skb->data;
        end = (void *)(long)skb->data_end;
        eth = data;
        if (skb->protocol == bpf_htons(ETH_P_IP)) {
                struct iphdr *ip = (void *)(eth + 1);

                if ((void *)(ip + 1) > end)
                        return READ_OTHER;
                sb_map_v4(h->sender, ip->saddr);
                sb_map_v4(destination, ip->daddr);
                h->outer_len = sizeof(*ip);
                h->congested = (ip->tos & 3) == 3;
                next_header = ip->ihl == 5 ? ip->protocol : IPPROTO_RAW;
        } else {
                struct ipv6hdr *ip = (void *)(eth + 1);

                if ((void *)(ip + 1) > end)
                        return READ_OTHER;
                sb_copy_v6(h->sender, &ip->saddr);
                sb_copy_v6(destination, &ip->daddr);
                h->outer_len = sizeof(*ip);
                h->congested = (ip->flow_lbl[0] >> 4 & 3) == 3;
                next_header = ip->nexthdr;
        }
        h->here = is_from_here(h->sender, s);
        if (is_vip(destination))
                return READ_PLAIN;
        shim = sb_at(data, sizeof(*eth) + h->outer_len);
        if (next_header != IPPROTO_UDP || (void *)(shim + 1) > end ||
            shim->dest != bpf_htons(SB_GENEVE_PORT) || read_options(h, shim, end))
                return READ_OTHER;
        if (read_inner(skb, h, sizeof(*eth) + h->outer_len + shim_len(h), shim->geneve.protocol))
                return READ_MALFORMED;
        if (h->option.op == SB_OP_DIRECT)
                return READ_DIRECT;
        if (!read_epoch(h, s, shim->geneve.vni, &epoch))
                return READ_WRONG_EPOCH;
        input = tag_input(h, s, epoch);
        if (!input || !sb_tag_valid(&s->sign, &s->accept, input, &h->option))
                return READ_WRONG_TAG;
        return READ_HANDOFF;
}

/* Takes outer IP, UDP, Geneve and options away: what remains is the client's packet to the VIP. */
static __noinline int decapsulate(struct __sk_buff *skb, const struct handoff *h)
{
        __s32 shrink = -(__s32)(h->outer_len + shim_len(h));
        int v4 = h->inner_len == sizeof(struct iphdr);
        void *data, *end;
        struct ethhdr *eth;

        if (bpf_skb_adjust_room(skb, shrink, BPF_ADJ_ROOM_MAC, v4 ? SB_DECAP_L3_IPV4 : SB_DECAP_L3_IPV6))
                return -1;
        data = (void *)(long)skb->data;
        end = (void *)(long)skb->data_end;
        eth = data;
        if ((void *)(eth + 1) > end)
                return -1;
        eth->h_proto = v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
        if (h->congested)
                bpf_skb_ecn_set_ce(skb);
        return 0;
}

/* Takes the packet off its tunnel and lets the kernel have it. */
static __always_inline int deliver(struct __sk_buff *skb, const struct handoff *h)
{
        if (decapsulate(skb, h))
                return drop(SB_NODE_DROP_MALFORMED);
        return TCX_PASS;
}

/*
 * Makes the packet a RST that a socket of this node accepts: its sequence number is exactly what the socket expects
 * (RFC 5961 section 3.2). It kills the socket without a word to the client.
 */
static __noinline int reset_locally(struct __sk_buff *skb, const struct handoff *h, __u32 rcv_nxt)
{
        __u32 start = sizeof(struct ethhdr) + h->inner_len;
        void *data, *end;
        struct tcphdr *tcp;

        if (decapsulate(skb, h) || bpf_skb_change_tail(skb, start + sizeof(*tcp), 0))
                return drop(SB_NODE_DROP_MALFORMED);
        data = (void *)(long)skb->data;
        end = (void *)(long)skb->data_end;
        if (h->inner_len == sizeof(struct iphdr)) {
                struct iphdr *ip = data + sizeof(struct ethhdr);

                if ((void *)(ip + 1) > end)
                        return drop(SB_NODE_DROP_MALFORMED);
                ip->tot_len = bpf_htons(sizeof(*ip) + sizeof(*tcp));
                ip->check = 0;
                ip->check = sb_fold(sb_sum(ip, sizeof(*ip) / 2));
        } else {
                struct ipv6hdr *ip = data + sizeof(struct ethhdr);

                if ((void *)(ip + 1) > end)
                        return drop(SB_NODE_DROP_MALFORMED);
                ip->payload_len = bpf_htons(sizeof(*tcp));
        }
        tcp = sb_at(data, start);
        if ((void *)(tcp + 1) > end)
                return drop(SB_NODE_DROP_MALFORMED);
        __builtin_memset(tcp, 0, sizeof(*tcp));
        tcp->source = h->flow.client_port;
        tcp->dest = h->flow.vip_port;
        tcp->seq = bpf_htonl(rcv_nxt);
        tcp->ack_seq = bpf_htonl(h->ack);
        tcp->doff = sizeof(*tcp) / 4;
        tcp->rst = 1;
        tcp->ack = 1;
        tcp->check =
            sb_fold(sb_pseudo_sum(&h->flow, IPPROTO_TCP, sizeof(*tcp)) + sb_sum(tcp, sizeof(*tcp) / 2));
        return TCX_PASS;
}

#endif
