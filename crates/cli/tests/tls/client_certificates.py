"""Clients with certificates: a connection for each line of the input, and a line for what has come of it.

A line of the input is a JSON object:

    version       "1.2" or "1.3"
    certificate   a file with the certificate and its key; null without one
    again         offers the session of the last connection with this version and certificate
    requests      requests of HTTP/1.1, one after the other
    http2         instead of them the path of a request over HTTP/2, with `fields` in its head and in its trailer section

One of the output is {"reused": ..., "answers": [[node, body], ...]}, or {"alert": ...} if the server refuses the client.
"""

import http.client
import json
import socket
import ssl
import struct
import sys

from frames import ACK, DATA, END_HEADERS, END_STREAM, HEADERS, NAME, PREFACE, SETTINGS, frame, request

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

vip, authority = sys.argv[1:]
contexts, sessions = {}, {}


def context_for(key):
    if key not in contexts:
        context = contexts[key] = ssl.create_default_context(cafile=authority)
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        context.minimum_version = context.maximum_version = VERSIONS[key[0]]
        context.set_alpn_protocols([key[2]])
        if key[1]:
            context.load_cert_chain(key[1])
    return contexts[key]


def answers(tls, requests):
    for text in requests:
        tls.sendall(text.encode())
        answer = http.client.HTTPResponse(tls)
        answer.begin()
        yield [answer.getheader("x-node"), answer.read().decode("latin-1")]


def named(fields):
    """Fields with names of their own, not indexed."""
    text = b""
    for name, value in fields:
        name, value = name.encode(), value.encode()
        assert len(name) < 127 and len(value) < 127
        text += bytes([0, len(name)]) + name + bytes([len(value)]) + value
    return text


def http2_answer(tls, path, fields):
    trailers = [("trailer", name) for name, _ in [("x-sum", "7"), *fields]]
    head = request(path, method=0x83) + named([*trailers, *fields])
    tls.sendall(PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, head))
    tls.sendall(frame(DATA, 0, 1, b"body"))
    tls.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 1, named([("x-sum", "7"), *fields])))
    stream = tls.makefile("rb")
    body = b""
    while True:
        length, kind, flags, number = struct.unpack("!IBBI", b"\0" + stream.read(9))
        payload = stream.read(length)
        if kind == SETTINGS and not flags & ACK:
            tls.sendall(frame(SETTINGS, ACK, 0))
        if number == 1:
            body += payload if kind == DATA else b""
            if flags & END_STREAM:
                return [None, body.decode("latin-1")]


def visit(asked):
    key = (asked["version"], asked["certificate"], "h2" if "http2" in asked else "http/1.1")
    session = sessions.get(key) if asked.get("again") else None
    with socket.create_connection((vip, 443), timeout=20) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with context_for(key).wrap_socket(
                plain, server_hostname=NAME, session=session, suppress_ragged_eofs=False
            ) as tls:
                if "http2" in asked:
                    got = [http2_answer(tls, asked["http2"], asked["fields"])]
                else:
                    got = list(answers(tls, asked["requests"]))
                sessions[key] = tls.session
                return {"reused": tls.session_reused, "answers": got}
        except ssl.SSLError as error:
            return {"alert": error.reason}


for line in sys.stdin:
    print(json.dumps(visit(json.loads(line))), flush=True)
