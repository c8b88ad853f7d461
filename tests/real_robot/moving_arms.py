"""Arms in motion by the clock, whose commands are checked at the receiver, gaps included."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline import ActionChunk, SafetyLimits
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.emulated_evaluation.real_time_runner import WireLine, wire_lines
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.robots.backends import RobotBackend, ServoBackend, robot_backend
from stringline.real_robot.safety.reasons import Mode, Reason

Vector = NDArray[np.float64]

PERIOD = 0.01
# Commands that were sent before a gap arrive at a far end before it stops as well; otherwise their
# times of arrival would be those after the gap.
ON_THE_WAY_S = 0.01
# Emulated controllers that end a session only after a long silence, as for a busy machine.
PATIENT: dict[str, dict[str, Any]] = {
    "aloha": {},
    "fri": {"most_missed": 1000, "good": 0.01, "t1_unlimited": True},
    "lcm": {"t1_unlimited": True},
}


def backend_of(robot: str) -> RobotBackend:
    """Returns arms whose far end does not end the motion during the gap."""
    if robot == "aloha":
        return ServoBackend({"bus_watchdog_s": 0.0, "answer_timeout_s": 0.2})
    return robot_backend(robot, "one", {})


def brisk_limits(backend: RobotBackend) -> SafetyLimits:
    """Returns limits with which arms reach a speed soon that is far from that of rest."""
    limits: SafetyLimits = backend.limits(
        cartesian_speed=None, soft_start_s=0.0, acceleration=10.0, speed_share=0.25
    )
    return limits


def swing(home: Vector) -> ActionChunk:
    """Returns a plan of eight seconds in which the first joint moves at the largest speed."""
    seconds = 0.04 * np.arange(200.0)
    due = time.monotonic() + seconds
    way = np.tile(home, (len(seconds), 1)).astype(np.float32)
    way[:, 0] += 0.8 * np.sin(2.0 * due).astype(np.float32)
    return ActionChunk(due, way)


class NotingDevice(DeviceProcess):
    """Notes the numbers of commands after which episodes have begun."""

    starts: tuple[list[int], ...] = ()

    def begin(self) -> None:
        """Begins an episode."""
        super().begin()
        states = [state for state in self.recent() if state.session == self._session]
        self.starts = (*self.starts, states[0].writes.tolist())


@dataclass
class Arms:
    """Moving arms, their device process and what arrives at their far end."""

    device: NotingDevice
    emulator: Emulator
    lines: dict[str, WireLine]
    home: Vector

    def swing(self) -> None:
        """Sends a plan of `swing`."""
        self.device.send(swing(self.home))

    def start_moving(self) -> None:
        """Sends a plan and waits until the arms follow it.

        A machine that is too busy to send for 0.3 s lets the arms fault, rightly, before a test
        begins; an operator would reset the fault. Three such faults are one of the arms.
        """
        for attempt in range(3):
            if self._follows():
                return
            state = self.device.latest()
            assert not state.fault_reasons & ~BUSY, (state.fault_reasons, state.counts)
            assert attempt < 2, (state.fault_reasons, state.counts)
            self.device.acknowledged = state.fault_reasons
            self.device.begin()

    def _follows(self) -> bool:
        """Sends a plan; returns whether the arms begin to follow it, and False after a fault."""
        start = self.device.latest().command[0]

        def decided() -> bool:
            state = self.device.latest()
            return state.mode is Mode.FAULT or abs(state.command[0] - start) > 0.1

        self.swing()
        wait(decided, self.device)
        return self.device.latest().mode is not Mode.FAULT

    def freeze(self, gap_s: float, *, far_end: bool) -> list[DeviceState]:
        """Stops the device process for a time, alone or with its far end; returns later states."""
        pids = [self.device.pid, self.emulator.pid if far_end else None]
        stopped = [pid for pid in pids if pid is not None]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(ON_THE_WAY_S)
        before = self.device.latest().tick
        time.sleep(gap_s - len(stopped) * ON_THE_WAY_S)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        wait(lambda: self.device.latest().tick >= before + 60)
        return [state for state in self.device.recent() if state.tick > before]

    def violations(self) -> int:
        """Returns the number of commands outside the limits so far."""
        for starts in self.device.starts:
            for line, start in zip(self.lines.values(), starts, strict=True):
                line.begins_at(start)
        self.device.starts = ()
        for line in self.lines.values():
            line.take(1 << 40)
        return sum(line.check.violations for line in self.lines.values())


BUSY = Reason.UNSENT | Reason.GAP  # Faults of a machine on which the device process starves.


def wait(done: Callable[[], bool], device: DeviceProcess | None = None) -> None:
    """Waits for 20 s at most; a failure shows the state of a device process."""
    deadline = time.monotonic() + 20.0
    while not done():
        assert time.monotonic() < deadline, device and (
            device.latest().mode,
            device.latest().fault_reasons,
            device.latest().counts,
        )
        time.sleep(0.001)


@contextmanager
def moving_arms(robot: str, folder: Path, log: LogPlan | None = None) -> Iterator[Arms]:
    """Starts arms and their device process, and waits until the arms move."""
    backend = backend_of(robot)
    limits = brisk_limits(backend)
    with ExitStack() as stack:
        emulator = stack.enter_context(backend.bare_emulator(capture=folder, **PATIENT[robot]))
        driver = backend.driver(
            emulator.ports, period_s=PERIOD, lock_step=False, read_only=False, still_grippers=True
        )
        device = stack.enter_context(NotingDevice(driver, backend.embodiment, limits, log=log))
        device.connect()
        device.arm()
        device.begin()
        arms = Arms(
            device, emulator, wire_lines(backend, folder, limits, PERIOD), backend.embodiment.home
        )
        arms.start_moving()
        yield arms


ROBOTS = ("aloha", "fri", "lcm")
