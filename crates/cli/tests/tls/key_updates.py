"""One client that renews its keys without end and wants the server to do so too (RFC 8446 section 4.6.3), and what becomes of its
connection: "ended" or "open" when COUNT messages have been said. Python's ssl has no such call, its OpenSSL has.

    key_updates.py VIP AUTHORITY key_update COUNT
"""

import ctypes
import socket
import sys

vip, authority, _, count = sys.argv[1:]
count = int(count)
# Until the server has answered so many, no more are sent, so that nobody waits for the other.
BATCH = 100
REQUEST = b"GET /small HTTP/1.1\r\nHost: shop\r\n\r\n"
UPDATE_REQUESTED = 1

library = ctypes.CDLL("libssl.so.3")
for name in ["TLS_client_method", "SSL_CTX_new", "SSL_new"]:
    getattr(library, name).restype = ctypes.c_void_p
context = ctypes.c_void_p(library.SSL_CTX_new(ctypes.c_void_p(library.TLS_client_method())))
stream = socket.create_connection((vip, 443), timeout=10)
stream.settimeout(None)
tls = ctypes.c_void_p(library.SSL_new(context))
library.SSL_set_fd(tls, stream.fileno())
assert library.SSL_connect(tls) == 1
buffer = ctypes.create_string_buffer(1 << 16)


def asks():
    """Whether a request is answered: what the server says comes behind its own new keys."""
    if library.SSL_write(tls, REQUEST, len(REQUEST)) <= 0:
        return False
    return library.SSL_read(tls, buffer, len(buffer)) > 0 and buffer.raw.startswith(b"HTTP/1.1 ")


said, is_open = 0, True
while is_open and said < count:
    for _ in range(BATCH):
        is_open = is_open and library.SSL_key_update(tls, UPDATE_REQUESTED) == 1 and library.SSL_do_handshake(tls) == 1
    said += BATCH
    is_open = is_open and asks()
print("open" if is_open else "ended", said)
