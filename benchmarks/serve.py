"""Costs of a policy server, relative to plans in the same process.

    python benchmarks/serve.py --json serve.json

Names:
    serve/direct
        Milliseconds per plan in this process.
    serve/<clients>
        Milliseconds per plan over 1, 2, 4 or 8 simultaneous clients; peer `direct`, ratio of times.
    serve/quiet, serve/flood
        Milliseconds of a plan for a client that pauses 0.2 s between two plans, as arms do, alone
        and beside 8 clients that ask without a pause; medians. Peer of `flood`: `quiet`, ratio of
        times.
    serve/round_trip
        The same for a policy that answers at once: the cost of the connection alone.
The server is a process of its own on this machine; policy and observation are those of the shipped
checkpoint.
"""

import multiprocessing
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection

import numpy as np
from measurement import parser_of, row, write_rows

from stringline.datasets.contract.contract import Contract, Observation
from stringline.policies.checkpoints.load import load_policy
from stringline.policies.chunks.chunk import ActionChunk
from stringline.policies.remote.client import RemotePolicy
from stringline.policies.remote.server import serve
from stringline.sim.environment.environment import make_environment

CLIENTS = (1, 2, 4, 8)
FLOODING = 8
PAUSE_S = 0.2
TASK = CHECKPOINT = "hand_over_banana"


class Prompt:
    """A policy that answers at once."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract

    def session(self, seed: int) -> "Prompt":
        """Begins an episode."""
        return self

    def plan(self, observation: Observation) -> ActionChunk:
        """Plans to stay."""
        return ActionChunk(
            float(observation["time"]) + np.arange(48) / 50,
            np.tile(observation["joints/position"], (48, 1)),
        )


def host(prompt: bool, port: Connection) -> None:
    """Serves until the process ends."""
    policy = load_policy(CHECKPOINT)
    serve(Prompt(policy.contract) if prompt else policy, port=0, started=port.send)


def plans_per_client(
    address: str, observation: Observation, seed: int, count: int, pause_s: float = 0.0
) -> list[float]:
    """Returns the seconds of each plan of one client."""
    took = []
    with RemotePolicy(address, timeout_s=120).session(seed) as session:
        for _ in range(count):
            time.sleep(pause_s)
            start = time.perf_counter()
            session.plan(observation)
            took.append(time.perf_counter() - start)
    return took


def flood(address: str, observation: Observation) -> None:
    """Asks for plans without a pause until the process ends."""
    with ThreadPoolExecutor(FLOODING) as pool:
        for seed in range(FLOODING):
            pool.submit(plans_per_client, address, observation, seed, 10**9)


def beside_a_flood(observation: Observation, count: int) -> tuple[float, float]:
    """Returns milliseconds per plan of a client that pauses, alone and beside flooding clients."""
    with running(prompt=False) as address:
        plans_per_client(address, observation, 0, 3)
        quiet = statistics.median(plans_per_client(address, observation, 0, count, PAUSE_S))
        context = multiprocessing.get_context("spawn")
        others = context.Process(target=flood, args=(address, observation), daemon=True)
        others.start()
        time.sleep(10.0)  # They import and connect.
        loud = statistics.median(plans_per_client(address, observation, 0, count, PAUSE_S))
        others.terminate()
        others.join(10)
    return 1e3 * quiet, 1e3 * loud


@contextmanager
def running(prompt: bool) -> Iterator[str]:
    """Runs a server in a process of its own, and yields its address."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=host, args=(prompt, there), daemon=True)
    server.start()
    try:
        yield f"ws://127.0.0.1:{here.recv()}"
    finally:
        server.terminate()
        server.join(10)


def served(
    prompt: bool, observation: Observation, clients: tuple[int, ...], count: int
) -> dict[int, float]:
    """Returns milliseconds per plan by number of clients; for one client the median."""
    found = {}
    with running(prompt) as address:
        plans_per_client(address, observation, 0, 3)
        for number in clients:
            start = time.perf_counter()
            with ThreadPoolExecutor(number) as pool:
                plans = [
                    pool.submit(plans_per_client, address, observation, seed, count)
                    for seed in range(number)
                ]
            whole = (time.perf_counter() - start) / (number * count)
            found[number] = 1e3 * (statistics.median(plans[0].result()) if prompt else whole)
    return found


def main() -> None:
    """Prints the table and writes it on request."""
    parser = parser_of(__doc__)
    parser.add_argument("--plans", type=int, default=30, help="plans per client")
    given = parser.parse_args()
    world = make_environment(TASK)
    world.begin(0)
    observation = world.observe()
    world.close()
    session = load_policy(CHECKPOINT).session(0)
    session.plan(observation)
    took = []
    for _ in range(given.plans):
        start = time.perf_counter()
        session.plan(observation)
        took.append(time.perf_counter() - start)
    direct = 1e3 * statistics.mean(took)
    entries = [row("serve/direct", direct, "ms", None)]
    for clients, value in served(False, observation, CLIENTS, given.plans).items():
        entries.append(row(f"serve/{clients}", value, "ms", "direct", value / direct))
    quiet, loud = beside_a_flood(observation, given.plans)
    entries.append(row("serve/quiet", quiet, "ms", None))
    entries.append(row("serve/flood", loud, "ms", "quiet", loud / quiet))
    wire = served(True, observation, (1,), 10 * given.plans)[1]
    entries.append(row("serve/round_trip", wire, "ms", None))
    for entry in entries:
        ratio = f"   {entry['ratio']:.3f} x {entry['peer']}" if entry["ratio"] else ""
        print(f"{entry['name']:20s} {entry['value']:8.2f} {entry['unit']}{ratio}", flush=True)
    write_rows(entries, given.json)


if __name__ == "__main__":
    main()
