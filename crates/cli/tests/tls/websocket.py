"""python3-websockets: sends messages of many lengths to a server that sends them back, and compares them.

Says how many came back.
"""

import asyncio
import random
import ssl
import sys

import websockets

NAME = "shop.example.com"
COUNT = 300

vip, authority = sys.argv[1:]


async def main():
    context = ssl.create_default_context(cafile=authority)
    to = {"host": vip, "port": 443, "ssl": context, "server_hostname": NAME}
    async with websockets.connect(f"wss://{NAME}/echo", **to) as socket:
        for number in range(COUNT):
            message = random.randbytes(random.choice([1, 100, 5000, 100_000]))
            await socket.send(message)
            assert await socket.recv() == message, f"message {number}"
    print(COUNT)


asyncio.run(main())
