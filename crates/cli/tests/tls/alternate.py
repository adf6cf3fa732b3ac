"""Requests for two paths in turn on one connection, COUNT in all: prints how many were answered, and the slowest one in seconds.

    alternate.py VIP AUTHORITY COUNT PATIENCE

A request without an answer within PATIENCE seconds ends it.
"""

import http.client
import json
import socket
import ssl
import sys
import time

NAME = "shop.example.com"
PATHS = ("/small", "/img/small")

vip, authority, count, patience = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
plain = socket.create_connection((vip, 443), timeout=float(patience))
plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
tls = context.wrap_socket(plain, server_hostname=NAME)

answered, slowest, error = 0, 0.0, None
try:
    while answered < int(count):
        began = time.monotonic()
        tls.sendall(f"GET {PATHS[answered % 2]} HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
        response = http.client.HTTPResponse(tls)
        response.begin()
        if response.status != 200 or response.getheader("x-node") != f"node{answered % 2}":
            raise OSError(f"{response.status} of {response.getheader('x-node')}")
        response.read()
        answered += 1
        slowest = max(slowest, time.monotonic() - began)
except (OSError, http.client.HTTPException) as failed:
    error = repr(failed)
print(json.dumps({"answered": answered, "slowest": slowest, "error": error}))
