"""python3-httpx with a pool of connections and eight requests at a time: fetches every URL of a list and compares
every byte.

The list's lines are a URL and the file that must come. Says how many were right.
"""

import asyncio
import sys

import httpx

AT_A_TIME = 8


async def fetch(client, gets):
    """Takes from what all tasks share until nothing is left."""
    right = 0
    for url, path in gets:
        response = await client.get(url)
        assert response.status_code == 200, (url, response.status_code)
        with open(path, "rb") as file:
            assert response.content == file.read(), f"{url}: wrong bytes"
        right += 1
    return right


async def main():
    with open(sys.argv[1]) as file:
        gets = iter([line.split() for line in file])
    limits = httpx.Limits(max_connections=AT_A_TIME, max_keepalive_connections=AT_A_TIME)
    async with httpx.AsyncClient(limits=limits, timeout=10, trust_env=False) as client:
        print(sum(await asyncio.gather(*(fetch(client, gets) for _ in range(AT_A_TIME)))))


asyncio.run(main())
