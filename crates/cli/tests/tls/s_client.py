"""`openssl s_client` with one cipher suite: makes every request of a list on one connection, and compares every byte.

The list's lines are a method, a URL and the file that must come, or that is sent. Says how many were right.
"""

import http.client
import subprocess
import sys
from urllib.parse import urlsplit

version, option, suite, vip, authority, path = sys.argv[1:]
with open(path) as lines:
    transfers = [line.split() for line in lines]
name = urlsplit(transfers[0][1]).hostname
words = ["openssl", "s_client", "-quiet", "-connect", f"{vip}:443", "-servername", name]
words += ["-CAfile", authority, "-verify_return_error", version, option, suite]
client = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


class Answers:
    """What http.client reads from instead of a socket; it stays open from one response to the next."""

    def makefile(self, _):
        return self

    def close(self):
        pass

    def __getattr__(self, name):
        return getattr(client.stdout, name)


for method, url, file in transfers:
    with open(file, "rb") as document:
        body = document.read()
    target = urlsplit(url).path
    head = f"{method} {target} HTTP/1.1\r\nHost: {name}\r\n"
    if method == "PUT":
        client.stdin.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    else:
        client.stdin.write(f"{head}\r\n".encode())
    client.stdin.flush()
    answer = http.client.HTTPResponse(Answers())
    answer.begin()
    got = answer.read()
    assert answer.status in (200, 201), (url, answer.status)
    assert method == "PUT" or got == body, f"{url}: wrong bytes"
client.kill()
print(len(transfers))
