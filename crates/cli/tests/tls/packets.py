"""Sends the end of a handshake of TLS 1.3 and a request that ends the connection in one packet. nginx writes its answer that
there is no such document at once, but a document after its head.

Says how many packets with data have come for it, how many packets have come at all, and whether a ticket, the response, and
close_notify were in them.
"""

import socket
import ssl
import struct
import sys

NAME = "shop.example.com"
# Of struct tcp_info (linux/tcp.h): tcpi_segs_in and tcpi_data_segs_in.
SEGMENTS, DATA_SEGMENTS = 140, 152


def segments(plain):
    info = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    return [struct.unpack_from("=I", info, place)[0] for place in (SEGMENTS, DATA_SEGMENTS)]


vip, authority = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
context.minimum_version = ssl.TLSVersion.TLSv1_3
# An end that nobody has announced is an error.
context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = context.wrap_bio(incoming, outgoing, server_hostname=NAME)
plain = socket.create_connection((vip, 443), timeout=20)
while True:
    try:
        tls.do_handshake()
        break
    except ssl.SSLWantReadError:
        plain.sendall(outgoing.read())
        incoming.write(plain.recv(1 << 16))
tls.write(f"GET /none HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n".encode())
before = segments(plain)
plain.sendall(outgoing.read())
while data := plain.recv(1 << 16):
    incoming.write(data)
after = segments(plain)
incoming.write_eof()
answer = b""
try:
    while data := tls.read(1 << 16):
        answer += data
    closed = True
except ssl.SSLZeroReturnError:
    closed = True
all_segments, data_segments = (now - then for now, then in zip(after, before))
print(data_segments, all_segments, tls.session.has_ticket, answer.split(b" ", 2)[1].decode(), closed)
