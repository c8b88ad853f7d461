"""Clients that flood a server: `python flood.py KIND COUNT ADDRESS`, until it is terminated."""

import asyncio
import sys

import msgpack
import numpy as np
from tests.policies.remote.served import observation
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from stringline.policies.remote.protocol import pack

BEGIN = pack({"type": "begin", "seed": 0})
SEEN = {key: value for key, value in observation(0, 1.0).items() if "wrist" not in key}
PLAN = pack({"type": "plan", "stamp": 1.0, "observation": SEEN})
EMPTY_LISTS = b"\xdd\x00\x80\x00\x00" + b"\x90" * 2**23
CLAIMS = b"\xdd\x0f\xff\xff\xff" * 900


async def plans(socket: ClientConnection) -> None:
    """Asks for plan after plan without a pause."""
    await socket.send(BEGIN)
    while True:
        await socket.recv()
        await socket.send(PLAN)


async def unread_plans(socket: ClientConnection) -> None:
    """Asks without reading the answers."""
    await socket.send(BEGIN)
    while True:
        await socket.send(PLAN)


async def large(socket: ClientConnection) -> None:
    """Sends messages with as many entries as bytes, lists that claim lengths, and large images."""
    image = pack({"type": "plan", "stamp": 0.0, "observation": {"x": np.zeros(2**24, np.uint8)}})
    while True:
        for message in (EMPTY_LISTS, CLAIMS, msgpack.packb([[]] * 2**20), image):
            await socket.send(message)
            await socket.recv()


async def fragments(socket: ClientConnection) -> None:
    """Sends one message in fragments without content, and never ends it."""
    socket.transport.write(b"\x02\x80" + bytes(4))
    while not socket.transport.is_closing():
        socket.transport.write((b"\x00\x80" + bytes(4)) * 5000)
        await asyncio.sleep(0.05)


async def pings(socket: ClientConnection) -> None:
    """Sends pings with the largest content and never reads their answers."""
    socket.transport.pause_reading()
    while not socket.transport.is_closing():
        socket.transport.write((b"\x89\xfd" + bytes(4 + 125)) * 1000)
        await asyncio.sleep(0.001)


async def flood(kind: str, address: str) -> None:
    """Floods, and connects again when the server ends the connection."""
    while True:
        try:
            async with connect(address, compression=None, proxy=None, max_size=None) as socket:
                await socket.recv()
                await globals()[kind](socket)
        except (ConnectionClosed, OSError):
            await asyncio.sleep(0.2)


async def main() -> None:
    kind, count, address = sys.argv[1:]
    await asyncio.gather(*(flood(kind, address) for _ in range(int(count))))


if __name__ == "__main__":
    asyncio.run(main())
