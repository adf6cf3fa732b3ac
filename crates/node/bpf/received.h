/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A handoff packet as it was read, and the message under its tag. */
#ifndef NODE_RECEIVED_H
#define NODE_RECEIVED_H

#include <stddef.h>
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "flow.h"
#include "handoff.h"
#include "node_maps.h"
#include "packet.h"

struct handoff {
        struct sb_flow flow;
        __u8 sender[16];
        struct sb_option option;
        __u32 seq;
        __u32 ack;
        __u32 tsval; /* of the client's packet, in an adoption */
        __u32 tsecr; /* of an adoption's packet; in RELEASED and CONFIRMED, for the next speaker */
        __u16 payload;
        __u16 node;     /* number of the node */
        __u8 outer_len; /* length of the outer IP header: 20 or 40 */
        __u8 inner_len; /* length of the inner IP header: 20 or 40 */
        __u8 tcp_len;   /* length of the TCP header with options */
        __u8 tcp_flags;
        __u8 here;      /* from the switch of this machine */
        __u8 icmp;      /* the inner packet is an ICMP error about a packet of the flow */
        __u8 congested; /* the outer header has a congestion mark, RFC 6040 */
        __u8 second;    /* type of the second option; 0: none */
};

/* The packet that ingress handles: it is too large for the stack. */
struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct handoff);
} handoffs SEC(".maps");

static __always_inline struct handoff *fresh_handoff(void)
{
        return sb_zeroed(&handoffs, sizeof(struct handoff));
}

/* Results of handlers besides the verdicts of linux/bpf.h. */
enum handled {
        ANSWER = 100, /* turn the packet around with h->option, without the client's data */
        ANSWER_WHOLE, /* turn it around with the client's data */
};

/*
 * Turns the option into an answer's, which says what the question says but for the operation's own fields.
 * The generation, and what is behind the flow's state, is 0.
 */
static __always_inline void set_answer(struct handoff *h, enum sb_op op, __u8 reason)
{
        h->option.op = op;
        h->option.flags = 0;
        h->option.reason = reason;
        __builtin_memset(&h->option.payload.flow.generation, 0,
                         sizeof(h->option.payload) - offsetof(struct sb_flow_state, generation));
}

/* Bytes by which the head in an ADOPT is longer than the one that the client has sent (docs/decisions/0065). */
static __always_inline __s32 grown_of(const struct handoff *h)
{
        if (h->option.op != SB_OP_ADOPT || h->option.version < SB_VERSION_GROWN)
                return 0;
        return (__s16)(bpf_ntohl(h->option.payload.flow.heads) >> 16);
}

/* Sequence number that the first byte of the packet's data has for the server. */
static __always_inline __u32 server_seq(const struct handoff *h)
{
        return h->seq - grown_of(h);
}

/* The same for the flow's last request. */
static __always_inline __u32 first_byte(const struct sb_owned *flow)
{
        return flow->asked - flow->grown;
}

/* Length of the headers between outer and inner IP header, in bytes. */
static __always_inline __u32 shim_len(const struct handoff *h)
{
        return sizeof(struct sb_shim) + (h->second ? sizeof(struct sb_second) : 0);
}

/* Whether the operation is between a node and a client. */
static __always_inline int is_of_client(__u8 op)
{
        return op == SB_OP_DIRECT || op == SB_OP_HEARD || op == SB_OP_GONE;
}

/*
 * Derives the epoch of a packet, or of the question that it answers, from the VNI. Returns 0 if it is not
 * now.
 */
static __always_inline int read_epoch(const struct handoff *h, const struct sb_node_settings *s, __be32 vni,
                                      __u64 *epoch)
{
        *epoch = 0;
        return is_of_client(h->option.op) || h->option.op == SB_OP_SYNC || h->option.op == SB_OP_SYNCED ||
               sb_read_epoch(vni, sb_epoch(s->clock), epoch);
}

/*
 * Message under the tag of a packet or of its answer. The switch is the sender of the packet in both cases.
 */
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
        input->epoch = sb_tagged_epoch(epoch, h->node);
        input->flow = h->flow;
        input->seq = bpf_htonl(h->seq);
        input->ack = bpf_htonl(h->ack);
        __builtin_memcpy(input->option, &h->option.version, SB_TAGGED_LEN);
        return input;
}

#endif
