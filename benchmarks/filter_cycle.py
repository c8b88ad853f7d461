"""Time of a cycle of the safety filter while two KUKA arms reach into each other.

    python benchmarks/filter_cycle.py --json filter_cycle.json

Names:
    filter/iiwa14_bimanual/<median|p99>
        Milliseconds of `SafetyFilter.step`: median and 99th percentile over the cycles of one run.
        All runs are equal, and the fastest time of each cycle counts, so that other processes
        disturb little. The limit of the 99th percentile is 1 ms.
"""

import time

import numpy as np
from bridge_parts import show
from measurement import parser_of, row
from numpy.typing import NDArray

from stringline.datasets.embodiments.iiwa14 import IIWA14_BIMANUAL as ARMS
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.safety.filter import SafetyFilter
from stringline.real_robot.safety.limits import SafetyLimits

Vector = NDArray[np.float64]

PERIOD_S = 0.01
CYCLES_PER_TARGET = 60
SPREAD_M = 0.1
LIMIT_MS = 1.0


def reaching(q: Vector, arm: str, place: Vector) -> Vector:
    """Returns a pose with a gripper at a place, by Newton's method."""
    q = q.copy()
    hinges = ARMS.hinges[arm]
    for _ in range(50):
        now = ARMS.forward_kinematics(q)[arm][:3, 3]
        near = ARMS.forward_kinematics(q + 1e-6 * np.eye(len(q))[hinges])[arm][:, :3, 3]
        q[hinges] += np.clip(np.linalg.pinv((near - now).T / 1e-6) @ (place - now), -0.1, 0.1)
    return q


def targets(count: int) -> list[Vector]:
    """Returns poses in which each gripper is near the home place of the other one."""
    random = np.random.default_rng(0)
    home = {arm: T[:3, 3] for arm, T in ARMS.forward_kinematics(ARMS.home).items()}
    found = []
    for _ in range(count):
        q = ARMS.home
        for arm, other in zip(ARMS.arms, reversed(ARMS.arms), strict=True):
            q = reaching(q, arm, home[other] + random.uniform(-SPREAD_M, SPREAD_M, 3))
        found.append(q)
    return found


def calm(now: float, position: Vector) -> ArmState:
    """Returns the state of arms at a pose, without effort, errors or missed answers."""
    return ArmState(
        now,
        position,
        0 * position,
        0 * position,
        np.zeros(2, np.uint8),
        np.zeros(2, np.int32),
        np.zeros(2, np.bool_),
    )


def measure_run(wanted: list[Vector]) -> list[float]:
    """Returns the times (ms) of all cycles; the arms follow every command."""
    limits = SafetyLimits.of(
        ARMS,
        margin_rad=0.02,
        speed_share=0.25,
        acceleration=5.0,
        soft_start_s=0.0,
        arm_clearance=0.02,
    )
    safety = SafetyFilter(ARMS, limits, PERIOD_S)
    position = ARMS.home
    safety.start(calm(0.0, position), 0)
    took = []
    for cycle in range(CYCLES_PER_TARGET * len(wanted)):
        state = calm(cycle * PERIOD_S, position)
        before = time.perf_counter()
        position = safety.step(wanted[cycle // CYCLES_PER_TARGET], state, state.time).position
        took.append(1e3 * (time.perf_counter() - before))
    return took


def main() -> None:
    """Prints the table and writes it on request."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=10, help="equal runs")
    parser.add_argument("--targets", type=int, default=5, help="targets per run, each for 0.6 s")
    given = parser.parse_args()
    wanted = targets(given.targets)
    fastest = np.min([measure_run(wanted) for _ in range(given.runs)], axis=0)
    found = {"median": float(np.median(fastest)), "p99": float(np.percentile(fastest, 99))}
    entries = [
        row(f"filter/iiwa14_bimanual/{name}", value, "ms", "limit", value / LIMIT_MS)
        for name, value in found.items()
    ]
    show(entries, given.json)


if __name__ == "__main__":
    main()
