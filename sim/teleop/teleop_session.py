"""A teleoperation session: a world that a person steers, in steps of one control period.

The session depends on neither pages nor clocks: `tick` is one period, and buttons are methods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import WHOLE
from stringline.datasets.contract.contract import Array
from stringline.sim.environment.environment import StepResult, TaskEnvironment
from stringline.sim.teleop.steering import Speeds, Steering
from stringline.sim.teleop.take_recorder import TakeRecorder


class Phase(StrEnum):
    """The state of the recording."""

    FREE = "not recording"
    RECORDING = "recording"
    OVER = "over: keep it or discard it"


@dataclass(frozen=True)
class StopConditions:
    """The conditions that end a take.

    Attributes:
        longest_s: Largest duration, seconds.
        end_on_success: Whether a take ends when the task is done, as episodes of experts do.
    """

    longest_s: float = 300.0
    end_on_success: bool = True

    def __post_init__(self) -> None:
        """Checks the duration."""
        if not self.longest_s > 0:
            raise ValueError(f"longest_s is {self.longest_s}; allowed: above 0.")


@dataclass
class TeleopSession:
    """Steers a world and records takes.

    A take begins at the start of its seed's episode, so that its seed and actions reproduce it.

    Attributes:
        world: World of the task; its first episode begins at once.
        recorder: Recorder of takes.
        options: Task options of every episode.
        seed: Seed of the current episode.
        speeds: Speed limits of the arms.
        stop_conditions: Conditions that end a take.
        steering: Targets of the arms.
        phase: State of the recording.
        result: Result of the last control period.
        notice: Latest message to the person.
        images: Latest images (H, W, 3) by camera, empty until the first visitor or take.
    """

    world: TaskEnvironment
    recorder: TakeRecorder
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    speeds: Speeds = field(default_factory=Speeds)
    stop_conditions: StopConditions = field(default_factory=StopConditions)
    steering: Steering = field(init=False)
    phase: Phase = field(init=False, default=Phase.FREE)
    result: StepResult = field(init=False)
    notice: str = field(init=False, default="")
    images: dict[str, Array] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Begins the first episode that is not in the store."""
        self.steering = Steering(self.world.embodiment, self.world.contract.control_hz, self.speeds)
        self._begin(self.recorder.free_seed(self._checked_seed(self.seed)))

    def tick(self, *, watched: bool = False) -> None:
        """Advances the world by one control period; if `watched`, images are updated.

        Takes always have images.
        """
        # In the type of the store, so that a replay is identical.
        action = self.steering.step().astype(np.float32)
        if self.phase is Phase.RECORDING:
            self._record(action)
        elif watched and self.world.frame_due:
            self._keep_images(self.world.observe())
        self.result = self.world.advance(action)
        # A take that is over is not affected by what follows it.
        if self.result.unstable and self.phase is not Phase.OVER:
            lost = " The take is discarded." if self.recorder.discard() else ""
            self._begin(self.seed)
            self.notice = f"The physics became unstable; the episode begins again.{lost}"
        elif self.phase is Phase.RECORDING:
            self._success = self.result.success
            self._end_when_due()

    def record(self, seed: int | None = None) -> None:
        """Begins the episode of a seed, by default the same one again, and a take of it."""
        self._check_no_take("record another one")
        seed = self._checked_seed(seed)
        self._begin(seed)
        self.recorder.begin(seed, self.world.drawn)
        self.phase = Phase.RECORDING

    def keep(self) -> str:
        """Adds the take to the store, goes on to the next seed, and returns the episode's name.

        Raises:
            ValueError: There is no take, or it has no step.
            OSError: The episode cannot be written; the take is lost.
        """
        steps = self.recorder.steps
        success = self._success
        try:
            name = self.recorder.keep(success)
        finally:
            self.phase = self.phase if self.recorder.open else Phase.FREE
        self._begin(self.recorder.free_seed(self.seed + 1))
        seconds = steps / self.world.contract.control_hz
        self.notice = f"Kept {name}: {seconds:.1f} s, {'a success' if success else 'no success'}."
        return name

    def discard(self) -> None:
        """Deletes the take, and begins its episode again."""
        if not self.recorder.discard():
            raise ValueError("There is no take to discard: nothing is being recorded.")
        self._begin(self.seed)
        self.notice = "Discarded."

    def reset(self, seed: int | None = None) -> None:
        """Begins the episode of a seed, by default of the same one."""
        self._check_no_take("reset")
        self._begin(self._checked_seed(seed))

    def _begin(self, seed: int) -> None:
        self.seed = seed
        self.phase = Phase.FREE
        self.notice = ""
        self.world.begin(seed, self.options)
        self.steering.reset(self.world.start)
        self.result = StepResult(success=False, stage=0, time=0.0, expired=False)
        self._success = False

    def _record(self, action: Array) -> None:
        due = self.world.frame_due
        observation = self.world.observe(cameras=due)
        if due:
            self._keep_images(observation)
        extra = {
            "stage": np.asarray(self.world.task.stage, np.int32),
            "sim/state": self.world.physics.get_state(),
        }
        try:
            self.recorder.add({**observation, **extra}, action)
        except OSError as error:
            self.phase = Phase.FREE
            self.notice = f"{error.strerror}. The take is discarded."

    def _end_when_due(self) -> None:
        if self.result.success and self.stop_conditions.end_on_success:
            self.phase = Phase.OVER
            self.notice = "Done!"
        elif self.world.time >= self.stop_conditions.longest_s - 1e-9:
            self.phase = Phase.OVER
            self.notice = f"The take has reached {self.stop_conditions.longest_s:g} s."

    def _keep_images(self, observation: Mapping[str, Array]) -> None:
        self.images = {
            camera.name: observation[f"rgb/{camera.name}"] for camera in self.world.contract.cameras
        }

    def _checked_seed(self, seed: int | None) -> int:
        seed = self.seed if seed is None else seed
        if seed not in WHOLE:
            raise ValueError(f"The seed is {seed}; allowed: {WHOLE}.")
        return seed

    def _check_no_take(self, next_step: str) -> None:
        if self.recorder.open:
            raise ValueError(f"A take is open; keep it or discard it, then {next_step}.")
