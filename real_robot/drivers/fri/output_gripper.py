"""A gripper at the controller's own outputs: an opening as an analogue value, or open and closed as a bit, or as one bit each.

Outputs go along with the arm's answers. A bit has a hysteresis: a target that wavers about the
middle makes no valve chatter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stringline.datasets.contract.arguments import unknown_name
from stringline.real_robot.driver_interface.gripper import GripperState, within
from stringline.real_robot.drivers.fri.enums import IoDirection, IoType
from stringline.real_robot.drivers.fri.io_value import IoValue


@dataclass(frozen=True)
class IoGripper:
    """A gripper by the names of outputs and an input of the controller.

    Attributes:
        output: Takes the wanted opening.
        kind: Of outputs and input; of the two kinds of bits, `BOOLEAN` and `DIGITAL`, as in the
            controller's project.
        feedback: Input that tells the opening; None: what was commanded counts as measured.
        close_output: Of a pair of bits the one that closes; it is the opposite of `output`.
        closed: Value of `output` and `feedback` when closed.
        opened: Value when open.
        close_below: Opening at and below which a bit closes.
        open_above: Opening at and above which it opens; in between it stays as it is.

    Raises:
        ValueError: They do not go together.
    """

    output: str
    kind: IoType = IoType.ANALOG
    feedback: str | None = None
    close_output: str | None = None
    closed: float = 0.0
    opened: float = 1.0
    close_below: float = 0.4
    open_above: float = 0.6

    def __post_init__(self) -> None:
        """Refuses what no output can do."""
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
                f"{self.opened} when opened; "
                f"allowed: {allowed}."
            )
        if not 0 <= self.close_below < self.open_above <= 1:
            raise ValueError(
                f"A bit closes at close_below {self.close_below} and opens at open_above "
                f"{self.open_above}; allowed: "
                "0 <= close_below < open_above <= 1."
            )
        if self.close_output is not None and (
            not self.is_bit or self.close_output in ("", self.output)
        ):
            raise ValueError(
                f"close_output is {self.close_output!r} beside the {self.kind.name} output "
                f"{self.output!r}; allowed: the name "
                "of another bit, and only beside a bit (kind BOOLEAN or DIGITAL)."
            )

    @property
    def is_bit(self) -> bool:
        """Whether it can only be open or closed."""
        return self.kind is not IoType.ANALOG

    def gripper(self, arm: str, *, period_s: float, read_only: bool) -> "OutputGripper":
        """Returns the gripper of an arm."""
        return OutputGripper(self, arm, read_only=read_only)

    def opening(self, value: float) -> float:
        """Returns the opening that a value means."""
        return (value - self.closed) / (self.opened - self.closed)

    def value(self, opening: float) -> float:
        """Returns the value that means an opening."""
        return self.closed + opening * (self.opened - self.closed)


class OutputGripper:
    """A gripper at outputs of the controller that moves its arm, which carries what is said in its own messages.

    Args:
        settings: Of the outputs.
        arm: Its name.
        read_only: Whether nothing may leave.
    """

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
        """The last command, and before the first of a motion what its outputs were found to say, or else where it stands."""
        known = (one for one in (self._wanted, self._start) if one is not None)
        return next(known, self.state.opening)

    def connect(self, timeout_s: float) -> list[str]:
        """Has nothing of its own to open."""
        return []

    def problems(self, told: Sequence[IoValue]) -> list[str]:
        """Says what does not fit in what a controller tells; it tells all inputs and outputs that it knows over FRI."""
        settings = self._settings
        outputs = [
            self._problem(name, told, "output")
            for name in (settings.output, settings.close_output)
            if name
        ]
        inputs = [self._problem(name, told, "input") for name in (settings.feedback,) if name]
        found = [problem for problem in (*outputs, *inputs) if problem]
        if not found and settings.feedback is None and self._is_neutral(told):
            found = [
                f"{settings.output} and {settings.close_output} are set alike, so nobody knows "
                f"where the gripper is. "
                "Set one of them, or name an input that tells: feedback."
            ]
        return [f"{self._arm}/gripper: {problem}" for problem in found]

    def _is_neutral(self, told: Sequence[IoValue]) -> bool:
        """Says whether a pair of bits says neither open nor closed."""
        pair = (self._settings.output, self._settings.close_output)
        values = [one.value for one in told if one.name in pair]
        return len(values) == len(pair) and len(set(values)) == 1

    def _problem(self, name: str, told: Sequence[IoValue], use: str) -> str:
        found = next((one for one in told if one.name == name), None)
        if found is None:
            names = [one.name for one in told]
            return (
                f"{unknown_name(f'{use} of the controller', name, names)} Is it registered for FRI?"
            )
        if found.kind is not self._settings.kind:
            return (
                f"The {use} {name} is {found.kind.name}; the settings say "
                f"{self._settings.kind.name}: kind."
            )
        if use == "output" and found.direction is not IoDirection.OUTPUT:
            return f"{name} is an input of the controller, so it cannot move a gripper: output."
        return ""

    def enter(self) -> None:
        """Forgets what it was told: the arm's motion begins anew; commands begin where the controller says outputs are."""
        self._wanted = self._is_open = None

    def hear(self, told: Sequence[IoValue]) -> None:
        """Takes what the controller tells: the opening, and before the first command of a motion what its output is set to."""
        settings = self._settings
        openings = {
            one.name: settings.opening(one.value) for one in told if math.isfinite(one.value)
        }
        if self._wanted is None and settings.output in openings:
            self._start = None if self._is_neutral(told) else within(openings[settings.output], 1.0)
        if settings.feedback is None:
            if self._wanted is None:
                self.state = GripperState(self.wanted)
        elif settings.feedback in openings:
            self.state = GripperState(within(openings[settings.feedback], self.state.opening))
        else:
            self.state = replace(self.state, misses=self.state.misses + 1)

    def read(self) -> GripperState:
        """Returns what was heard."""
        return self.state

    def command(self, opening: float) -> None:
        """Sets the outputs of the next answers; what is no number is left out."""
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
        """Returns what goes along with an answer: nothing before the first command of a motion."""
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
        """Has nothing to close."""
