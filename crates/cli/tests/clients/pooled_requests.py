"""python3-requests with one session: fetches every URL of a list and compares every byte.

The list's lines are a URL and the file that must come. Says how many were right.
"""

import sys

import requests

right = 0
with requests.Session() as session, open(sys.argv[1]) as gets:
    session.trust_env = False
    for url, path in map(str.split, gets):
        response = session.get(url, timeout=10)
        assert response.status_code == 200, (url, response.status_code)
        with open(path, "rb") as file:
            assert response.content == file.read(), f"request {right} ({url}): wrong bytes"
        right += 1
print(right)
