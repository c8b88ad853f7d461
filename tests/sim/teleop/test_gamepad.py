"""Commands of sticks and buttons, and a device of the kernel's format that is plugged in and out.

No gamepad is at hand where tests run: the device is a pipe, into which the test writes the kernel's
events.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from stringline.sim.teleop.gamepad import (
    AXIS,
    BUTTON,
    EVENT,
    FULL,
    INITIAL,
    Gamepad,
    GamepadLayout,
    GamepadState,
    after_events,
    command_of,
    is_idle,
)

LAYOUT = GamepadLayout(dead_zone=0.1)
NOTHING = GamepadState()


def asked(axes: dict[int, float]) -> tuple[list[float], list[float], float]:
    command = command_of(GamepadState(axes), NOTHING, LAYOUT)
    return command.linear.tolist(), command.angular.tolist(), command.opening


def test_each_stick_moves_one_thing_as_far_as_it_is_moved() -> None:
    right, away, up = ([1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0])
    for axis, way, linear, angular, opening in (
        (LAYOUT.right, 1.0, right, [0, 0, 0], 0.0),
        (LAYOUT.towards, -1.0, away, [0, 0, 0], 0.0),
        (LAYOUT.down, -1.0, up, [0, 0, 0], 0.0),
        (LAYOUT.roll, 1.0, [0, 0, 0], [1.0, 0, 0], 0.0),
        (LAYOUT.tilt, 1.0, [0, 0, 0], [0, 1.0, 0], 0.0),
        (LAYOUT.heading, -1.0, [0, 0, 0], [0, 0, 1.0], 0.0),
        (LAYOUT.open, 1.0, [0, 0, 0], [0, 0, 0], 1.0),
        (LAYOUT.close, 1.0, [0, 0, 0], [0, 0, 0], -1.0),
    ):
        assert asked({axis: way}) == (linear, angular, opening)
    for way, share in ((0.1, 0.0), (-0.1, 0.0), (0.55, 0.5), (-0.55, -0.5), (-1.0, -1.0)):
        assert asked({LAYOUT.right: way})[0][0] == pytest.approx(share)
    assert asked({LAYOUT.open: 1.0, LAYOUT.close: 1.0})[2] == 0.0
    assert asked({LAYOUT.open: -1.0, LAYOUT.close: 0.0})[2] == pytest.approx(-0.4 / 0.9)


def test_a_pad_at_rest_or_without_events_commands_nothing() -> None:
    assert is_idle(command_of(NOTHING, NOTHING, LAYOUT))
    rest = GamepadState(
        {axis: (-1.0 if axis in (LAYOUT.open, LAYOUT.close) else 0.02) for axis in range(8)}
    )
    assert is_idle(command_of(rest, NOTHING, LAYOUT))


def test_a_button_counts_once_when_it_goes_down() -> None:
    down = GamepadState(buttons=frozenset({LAYOUT.take, LAYOUT.left, 99}))
    assert command_of(down, NOTHING, LAYOUT).pressed == {"take", "left"}
    assert command_of(down, down, LAYOUT).pressed == frozenset()
    assert command_of(NOTHING, down, LAYOUT).pressed == frozenset()


def test_the_events_of_the_kernel() -> None:
    events = b"".join(
        EVENT.pack(7, *event)
        for event in (
            (-32768, AXIS | INITIAL, 0),
            (FULL // 2, AXIS, 1),
            (1, BUTTON, 3),
            (1, BUTTON | INITIAL, 4),
            (0, BUTTON, 3),
        )
    )
    assert EVENT.size == 8
    sticks = after_events(NOTHING, events + b"cut")
    assert sticks.axes == {0: -1.0, 1: pytest.approx(0.5, abs=1e-4)}
    assert sticks.buttons == {4}


def test_a_device_is_read_without_waiting_and_may_come_and_go(tmp_path: Path) -> None:
    path, now = tmp_path / "js0", 0.0
    os.mkfifo(path)
    gamepad = Gamepad(path, LAYOUT, lambda: now)
    assert is_idle(gamepad.command())
    with path.open("wb", buffering=0) as device:
        device.write(
            EVENT.pack(1, FULL, AXIS, LAYOUT.right) + EVENT.pack(1, 1, BUTTON, LAYOUT.take)
        )
        command = gamepad.command()
        assert (command.linear.tolist(), command.pressed) == ([1.0, 0.0, 0.0], {"take"})
        again = gamepad.command()
        assert (again.linear.tolist(), again.pressed) == ([1.0, 0.0, 0.0], frozenset())
    assert gamepad._device is not None
    folder = os.open(tmp_path, os.O_RDONLY)
    os.dup2(
        folder, gamepad._device
    )  # From now on reading fails, as with a device that was pulled out.
    os.close(folder)
    path.unlink()
    assert is_idle(gamepad.command())
    assert not gamepad.connected
    os.mkfifo(path)
    now = 0.5
    gamepad.command()
    assert gamepad.connected
    gamepad.close()


def test_a_missing_gamepad(tmp_path: Path) -> None:
    (tmp_path / "js3").touch()
    with pytest.raises(
        ValueError,
        match=rf"There is no gamepad at {tmp_path}/js0 \(No such file.*Found: {tmp_path}/js3. "
        ".*gamepad.device=null",
    ):
        Gamepad(tmp_path / "js0")
    with pytest.raises(
        ValueError, match=r"dead_zone must be a number of at least 0 and below 1 \(got 1.0\)"
    ):
        GamepadLayout(dead_zone=1.0)
    with pytest.raises(ValueError, match=r"gamepad\.layout\.take must be .*got -1"):
        GamepadLayout(take=-1)


def test_sticks_beyond_their_range_command_full_speed() -> None:
    command = command_of(GamepadState({axis: 1.2 for axis in range(8)}), NOTHING, LAYOUT)
    assert (
        max(np.abs(command.linear).max(), np.abs(command.angular).max(), abs(command.opening))
        <= 1.0
    )
