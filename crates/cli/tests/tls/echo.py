"""A server at port 81 that answers each request with the bytes that it has got, and writes them to a line of a file."""

import socketserver
import sys

name, log = sys.argv[1:]


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        while request := self.head():
            fields = request.lower()
            if b"\r\ntransfer-encoding: chunked" in fields:
                request += self.chunks()
            elif b"\r\ncontent-length: " in fields:
                length = fields.split(b"\r\ncontent-length: ")[1].split(b"\r\n")[0]
                request += self.rfile.read(int(length))
            with open(log, "a") as lines:
                lines.write(f"{request.decode('latin-1')!r}\n")
            head = f"HTTP/1.1 200 OK\r\nX-Node: {name}\r\nContent-Length: {len(request)}\r\n\r\n"
            self.wfile.write(head.encode() + request)
            if b"\r\nconnection: close\r\n" in fields:
                return

    def head(self):
        lines = b""
        while line := self.rfile.readline():
            lines += line
            if line == b"\r\n":
                break
        return lines

    def chunks(self):
        body = b""
        while True:
            size = self.rfile.readline()
            body += size
            length = int(size.split(b";")[0], 16)
            if length == 0:
                return body + self.head()
            body += self.rfile.read(length + 2)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


Server(("127.0.0.1", 81), Echo).serve_forever()
