"""Arms whose owner is a process of its own, so that it can be frozen, ended or killed."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
from tests.real_robot.moving_arms import (
    ON_THE_WAY_S,
    PATIENT,
    PERIOD,
    backend_of,
    brisk_limits,
    swing,
    wait,
)

from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.emulated_evaluation.real_time_runner import WireLine, wire_lines
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.incidents.incident_log import Incident
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.ipc.child_process import end_as_by_ctrl_c
from stringline.real_robot.safety.reasons import Mode

LONGEST_S = 60.0
FAST_RAD = 0.025  # In a tenth of a second.


def own(robot: str, ports: Any, folder: Path, reports: Connection) -> None:
    """Owns a device process: sends plans of eight seconds twice a second, and nothing else."""
    os.setpgid(0, 0)  # In a new session its group would be orphaned, and Ctrl-Z would not stop it.
    end_as_by_ctrl_c()
    backend = backend_of(robot)
    driver = backend.driver(
        ports, period_s=PERIOD, lock_step=False, read_only=False, still_grippers=True
    )
    log = LogPlan(folder, everything=True)
    with DeviceProcess(driver, backend.embodiment, brisk_limits(backend), log=log) as device:
        device.connect()
        device.arm()
        device.begin()
        start = time.monotonic()
        while time.monotonic() < start + LONGEST_S:
            device.send(swing(backend.embodiment.home))
            reports.send(device.pid)
            time.sleep(0.5)


@dataclass
class OwnedArms:
    """Moving arms with their three processes and what arrives at their far end."""

    owner: SpawnProcess
    device_pid: int
    emulator: Emulator
    lines: dict[str, WireLine]
    logs: Path

    def freeze(self, who: str, gap_s: float) -> tuple[float, float]:
        """Stops processes for a time; returns when all of them stood still.

        `who` is the owner, all processes, or "Ctrl-Z": the group of the owner, by a terminal.

        Both times lie inside the standstill, since the machine may be busy between a signal and
        the reading of the clock.
        """
        pids = [self.owner.pid]
        if who == "all":
            pids += [self.device_pid, self.emulator.pid]
        stopped = [pid for pid in pids if pid is not None]
        # The speed of `swing` is high, and a busy machine has not just stopped the arms.
        wait(lambda: abs(np.cos(2.0 * time.monotonic() - 0.4)) > 0.9 and self._way() > FAST_RAD)
        send, number = (os.killpg, signal.SIGTSTP) if who == "Ctrl-Z" else (os.kill, signal.SIGSTOP)
        for pid in stopped:
            send(pid, number)
            if pid == self.device_pid:
                time.sleep(ON_THE_WAY_S)
        begin = time.monotonic()
        time.sleep(gap_s)
        end = time.monotonic()
        for pid in reversed(stopped):
            send(pid, signal.SIGCONT)
        time.sleep(1.2)
        return begin, end

    def _way(self) -> float:
        """Returns the way of the first joint's goals in the next tenth of a second, rad."""
        line = next(iter(self.lines.values()))
        places = []
        for pause_s in (0.1, 0.0):
            line.take(1 << 40)
            assert line.check.last is not None
            places.append(line.check.last[0])
            time.sleep(pause_s)
        return abs(float(places[1] - places[0]))

    def end(self) -> list[tuple[float, DeviceState]]:
        """Kills the owner; returns the time and the state of each cycle of its device process."""
        self.owner.kill()
        self.owner.join(20.0)
        wait(lambda: not _alive(self.device_pid))
        (log,) = self.logs.glob("session-*.log")
        cycles = Incident.open(log).cycles
        return [(1e-9 * entry.ns, DeviceState.of(record["state"])) for entry, record in cycles]

    def check(self) -> None:
        """Checks the commands that arrived, gaps included."""
        for line in self.lines.values():
            line.take(1 << 40)
            assert line.check.goals > 20
            assert line.check.violations == 0


@contextmanager
def owned_arms(robot: str, folder: Path) -> Iterator[OwnedArms]:
    """Starts arms and their owner, which moves them."""
    backend = backend_of(robot)
    wire, logs = folder / "wire", folder / "log"
    wire.mkdir()
    reports, far_end = multiprocessing.Pipe(duplex=False)
    spawn = multiprocessing.get_context("spawn")
    with backend.bare_emulator(capture=wire, **PATIENT[robot]) as emulator:
        owner = spawn.Process(target=own, args=(robot, emulator.ports, logs, far_end))
        owner.start()
        far_end.close()
        try:
            assert reports.poll(LONGEST_S)
            device_pid = reports.recv()
            lines = wire_lines(backend, wire, brisk_limits(backend), PERIOD)
            arms = OwnedArms(owner, device_pid, emulator, lines, logs)
            time.sleep(1.5)
            yield arms
        finally:
            owner.kill()
            owner.join(20.0)


def first(states: list[tuple[float, DeviceState]], since: float, mode: Mode) -> float:
    """Returns the time of the first cycle after a time with a mode; infinite without one."""
    return next((now for now, state in states if now > since and state.mode is mode), np.inf)


def moved_by(states: list[tuple[float, DeviceState]], end: float) -> float:
    """Returns the way of the first joint in the tenth of a second before a time, rad."""
    way = [state.command[0] for now, state in states if end - 0.1 < now < end]
    return float(np.ptp(way))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
