/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Maps of the programs of a client that knows nodes.
 */
#ifndef SWITCHBACK_CLIENT_MAPS_H
#define SWITCHBACK_CLIENT_MAPS_H

#include <linux/types.h>

#include "flow.h"

struct sb_client_settings {
        __u32 thin_acks; /* ACKs in a row that may be left out */
        __u32 firewall;  /* something between here and the services tracks connections */
};

/* Keys of one address of this client. A key of zeroes is none. */
struct sb_client_keys {
        struct sb_key sign;
        struct sb_key accept;
};

enum sb_direct_state {
        SB_DIRECT_ON = 0,  /* packets go to the node */
        SB_DIRECT_OFF = 1, /* packets go to the switch until a node introduces itself */
};

/* A flow whose node has introduced itself. The key is the flow as this machine sees it. */
struct sb_direct_flow {
        __u64 asked_ns; /* time of the first of `asks` */
        __u64 last_ns;  /* time of the last SB_DIRECT_ASK */
        __u8 node[16];
        __u8 client[16]; /* as the cluster sees it */
        __be16 client_port;
        __u8 state;     /* enum sb_direct_state */
        __u8 asks;      /* SB_DIRECT_ASK sent since the last answer */
        __u32 next;     /* sequence number up to which data may go to the node */
        __u32 sent;     /* sequence number up to which data has been sent once */
        __u32 acked;    /* last ACK number sent */
        __u32 left_out; /* last ACK number left out */
        __u32 in_order; /* sequence number up to which the server's data has come without a gap */
        __u32 highest;  /* highest sequence number of the server; a FIN leaves a gap before it */
        __u32 thinned;  /* ACKs left out in a row */
        __u32 edge;     /* right edge of the last window that went to the switch */
        __u8 watched;   /* something on the way to the switch tracks the connection */
        __u8 wscale;    /* the client's */
        __u8 reserved[2];
};

/* A node. The key is its address. */
struct sb_direct_node {
        __u64 introductions;
        __u64 packets;   /* sent to it directly */
        __u64 fallbacks; /* flows that went back to the switch because it did not answer */
        __u64 avoid_ns;  /* no flows go to it before this time */
};

#endif
