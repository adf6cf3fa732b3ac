"""HTTP/2 by hand: what a client says is made of frames, so that it can be what no client should say (RFC 9113)."""

import socket
import ssl
import struct

NAME = "shop.example.com"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
MAX_WINDOW = 2**31 - 1


def frame(kind, flags, stream, payload=b""):
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def literal(index, value):
    """A field whose name is in the static table (RFC 7541 appendix A), not indexed."""
    value = value.encode()
    assert len(value) < 127
    return bytes([index, len(value)]) + value


def request(path, method=0x82):
    """The fields of a request: `:method` GET is 0x82, POST is 0x83."""
    return bytes([method, 0x87]) + literal(4, path) + literal(1, NAME)


def get(stream, path):
    return frame(HEADERS, END_STREAM | END_HEADERS, stream, request(path))


def settings(**values):
    numbers = {"window": 4, "frame": 5}
    return frame(SETTINGS, 0, 0, b"".join(struct.pack("!HI", numbers[name], value) for name, value in values.items()))


class Connection:
    def __init__(self, vip, authority, timeout=20, opening=None):
        context = ssl.create_default_context(cafile=authority)
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection((vip, 443), timeout=timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.tls = context.wrap_socket(plain, server_hostname=NAME)
        self.read = b""
        self.say(PREFACE + (settings() if opening is None else opening))

    def say(self, data):
        self.tls.sendall(data)

    def hear(self):
        """The next frame: kind, flags, stream, payload; None at the end."""
        while len(self.read) < 9 or len(self.read) < 9 + int.from_bytes(self.read[:3], "big"):
            data = self.tls.recv(65536)
            if not data:
                return None
            self.read += data
        length = int.from_bytes(self.read[:3], "big")
        kind, flags, stream = struct.unpack("!BBI", self.read[3:9])
        payload, self.read = self.read[9 : 9 + length], self.read[9 + length :]
        return kind, flags, stream, payload

    def fetch(self, stream, path):
        """The bytes of a response's body, by one request; None if it is refused or the connection ends."""
        self.say(get(stream, path))
        length = 0
        while heard := self.hear():
            kind, flags, at, payload = heard
            if kind == SETTINGS and not flags & ACK:
                self.say(frame(SETTINGS, ACK, 0))
            if kind == DATA and payload:
                for window in (0, at):
                    self.say(frame(WINDOW_UPDATE, 0, window, struct.pack("!I", len(payload))))
            if at != stream:
                continue
            if kind == RST_STREAM:
                return None
            length += len(payload) if kind == DATA else 0
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                return length
        return None
