"""Says in X-Saw which host and path it was asked for; for gunicorn, and by itself on waitress."""

import sys
from urllib.parse import quote


def application(environ, start_response):
    while environ["wsgi.input"].read(65536):
        pass
    path = quote(environ["PATH_INFO"].encode("latin-1"), safe="/*")
    saw = f"{environ.get('HTTP_HOST', '')}|{path}"
    start_response("200 OK", [("X-Saw", saw), ("Content-Length", "0")])
    return []


if __name__ == "__main__":
    import waitress

    waitress.serve(application, host="127.0.0.1", port=int(sys.argv[1]), threads=16, connection_limit=1000)
