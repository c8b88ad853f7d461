"""A suspended process: the others notice, and the arms do not jump afterwards."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import stringline
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.emulators.program.captured import servo_check
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.incidents.incident_format import Entry, Kind, scan
from stringline.real_robot.protocol_in_the_loop.wire_limits import ServoLine
from stringline.real_robot.safety.limits import SafetyLimits

Vector = NDArray[np.float64]

PERIOD = 0.01
TICK = table.TICK_RAD

# A program that sends plans of four seconds, twice a second, reports it, and does nothing
# more.
OWNER = """
import sys, time
from pathlib import Path
import numpy as np
sys.path.insert(0, {root!r})
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.ipc.group_signals import end_as_by_ctrl_c
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.safety.limits import SafetyLimits
end_as_by_ctrl_c()
driver = AlohaDriver({ports!r}, bus_watchdog_s=0.0, answer_timeout_s=0.2)
log = LogPlan(Path({folder!r}), everything=True)
limits = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)
with DeviceProcess(driver, ALOHA, limits, log=log) as device:
    device.connect()
    device.arm()
    device.begin()
    start = time.monotonic()
    while time.monotonic() < start + 60:
        due = time.monotonic() + 0.02 * np.arange(200.0)
        way = np.tile(ALOHA.home, (200, 1)).astype(np.float32)
        way[:, 0] += np.sin(2.0 * (due - start))
        device.send(ActionChunk(due, way))
        print("sent", flush=True)
        time.sleep(0.5)
"""


def test_a_suspended_owner_is_a_hold_until_it_continues(
    tmp_path: Path,
) -> None:
    limits = SafetyLimits.of(ALOHA, cartesian_speed=None)

    def waist() -> Vector:
        return _goals_of_waist((tmp_path / "left.bin").read_bytes())

    with (
        Emulator(plant="first_order", capture=tmp_path) as emulator,
        _owner(emulator, tmp_path) as owner,
    ):
        _wait(lambda: abs(float(waist()[-1])) > 0.1)
        owner.send_signal(signal.SIGSTOP)
        time.sleep(limits.oldest_heartbeat_s + 0.4)
        held = waist()[-10:]
        owner.send_signal(signal.SIGCONT)
        _wait(lambda: abs(float(waist()[-1] - held[-1])) > 0.1)
        owner.kill()
    assert np.ptp(held) == 0.0
    assert_within_limits(tmp_path, limits)


def test_a_closed_terminal_ends_the_owner_which_brakes_the_arms_and_keeps_the_log(
    tmp_path: Path,
) -> None:
    """All processes of the group get the signal and end only after the arms are at rest."""
    limits = SafetyLimits.of(ALOHA, cartesian_speed=None)

    def waist() -> Vector:
        return _goals_of_waist((tmp_path / "left.bin").read_bytes())

    with (
        Emulator(plant="first_order", capture=tmp_path) as emulator,
        _owner(emulator, tmp_path) as owner,
    ):
        _wait(lambda: abs(float(waist()[-1])) > 0.1)
        os.killpg(owner.pid, signal.SIGHUP)
        moving = waist()
        owner.wait(20)
    path = waist()
    assert abs(moving[-1] - moving[-3]) > TICK
    assert np.ptp(path[-5:]) == 0.0
    assert_within_limits(tmp_path, limits)
    (kept,) = (tmp_path / "log").glob("session-*.log")
    last = [entry for entry in scan(kept.read_bytes()) if isinstance(entry, Entry)][-1]
    assert last.kind == Kind.END
    assert b"died" not in last.payload


def assert_within_limits(folder: Path, limits: SafetyLimits) -> None:
    """Checks all goals at the servos, gaps included."""
    line = ServoLine(folder / "left.bin", servo_check("left", limits, PERIOD), PERIOD)
    line.take(1 << 40)
    assert line.check.goals > 20
    assert line.check.violations == 0


def _owner(emulator: Emulator, folder: Path) -> "subprocess.Popen[str]":
    root = str(Path(stringline.__file__).parents[1])
    script = OWNER.format(root=root, ports=emulator.ports, folder=str(folder / "log"))
    owner = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "sent\n"
    return owner


def _goals_of_waist(data: bytes) -> Vector:
    head, found, at = b"\x83\x74\x00\x04\x00\x01", [], 0
    while 0 <= (at := data.find(head, at)) <= len(data) - 10:
        found.append(
            table.angle_of_ticks(int.from_bytes(data[at + 6 : at + 10], "little", signed=True))
        )
        at += len(head)
    return np.array(found)


def _wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)
