/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Socket of a flow. */
#ifndef NODE_SOCKET_H
#define NODE_SOCKET_H

#include <linux/bpf.h>
#include <linux/ip.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "away.h"
#include "kernel.h"
#include "maps.h"
#include "masquerade.h"
#include "node_maps.h"
#include "packet.h"
#include "queue.h"
#include "received.h"

static __always_inline struct bpf_sock *lookup_at(struct __sk_buff *skb, const struct handoff *h,
                                                  __be16 client_port, const __u8 address[16], __be16 port)
{
        struct bpf_sock_tuple tuple = {};

        if (h->inner_len == sizeof(struct iphdr)) {
                tuple.ipv4.saddr = sb_v4_of(h->flow.client);
                tuple.ipv4.daddr = sb_v4_of(address);
                tuple.ipv4.sport = client_port;
                tuple.ipv4.dport = port;
                return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
        }
        sb_copy_v6(tuple.ipv6.saddr, h->flow.client);
        sb_copy_v6(tuple.ipv6.daddr, address);
        tuple.ipv6.sport = client_port;
        tuple.ipv6.dport = port;
        return bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
}

/* The socket of the flow, or else its listener. */
static __always_inline struct bpf_sock *lookup(struct __sk_buff *skb, const struct handoff *h)
{
        struct bpf_sock *skc = lookup_at(skb, h, h->flow.client_port, h->flow.vip, h->flow.vip_port);
        struct sb_server *server;

        if (skc && *(volatile __u32 *)&skc->state != TCP_LISTEN)
                return skc;
        server = server_of(&h->flow, h->node);
        if (!server)
                return skc;
        if (skc)
                bpf_sk_release(skc);
        /* No connection of another client has this port. */
        return lookup_at(skb, h, 0, server->at.address, server->at.port);
}

/* Kind of the socket that the kernel has for a flow. */
enum socket_kind {
        SOCKET_NONE,
        SOCKET_LISTENER,
        SOCKET_LIVE,    /* full socket in any state */
        SOCKET_REQUEST, /* request socket of the kernel's own handshake */
        SOCKET_TIME_WAIT,
};

/* Numbers of the server are those that its client knows. */
struct socket_facts {
        enum socket_kind kind;
        __u32 state;
        __u32 rcv_nxt;
        __u32 copied_seq;
        __u32 snd_nxt;
        __u32 snd_una;
        __u32 write_seq;
        __u32 tsoffset;
        union {
                __u32 backlog; /* of a listener */
                __u32 srtt_us; /* of a live socket; 0: unknown */
        };
        __u32 backlog_limit;
        __u8 slot;  /* in `adopting` */
        __u8 mptcp; /* a listener that speaks MPTCP */
        __u8 away;  /* a listener behind an interface */
};

/* Next TSval of a socket with this offset: tcp_time_stamp_ms(), include/net/tcp.h. */
static __always_inline __u32 clock_with(__u32 tsoffset)
{
        return (__u32)(bpf_ktime_get_ns() / 1000000) + tsoffset;
}

static __always_inline __u32 clock_of(const struct socket_facts *facts)
{
        return clock_with(facts->tsoffset);
}

/* The flow of a socket, also of one that closes: tcp_set_state() has released its port, and skc_num is 0. */
static __always_inline void flow_of_socket(const struct tcp_sock *tcp, struct sb_flow *flow)
{
        const struct sock_common *common = &tcp->inet_conn.icsk_inet.sk.__sk_common;

        flow->vip_port = tcp->inet_conn.icsk_inet.inet_sport;
        flow->client_port = common->skc_dport;
        if (common->skc_family == AF_INET) {
                sb_map_v4(flow->client, common->skc_daddr);
                sb_map_v4(flow->vip, common->skc_rcv_saddr);
                return;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
                ((__u32 *)flow->client)[i] = common->skc_v6_daddr.in6_u.u6_addr32[i];
                ((__u32 *)flow->vip)[i] = common->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
        }
}

static __always_inline int is_mptcp(struct tcp_sock *tcp)
{
        return bpf_core_field_exists(tcp->is_mptcp) && tcp->is_mptcp;
}

/* Room in the accept queue of a listener of which nothing is known. */
#define UNKNOWN_LIMIT 65535

/* The same for a server behind an interface, as far as packets have told. Less than zero if it has no connection of the flow. */
static __always_inline int read_away(const struct sb_owned *flow, struct socket_facts *facts)
{
        const struct sb_away *known;

        if (!flow || !lives_away(flow))
                return -1;
        known = &flow->away;
        facts->kind = SOCKET_LIVE;
        facts->state = known->ended ? TCP_CLOSE_WAIT : TCP_ESTABLISHED;
        /* During a handshake the server expects what is behind its SYN. */
        facts->rcv_nxt =
            flow->state == SB_OWN_ADOPTING && !known->rcv_nxt ? first_byte(flow) : known->rcv_nxt;
        facts->copied_seq = known->rcv_nxt;
        facts->snd_nxt = known->snd_nxt;
        facts->snd_una = known->snd_una;
        facts->write_seq = known->snd_nxt;
        facts->tsoffset = known->clock;
        return 0;
}

/* A listener behind an interface. */
static __always_inline void read_away_listener(struct socket_facts *facts)
{
        facts->kind = SOCKET_LISTENER;
        facts->backlog_limit = UNKNOWN_LIMIT;
        facts->slot = 1;
        facts->away = 1;
}

/* Reads the socket of the flow, whose entry is `flow` or NULL. */
static __noinline int read_socket(struct __sk_buff *skb, const struct handoff *h, const struct sb_owned *flow,
                                  struct socket_facts *facts)
{
        struct tcp_timewait_sock *waiting;
        const struct sb_masquerade *m;
        struct tcp_sock *tcp;
        struct bpf_sock *skc;
        int away;

        facts->kind = SOCKET_NONE;
        if (!read_away(flow, facts))
                return 0;
        away = away_server(&h->flow, h->node) != NULL;
        skc = lookup(skb, h);
        if (!skc) {
                if (away)
                        read_away_listener(facts);
                return 0;
        }
        facts->state = *(volatile __u32 *)&skc->state;
        if (facts->state == TCP_TIME_WAIT) {
                waiting = (void *)bpf_skc_to_tcp_timewait_sock(skc);
                if (waiting) {
                        facts->kind = SOCKET_TIME_WAIT;
                        facts->rcv_nxt = waiting->tw_sk.__tw_common.skc_tw_rcv_nxt;
                }
        } else {
                tcp = (void *)bpf_skc_to_tcp_sock(skc);
                if (!tcp) {
                        facts->kind = SOCKET_REQUEST;
                } else if (facts->state == TCP_LISTEN && away) {
                        read_away_listener(facts);
                } else if (facts->state == TCP_LISTEN) {
                        facts->kind = SOCKET_LISTENER;
                        facts->backlog = tcp->inet_conn.icsk_inet.sk.sk_ack_backlog;
                        facts->backlog_limit = tcp->inet_conn.icsk_inet.sk.sk_max_ack_backlog;
                        facts->slot = slot_of(tcp);
                        facts->mptcp = is_mptcp(tcp);
                } else {
                        facts->kind = SOCKET_LIVE;
                        facts->rcv_nxt = tcp->rcv_nxt;
                        facts->copied_seq = tcp->copied_seq;
                        facts->snd_nxt = tcp->snd_nxt;
                        facts->snd_una = tcp->snd_una;
                        facts->write_seq = tcp->write_seq;
                        facts->srtt_us = tcp->srtt_us >> 3;
                        facts->tsoffset = tcp->tsoffset;
                        m = flow ? &flow->masquerade : masquerade_of_socket((struct bpf_sock *)skc);
                        if (m) {
                                facts->snd_nxt += m->seq;
                                facts->snd_una += m->seq;
                                facts->write_seq += m->seq;
                                facts->tsoffset += m->tsval;
                        }
                }
        }
        bpf_sk_release(skc);
        return 0;
}

#endif
