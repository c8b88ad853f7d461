"""Episodes in real time: the policy plans while the device process follows the plan before.

The environment of emulated arms is reset while their device process runs.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.policies.chunks.chunk import ActionChunk, Session
from stringline.policies.remote.protocol import RemoteUnavailableError
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.emulators.program.emulator_client import (
    Emulator,
    FriEmulator,
    LcmEmulator,
)
from stringline.real_robot.execution.lock_step import explain_fault
from stringline.real_robot.recording.observation_bridge import FrameSource, ObservationAssembler
from stringline.real_robot.safety.reasons import NO_FOLLOWING_ERROR, FollowingError, Mode, Reason

_POLL_S = 0.02
# Largest distance from the measured revolute joints to the first action of an episode. Openings of
# grippers are no angles: a gripper may hold an object, whatever its goal is.
_FIRST_MOVE_RAD = 0.5


@dataclass
class RealTimeEpisode:
    """Counts of an episode in real time.

    Attributes:
        refused: Number of plans that did not fit the embodiment or were too late.
        waits: Number of waits for fresh images.
        waited_for: Number of waits by camera.
        takeovers: Number of times that a person took over.
        counts: Cycles in which each reason of the safety filter acted.
        following: Distance of commands to faster targets.
        late: Cycles that the device process skipped.
        fault: Reasons of the fault that ended the episode; empty without one.
        unavailable: The error of a policy that cannot be reached, which ended the episode; None
            without one.
    """

    seconds: float = 0.0
    plans: int = 0
    refused: int = 0
    waits: int = 0
    waited_for: Counter[str] = field(default_factory=Counter)
    takeovers: int = 0
    answer_ms: list[float] = field(default_factory=list)
    counts: Mapping[Reason, int] = field(default_factory=dict)
    following: FollowingError = NO_FOLLOWING_ERROR
    late: int = 0
    fault: list[str] = field(default_factory=list)
    unavailable: RemoteUnavailableError | None = None

    def note(self, state: DeviceState) -> None:
        """Takes over the counts of the newest state."""
        self.counts = state.counts
        self.following = state.following
        self.late = state.late


class RealTimeRobot:
    """A robot whose device process runs in real time, with torque on.

    Args:
        oldest_frame_s: Largest age of images for a plan; with older ones the arms hold. If None,
            the largest age that the safety filter accepts.
    """

    def __init__(
        self,
        device: DeviceProcess,
        frames: FrameSource,
        contract: Contract,
        embodiment: Embodiment,
        *,
        oldest_frame_s: float | None = None,
    ) -> None:
        self._device = device
        self._frames = frames
        self._contract = contract
        self._revolute = np.array([joint.kind == "revolute" for joint in embodiment.joints])
        self._assembler = ObservationAssembler(contract, embodiment)
        self._oldest_frame_s = (
            device.limits.oldest_image_s if oldest_frame_s is None else oldest_frame_s
        )
        self._begun = 0
        self._followed = False

    def run(
        self,
        session: Session,
        seconds: float,
        *,
        execute_steps: int | None,
        done: Callable[[], bool],
        report: Callable[[DeviceState, float], None],
        planning: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> RealTimeEpisode:
        """Runs the policy until the end of the time, success, a fault, a brake, or its absence.

        Args:
            session: Session of the policy.
            seconds: Longest time.
            execute_steps: Control periods between the observations of two plans; if None, until a
                plan ends.
            done: Returns whether the task is known to be done.
            report: Receives the newest state and the seconds so far, many times a second.
            planning: Returns the context of each plan, such as `poll_while_planning`.

        Raises:
            ValueError: The first action is too far from the measured joints.
            DeviceError: The device process died.
        """
        self._device.begin()
        first = self._device.latest()
        self._begun = first.tick
        self._followed = False
        start = time.monotonic()
        episode = RealTimeEpisode()
        hz = self._contract.control_hz
        due = 0.0
        while True:
            state = self._device.latest()
            now = time.monotonic()
            if state.session != first.session:
                return episode
            episode.seconds = now - start
            episode.note(state)
            report(state, episode.seconds)
            if state.mode is Mode.FAULT:
                episode.fault = explain_fault(state, self._device)
                return episode
            if episode.seconds >= seconds or done():
                return episode
            if now < due:
                time.sleep(min(_POLL_S, due - now))
                continue
            try:
                chunk = self._plan(session, episode, planning)
            except RemoteUnavailableError as error:
                episode.unavailable = error
                return episode
            if chunk:
                due = self._end(chunk) if execute_steps is None else now + execute_steps / hz

    def _end(self, chunk: ActionChunk) -> float:
        """Returns the time at which the last action of a plan ends, s."""
        return float(chunk.time[-1]) + 1.0 / self._contract.control_hz

    def _plan(
        self,
        session: Session,
        episode: RealTimeEpisode,
        planning: Callable[[], AbstractContextManager[object]],
    ) -> ActionChunk | None:
        """Returns a plan of the policy; None without fresh images, after a brake, or too late."""
        frames = self._frames.frames()
        states = self._device.recent()
        age, camera = self._assembler.oldest_frame(frames, time.monotonic())
        if not age <= self._oldest_frame_s:
            episode.waits += 1
            episode.waited_for[camera] += 1
            time.sleep(_POLL_S)
            return None
        observation = self._assembler.build(
            states[-1].arms, [state.arms for state in states[:-1]], frames
        )
        start = time.perf_counter()
        observed_s = float(observation["time"])
        with planning():
            chunk = session.plan(observation)
        episode.answer_ms.append((time.perf_counter() - start) * 1e3)
        episode.plans += 1
        if self._device.latest().session != states[-1].session:
            return None  # The arms were braked meanwhile.
        if time.monotonic() - observed_s > self._device.limits.oldest_plan_s:
            episode.refused += 1  # Too late; the next plan follows at once.
            return None
        if not self._have_followed(states):
            self._check_first(chunk, self._device.latest())
        try:
            self._device.send(chunk, age, observed_s)
        except ValueError:
            episode.refused += 1
        return chunk

    def _have_followed(self, states: Sequence[DeviceState]) -> bool:
        """Returns whether the arms have followed a plan since the first state of this episode."""
        self._followed |= any(
            state.mode is Mode.RUN for state in states if state.tick > self._begun
        )
        return self._followed

    def _check_first(self, chunk: ActionChunk, state: DeviceState) -> None:
        if chunk.action.shape[1:] != state.arms.position.shape:
            return
        if not np.isfinite(chunk.action[0]).all():
            return  # The filter refuses this chunk, so the next one is the first.
        distance = np.abs(chunk.action[0] - state.arms.position) * self._revolute
        worst = int(np.argmax(distance))
        if not distance[worst] <= _FIRST_MOVE_RAD:
            raise ValueError(
                f"The first action of the policy is {distance[worst]:.2f} rad away from the "
                f"measured {self._contract.joints[worst]}; allowed: {_FIRST_MOVE_RAD} rad. Let the "
                "arms move to their home pose first (robot.approach_s=4), or bring them there."
            )


def reset_environment(
    emulator: Emulator, device: DeviceProcess, seed: int, options: Mapping[str, Any]
) -> None:
    """Begins the world of a seed.

    A reset moves the arms, which interrupts the motion of arms with their own controllers and so is
    a fault. So these are disarmed before, and armed again where they then stand. The next episode
    clears faults of the old world.
    """
    if isinstance(emulator, FriEmulator | LcmEmulator):
        device.begin()  # Brakes.
        device.disarm()
        emulator.begin(seed, options)
        device.arm()
    else:
        emulator.begin(seed, options)
    device.new_world = True
