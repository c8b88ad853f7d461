"""Faults of a real robot, row by row: the cause is put on the line, the reaction is read from it.

Other rows: damaged bytes in `test_damaged_lines.py`; processes that stand still in
`test_frozen_owners.py` and their death in `test_device_process.py`; servos that are set
otherwise than they should be, and shadows that diverge from their masters, in
`test_dynamixel_driver.py`; a disk that is full in `test_incident_log.py`.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.device_rig import PERIOD, plan

from stringline import ALOHA, ActionChunk, SafetyLimits
from stringline.real_robot.drivers.dynamixel.protocol import Instruction
from stringline.real_robot.safety.reasons import Mode, Reason

if TYPE_CHECKING:
    from tests.real_robot.conftest import Rig

    MakeRig = Callable[..., Rig]

Vector = NDArray[np.float64]


def moved(joint: int, by: float) -> Vector:
    q = ALOHA.home.copy()
    q[joint] += by
    return q


def assert_rest(rig: "Rig", cycles: int = 15) -> None:
    """Asserts that both arms come to rest within that many cycles, by goals inside all limits."""
    for _ in range(cycles):
        rig.cycle()
    still = rig.state.command
    assert np.array_equal(rig.cycle().command, still)
    rig.assert_within_limits()


def test_a_pulled_cable_is_a_fault_within_three_periods_until_a_reset(
    rig: "Rig",
) -> None:
    rig.moving(7)
    rig.emulator.fault("left", "drop")
    assert rig.until(lambda state: state.mode is Mode.FAULT, 3) <= 3
    assert "the port of an arm is lost (left)." in rig.words()
    assert_rest(rig)
    before = rig.goals()
    rig.want(moved(7, -0.5))
    rig.cycle()
    after = rig.goals()
    assert len(after[0]) == len(before[0])  # The left arm receives no more commands,
    assert np.array_equal(after[1][-1], before[1][-1])  # and the right one the command to stay.
    rig.begin()  # A reset without a cable has no effect.
    rig.want(moved(7, -0.5))
    assert rig.cycle().mode is Mode.FAULT


@pytest.mark.slow
def test_one_silent_servo_makes_both_arms_hold_and_is_named_while_all_others_are_read(
    make_rig: "MakeRig",
) -> None:
    limits = dataclasses.replace(
        SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0), fault_after_misses=8
    )
    rig = make_rig(limits, answer_timeout_s=0.1)
    rig.moving(7, 0.5)
    before = rig.state.arms.position
    rig.emulator.fault("right", "mute", 6)
    assert rig.until(lambda state: state.mode is Mode.HOLD, 3) == 3
    assert "a servo does not answer (right/forearm_roll (id 6))" in rig.words()
    assert np.count_nonzero(rig.state.arms.servo_misses) == 1
    assert rig.state.arms.position[7] != before[7]
    rig.until(lambda state: state.mode is Mode.FAULT, 5)
    rig.emulator.fault("right", "unmute", 6)
    assert_rest(rig)
    assert rig.state.mode is Mode.FAULT


def test_a_servo_that_answers_again_in_time_ends_the_hold(make_rig: "MakeRig") -> None:
    rig = make_rig(answer_timeout_s=0.1)
    rig.moving(7, 0.5)
    rig.emulator.fault("right", "mute", 6)
    rig.until(lambda state: state.mode is Mode.HOLD, 3)
    rig.emulator.fault("right", "unmute", 6)
    rig.until(lambda state: state.mode is Mode.RUN, 1)
    rig.assert_within_limits()


def test_an_overload_is_a_fault_in_the_next_cycle_holds_both_arms_and_reboots_nothing(
    rig: "Rig",
) -> None:
    rig.moving(7, 0.5)
    rig.emulator.fault("left", "overload", 4)
    assert rig.cycle().mode is Mode.FAULT
    assert "left/elbow (id 4): torque is off, overload" in rig.words()
    assert_rest(rig)
    assert Instruction.REBOOT not in rig.instructions()
    rig.begin()
    assert rig.cycle().mode is Mode.FAULT


def test_an_expired_bus_watchdog_is_a_fault_that_only_arming_again_clears(
    make_rig: "MakeRig",
) -> None:
    rig = make_rig(bus_watchdog_s=0.1)
    rig.moving(0, 0.3)
    written = dict(zip(rig.driver.arms, rig.driver.writes.tolist(), strict=True))
    for _ in range(12):  # The device process hangs.
        rig.emulator.advance(written)
        rig.now += PERIOD
    assert rig.cycle().mode is Mode.FAULT
    assert "bus watchdog expired" in rig.words()
    rig.begin()
    assert rig.cycle().mode is Mode.FAULT
    rig.driver.arm()
    rig.begin()
    rig.want(rig.state.arms.position)
    assert rig.cycle().mode is Mode.RUN


def test_a_dead_policy_is_a_hold_within_three_periods_after_its_last_action_and_resuming_is_smooth(
    rig: "Rig",
) -> None:
    rig.want(moved(0, 1.5), count=15)
    last_due = rig.now + 14 * 0.02
    rig.until(lambda state: state.mode is Mode.HOLD, 40)
    assert rig.state.reasons == Reason.STARVED
    assert rig.now - last_due <= 0.2 + 3 * PERIOD
    assert_rest(rig)
    rig.want(moved(0, -1.5))
    rig.until(lambda state: state.mode is Mode.RUN, 1)
    for _ in range(48):
        rig.cycle()
    assert rig.state.command[0] < 0.0
    rig.assert_within_limits()


def test_a_last_action_is_followed_for_a_fifth_of_a_second_even_if_actions_are_seldom(
    rig: "Rig",
) -> None:
    start = rig.now
    rig.send(
        ActionChunk(start + np.array([0.0, 0.5]), np.tile(moved(0, 0.2), (2, 1)).astype(np.float32))
    )
    for _ in range(69):
        assert rig.cycle().mode is Mode.RUN
    assert rig.until(lambda state: state.mode is Mode.HOLD, 5) <= 5
    assert rig.now - start - 0.5 <= 0.2 + 3 * PERIOD


def test_the_arms_stay_until_a_late_first_plan(rig: "Rig") -> None:
    for _ in range(30):
        assert rig.cycle().mode is Mode.HOLD
    assert np.ptp(np.array([path[:, :6] for path in rig.goals()]), axis=1).max() == 0.0
    rig.send(plan(moved(0, 0.5), rig.now - 0.25))
    assert rig.cycle().mode is Mode.RUN
    for _ in range(30):
        rig.cycle()
    rig.assert_within_limits()


def test_a_plan_of_the_episode_before_is_dropped(rig: "Rig") -> None:
    rig.moving(0, 0.3)
    rig.loop.brake()
    for _ in range(40):
        rig.cycle()
    rig.begin()
    rig.send(plan(moved(0, 1.0), rig.now), session=rig.session - 1)
    state = rig.cycle()
    assert state.mode is Mode.HOLD
    assert state.counts[Reason.BAD_CHUNK] == 1
    assert_rest(rig)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_chunk_that_is_not_finite_is_refused_as_a_whole(rig: "Rig", value: float) -> None:
    chunk = plan(moved(0, 0.5), rig.now)
    chunk.action[-1, 5] = value
    rig.send(chunk)
    state = rig.cycle()
    assert state.mode is Mode.HOLD
    assert state.counts[Reason.BAD_CHUNK] == 1
    assert_rest(rig)


@pytest.mark.parametrize(
    "target", [moved(0, 2.9), np.full(14, 3e38), np.full(14, -3e38), ALOHA.upper + 1.0]
)
def test_a_huge_step_is_approached_within_the_limits(rig: "Rig", target: Vector) -> None:
    rig.want(target)
    for _ in range(60):
        rig.cycle()
    assert rig.state.counts[Reason.MOTION] > 0
    rig.assert_within_limits()


def test_plans_from_a_frozen_camera_are_not_followed(rig: "Rig") -> None:
    rig.send(plan(moved(0, 0.5), rig.now), image_age_s=0.2)
    state = rig.cycle()
    assert state.mode is Mode.HOLD
    assert state.counts[Reason.OLD_IMAGES] == 1
    rig.send(plan(moved(0, 0.5), rig.now), image_age_s=0.1)
    assert rig.cycle().mode is Mode.RUN


@pytest.mark.parametrize(("fault_temperature", "mode"), [(36.0, Mode.HOLD), (35.0, Mode.FAULT)])
def test_limits_of_temperature_apply_to_servos_of_35_degrees(
    make_rig: "MakeRig", fault_temperature: float, mode: Mode
) -> None:
    limits = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)
    rig = make_rig(
        dataclasses.replace(limits, hold_temperature=34.0, fault_temperature=fault_temperature)
    )
    rig.want(moved(0, 0.5))
    state = rig.cycle()
    assert state.mode is mode
    assert state.reasons == Reason.HOT
