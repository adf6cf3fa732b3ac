"""python3-requests or python3-httpx: fetches every URL of a list and compares every byte.

The list's lines are a URL and the file that must come. Says how many were right.
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
with client, open(path) as gets:
    for url, wanted in map(str.split, gets):
        response = client.get(url, timeout=20)
        assert response.status_code == 200, (url, response.status_code)
        with open(wanted, "rb") as file:
            assert response.content == file.read(), f"{url}: wrong bytes"
        right += 1
print(right)
