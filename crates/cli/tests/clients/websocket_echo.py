"""A WebSocket server on a port of the loopback address that sends back every message."""

import asyncio
import sys

import websockets


async def echo(connection, _path=None):
    async for message in connection:
        await connection.send(message)


async def main():
    async with websockets.serve(echo, "127.0.0.1", int(sys.argv[1]), max_size=None):
        await asyncio.Future()


asyncio.run(main())
