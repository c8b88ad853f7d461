"""Real arms start by a key after all checks; inputs and speed are checked before torque."""

import io
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.operator.input_line import LineSettings
from stringline.real_robot.operator.operator_keys import TerminalKeys
from stringline.real_robot.robots import robot_session
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_session import RobotSession, await_start
from stringline.real_robot.robots.robot_settings import RobotSettings

REAL = {"name": "aloha", "control_hz": 50, "device_hz": 100, "lock_step": False}
EMULATED = {**REAL, "emulator": {}}


def settings(plain: dict[str, Any], **changes: Any) -> RobotSettings:
    return RobotSettings.of({**plain, **changes})


def test_real_arms_start_by_a_key_and_emulated_ones_at_once() -> None:
    assert settings(REAL).starts_by_key
    assert settings(REAL, start="key").starts_by_key
    assert settings(EMULATED, start="key").starts_by_key
    assert not settings(EMULATED).starts_by_key
    assert not settings(EMULATED, start="immediately").starts_by_key


@pytest.mark.parametrize(
    ("plain", "changes", "message"),
    [
        (REAL, {"start": "immediately"}, "robot.start=immediately is for emulated arms"),
        (REAL, {"start": "keys"}, "There is no robot.start 'keys'. Did you mean 'key'"),
        (
            REAL,
            {"hold_to_run": "pedal"},
            "robot.hold_to_run is 'pedal'; allowed: null, key, the port",
        ),
        (REAL, {"stop_line": {"signal": "cts"}}, "A serial line needs its port"),
        (
            {**EMULATED, "lock_step": True},
            {"hold_to_run": "key"},
            "robot.hold_to_run and robot.stop_line act in real time: robot.lock_step=false",
        ),
    ],
)
def test_contradictory_settings_are_refused(
    plain: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        settings(plain, **changes)


def test_lines_are_read_from_the_settings() -> None:
    found = settings(REAL, stop_line={"port": "/dev/ttyUSB0", "signal": "dsr"}, hold_to_run="key")
    assert found.stop_line == LineSettings("/dev/ttyUSB0", "dsr")
    assert found.hold_to_run == "key"


@pytest.fixture
def press(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """Gives the session a terminal, in which keys are pressed half a second later."""
    far, near = os.openpty()
    os.write(far, b"ssss\n")  # Before the question.
    stream = os.fdopen(near)
    threads = []
    monkeypatch.setattr(robot_session, "TerminalKeys", lambda held=None: TerminalKeys(stream, held))

    def press(keys: bytes) -> None:
        def later() -> None:
            time.sleep(0.5)
            os.write(far, keys)

        threads.append(threading.Thread(target=later))
        threads[-1].start()

    yield press
    for thread in threads:
        thread.join()
    stream.close()
    os.close(far)


def test_only_a_key_after_the_question_starts_the_motion(
    press: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()
    press(b"x s")
    await_start()
    assert time.monotonic() - start > 0.4
    assert "The arms hold. s: start the motion; q: end." in capsys.readouterr().out
    press(b"q")
    with pytest.raises(ValueError, match="Not started: the operator has ended the program"):
        await_start()


def test_without_a_terminal_real_arms_are_refused_before_a_port_is_opened() -> None:
    report = io.StringIO()
    checklist = Checklist(report)
    RobotSession(RobotFactory(settings(REAL)), checklist).check()
    assert "FAILED  terminal for the keys" in report.getvalue()
    with pytest.raises(ValueError, match="terminal for the keys: real arms start by a key"):
        checklist.check_passed()
    report = io.StringIO()
    RobotSession(RobotFactory(settings(REAL)), Checklist(report), read_only=True).check()
    assert "terminal" not in report.getvalue()


@pytest.mark.parametrize(
    ("limits", "text", "message"),
    [
        ({}, "cartesian_speed: 250", "cartesian_speed is 250; allowed: above 0, up to 3 (m/s)"),
        ({}, "cartesian_speed: null", "cartesian_speed is null in "),
        (
            {"cartesian_speed": 1.0},
            "cartesian_speed: 1.0",
            "robot.limits.cartesian_speed is 1.0; allowed for real arms: up to 0.25 (m/s). Only",
        ),
        ({"cartesian_speed": None}, "", "robot.limits.cartesian_speed is null; allowed for real"),
        (
            {"acceleration": 500.0},
            "",
            "robot.limits.acceleration is 500.0; allowed for real arms: up",
        ),
        ({"oldest_image_s": 10.0}, "oldest_image_s: 10.0", "robot.limits.oldest_image_s is 10.0; "),
        (
            {"arm_clearance": 0.004},
            "",
            "robot.limits.arm_clearance is 0.004; allowed for real arms: from 0.005 on. Only the "
            "limits file lowers it.",
        ),
        ({"effort": [9.0, 18.0, 18.0, 9.0, 9.0, 4.5]}, "", "robot.limits.effort is [9.0, "),
        ({"effort": None}, "", "robot.limits.effort is null; allowed for real arms: up to [9.0"),
        ({"speed_share": 0.6}, "", "robot.limits.speed_share is 0.6; allowed for real arms: "),
        ({}, "arm_clearance: -0.1", "arm_clearance must be a number from 0 to 0.5 (got -0.1)"),
        ({}, "arm_clearance: 0.1\narm_clearance: 0.0", "the key 'arm_clearance' is given twice"),
    ],
)
def test_a_wrong_speed_is_refused_before_a_port_is_opened(
    tmp_path: Path, limits: dict[str, object], text: str, message: str
) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text(f"table_height: 0.012\n{text}\n")
    report = io.StringIO()
    checklist = Checklist(report)
    robot = settings(REAL, limits=limits, limits_file=str(file))
    RobotFactory(robot).check(checklist, moving=True)
    with pytest.raises(ValueError, match=r"limits file: .*" + re.escape(message)):
        checklist.check_passed()


@pytest.mark.parametrize(
    ("limits", "text", "name", "in_force"),
    [
        ({"acceleration": 3.0}, "acceleration: 200.0", "acceleration", 3.0),
        ({}, "acceleration: 200.0", "acceleration", 200.0),
        ({"soft_start_s": 5.0}, "soft_start_s: 0.5", "soft_start_s", 5.0),
        ({"soft_start_s": 2.0}, "soft_start_s: 0.5", "soft_start_s", 0.5),
        ({"table_height": 0.05}, "", "table_height", 0.05),
        ({"oldest_image_s": 0.1}, "oldest_image_s: 0.05", "oldest_image_s", 0.05),
        ({"arm_clearance": 0.03}, "arm_clearance: 0.001", "arm_clearance", 0.03),
    ],
)
def test_the_command_line_tightens_and_the_file_loosens(
    tmp_path: Path, limits: dict[str, object], text: str, name: str, in_force: float
) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text(f"table_height: 0.012\n{text}\n")
    found = RobotFactory(settings(REAL, limits=limits, limits_file=str(file))).limits()
    value = getattr(found, name)
    assert (value[0] if name == "acceleration" else value) == in_force


def test_only_the_limits_file_of_real_arms_raises_the_speed(tmp_path: Path) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("table_height: 0.012\ncartesian_speed: 0.6\n")
    assert RobotFactory(settings(REAL)).limits().cartesian_speed == 0.25
    assert RobotFactory(settings(REAL, limits_file=str(file))).limits().cartesian_speed == 0.6
    fast = settings(EMULATED, limits={"cartesian_speed": None})
    assert RobotFactory(fast).limits().cartesian_speed is None


ALOHA_SPEEDS = {"cartesian_speed": 0.25, "speed_share": 0.5}
KUKA = {"name": "kuka", "control_hz": 50, "device_hz": 100, "lock_step": False, "transport": "fri"}
KUKA_SPEEDS = {"cartesian_speed": 0.24, "speed_share": 0.25}


@pytest.mark.parametrize(
    ("plain", "limits", "file_speeds", "in_force"),
    [
        (REAL, {"cartesian_speed": 0.05, "speed_share": 0.05}, (0.25, 0.25), (0.05, 0.05)),
        (REAL, {"cartesian_speed": 0.2, "speed_share": 0.4}, (0.1, 0.3), (0.1, 0.3)),
        (REAL, ALOHA_SPEEDS, (0.6, 0.9), (0.6, 0.9)),
        (REAL, ALOHA_SPEEDS, (0.1, 0.1), (0.1, 0.1)),
        (REAL, {}, (0.6, 0.9), (0.6, 0.9)),
        (KUKA, KUKA_SPEEDS, (0.6, 0.9), (0.6, 0.9)),
        (KUKA, {"cartesian_speed": 0.23, "speed_share": 0.2}, (0.6, 0.9), (0.23, 0.2)),
        (EMULATED, {"cartesian_speed": 0.5, "speed_share": 0.9}, (0.6, 1.0), (0.5, 0.9)),
        (EMULATED, {"cartesian_speed": None}, (0.6, 1.0), (0.6, 1.0)),
        (EMULATED, {"cartesian_speed": 0.5}, ("null", 1.0), (0.5, 1.0)),
    ],
)
def test_a_speed_below_the_default_is_in_force_if_that_of_the_file_is_higher(
    tmp_path: Path,
    plain: dict[str, Any],
    limits: dict[str, object],
    file_speeds: tuple[object, float],
    in_force: tuple[float, float],
) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text(
        f"table_height: 0.012\ncartesian_speed: {file_speeds[0]}\nspeed_share: {file_speeds[1]}\n"
    )
    factory = RobotFactory(settings(plain, limits=limits, limits_file=str(file)))
    found = factory.limits()
    assert found.cartesian_speed == in_force[0]
    share = found.velocity / factory.backend.embodiment.velocity_limits
    assert share == pytest.approx(in_force[1])
    report = io.StringIO()
    factory.check(Checklist(report), moving=True)
    speeds = f"cartesian_speed {in_force[0]:g} m/s, speed_share {in_force[1]:g}"
    assert f"{file}: table at 12 mm, {speeds}, " in report.getvalue()


@pytest.mark.parametrize("share", ["fast", -0.1, float("nan"), True])
def test_a_wrong_share_is_refused_although_the_file_has_one(tmp_path: Path, share: object) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("table_height: 0.012\nspeed_share: 0.25\n")
    factory = RobotFactory(settings(REAL, limits={"speed_share": share}, limits_file=str(file)))
    with pytest.raises(ValueError, match=r"robot\.limits\.speed_share must be a number above 0"):
        factory.limits()


def test_without_a_speed_limit_the_check_says_so() -> None:
    report = io.StringIO()
    unlimited = settings(EMULATED, limits={"cartesian_speed": None})
    RobotFactory(unlimited).check(Checklist(report), moving=True)
    assert "none, cartesian_speed not limited, speed_share 1" in report.getvalue()
