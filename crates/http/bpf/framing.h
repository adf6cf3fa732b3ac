/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * States and actions of the automata that find where HTTP messages end. src/framing makes their tables,
 * framing_walk.h and Table::follow_names() walk them.
 */
#ifndef SWITCHBACK_FRAMING_H
#define SWITCHBACK_FRAMING_H

#include <linux/types.h>

/*
 * A table has a cell of 16 bits for each state and byte: the next state in the low byte, an action in the
 * high byte. The switch follows chunked bodies of requests; a node follows responses and, where it changes
 * names of cookies, requests. The walker itself knows these states:
 */
#define SB_FRAMING_NONE    0      /* nothing to follow */
#define SB_FRAMING_HEAD    1      /* a response begins */
#define SB_FRAMING_CHUNK   2      /* the size of a chunk begins */
#define SB_FRAMING_TRAILER 3      /* the line after the last chunk begins */
#define SB_FRAMING_BODY    4      /* with SB_FRAMING_SKIP: a body of known length, and then the end */
#define SB_FRAMING_LOST    5      /* the end of the message is unknown */
#define SB_FRAMING_TEXT    6      /* the rest of a line: only its end matters */
#define SB_FRAMING_NAME    7      /* the name of a cookie, compared with the wanted name */
#define SB_FRAMING_OTHER   8      /* the rest of a cookie with another name, or behind its name */
#define SB_FRAMING_SKIP    0x8000 /* with a state: skip `left` bytes of data first */

#define SB_FRAMING_STATES        128
#define SB_FRAMING_TRAILER_MAX   4096 /* bytes of a trailer section */
#define SB_FRAMING_EXTENSION_MAX 4096 /* bytes of chunk extensions, of all chunks of a body together */
#define SB_NAME_MAX              32   /* bytes of a cookie's name */

enum sb_framing_action {
        SB_FRAMING_GO = 0,           /* to the next state */
        SB_FRAMING_REJECT = 1,       /* lost track; the low byte is the reason's number */
        SB_FRAMING_HEX = 2,          /* a digit of a chunk's size, into `left`; below 2^63 */
        SB_FRAMING_DECIMAL = 3,      /* a digit of Content-Length, into `left`; below 2^63 */
        SB_FRAMING_STATUS = 4,       /* a digit of the status */
        SB_FRAMING_LENGTH = 5,       /* Content-Length; a second one rejects */
        SB_FRAMING_CHUNKED = 6,      /* Transfer-Encoding: chunked; a second one rejects */
        SB_FRAMING_CHUNK_BEGINS = 7, /* skip `left` bytes of data; if 0, go to SB_FRAMING_TRAILER */
        SB_FRAMING_COUNT = 8,        /* a byte of a trailer section, at most SB_FRAMING_TRAILER_MAX */
        SB_FRAMING_HEAD_ENDS = 9,    /* RFC 9112 section 6.3 decides what follows */
        SB_FRAMING_ENDS = 10,        /* the message is complete */
        SB_FRAMING_CLOSE = 11,       /* the connection closes behind this message */
        SB_FRAMING_EXTEND = 12,      /* a byte of a chunk extension, at most SB_FRAMING_EXTENSION_MAX */
};

#define SB_FRAMING_HAS_LENGTH  0x01
#define SB_FRAMING_HAS_CHUNKED 0x02
#define SB_FRAMING_HAS_CLOSE   0x04

/* Position in a message. */
struct sb_framing {
        __u64 left;    /* bytes of data to skip; or the number that is being read */
        __u64 allowed; /* bytes of data still allowed in a request's body */
        __u16 state;   /* SB_FRAMING_NONE: between messages */
        __u16 status;  /* of a response; in a chunked request: bytes of chunk extensions */
        __u8 flags;    /* SB_FRAMING_HAS_* */
        __u8 matched;  /* in SB_FRAMING_NAME: bytes that match the wanted name */
        __u8 reserved[2];
};

#endif
