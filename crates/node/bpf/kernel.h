/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Kernel structures, with the fields that the programs read. CO-RE relocates the fields at load time. */
#ifndef NODE_KERNEL_H
#define NODE_KERNEL_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net {
        __u64 net_cookie;
};

struct nsproxy {
        struct net *net_ns;
};

struct task_struct {
        struct nsproxy *nsproxy;
};

typedef struct {
        struct net *net;
} possible_net_t;

struct in6_addr___kernel {
        union {
                __u32 u6_addr32[4];
        } in6_u;
};

struct sock_common {
        __be32 skc_daddr;
        __be32 skc_rcv_saddr;
        __be16 skc_dport;
        __u16 skc_num;
        unsigned short skc_family;
        volatile unsigned char skc_state;
        struct in6_addr___kernel skc_v6_daddr;
        struct in6_addr___kernel skc_v6_rcv_saddr;
        possible_net_t skc_net;
        __u32 skc_tw_rcv_nxt;
        unsigned long skc_flags;
};

struct sock {
        struct sock_common __sk_common;
        __u32 sk_ack_backlog;
        __u32 sk_max_ack_backlog;
        int sk_err;
};

struct inet_sock {
        struct sock sk;
        __be16 inet_sport;
};

struct inet_connection_sock {
        struct inet_sock icsk_inet;
        __u8 icsk_retransmits;
};

struct tcp_options_received {
        __u32 ts_recent;
        __u16 tstamp_ok : 1;
        __u16 rcv_wscale : 4;
};

struct tcp_sock {
        struct inet_connection_sock inet_conn;
        struct tcp_options_received rx_opt;
        __u32 rcv_nxt;
        __u32 rcv_wup;
        __u32 rcv_wnd;
        __u32 copied_seq;
        __u32 snd_nxt;
        __u32 snd_una;
        __u32 write_seq;
        __u32 srtt_us;
        __u32 tsoffset;
        bool is_mptcp;
};

struct inet_request_sock {
        __u16 rcv_wscale : 4;
        __u16 tstamp_ok : 1;
        __u16 wscale_ok : 1;
};

struct tcp_request_sock {
        struct inet_request_sock req;
        __u32 snt_isn;
        __u32 ts_off;
};

struct tcp_timewait_sock {
        struct {
                struct sock_common __tw_common;
        } tw_sk;
};

struct seq_file;

struct bpf_iter_meta {
        struct seq_file *seq;
};

struct bpf_iter__tcp {
        struct bpf_iter_meta *meta;
        struct sock_common *sk_common;
};

/* Options of an adopted connection, include/net/tcp.h. */
struct bpf_tcp_req_attrs {
        __u32 rcv_tsval;
        __u32 rcv_tsecr;
        __u16 mss;
        __u8 rcv_wscale;
        __u8 snd_wscale;
        __u8 ecn_ok;
        __u8 wscale_ok;
        __u8 sack_ok;
        __u8 tstamp_ok;
        __u8 usec_ts_ok;
        __u8 reserved[3];
};

#pragma clang attribute pop

extern int bpf_sk_assign_tcp_reqsk(struct __sk_buff *skb, struct sock *sk, struct bpf_tcp_req_attrs *attrs,
                                   int attrs__sz) __ksym __weak;

#define TCP_ESTABLISHED  1
#define TCP_FIN_WAIT1    4
#define TCP_TIME_WAIT    6
#define TCP_CLOSE        7
#define TCP_CLOSE_WAIT   8
#define TCP_LISTEN       10
#define TCP_NEW_SYN_RECV 12

/* Bit of skc_flags, include/net/sock.h: the peer has sent its FIN. */
#define SOCK_DONE 1

#define AF_INET  2
#define AF_INET6 10

#endif
