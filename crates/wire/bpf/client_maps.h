/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Maps of the programs of a client that knows nodes.
 */
#ifndef SWITCHBACK_CLIENT_MAPS_H
#define SWITCHBACK_CLIENT_MAPS_H

#include <linux/types.h>

#include "flow.h"

struct sb_client_settings {
        __u32 thin_acks; /* so many ACKs in a row may be left out */
        __u32 firewall;  /* something on the way to the services follows connections */
};

/* The keys of one address of this client; one of zeroes is none. */
struct sb_client_keys {
        struct sb_key sign;
        struct sb_key accept;
};

enum sb_direct_state {
        SB_DIRECT_ON = 0,  /* packets go to the node */
        SB_DIRECT_OFF = 1, /* they go to the switch, until a node introduces itself */
};

/* A flow of which a node has introduced itself; the key is the flow as this machine sees it. */
struct sb_direct_flow {
        __u64 asked_ns; /* when the first of `asks` was sent */
        __u64 last_ns;  /* when the last ASK was */
        __u8 node[16];
        __u8 client[16]; /* as the cluster sees it */
        __be16 client_port;
        __u8 state;     /* enum sb_direct_state */
        __u8 asks;      /* without an answer since the last one */
        __u32 next;     /* up to here data may go to the node */
        __u32 sent;     /* and up to here it has been sent once */
        __u32 acked;    /* the last ACK number that went out */
        __u32 left_out; /* and the last that did not */
        __u32 in_order; /* the server's data has come without a gap up to here */
        __u32 highest;  /* and up to here with gaps; a FIN leaves one behind it */
        __u32 thinned;  /* ACKs that have been left out in a row */
        __u32 edge;     /* of the last window that went to the switch */
        __u8 watched;   /* something on the way there follows the connection */
        __u8 wscale;    /* the client's */
        __u8 reserved[2];
};

/* What this client has with a node, whose address is the key. */
struct sb_direct_node {
        __u64 introductions;
        __u64 packets;   /* sent to it directly */
        __u64 fallbacks; /* flows that went back to the switch because it did not answer */
        __u64 avoid_ns;  /* until then it gets none */
};

#endif
