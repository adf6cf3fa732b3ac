/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Flows, endpoints, networks and keys.
 *
 * The headers of formats are this one, handoff.h, switch_maps.h, node_maps.h, client_maps.h and counters.h,
 * and framing.h of crates/http. They are the only definition of what C and Rust share; Rust's generated.rs
 * are made from them (see CONTRIBUTING.md).
 *
 * Network byte order is spelled __be16 and __be32. Addresses have 16 bytes; IPv4 is ::ffff:a.b.c.d (RFC 4291
 * section 2.5.5.2).
 */
#ifndef SWITCHBACK_FLOW_H
#define SWITCHBACK_FLOW_H

#include <linux/types.h>

/* 4-tuple of a client's connection. */
struct sb_flow {
        __u8 client[16];
        __u8 vip[16];
        __be16 client_port;
        __be16 vip_port;
} __attribute__((aligned(4)));

struct sb_endpoint {
        __u8 address[16];
        __be16 port;
        __u16 reserved;
} __attribute__((aligned(4)));

/* Key of a trie of networks (BPF_MAP_TYPE_LPM_TRIE). */
struct sb_network {
        __u32 prefix_len; /* of the 16 bytes, in bits */
        __u8 address[16];
};

struct sb_key {
        __u64 k0;
        __u64 k1;
};

#endif
