"""A gamepad of this machine: its commands, and the control of a session by one arm at a time.

Linux offers a gamepad as /dev/input/js0 and so on, in events of eight bytes: time in ms, value,
kind and number (Documentation/input/joydev/joystick-api.rst of the kernel), so no library is
needed.
"""

import os
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stringline.datasets.contract.argument_checks import SHARE, WHOLE
from stringline.datasets.embodiments.embodiment import Vector
from stringline.sim.teleop.teleop_session import TeleopSession

EVENT = struct.Struct("<IhBB")
BUTTON = 0x01
AXIS = 0x02
INITIAL = 0x80
FULL = 32767
EVENTS_AT_ONCE = 64
RETRY_S = 1.0


@dataclass(frozen=True)
class GamepadLayout:
    """The kernel's numbers of axes and buttons; the defaults are those of Xbox pads (driver xpad).

    Attributes:
        right: Axis of the left stick, to the right.
        towards: Axis of the left stick, towards the person.
        down: Axis of the right stick, towards the person.
        roll: Axis of the right stick, to the right.
        heading: Axis of the cross, to the right.
        tilt: Axis of the cross, towards the person.
        open: Axis of the left trigger.
        close: Axis of the right trigger.
        take: Button that starts a take, and then keeps it.
        discard: Button that discards the take.
        recall: Button that sets the target to the arm's current pose.
        reset: Button that begins the episode again.
        left: Button that selects the left, or first, arm.
        other: Button that selects the right, or last, arm.
        dead_zone: Share of a stick's way without an effect.
    """

    right: int = 0
    towards: int = 1
    open: int = 2
    roll: int = 3
    down: int = 4
    close: int = 5
    heading: int = 6
    tilt: int = 7
    take: int = 0
    discard: int = 1
    recall: int = 2
    reset: int = 3
    left: int = 4
    other: int = 5
    dead_zone: float = 0.12

    def __post_init__(self) -> None:
        """Checks the dead zone, and the numbers of axes and buttons."""
        SHARE.check(dead_zone=self.dead_zone)
        numbers = {name: number for name, number in vars(self).items() if name != "dead_zone"}
        WHOLE.check(**{f"gamepad.layout.{name}": number for name, number in numbers.items()})


BUTTONS = ("take", "discard", "recall", "reset", "left", "other")


@dataclass(frozen=True)
class GamepadState:
    """The state of a gamepad.

    Attributes:
        axes: Positions by the axis' number, -1 to 1; axes without an event are missing.
        buttons: Numbers of the pressed buttons.
    """

    axes: Mapping[int, float] = field(default_factory=dict)
    buttons: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class GamepadCommand:
    """The command of a gamepad in one control period.

    Attributes:
        linear: (3,), shares of the speed limit along the axes of the base frame.
        angular: (3,), shares of the speed limit about the gripper's own axes.
        opening: Share of the gripper's speed limit, above 0 to open.
        pressed: Names of the buttons pressed since the last period.
    """

    linear: Vector
    angular: Vector
    opening: float
    pressed: frozenset[str]


def command_of(now: GamepadState, before: GamepadState, layout: GamepadLayout) -> GamepadCommand:
    """Returns the command of a gamepad, given its states of now and of the period before."""

    def stick(number: int) -> float:
        way = now.axes.get(number, 0.0)
        beyond = max(abs(way) - layout.dead_zone, 0.0) / (1.0 - layout.dead_zone)
        return float(np.copysign(min(beyond, 1.0), way)) if beyond else 0.0

    def trigger(number: int) -> float:  # -1 at rest.
        way = (now.axes.get(number, -1.0) + 1.0) / 2.0
        return min(max(way - layout.dead_zone, 0.0) / (1.0 - layout.dead_zone), 1.0)

    down = now.buttons - before.buttons
    return GamepadCommand(
        linear=np.array([stick(layout.right), -stick(layout.towards), -stick(layout.down)]),
        angular=np.array([stick(layout.roll), stick(layout.tilt), -stick(layout.heading)]),
        opening=trigger(layout.open) - trigger(layout.close),
        pressed=frozenset(name for name in BUTTONS if getattr(layout, name) in down),
    )


def is_idle(command: GamepadCommand) -> bool:
    """Returns whether a command changes nothing."""
    return not (command.linear.any() or command.angular.any() or command.opening or command.pressed)


def after_events(sticks: GamepadState, events: bytes) -> GamepadState:
    """Returns the state after events of the kernel; an incomplete event at the end is ignored."""
    axes = dict(sticks.axes)
    buttons = set(sticks.buttons)
    complete = events[: len(events) // EVENT.size * EVENT.size]
    for _, value, kind, number in EVENT.iter_unpack(complete):
        if kind & ~INITIAL == AXIS:
            axes[number] = max(value / FULL, -1.0)
        elif kind & ~INITIAL == BUTTON:
            (buttons.add if value else buttons.discard)(number)
    return GamepadState(axes, frozenset(buttons))


class Gamepad:
    """A gamepad of this machine, which may be unplugged and plugged in again.

    Raises:
        ValueError: The device, such as /dev/input/js0, does not exist or cannot be read.
    """

    def __init__(
        self,
        path: str | Path,
        layout: GamepadLayout | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = Path(path)
        self._layout = layout or GamepadLayout()
        self._clock = clock
        self._now = GamepadState()
        try:
            self._device: int | None = self._open()
        except OSError as error:
            devices = sorted(self._path.parent.glob("js*"))
            found = ", ".join(str(device) for device in devices) or "none"
            raise ValueError(
                f"There is no gamepad at {path} ({error.strerror}). Found: {found}. To go without "
                "one: gamepad.device=null"
            ) from error
        self._retry_at = 0.0

    @property
    def connected(self) -> bool:
        """Whether the gamepad is plugged in."""
        return self._device is not None

    def command(self) -> GamepadCommand:
        """Returns the command since the last call, an idle one while the gamepad is unplugged."""
        before = self._now
        if self._device is None and self._clock() >= self._retry_at:
            self._retry_at = self._clock() + RETRY_S
            try:
                self._device = self._open()
            except OSError:
                self._device = None
        if self._device is not None:
            self._now = self._read(self._device)
        return command_of(self._now, before, self._layout)

    def close(self) -> None:
        """Closes the device."""
        if self._device is not None:
            os.close(self._device)
        self._device = None

    def _open(self) -> int:
        return os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)

    def _read(self, device: int) -> GamepadState:
        now = self._now
        try:
            while events := os.read(device, EVENTS_AT_ONCE * EVENT.size):
                now = after_events(now, events)
        except BlockingIOError:
            return now
        except OSError:
            pass
        else:
            return now  # The end of a file.
        self.close()
        return GamepadState()  # Unplugged: the last state must not move an arm.


class GamepadControl:
    """Executes the commands of a gamepad; `arm` follows the sticks."""

    def __init__(self, session: TeleopSession) -> None:
        self._session = session
        self._embodiment = session.world.embodiment
        self.arm = self._embodiment.arms[0]

    def follow(self, command: GamepadCommand) -> None:
        """Executes the command of one control period.

        Raises:
            ValueError: The command is not possible now, such as keeping without a take.
            OSError: A take cannot be written.
        """
        steering = self._session.steering
        if command.pressed & {"left", "other"}:
            self.arm = self._embodiment.arms[0 if "left" in command.pressed else -1]
        if command.linear.any() or command.angular.any():
            steering.push(self.arm, command.linear, command.angular)
        if command.opening:
            limit = self._embodiment.velocity_limits[self._embodiment.grippers[self.arm]]
            speed = limit / self._session.world.contract.control_hz
            steering.grip(self.arm, steering.openings[self.arm] + speed * command.opening)
        if "recall" in command.pressed:
            steering.recall(self.arm)
        self._press(command.pressed)

    def _press(self, pressed: frozenset[str]) -> None:
        session = self._session
        if "take" in pressed:
            (session.keep if session.recorder.open else session.record)()
        if "discard" in pressed:
            session.discard()
        if "reset" in pressed:
            session.reset()
