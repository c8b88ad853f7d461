"""Frozen processes by the clock: after each gap the arms start again from rest.

All commands are checked at the receiver, gaps included.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.protocol_in_the_loop.wire_limits import WireLine, wire_lines
from stringline.real_robot.robots.backends import RobotBackend, ServoBackend, robot_backend
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Mode, Reason

PERIOD = 0.01
# Emulated controllers that end a session only after a long silence, as for a busy machine.
PATIENT = {"aloha": {}, "fri": {"most_missed": 1000, "good": 0.01}, "lcm": {}}


def backend_of(robot: str) -> RobotBackend:
    """Returns arms whose far end does not end the motion during the gap."""
    if robot == "aloha":
        return ServoBackend({"bus_watchdog_s": 0.0, "answer_timeout_s": 0.2})
    return robot_backend(robot, "one", {})


@dataclass
class Arms:
    """Moving arms, their device process and what arrives at their far end."""

    device: DeviceProcess
    emulator: Emulator
    lines: dict[str, WireLine]

    def freeze(self, gap_s: float, *, all_processes: bool) -> list[DeviceState]:
        """Stops the device process, or all processes, for a time; returns the states after it."""
        pids = [self.device.pid, self.emulator.pid if all_processes else None]
        stopped = [pid for pid in pids if pid is not None]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(0.02)
        before = self.device.latest().tick
        time.sleep(gap_s - 0.02)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        wait(lambda: self.device.latest().tick >= before + 60)
        return [state for state in self.device.recent() if state.tick > before]

    def violations(self) -> int:
        """Returns the number of commands outside the limits so far."""
        for line in self.lines.values():
            line.take(1 << 40)
        return sum(line.check.violations for line in self.lines.values())


def wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def swing(device: DeviceProcess, home: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    """Sends a plan of eight seconds in which the first joint moves at the largest speed."""
    seconds = 0.04 * np.arange(200.0)
    way = np.tile(home, (len(seconds), 1)).astype(np.float32)
    way[:, 0] += 0.8 * np.sin(2.0 * seconds).astype(np.float32)
    device.send(ActionChunk(time.monotonic() + seconds, way))


@pytest.fixture
def arms(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Arms]:
    robot: str = request.param
    backend = backend_of(robot)
    limits: SafetyLimits = backend.limits(soft_start_s=0.0, acceleration=10.0, speed_share=0.25)
    with ExitStack() as stack:
        emulator = stack.enter_context(backend.bare_emulator(capture=tmp_path, **PATIENT[robot]))
        driver = backend.driver(
            emulator.ports, period_s=PERIOD, lock_step=False, read_only=False, still_grippers=True
        )
        device = stack.enter_context(DeviceProcess(driver, backend.embodiment, limits))
        device.connect()
        device.arm()
        device.begin()
        start = device.latest().command[0]
        swing(device, backend.embodiment.home)
        wait(lambda: abs(device.latest().command[0] - start) > 0.1)
        yield Arms(device, emulator, wire_lines(backend, tmp_path, limits, PERIOD))


ROBOTS = ("aloha", "fri", "lcm")


@pytest.mark.parametrize(
    ("arms", "gap_s", "all_processes"),
    [
        *((robot, 0.1, False) for robot in ROBOTS),
        ("lcm", 0.03, False),
        ("lcm", 3.0, False),
        *(
            pytest.param(robot, gap_s, whole, marks=pytest.mark.stress)
            for robot in ROBOTS
            for gap_s in (0.03, 0.1, 0.3, 3.0)
            for whole in (False, True)
        ),
    ],
    indirect=["arms"],
)
def test_a_gap_is_shown_and_the_arms_start_again_from_rest(
    arms: Arms, gap_s: float, all_processes: bool
) -> None:
    after = arms.freeze(gap_s, all_processes=all_processes)
    first = after[0]
    assert first.mode is not Mode.RUN
    assert first.reasons & Reason.GAP
    if gap_s > 1.0:
        assert first.mode is Mode.FAULT
        assert first.fault_reasons & Reason.GAP
    assert arms.violations() == 0
    assert all(line.check.goals > 20 for line in arms.lines.values())
