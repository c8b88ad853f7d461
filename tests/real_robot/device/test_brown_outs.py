"""Power that fails for a moment, over pseudo-terminals and through the whole device process.

Emulator, device process and supervisor are the processes of a deployment. Joints at rest stay
within the tick in which positions are measured, the failure is named, and the run goes on after
a reset.
"""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.device.test_device_process import chunk, process, wait_for

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.deployment.leader_teleoperation import Teleoperation
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.driver_interface.driver import RobotNotReadyError
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaLeaders
from stringline.real_robot.emulators.plants.plant import save_hand
from stringline.real_robot.emulators.program.emulator_client import Emulator, LeaderEmulator
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.lock_step import fault_of
from stringline.real_robot.robots.robot_session import arm_device
from stringline.real_robot.safety.reasons import Mode, Reason

Vector = NDArray[np.float64]

TICK_RAD = 2 * np.pi / 4096
HINGES = np.concatenate([ALOHA.revolute_joints[arm] for arm in ALOHA.arms])


@pytest.fixture
def device(emulator: Emulator) -> Iterator[DeviceProcess]:
    with process(emulator) as running:
        running.connect()
        yield running


def towards(index: int, by: float) -> Vector:
    q = ALOHA.home.copy()
    q[index] += by
    return q


def recovered(device: DeviceProcess) -> None:
    """Resets the fault as an operator does, and asserts that the arms follow again."""
    wait_for(device, lambda state: state.mode is Mode.FAULT)
    assert fault_of(device)
    device.begin()
    state = device.latest()
    assert state.mode is not Mode.FAULT, fault_of(device)
    assert not state.arms.servo_error.any()
    device.send(chunk(towards(7, 0.2), time.monotonic()))
    wait_for(device, lambda state: abs(state.arms.position[7] - ALOHA.home[7]) > 0.1)


@pytest.mark.parametrize("servo", [1, 0])
def test_between_connecting_and_arming(
    emulator: Emulator, device: DeviceProcess, servo: int
) -> None:
    emulator.fault("left", "restart", servo)
    with pytest.raises(RobotNotReadyError, match=r"left/waist \(id 1\) .* has restarted") as error:
        device.arm()
    assert len(error.value.problems) == (1 if servo else 9)
    device.arm()
    assert np.abs(device.latest().arms.position - ALOHA.home).max() <= TICK_RAD
    time.sleep(0.3)
    assert np.abs(device.latest().arms.position - ALOHA.home)[HINGES].max() <= TICK_RAD


@pytest.mark.parametrize("wanted", [True, False])
def test_the_operator_may_try_the_bring_up_again(emulator: Emulator, *, wanted: bool) -> None:
    asked: list[list[str]] = []

    def again(problems: list[str]) -> bool:
        asked.append(problems)
        return wanted

    def cut() -> None:
        emulator.fault("left", "restart", 4)

    with process(emulator) as device:
        if wanted:
            arm_device(device, before_torque=cut, again=again)
            assert not device.latest().arms.servo_error.any()
        else:
            with pytest.raises(RobotNotReadyError, match="has restarted"):
                arm_device(device, before_torque=cut, again=again)
    assert len(asked) == 1
    assert "left/elbow (id 4)" in asked[0][0]


@pytest.mark.slow
@pytest.mark.parametrize("servo", [1, 3, 9, 0])
def test_in_a_run(emulator: Emulator, device: DeviceProcess, servo: int) -> None:
    """The right arm moves; the left one, which stands, loses its power."""
    device.arm()
    device.begin()
    device.send(chunk(towards(7, 0.5), time.monotonic()))
    wait_for(device, lambda state: abs(state.arms.velocity[7]) > 0.05)
    emulator.fault("left", "restart", servo)
    wait_for(device, lambda state: state.mode is Mode.FAULT)
    time.sleep(0.1)
    seen = device.recent()
    assert max(np.ptp([state.arms.position[HINGES[:6]] for state in seen], axis=0)) <= TICK_RAD
    assert max(np.abs(np.diff([state.arms.position[7] for state in seen]))) < 0.02
    (fault,) = fault_of(device)
    name = {1: "left/waist (id 1)", 3: "left/shoulder shadow (id 3)", 9: "left/gripper (id 9)"}
    assert f"{name.get(servo, 'left/waist (id 1)')}: it has restarted" in fault
    recovered(device)


@pytest.mark.slow
def test_a_servo_that_refuses_stays_a_fault_and_is_brought_up_by_a_later_reset(
    emulator: Emulator, device: DeviceProcess, caplog: pytest.LogCaptureFixture
) -> None:
    device.arm()
    device.begin()
    emulator.fault("left", "restart", 4)
    wait_for(device, lambda state: state.mode is Mode.FAULT)
    emulator.fault("left", "mute", 6)
    assert fault_of(device)
    with caplog.at_level(logging.ERROR):
        device.begin()
    assert "left/forearm_roll (id 6)" in caplog.text
    assert device.latest().mode is Mode.FAULT
    emulator.fault("left", "unmute", 6)
    recovered(device)


@pytest.mark.slow
def test_during_the_approach(emulator: Emulator, device: DeviceProcess) -> None:
    device.arm()
    states: list[DeviceState] = []
    faults: list[str] = []

    def watch(state: DeviceState) -> None:
        states.append(state)
        if len(states) == 20:
            emulator.fault("right", "restart", 2)

    def reset(fault: list[str]) -> bool:
        faults.extend(fault)
        return True

    approach = Approach(device, ALOHA, watch=watch, reset=reset)
    assert approach.to(towards(0, 0.4), 1.0, "a pose away")
    assert len(faults) == 1
    assert "right/shoulder (id 2): it has restarted" in faults[0]
    assert abs(device.latest().arms.position[0] - ALOHA.home[0] - 0.4) < 0.1
    still = [state.arms.position[HINGES[6:]] for state in states]
    assert np.ptp(still, axis=0).max() <= TICK_RAD
    again = Approach(device, ALOHA, watch=lambda _: emulator.fault("right", "restart", 4))
    with pytest.raises(RuntimeError, match=r"On the way to home: .*right/elbow \(id 4\): it has"):
        again.to(ALOHA.home, 1.0, "home")


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[LeaderEmulator]:
    save_hand(tmp_path / "way.npz", np.array([0.0, 0.1]), np.stack([ALOHA.home, ALOHA.home]))
    with LeaderEmulator(hand=tmp_path / "way.npz") as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("servo", [9, 2, 0])
def test_of_a_leader(
    hand: LeaderEmulator,
    device: DeviceProcess,
    servo: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its last pose leads nobody while it is unknown; then it leads again by itself."""
    device.arm()
    leaders = AlohaLeaders(hand.ports, answer_timeout_s=0.2)
    leaders.connect()
    restarted: list[float] = []
    positions: list[Vector] = []
    modes: list[tuple[float, Mode]] = []

    def report(state: DeviceState, seconds: float) -> None:
        positions.append(state.arms.position)
        modes.append((seconds, state.mode))
        if seconds > 0.5 and not restarted:
            hand.fault("right", "restart", servo)
            restarted.append(seconds)

    with caplog.at_level(logging.WARNING):
        led = Teleoperation(leaders, device, ALOHA).run(
            3.0, stop=lambda: False, record=lambda *_: None, report=report
        )
    leaders.close()
    assert not led.fault
    assert led.pauses >= 1
    assert "of the leaders has restarted" in caplog.text
    assert np.ptp(positions, axis=0).max() <= TICK_RAD
    assert modes[-1][1] is Mode.RUN
    assert led.counts[Reason.SERVO_ERROR] == 0


@pytest.mark.slow
def test_a_leader_gripper_elsewhere_than_its_follower_does_not_lead(
    hand: LeaderEmulator, device: DeviceProcess
) -> None:
    device.arm()
    wide = ALOHA.home.copy()
    wide[ALOHA.grippers["right"]] += 0.6 if wide[ALOHA.grippers["right"]] < 0.4 else -0.6
    Approach(device, ALOHA).to(wide, 1.0, "another opening")
    leaders = AlohaLeaders(hand.ports, answer_timeout_s=0.2)
    leaders.connect()
    said: list[str] = []
    teleoperation = Teleoperation(leaders, device, ALOHA)
    assert not teleoperation.wait(0.3, stop=lambda: False, report=said.append)
    assert "right/gripper is 0.6" in said[0]
    leaders.close()
