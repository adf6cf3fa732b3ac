/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Fingerprints of what is sent of a body, and telling them to the nodes that could make the response once more
 * (docs/decisions/0051). A client can have no byte that is not under a fingerprint which has left before it.
 */
#ifndef NODE_FINGERPRINT_H
#define NODE_FINGERPRINT_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bytes.h"
#include "counters.h"
#include "handoff.h"
#include "insure.h"
#include "keys.h"
#include "maps.h"
#include "node_maps.h"
#include "packet.h"
#include "session_cookie.h"
#include "siphash.h"

/* skb->mark of a clone of a packet to a client that becomes a fingerprint for another node. */
#define SKB_MARK_FINGERPRINT 0x5b000007

struct hash_walk {
        struct __sk_buff *skb;
        struct sb_fingerprint *of;
        __u32 at;
        __u32 end;
};

static __always_inline __u64 check_of(const struct sb_fingerprint *of)
{
        return of->v[0] ^ of->v[1] ^ of->v[2] ^ of->v[3] ^ of->tail ^ of->len;
}

static long hash_step(__u32 index, struct hash_walk *w)
{
        struct sb_fingerprint *of = w->of;
        __u32 zero = 0, len = w->end - w->at, held = of->len & 7, total;
        struct piece *piece;
        __u64 v0, v1, v2, v3, m;

        piece = bpf_map_lookup_elem(&pieces, &zero);
        if (!piece || w->at >= w->end)
                return 1;
        if (len > SB_PIECE)
                len = SB_PIECE;
        piece->words[0] = of->tail;
        if (sb_load_some(w->skb, w->at, (__u8 *)piece->words + held, len, SB_PIECE))
                return 1;
        total = held + len;
        v0 = of->v[0];
        v1 = of->v[1];
        v2 = of->v[2];
        v3 = of->v[3];
        for (__u32 i = 0; i < SB_PIECE / 8 + 1; i++) {
                if (i >= total / 8)
                        break;
                /* So that verifiers before Linux 6.8 see the loop's own bound. */
                asm volatile("" : "+r"(i));
                m = piece->words[i];
                v3 ^= m;
                SB_SIPROUND(v0, v1, v2, v3);
                v0 ^= m;
        }
        of->v[0] = v0;
        of->v[1] = v1;
        of->v[2] = v2;
        of->v[3] = v3;
        m = 0;
        if (total / 8 < SB_PIECE / 8 + 2)
                m = piece->words[total / 8];
        of->tail = total & 7 ? m & ((1ULL << 8 * (total & 7)) - 1) : 0;
        of->len += len;
        of->check = check_of(of);
        w->at += len;
        return w->at >= w->end;
}

/* Adds a packet's bytes from `at` to `end`. A global function: the verifier checks it once, not once for each call. */
__noinline int hash(struct __sk_buff *skb, struct sb_fingerprint *of, __u32 at, __u32 end)
{
        struct hash_walk walk = {.skb = skb, .of = of, .at = at, .end = end};

        return of ? bpf_loop((end - at) / SB_PIECE + 1, hash_step, &walk, 0) : 0;
}

/* The fingerprint of all bytes so far. */
static __always_inline __u64 finish(const struct sb_fingerprint *of)
{
        __u64 v0 = of->v[0], v1 = of->v[1], v2 = of->v[2], v3 = of->v[3], m = of->len << 56 | of->tail;

        v3 ^= m;
        SB_SIPROUND(v0, v1, v2, v3);
        v0 ^= m;
        v2 ^= 0xff;
        SB_SIPROUND(v0, v1, v2, v3);
        SB_SIPROUND(v0, v1, v2, v3);
        SB_SIPROUND(v0, v1, v2, v3);
        return v0 ^ v1 ^ v2 ^ v3;
}

static __always_inline __u64 tag_of_told(const struct sb_key *key, const struct sb_told_fingerprint *told)
{
        struct sb_key tag_key = {.k0 = key->k0 + SB_FINGERPRINT_TAG, .k1 = key->k1 + SB_FINGERPRINT_TAG};

        return sb_siphash(&tag_key, (const __u32 *)told, (sizeof(*told) - sizeof(told->tag)) / 4);
}

/* Tells the heirs what follows in this packet, before it leaves. */
static __noinline int tell_fingerprint(struct __sk_buff *skb, const struct sb_flow *key,
                                       const struct sb_fingerprint *of)
{
        struct sb_heirs *heirs;
        struct telling *telling;
        __u32 zero = 0, mark = skb->mark;
        __u64 tag;
        int err;

        if (!key || !of)
                return 0;
        telling = bpf_map_lookup_elem(&tellings, &zero);
        if (!telling)
                return 0;
        telling->told.flow = *key;
        heirs = bpf_map_lookup_elem(&have_heirs, &telling->told.flow);
        if (!heirs || heirs->origin != of->origin || heirs->count == 0)
                return 0;
        telling->heirs = *heirs;
        telling->next = 0;
        telling->told.magic = bpf_htonl(SB_FINGERPRINT_MAGIC);
        telling->told.origin = bpf_htonl(of->origin);
        telling->told.offload = 0;
        telling->told.reserved = 0;
        telling->told.len = bpf_cpu_to_be64(of->len);
        telling->told.value = bpf_cpu_to_be64(finish(of));
        tag = tag_of_told(&of->key, &telling->told);
        __builtin_memcpy(telling->told.tag, &tag, sizeof(tag));
        skb->mark = SKB_MARK_FINGERPRINT;
        err = bpf_clone_redirect(skb, skb->ifindex, 0);
        skb->mark = mark;
        if (!err)
                count(SB_NODE_FINGERPRINT);
        return 0;
}

/* Adds a packet's data from `from` on, which has not been sent before, and is all of the same body. */
static __noinline int fingerprint(struct __sk_buff *skb, struct sb_owned *flow, const struct sb_flow *key,
                                  const struct data_place *data, __u32 from)
{
        struct sb_fingerprint *of;

        if (!flow || !key || !data)
                return 0;
        of = sb_flow_lookup(&fingerprints, key);
        if (!of || of->origin != flow->origin || of->end != data->seq + from) {
                /* It has given way to others. */
                flow->insure &= ~SB_INSURE_FINGERPRINTED;
                return 0;
        }
        hash(skb, of, data->start + from, data->start + data->len);
        of->end = data->seq + data->len;
        return tell_fingerprint(skb, key, of);
}

/* The body of a long response begins at `from` of a packet's data. */
static __noinline int begin_fingerprint(struct sb_owned *flow, const struct sb_flow *key,
                                        const struct data_place *data, __u32 from)
{
        struct sb_fingerprint *of;
        __u32 zero = 0;

        if (!flow || !key || !data || from > data->len)
                return 0;
        /* It is composed where data is before it is hashed: there is no room on the stack. */
        of = bpf_map_lookup_elem(&pieces, &zero);
        if (!of)
                return 0;
        of->key.k0 = (__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();
        of->key.k1 = (__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();
        of->v[0] = of->key.k0 ^ SB_SIPHASH_V0;
        of->v[1] = of->key.k1 ^ SB_SIPHASH_V1;
        of->v[2] = of->key.k0 ^ SB_SIPHASH_V2;
        of->v[3] = of->key.k1 ^ SB_SIPHASH_V3;
        of->tail = 0;
        of->len = 0;
        of->check = check_of(of);
        of->origin = flow->origin;
        of->end = data->seq + from;
        if (!sb_flow_update(&fingerprints, key, of))
                flow->insure |= SB_INSURE_FINGERPRINTED;
        return 0;
}

/*
 * Makes the clone of a packet to a client a fingerprint for the next heir. Checksum offload is asked for the TCP header that
 * the packet had: the card writes it to where `offload` is now.
 */
static __noinline int send_fingerprint(struct __sk_buff *skb)
{
        const int is_v4 = skb->protocol == bpf_htons(ETH_P_IP);
        __u32 udp_len = sizeof(struct udphdr) + sizeof(struct sb_told_fingerprint);
        __u32 start = sizeof(struct ethhdr) + (is_v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
        struct sb_told_fingerprint *told;
        struct sb_node_settings *s;
        struct telling *telling;
        __u32 zero = 0, next;
        struct udphdr *udp;
        void *data, *end;
        __u8 *heir;
        int to_v4;

        s = bpf_map_lookup_elem(&settings, &zero);
        telling = bpf_map_lookup_elem(&tellings, &zero);
        if (!s || !telling)
                return TCX_DROP;
        next = telling->next;
        if (next >= SB_HEIRS)
                return TCX_DROP;
        heir = telling->heirs.addresses[next];
        /* The packet's own time is that of its connection. */
        skb->tstamp = 0;
        if (bpf_skb_change_tail(skb, start + udp_len, 0))
                return TCX_DROP;
        if (next + 1 < telling->heirs.count) {
                telling->next = next + 1;
                bpf_clone_redirect(skb, skb->ifindex, 0);
        }
        to_v4 = sb_is_v4(heir);
        if (is_v4 != to_v4 &&
            bpf_skb_change_proto(skb, to_v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6), 0))
                return TCX_DROP;
        data = (void *)(long)skb->data;
        end = (void *)(long)skb->data_end;
        start = sizeof(struct ethhdr) + (to_v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
        udp = sb_at(data, start);
        told = (void *)(udp + 1);
        if (data + sizeof(struct ethhdr) + sizeof(struct ipv6hdr) > end || (void *)(told + 1) > end)
                return TCX_DROP;
        sb_write_outer(data, s->address, heir, 0, udp_len, to_v4);
        udp->source = bpf_htons(SB_FINGERPRINT_PORT);
        udp->dest = bpf_htons(SB_FINGERPRINT_PORT);
        udp->len = bpf_htons(udp_len);
        /* None: what the data is worth is in its tag. */
        udp->check = 0;
        __builtin_memcpy(told, &telling->told, sizeof(*told));
        skb->mark = SB_SKB_MARK_SWITCH;
        return bpf_redirect_neigh(skb->ifindex, NULL, 0, 0);
}

/* Hears a fingerprint of another node's response. The one of the most bytes is kept, whichever comes last. */
static __noinline int hear_fingerprint(struct __sk_buff *skb, const struct handoff *h)
{
        struct sb_heard_fingerprint *of;
        struct sb_told_fingerprint told;
        __u64 len, value, tag;

        if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr) + h->outer_len + sizeof(struct udphdr), &told,
                               sizeof(told)) ||
            told.magic != bpf_htonl(SB_FINGERPRINT_MAGIC))
                return drop(SB_NODE_DROP_MALFORMED);
        of = bpf_map_lookup_elem(&heard, &told.flow);
        if (!of || of->origin != bpf_ntohl(told.origin))
                return drop(SB_NODE_FINGERPRINT_UNKNOWN);
        told.offload = 0;
        tag = tag_of_told(&of->key, &told);
        if (__builtin_memcmp(told.tag, &tag, sizeof(tag)))
                return drop(SB_NODE_DROP_TAG);
        len = bpf_be64_to_cpu(told.len);
        value = bpf_be64_to_cpu(told.value);
        bpf_spin_lock(&of->lock);
        if (len > of->len) {
                of->len = len;
                of->value = value;
        }
        bpf_spin_unlock(&of->lock);
        return drop(SB_NODE_FINGERPRINT_HEARD);
}

#endif
