"""Adversarial actions beside walls, with tools and obstacles of all shapes: ALOHA and KUKA arms.

Paths are judged by the kinematics and distances of `arm_judge.py`, which use no code of the filter.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.real_robot.arm_judge import SPACES, ArmJudge
from tests.real_robot.judged_streams import PERIOD, Case, follow_many
from tests.real_robot.shape_distances import CUBE

from stringline import ALOHA, IIWA14, IIWA14_BIMANUAL, Embodiment, SafetyLimits
from stringline.real_robot.safety.clearance import Clearance
from stringline.real_robot.safety.limits import REDUCED_SPEED, kuka_limits
from stringline.real_robot.safety.reasons import Reason

ROD = {"mass_kg": 0.3, "capsules": [{"start": [0, 0, 0], "end": [0.12, 0, 0.02], "radius": 0.015}]}
CLEARANCES: dict[str, float] = {
    "table_clearance": 0.003,
    "arm_clearance": 0.01,
    "self_clearance": 0.005,
    "cell_clearance": 0.005,
}
BODIES = {"aloha": ALOHA, "one kuka": IIWA14, "two kuka": IIWA14_BIMANUAL}
WALLS = {
    "aloha": [[-0.8, -0.4, -0.05], [0.7, 0.45, 0.75]],
    "one kuka": [[-0.5, -0.6, -0.05], [0.75, 0.55, 1.1]],
    "two kuka": [[-1.2, -0.6, -0.05], [1.1, 0.55, 1.1]],
}
PARTS, PART = 40, 25_000  # A million actions for each robot.
SAMPLE = 1_000
SPEEDS: dict[str, float | None] = {"reduced speed": REDUCED_SPEED, "any speed": None}
"""Largest speed of grippers and links, m/s."""


def cell_of(name: str, folder: Path) -> dict[str, Any]:
    """Returns a cell with a tool on the first arm and an obstacle of each shape around it."""
    body, base = BODIES[name], BODIES[name].chains[0].T_base_root[:3, 3]
    file = folder / "cube.obj"
    file.write_text(CUBE)
    reach = 0.6 if name == "aloha" else 1.0  # Share of the places in a cell of KUKA arms.

    def there(x: float, y: float, z: float) -> list[float]:
        return [float(base[0] + reach * x), float(base[1] + reach * y), reach * z]

    return {
        "tools": {body.arms[0]: ROD},
        "obstacles": {
            "post": {
                "shape": "capsule",
                "position": there(0.35, 0.4, 0.4),
                "rpy_deg": [15, 0, 0],
                "radius": 0.05,
                "length": 0.5,
            },
            "crate": {
                "shape": "box",
                "position": there(0.3, -0.45, 0.2),
                "rpy_deg": [0, 0, 30],
                "size": [0.2, 0.15, 0.3],
            },
            "lamp": {"shape": "sphere", "position": there(0.5, -0.3, 0.9), "radius": 0.08},
            "part": {
                "shape": "mesh",
                "position": there(0.5, 0.1, 0.02),
                "rpy_deg": [10, 0, 20],
                "file": str(file),
                "scale": 0.05,
            },
        },
    }


def case_of(name: str, folder: Path, cartesian_speed: float | None = REDUCED_SPEED) -> Case:
    """Returns arms with walls, a tool and obstacles."""
    body, cell = BODIES[name], cell_of(name, folder)
    settings: dict[str, Any] = {
        "cartesian_speed": cartesian_speed,
        "soft_start_s": 0.3,
        "box": WALLS[name],
        "cell": cell,
        **CLEARANCES,
    }
    limits = (
        SafetyLimits.of(body, **settings)
        if name == "aloha"
        else kuka_limits(body, acceleration=5.0, **settings)
    )
    return Case(body, limits, cell, trouble=0.0005, presses=True)


def needed_reasons(body: Embodiment) -> set[Reason]:
    """Returns the obstacles that must have stopped arms in a sample."""
    between = {Reason.OTHER_ARM} if len(body.arms) == 2 else set()
    return {Reason.TABLE, Reason.BOX, Reason.SAME_ARM, Reason.OBSTACLE, *between}


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_the_judge_sees_what_is_too_near_and_agrees_with_the_filter(
    name: str, tmp_path: Path
) -> None:
    case = case_of(name, tmp_path)
    body, limits = case.body, case.limits
    random = np.random.default_rng(0)
    poses = random.uniform(body.lower, body.upper, (4000, len(body.joints)))
    clearance = Clearance.of(body, limits)
    room = clearance.measure(poses)
    spare = case.judge.spare(poses)
    theirs = {
        "table": room.heights - limits.table_clearance,
        "walls": room.walls,
        "same arm": room.own - limits.self_clearance,
        **({"other arm": room.between - limits.arm_clearance} if len(body.arms) == 2 else {}),
    }
    for space, distances in theirs.items():
        least = distances.min(axis=(1, 2))
        ours = spare[:, SPACES.index(space)]
        assert np.minimum(ours, 0.01) == pytest.approx(np.minimum(least, 0.01), abs=1e-9)
        assert ours.min() < -0.01
    outside = room.obstacles.min(axis=(1, 2)) > 1e-4
    near = spare[outside, SPACES.index("obstacles")]
    measured = room.obstacles[outside].min(axis=(1, 2)) - limits.cell_clearance
    assert np.minimum(near, 0.01) == pytest.approx(np.minimum(measured, 0.01), abs=1e-7)
    assert min(near) < 0
    assert case.judge.closer(np.stack([body.home, poses[room.walls.min(axis=(1, 2)) < 0][0]])) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_each_obstacle_is_seen_by_the_judge(name: str, tmp_path: Path) -> None:
    case = case_of(name, tmp_path)
    poses = np.random.default_rng(1).uniform(
        case.body.lower, case.body.upper, (2000, len(case.body.joints))
    )
    for obstacle, plain in case.cell["obstacles"].items():
        alone = ArmJudge(case.body, case.limits, {"obstacles": {obstacle: plain}})
        assert alone.spare(poses)[:, SPACES.index("obstacles")].min() < 0, obstacle
    without = ArmJudge(case.body, case.limits, {"obstacles": case.cell["obstacles"]})
    assert (case.judge.spare(poses) < without.spare(poses))[:, SPACES.index("table")].any()


def test_the_judge_measures_the_speed_of_the_gripper(tmp_path: Path) -> None:
    case = case_of("one kuka", tmp_path)
    path = np.stack([IIWA14.home, IIWA14.home])
    path[1, 0] += 0.01
    gripper = IIWA14.forward_kinematics(IIWA14.home)["arm"][:2, 3]
    fastest = case.judge.fastest(path, PERIOD)
    assert fastest >= float(np.linalg.norm(gripper)) * 2 * np.sin(0.005) / PERIOD * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_no_actions_lead_arms_into_their_cell(name: str, tmp_path: Path) -> None:
    case = case_of(name, tmp_path, None)
    assert case.judge.closer(case.body.home[None]) == 0.0
    worst = follow_many(case, 0, SAMPLE, examples=40)
    assert needed_reasons(case.body) <= set(worst.counts)
    slow = follow_many(case.at(REDUCED_SPEED), 0, SAMPLE // 3, examples=40)
    assert slow.gripper > 0.9


@pytest.mark.stress
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_million_actions_lead_arms_into_their_cell(
    part: int, name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Even parts are at the speed of real arms, odd ones at any speed."""
    speed = list(SPEEDS)[part % 2]
    worst = follow_many(case_of(name, tmp_path, SPEEDS[speed]), part, PART)
    assert needed_reasons(worst.case.body) <= set(worst.counts)
    record_property("says", f"{name}, part {part} at {speed}: {worst}")
