"""What the sticks and buttons of a gamepad ask for, and reading one that is plugged into this machine.

Linux hands a gamepad out as /dev/input/js0 and so on, in events of eight bytes: time in ms, value,
kind and number (Documentation/input/joydev/joystick-api.rst of the kernel). So none of this needs a
library.
"""

import os
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stringline.datasets.contract.arguments import SHARE, WHOLE
from stringline.datasets.embodiments.embodiment import Vector

EVENT = struct.Struct("<IhBB")
BUTTON = 0x01
AXIS = 0x02
INITIAL = 0x80
FULL = 32767
EVENTS_AT_ONCE = 64
RETRY_S = 1.0


@dataclass(frozen=True)
class Layout:
    """Which axis or button is what, by the kernel's numbers; the defaults are those of Xbox pads (driver xpad).

    Attributes:
        right: Axis of the left stick, to the right.
        towards: Axis of the left stick, towards the person.
        down: Axis of the right stick, towards the person.
        roll: Axis of the right stick, to the right.
        heading: Axis of the cross, to the right.
        tilt: Axis of the cross, towards the person.
        open: Axis of the left trigger.
        close: Axis of the right trigger.
        take: Button that records, and then keeps.
        discard: Button that discards.
        recall: Button that wants the arm where it is.
        reset: Button that begins the episode again.
        left: Button that takes the left, or first, arm.
        other: Button that takes the right, or last, arm.
        dead_zone: Share of a stick's way at which nothing happens yet.
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
        """Refuses a dead zone that leaves nothing, and axes and buttons that no gamepad has."""
        SHARE.check(dead_zone=self.dead_zone)
        numbers = {name: number for name, number in vars(self).items() if name != "dead_zone"}
        WHOLE.check(**{f"gamepad.layout.{name}": number for name, number in numbers.items()})


BUTTONS = ("take", "discard", "recall", "reset", "left", "other")


@dataclass(frozen=True)
class Sticks:
    """Where a gamepad's axes and buttons are.

    Attributes:
        axes: By number, -1 to 1; those that have never been heard of are missing.
        buttons: Numbers of those that are down.
    """

    axes: Mapping[int, float] = field(default_factory=dict)
    buttons: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class Wish:
    """What a gamepad asks for in one control period.

    Attributes:
        linear: Share (3,) of the largest speed along the axes of the base frame.
        angular: Share (3,) of the largest speed about the gripper's own axes.
        opening: Share of the largest speed of the gripper, above 0 to open.
        pressed: Names of the buttons that have gone down since the last period.
    """

    linear: Vector
    angular: Vector
    opening: float
    pressed: frozenset[str]


def wish_of(now: Sticks, before: Sticks, layout: Layout) -> Wish:
    """Says what a gamepad asks for.

    Args:
        now: Where its sticks are.
        before: Where they were a period ago.
        layout: What they are.
    """

    def stick(number: int) -> float:
        way = now.axes.get(number, 0.0)
        beyond = max(abs(way) - layout.dead_zone, 0.0) / (1.0 - layout.dead_zone)
        return float(np.copysign(min(beyond, 1.0), way)) if beyond else 0.0

    def trigger(number: int) -> float:  # It rests at -1.
        way = (now.axes.get(number, -1.0) + 1.0) / 2.0
        return min(max(way - layout.dead_zone, 0.0) / (1.0 - layout.dead_zone), 1.0)

    return Wish(
        linear=np.array([stick(layout.right), -stick(layout.towards), -stick(layout.down)]),
        angular=np.array([stick(layout.roll), stick(layout.tilt), -stick(layout.heading)]),
        opening=trigger(layout.open) - trigger(layout.close),
        pressed=frozenset(
            name for name in BUTTONS if getattr(layout, name) in now.buttons - before.buttons
        ),
    )


def still(wish: Wish) -> bool:
    """Says whether nothing is asked for."""
    return not (wish.linear.any() or wish.angular.any() or wish.opening or wish.pressed)


def after_events(sticks: Sticks, events: bytes) -> Sticks:
    """Returns where axes and buttons are after events of the kernel, eight bytes each; one that is cut short is left out."""
    axes = dict(sticks.axes)
    buttons = set(sticks.buttons)
    for _, value, kind, number in EVENT.iter_unpack(
        events[: len(events) // EVENT.size * EVENT.size]
    ):
        if kind & ~INITIAL == AXIS:
            axes[number] = max(value / FULL, -1.0)
        elif kind & ~INITIAL == BUTTON:
            (buttons.add if value else buttons.discard)(number)
    return Sticks(axes, frozenset(buttons))


class Gamepad:
    """A gamepad of this machine, which may be unplugged and plugged in again.

    Args:
        path: Of its device, such as /dev/input/js0.
        layout: What its axes and buttons are.
        clock: Seconds.

    Attributes:
        connected: Whether it is there.

    Raises:
        ValueError: There is none at first, or it may not be read.
    """

    def __init__(
        self,
        path: str | Path,
        layout: Layout | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = Path(path)
        self._layout = layout or Layout()
        self._clock = clock
        self._now = Sticks()
        try:
            self._device: int | None = self._open()
        except OSError as error:
            found = (
                ", ".join(str(device) for device in sorted(self._path.parent.glob("js*"))) or "none"
            )
            raise ValueError(
                f"No gamepad at {path} ({error.strerror}). Found: {found}. Without one: "
                f"gamepad.device=null"
            ) from error
        self._retry_at = 0.0

    @property
    def connected(self) -> bool:
        """Whether it is there."""
        return self._device is not None

    def wish(self) -> Wish:
        """Returns what it asks for since the last call; nothing while it is unplugged."""
        before = self._now
        if self._device is None and self._clock() >= self._retry_at:
            self._retry_at = self._clock() + RETRY_S
            try:
                self._device = self._open()
            except OSError:
                self._device = None
        if self._device is not None:
            self._now = self._read(self._device)
        return wish_of(self._now, before, self._layout)

    def close(self) -> None:
        """Gives the device back."""
        if self._device is not None:
            os.close(self._device)
        self._device = None

    def _open(self) -> int:
        return os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)

    def _read(self, device: int) -> Sticks:
        now = self._now
        try:
            while events := os.read(device, EVENTS_AT_ONCE * EVENT.size):
                now = after_events(now, events)
        except BlockingIOError:
            return now
        except OSError:
            pass
        else:
            return now  # The end of a file: nothing more for now.
        self.close()
        return Sticks()  # Unplugged: an arm must not go on as the sticks last were.
