"""Many independent clients of an application that counts requests in a session, as session_server.rs runs it.

Each has a cookie jar and one connection at a time, and asks the pools' paths in random order. For every
client and pool the counter must grow by one at each request, and session id and node must stay; with
--expect-moves sessions may begin again, and are counted. Prints one JSON object; the exit status is 1 if
anything was wrong.

Requests of one client follow each other: real applications lock the session, and before the first cookie two
requests would begin two sessions. A request that fails is never sent again, since it may have been counted.
"""

import argparse
import collections
import http.client
import http.cookiejar
import json
import os
import random
import select
import socket
import sys
import threading
import time
import urllib.parse
import urllib.request

SHOWN_ERRORS = 20
FILLER = b"."
PAUSE_S = 0.05


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="as http://203.0.113.10 or http://[2001:db8::100]:8080")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--requests", type=int, default=10, help="of each client")
    parser.add_argument("--pools", default="/", help="a path for each pool, with commas between")
    parser.add_argument("--per-connection", default="1-5", help="requests on a connection, from-to")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=20, help="seconds for each step of a request")
    parser.add_argument("--limit", type=float, default=300, help="seconds for everything")
    parser.add_argument("--header", help="the name of a header that carries the client's number")
    parser.add_argument("--expect-moves", action="store_true", help="sessions may begin again")
    return parser.parse_args()


class Connection(http.client.HTTPConnection):
    """Notices when the server has ended it meanwhile."""

    def closed_by_server(self):
        # Between responses nothing may come: what is readable is the end, or does not belong there.
        return self.sock is None or bool(select.select([self.sock], [], [], 0)[0])


class Wrong(Exception):
    """A response that is not what the application sends."""

    def __init__(self, expected, got):
        super().__init__(f"expected {expected}, got {got}")
        self.expected, self.got = expected, got


class Client:
    def __init__(self, number, options, report):
        self.number, self.options, self.report = number, options, report
        # Of its own, so that what it does is the same whatever thread comes when.
        self.random = random.Random(f"{options.seed}/{number}")
        self.jar = http.cookiejar.CookieJar()
        # By pool: node, session and counter of its last response, and the requests that have failed since.
        self.sessions, self.failed = {}, {}
        self.left = options.requests
        self.connection, self.connection_left = None, 0

    def request(self):
        """One request to a random pool. All that goes wrong is in the report."""
        self.left -= 1
        pool = self.random.choice(self.options.pools)
        number = self.options.requests - self.left
        cookies = None
        try:
            if self.connection is not None and self.connection.closed_by_server():
                self.close()
            if self.connection is None:
                self.open()
            request = urllib.request.Request(self.options.base + pool)
            self.jar.add_cookie_header(request)
            cookies = request.get_header("Cookie")
            node, session, counter = self.exchange(request)
            self.check(pool, number, cookies, node, session, counter)
        except (OSError, http.client.HTTPException, Wrong) as error:
            self.close()
            self.failed[pool] = self.failed.get(pool, 0) + 1
            expected = error.expected if isinstance(error, Wrong) else "a response"
            got = error.got if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"
            self.report.error(self.number, pool, number, expected, got, cookies)
            # Not all requests at once to a server that is away.
            time.sleep(PAUSE_S)
        self.connection_left -= 1
        if self.connection_left <= 0 or self.left == 0:
            self.close()

    def open(self):
        self.connection = Connection(self.options.host, self.options.port, timeout=self.options.timeout)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection_left = self.random.randint(*self.options.per_connection)
        self.report.connected()

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def exchange(self, request):
        headers = dict(request.header_items())
        if self.options.header:
            headers[self.options.header] = str(self.number)
        self.connection.request("GET", request.selector, headers=headers)
        response = self.connection.getresponse()
        body = response.read()
        self.jar.extract_cookies(response, request)
        line, _, filler = body.partition(b"\n")
        words = line.decode(errors="replace").split(" ")
        if response.status != 200 or len(words) != 3 or not words[2].isdigit():
            raise Wrong("200 <node> <session> <counter>", f"{response.status} {body[:100]!r}")
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(request.selector).query)
        wanted = int(query.get("bytes", ["0"])[0])
        if len(filler) != wanted or filler.strip(FILLER):
            raise Wrong(f"{wanted} bytes of filler", f"{len(filler)}, or others")
        if response.headers["X-Node"] != words[0]:
            raise Wrong(f"X-Node: {words[0]}", response.headers["X-Node"])
        return words[0], words[1], int(words[2])

    def check(self, pool, number, cookies, node, session, counter):
        last = self.sessions.get(pool, (node, session, 0))
        failed = self.failed.pop(pool, 0)
        self.sessions[pool] = (node, session, counter)
        self.report.answered(pool, node, self.number)
        # Whether requests that failed were counted is unknown.
        if (node, session) == last[:2] and last[2] < counter <= last[2] + 1 + failed:
            return
        if self.options.expect_moves:
            self.report.moved()
            return
        expected = f"{last[0]} {last[1]} {last[2] + 1}"
        self.report.error(self.number, pool, number, expected, f"{node} {session} {counter}", cookies)


class Report:
    """What all clients have seen. Threads share it."""

    def __init__(self, pools):
        self.lock = threading.Lock()
        self.requests = self.connections = self.moves = self.error_count = 0
        self.errors = []
        self.nodes = {pool: collections.defaultdict(set) for pool in pools}

    def connected(self):
        with self.lock:
            self.connections += 1

    def answered(self, pool, node, client):
        with self.lock:
            self.requests += 1
            self.nodes[pool][node].add(client)

    def moved(self):
        with self.lock:
            self.moves += 1

    def error(self, client, pool, request, expected, got, cookies):
        with self.lock:
            self.error_count += 1
            if len(self.errors) < SHOWN_ERRORS:
                self.errors.append(
                    {"client": client, "pool": pool, "request": request, "expected": expected, "got": got,
                     "cookies": cookies})

    def show(self, seconds):
        with self.lock:
            nodes = {pool: {node: len(clients) for node, clients in sorted(of_pool.items())}
                     for pool, of_pool in self.nodes.items()}
            print(json.dumps(
                {"requests": self.requests, "error_count": self.error_count, "errors": self.errors,
                 "restarted_sessions": self.moves, "nodes": nodes, "connections": self.connections,
                 "seconds": round(seconds, 3)}), flush=True)
            return 1 if self.error_count else 0


def work(clients, chooser, report):
    """Serves its clients in random order, so that all are under way together."""
    try:
        while clients:
            at = chooser.randrange(len(clients))
            clients[at].request()
            if clients[at].left == 0:
                clients[at] = clients[-1]
                clients.pop()
    except Exception as error:  # A fault of this program must not look like success.
        report.error(None, None, None, "no exception", repr(error), None)
        raise


def main():
    options = arguments()
    base = urllib.parse.urlsplit(options.base)
    options.base = options.base.rstrip("/")
    options.host, options.port = base.hostname, base.port or 80
    options.pools = options.pools.split(",")
    low, _, high = options.per_connection.partition("-")
    options.per_connection = (int(low), int(high or low))
    report = Report(options.pools)
    clients = [Client(number, options, report) for number in range(options.clients)]
    threads = []
    start = time.monotonic()
    for index in range(min(options.threads, options.clients)):
        own = clients[index::options.threads]
        chooser = random.Random(f"{options.seed}/thread/{index}")
        threads.append(threading.Thread(target=work, args=(own, chooser, report), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(max(0, start + options.limit - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        report.error(None, None, None, f"the end within {options.limit} s", "clients still at work", None)
    status = report.show(time.monotonic() - start)
    sys.stdout.flush()
    # Threads that are still at work are not waited for.
    os._exit(status)


if __name__ == "__main__":
    main()
