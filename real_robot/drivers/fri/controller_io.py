"""Inputs and outputs of a controller over FRI: hold-to-run by an input, and a gripper at outputs.

Inputs and outputs have their names in the controller's project. Inputs come with each message, and
outputs are part of the arm's answers. A gripper has an analogue value, or a valve with one bit or
two. A bit has a hysteresis, so that a target near the middle does not make a valve chatter.
"""

import math
import time
from collections.abc import Callable, Sequence
from ctypes import c_double
from dataclasses import dataclass, replace
from typing import Any, Self

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.driver_interface.gripper import GripperState, within
from stringline.real_robot.drivers.fri.enums import IoDirection, IoType


@dataclass(frozen=True)
class IoValue:
    """One input or output.

    Attributes:
        name: Name in the controller's project.
        direction: As the controller sees it: clients write outputs.
        value: A number, or 0 and 1.
    """

    name: str
    kind: IoType
    direction: IoDirection
    value: float

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """Returns a decoded `FriIOValue`; an absent value is 0."""
        found = values.get("analogValue" if values["type"] is IoType.ANALOG else "digitalValue", 0)
        return cls(values["name"], values["type"], values["direction"], float(found))

    def to_values(self) -> dict[str, Any]:
        """Returns the fields to encode."""
        analog = self.kind is IoType.ANALOG
        value = {"analogValue": self.value} if analog else {"digitalValue": int(self.value)}
        return {"name": self.name, "type": self.kind, "direction": self.direction, **value}


class RunInput:
    """Permits motion while an input is 1, and withdraws the permission as soon as it is 0.

    An input that is 1 from the first message on does not count until it has been 0: a stuck pedal
    or a bridged contact would otherwise start the arms. Without messages the permission expires.

    Args:
        name: Name of the input in the controller's project.
        permission: Memory of the time of the last permission; 0: none.
    """

    def __init__(
        self, name: str, permission: c_double, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._permission = permission
        self._clock = clock
        self._was_released = False

    def hear(self, inputs: Sequence[IoValue]) -> None:
        """Takes the inputs of a message that has just arrived."""
        held = any(_is_bit(one) and one.name == self._name and one.value == 1 for one in inputs)
        self._was_released = self._was_released or not held
        self._permission.value = self._clock() if held and self._was_released else 0.0

    def problem(self, inputs: Sequence[IoValue]) -> str:
        """Returns why a controller with these inputs and outputs cannot permit motion, or ""."""
        bits = [one.name for one in inputs if _is_bit(one)]
        if self._name in bits:
            return ""
        return str(unknown_name("input (BOOLEAN or DIGITAL) of the controller", self._name, bits))


def _is_bit(one: IoValue) -> bool:
    return one.direction is IoDirection.INPUT and one.kind is not IoType.ANALOG


@dataclass(frozen=True)
class IoGripper:
    """Settings of a gripper at inputs and outputs of the controller.

    Attributes:
        output: Output for the target opening.
        kind: Kind of outputs and input, as in the controller's project; `BOOLEAN` and `DIGITAL` are
            bits.
        feedback: Input with the opening; if None, the commanded opening counts as measured.
        close_output: The closing one of a pair of bits; it is the opposite of `output`.
        closed: Value of `output` and `feedback` when closed.
        opened: Value when open.
        close_below: Opening at and below which a bit closes.
        open_above: Opening at and above which a bit opens; in between it stays.

    Raises:
        ValueError: The settings do not fit together.
    """

    output: str = ""
    kind: IoType = IoType.ANALOG
    feedback: str | None = None
    close_output: str | None = None
    closed: float = 0.0
    opened: float = 1.0
    close_below: float = 0.4
    open_above: float = 0.6

    def __post_init__(self) -> None:
        """Checks the settings."""
        if not self.output:
            raise ValueError(
                "A gripper needs the name of the controller's output that moves it: output."
            )
        levels = (self.closed, self.opened)
        if (
            self.closed == self.opened
            or not all(map(math.isfinite, levels))
            or (self.is_bit and set(levels) != {0, 1})
        ):
            allowed = "0 and 1, or 1 and 0" if self.is_bit else "two different numbers"
            raise ValueError(
                f"The {self.kind.name} output {self.output!r} is {self.closed} when closed and "
                f"{self.opened} when opened; allowed: {allowed}."
            )
        if not 0 <= self.close_below < self.open_above <= 1:
            raise ValueError(
                f"A bit closes at close_below {self.close_below} and opens at open_above "
                f"{self.open_above}; allowed: 0 <= close_below < open_above <= 1."
            )
        if self.close_output is not None and (
            not self.is_bit or self.close_output in ("", self.output)
        ):
            raise ValueError(
                f"close_output is {self.close_output!r} beside the {self.kind.name} output "
                f"{self.output!r}; allowed: the name of another bit, and only beside a bit (kind "
                f"BOOLEAN or DIGITAL)."
            )

    @property
    def is_bit(self) -> bool:
        """Whether it can only be open or closed."""
        return self.kind is not IoType.ANALOG

    def gripper(self, arm: str, *, period_s: float, read_only: bool) -> "OutputGripper":
        """Returns the gripper of an arm."""
        return OutputGripper(self, arm, read_only=read_only)

    def opening(self, value: float) -> float:
        """Returns the opening for a value."""
        return (value - self.closed) / (self.opened - self.closed)

    def value(self, opening: float) -> float:
        """Returns the value for an opening."""
        return self.closed + opening * (self.opened - self.closed)


class OutputGripper:
    """A gripper at outputs of its arm's controller, which transports them in its messages."""

    def __init__(self, settings: IoGripper, arm: str, *, read_only: bool) -> None:
        self._settings = settings
        self._read_only = read_only
        self.servo = "" if settings.feedback is None else f"{arm}/gripper ({settings.feedback})"
        self._arm = arm
        self.state = GripperState()
        self._start: float | None = None
        self._wanted: float | None = None
        self._is_open: bool | None = None

    @property
    def wanted(self) -> float:
        """Opening that commands continue: of the last one, of the outputs, or as measured."""
        known = (one for one in (self._wanted, self._start) if one is not None)
        return next(known, self.state.opening)

    def connect(self, timeout_s: float) -> list[str]:
        """Returns no problems: there is no connection of its own."""
        return []

    def problems(self, values: Sequence[IoValue]) -> list[str]:
        """Returns differences between the settings and the controller's inputs and outputs."""
        settings = self._settings
        outputs = [
            self._problem(name, values, "output")
            for name in (settings.output, settings.close_output)
            if name
        ]
        inputs = [self._problem(name, values, "input") for name in (settings.feedback,) if name]
        found = [problem for problem in (*outputs, *inputs) if problem]
        if not found and settings.feedback is None and self._is_neutral(values):
            found = [
                f"{settings.output} and {settings.close_output} are equal, so the opening is "
                f"unknown. Set one of them, or name an input that measures it: feedback."
            ]
        return [f"{self._arm}/gripper: {problem}" for problem in found]

    def _is_neutral(self, reported: Sequence[IoValue]) -> bool:
        """Returns whether a pair of bits means neither open nor closed."""
        pair = (self._settings.output, self._settings.close_output)
        values = [one.value for one in reported if one.name in pair]
        return len(values) == len(pair) and len(set(values)) == 1

    def _problem(self, name: str, values: Sequence[IoValue], use: str) -> str:
        found = next((one for one in values if one.name == name), None)
        if found is None:
            names = [one.name for one in values]
            return (
                f"{unknown_name(f'{use} of the controller', name, names)} Is it registered for FRI?"
            )
        if found.kind is not self._settings.kind:
            return (
                f"The {use} {name} is {found.kind.name}; in the settings it is "
                f"{self._settings.kind.name}: kind."
            )
        if use == "output" and found.direction is not IoDirection.OUTPUT:
            return f"{name} is an input of the controller, so it cannot move a gripper: output."
        return ""

    def enter(self) -> None:
        """Forgets commands, as a motion begins; the next ones continue the outputs."""
        self._wanted = self._is_open = None

    def hear(self, values: Sequence[IoValue]) -> None:
        """Takes the controller's inputs and, before the first command of a motion, its outputs."""
        settings = self._settings
        openings = {
            one.name: settings.opening(one.value) for one in values if math.isfinite(one.value)
        }
        if self._wanted is None and settings.output in openings:
            self._start = (
                None if self._is_neutral(values) else within(openings[settings.output], 1.0)
            )
        if settings.feedback is None:
            if self._wanted is None:
                self.state = GripperState(self.wanted)
        elif settings.feedback in openings:
            self.state = GripperState(within(openings[settings.feedback], self.state.opening))
        else:
            self.state = replace(self.state, misses=self.state.misses + 1)

    def read(self) -> GripperState:
        """Returns its last known state."""
        return self.state

    def command(self, opening: float) -> None:
        """Sets the outputs of the next answers; NaN is ignored."""
        if self._read_only or not math.isfinite(opening):
            return
        self._is_open = self._bit(within(opening, self.wanted))
        self._wanted = within(opening, self.wanted)
        if self._settings.feedback is None:
            self.state = GripperState(
                float(self._is_open) if self._settings.is_bit else self._wanted
            )

    def _bit(self, opening: float) -> bool:
        if self._settings.close_below < opening < self._settings.open_above:
            return self.wanted >= 0.5 if self._is_open is None else self._is_open
        return opening >= self._settings.open_above

    def outputs(self) -> tuple[IoValue, ...]:
        """Returns the outputs for an answer: none before the first command of a motion."""
        settings = self._settings
        if self._wanted is None or self._is_open is None:
            return ()
        if not settings.is_bit:
            return (self._output(settings.output, settings.value(self._wanted)),)
        first = (self._output(settings.output, settings.value(float(self._is_open))),)
        if settings.close_output is None:
            return first
        return (
            *first,
            self._output(settings.close_output, settings.value(float(not self._is_open))),
        )

    def _output(self, name: str, value: float) -> IoValue:
        return IoValue(name, self._settings.kind, IoDirection.OUTPUT, value)

    def close(self) -> None:
        """Does nothing."""
