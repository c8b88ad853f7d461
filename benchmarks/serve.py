"""Costs of a policy server, relative to plans in the same process.

    python benchmarks/serve.py --json serve.json

Names:
    serve/direct
        Milliseconds per plan in this process.
    serve/<clients>
        Milliseconds per plan over 1, 2, 4 or 8 simultaneous clients; peer `direct`, ratio of times.
    serve/round_trip
        The same for a policy that answers at once: the cost of the connection alone.
The server is a process of its own on this machine; policy and observation are those of the shipped
checkpoint.
"""

import multiprocessing
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import numpy as np
from measurement import parser_of, row, write_rows

from stringline.datasets.contract.contract import Contract, Observation
from stringline.policies.checkpoints.load import load_policy
from stringline.policies.chunks.chunk import ActionChunk
from stringline.policies.remote.client import RemotePolicy
from stringline.policies.remote.server import serve
from stringline.sim.environment.factory import make_environment

CLIENTS = (1, 2, 4, 8)
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


def plans_per_client(address: str, observation: Observation, seed: int, count: int) -> list[float]:
    """Returns the seconds of each plan of one client."""
    took = []
    with RemotePolicy(address, timeout_s=120).session(seed) as session:
        for _ in range(count):
            start = time.perf_counter()
            session.plan(observation)
            took.append(time.perf_counter() - start)
    return took


def served(
    prompt: bool, observation: Observation, clients: tuple[int, ...], count: int
) -> dict[int, float]:
    """Returns milliseconds per plan by number of clients; for one client the median."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=host, args=(prompt, there), daemon=True)
    server.start()
    address, found = f"ws://127.0.0.1:{here.recv()}", {}
    plans_per_client(address, observation, 0, 3)
    for number in clients:
        start = time.perf_counter()
        with ThreadPoolExecutor(number) as pool:
            took = list(
                pool.map(
                    lambda seed: plans_per_client(address, observation, seed, count), range(number)
                )
            )
        whole = (time.perf_counter() - start) / (number * count)
        found[number] = 1e3 * (statistics.median(took[0]) if prompt else whole)
    server.terminate()
    server.join(10)
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
    wire = served(True, observation, (1,), 10 * given.plans)[1]
    entries.append(row("serve/round_trip", wire, "ms", None))
    for entry in entries:
        ratio = f"   {entry['ratio']:.3f} x {entry['peer']}" if entry["ratio"] else ""
        print(f"{entry['name']:20s} {entry['value']:8.2f} {entry['unit']}{ratio}", flush=True)
    write_rows(entries, given.json)


if __name__ == "__main__":
    main()
