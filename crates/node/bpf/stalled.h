/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Flows that may wait long after their switch has gone: acknowledgments and updates of the window were lost with
 * it, clients do not repeat them, and the server's socket asks again after a time that doubles (tcp_probe_timer(),
 * tcp_retransmit_timer()).
 */
#ifndef NODE_STALLED_H
#define NODE_STALLED_H

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "flow.h"
#include "kernel.h"
#include "maps.h"
#include "node_maps.h"
#include "socket.h"

/* Whether data waits for room in the client's window, or for an acknowledgment for longer than its time-out. */
static __always_inline int is_stalled(const struct tcp_sock *tcp)
{
        if (tcp->snd_una == tcp->write_seq)
                return 0;
        return tcp->snd_nxt == tcp->snd_una || tcp->inet_conn.icsk_retransmits;
}

/* Writes a struct sb_stalled for each stalled flow of this network namespace. */
SEC("iter/tcp")
int switchback_stalled(struct bpf_iter__tcp *ctx)
{
        struct sock_common *common = ctx->sk_common;
        struct sb_stalled stalled = {};
        struct sb_owned *flow;
        struct tcp_sock *tcp;

        tcp = common ? (void *)bpf_skc_to_tcp_sock(common) : NULL;
        if (!tcp || !is_stalled(tcp))
                return 0;
        flow_of_socket(tcp, &stalled.flow);
        flow = bpf_map_lookup_elem(&owned, &stalled.flow);
        if (!flow || flow->state != SB_OWN_OPEN)
                return 0;
        stalled.seq = tcp->snd_una - 1;
        stalled.ack = tcp->rcv_wup;
        stalled.window = tcp->rcv_wnd >> BPF_CORE_READ_BITFIELD(tcp, rx_opt.rcv_wscale);
        stalled.has_timestamps = BPF_CORE_READ_BITFIELD(tcp, rx_opt.tstamp_ok);
        stalled.tsval = clock_with(tcp->tsoffset);
        stalled.tsecr = tcp->rx_opt.ts_recent;
        if (!bpf_seq_write(ctx->meta->seq, &stalled, sizeof(stalled)))
                count(SB_NODE_STALLED);
        return 0;
}

#endif
