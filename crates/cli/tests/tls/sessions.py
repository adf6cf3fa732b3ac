"""Clients that come twice: each fetches a page on a connection, and later on another, for which it offers the session
of the first. In between all others have come, and they come in another order.

Prints a JSON object: how many second handshakes went on with the session, and how many got to the same node.
"""

import json
import random
import socket
import ssl
import sys

NAME = "shop.example.com"
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
REQUEST = f"GET /small HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n".encode()

vip, authority, version, count = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
# An end that nobody has announced is an error.
context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
context.minimum_version = context.maximum_version = VERSIONS[version]


def visit(session):
    """One connection: its session, whether it is the one that was offered, and the node."""
    with socket.create_connection((vip, 443), timeout=10) as plain:
        # After a short handshake the request would wait for an acknowledgment.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(
            plain, server_hostname=NAME, session=session, suppress_ragged_eofs=False
        ) as tls:
            tls.sendall(REQUEST)
            response = b""
            while data := tls.recv(1 << 16):
                response += data
            assert response.startswith(b"HTTP/1.1 200 "), response
            node = response.lower().split(b"x-node: ")[1].split(b"\r\n")[0]
            # In TLS 1.3 the session comes after the handshake.
            return tls.session, tls.session_reused, node


first = [visit(None) for _ in range(int(count))]
random.shuffle(first)
reused = same_node = 0
for session, _, node in first:
    _, is_reused, node_now = visit(session)
    reused += is_reused
    same_node += node_now == node
print(json.dumps({"reused": reused, "same_node": same_node}))
