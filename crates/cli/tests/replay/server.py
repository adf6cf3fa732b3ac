"""A server with the defaults of Python's standard library."""

import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGE = b"0123456789abcdef" * (1 << 16)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        body = LARGE if self.path == "/1m" else body
        self.send_response(200)
        self.send_header("x-client", self.client_address[0].removeprefix("::ffff:"))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6


Server(("::", int(sys.argv[1])), Handler).serve_forever()
