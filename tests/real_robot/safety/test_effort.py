"""Effort limits: overloaded arms hold, retreat, and end in a fault if they push again."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.filter_rig import Run, moved

from stringline import ALOHA, ActionChunk, SafetyLimits
from stringline.datasets.command.choices import CONFIGS, completed
from stringline.real_robot.driver_interface.interlocks import Interlock
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.control_table import (
    CURRENT_UNIT_A,
    VIPERX,
    XM430,
    XM540,
)
from stringline.real_robot.safety.clearance import Clearance
from stringline.real_robot.safety.reasons import Mode, Reason
from stringline.real_robot.safety.stage_context import Freshness

if TYPE_CHECKING:
    from tests.real_robot.conftest import Rig

Vector = NDArray[np.float64]

LIMITS = SafetyLimits.of(
    ALOHA, cartesian_speed=None, soft_start_s=0.0, effort=[9.0, 18.0, 18.0, 9.0, 9.0, 4.0]
)
STIFFNESS = 43.0  # Nm/rad.
WAIST, SHOULDER, GRIPPER = 0, 1, 6
WALL = 0.3  # Angle at which the left waist meets an obstacle.


def test_each_limit_of_effort_is_one_that_servos_can_report() -> None:
    """From the largest currents of the registers, and the constants of the servos of each joint."""
    settings = completed(CONFIGS, "robot/aloha")["limits"]
    limits = SafetyLimits.of(ALOHA, **settings)
    counts = {XM540: 2047, XM430: 1193}
    for index, joint in enumerate(ALOHA.joints):
        if joint.kind == "revolute":
            turning = [servo.model for servo in VIPERX if joint.name.endswith(f"/{servo.joint}")]
            largest = sum(
                counts[model] * CURRENT_UNIT_A * model.torque_constant for model in turning
            )
            assert 0.5 * largest < limits.effort[index] < 0.8 * largest


@pytest.mark.parametrize(
    ("effort", "message"),
    [
        ([9.0] * 5, "effort has 5 entries; needed is one for each of left/waist"),
        ([9.0] * 5 + [0.0], "effort must be a number above 0 and at most 500 (got 0.0)."),
        ([9.0] * 5 + [np.nan], "effort must be a number above 0 and at most 500 (got nan)."),
        ([9.0] * 5 + [501.0], "effort must be a number above 0 and at most 500 (got 501.0)."),
    ],
)
def test_invalid_limits_of_effort_are_refused(effort: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        SafetyLimits.of(ALOHA, cartesian_speed=None, effort=effort)


def test_lasting_effort_makes_the_arms_hold_and_then_is_a_fault() -> None:
    run, strain = Run(), np.eye(14)[1] * 1000.0
    modes = [
        run.step(ALOHA.home, effort=strain) is not None and run.filter.mode for _ in range(200)
    ]
    assert modes[20] is Mode.RUN
    assert modes[60] is Mode.HOLD
    assert modes[-1] is Mode.FAULT


class Walled(Run):
    """Arms whose left waist is blocked by a wall, and whose left gripper holds an object."""

    def __init__(self) -> None:
        super().__init__(LIMITS)
        self.measured, self.modes = ALOHA.home, list[Mode]()

    def push(self, target: Vector, cycles: int = 1) -> Mode:
        """Runs a number of periods and returns the mode after them."""
        for _ in range(cycles):
            self.measured = self.path[-1].copy()
            self.measured[WAIST] = min(self.measured[WAIST], WALL)
            self.measured[GRIPPER] = max(self.measured[GRIPPER], 0.3)
            effort = STIFFNESS * (self.path[-1] - self.measured)
            self.step(target, position=self.measured, effort=effort)
            self.modes.append(self.filter.mode)
        return self.modes[-1]

    def until(self, mode: Mode, target: Vector, cycles: int = 100) -> None:
        """Runs until the mode is that."""
        for _ in range(cycles):
            if self.push(target) is mode:
                return
        raise AssertionError(
            f"Not within {cycles} cycles: {self.filter.mode!r} {self.filter.reasons!r}"
        )


BEYOND = moved(left__waist=1.0, right__waist=0.2, left__gripper=-1.0)


def test_a_holding_arm_retreats_from_an_obstacle_and_keeps_its_load() -> None:
    run = Walled()
    run.until(Mode.HOLD, BEYOND)
    sent, met = run.path[-1], run.measured
    assert sent[WAIST] > met[WAIST] + 0.5
    run.push(BEYOND, 40)
    assert set(run.modes[-41:]) == {Mode.HOLD}
    assert run.filter.reasons == Reason.EFFORT
    assert np.abs(run.path[-1][:GRIPPER] - met[:GRIPPER]).max() < 1e-9
    assert run.path[-1][GRIPPER] == sent[GRIPPER] < met[GRIPPER]
    assert np.array_equal(run.path[-1][7:], sent[7:])
    assert run.speed() < 1e-9
    path = np.array(run.path)
    assert (np.abs(np.diff(path, axis=0)) <= LIMITS.velocity * 0.01 + 1e-9).all()
    assert (np.abs(np.diff(path, n=2, axis=0)) <= LIMITS.acceleration * 0.01**2 + 1e-9).all()


def test_an_arm_that_works_against_its_load_sinks_once_and_no_further() -> None:
    """Gravity keeps the arm at the same distance below every goal."""
    run, below = Run(LIMITS), 0.4 * np.eye(14)[SHOULDER]
    for _ in range(200):
        run.step(ALOHA.home, position=run.path[-1] - below, effort=STIFFNESS * 2 * below)
    assert run.filter.fault_reasons == Reason.EFFORT
    assert run.path[-1] == pytest.approx(ALOHA.home - below)


def test_a_hold_ends_without_overload_and_repeated_pushing_is_a_fault() -> None:
    run = Walled()
    run.until(Mode.HOLD, BEYOND)
    run.until(Mode.RUN, BEYOND)
    run.until(Mode.HOLD, BEYOND)
    run.until(Mode.FAULT, BEYOND, 500)
    assert run.filter.fault_reasons == Reason.EFFORT
    run.push(ALOHA.home, 200)
    assert run.filter.mode is Mode.FAULT
    assert run.speed() == 0.0


def test_occasional_contacts_do_not_add_up() -> None:
    run = Walled()
    for _ in range(4):
        run.until(Mode.HOLD, BEYOND)
        run.until(Mode.RUN, ALOHA.home)
        run.push(ALOHA.home, 160)
    assert Mode.FAULT not in run.modes
    assert run.modes.count(Mode.HOLD) * 0.01 > 4 * LIMITS.hold_after_effort_s


def test_a_retreating_arm_stays_over_the_table_and_inside_its_joint_limits() -> None:
    strained = {"effort": 20.0 * np.eye(14)[SHOULDER]}
    for pressed in (
        moved(left__shoulder=1.3, left__elbow=-0.2, left__wrist_angle=1.0),
        moved(left__wrist_angle=9.0),
    ):
        run, clearance = Run(LIMITS), Clearance(ALOHA)
        for _ in range(90):
            run.step(ALOHA.home, position=pressed, **strained)
        assert run.filter.mode is Mode.HOLD
        assert np.abs(run.path[-1] - ALOHA.home).max() > 0.1
        assert min(clearance.measure(q).heights.min() for q in run.path) >= -1e-9
        assert (np.array(run.path) <= LIMITS.upper + 1e-9).all()


def test_an_arm_whose_controller_accepts_no_commands_does_not_retreat_later() -> None:
    run, elsewhere = Walled(), moved(left__waist=-0.7)
    run.until(Mode.HOLD, BEYOND)
    run.push(BEYOND, 2)
    for cycle in range(20):
        interlock = np.array([Interlock.ENTERED if cycle < 3 else 0, 0], np.uint8)
        run.step(BEYOND, position=elsewhere, interlock=interlock, commanded=elsewhere)
        assert run.filter.mode is Mode.HOLD
        assert np.array_equal(run.path[-1][:7], elsewhere[:7])


@pytest.mark.parametrize(
    ("forbids", "reason"),
    [
        (Freshness(permission_age_s=9.0), Reason.RELEASED),
        (Freshness(stop_line_age_s=9.0), Reason.EXTERNAL_STOP),
        (Freshness(supervisor_age_s=9.0), Reason.SUPERVISOR),
    ],
    ids=lambda value: value.name if isinstance(value, Reason) else "",
)
def test_an_arm_retreats_only_while_motion_is_permitted(forbids: Freshness, reason: Reason) -> None:
    """A person pushes a holding arm, or leans against it."""
    pushed = {"position": moved(left__shoulder=0.15), "effort": 20.0 * np.eye(14)[SHOULDER]}
    run = Run(LIMITS)
    for _ in range(200):
        run.step(None, freshness=forbids, **pushed)
        assert np.array_equal(run.path[-1], ALOHA.home)
    assert run.filter.reasons & reason
    assert run.filter.reasons & Reason.EFFORT


def test_a_release_of_hold_to_run_stops_a_retreat_until_it_is_held_again() -> None:
    run = Walled()
    run.until(Mode.HOLD, BEYOND)
    run.push(BEYOND, 5)
    pushed = {"position": run.measured, "effort": 20.0 * np.eye(14)[WAIST]}
    begun = run.speed()
    assert begun > 1.0
    for _ in range(20):
        run.step(BEYOND, freshness=Freshness(permission_age_s=9.0), **pushed)
    assert run.speed() == 0.0
    stands = run.path[-1]
    assert stands[WAIST] > run.measured[WAIST] + 0.1
    for _ in range(40):
        run.step(BEYOND, **pushed)
    assert run.path[-1][WAIST] == pytest.approx(run.measured[WAIST])


def test_after_an_external_stop_the_arm_does_not_retreat_before_a_reset() -> None:
    pushed = {"position": moved(left__shoulder=0.15), "effort": 20.0 * np.eye(14)[SHOULDER]}
    run = Run(LIMITS)
    run.step(ALOHA.home, freshness=Freshness(stop_line_age_s=9.0))
    for _ in range(200):
        run.step(ALOHA.home, **pushed)
    assert np.array_equal(run.path[-1], ALOHA.home)


@pytest.mark.slow
def test_on_the_wire_an_arm_retreats_from_an_obstacle_and_a_second_contact_is_a_fault(
    make_rig: "Callable[..., Rig]",
) -> None:
    rig = make_rig(LIMITS)

    def want() -> None:
        due = rig.now + 0.02 * np.arange(50, dtype=np.float64)
        rig.send(ActionChunk(due, np.tile(moved(left__waist=0.8), (50, 1)).astype(np.float32)))

    want()
    rig.cycle(10)
    rig.emulator.fault("left", "block", 1)
    rig.until(lambda state: state.mode is Mode.HOLD, 60)
    sent, met = rig.state.command, rig.state.arms.position
    assert rig.state.reasons == Reason.EFFORT
    assert sent[WAIST] > met[WAIST] + 0.5
    assert rig.cycle(40).mode is Mode.HOLD
    assert np.abs(rig.goals()[0][-1] - met[:7])[:GRIPPER].max() <= table.TICK_RAD / 2 + 1e-9
    modes = []
    while Mode.FAULT not in modes:
        assert len(modes) < 500
        if len(modes) % 20 == 0:
            want()
        modes.append(rig.cycle().mode)
    assert {Mode.RUN, Mode.HOLD} <= set(modes)
    assert rig.state.fault_reasons == Reason.EFFORT
    rig.cycle(50)
    rig.emulator.fault("left", "free", 1)
    rig.cycle(40)
    assert abs(rig.state.arms.position[WAIST] - met[WAIST]) <= 2 * table.TICK_RAD
    rig.assert_within_limits()
