"""A connection over TLS that does what it is told, a line each, and says in a line what came of it.

    get PATH          status, node, length of the body and its SHA-256
    post PATH BYTES   likewise, with so many bytes for the server
    abandon PATH      half a request, behind which the client says that it ends
    garbage           a record that does not open; says the alert that comes for it
    end               "closed" if the other side has said that it ends, "cut" if it has not
    reset             a RST
"""

import hashlib
import http.client
import os
import socket
import ssl
import struct
import sys

NAME = "shop.example.com"

vip, authority = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
# An end that nobody has announced is an error.
context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
plain = socket.create_connection((vip, 443), timeout=20)
tls = context.wrap_socket(plain, server_hostname=NAME, suppress_ragged_eofs=False)


def response():
    answer = http.client.HTTPResponse(tls)
    answer.begin()
    body = answer.read()
    return f"{answer.status} {answer.getheader('x-node', '-')} {len(body)} {hashlib.sha256(body).hexdigest()}"


def get(path):
    tls.sendall(f"GET {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
    return response()


def post(path, length):
    head = f"POST {path} HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {length}\r\n\r\n"
    try:
        tls.sendall(head.encode() + bytes(int(length)))
    except OSError:
        # The answer may have come before all was sent.
        pass
    return response()


def abandon(path):
    tls.sendall(f"PUT {path} HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 100\r\n\r\nhalf".encode())
    try:
        # What it waits for then does not come.
        tls.settimeout(0.1)
        tls.unwrap()
    except OSError:
        pass
    return "abandoned"


def garbage():
    os.write(tls.fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))
    try:
        tls.recv(1)
    except ssl.SSLError as error:
        return error.reason
    return "none"


def end():
    try:
        data = tls.recv(1)
    except OSError:
        return "cut"
    return "more" if data else "closed"


def reset():
    tls.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    tls.close()
    return "reset"


COMMANDS = {"get": get, "post": post, "abandon": abandon, "garbage": garbage, "end": end, "reset": reset}

for line in sys.stdin:
    word, *arguments = line.split()
    try:
        said = COMMANDS[word](*arguments)
    except (OSError, http.client.HTTPException) as error:
        said = f"failed {error!r}"
    print(said, flush=True)
