/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Verdicts of TCX programs. linux/bpf.h of some distributions lacks enum tcx_action_base (Linux 6.6). */
#ifndef SWITCHBACK_TCX_H
#define SWITCHBACK_TCX_H

#include <linux/bpf.h> /* first: macros would change its enumerators */
#include <bpf/bpf_helpers.h>

#define TCX_NEXT     (-1) /* the next program of the interface, or the kernel */
#define TCX_PASS     0
#define TCX_DROP     2
#define TCX_REDIRECT 7

/*
 * Ends a packet of TCP as if it had been lost on its way. TCX_DROP, which is NET_XMIT_DROP to the socket, would halve
 * its congestion window, even for a bare acknowledgment (tcp_enter_cwr() in __tcp_transmit_skb()).
 */
static __always_inline int sb_lose(void)
{
        return bpf_redirect(0, 0);
}

#endif
