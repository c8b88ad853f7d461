"""A world that somebody steers: it runs in steps of one control period, and what happens in it is recorded on demand.

It knows neither pages nor clocks: `tick` is one period, and buttons are methods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from stringline.datasets.contract.arguments import WHOLE
from stringline.datasets.contract.contract import Array
from stringline.sim.environment.environment import StepResult, TaskEnvironment
from stringline.sim.teleop.steering import Speeds, Steering
from stringline.sim.teleop.take_recorder import Takes


class Phase(StrEnum):
    """What becomes of what happens."""

    FREE = "not recording"
    RECORDING = "recording"
    OVER = "over: keep it or discard it"


@dataclass(frozen=True)
class Rules:
    """When a take ends by itself.

    Attributes:
        longest_s: Its longest time.
        end_on_success: Whether it ends when the task is done, as takes of scripted experts do.
    """

    longest_s: float = 300.0
    end_on_success: bool = True

    def __post_init__(self) -> None:
        """Refuses takes without a step."""
        if not self.longest_s > 0:
            raise ValueError(f"longest_s is {self.longest_s}; it must be above 0.")


@dataclass
class Operation:
    """Steers a world and records takes.

    A take begins at the beginning of its seed's episode, so the seed and the actions are enough to
    make it happen again.

    Attributes:
        world: Of the task; an episode of it begins at once.
        takes: Where they go.
        options: Of the task, in every episode.
        seed: Of the episode that runs.
        speeds: Of the arms.
        rules: When a take ends by itself.
        steering: What is asked of the arms.
        phase: What becomes of what happens.
        result: What the last period led to.
        notice: The last thing that the person should know, in words.
        images: The latest (H, W, 3) by camera, empty until somebody looks or records.
    """

    world: TaskEnvironment
    takes: Takes
    options: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    speeds: Speeds = field(default_factory=Speeds)
    rules: Rules = field(default_factory=Rules)
    steering: Steering = field(init=False)
    phase: Phase = field(init=False, default=Phase.FREE)
    result: StepResult = field(init=False)
    notice: str = field(init=False, default="")
    images: dict[str, Array] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Begins the first episode that the store does not have yet."""
        self.steering = Steering(self.world.embodiment, self.world.contract.control_hz, self.speeds)
        self._begin(self.takes.free_seed(self._checked(self.seed)))

    def tick(self, *, watched: bool = False) -> None:
        """Moves the world by one control period.

        Args:
            watched: Whether somebody sees the cameras' images; a take is recorded with them in any
                case.
        """
        action = self.steering.step().astype(
            np.float32
        )  # As it is stored, so that a replay does the very same.
        if self.phase is Phase.RECORDING:
            self._record(action)
        elif watched and self.world.frame_due:
            self._keep_images(self.world.observe())
        self.result = self.world.advance(action)
        if (
            self.result.unstable and self.phase is not Phase.OVER
        ):  # A take that is over is not lost by what comes after it.
            lost = " The take is discarded." if self.takes.discard() else ""
            self._begin(self.seed)
            self.notice = f"The physics became unstable; the episode begins again.{lost}"
        elif self.phase is Phase.RECORDING:
            self._success = self.result.success
            self._end_when_due()

    def record(self, seed: int | None = None) -> None:
        """Begins the episode of a seed, by default the same one again, and a take of it.

        Raises:
            ValueError: A take is open, or the seed is below 0.
            NoSpaceError: The disk is full.
        """
        self._require_no_take("record another one")
        seed = self._checked(seed)
        self.takes.begin(seed)
        self._begin(seed)
        self.phase = Phase.RECORDING

    def keep(self) -> str:
        """Makes the take an episode of the store, and goes on to the next seed; returns the episode's name.

        Raises:
            ValueError: There is no take, or nothing in it.
            OSError: It cannot be written; the take is lost.
        """
        steps = self.takes.steps
        success = self._success
        try:
            name = self.takes.keep(success)
        finally:
            self.phase = self.phase if self.takes.open else Phase.FREE
        self._begin(self.takes.free_seed(self.seed + 1))
        seconds = steps / self.world.contract.control_hz
        self.notice = f"Kept {name}: {seconds:.1f} s, {'a success' if success else 'no success'}."
        return name

    def discard(self) -> None:
        """Forgets the take, and begins its episode again.

        Raises:
            ValueError: There is none.
        """
        if not self.takes.discard():
            raise ValueError("There is nothing to discard: nothing is being recorded.")
        self._begin(self.seed)
        self.notice = "Discarded."

    def reset(self, seed: int | None = None) -> None:
        """Begins the episode of a seed, by default of the same one.

        Raises:
            ValueError: A take is open, or the seed is below 0.
        """
        self._require_no_take("reset")
        self._begin(self._checked(seed))

    def _begin(self, seed: int) -> None:
        self.seed = seed
        self.phase = Phase.FREE
        self.notice = ""
        self.world.begin(seed, self.options)
        self.steering.reset(self.world.embodiment.home)
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
            self.takes.add({**observation, **extra}, action)
        except OSError as error:
            self.phase = Phase.FREE
            self.notice = f"{error.strerror}. The take is discarded."

    def _end_when_due(self) -> None:
        if self.result.success and self.rules.end_on_success:
            self.phase = Phase.OVER
            self.notice = "Done!"
        elif self.world.time >= self.rules.longest_s - 1e-9:
            self.phase = Phase.OVER
            self.notice = f"The take has reached {self.rules.longest_s:g} s."

    def _keep_images(self, observation: Mapping[str, Array]) -> None:
        self.images = {
            camera.name: observation[f"rgb/{camera.name}"] for camera in self.world.contract.cameras
        }

    def _checked(self, seed: int | None) -> int:
        seed = self.seed if seed is None else seed
        if seed not in WHOLE:
            raise ValueError(f"The seed is {seed}; allowed: {WHOLE}.")
        return seed

    def _require_no_take(self, wish: str) -> None:
        if self.takes.open:
            raise ValueError(f"A take is open; keep it or discard it, then {wish}.")
