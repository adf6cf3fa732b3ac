"""A server of WSGI at port 81, which says what it takes for the client's address: X-Forwarded-For as CGI spells it."""

from wsgiref.simple_server import make_server


def say(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ.get("HTTP_X_FORWARDED_FOR", "-").encode()]


with make_server("127.0.0.1", 81, say) as server:
    print("listening", flush=True)
    server.serve_forever()
