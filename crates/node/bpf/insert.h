/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Inserting the session's cookie into a response. The response becomes longer, so that has to happen before
 * TCP numbers its bytes: in the server's system call. A socket whose next response gets the cookie is in a
 * map whose program (BPF_SK_MSG_VERDICT) sees the server's writes, and leaves the map afterwards. All other
 * writes, by sendfile() for example, do not pass the program.
 *
 * The line goes behind the first line of the response. That needs a server that writes its first line at
 * once, and a flow on which everything written before has been sent and followed to the end of a response,
 * which is so unless the client pipelines. Otherwise the response has no cookie, and the next request tries
 * again.
 *
 * Kernels with commit 929e30f93125 ("bpf, sockmap: Fix FIONREAD for sockmap") tell the server that nothing is
 * left to read on a socket in the map, whatever TCP has received (tcp_bpf_ioctl()). A server that goes by
 * FIONREAD, as nginx does, would wait for the rest of its request for ever. There only responses to requests
 * that servers read at once get the cookie.
 */
#ifndef NODE_INSERT_H
#define NODE_INSERT_H

#include <asm-generic/errno-base.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "counters.h"
#include "decap.h"
#include "flow.h"
#include "framing.h"
#include "kernel.h"
#include "keys.h"
#include "load.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"
#include "received.h"
#include "session_cookie.h"
#include "socket.h"

/* Bytes in which the first line of a response has to end. */
#define FIRST_LINE_MAX 128

/* Bytes that servers read at once: nginx, of those that go by FIONREAD, has the smallest buffer. */
#define READ_AT_ONCE 1023

/* Whether FIONREAD answers 0 for sockets in the map. */
const volatile bool hides_unread = false;

/* Whether the packet is a whole request without body, or several, which any server reads at once. */
static __noinline int is_read_at_once(struct __sk_buff *skb, const struct handoff *h)
{
        __u32 start = sizeof(struct ethhdr) + h->outer_len + shim_len(h) + h->inner_len + h->tcp_len;
        __u32 len = h->payload;
        __u8 first[4] = {}, last[3] = {};
        int asks;

        if (len < sizeof(first) + sizeof(last) || len > READ_AT_ONCE ||
            bpf_skb_load_bytes(skb, start, first, sizeof(first)) ||
            bpf_skb_load_bytes(skb, start + len - sizeof(last), last, sizeof(last)))
                return 0;
        asks = (first[0] == 'G' && first[1] == 'E' && first[2] == 'T' && first[3] == ' ') ||
               (first[0] == 'H' && first[1] == 'E' && first[2] == 'A' && first[3] == 'D');
        return asks && last[0] == '\n' && last[1] == '\r' && last[2] == '\n';
}

/* Whether a cookie of the request names this node. */
static __always_inline int names_this_node(const struct handoff *h, const struct sb_persistence *p)
{
        for (__u32 i = 0; i < sizeof(h->option.payload.flow.session.node); i++) {
                if (h->option.payload.flow.session.node[i] !=
                    p->code[SB_CODE_LEN - sizeof(h->option.payload.flow.session.node) + i])
                        return 0;
        }
        return 1;
}

/* Whether the pool inserts a cookie into the response, and can. */
static __always_inline int needs_cookie(struct __sk_buff *skb, const struct handoff *h,
                                        const struct sb_persistence *p)
{
        if (!p || p->mode != SB_SESSION_INSERT || names_this_node(h, p))
                return 0;
        if (!hides_unread || is_read_at_once(skb, h))
                return 1;
        count(SB_NODE_COOKIE_MISSED);
        return 0;
}

/* Puts the flow's socket into the map. It may be there already, for an earlier request: sock_map_link(). */
static __noinline int hook_socket(struct __sk_buff *skb, const struct handoff *h)
{
        struct bpf_sock *skc = (struct bpf_sock *)lookup(skb, h);
        int err = -1;

        if (!skc)
                return -1;
        if (*(volatile __u32 *)&skc->state == TCP_ESTABLISHED)
                err = sb_flow_update(&sockets, &h->flow, skc);
        bpf_sk_release(skc);
        return err == -EBUSY ? 0 : err;
}

/* The next response gets the cookie. */
static __always_inline void hook(struct __sk_buff *skb, const struct handoff *h, struct sb_owned *flow)
{
        if (hook_socket(skb, h)) {
                flow->hooked = SB_HOOK_NONE;
                count(SB_NODE_COOKIE_MISSED);
                return;
        }
        flow->hooked = SB_HOOK_SET;
}

/* Takes the socket out of the map when a response has the cookie, or when responses cannot be followed. */
static __always_inline void unhook(struct sb_owned *flow, const struct sb_flow *key)
{
        if (flow->hooked == SB_HOOK_SET && flow->framing.state == SB_FRAMING_LOST) {
                count(SB_NODE_COOKIE_MISSED);
                flow->hooked = SB_HOOK_DONE;
        }
        if (flow->hooked != SB_HOOK_DONE)
                return;
        sb_flow_delete(&sockets, key);
        flow->hooked = SB_HOOK_NONE;
}

/*
 * Cuts the packet to the ACK of a handshake with `data` bytes, none or one: it only makes a socket. A listener that
 * defers connections until their data comes (TCP_DEFER_ACCEPT) ignores the ACK of a real handshake without.
 */
static __noinline int cut_to_handshake(struct __sk_buff *skb, const struct handoff *h, __u32 data)
{
        const __u32 flags_at = 13, check_at = offsetof(struct tcphdr, check) / 2;
        __u32 start = sizeof(struct ethhdr) + h->inner_len, len = h->tcp_len;
        __u16 header[30] = {}, first = 0;

        if (len < sizeof(struct tcphdr) || len > sizeof(header) || cut(skb, h, len + data, ECN_STAYS) ||
            bpf_skb_load_bytes(skb, start, header, len) ||
            (data && bpf_skb_load_bytes(skb, start + len, &first, 1)))
                return -1;
        ((__u8 *)header)[flags_at] = SB_TCP_ACK;
        header[check_at] = 0;
        header[check_at] =
            sb_fold(sb_pseudo_sum(&h->flow, IPPROTO_TCP, len + data) + sb_sum(header, 30) + first);
        return bpf_skb_store_bytes(skb, start, header, len, 0);
}

/* Whether everything written on the flow is complete responses, and a request is open. */
static __always_inline int is_response_next(struct sk_msg_md *msg, const struct sb_owned *flow)
{
        struct tcp_sock *tcp = (void *)bpf_skc_to_tcp_sock(msg->sk);
        __u16 state = flow->framing.state;

        /* A head follows an interim response. */
        return tcp && (state == SB_FRAMING_NONE || state == SB_FRAMING_HEAD) && unanswered(flow) &&
               flow->followed == tcp->write_seq + flow->masquerade.seq;
}

/*
 * Offset of the second line of the response that begins with the message; 0 for an interim response, less
 * than zero if the first line does not end in it.
 */
static __always_inline __s32 second_line(struct sk_msg_md *msg)
{
        __u32 len = msg->size < FIRST_LINE_MAX ? msg->size : FIRST_LINE_MAX;
        const __u8 *data, *end;

        if (bpf_msg_pull_data(msg, 0, len, 0))
                return -1;
        data = (const void *)(long)msg->data;
        end = (const void *)(long)msg->data_end;
        /* "HTTP/1.1 200" */
        if (data + 12 > end || data[0] != 'H' || data[4] != '/')
                return -1;
        /* RFC 9110 section 15.2 */
        if (data[9] == '1')
                return 0;
        for (__u32 i = 12; i < FIRST_LINE_MAX && data + i + 1 <= end; i++) {
                if (data[i] == '\n')
                        return i + 1;
        }
        return -1;
}

/* Writes the line into the message at `at`. A message with half a line must not be sent. */
__noinline int insert_line(struct sk_msg_md *msg, const struct sb_persistence *p, __u32 at)
{
        __u32 len;
        __u8 *data, *end;

        if (!p)
                return SK_PASS;
        len = p->line_len;
        if (len == 0 || len > sizeof(p->line) || bpf_msg_push_data(msg, at, len, 0)) {
                count(SB_NODE_COOKIE_MISSED);
                return SK_PASS;
        }
        if (bpf_msg_pull_data(msg, at, at + len, 0))
                return SK_DROP;
        data = (void *)(long)msg->data;
        end = (void *)(long)msg->data_end;
        for (__u32 i = 0; i < sizeof(p->line) && i < len; i++) {
                if (data + i + 1 > end)
                        return SK_DROP;
                data[i] = p->line[i];
        }
        count(SB_NODE_COOKIE_INSERTED);
        return SK_PASS;
}

SEC("sk_msg")
int switchback_insert(struct sk_msg_md *msg)
{
        struct sb_persistence *p;
        struct sb_owned *flow;
        struct sb_flow key = {};
        __s32 at;

        key.vip_port = bpf_htons(msg->local_port);
        /* In the upper half: sk_msg_convert_ctx_access(), net/core/filter.c. */
        key.client_port = (__be16)(msg->remote_port >> 16);
        if (msg->family == AF_INET) {
                sb_map_v4(key.client, msg->remote_ip4);
                sb_map_v4(key.vip, msg->local_ip4);
        } else {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        ((__u32 *)key.client)[i] = msg->remote_ip6[i];
                        ((__u32 *)key.vip)[i] = msg->local_ip6[i];
                }
        }
        flow = bpf_map_lookup_elem(&owned, &key);
        if (!flow || flow->hooked != SB_HOOK_SET || !is_response_next(msg, flow))
                return SK_PASS;
        p = persistence_of(flow);
        if (!p || p->mode != SB_SESSION_INSERT)
                return SK_PASS;
        at = second_line(msg);
        if (at == 0)
                return SK_PASS;
        flow->hooked = SB_HOOK_DONE;
        if (at < 0) {
                count(SB_NODE_COOKIE_MISSED);
                return SK_PASS;
        }
        return insert_line(msg, p, at);
}

#endif
