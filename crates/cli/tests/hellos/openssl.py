"""Fresh connections with OpenSSL as it is, one after the other, and a request on each. Says of each connection on a line
"ok", or what went wrong. pyOpenSSL has an OpenSSL of its own, later than that of the distribution.
"""

import socket
import struct
import sys

from OpenSSL import SSL

NAME = b"shop.example.com"
REQUEST = b"GET /small HTTP/1.1\r\nHost: " + NAME + b"\r\nConnection: close\r\n\r\n"
PATIENCE = struct.pack("ll", 3, 0)


def once(vip, context):
    plain = socket.create_connection((vip, 443), timeout=3)
    # A time limit that OpenSSL, which reads and writes itself, is told of as well.
    plain.setblocking(True)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        plain.setsockopt(socket.SOL_SOCKET, option, PATIENCE)
    connection = SSL.Connection(context, plain)
    connection.set_tlsext_host_name(NAME)
    connection.set_connect_state()
    try:
        connection.sendall(REQUEST)
        answer = b""
        while part := receive(connection):
            answer += part
    finally:
        plain.close()
    status = answer.split(b"\r\n", 1)[0]
    return "ok" if status == b"HTTP/1.1 200 OK" else repr(status)


def receive(connection):
    try:
        return connection.recv(1 << 16)
    except SSL.ZeroReturnError:
        return b""


vip, authority, count = sys.argv[1:]
version = SSL.SSLeay_version(SSL.SSLEAY_VERSION).decode().split()[1]
assert tuple(map(int, version.split(".")[:2])) >= (3, 5), version
context = SSL.Context(SSL.TLS_METHOD)
context.load_verify_locations(authority)
context.set_verify(SSL.VERIFY_PEER)
for _ in range(int(count)):
    try:
        print(once(vip, context))
    except (SSL.Error, OSError) as error:
        print(repr(error))
