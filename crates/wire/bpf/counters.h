/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Counters of the programs, in one list each. C, Rust, the command line and the documents iterate the lists.
 */
#ifndef SWITCHBACK_COUNTERS_H
#define SWITCHBACK_COUNTERS_H

#include <linux/types.h>

#define SB_SWITCH_COUNTERS(X)                                                                                \
        X(SYN_ANSWERED, "SYNs answered with a cookie")                                                       \
        X(ARP_ANSWERED, "ARP requests and neighbour solicitations for a VIP answered")                       \
        X(PING_ANSWERED, "ICMP echo requests to a VIP answered")                                             \
        X(PROBE_ANSWERED, "keep-alive probes answered on connections without a request")                     \
        X(REQUEST, "packets that may begin a request, given to the L7 thread")                               \
        X(EXPRESS, "requests forwarded by the automaton, without the L7 thread")                             \
        X(PLACED, "first requests given to a node without the L7 thread")                                    \
        X(CONFIRMED, "of these, those whose adoption the node has confirmed")                                \
        X(CHUNKS, "packets with the size of a chunk, forwarded without the L7 thread")                       \
        X(URGENT, "packets whose urgent data became ordinary data")                                          \
        X(ICMP_FORWARDED, "path MTU messages sent to the node of their flow")                                \
        X(FORWARDED, "packets sent to the node of their flow")                                               \
        X(FORWARDED_SLOWLY, "packets left to the L7 thread to forward: the next hop is not resolved")        \
        X(HANDOFF_RECEIVED, "verified packets from nodes")                                                   \
        X(CLOSED, "flow entries removed because the node reported the end")                                  \
        X(HANDSHAKE_ACK, "ACKs that completed a handshake; nothing is stored for them")                      \
        X(SUCCEEDED, "flow entries removed because their client has begun another connection")               \
        X(RESET_SENT, "RSTs sent to clients that closed before any request")                                 \
        X(NO_SERVICE, "RSTs sent for TCP to a port of a VIP that has no service")                            \
        X(DROP_COOKIE, "dropped: no flow entry, and no valid cookie of a connection that is not over")       \
        X(DROP_CLIENT, "dropped: connections of clients that the service does not let in")                   \
        X(DROP_RATE, "dropped: connections beyond the rate of the client or the service")                    \
        X(DROP_CONCURRENT, "dropped: connections beyond those that the client or the service may have")      \
        X(DROP_UNASKED, "dropped: perhaps begun by another process, and nodes are asked too much")           \
        X(DROP_TAG, "dropped: handoff packet with a wrong tag")                                              \
        X(DROP_EPOCH, "dropped: handoff packet of another time, such as a recorded one")                     \
        X(DROP_VERSION, "dropped: handoff packet of a later version of the format")                          \
        X(DROP_MALFORMED, "dropped: truncated or inconsistent headers")                                      \
        X(DROP_FRAGMENT, "dropped: IP fragments, IP options and extension headers")                          \
        X(DROP_CHECKSUM, "dropped: wrong checksum where a request is read")                                  \
        X(DROP_ICMP, "dropped: ICMP of no use to a node; about an unknown flow, nodes are asked first")      \
        X(DROP_FLAGS, "dropped: TCP flags that begin nothing")                                               \
        X(DROP_TWICE, "dropped: first requests of which another CPU has a copy at the same time")            \
        X(DROP_HELD, "dropped: packets without data of a flow that has no node yet")                         \
        X(DROP_NO_NODE, "dropped: the flow's node is not in the configuration")                              \
        X(DROP_TOO_LONG, "dropped: longer than the L7 thread accepts")                                       \
        X(DROP_RING_FULL, "dropped: an L7 thread does not keep up")                                          \
        X(DROP_HEADROOM, "dropped: the driver leaves too little room in front of the packet")                \
        X(UNOBSERVED, "requests forwarded by the automaton that the access log does not know")

#define SB_NODE_COUNTERS(X)                                                                                  \
        X(ADOPTED, "flows adopted")                                                                          \
        X(REPLAYED, "of these, those by a replayed handshake")                                               \
        X(REPEATED, "adoptions of connections that are over, not made again")                                \
        X(FORWARDED, "packets handed to the socket of their flow")                                           \
        X(RELEASED, "flows released")                                                                        \
        X(BUSY, "releases refused because a response was not complete and acknowledged")                     \
        X(OWNED, "probes answered")                                                                          \
        X(CONFIRMED, "switches told that data has arrived")                                                  \
        X(KEPT, "packets of clients kept, because a switch acknowledges them before a server has them")      \
        X(RESTORED, "kept packets given to a switch")                                                        \
        X(CURED, "stale sockets removed before an adoption")                                                 \
        X(REFUSED_QUEUE_FULL, "adoptions refused: accept queue full")                                        \
        X(REFUSED_DRAINING, "adoptions refused: the node is draining")                                       \
        X(PASSED_ON, "adoptions passed on to their second candidate")                                        \
        X(HELLO, "switches that asked for reports")                                                          \
        X(SYNCED, "switches told the time")                                                                  \
        X(REFUSED_NO_LISTENER, "adoptions refused: nobody listens")                                          \
        X(REFUSED_NO_NODE, "adoptions refused: for a node that this machine does not know")                  \
        X(REFUSED_NO_SOCKET, "requests refused: the flow has no socket here")                                \
        X(REFUSED_FAILED, "adoptions refused: the kernel would not")                                         \
        X(WITHHELD, "acknowledgments of requests without a response, and early FINs, kept back")             \
        X(TAKEN_OVER, "flows that came by another switch before")                                            \
        X(STALLED, "flows whose client was asked for an acknowledgment when a switch took flows over")       \
        X(OUTLIVED, "flows that go on without the server that ended them")                                   \
        X(MUTED, "packets of released flows kept back")                                                      \
        X(REMEMBERED, "flows known again by a request, after their entry had given way to others")           \
        X(FORGOTTEN, "flows ended because their entry had given way to others")                              \
        X(UNREAD, "packets refused because their data has to be read first")                                 \
        X(NOT_TAKEN, "flows ended because their socket did not take what had been read")                     \
        X(ABORTED, "flows released before their request was complete")                                       \
        X(RESPONSES, "responses followed to their end")                                                      \
        X(ACKNOWLEDGED, "packets of clients that acknowledge more of a response")                            \
        X(LOST_TRACK, "responses whose end cannot be told")                                                  \
        X(FACT, "facts of responses that a switch wants to know")                                            \
        X(FACT_LOST, "facts for which there was no room")                                                    \
        X(JUDGMENT, "failed responses, and the first successes behind them, told to the agent")              \
        X(JUDGMENT_LOST, "of these, those for which there was no room")                                      \
        X(INSURABLE, "responses that another node could go on with, reported to the agent")                  \
        X(INSURABLE_LOST, "of these, those for which there was no room")                                     \
        X(BEQUEATHED, "responses whose server has gone, left to another node")                               \
        X(DEATH, "switches that told of a dead node")                                                        \
        X(RESUMED, "flows adopted in the middle of another node's response")                                 \
        X(FINGERPRINT, "fingerprints told to nodes that could repeat a response")                            \
        X(FINGERPRINT_HEARD, "fingerprints heard of responses that this node could repeat")                  \
        X(FINGERPRINT_UNKNOWN, "fingerprints of responses that this node does not know, or not yet")         \
        X(REFUSED_NOT_INSURED, "adoptions refused: the response under way is unknown, or over")              \
        X(ICMP, "path MTU messages given to the kernel")                                                     \
        X(ARP_IGNORED, "ARP requests for a VIP left to the switch")                                          \
        X(ARP_ANNOUNCE, "ARP packets of ours kept from announcing a VIP")                                    \
        X(DROP_TAG, "dropped: handoff packet with a wrong tag")                                              \
        X(DROP_EPOCH, "dropped: handoff packet of another time, such as a recorded one")                     \
        X(DROP_VERSION, "dropped: handoff packet of a later version of the format")                          \
        X(DROP_MALFORMED, "dropped: truncated or inconsistent headers")                                      \
        X(DROP_PLAIN, "dropped: packet to a VIP that did not come through a switch")                         \
        X(DROP_AWAY, "dropped: packet of a server behind an interface, of a connection that is over")        \
        X(DROP_NO_SOCKET, "dropped: no socket for a forwarded packet")                                       \
        X(DROP_NOT_KEPT, "dropped: question for a packet that is not kept, or not any more")                 \
        X(DROP_STALE, "dropped: a delayed adoption, or a stale socket that would not go")                    \
        X(OUTDATED, "answered with what is true: packets of switches that did not know a flow's adoption")   \
        X(LACKED, "dropped, and the switch told: data of a flow whose adoption was not carried out here")    \
        X(HIDDEN, "dropped: packets to a hidden node that are from no switch")                               \
        X(TOLD_HERE, "packets to the switch of this machine")                                                \
        X(DROP_RING_FULL, "dropped: the switch of this machine does not keep up")                            \
        X(DROP_REPEATED, "dropped: data that was handed to the socket a moment ago, sent again")             \
        X(DROP_BEHIND_GAP, "dropped: part of a request with cookies, behind a gap")                          \
        X(DROP_OVERTAKING, "dropped: part of a response that has overtaken an earlier one")                  \
        X(COOKIE_RESTORED, "cookies given back the name that their server knows")                            \
        X(COOKIE_REWRITTEN, "session cookies whose names were rewritten")                                    \
        X(COOKIE_INSERTED, "session cookies inserted")                                                       \
        X(COOKIE_WAITED, "packets sent again because a cookie's name was not all in them")                   \
        X(COOKIE_MISSED, "session cookies left as the server set them, or not inserted")                     \
        X(INTRODUCED, "introductions sent to clients")                                                       \
        X(DIRECT, "packets that came from clients directly")                                                 \
        X(HEARD, "clients told that what they sent directly has arrived")                                    \
        X(GONE, "clients told that a flow is not here")                                                      \
        X(TUNNELED, "packets sent to clients in a tunnel")                                                   \
        X(DROP_CLIENT, "dropped: direct packet of another client's flow")                                    \
        X(DROP_BEYOND, "dropped: direct packet with data of a request that the switch has not read")

#define SB_CLIENT_COUNTERS(X)                                                                                \
        X(INTRODUCED, "introductions of nodes")                                                              \
        X(INTRODUCED_LATE, "introductions for a request that is over")                                       \
        X(AVOIDED, "introductions of nodes that have not answered lately")                                   \
        X(DIRECT, "packets sent to a node directly")                                                         \
        X(ASKED, "of these, packets that asked the node for an answer")                                      \
        X(HEARD, "answers of nodes")                                                                         \
        X(AGAIN, "data that is sent again, left to the switch")                                              \
        X(SHOWN, "packets left to the switch so that what is on the way there sees them")                    \
        X(BEYOND, "flows left to the switch because their next request begins")                              \
        X(FALLBACK, "flows left to the switch because their node does not answer")                           \
        X(GONE, "flows left to the switch because their node does not have them any more")                   \
        X(TUNNELED, "packets of servers taken out of their tunnel")                                          \
        X(THINNED, "acknowledgments left out")                                                               \
        X(DROP_TAG, "dropped: introduction or packet of a node with a wrong tag")                            \
        X(DROP_VERSION, "dropped: packet of a node in a later version of the format")                        \
        X(DROP_MALFORMED, "dropped: packet of a node that makes no sense")                                   \
        X(DROP_FOREIGN, "dropped: packet in a tunnel that is not from a service")                            \
        X(DROP_ROOM, "dropped: the kernel would not make room for the headers")

#define SB_ENUM_SWITCH(name, help) SB_SWITCH_##name,
#define SB_ENUM_NODE(name, help)   SB_NODE_##name,
#define SB_ENUM_CLIENT(name, help) SB_CLIENT_##name,
enum sb_switch_counter { SB_SWITCH_COUNTERS(SB_ENUM_SWITCH) SB_SWITCH_COUNTERS_LEN };
enum sb_node_counter { SB_NODE_COUNTERS(SB_ENUM_NODE) SB_NODE_COUNTERS_LEN };
enum sb_client_counter { SB_CLIENT_COUNTERS(SB_ENUM_CLIENT) SB_CLIENT_COUNTERS_LEN };

#endif
