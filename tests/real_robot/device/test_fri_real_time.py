"""Two emulated arms in real time, each with its own clock, and their common device process."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stringline import IIWA14_BIMANUAL, ActionChunk, SafetyLimits
from stringline.datasets.contract.contract import Array, Observation
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulators.program.arm_check import FriLine, axis_check
from stringline.real_robot.emulators.program.emulator_client import FriEmulator
from stringline.real_robot.execution.lock_step import fault_of
from stringline.real_robot.execution.real_time import RealTimeRobot
from stringline.real_robot.safety.reasons import Mode


class NoCameras:
    def frames(self) -> dict[str, Array]:
        return {}


class Unasked:
    def plan(self, observation: Observation) -> ActionChunk:
        raise AssertionError("Nothing is planned in a fault.")


def a_brief_stop_that_nobody_has_seen_is_told_with_its_cause(
    emulator: FriEmulator, device: DeviceProcess
) -> None:
    """Before an episode, as while the arms brake between two."""

    def cause(event: str, there: Callable[[DeviceState], object]) -> None:
        emulator.fault("left", event)
        end = time.monotonic() + 8.0
        while not there(device.recent()[-1]):
            assert time.monotonic() < end
            time.sleep(0.01)

    cause("t2", lambda state: state.mode is Mode.FAULT)
    cause("t1", lambda state: not state.arms.interlock.any())
    robot = RealTimeRobot(device, NoCameras(), IIWA14_BIMANUAL.contract([], 50.0), IIWA14_BIMANUAL)
    episode = robot.run(
        Unasked(), 1.0, execute_steps=10, done=lambda: False, report=lambda *_: None
    )
    assert "(left: its operation mode was changed, or is not allowed)" in " ".join(episode.fault)
    device.begin()
    assert not any("operation mode" in sentence for sentence in fault_of(device))


def assert_goals_within_limits(folder: Path, limits: SafetyLimits) -> None:
    # A busy machine may keep the second arm from the path of its commands, and that is then sudden.
    for arm, most in (("left", 0), ("right", 3)):
        check = axis_check(IIWA14_BIMANUAL, arm, limits, 0.01)
        FriLine(folder / f"{arm}.bin", version_of("1.15"), check).take(0)
        assert check.goals > 10
        assert check.violations <= most
        assert check.velocity <= 1 + 1e-9


@pytest.mark.slow
def test_two_arms_are_answered_in_the_periods_of_their_controllers_and_moved(
    tmp_path: Path,
) -> None:
    limits = SafetyLimits.of(IIWA14_BIMANUAL, cartesian_speed=None, soft_start_s=0.0)
    # The assertions must hold on a busy machine too.
    with FriEmulator(
        arms="two", most_missed=60, good=0.1, capture=tmp_path, t1_unlimited=True
    ) as emulator:
        with DeviceProcess(FriDriver(emulator.ports), IIWA14_BIMANUAL, limits) as device:
            device.connect()
            device.arm()
            device.begin()
            goal = IIWA14_BIMANUAL.home.copy()
            goal[[0, 8]] += 0.1
            end, state = time.monotonic() + 8.0, device.latest()
            while np.abs(state.arms.position - goal).max() > 0.01 and time.monotonic() < end:
                due = time.monotonic() + 0.02 * np.arange(50, dtype=np.float64)
                device.send(ActionChunk(due, np.tile(goal, (50, 1)).astype(np.float32)))
                time.sleep(0.05)
                state = device.latest()
            assert np.abs(state.arms.position - goal).max() <= 0.01
            assert state.mode is not Mode.FAULT
            reports = emulator.report()
            a_brief_stop_that_nobody_has_seen_is_told_with_its_cause(emulator, device)
        for report in reports.values():
            assert report.stops == ()
            assert report.state == "COMMANDING_ACTIVE"
            assert report.in_time > 0.1 * report.periods
        assert_goals_within_limits(tmp_path, limits)
        end = time.monotonic() + 8.0
        while any(report.state != "MONITORING_WAIT" for report in emulator.report().values()):
            assert time.monotonic() < end  # The end of a client is noticed.
            time.sleep(0.05)
        emulator.fault("left", "t2")
        arms = FriDriver(emulator.ports, arm_timeout_s=0.5, read_only=True)
        with DeviceProcess(arms, IIWA14_BIMANUAL, limits) as reader:
            reader.connect()
            assert (
                "left would be refused commands: its operation mode was changed, or is not allowed."
                in reader.arm()
            )
            assert reader.latest().mode is not Mode.FAULT
