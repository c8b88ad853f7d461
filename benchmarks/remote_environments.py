"""The cost of an interpreter of its own: a step of an environment there and in this process.

    python benchmarks/remote_environments.py --json remote.json

Names:
    remote_step/2x128_rgbd
        One control period of gym-aloha's TransferCube with an image and a depth image of two
        cameras of 128x128 pixels, in another process of this interpreter, through the world that
        collections and evaluations use, with its checks. Milliseconds of processor time of both
        processes; peer `local`, the same server without a process; ratio of times, the median over
        rounds that alternate. The limit is a ratio of 1.1. `wall_ratio` is the same by the clock.
    remote_step/blind
        The same without images; without a limit.
"""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import psutil
from measurement import FOLDER, Row, parser_of, row, write_rows
from tqdm import tqdm

from stringline.sim.interpreters.environment_process import Interpreter
from stringline.sim.interpreters.environment_server import Host
from stringline.sim.worlds.remote_environment import RemoteEnvironment

PLACE = "transfer_cube_environment:transfer_cube"
CAMERAS = ["top", "angle"]
SIZE = 128
CONTROL_HZ = 50.0


@dataclass(frozen=True)
class Times:
    """Seconds of processor time of this process and its children, and by the clock."""

    processor: float
    wall: float


def timed(run: Callable[[], object]) -> Times:
    """Returns the times of a call."""
    start = (_processor(), time.perf_counter())
    run()
    return Times(_processor() - start[0], time.perf_counter() - start[1])


def _processor() -> float:
    times = [one.cpu_times() for one in psutil.Process().children()]
    return time.process_time() + sum(each.user + each.system for each in times)


def measure(cameras: list[str], steps: int, rounds: int) -> tuple[float, float, float]:
    """Returns milliseconds of a remote step, and the ratios of processor and wall time."""
    local = Host(bytearray)
    size = [SIZE, SIZE]
    local.answer({"type": "open", "place": PLACE, "name": None, "cameras": cameras, "size": size})
    remote = RemoteEnvironment(
        f"remote:{PLACE}",
        Interpreter(),
        cameras=cameras,
        image_size=SIZE,
        control_hz=CONTROL_HZ,
        frame_hz=CONTROL_HZ,
        time_limit_s=1e9,
    )
    action = np.zeros(len(remote.contract.action))

    def here() -> None:
        local.answer({"type": "begin", "seed": 0})
        for _ in range(steps):
            local.answer({"type": "look"})
            local.answer({"type": "step", "action": action})

    def there() -> None:
        remote.begin(0)
        for _ in range(steps):
            remote.observe()
            remote.advance(action)

    try:
        here()
        there()
        pairs = [(timed(here), timed(there)) for _ in tqdm(range(rounds))]
    finally:
        local.close()
        remote.close()
    each = statistics.median(far.processor for _, far in pairs) / steps * 1e3
    processor = statistics.median(far.processor / near.processor for near, far in pairs)
    wall = statistics.median(far.wall / near.wall for near, far in pairs)
    return each, processor, wall


def main() -> None:
    """Prints the table and writes it on request."""
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=50, help="steps of an episode")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    os.chdir(FOLDER)  # The other process looks for modules in the current folder.
    rows: list[Row] = []
    for name, cameras in (("2x128_rgbd", CAMERAS), ("blind", [])):
        value, ratio, wall = measure(cameras, given.steps, given.rounds)
        found = row(f"remote_step/{name}", value, "ms", "local", ratio, wall_ratio=wall)
        rows.append(found)
        print(f"{found['name']:<24} {value:8.3f} ms  {ratio:.3f} x local  by the clock {wall:.3f}")
    write_rows(rows, given.json)


if __name__ == "__main__":
    main()
