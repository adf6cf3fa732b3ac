/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Adoption. An ADOPT comes in up to three times:
 *
 *   1. If the node still has a socket for the 4-tuple (the flow was here before, or the client reuses the port of a
 *      connection in TIME_WAIT), a clone is queued behind the packet and the packet itself becomes the RST that
 *      removes the socket.
 *   2. The packet (or that clone) is given to the listener's kernel code with a clone queued behind it.
 *   3. That clone sees what became of it and is the answer: ADOPTED, or REFUSED with the packet.
 *
 * Packets that arrive together all pass here before the first of them reaches its socket (the kernel takes them
 * through TC as a list). So copies of the ADOPT, and the rest of its request, are queued behind it as clones, too.
 *
 * An ADOPT that meets the adoption of an older connection of the same ports comes in behind that once more.
 */
#ifndef NODE_ADOPT_H
#define NODE_ADOPT_H

/* What the kernel accepts for an adopted IPv4 connection at least. */
#define SMALLEST_MSS 536

/* The timestamps of the client's packet, which the kernel continues from. */
static __noinline void read_timestamps(struct __sk_buff *skb, struct handoff *h)
{
        struct sb_option_walk walk = {};
        __u32 len = (__u32)h->tcp_len - sizeof(struct tcphdr);
        __u32 start = sizeof(struct ethhdr) + h->inner_len + sizeof(struct tcphdr);

        if (len > SB_TCPOPT_SPACE)
                return;
        /* In this order: a verifier that does not know the upper end yet forgets that it is not 0. */
        asm volatile("" : "+r"(len));
        if (len == 0 || bpf_skb_load_bytes(skb, start, walk.space.bytes, len))
                return;
        walk.len = len;
        sb_parse_tcp_options(&walk);
        h->tsval = walk.found.tsval;
        h->tsecr = walk.found.tsecr;
}

/* Gives the decapsulated packet to the listener: the kernel's bpf_sk_assign_tcp_reqsk(), Linux 6.9. */
static __noinline int assign(struct __sk_buff *skb, const struct handoff *h)
{
        __u32 mss = bpf_ntohs(h->option.mss), tunnel = tunnel_len(h->flow.client);
        __u8 settled = h->option.flags;
        struct bpf_tcp_req_attrs attrs = {
            .rcv_tsval = h->tsval,
            .rcv_tsecr = h->tsecr,
            .mss = mss > tunnel + SMALLEST_MSS ? mss - tunnel : mss,
            .snd_wscale = h->option.wscale >> 4,
            .rcv_wscale = h->option.wscale & 15,
            .wscale_ok = !!(settled & SB_SYN_WSCALE),
            .sack_ok = !!(settled & SB_SYN_SACK),
            .tstamp_ok = !!(settled & SB_SYN_TSTAMP),
            .ecn_ok = !!(settled & SB_SYN_ECN),
        };
        struct bpf_sock *skc;
        struct sock *listener;
        int err = -1;

        skc = (struct bpf_sock *)lookup(skb, h);
        if (!skc)
                return -1;
        if (*(volatile __u32 *)&skc->state == TCP_LISTEN) {
                listener = (struct sock *)bpf_skc_to_tcp_sock(skc);
                if (listener)
                        err = bpf_sk_assign_tcp_reqsk(skb, listener, &attrs, sizeof(attrs));
        }
        bpf_sk_release(skc);
        return err;
}

static __always_inline __u16 saturated(__u64 value)
{
        return value > 0xffff ? 0xffff : value;
}

static __always_inline int is_owned(const struct sb_owned *flow, const struct handoff *h)
{
        return flow && flow->origin == bpf_ntohl(h->option.origin);
}

static __always_inline int answer_adopted(struct handoff *h, const struct sb_owned *flow)
{
        h->option.op = SB_OP_ADOPTED;
        h->option.reason = SB_REASON_NONE;
        h->option.detail = 0;
        if (flow)
                h->option.detail = bpf_htonl((__u32)flow->queue_len << 16 | flow->queue_limit);
        return ANSWER;
}

/* The request belongs to a connection that has come to its end here: a copy that comes late, or a recorded one. */
static __always_inline int is_over(const struct handoff *h)
{
        struct ended *ended = bpf_map_lookup_elem(&over, &h->flow);

        return ended && ended->origin == bpf_ntohl(h->option.origin) && (__s32)(h->seq - ended->next) < 0;
}

/* Copies of the adoption must not be adopted here, whatever room there is when they come. */
static __noinline int remember_passing(const struct handoff *h)
{
        struct sb_owned *flow = fresh_entry();

        if (!flow)
                return -1;
        flow->origin = bpf_ntohl(h->option.origin);
        flow->next = bpf_ntohl(h->option.next);
        flow->state = SB_OWN_RELEASED;
        flow->reason = SB_REASON_PASSED_ON;
        return bpf_map_update_elem(&owned, &h->flow, flow, BPF_ANY);
}

static __always_inline int was_passed_on(const struct sb_owned *flow, const struct handoff *h)
{
        return flow->state == SB_OWN_RELEASED && flow->reason == SB_REASON_PASSED_ON &&
               flow->next == bpf_ntohl(h->option.next);
}

/* This node does not want the flow: its second candidate gets it, or the switch hears of it. */
static __always_inline int decline(struct __sk_buff *skb, struct handoff *h, enum sb_reason reason,
                                   enum sb_node_counter counter)
{
        int passed;

        if (h->second != SB_SECOND_TYPE || remember_passing(h))
                return refuse(h, reason, counter);
        passed = pass_on(skb, h);
        return passed < 0 ? refuse(h, reason, counter) : passed;
}

/* Whether a flow that has been released was asked for before that: it was read further since, or spoken on. */
static __always_inline int is_past(const struct sb_owned *flow, const struct handoff *h)
{
        if (flow->reason == SB_REASON_FROZEN || (__s32)(h->seq - flow->next) < 0)
                return 1;
        return h->seq == flow->next && (__s32)(h->ack - flow->answered) < 0;
}

/* A socket is being removed for the flow's sake: there is an entry, but no place in the accept queue yet. */
static __always_inline int is_being_cured(const struct sb_owned *flow)
{
        return flow && flow->state == SB_OWN_ADOPTING && !flow->slot;
}

/* Nothing comes of the flow's adoption. */
static __always_inline void forget(const struct handoff *h, struct sb_owned *flow)
{
        give_back(flow);
        load_end(flow, flow->state);
        bpf_map_delete_elem(&owned, &h->flow);
}

/*
 * From here on the flow is this node's, if the kernel takes it. `before` is what was known of it; `taken` and `limit`
 * are of the accept queue, in which its place is counted in `slot`.
 */
static __noinline int own(const struct handoff *h, struct sb_owned *before, __u64 taken, __u32 limit,
                          __u8 slot)
{
        struct sb_owned *flow = fresh_entry();

        if (!flow)
                return -1;
        flow->origin = bpf_ntohl(h->option.origin);
        set_mark(flow, h, h->seq);
        flow->passed = h->seq + h->payload;
        flow->answered = h->ack;
        flow->followed = h->ack;
        flow->asked = h->seq;
        flow->again = !!(h->option.flags & SB_FLAG_AGAIN);
        flow->keeps = !(h->option.flags & SB_FLAG_LAST);
        /* One less, so that note_requests() finds news. */
        flow->requests = bpf_ntohs(h->option.requests) - 1;
        flow->responses = flow->requests;
        flow->framing.allowed = ~0ULL;
        flow->mss = bpf_ntohs(h->option.mss);
        flow->queue_len = saturated(taken + 1);
        flow->queue_limit = saturated(limit);
        flow->slot = slot;
        flow->options = h->option.flags & SB_SYN_ALL;
        flow->wscale = h->option.wscale;
        flow->state = SB_OWN_ADOPTING;
        flow->cookies.session = h->option.session;
        flow->cookies.heard = h->seq;
        flow->cookies.request.allowed = ~0ULL;
        sb_copy_v6(flow->switch_address, h->sender);
        if (before)
                load_end(before, before->state);
        note_requests(flow, h);
        note_path(flow, h);
        return bpf_map_update_elem(&owned, &h->flow, flow, BPF_ANY);
}

/* What is to be done about the session's cookie when the flow's first request is adopted. */
__noinline int begin_session(struct __sk_buff *skb, const struct handoff *h, struct sb_owned *flow)
{
        struct sb_persistence *p;

        if (!h || !flow)
                return -1;
        p = persistence_of(&flow->cookies.session);
        if (p && p->mode == SB_SESSION_REWRITE)
                return restore_names(skb, h, flow, p, h->seq);
        pass_requests(&flow->cookies);
        flow->hooked = needs_cookie(h, p) && h->payload ? SB_HOOK_WANTED : SB_HOOK_NONE;
        return 0;
}

/* The socket is there, and has no data yet: it gets it now, by way of the program that inserts a cookie. */
static __always_inline int deliver_first(struct __sk_buff *skb, struct handoff *h, struct sb_owned *flow)
{
        hook(skb, h, flow);
        if (come_again(skb, MARK_BEHIND))
                return drop(SB_NODE_DROP_MALFORMED);
        return deliver(skb, h);
}

/* The place that an earlier packet has reserved for the flow, or a new one. */
static __always_inline int adopt(struct __sk_buff *skb, struct handoff *h, struct sb_owned *flow,
                                 const struct socket_facts *listener)
{
        __u8 held = flow && flow->state == SB_OWN_ADOPTING ? flow->slot : 0;
        __u8 slot = held ? held : listener->slot;
        __u64 taken = listener->backlog;

        if (!held)
                taken += reserve(slot);
        if (!held && is_full(taken, listener->backlog_limit, h->option.reason)) {
                unreserve(slot);
                if (is_being_cured(flow))
                        forget(h, flow);
                h->option.detail =
                    bpf_htonl((__u32)saturated(taken) << 16 | saturated(listener->backlog_limit));
                return decline(skb, h, SB_REASON_QUEUE_FULL, SB_NODE_REFUSED_QUEUE_FULL);
        }
        own(h, flow, taken, listener->backlog_limit, slot);
        if (come_again(skb, MARK_CONFIRMED)) {
                flow = bpf_map_lookup_elem(&owned, &h->flow);
                if (flow)
                        forget(h, flow);
                return drop(SB_NODE_DROP_MALFORMED);
        }
        flow = bpf_map_lookup_elem(&owned, &h->flow);
        if (flow && begin_session(skb, h, flow) < 0)
                return drop(SB_NODE_DROP_MALFORMED);
        if (decapsulate(skb, h))
                return drop(SB_NODE_DROP_MALFORMED);
        if (flow && flow->hooked == SB_HOOK_WANTED && cut_to_handshake(skb, h))
                return drop(SB_NODE_DROP_MALFORMED);
        if (h->option.flags & SB_SYN_TSTAMP)
                read_timestamps(skb, h);
        if (flow)
                flow->latest = h->tsval;
        /* When the kernel refuses, the clone finds no socket, and says so. */
        return assign(skb, h) ? TCX_DROP : TCX_PASS;
}

__noinline int on_adopt(struct __sk_buff *skb, struct handoff *h, int draining)
{
        __u32 mark = *(volatile __u32 *)&skb->mark;
        struct socket_facts facts = {};
        struct sb_owned *flow;
        int ours, copy;

        if (!h)
                return TCX_DROP;
        flow = bpf_map_lookup_elem(&owned, &h->flow);
        ours = is_owned(flow, h);
        if (mark == MARK_CONFIRMED || mark == MARK_BEHIND) {
                /* A copy: the first has been refused, and said so. */
                if (mark == MARK_BEHIND && !ours)
                        return TCX_DROP;
                if (ours && flow->state == SB_OWN_ADOPTING) {
                        forget(h, flow);
                        return refuse(h, SB_REASON_FAILED, SB_NODE_REFUSED_FAILED);
                }
                /* No entry: the connection is over already, so there was one. */
                if (mark == MARK_CONFIRMED)
                        count(SB_NODE_ADOPTED);
                if (mark == MARK_CONFIRMED && ours && flow->hooked == SB_HOOK_WANTED)
                        return deliver_first(skb, h, flow);
                return answer_adopted(h, flow);
        }
        if (!ours && is_over(h)) {
                count(SB_NODE_REPEATED);
                return answer_adopted(h, NULL);
        }
        /* An older connection of the same ports is on its way to its socket, which has to be there to be removed. */
        if (flow && !ours && flow->state == SB_OWN_ADOPTING && mark == 0)
                return come_again(skb, MARK_AFTER) ? drop(SB_NODE_DROP_MALFORMED) : TCX_DROP;
        if (ours && was_passed_on(flow, h)) {
                /* Sent again, because nobody has answered. Without a second candidate it is meant for this node. */
                if (h->second == SB_SECOND_TYPE)
                        return decline(skb, h, SB_REASON_QUEUE_FULL, SB_NODE_REFUSED_QUEUE_FULL);
        } else if (ours && flow->state == SB_OWN_RELEASED && is_past(flow, h)) {
                /* A copy that was delayed on its way: the flow was here, and has moved on since, or is about to. */
                return drop(SB_NODE_DROP_STALE);
        }
        /* Likewise, and it is about to come back: a later request is being adopted. */
        if (ours && flow->state == SB_OWN_ADOPTING && (__s32)(bpf_ntohl(h->option.next) - flow->next) < 0)
                return drop(SB_NODE_DROP_STALE);
        /*
         * Sent again, because the switch did not hear of the adoption. Packets that arrive together all pass here
         * before the first of them reaches its socket: then what becomes of the adoption shows behind this copy.
         */
        copy = ours && mark != MARK_CURED && flow->state != SB_OWN_RELEASED &&
               flow->next == bpf_ntohl(h->option.next);
        read_socket(skb, h, &facts);
        if (copy && flow->state == SB_OWN_ADOPTING)
                return come_again(skb, MARK_BEHIND) ? drop(SB_NODE_DROP_MALFORMED) : TCX_DROP;
        if (draining && mark != MARK_CURED && (!ours || flow->state == SB_OWN_RELEASED))
                return decline(skb, h, SB_REASON_DRAINING, SB_NODE_REFUSED_DRAINING);
        switch (facts.kind) {
        case SOCKET_NONE:
                if (is_being_cured(flow))
                        forget(h, flow);
                return decline(skb, h, SB_REASON_NO_LISTENER, SB_NODE_REFUSED_NO_LISTENER);
        case SOCKET_LISTENER:
                return adopt(skb, h, flow, &facts);
        case SOCKET_LIVE:
                /* What was to bring the socket its first data has been lost. */
                if (copy && flow->hooked == SB_HOOK_WANTED)
                        return deliver_first(skb, h, flow);
                /* A server that is reading may keep the data from counting for a moment, but not for a copy. */
                if (copy || (ours && flow->state == SB_OWN_OPEN && (__s32)(facts.rcv_nxt - h->seq) > 0))
                        return answer_adopted(h, flow);
                break;
        default:
                break;
        }
        if (mark == MARK_CURED || facts.kind == SOCKET_REQUEST)
                return drop(SB_NODE_DROP_STALE);
        /* The end of the old socket is not the end of the flow, and what follows has to wait for the new one. */
        own(h, flow, 0, 0, flow ? flow->slot : 0);
        if (come_again(skb, MARK_CURED))
                return drop(SB_NODE_DROP_MALFORMED);
        count(SB_NODE_CURED);
        return reset_locally(skb, h, facts.rcv_nxt);
}

/* What a packet with data means for the session's cookie; less than zero if it is not to be delivered now. */
__noinline int go_on_with_session(struct __sk_buff *skb, const struct handoff *h, struct sb_owned *flow,
                                  __u32 rcv_nxt)
{
        struct sb_persistence *p;
        int begins;

        if (!h || !flow)
                return -1;
        /* A delayed copy says nothing of the request that is next. */
        begins = h->option.flags & SB_FLAG_REQUEST && (__s32)(h->seq - rcv_nxt) >= 0;
        if (begins) {
                flow->cookies.session = h->option.session;
                if (flow->cookies.request.state == SB_FRAMING_LOST)
                        begin_requests(&flow->cookies, h->seq);
        }
        p = persistence_of(&flow->cookies.session);
        if (p && p->mode == SB_SESSION_REWRITE)
                return restore_names(skb, h, flow, p, rcv_nxt);
        pass_requests(&flow->cookies);
        if (begins && needs_cookie(h, p))
                hook(skb, h, flow);
        return 0;
}

/*
 * The flow has a socket here, but its entry has given way to others. From the request that comes it is known again, as one
 * whose responses cannot be followed.
 */
static __noinline int remember_again(const struct handoff *h)
{
        struct sb_owned *flow;

        if (own(h, NULL, 0, 0, 0))
                return -1;
        flow = bpf_map_lookup_elem(&owned, &h->flow);
        if (!flow)
                return -1;
        load_lose(flow);
        flow->framing.state = SB_FRAMING_LOST;
        flow->cookies.request.state = SB_FRAMING_LOST;
        flow->state = SB_OWN_OPEN;
        count(SB_NODE_REMEMBERED);
        return 0;
}

/* A packet is late, and no copy of one that was sent long ago, if its TSval is so close to the latest. */
#define LATE_MAX (1 << 16)

/* Writes a word of the TCP header, which begins at `tcp`. */
static __noinline int write_tcp(struct __sk_buff *skb, __u32 tcp, __u32 at, __be32 from, __be32 to)
{
        if (from == to)
                return 0;
        bpf_l4_csum_replace(skb, tcp + offsetof(struct tcphdr, check), from, to, sizeof(to));
        return bpf_skb_store_bytes(skb, tcp + at, &to, sizeof(to), 0);
}

/*
 * Gives the packet to its socket, with numbers that the kernel understands.
 *
 * A packet that has waited in the switch may come behind one that was sent later. Its TSval would make it a copy of an earlier
 * packet (PAWS, RFC 7323 section 5), its ACK number one of an attacker's (RFC 5961 section 5); and once a request follows it,
 * nobody else may bring what it carries. So it gets the latest ones.
 *
 * Where the switch has acknowledged data that is not here yet, TSecr is that of an earlier packet than the one that the client
 * acknowledges: the kernel would take the time since for the round trip, and what it has sent again for superfluous. A zero
 * tells it nothing (tcp_rtt_tsopt_us(), tcp_packet_delayed()).
 */
static __noinline int deliver_in_time(struct __sk_buff *skb, const struct handoff *h, struct sb_owned *flow,
                                      __u32 snd_una)
{
        const __u32 tcp = sizeof(struct ethhdr) + h->inner_len;
        struct tcp_with_timestamps header;
        __u32 tsval;

        if (decapsulate(skb, h))
                return drop(SB_NODE_DROP_MALFORMED);
        if (flow && h->tcp_flags & SB_TCP_RST)
                flow = NULL;
        if (flow && h->payload && is_before(h->ack, snd_una))
                write_tcp(skb, tcp, offsetof(struct tcphdr, ack_seq), bpf_htonl(h->ack), bpf_htonl(snd_una));
        if (bpf_skb_load_bytes(skb, tcp, &header, sizeof(header)) || header.mark != SB_TCPOPT_TSTAMP_ALIGNED)
                return TCX_PASS;
        if ((h->option.flags & (SB_FLAG_REQUEST | SB_FLAG_AHEAD)) == SB_FLAG_AHEAD)
                write_tcp(skb, tcp, offsetof(struct tcp_with_timestamps, tsecr), header.tsecr, 0);
        if (!flow)
                return TCX_PASS;
        tsval = bpf_ntohl(header.tsval);
        if (!flow->latest || !is_before(tsval, flow->latest))
                flow->latest = tsval;
        else if (h->payload && flow->latest - tsval < LATE_MAX)
                write_tcp(skb, tcp, offsetof(struct tcp_with_timestamps, tsval), header.tsval,
                          bpf_htonl(flow->latest));
        return TCX_PASS;
}

/*
 * One more packet of a flow that is here. Without a socket it is dropped, never answered by the kernel's RST: an
 * adoption may be under way. Only where a request begins does the switch need to know.
 */
__noinline int on_forward(struct __sk_buff *skb, struct handoff *h)
{
        __u32 mark = *(volatile __u32 *)&skb->mark;
        struct socket_facts facts = {};
        struct sb_owned *flow;

        if (!h)
                return TCX_DROP;
        flow = bpf_map_lookup_elem(&owned, &h->flow);
        /* The rest of a request that arrived together with its beginning, which is not with its socket yet. */
        if (is_owned(flow, h) && flow->state == SB_OWN_ADOPTING && mark != MARK_BEHIND)
                return come_again(skb, MARK_BEHIND) ? drop(SB_NODE_DROP_MALFORMED) : TCX_DROP;
        read_socket(skb, h, &facts);
        if (facts.kind == SOCKET_NONE || facts.kind == SOCKET_LISTENER ||
            (flow && flow->state == SB_OWN_RELEASED)) {
                if (h->option.flags & SB_FLAG_REQUEST || (is_owned(flow, h) && is_for_the_switch(flow, h)))
                        return refuse(h, SB_REASON_NO_SOCKET, SB_NODE_REFUSED_NO_SOCKET);
                return drop(SB_NODE_DROP_NO_SOCKET);
        }
        if (!flow && h->option.flags & SB_FLAG_REQUEST && facts.state == TCP_ESTABLISHED &&
            facts.rcv_nxt == h->seq && !remember_again(h)) {
                flow = bpf_map_lookup_elem(&owned, &h->flow);
                if (flow)
                        flow->answered = facts.write_seq;
        }
        if (is_owned(flow, h)) {
                switch (take_in(flow, h, &facts)) {
                case INTAKE_TAKE:
                        break;
                case INTAKE_UNREAD:
                        return refuse_unread(h, flow);
                case INTAKE_NOT_TAKEN:
                        count(SB_NODE_NOT_TAKEN);
                        return reset_locally(skb, h, facts.rcv_nxt);
                case INTAKE_DROP:
                        return drop(SB_NODE_DROP_REPEATED);
                }
                if (h->payload && go_on_with_session(skb, h, flow, facts.rcv_nxt) < 0)
                        return TCX_DROP;
        }
        if (h->option.flags & SB_FLAG_REQUEST && is_owned(flow, h) && meet(skb, h))
                return drop(SB_NODE_DROP_MALFORMED);
        count(SB_NODE_FORWARDED);
        if (!is_owned(flow, h) || facts.kind != SOCKET_LIVE)
                flow = NULL;
        return deliver_in_time(skb, h, flow, facts.snd_una);
}

/*
 * How far the node has come. With data: it is data that the switch has acknowledged to the client, so nobody but the
 * switch sends it again; if it is not here yet, it is taken as forwarded.
 */
__noinline int on_confirm(struct __sk_buff *skb, struct handoff *h)
{
        __u32 mark = *(volatile __u32 *)&skb->mark;
        struct socket_facts facts = {};
        struct sb_owned *flow;

        if (!h)
                return TCX_DROP;
        flow = bpf_map_lookup_elem(&owned, &h->flow);
        read_socket(skb, h, &facts);
        /* The data that it is about may have arrived together with it, and not be with the socket yet. */
        if (is_owned(flow, h) && flow->state != SB_OWN_RELEASED && h->payload == 0 && mark != MARK_BEHIND &&
            (facts.kind != SOCKET_LIVE || is_before(facts.rcv_nxt, flow->passed)))
                return come_again(skb, MARK_BEHIND) ? drop(SB_NODE_DROP_MALFORMED) : TCX_DROP;
        if (is_owned(flow, h) && flow->state == SB_OWN_OPEN && facts.kind == SOCKET_LIVE &&
            (h->payload == 0 || (__s32)(facts.rcv_nxt - (h->seq + h->payload)) >= 0)) {
                h->option.op = SB_OP_CONFIRMED;
                h->option.next = bpf_htonl(facts.rcv_nxt);
                h->ack = facts.snd_nxt;
                h->tsecr = clock_of(&facts);
                count(SB_NODE_CONFIRMED);
                return ANSWER;
        }
        return h->payload ? on_forward(skb, h) : TCX_DROP;
}

#endif
