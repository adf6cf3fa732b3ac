/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Following HTTP messages in TC programs: table 0 is for responses, table 1 for requests. */
#ifndef NODE_MESSAGES_H
#define NODE_MESSAGES_H

#define FRAMING_CONTEXT struct __sk_buff
#define FRAMING_LOAD    sb_load_some
#define FRAMING_TABLES  2
#include "framing_walk.h"

#endif
