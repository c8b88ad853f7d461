"""Episodes by the clock: the policy plans while the device process follows the plan before."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.policies.chunks.chunk import ActionChunk, Session
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.lock_step import explain_fault
from stringline.real_robot.recording.observation_bridge import FrameSource, ObservationAssembler
from stringline.real_robot.safety.reasons import Mode, Reason

_LOOK_S = 0.02


@dataclass
class LiveEpisode:
    """How an episode by the clock went.

    Attributes:
        seconds: How long it took.
        plans: How often the policy was asked.
        refused: Its answers that were no chunks for this body, or answered an observation of too
            long ago.
        waits: How often planning had to wait for a fresh frame.
        waited_for: The cameras that it waited for, with how often.
        answer_ms: Milliseconds of each answer.
        counts: Cycles in which each reason of the safety filter acted.
        late: Cycles that the device process had to skip.
        fault: Why the safety filter stopped the episode; empty when it did not.
    """

    seconds: float = 0.0
    plans: int = 0
    refused: int = 0
    waits: int = 0
    waited_for: Counter[str] = field(default_factory=Counter)
    answer_ms: list[float] = field(default_factory=list)
    counts: Mapping[Reason, int] = field(default_factory=dict)
    late: int = 0
    fault: list[str] = field(default_factory=list)


class RealTimeRobot:
    """A robot, emulated or not, whose device process runs by the clock, with torque on.

    Args:
        device: Connected and armed.
        frames: Its cameras.
        contract: What the policy sees and does.
        embodiment: The body.
        oldest_frame_s: No plan is made from older images; the arms hold until fresh ones come.
            None: as old as the safety filter accepts.
        first_move: Largest distance (rad, opening) from where the arms are to the first action of
            an episode.
    """

    def __init__(
        self,
        device: DeviceProcess,
        frames: FrameSource,
        contract: Contract,
        embodiment: Embodiment,
        *,
        oldest_frame_s: float | None = None,
        first_move: float = 0.5,
    ) -> None:
        self._device = device
        self._frames = frames
        self._contract = contract
        self._assembler = ObservationAssembler(contract, embodiment)
        self._embodiment = embodiment
        self._first_move = first_move
        self._oldest_frame_s = (
            device.limits.oldest_image_s if oldest_frame_s is None else oldest_frame_s
        )
        self._begun = 0
        self._followed = False

    def approach(self, seconds: float) -> None:
        """Moves the arms to the body's home pose and waits until they are there.

        Args:
            seconds: How long the way takes; the safety filter may make it longer.

        Raises:
            RuntimeError: The safety filter reports a fault, or the arms do not arrive.
        """
        Approach(self._device, self._embodiment).to(
            self._embodiment.home, seconds, "their home pose"
        )

    def run(
        self,
        session: Session,
        seconds: float,
        *,
        execute_steps: int | None,
        done: Callable[[], bool],
        report: Callable[[DeviceState, float], None],
    ) -> LiveEpisode:
        """Runs the policy until the time is over, the task is done, the filter reports a fault, or somebody brakes the arms.

        Args:
            session: Of the policy.
            seconds: Longest time.
            execute_steps: Control periods from one observation that is planned for to the next;
                None: until the plan ends.
            done: Says whether the task is done, as far as anybody knows.
            report: Gets the newest state and the seconds so far, many times a second.

        Raises:
            ValueError: The first action is too far from where the arms are.
            DeviceError: The device process is gone.
        """
        self._device.begin()
        first = self._device.latest()
        self._begun = first.tick
        self._followed = False
        start = time.monotonic()
        episode = LiveEpisode()
        due = 0.0
        while True:
            state = self._device.latest()
            now = time.monotonic()
            if state.session != first.session:
                return episode
            episode.seconds = now - start
            episode.counts = state.counts
            episode.late = state.late
            report(state, episode.seconds)
            if state.mode is Mode.FAULT:
                episode.fault = explain_fault(state, self._device)
                return episode
            if episode.seconds >= seconds or done():
                return episode
            if now < due:
                time.sleep(min(_LOOK_S, due - now))
            elif chunk := self._plan(session, episode):
                period = 1.0 / self._contract.control_hz
                due = (
                    float(chunk.time[-1]) + period
                    if execute_steps is None
                    else now + execute_steps * period
                )

    def _plan(self, session: Session, episode: LiveEpisode) -> ActionChunk | None:
        """Asks the policy, if there is something fresh to show it, and returns its plan."""
        frames = self._frames.frames()
        states = self._device.recent()
        age, camera = self._assembler.oldest_frame(frames, time.monotonic())
        if age > self._oldest_frame_s:
            episode.waits += 1
            episode.waited_for[camera] += 1
            time.sleep(_LOOK_S)
            return None
        observation = self._assembler.build(
            states[-1].arms, [state.arms for state in states[:-1]], frames
        )
        start = time.perf_counter()
        observed_s = float(observation["time"])
        chunk = session.plan(observation)
        episode.answer_ms.append((time.perf_counter() - start) * 1e3)
        episode.plans += 1
        if self._device.latest().session != states[-1].session:
            return None  # The arms were braked meanwhile, and begin anew when somebody says so.
        if time.monotonic() - observed_s > self._device.limits.oldest_plan_s:
            episode.refused += 1  # What it answers is long past; a fresh one is asked for at once.
            return None
        if not self._have_followed(states):
            self._check_first(chunk, self._device.latest())
        try:
            self._device.send(chunk, age, observed_s)
        except ValueError:
            episode.refused += 1
        return chunk

    def _have_followed(self, states: Sequence[DeviceState]) -> bool:
        """Whether the arms have followed a plan in this episode yet; the state that it begins with says nothing of that."""
        self._followed |= any(
            state.mode is Mode.RUN for state in states if state.tick > self._begun
        )
        return self._followed

    def _check_first(self, chunk: ActionChunk, state: DeviceState) -> None:
        if chunk.action.shape[1:] != state.arms.position.shape:
            return
        if not np.isfinite(chunk.action[0]).all():
            return  # The filter refuses it, and the next one is the first.
        distance = np.abs(chunk.action[0] - state.arms.position)
        worst = int(np.argmax(distance))
        if distance[worst] > self._first_move:
            raise ValueError(
                f"The policy wants to begin {distance[worst]:.2f} away from where "
                f"{self._contract.joints[worst]} is; allowed: "
                f"{self._first_move}. Let the arms move to their home pose first "
                f"(robot.approach_s=4), or bring them there."
            )
