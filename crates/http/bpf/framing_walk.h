/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Follows HTTP messages by the automata of src/framing; Table::follow_names() does it in Rust.
 *
 * By default for XDP programs with one automaton. A program of another kind defines, before it includes this
 * header:
 *
 *     FRAMING_CONTEXT                         type of its context
 *     FRAMING_LOAD(ctx, at, to, len, most)    reads bytes of its packet, as sb_load_some()
 *     FRAMING_TABLES                          number of its automata; each walk names one in `table`
 *
 * Most of a head is text in which only the end of the line matters. The walker passes over it in words of 8
 * bytes, and reads packets in blocks.
 */
#ifndef SWITCHBACK_FRAMING_WALK_H
#define SWITCHBACK_FRAMING_WALK_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "bytes.h"
#include "framing.h"

#ifndef FRAMING_CONTEXT
#define FRAMING_CONTEXT struct xdp_md
#define FRAMING_LOAD    sb_xdp_load_some
#define FRAMING_TABLES  1
#endif

/* Cells of all tables. User space writes them before it loads the program. */
const volatile __u16 framing_cells[FRAMING_TABLES * SB_FRAMING_STATES * 256];

/*
 * A block of the packet, read at once. The walk uses it until a step ends with another result than
 * FOLLOWED_MORE: only then the packet may have changed.
 */
#define FRAMING_BLOCK 256
#define FRAMING_AHEAD 64 /* text passed over at once; may lie behind the block */
#define FRAMING_TURNS 8  /* of a step; each takes a byte, and the text before it */

struct framing_block {
        __u8 bytes[FRAMING_BLOCK + FRAMING_AHEAD];
};

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct framing_block);
} framing_blocks SEC(".maps");

enum followed {
        FOLLOWED_MORE,
        FOLLOWED_ENDS, /* at `at` */
        FOLLOWED_NOT,  /* no message that can be followed */
        FOLLOWED_NAME, /* at `at` is the `=` behind the wanted name; the walk can go on there */
};

struct framing_walk {
        struct sb_framing framing;
        __u32 at; /* offset in the packet of the next byte, and of the end of the data */
        __u32 end;
        __u32 block; /* offsets of what is in framing_blocks; at first both 0 */
        __u32 block_end;
        __u32 head_end; /* end of the latest head; 0: none */
        __u8 table;
        __u8 head;     /* a response to HEAD */
        __u8 followed; /* enum followed; FOLLOWED_MORE lets the walk go on */
        __u8 name_len;
        __u8 name[SB_NAME_MAX]; /* of the wanted cookie */
        FRAMING_CONTEXT *ctx;   /* must be last: see framing_read() */
};

static __always_inline void framing_begin(struct sb_framing *framing, __u16 state)
{
        framing->left = 0;
        framing->state = state;
        framing->status = 0;
        framing->flags = 0;
        framing->matched = 0;
}

/* RFC 9112 section 6.3: what follows the head. */
static __always_inline int framing_head_ends(struct sb_framing *framing, int head)
{
        __u16 status = framing->status;
        __u8 both = SB_FRAMING_HAS_LENGTH | SB_FRAMING_HAS_CHUNKED;

        if (status == 0) {
                if ((framing->flags & both) == 0)
                        return FOLLOWED_ENDS;
        } else {
                if (status == 101)
                        return FOLLOWED_NOT;
                if (status < 200) {
                        framing_begin(framing, SB_FRAMING_HEAD);
                        return FOLLOWED_MORE;
                }
                if (head || status == 204 || status == 304)
                        return FOLLOWED_ENDS;
        }
        if ((framing->flags & both) == 0 || (framing->flags & both) == both)
                return FOLLOWED_NOT;
        if (framing->flags & SB_FRAMING_HAS_CHUNKED) {
                framing->left = 0;
                framing->state = SB_FRAMING_CHUNK;
                return FOLLOWED_MORE;
        }
        if (framing->left == 0)
                return FOLLOWED_ENDS;
        framing->state = SB_FRAMING_BODY | SB_FRAMING_SKIP;
        return FOLLOWED_MORE;
}

static __always_inline int framing_act(struct framing_walk *w, __u16 cell, __u8 byte)
{
        struct sb_framing *framing = &w->framing;

        framing->state = cell & 0xff;
        switch (cell >> 8) {
        case SB_FRAMING_GO:
                return FOLLOWED_MORE;
        case SB_FRAMING_HEX:
                if (framing->left >> 59)
                        return FOLLOWED_NOT;
                framing->left = framing->left << 4 | (byte & 0x40 ? (byte & 7) + 9 : byte & 15);
                return FOLLOWED_MORE;
        case SB_FRAMING_DECIMAL:
                if (framing->left >> 59)
                        return FOLLOWED_NOT;
                framing->left = framing->left * 10 + (byte & 15);
                return FOLLOWED_MORE;
        case SB_FRAMING_STATUS:
                framing->status = framing->status * 10 + (byte & 15);
                return FOLLOWED_MORE;
        case SB_FRAMING_LENGTH:
                if (framing->flags & SB_FRAMING_HAS_LENGTH)
                        return FOLLOWED_NOT;
                framing->flags |= SB_FRAMING_HAS_LENGTH;
                framing->left = 0;
                return FOLLOWED_MORE;
        case SB_FRAMING_CHUNKED:
                if (framing->flags & SB_FRAMING_HAS_CHUNKED)
                        return FOLLOWED_NOT;
                framing->flags |= SB_FRAMING_HAS_CHUNKED;
                return FOLLOWED_MORE;
        case SB_FRAMING_CHUNK_BEGINS:
                if (framing->left == 0) {
                        framing->state = SB_FRAMING_TRAILER;
                        return FOLLOWED_MORE;
                }
                if (framing->left > framing->allowed)
                        return FOLLOWED_NOT;
                framing->allowed -= framing->left;
                framing->state |= SB_FRAMING_SKIP;
                return FOLLOWED_MORE;
        case SB_FRAMING_COUNT:
                return ++framing->left > SB_FRAMING_TRAILER_MAX ? FOLLOWED_NOT : FOLLOWED_MORE;
        case SB_FRAMING_EXTEND:
                return ++framing->status > SB_FRAMING_EXTENSION_MAX ? FOLLOWED_NOT : FOLLOWED_MORE;
        case SB_FRAMING_CLOSE:
                framing->flags |= SB_FRAMING_HAS_CLOSE;
                return FOLLOWED_MORE;
        case SB_FRAMING_HEAD_ENDS:
                return framing_head_ends(framing, w->head);
        case SB_FRAMING_ENDS:
                return FOLLOWED_ENDS;
        default:
                return FOLLOWED_NOT;
        }
}

#define FRAMING_EACH(byte) (0x0101010101010101ULL * (byte)) /* in each byte of 8 */

/*
 * Sets bit 0x80 of each of 8 bytes that is not below `least`. Other bits are undefined. No carry reaches
 * another byte.
 */
static __always_inline __u64 framing_not_below(__u64 bytes, __u8 least)
{
        return ((bytes & FRAMING_EACH(0x7f)) + FRAMING_EACH(0x80 - least)) | bytes;
}

/* Bit 0x80 of each byte that ends SB_FRAMING_TEXT or SB_FRAMING_OTHER. */
static __always_inline __u64 framing_marks(__u64 bytes, int text)
{
        __u64 passed = framing_not_below(bytes, ' ');

        if (!text)
                passed &= framing_not_below(bytes ^ FRAMING_EACH(';'), 1);
        return ~passed & FRAMING_EACH(0x80);
}

/* Number of bytes before the first one with bit 0x80. */
static __always_inline __u32 framing_before(__u64 marks)
{
        marks >>= 7;
        return ((marks - 1) & ~marks & FRAMING_EACH(1)) * FRAMING_EACH(1) >> 56;
}

/* Number of bytes, of the next FRAMING_AHEAD, that stay in the state. */
static __always_inline __u32 framing_run(const __u8 *bytes, int text)
{
#pragma unroll
        for (__u32 i = 0; i < FRAMING_AHEAD; i += 8) {
                __u64 marks = framing_marks(*(const __u64 *)(bytes + i), text);

                if (marks)
                        return i + framing_before(marks);
        }
        return FRAMING_AHEAD;
}

enum compared {
        COMPARED_SAME,  /* go on with the next byte */
        COMPARED_FOUND, /* the byte is the `=` behind the wanted name */
        COMPARED_OTHER,
};

static __always_inline int framing_compare(struct framing_walk *w, __u8 byte)
{
        __u8 matched = w->framing.matched;

        if (matched == 0 && (byte == ' ' || byte == '\t'))
                return COMPARED_SAME;
        if (matched < w->name_len && w->name[matched & (SB_NAME_MAX - 1)] == byte) {
                w->framing.matched = matched + 1;
                return COMPARED_SAME;
        }
        w->framing.matched = 0;
        w->framing.state = SB_FRAMING_OTHER;
        return matched && matched == w->name_len && byte == '=' ? COMPARED_FOUND : COMPARED_OTHER;
}

/* Skips data. */
static __always_inline void framing_skip(struct framing_walk *w)
{
        struct sb_framing *framing = &w->framing;
        __u32 here = w->end - w->at;

        if (framing->left > here) {
                framing->left -= here;
                w->at = w->end;
                return;
        }
        w->at += (__u32)framing->left;
        framing->left = 0;
        framing->state &= ~SB_FRAMING_SKIP;
        if (framing->state == SB_FRAMING_BODY)
                w->followed = FOLLOWED_ENDS;
}

/* Makes sure that the byte at `at` is in the block. */
static __always_inline int framing_load(FRAMING_CONTEXT *ctx, struct framing_walk *w,
                                        struct framing_block *block)
{
        __u32 at = w->at, len = w->end - at;

        if (at >= w->block && at < w->block_end)
                return 0;
        len = len < FRAMING_BLOCK ? len : FRAMING_BLOCK;
        if (FRAMING_LOAD(ctx, at, block->bytes, len, FRAMING_BLOCK))
                return -1;
        w->block = at;
        w->block_end = at + len;
        return 0;
}

/* A walk without its pointer. */
struct framing_walk_numbers {
        __u8 bytes[__builtin_offsetof(struct framing_walk, ctx)];
};

/*
 * A global function: the verifier checks it once, for any numbers. As part of its caller it would be checked
 * for each value that the verifier knows of, and exceed the limit. Memory that a global function gets may
 * hold no pointers.
 */
__noinline int framing_read(FRAMING_CONTEXT *ctx, struct framing_walk_numbers *numbers)
{
        struct framing_walk *w = (struct framing_walk *)numbers;
        __u32 zero = 0, at, end, cell, place;
        struct framing_block *block = bpf_map_lookup_elem(&framing_blocks, &zero);
        struct sb_framing *framing;
        __u8 byte = 0;

        if (!w || !block || framing_load(ctx, w, block))
                return FOLLOWED_NOT;
        framing = &w->framing;
        at = w->at - w->block;
        end = w->block_end - w->block;
        cell = framing->state;
#pragma clang loop unroll(disable)
        for (__u32 i = 0; i < FRAMING_TURNS; i++) {
                __u32 row = FRAMING_TABLES > 1 ? w->table * SB_FRAMING_STATES : 0;

                byte = block->bytes[at & (FRAMING_BLOCK - 1)];
                if (cell == SB_FRAMING_NAME) {
                        int compared = framing_compare(w, byte);

                        if (compared == COMPARED_FOUND) {
                                w->at = w->block + at;
                                return FOLLOWED_NAME;
                        }
                        if (compared == COMPARED_SAME) {
                                if (++at >= end)
                                        break;
                                continue;
                        }
                        cell = SB_FRAMING_OTHER;
                }
                if (cell == SB_FRAMING_TEXT || cell == SB_FRAMING_OTHER) {
                        at += cell == SB_FRAMING_TEXT
                                  ? framing_run(block->bytes + (at & (FRAMING_BLOCK - 1)), 1)
                                  : framing_run(block->bytes + (at & (FRAMING_BLOCK - 1)), 0);
                        if (at >= end) {
                                at = end;
                                break;
                        }
                        byte = block->bytes[at & (FRAMING_BLOCK - 1)];
                }
                place = (row + cell) << 8 | byte;
                /* The mask comes last: verifiers before Linux 6.8 forget the bounds of what they combine with `|`. */
                asm volatile("" : "+r"(place));
                cell = framing_cells[place & (FRAMING_TABLES * SB_FRAMING_STATES * 256 - 1)];
                at++;
                if (cell > 0xff) {
                        int followed = framing_act(w, cell, byte);

                        if (cell >> 8 == SB_FRAMING_HEAD_ENDS)
                                w->head_end = w->block + at;
                        cell = framing->state;
                        if (followed != FOLLOWED_MORE || (cell & SB_FRAMING_SKIP)) {
                                w->at = w->block + at;
                                return followed;
                        }
                }
                if (at >= end)
                        break;
        }
        w->at = w->block + at;
        framing->state = cell;
        return FOLLOWED_MORE;
}

/* Advances over some bytes, or over data, or finds a name. The result is in `followed`. */
static __always_inline void framing_step(struct framing_walk *w)
{
        if (w->framing.state & SB_FRAMING_SKIP) {
                framing_skip(w);
                return;
        }
        w->followed = framing_read(w->ctx, (struct framing_walk_numbers *)w);
        if (w->followed != FOLLOWED_MORE)
                w->block_end = 0;
}

#endif
