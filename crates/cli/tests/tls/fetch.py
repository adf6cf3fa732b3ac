"""python3-requests or python3-httpx: makes every request of a list and compares every byte.

The list's lines are a method, a URL and the file that must come, or that is sent. Says how many were right.
"""

import socket
import sys

which, vip, authority, path = sys.argv[1:]
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda _, *more, **named: resolve(vip, *more, **named)

if which == "requests":
    import requests

    client = requests.Session()
    client.trust_env = False
    client.verify = authority
else:
    import httpx

    client = httpx.Client(verify=authority, trust_env=False)

right = 0
with client, open(path) as transfers:
    for method, url, path in map(str.split, transfers):
        with open(path, "rb") as file:
            document = file.read()
        sent = {"data" if which == "requests" else "content": document} if method == "PUT" else {}
        response = client.request(method, url, timeout=20, **sent)
        assert response.status_code in (200, 201), (url, response.status_code)
        assert method == "PUT" or response.content == document, f"{url}: wrong bytes"
        right += 1
print(right)
