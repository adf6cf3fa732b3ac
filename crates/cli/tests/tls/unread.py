"""Clients that ask for much and read nothing: CLIENTS connections, each with STREAMS requests for PATH and windows as large as can be.

    unread.py VIP AUTHORITY CLIENTS STREAMS PATH

Says "asked" when all have asked, and leaves when it is told a line.
"""

import struct
import sys

from frames import MAX_WINDOW, WINDOW_UPDATE, Connection, frame, get, settings

vip, authority, clients, streams, path = sys.argv[1:]
window = frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", MAX_WINDOW - 65535))
opening = settings(window=MAX_WINDOW) + window
asked = b"".join(get(1 + 2 * index, path) for index in range(int(streams)))
connections = []
for _ in range(int(clients)):
    connection = Connection(vip, authority, opening=opening)
    # Nothing of the responses fits into what the client's kernel takes for it.
    connection.say(asked)
    connections.append(connection)
print("asked", flush=True)
sys.stdin.readline()
