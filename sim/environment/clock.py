"""The clock of a world: times of camera frames, and observations that arrive with a delay."""

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import numpy as np

from stringline.datasets.contract.arguments import POSITIVE
from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import Embodiment, Vector

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
        raise ValueError(
            f"{name} is {seconds} s; allowed: 0 and the multiples of the control period "
            f"({1 / control_hz:g} s)."
        )
    return round(steps)


class FrameSchedule:
    """The clock of an episode, in steps of the control period, and what has been captured in it.

    Args:
        control_hz: Steps per second.
        frame_hz: Frames per second.
        look: Draws a frame of all cameras, captured now, which is that many seconds after the
            episode began.
        measure: Returns joints and gripper poses of now.
        image_delay_s: How long a frame takes from its capture until `observe` shows it.
        joint_delay_s: The same for what is measured.

    Attributes:
        step: How many control periods the episode is old.

    Raises:
        ValueError: A rate is none, the rates do not divide, or a delay is no multiple of the
            control period.
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
        """Whether the cameras deliver a new frame at this step."""
        captured = self.step - self._frames.steps
        return self.step == 0 or (captured > 0 and captured % self._every == 0)

    def begin(self) -> None:
        """Begins an episode, in which nothing has been captured yet."""
        self.step = 0
        self._frames.clear()
        self._measured.clear()

    def advance(self) -> None:
        """Counts a period, and keeps what will arrive later; without delays nobody asks for what has not been looked at."""
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
        """Returns time, joints, gripper poses and the latest frame, each as late as its delay says; not to be changed.

        Args:
            cameras: False leaves the frame out.
        """
        self._measured.put(self.step, self._measure())
        observation = {"time": np.asarray(self.time), **self._measured.at(self.step)}
        if cameras:
            since_due = self.step % self._every
            if (
                not since_due
                or self._frames.captured is None
                or self._frames.captured < self.step - since_due
            ):
                self._frames.put(self.step, self._look(self.time))
            observation |= self._frames.at(self.step)
        return observation


def demand_time_limit(seconds: float) -> None:
    """Does nothing if an episode may be that long; it may also go on for ever.

    Raises:
        ValueError: It would be over before it begins.
    """
    if seconds != math.inf:
        POSITIVE.check(time_limit_s=seconds)


def joint_state(
    body: Embodiment, position: Vector, velocity: Vector, effort: Vector
) -> dict[str, Array]:
    """Returns joints (J,) and the gripper poses that belong to them, as the contract has them: rad and openings, Nm and N."""
    return {
        "joints/position": position.astype(np.float32),
        "joints/velocity": velocity.astype(np.float32),
        "joints/effort": effort.astype(np.float32),
        **{
            f"T_base_gripper/{arm}": T.astype(np.float32)
            for arm, T in body.forward_kinematics(position).items()
        },
    }
