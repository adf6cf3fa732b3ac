"""So many connections at once, each with so many requests, one after the other; who has answered them, as JSON.

keep.py ADDRESS NAME AUTHORITY CONNECTIONS REQUESTS
"""

import http.client
import json
import socket
import ssl
import sys
import time

address, name, authority, connections, requests = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
answered = {}


class Connection(http.client.HTTPSConnection):
    def connect(self):
        plain = socket.create_connection((address, 443), timeout=10)
        self.sock = context.wrap_socket(plain, server_hostname=name)


def ask(connection):
    connection.request("GET", "/small")
    response = connection.getresponse()
    body = response.read()
    assert response.status == 200 and len(body) > 0, response.status
    node = response.headers["X-Node"]
    answered[node] = answered.get(node, 0) + 1


kept = [Connection(name) for _ in range(int(connections))]
for connection in kept:
    ask(connection)
    # Nodes tell each other five times a second how much they have to do.
    time.sleep(0.3)
for _ in range(int(requests) - 1):
    for connection in kept:
        ask(connection)
print(json.dumps(answered))
