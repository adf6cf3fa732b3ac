/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Verdicts of TCX programs, which linux/bpf.h of some distributions lacks (enum tcx_action_base, Linux 6.6).
 */
#ifndef SWITCHBACK_TCX_H
#define SWITCHBACK_TCX_H

#include <linux/bpf.h> /* first: macros would change its enumerators */

#define TCX_NEXT     (-1) /* the next program of the interface, or the kernel */
#define TCX_PASS     0
#define TCX_DROP     2
#define TCX_REDIRECT 7

#endif
