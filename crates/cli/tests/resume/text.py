"""Streams files in chunks, without anything by which two responses are known to be the same: text.py ROOT NAME."""

import pathlib
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHUNK = 40_000
root, name = pathlib.Path(sys.argv[1]), sys.argv[2]


class Text(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with open(root / self.path.lstrip("/"), "rb") as text:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("X-Node", name)
            self.end_headers()
            while chunk := text.read(CHUNK):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 128


server = Server(("::", 80), Text)
print("ready", flush=True)
server.serve_forever()
