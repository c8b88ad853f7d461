"""The cell: a file with tools, wrist cameras and obstacles, and arms that keep clear of them."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from tests.real_robot.filter_rig import PERIOD, Run
from tests.real_robot.shape_distances import CUBE

from stringline import ALOHA, IIWA14, SafetyLimits, rotation_about
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.dynamixel.bus import Bus, sync_read
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.safety.cell import cell_of
from stringline.real_robot.safety.clearance import Clearance
from stringline.real_robot.safety.limits import REDUCED_SPEED, read_limits
from stringline.real_robot.safety.reasons import Reason

Vector = NDArray[np.float64]

TOOL = {"mass_kg": 0.4, "capsules": [{"start": [0, 0, 0], "end": [0.1, 0, 0], "radius": 0.03}]}
POST = {"shape": "capsule", "position": [-0.22, 0.2, 0.3], "radius": 0.05, "length": 0.6}
EXAMPLE = Path(__file__).parents[3] / "docs" / "robots.md"


def tips(path: Sequence[Vector]) -> Vector:
    """Returns the ends (T, 2, 3) of the left arm's `TOOL`, radius included."""
    T_base_gripper = ALOHA.forward_kinematics(np.array(path))["left"]
    ends = np.array([[-0.03, 0.0, 0.0, 1.0], [0.13, 0.0, 0.0, 1.0]])
    return np.asarray((T_base_gripper[:, None] @ ends[..., None])[..., :3, 0])


def test_the_tip_of_a_tool_is_not_faster_than_the_limit() -> None:
    settings: dict[str, Any] = {"soft_start_s": 0.0, "speed_share": 1.0, "acceleration": 20.0}
    tool = {"tools": {"left": TOOL}}
    bare = Run(SafetyLimits.of(ALOHA, **settings))
    tooled = Run(SafetyLimits.of(ALOHA, **settings, cell=tool))
    target = ALOHA.home.copy()
    target[[0, 3, 4]] += (0.5, 0.8, -0.6)
    for run in (bare, tooled):
        for _ in range(60):
            run.step(target)
    speeds = [
        np.linalg.norm(np.diff(tips(run.path), axis=0), axis=-1).max() / PERIOD
        for run in (bare, tooled)
    ]
    assert speeds[0] > 1.2 * REDUCED_SPEED
    assert speeds[1] <= REDUCED_SPEED * (1 + 1e-6)
    assert Reason.CARTESIAN_SPEED in tooled.filter.counts
    assert np.abs(tooled.path[-1] - tooled.path[0]).max() > 0.1


def test_the_example_of_the_documentation_is_a_limits_file(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", EXAMPLE.read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "cell:" in block]
    (tmp_path / "limits.yaml").write_text(example)
    (tmp_path / "fixture.obj").write_text(CUBE)
    limits = SafetyLimits.of(ALOHA, **read_limits(tmp_path / "limits.yaml"))
    shapes = {obstacle.shape for obstacle in limits.cell.obstacles}
    assert shapes == {"box", "capsule", "sphere", "mesh"}
    assert limits.cell.tools["left"].mass_kg > 0
    assert str(limits.cell).startswith("tool of left")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (7, "cell is 7; allowed: tools, cameras, obstacles"),
        ({"tool": {}}, "There is no entry of cell 'tool'. Did you mean 'tools'"),
        ({"tools": {"lefd": TOOL}}, "There is no arm in cell.tools 'lefd'. Did you mean 'left'"),
        ({"tools": {"left": {**TOOL, "mass_kg": None}}}, "cell.tools.left lacks mass_kg; needed"),
        ({"tools": {"left": {"mass_kg": 1}}}, "cell.tools.left lacks capsules; needed: mass_kg"),
        (
            {"tools": {"left": {**TOOL, "capsules": []}}},
            "cell.tools.left.capsules is .*; allowed: a list of one or more capsules",
        ),
        (
            {"tools": {"left": {**TOOL, "mass_kg": 400}}},
            r"cell.tools.left.mass_kg must be a number above 0 and at most 30 \(got 400\)",
        ),
        (
            {"cameras": {"overhead": TOOL["capsules"]}},
            "There is no wrist camera in cell.cameras 'overhead'.*Allowed: wrist_left, wrist_right",
        ),
        (
            {"obstacles": {"post": {**POST, "radius": 40}}},
            r"cell.obstacles.post.radius must be a number above 0 and at most 1 \(got 40\)",
        ),
        (
            {"obstacles": {"post": {**POST, "position": [0, 250, 300]}}},
            r"cell.obstacles.post.position must be a number from -10 to 10 \(got 250\)",
        ),
        (
            {"obstacles": {"post": {**POST, "position": [0, 1]}}},
            r"cell.obstacles.post.position is \[0, 1\]; allowed: three numbers",
        ),
        (
            {"obstacles": {"post": {**POST, "shape": "ball"}}},
            "There is no cell.obstacles.post.shape 'ball'.*Allowed: box, capsule, mesh, sphere",
        ),
        (
            {"obstacles": {"post": {**POST, "size": [1, 1, 1]}}},
            "There is no entry of cell.obstacles.post 'size'",
        ),
        ({"obstacles": {"a/b": POST}}, "obstacle 'a/b' of the cell needs a name without slashes"),
        (
            {"obstacles": {"part": {"shape": "mesh", "position": [0, 0, 0], "file": "none.obj"}}},
            "cell.obstacles.part.file none.obj cannot be read",
        ),
    ],
)
def test_a_wrong_cell_is_refused(cell: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SafetyLimits.of(ALOHA, cell=cell)


def test_a_mesh_in_millimetres_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cube.obj").write_text(CUBE)
    mesh = {"shape": "mesh", "position": [0, 0, 0], "file": str(tmp_path / "cube.obj")}
    with pytest.raises(
        ValueError, match=r"the mesh is 200 m large; allowed: a number above 0 and at most 10\."
    ):
        cell_of(ALOHA, {"obstacles": {"part": {**mesh, "scale": 100}}})


def test_lengths_in_millimetres_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"table_height must be a number from -2 to 2 \(got 12.0\)"
    ):
        SafetyLimits.of(ALOHA, table_height=12.0)
    with pytest.raises(
        ValueError, match=r"table_clearance must be a number from 0 to 0\.5 \(got 5.0\)"
    ):
        SafetyLimits.of(ALOHA, table_clearance=5.0)


def distance_of(shape: str, point: Vector, tmp_path: Path) -> float:
    """Returns the distance of a point of the base frame from an obstacle by its definition."""
    turn = rotation_about((0, 0, 1), np.radians(30)) @ rotation_about((1, 0, 0), np.radians(20))
    x, y, z = turn.T @ (point - (-0.1, 0.3, 0.25))
    match shape:
        case "box":
            outside = np.maximum(np.abs((x, y, z)) - (0.1, 0.05, 0.15), 0)
        case "mesh":
            outside = np.maximum(np.abs(np.array((x, y, z)) - 0.1) - 0.1, 0)
        case "capsule":
            return float(np.linalg.norm((x, y, z - np.clip(z, -0.15, 0.15)))) - 0.05
        case _:
            return float(np.linalg.norm((x, y, z))) - 0.08
    return float(np.linalg.norm(outside))


@pytest.mark.parametrize("shape", ["box", "capsule", "sphere", "mesh"])
def test_distances_from_obstacles_follow_from_their_definition(shape: str, tmp_path: Path) -> None:
    """A small sphere as a tool measures the distance of a point."""
    (tmp_path / "cube.obj").write_text(CUBE)
    sizes: dict[str, dict[str, Any]] = {
        "box": {"size": [0.2, 0.1, 0.3]},
        "capsule": {"radius": 0.05, "length": 0.3},
        "sphere": {"radius": 0.08},
        "mesh": {"file": str(tmp_path / "cube.obj"), "scale": 0.1},
    }
    obstacle = {"shape": shape, "position": [-0.1, 0.3, 0.25], "rpy_deg": [20, 0, 30]}
    probe = {"start": [0.2, 0, 0], "end": [0.2, 0, 0], "radius": 0.001}
    plain = {
        "tools": {"left": {"mass_kg": 0.1, "capsules": [probe]}},
        "obstacles": {"thing": {**obstacle, **sizes[shape]}},
    }
    clearance = Clearance(ALOHA, cell=cell_of(ALOHA, plain), exact_up_to=5.0)
    random, seen = np.random.default_rng(0), 0
    for q in random.uniform(ALOHA.lower, ALOHA.upper, (60, 14)):
        tip = (ALOHA.forward_kinematics(q)["left"] @ (0.2, 0, 0, 1))[:3]
        expected = distance_of(shape, tip, tmp_path) - 0.001
        measured = clearance.measure(q).obstacles[0, -1]
        if expected > 0:
            seen += 1
            assert measured == pytest.approx(expected, abs=1e-6)
        else:
            assert measured < 1e-6
    assert seen > 30


def test_the_arms_stop_before_an_obstacle() -> None:
    limits = SafetyLimits.of(
        ALOHA, soft_start_s=0.0, cell={"obstacles": {"post": POST}}, cell_clearance=0.01
    )
    run, clearance = Run(limits), Clearance.of(ALOHA, limits)
    target = ALOHA.home.copy()
    target[0] += 0.75  # The left arm turns into the post.
    assert clearance.measure(target).obstacles.min() < 0
    for _ in range(150):
        run.step(target)
    rooms = [clearance.measure(q).obstacles.min() for q in run.path]
    assert run.filter.counts[Reason.OBSTACLE] > 0
    assert min(rooms) >= 0.01 - 1e-9
    assert rooms[-1] < 0.03


def test_a_tool_keeps_clear_of_the_table() -> None:
    rod = {"start": [0, 0, 0], "end": [0.2, 0, 0], "radius": 0.01}
    cell = {"tools": {"arm": {"mass_kg": 0.2, "capsules": [rod]}}}
    limits = SafetyLimits.of(IIWA14, soft_start_s=0.0, acceleration=60.0, cell=cell)
    run, target = Run(limits, IIWA14), IIWA14.home.copy()
    target[1] += 0.8
    for _ in range(200):
        run.step(target)
    tips = [IIWA14.forward_kinematics(q)["arm"] @ (0.2, 0, 0, 1) for q in run.path]
    assert min(tip[2] for tip in tips) >= 0.01 - 1e-9
    assert run.filter.counts[Reason.TABLE] > 0


def folded(count: int) -> list[Vector]:
    """Returns random poses in which ALOHA's left arm is more than 2 cm inside itself."""
    random, clearance = np.random.default_rng(0), Clearance(ALOHA)
    poses = np.tile(ALOHA.home, (4000, 1))
    poses[:, :6] = random.uniform(ALOHA.lower[:6], ALOHA.upper[:6], (4000, 6))
    room = clearance.measure(poses)
    clear = (room.heights[:, 0].min(axis=1) > 0) & (room.between[:, 0].min(axis=1) > 0)
    inside = poses[clear & (room.own[:, 0].min(axis=1) < -0.02)]
    assert len(inside) > 150
    return list(inside[:count])


def test_no_target_leads_an_arm_into_itself() -> None:
    limits = SafetyLimits.of(ALOHA, soft_start_s=0.0, self_clearance=0.005)
    run, clearance = Run(limits), Clearance.of(ALOHA, limits)
    for target in folded(4):
        for _ in range(60):
            run.step(target)
        assert Reason.SAME_ARM in run.filter.reasons
        for _ in range(60):
            run.step(ALOHA.home)
    assert clearance.measure(np.array(run.path)).own.min() >= 0.005 - 1e-9


def crate_at(place: Vector) -> SafetyLimits:
    """Returns limits with a box around a place."""
    box = {"shape": "box", "position": place.tolist(), "size": [0.1, 0.1, 0.1]}
    return SafetyLimits.of(ALOHA, cell={"obstacles": {"crate": box}})


def test_obstacles_around_an_arm_are_named_with_the_depth() -> None:
    gripper = ALOHA.forward_kinematics(ALOHA.home)["right"][:3, 3]
    (problem,) = Clearance.of(ALOHA, crate_at(gripper)).overlaps(ALOHA.home)
    assert re.match(r"The arm 'right' is \d+ mm inside the obstacle 'crate' of the cell", problem)
    beside = gripper + np.array([0.0, 0.3, 0.0])
    assert Clearance.of(ALOHA, crate_at(beside)).overlaps(ALOHA.home) == []


@pytest.mark.slow
def test_an_arm_in_an_obstacle_gets_no_torque() -> None:
    limits = crate_at(ALOHA.forward_kinematics(ALOHA.home)["left"][:3, 3])
    with Emulator(plant="first_order") as emulator:
        driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.5)
        with DeviceProcess(driver, ALOHA, limits, period_s=0.01) as device:
            device.connect()
            with pytest.raises(
                ValueError, match=r"The arm 'left' is \d+ mm inside the obstacle 'crate'"
            ):
                device.arm()
        bus = Bus(emulator.ports["left"])
        bus.open()
        answers = sync_read({bus: [1]}, table.TORQUE_ENABLE.address, 1, 0.5)[bus]
        assert answers[1].data == b"\0"
        bus.close()


def test_the_file_of_a_mesh_is_found_beside_the_limits_file(tmp_path: Path) -> None:
    mesh = {"shape": "mesh", "position": [0, 0, 0], "file": "cube.obj", "scale": 0.1}
    (tmp_path / "limits.yaml").write_text(
        yaml.safe_dump({"table_height": 0.0, "cell": {"obstacles": {"part": mesh}}})
    )
    (tmp_path / "cube.obj").write_text(CUBE)
    (obstacle,) = SafetyLimits.of(ALOHA, **read_limits(tmp_path / "limits.yaml")).cell.obstacles
    assert obstacle.file == tmp_path / "cube.obj"
