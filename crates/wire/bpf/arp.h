/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * ARP packets of IPv4 on Ethernet (RFC 826). linux/if_arp.h needs the C library's headers of the target,
 * which BPF lacks.
 */
#ifndef SWITCHBACK_ARP_H
#define SWITCHBACK_ARP_H

#include <linux/bpf.h>
#include <linux/if_ether.h>

#define ARP_REQUEST 1
#define ARP_REPLY   2

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

#endif
