"""Time of a cycle of the safety filter, with one and two KUKA arms, free and in contact.

    python benchmarks/filter_cycle.py --json filter_cycle.json

Names:
    filter/<iiwa14|iiwa14_bimanual>/<free|contact>/<median|p99>
        Milliseconds of `SafetyFilter.step`: median and 99th percentile over the cycles of one run.
        All runs are equal, and the fastest time of each cycle counts, so that other processes
        disturb little. The limit is 1 ms. Free arms move to places around their home; in contact,
        one arm presses on the table, and each of two arms reaches for the home of the other one.
"""

import time

import numpy as np
from bridge_parts import show
from measurement import Row, parser_of, row
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.safety.filter import SafetyFilter
from stringline.real_robot.safety.limits import SafetyLimits

Vector = NDArray[np.float64]

PERIOD_S = 0.01
CYCLES_PER_TARGET = 60
SPREAD_M = 0.1
BELOW_TABLE_M = 0.05
LIMIT_MS = 1.0


def reaching(arms: Embodiment, q: Vector, arm: str, place: Vector) -> Vector:
    """Returns a pose with a gripper at a place, by Newton's method."""
    q = q.copy()
    revolute = arms.revolute_joints[arm]
    for _ in range(50):
        now = arms.forward_kinematics(q)[arm][:3, 3]
        near = arms.forward_kinematics(q + 1e-6 * np.eye(len(q))[revolute])[arm][:, :3, 3]
        q[revolute] += np.clip(np.linalg.pinv((near - now).T / 1e-6) @ (place - now), -0.1, 0.1)
    return q


def goals(arms: Embodiment, *, contact: bool) -> dict[str, Vector]:
    """Returns the place (3,) around which the targets of each gripper are, base frame, metres."""
    home = {arm: T[:3, 3] for arm, T in arms.forward_kinematics(arms.home).items()}
    if not contact:
        return home
    if len(arms.arms) == 1:
        return {arm: np.array([*place[:2], -BELOW_TABLE_M]) for arm, place in home.items()}
    return {arm: home[other] for arm, other in zip(home, reversed(home), strict=True)}


def targets(arms: Embodiment, count: int, *, contact: bool) -> list[Vector]:
    """Returns poses with the grippers within 10 cm of their goals along each axis."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(count):
        q = arms.home
        for arm, place in goals(arms, contact=contact).items():
            q = reaching(arms, q, arm, place + random.uniform(-SPREAD_M, SPREAD_M, 3))
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


def measure_run(arms: Embodiment, wanted: list[Vector]) -> list[float]:
    """Returns the times (ms) of all cycles; the arms follow every command."""
    limits = SafetyLimits.of(
        arms,
        margin_rad=0.02,
        speed_share=0.25,
        acceleration=5.0,
        soft_start_s=0.0,
        arm_clearance=0.02,
    )
    safety = SafetyFilter(arms, limits, PERIOD_S)
    position = arms.home
    safety.start(calm(0.0, position), 0)
    took = []
    for cycle in range(CYCLES_PER_TARGET * len(wanted)):
        state = calm(cycle * PERIOD_S, position)
        before = time.perf_counter()
        position = safety.step(wanted[cycle // CYCLES_PER_TARGET], state, state.time).position
        took.append(1e3 * (time.perf_counter() - before))
    return took


def measure(runs: int, count: int) -> list[Row]:
    """Returns the times of all cases."""
    entries = []
    for arms in (IIWA14, IIWA14_BIMANUAL):
        for contact in (False, True):
            wanted = targets(arms, count, contact=contact)
            fastest = np.min([measure_run(arms, wanted) for _ in range(runs)], axis=0)
            case = f"filter/{arms.name}/{'contact' if contact else 'free'}"
            for name, value in (("median", 50), ("p99", 99)):
                took = float(np.percentile(fastest, value))
                entries.append(row(f"{case}/{name}", took, "ms", "limit", took / LIMIT_MS))
    return entries


def main() -> None:
    """Prints the table and writes it on request."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=10, help="equal runs")
    parser.add_argument("--targets", type=int, default=5, help="targets per run, each for 0.6 s")
    given = parser.parse_args()
    show(measure(given.runs, given.targets), given.json)


if __name__ == "__main__":
    main()
