"""Says in X-Saw which host and path it was asked for; for hypercorn."""


async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    host = dict(scope["headers"]).get(b"host", b"")
    saw = host + b"|" + scope["raw_path"].partition(b"?")[0]
    headers = [(b"x-saw", saw), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
