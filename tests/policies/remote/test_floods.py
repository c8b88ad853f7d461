"""Flooding clients on loopback: the robot's client is answered in time, and memory is bounded."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.policies.remote.served import CONTRACT, Drift, Running, observation
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import stringline
from stringline import Camera, RemotePolicy
from stringline.policies.remote.protocol import largest_request, pack

PLAN_S = 0.05
PAUSE_S = 0.2
CLIENTS = 8
SOURCE = Path(stringline.__file__).parents[1]
SERVER = """
import numpy as np
from tests.policies.remote.served import CONTRACT, Drift
from tests.policies.remote.test_floods import LARGE
from stringline.policies.remote.server import serve
serve(Drift({contract}), port=0, started=lambda port: print(port, flush=True))
"""
LARGE = replace(CONTRACT, cameras=(Camera("overhead", 1600, 2000, "simulated"),))


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{SOURCE}:{SOURCE.parent}"}


@contextmanager
def flooded(kind: str, address: str, count: int = CLIENTS) -> Iterator[None]:
    script = Path(__file__).with_name("flood.py")
    line = [sys.executable, str(script), kind, str(count), address]
    clients = subprocess.Popen(line, env=environment())
    try:
        yield
        assert clients.poll() is None
    finally:
        clients.terminate()
        clients.wait(10)


def seconds_per_plan(address: str, count: int) -> list[float]:
    """Returns the duration of each plan of a client that pauses, as arms do, after the first."""
    took = []
    with RemotePolicy(address).session(0) as session:
        session.plan(observation(0, 0.0))
        for step in range(count):
            time.sleep(PAUSE_S)
            start = time.perf_counter()
            session.plan(observation(0, float(step)))
            took.append(time.perf_counter() - start)
    return took


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plans", "unread_plans"])
def test_plans_for_a_robot_take_at_most_twice_as_long_beside_eight_flooding_clients(
    running: Callable[..., Running], kind: str
) -> None:
    planned = list[float]()

    def wait() -> None:
        planned.append(time.monotonic())
        time.sleep(PLAN_S)

    address = running(Drift(wait=wait)).address
    quiet = statistics.median(seconds_per_plan(address, 5))
    with flooded(kind, address):
        before = len(planned)
        deadline = time.monotonic() + 20
        while kind == "plans" and len(planned) < before + 2 * CLIENTS:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        loud = seconds_per_plan(address, 10)
    assert quiet > PLAN_S
    assert statistics.median(loud) < 2 * quiet


def test_a_client_that_does_not_wait_for_its_answer_is_disconnected(
    running: Callable[..., Running],
) -> None:
    with connect(running(Drift()).address, proxy=None) as raw:
        raw.recv()
        for _ in range(10):
            raw.send(pack({"type": "begin", "seed": 3}))
        answers = []
        with pytest.raises(ConnectionClosed, match=r"1008 .*before the answer to the last one"):
            answers.extend(iter(lambda: raw.recv(timeout=10), None))
    assert len(answers) <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "contract"), [("large", "LARGE"), ("fragments", "CONTRACT")])
def test_memory_of_the_server_is_bounded_by_the_largest_message(kind: str, contract: str) -> None:
    """Each of eight clients may have a message in the server and another one on its way there."""
    count = CLIENTS if kind == "large" else 2
    grown_bytes, largest = grown_in_a_flood(kind, contract, count, duration_s=2.0)
    assert grown_bytes < 4 * (CLIENTS + 1) * largest


@pytest.mark.slow
def test_answers_to_pings_that_clients_do_not_read_need_little_memory() -> None:
    """Without a bound it grew by 20 MB and more in this time, and went on."""
    grown_bytes, _ = grown_in_a_flood("pings", "CONTRACT", 2, duration_s=5.0)
    assert grown_bytes < 8 * 2**20


def grown_in_a_flood(kind: str, contract: str, count: int, duration_s: float) -> tuple[int, int]:
    """Returns the growth of a flooded server and the size of its largest request, bytes."""
    program = SERVER.format(contract=contract)
    server = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert server.stdout is not None
    try:
        remote = RemotePolicy(f"ws://127.0.0.1:{int(server.stdout.readline())}")
        quiet = peak_bytes(server.pid)
        with flooded(kind, remote.address, count):
            time.sleep(duration_s)
            with remote.session(0) as session:
                assert len(session.plan(observation(0, 1.0)).time) == 5
        return peak_bytes(server.pid) - quiet, largest_request(remote.contract)
    finally:
        server.terminate()
        server.wait(10)
        server.stdout.close()


def peak_bytes(process: int) -> int:
    """Returns the largest memory of a process so far."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return 1024 * int(peak)
