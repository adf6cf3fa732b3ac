"""gRPC's interoperability tests with grpcio, whose library is the one of C++, Ruby and others: a server and a client.

    interop.py server ADDRESS
    interop.py client [--ca FILE --name NAME] [--pool NAME] [--loop | --status] ADDRESS

The messages are few and have few fields, so they are written and read here. A client whose test fails ends with a status other
than 0. With --loop it makes the tests until its standard input ends, and says how often; with --status it makes one call, and
says what comes of it.
"""

import argparse
import signal
import sys
import threading
import time
from concurrent import futures

import grpc

SERVICE = "grpc.testing.TestService"
PATIENCE = 60
MESSAGES_MAX = [("grpc.max_receive_message_length", 64 << 20)]


def number(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(tag, value):
    """A field: a number, or bytes with their length."""
    if isinstance(value, int):
        return number(tag << 3) + number(value)
    return number(tag << 3 | 2) + number(len(value)) + value


def fields(data):
    """The fields of a message, by their tags."""
    found, at = {}, 0

    def take():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = take()
        value = take()
        if key & 7 == 2:
            at += value
            value = data[at - value : at]
        found.setdefault(key >> 3, []).append(value)
    return found


def one(message, tag, default):
    return message.get(tag, [default])[-1]


def payload(size):
    return field(2, bytes(size))


def size_of(data):
    """Length of the payload, in the field `tag`, of a response."""
    return len(one(fields(one(fields(data), 1, b"")), 2, b""))


def serve(address):
    def echo(context):
        for key, value in context.invocation_metadata():
            if key == "x-grpc-test-echo-initial":
                context.send_initial_metadata([(key, value)])
            if key == "x-grpc-test-echo-trailing-bin":
                context.set_trailing_metadata([(key, value)])

    def wanted_status(request, context):
        if 7 in request:
            status = fields(request[7][-1])
            code = one(status, 1, 0)
            code = next(known for known in grpc.StatusCode if known.value[0] == code)
            context.abort(code, one(status, 2, b"").decode())

    def unary(data, context):
        echo(context)
        request = fields(data)
        wanted_status(request, context)
        return field(1, payload(one(request, 2, 0)))

    def collect(requests, _):
        return field(1, sum(size_of(data) for data in requests))

    def outputs(data, context):
        request = fields(data)
        wanted_status(request, context)
        for parameters in map(fields, request.get(2, [])):
            time.sleep(one(parameters, 2, 0) / 1e6)
            yield field(1, payload(one(parameters, 1, 0)))

    def converse(requests, context):
        echo(context)
        for data in requests:
            yield from outputs(data, context)

    server = grpc.server(futures.ThreadPoolExecutor(32), options=MESSAGES_MAX)
    handlers = {
        "EmptyCall": grpc.unary_unary_rpc_method_handler(lambda data, context: b""),
        "UnaryCall": grpc.unary_unary_rpc_method_handler(unary),
        "StreamingInputCall": grpc.stream_unary_rpc_method_handler(collect),
        "StreamingOutputCall": grpc.unary_stream_rpc_method_handler(outputs),
        "FullDuplexCall": grpc.stream_stream_rpc_method_handler(converse),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    if not server.add_insecure_port(address):
        sys.exit(f"cannot listen at {address}")
    server.start()
    signal.sigwait([signal.SIGTERM])
    server.stop(10).wait()


class Client:
    def __init__(self, channel, pool):
        self.channel = channel
        self.metadata = [("x-pool", pool)] if pool else []

    def call(self, kind, method, request, metadata=(), **options):
        options.setdefault("timeout", PATIENCE)
        made = getattr(self.channel, kind)(f"/{SERVICE}/{method}")
        return made(request, metadata=[*self.metadata, *metadata], **options)

    def fails(self, expected, call):
        try:
            call()
        except grpc.RpcError as error:
            assert error.code() == expected, error
            return error
        raise AssertionError(f"no {expected}")

    def empty_unary(self):
        assert self.call("unary_unary", "EmptyCall", b"") == b""

    def large_unary(self):
        for sent, wanted in [(271828, 314159), (10 << 20, 1)]:
            request = field(2, wanted) + field(3, payload(sent))
            assert size_of(self.call("unary_unary", "UnaryCall", request)) == wanted

    def client_streaming(self):
        sizes = [27182, 8, 1828, 45904]
        answer = self.call("stream_unary", "StreamingInputCall", (field(1, payload(size)) for size in sizes))
        assert one(fields(answer), 1, 0) == 74922

    def server_streaming(self):
        sizes = [31415, 9, 2653, 58979]
        request = b"".join(field(2, field(1, size)) for size in sizes)
        answers = self.call("unary_stream", "StreamingOutputCall", request)
        assert [size_of(answer) for answer in answers] == sizes

    def ping_pong(self):
        ready = threading.Semaphore(0)
        rounds = [(31415, 27182), (9, 8), (2653, 1828), (58979, 45904)]

        def requests():
            for wanted, sent in rounds:
                yield field(2, field(1, wanted)) + field(3, payload(sent))
                ready.acquire()

        answers = self.call("stream_stream", "FullDuplexCall", requests())
        for wanted, _ in rounds:
            assert size_of(next(answers)) == wanted
            ready.release()
        assert next(answers, None) is None

    def empty_stream(self):
        assert list(self.call("stream_stream", "FullDuplexCall", iter([]))) == []

    def timeout_on_sleeping_server(self):
        request = field(2, field(1, 1) + field(2, 10_000_000))
        call = lambda: list(self.call("unary_stream", "StreamingOutputCall", request, timeout=0.05))
        self.fails(grpc.StatusCode.DEADLINE_EXCEEDED, call)

    def cancel_after_first_response(self):
        over = threading.Event()

        def requests():
            yield field(2, field(1, 31415)) + field(3, payload(27182))
            over.wait()

        answers = self.call("stream_stream", "FullDuplexCall", requests())
        assert size_of(next(answers)) == 31415
        answers.cancel()
        over.set()
        self.fails(grpc.StatusCode.CANCELLED, lambda: next(answers))

    def custom_metadata(self):
        initial, trailing = ("x-grpc-test-echo-initial", "test"), ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab")
        made = self.channel.unary_unary(f"/{SERVICE}/UnaryCall")
        metadata = [*self.metadata, initial, trailing]
        _, call = made.with_call(field(2, 1), metadata=metadata, timeout=PATIENCE)
        assert initial in [tuple(pair) for pair in call.initial_metadata()]
        assert trailing in [tuple(pair) for pair in call.trailing_metadata()]

    def status_code_and_message(self):
        for message in ["test status message", "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n"]:
            request = field(7, field(1, 2) + field(2, message.encode()))
            error = self.fails(grpc.StatusCode.UNKNOWN, lambda: self.call("unary_unary", "UnaryCall", request))
            assert error.details() == message, error

    def unimplemented_method(self):
        self.fails(grpc.StatusCode.UNIMPLEMENTED, lambda: self.call("unary_unary", "UnimplementedCall", b""))

    def all(self):
        for test in [
            self.empty_unary,
            self.large_unary,
            self.client_streaming,
            self.server_streaming,
            self.ping_pong,
            self.empty_stream,
            self.timeout_on_sleeping_server,
            self.cancel_after_first_response,
            self.custom_metadata,
            self.status_code_and_message,
            self.unimplemented_method,
        ]:
            test()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["server", "client"])
    parser.add_argument("--ca")
    parser.add_argument("--name")
    parser.add_argument("--pool")
    parser.add_argument("--loop", action="store_true")
    parser.add_argument("--status", action="store_true")
    parser.add_argument("address")
    options = parser.parse_args()
    if options.role == "server":
        return serve(options.address)

    def connect():
        # Each channel has connections of its own.
        settings = [*MESSAGES_MAX, ("grpc.use_local_subchannel_pool", 1)]
        if not options.ca:
            return grpc.insecure_channel(options.address, settings)
        with open(options.ca, "rb") as file:
            credentials = grpc.ssl_channel_credentials(file.read())
        settings.append(("grpc.ssl_target_name_override", options.name))
        return grpc.secure_channel(options.address, credentials, settings)

    lasting = Client(connect(), options.pool)
    if options.status:
        try:
            lasting.empty_unary()
            print("OK")
        except grpc.RpcError as error:
            print(error.code().name, error.details())
        return
    if not options.loop:
        return lasting.all()
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    rounds = 0
    while not ended.is_set():
        with connect() as channel:
            Client(channel, options.pool).all()
        lasting.all()
        rounds += 1
        if rounds == 1:
            print("begun", flush=True)
    print(rounds)


main()
