/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * New sockets for MPTCP become sockets for TCP: the kernel makes no connections for a listener that speaks MPTCP
 * (bpf_sk_assign_tcp_reqsk()). Linux 6.6 has update_socket_protocol() for such programs.
 */
#ifndef NODE_PLAIN_TCP_H
#define NODE_PLAIN_TCP_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "kernel.h"
#include "maps.h"
#include "node_maps.h"

SEC("fmod_ret/update_socket_protocol")
int BPF_PROG(switchback_plain_tcp, int family, int type, int protocol)
{
        struct task_struct *task = (void *)bpf_get_current_task_btf();
        struct sb_node_settings *s;
        __u32 zero = 0;

        if (protocol != IPPROTO_MPTCP)
                return protocol;
        s = bpf_map_lookup_elem(&settings, &zero);
        return s && task->nsproxy->net_ns->net_cookie == s->netns_cookie ? IPPROTO_TCP : protocol;
}

#endif
