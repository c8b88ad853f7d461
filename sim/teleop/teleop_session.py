"""A teleoperation session: a world that a person steers, in steps of one control period.

The session depends on neither pages nor clocks: `tick` is one period, and buttons are methods. A
person's takes are recorded into an episode store; each is kept or discarded. `Rate` gives steps in
real time, without catching up on a machine that is too slow.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import WHOLE
from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.files.atomic import NoSpaceError
from stringline.datasets.store.episode import INTERVENTIONS, EpisodeAttributes
from stringline.datasets.store.episode_writer import EpisodeWriter
from stringline.datasets.store.store import EpisodeStore
from stringline.policies.remote.protocol import RemoteError
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.environment.environment import StepResult, TaskEnvironment
from stringline.sim.statistics.intervals import Attempt
from stringline.sim.teleop.steering import Speeds, Steering
from stringline.sim.teleop.taking_over import ActingPolicy, HoldToRun

SOURCE = "teleoperation"


class TakeRecorder:
    """Records the takes of one session.

    The store at `path` is made if it does not exist; recipe, contract, instruction and stages are
    those of the world; the instruction may be changed between takes. `kept` are the names of the
    kept episodes.

    Raises:
        ValueError: The folder is not a store, or cannot be written.
        NoSpaceError: The disk is full.
    """

    def __init__(
        self,
        path: str | Path,
        recipe: Recipe,
        contract: Contract,
        instruction: str,
        stages: tuple[str, ...],
    ) -> None:
        self._recipe = recipe
        self._contract = contract
        self.instruction = instruction
        self._stages = stages
        self.store = _writable_store(Path(path), self._attributes(0))
        self.kept = list[str]()
        self.store.remove_leftovers()
        self._writer: EpisodeWriter | None = None
        self._steps = 0

    @property
    def open(self) -> bool:
        """Whether a take is being recorded, or is over and neither kept nor discarded."""
        return self._writer is not None

    @property
    def steps(self) -> int:
        """Length of the open take, control periods."""
        return self._steps if self.open else 0

    def free_seed(self, first: int) -> int:
        """Returns the first seed from `first` on without an episode of this task in the store."""
        taken = self.store.seeds(self._recipe.task)
        seed = first
        while seed in taken:
            seed += 1
        return seed

    def begin(self, seed: int, drawn: Mapping[str, Any] | None = None) -> None:
        """Opens a take of a seed with what it has drawn; an open take is discarded."""
        self.discard()
        self._writer = self.store.writer(self._attributes(seed, drawn))
        self._steps = 0

    def add(self, observation: Mapping[str, Array], action: Array) -> None:
        """Appends a step: an observation and the action (A,) that followed it.

        Raises:
            ValueError: The step does not fit the contract; the take is discarded.
            NoSpaceError: The disk is full; the take is discarded.
        """
        assert self._writer is not None, "call begin first"
        try:
            self._writer.step(observation, action)
        except (ValueError, OSError):
            self.discard()
            raise
        self._steps += 1

    def keep(self, success: bool, extra: Mapping[str, Any] | None = None) -> str:
        """Adds the open take to the store, atomically, and returns the episode's name.

        `extra` adds to its attributes.

        Raises:
            ValueError: There is no take, or it has no step.
            OSError: The episode cannot be written; the take is discarded.
        """
        if self._writer is None or not self._steps:
            raise ValueError("There is no take to keep: nothing has been recorded.")
        with self._writer as writer:  # Leaving it without a commit discards the take.
            self._writer = None
            name = writer.commit(success, extra)
        self.kept.append(name)
        return name

    def discard(self) -> bool:
        """Deletes the open take; returns whether there was one."""
        writer = self._writer
        self._writer = None
        if writer is not None:
            writer.discard()
        return writer is not None

    def _attributes(self, seed: int, drawn: Mapping[str, Any] | None = None) -> EpisodeAttributes:
        extra: dict[str, Any] = {"recipe": self._recipe.described(), "stages": list(self._stages)}
        if drawn:
            extra["drawn"] = dict(drawn)
        return EpisodeAttributes(
            self._contract, self._recipe.task, seed, None, SOURCE, self.instruction, extra
        )


def _writable_store(path: Path, attributes: EpisodeAttributes) -> EpisodeStore:
    """Opens or makes a store, and writes to it, so that errors appear before the first take."""
    try:
        store = EpisodeStore.create(path)
        store.writer(attributes).discard()
    except NoSpaceError:
        raise
    except OSError as error:
        raise ValueError(
            f"The store {path} cannot be written ({error.strerror}). Choose another folder: "
            "store=..."
        ) from error
    return store


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
            raise ValueError(f"longest_s must be a number above 0 (got {self.longest_s}).")


@dataclass
class TeleopSession:
    """Steers a world and records takes.

    A take begins at the start of its seed's episode, so that its seed and actions reproduce it. A
    policy acts in takes, and a person can take over; outside of takes the arms hold.

    Attributes:
        world: World of the task; its first episode begins at once.
        recorder: Recorder of takes.
        options: Task options of every episode.
        seed: Seed of the current episode.
        speeds: Speed limits of the arms.
        stop_conditions: Conditions that end a take.
        policy: Acts in takes; if None, the person does.
        held: Permits the motions of a person who has taken over.
        by_hand: Whether a person has taken over.
        attempts: Kept takes of the policy.
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
    policy: ActingPolicy | None = None
    held: HoldToRun = field(init=False, default_factory=HoldToRun)
    by_hand: bool = field(init=False, default=False)
    attempts: list[Attempt] = field(init=False, default_factory=list)
    steering: Steering = field(init=False)
    phase: Phase = field(init=False, default=Phase.FREE)
    result: StepResult = field(init=False)
    notice: str = field(init=False, default="")
    images: dict[str, Array] = field(init=False, default_factory=dict)
    _hands: list[list[int]] = field(init=False, default_factory=list)
    _joins: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        """Begins the first episode that is not in the store."""
        self.steering = Steering(self.world.embodiment, self.world.contract.control_hz, self.speeds)
        self._begin(self.recorder.free_seed(self._checked_seed(self.seed)))

    def tick(self, *, watched: bool = False) -> None:
        """Advances the world by one control period; if `watched`, images are updated.

        Takes always have images.
        """
        # In the type of the store, so that a replay is identical.
        action = self._action().astype(np.float32)
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

    def _action(self) -> Vector:
        """Returns the joint targets (J,) of this control period."""
        if self.policy is None or (self.by_hand and self.held.held):
            return self.steering.step()
        if self.by_hand or self.phase is not Phase.RECORDING:
            return self.steering.q
        before = self.steering.q
        try:
            action = self.policy.action(self.world)
        except (ValueError, RemoteError) as error:
            self.take_over()
            self.notice = f"{error} The arms hold; you lead, or the policy is asked again."
            return before
        self.steering.reset(self._joined(before, action))
        return self.steering.q

    def _joined(self, before: Vector, action: Vector) -> Vector:
        """Returns an action of the policy; its first ones are approached at a bounded speed."""
        if self._joins:
            limits = self.world.embodiment.velocity_limits / self.world.contract.control_hz
            most = self.speeds.joints * limits
            self._joins = bool((np.abs(action - before) > most).any())
            action = before + np.clip(action - before, -most, most)
        return action

    def take_over(self) -> None:
        """Lets a person lead in place of the policy, from the present targets on."""
        if self.policy is None or self.phase is not Phase.RECORDING:
            raise ValueError("There is no policy to take over from: press Record first.")
        if not self.by_hand:
            self.by_hand = True
            self._hands.append([self.recorder.steps, self.recorder.steps])

    def give_back(self) -> None:
        """Lets the policy continue with a new plan."""
        if self.policy is None or not self.by_hand:
            raise ValueError("The policy acts already, or there is none; nobody has taken over.")
        self.policy.begin(self.seed)
        self._close_hand()
        self._joins = True

    def _close_hand(self) -> None:
        """Notes the end of an intervention; one without a step is none."""
        if self.by_hand:
            first, _ = self._hands.pop()
            if (last := self.recorder.steps) > first:
                self._hands.append([first, last])
        self.by_hand = False

    def instruct(self, instruction: str) -> None:
        """Gives the policy another instruction, from the next take on.

        Raises:
            ValueError: There is no policy, a take is open, or the policy does not know it.
        """
        if self.policy is None:
            raise ValueError("An instruction is for a policy, and there is none.")
        self._check_no_take("change the instruction")
        before = self.policy.instruction
        self.policy.instruction = instruction
        try:
            self.policy.begin(self.seed)
        except ValueError:
            self.policy.instruction = before
            raise
        self.recorder.instruction = instruction

    def record(self, seed: int | None = None) -> None:
        """Begins the episode of a seed, by default the same one again, and a take of it."""
        self._check_no_take("record another one")
        seed = self._checked_seed(seed)
        if self.policy is not None:
            self.policy.begin(seed)
        self._begin(seed)
        self.recorder.begin(seed, self.world.drawn)
        self.phase = Phase.RECORDING

    def keep(self, success: bool | None = None) -> str:
        """Adds the take to the store, goes on to the next seed, and returns the episode's name.

        `success` is the label of a person; if None, the task decides.

        Raises:
            ValueError: There is no take, or it has no step.
            OSError: The episode cannot be written; the take is lost.
        """
        steps = self.recorder.steps
        success = self._success if success is None else success
        if steps:
            self._close_hand()
        about = {} if self.policy is None else {INTERVENTIONS: self._hands}
        try:
            name = self.recorder.keep(success, about)
        finally:
            self.phase = self.phase if self.recorder.open else Phase.FREE
        if self.policy is not None:
            self.attempts.append(Attempt(self.policy.instruction, success, bool(self._hands)))
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
        self.by_hand = False
        self._hands = []
        self._joins = False
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
            raise ValueError(f"The seed must be {WHOLE} (got {seed}).")
        return seed

    def _check_no_take(self, next_step: str) -> None:
        if self.recorder.open:
            raise ValueError(f"A take is open; keep it or discard it, then {next_step}.")


LEAST_REST_S = 1e-3  # Time for other threads in every period.
MOST_BEHIND_S = 0.1  # Delays beyond this are not made up for: the world would rush.
SMOOTHING = 0.98


class Rate:
    """Keeps a rate by waiting for the end of each period.

    Args:
        hz: Periods per second.
        clock: Returns the time, seconds.
        sleep: Waits for a time, seconds.
    """

    def __init__(
        self,
        hz: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._period = 1.0 / hz
        self._clock = clock
        self._sleep = sleep
        self._next = self._last = clock()
        self._mean = self._period

    @property
    def speed(self) -> float:
        """Mean rate of the last second or so as a share of `hz`; 1 if the machine keeps up."""
        return self._period / self._mean

    def wait(self) -> None:
        """Waits for the end of the period that began with the last call."""
        self._next += self._period
        now = self._clock()
        self._sleep(max(self._next - now, LEAST_REST_S))
        now = self._clock()
        self._next = max(self._next, now - MOST_BEHIND_S)
        self._mean = SMOOTHING * self._mean + (1 - SMOOTHING) * (now - self._last)
        self._last = now
