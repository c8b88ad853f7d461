"""The page under attack on loopback: visitors are served in time, and memory is bounded."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import viser
from tests.sim.teleop.test_page_server import status
from websockets.sync.client import connect
from websockets.typing import Subprotocol

import stringline

SOURCE = Path(stringline.__file__).parents[1]
SERVER = """
import time
from stringline.sim.teleop.page_server import open_server
print(open_server("127.0.0.1", 0).get_port(), flush=True)
time.sleep(600)
"""
HALF_OPEN = 1500
# A visitor of a quiet page is served in a tenth of a second; this machine may be busy.
IN_TIME_S = 5.0
GROWTH_MB = 64
HEAD = "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
KEYS = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"


class Page:
    """The page in a process of its own."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            env={**os.environ, "PYTHONPATH": f"{SOURCE}:{SOURCE.parent}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.address = f"127.0.0.1:{self.port}"

    def memory_mb(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024

    def serves(self) -> float:
        """Serves a file and a visitor; returns the time that both took."""
        start = time.monotonic()
        with urllib.request.urlopen(f"http://{self.address}/", timeout=20) as page:
            assert page.status == 200
        assert status(self.address) == 101
        return time.monotonic() - start

    def connection(self, data: bytes = b"") -> socket.socket:
        opened = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        opened.sendall(data)
        return opened

    def close(self) -> str:
        self.process.kill()
        return self.process.communicate()[1]


@pytest.fixture
def page() -> Iterator[Page]:
    served = Page()
    served.serves()
    yield served
    served.close()


@contextmanager
def half_open(page: Page, count: int) -> Iterator[None]:
    """Holds connections that say nothing, or never end their requests."""
    head = (HEAD.format(address=page.address) + KEYS).encode()
    with ExitStack() as stack:
        for number in range(count):
            data = (b"", b"GET", head)[number % 3]
            stack.enter_context(page.connection(data))
        yield


@pytest.mark.slow
def test_visitors_are_served_beside_1500_half_open_connections(page: Page) -> None:
    before = page.memory_mb()
    with half_open(page, HALF_OPEN):
        assert page.serves() < IN_TIME_S
        assert page.memory_mb() - before < GROWTH_MB
        deadline = time.monotonic() + 40.0
        while len(os.listdir(f"/proc/{page.process.pid}/fd")) > 100:
            assert time.monotonic() < deadline, "it gives up those that say nothing"
            time.sleep(0.5)
    assert page.serves() < IN_TIME_S
    errors = page.close()
    assert len(errors.splitlines()) < HALF_OPEN / 10, "one that ends early fills no log"


@pytest.mark.slow
def test_announced_gigabytes_fill_no_memory(page: Page) -> None:
    """Of a message in one frame, of one in fragments, and of the head of a request."""
    before = page.memory_mb()
    version = Subprotocol(f"viser-v{viser.__version__}")
    with ExitStack() as stack:
        for opcode in (b"\x82", b"\x02"):
            visitor = stack.enter_context(
                connect(f"ws://{page.address}", proxy=None, subprotocols=[version], max_size=None)
            )
            raw = visitor.socket
            raw.sendall(opcode + b"\xff" + (1 << 32).to_bytes(8, "big") + bytes(4))
            deadline = time.monotonic() + IN_TIME_S
            try:
                while time.monotonic() < deadline:
                    raw.sendall(bytes(1 << 16))
            except OSError:
                pass  # It has ended the connection.
            assert time.monotonic() < deadline
        for _ in range(20):
            one = stack.enter_context(page.connection(b"GET /" + b"a" * (1 << 16)))
            try:
                for _ in range(100):
                    one.sendall(b"b" * (1 << 16))
            except OSError:
                pass
        assert page.memory_mb() - before < GROWTH_MB
    assert page.serves() < IN_TIME_S


@pytest.mark.slow
def test_foreign_pages_stay_out_in_any_number(page: Page) -> None:
    with half_open(page, 200):
        for _ in range(100):
            assert status(page.address, Origin="https://evil.example") == 403
        assert page.serves() < IN_TIME_S


@pytest.mark.slow
def test_messages_of_a_visitor_that_mean_nothing_end_at_most_its_own_connection(page: Page) -> None:
    version = Subprotocol(f"viser-v{viser.__version__}")
    before = page.memory_mb()
    for message in (
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\x90" * (1 << 19),
        b"\x81\xa1a",
        "text",
    ):
        with connect(
            f"ws://{page.address}", proxy=None, subprotocols=[version], max_size=None
        ) as visitor:
            visitor.send(message)
            time.sleep(0.2)
    assert page.serves() < IN_TIME_S
    assert page.memory_mb() - before < GROWTH_MB
