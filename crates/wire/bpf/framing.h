/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Follows messages by an automaton of crates/http/src/framing, whose Table::follow() is the same in Rust. The program
 * that includes this says how bytes of its packets are read:
 *
 *     #define FRAMING_CONTEXT            struct __sk_buff or struct xdp_md
 *     #define FRAMING_LOAD(ctx, at, to, len)
 */
#ifndef SWITCHBACK_FRAMING_H
#define SWITCHBACK_FRAMING_H

/* Filled in before the program is loaded. */
const volatile __u16 framing_cells[SB_FRAMING_STATES * 256];

#define FRAMING_BLOCK 16

enum followed {
        FOLLOWED_MORE,
        FOLLOWED_ENDS, /* at `at` */
        FOLLOWED_NOT,  /* no message that can be followed */
};

struct framing_walk {
        FRAMING_CONTEXT *ctx;
        struct sb_framing framing;
        __u32 at; /* in the packet: what is read next, and where its data ends */
        __u32 end;
        __u8 head; /* a response to HEAD */
        __u8 followed;
};

static __always_inline void framing_begin(struct sb_framing *framing, __u16 state)
{
        framing->left = 0;
        framing->state = state;
        framing->status = 0;
        framing->flags = 0;
}

/* RFC 9112 section 6.3: how the end of the response is found. */
static __always_inline int framing_head_ends(struct sb_framing *framing, int head)
{
        __u16 status = framing->status;
        __u8 both = SB_FRAMING_HAS_LENGTH | SB_FRAMING_HAS_CHUNKED;

        if (status == 101)
                return FOLLOWED_NOT;
        if (status < 200) {
                framing_begin(framing, SB_FRAMING_HEAD);
                return FOLLOWED_MORE;
        }
        if (head || status == 204 || status == 304)
                return FOLLOWED_ENDS;
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

/* Goes on by some bytes of the packet, or over its data. What comes of it is in `followed`. */
static __always_inline void framing_step(struct framing_walk *w)
{
        struct sb_framing *framing = &w->framing;
        __u32 at = w->at, here = w->end - at, cell = framing->state, len;
        __u8 block[FRAMING_BLOCK] = {}, byte = 0;

        if (cell & SB_FRAMING_SKIP) {
                if (framing->left > here) {
                        framing->left -= here;
                        w->at = w->end;
                        return;
                }
                w->at = at + (__u32)framing->left;
                framing->left = 0;
                framing->state = cell & ~SB_FRAMING_SKIP;
                if (framing->state == SB_FRAMING_BODY)
                        w->followed = FOLLOWED_ENDS;
                return;
        }
        len = here < FRAMING_BLOCK ? here : FRAMING_BLOCK;
        asm volatile("%0 &= 31" : "+r"(len));
        if (len == 0 || len > FRAMING_BLOCK || FRAMING_LOAD(w->ctx, at, block, len)) {
                w->followed = FOLLOWED_NOT;
                return;
        }
#pragma unroll
        for (__u32 i = 0; i < FRAMING_BLOCK; i++) {
                if (i >= len || cell > 0xff)
                        break;
                byte = block[i];
                cell = framing_cells[(cell << 8 | byte) & (SB_FRAMING_STATES * 256 - 1)];
                at++;
        }
        w->at = at;
        w->followed = framing_act(w, cell, byte);
}

#endif
