"""Values that arrive some steps after they were captured."""

from collections import deque
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Delayed(Generic[Value]):
    """A line of captured values on their way; at first the earliest one stands in for those that have not arrived yet.

    Args:
        steps: How many steps a value takes to arrive.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._line: deque[tuple[int, Value]] = deque()

    def clear(self) -> None:
        """Forgets everything."""
        self._line.clear()

    @property
    def captured(self) -> int | None:
        """The step of the latest capture, or None."""
        return self._line[-1][0] if self._line else None

    def put(self, step: int, value: Value) -> None:
        """Captures a value at a step, in place of an earlier one of the same step; steps do not go back."""
        if self.captured == step:
            self._line.pop()
        self._line.append((step, value))
        self.at(step)

    def at(self, step: int) -> Value:
        """Returns the latest value that has arrived by that step, and forgets those before it."""
        while len(self._line) > 1 and self._line[1][0] <= step - self.steps:
            self._line.popleft()
        return self._line[0][1]


def delay_steps(name: str, seconds: float, control_hz: float) -> int:
    """Returns how many control periods a delay takes.

    Raises:
        ValueError: It is negative, or no multiple of the control period.
    """
    steps = seconds * control_hz
    if not 0 <= steps < float("inf") or abs(steps - round(steps)) > 1e-6:
        raise ValueError(f"{name} is {seconds} s; allowed: 0 and the multiples of the control period ({1 / control_hz:g} s).")
    return round(steps)
