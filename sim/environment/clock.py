"""The clock of an episode: times of camera frames, and observations with a delay."""

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import numpy as np

from stringline.datasets.contract.argument_checks import POSITIVE
from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import Embodiment, Vector

Value = TypeVar("Value")


class Delayed(Generic[Value]):
    """A queue of values captured `steps` ago; until one has arrived, the earliest replaces it."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._line: deque[tuple[int, Value]] = deque()

    def __copy__(self) -> "Delayed[Value]":
        found = Delayed[Value](self.steps)
        found._line = self._line.copy()
        return found

    def clear(self) -> None:
        """Drops all values."""
        self._line.clear()

    @property
    def captured(self) -> int | None:
        """Step of the latest capture, or None."""
        return self._line[-1][0] if self._line else None

    def put(self, step: int, value: Value) -> None:
        """Captures a value at a step; a second value at the same step replaces the first."""
        if self.captured == step:
            self._line.pop()
        self._line.append((step, value))
        self.at(step)

    def at(self, step: int) -> Value:
        """Returns the latest value that has arrived by a step, and drops those before it."""
        while len(self._line) > 1 and self._line[1][0] <= step - self.steps:
            self._line.popleft()
        return self._line[0][1]


def delay_steps(name: str, seconds: float, control_hz: float) -> int:
    """Returns a delay in control periods.

    Raises:
        ValueError: The delay is negative, or not a multiple of the control period.
    """
    steps = seconds * control_hz
    if not 0 <= steps < float("inf") or abs(steps - round(steps)) > 1e-6:
        raise ValueError(
            f"{name} is {seconds} s; allowed: 0 and the multiples of the control period "
            f"({1 / control_hz:g} s)."
        )
    return round(steps)


class FrameSchedule:
    """The clock of an episode, in steps of the control period, and its captured values.

    `look` draws a frame of all cameras, given the seconds since the episode began, and `measure`
    returns the current joints and gripper poses. `observe` returns both after their delays.

    Attributes:
        step: Number of control periods since the episode began.

    Raises:
        ValueError: A rate is not positive, `frame_hz` does not divide `control_hz`, or a delay is
            not a multiple of the control period.
    """

    def __init__(
        self,
        control_hz: float,
        frame_hz: float,
        *,
        look: Callable[[float], Mapping[str, Array]],
        measure: Callable[[], Mapping[str, Array]],
        image_delay_s: float = 0.0,
        joint_delay_s: float = 0.0,
    ) -> None:
        POSITIVE.check(control_hz=control_hz, frame_hz=frame_hz)
        every = control_hz / frame_hz
        if every < 1 or abs(every - round(every)) > 1e-9:
            raise ValueError(f"frame_hz is {frame_hz}; it must divide control_hz ({control_hz}).")
        self.step = 0
        self._control_hz = control_hz
        self._every = round(every)
        self._look = look
        self._measure = measure
        self._frames = Delayed[Mapping[str, Array]](
            delay_steps("image_delay_s", image_delay_s, control_hz)
        )
        self._measured = Delayed[Mapping[str, Array]](
            delay_steps("joint_delay_s", joint_delay_s, control_hz)
        )

    @property
    def time(self) -> float:
        """Seconds since the episode began."""
        return self.step / self._control_hz

    @property
    def frame_due(self) -> bool:
        """Whether a new frame arrives at this step."""
        captured = self.step - self._frames.steps
        return self.step == 0 or (captured > 0 and captured % self._every == 0)

    def begin(self) -> None:
        """Begins an episode, without captured values."""
        self.step = 0
        self._frames.clear()
        self._measured.clear()

    def advance(self) -> None:
        """Counts a period, and captures the values that arrive later, if there are delays."""
        if self._measured.steps:
            self._measured.put(self.step, self._measure())
        if (
            self._frames.steps
            and self.step % self._every == 0
            and self._frames.captured != self.step
        ):
            self._frames.put(self.step, self._look(self.time))
        self.step += 1

    def observe(self, cameras: bool = True) -> dict[str, Array]:
        """Returns time, joints, gripper poses and, with `cameras`, the latest frame.

        The arrays must not be changed.
        """
        self._measured.put(self.step, self._measure())
        observation = {"time": np.asarray(self.time), **self._measured.at(self.step)}
        if cameras:
            since_due = self.step % self._every
            captured = self._frames.captured
            if not since_due or captured is None or captured < self.step - since_due:
                self._frames.put(self.step, self._look(self.time))
            observation |= self._frames.at(self.step)
        return observation


def check_time_limit(seconds: float) -> None:
    """Checks the time limit of episodes, in seconds; it may be infinite.

    Raises:
        ValueError: The limit is not positive.
    """
    if seconds != math.inf:
        POSITIVE.check(time_limit_s=seconds)


def joint_state(
    embodiment: Embodiment, position: Vector, velocity: Vector, effort: Vector
) -> dict[str, Array]:
    """Returns joints (J,), in rad, openings, Nm and N, and their gripper poses by contract keys."""
    poses = embodiment.forward_kinematics(position)
    return {
        "joints/position": position.astype(np.float32),
        "joints/velocity": velocity.astype(np.float32),
        "joints/effort": effort.astype(np.float32),
        **{f"T_base_gripper/{arm}": T.astype(np.float32) for arm, T in poses.items()},
    }
