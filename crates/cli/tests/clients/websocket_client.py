"""Sends messages to an echo service for some seconds and compares what comes back. Says how many were right."""

import asyncio
import random
import sys
import time

import websockets

LONGEST = 100_000


async def main(url, seconds):
    right = 0
    chance = random.Random(1)
    async with websockets.connect(url, max_size=None) as connection:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            message = chance.randbytes(chance.randrange(LONGEST))
            await asyncio.wait_for(connection.send(message), 10)
            answer = await asyncio.wait_for(connection.recv(), 10)
            assert answer == message, f"message {right} came back wrong"
            right += 1
    print(right)


asyncio.run(main(sys.argv[1], float(sys.argv[2])))
