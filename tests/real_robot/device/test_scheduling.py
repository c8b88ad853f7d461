"""Real-time priority: real arms with short periods need it, and all others say what they lack."""

import contextlib
import os
from pathlib import Path

import pytest
from tests.real_robot.unprivileged import run_unprivileged

import stringline
from stringline import IIWA14, SafetyLimits
from stringline.real_robot.device import scheduling
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.scheduling import Priority, check_priority, request_priority
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.emulators.program.emulator_client import FriEmulator

# A device process of real arms, at a port that no computer has; prints why it does not start.
REAL_ARMS = """
import sys
sys.path.insert(0, {root!r})
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.driver_interface.driver import RobotNotReadyError
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.safety.limits import SafetyLimits

if __name__ == "__main__":
    for period_s in (0.005, 0.01):
        driver = AlohaDriver({{"left": "/dev/none", "right": "/dev/none"}})
        with DeviceProcess(driver, ALOHA, SafetyLimits.of(ALOHA), period_s=period_s) as device:
            try:
                device.connect()
            except RobotNotReadyError as error:
                print(" | ".join(error.problems))
"""
# The checks of a configuration, then emulated arms at 5 ms.
CONFIGURATION = """
import io, sys, time
sys.path.insert(0, {root!r})
from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device import scheduling
from stringline.real_robot.device.scheduling import Priority
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_settings import RobotSettings

if __name__ == "__main__":
    plain = dict(name="kuka", transport="fri", control_hz=50.0, device_hz=200.0, lock_step=False)
    for emulator, moving in ((None, True), (None, False), ({{}}, True)):
        report = io.StringIO()
        factory = RobotFactory(RobotSettings.of(plain | {{"emulator": emulator}}))
        factory.check(Checklist(report), moving=moving)
        print("FAILED  real-time priority" in report.getvalue())
    emulated = factory.backend.bare_emulator(device_hz=200.0)
    with emulated, factory.device(emulated) as device:
        device.connect()
        device.arm()
        device.begin()
        start = device.latest().tick
        deadline = time.monotonic() + 20.0
        while device.latest().tick < start + 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        print(device.latest().tick >= start + 5)
"""
ROOT = str(Path(stringline.__file__).parents[1])
COMMAND = 'echo "$USER - rtprio 20" | sudo tee /etc/security/limits.d/stringline.conf'


def test_real_arms_below_10_ms_are_refused_before_their_ports_are_opened() -> None:
    done = run_unprivileged(REAL_ARMS.format(root=ROOT))
    fast, slow = done.stdout.splitlines()
    assert fast.startswith(
        "cycles of 5 ms need real-time priority, which the system refuses (Operation not permitted)"
    )
    assert COMMAND in fast
    assert "docs/real-time.md" in fast
    assert "/dev/none" not in fast
    assert "/dev/none cannot be opened" in slow


@pytest.mark.slow
def test_only_real_arms_that_move_are_refused_and_emulated_ones_warn_once() -> None:
    done = run_unprivileged(CONFIGURATION.format(root=ROOT))
    assert done.stdout.split() == ["True", "False", "False", "True"]
    warning = "WARNING device process: No real-time priority (Operation not permitted): cycles of 5"
    assert done.stderr.count(warning) == done.stderr.count("WARNING") == 1
    assert COMMAND in done.stderr


def test_a_thread_takes_real_time_priority_unless_it_is_refused() -> None:
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        refusal = request_priority()
        policy = os.sched_getscheduler(0)
    finally:
        os.sched_setscheduler(0, *before)
    assert (policy == os.SCHED_FIFO) == (not refusal)


def test_a_check_keeps_the_present_priority() -> None:
    before = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
    with contextlib.suppress(ValueError):  # Without the permission.
        check_priority(0.005)
    assert (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority) == before


def test_the_limit_of_10_ms_is_allowed_without_priority() -> None:
    assert Priority.of(0.01) is Priority.of(1.0 / 100.0) is Priority.PREFERRED
    assert Priority.of(0.005) is Priority.REQUIRED


@pytest.mark.slow
def test_a_device_process_has_the_priority_that_it_needs() -> None:
    if _refused():
        pytest.skip("The system refuses real-time priority.")
    for priority, policy in (
        (Priority.REQUIRED, os.SCHED_FIFO),
        (Priority.NONE, os.SCHED_OTHER),
    ):
        with (
            FriEmulator(device_hz=200.0) as emulator,
            DeviceProcess(
                FriDriver(emulator.ports, period_s=0.005),
                IIWA14,
                SafetyLimits.of(IIWA14),
                period_s=0.005,
                priority=priority,
            ) as device,
        ):
            device.connect()
            device.arm()  # The process takes its priority before it serves requests.
            assert device.pid is not None
            assert os.sched_getscheduler(device.pid) == policy


def _refused() -> str:
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    if not (refusal := request_priority()):
        os.sched_setscheduler(0, *before)
    return refusal


@pytest.mark.parametrize(
    ("load", "pressure", "expected"),
    [
        (0.5, "some avg10=3.00 avg60=1.00 avg300=0.00 total=1\n", ""),
        (0.5, "some avg10=87.20 avg60=20.00 avg300=4.00 total=1\n", "waited for a processor in 87"),
        (64000.0, "some avg10=3.00 avg60=1.00 avg300=0.00 total=1\n", "64000.0 programs"),
        (0.5, None, ""),
        (0.5, "of another kind", ""),
    ],
)
def test_a_load_that_has_just_begun_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    load: float,
    pressure: str | None,
    expected: str,
) -> None:
    file = tmp_path / "cpu"
    if pressure is not None:
        file.write_text(pressure)
    monkeypatch.setattr(scheduling, "_PRESSURE", file)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    output = scheduling.busy_machine()
    assert output.startswith("This computer is busy, which delays messages: ") == bool(expected)
    assert expected in output
