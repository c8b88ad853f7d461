"""Teleoperation with leader arms: the followers copy joint angles and gripper openings.

Targets pass the mailbox and the safety filter like those of any policy. Nothing moves before
leaders and followers agree. Whenever the leaders fall silent, the filter holds the followers for
any reason, or this loop stood still, the followers hold until both agree again.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.driver_interface.driver import (
    RESTARTED,
    ArmState,
    RestoringDriver,
    RobotNotReadyError,
)
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.lock_step import explain_fault
from stringline.real_robot.safety.reasons import NO_FOLLOWING_ERROR, FollowingError, Mode, Reason

log = logging.getLogger(__name__)

_SILENT_READS = 3
_TARGET_PERIODS = 5  # Without a newer target the last one is due for so long; then the arms hold.
_POLL_S = 0.05
_RESTORE_EVERY_S = 1.0
_ANSWER_S = 1.0  # Longest wait for the answers of all leaders before a motion to their pose.


class Leaders(Protocol):
    """Arms that are only read."""

    @property
    def servos(self) -> tuple[str, ...]:
        """Names of all servos, in the order of the state."""
        ...

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        ...

    def read(self, clock: Callable[[], float]) -> ArmState:
        """Measures; never raises for a state of the arms."""
        ...


@dataclass
class TeleopEpisode:
    """Counts of an episode of teleoperation.

    Attributes:
        pauses: Number of holds because the leaders fell silent, the filter had a reason, or the
            loop stood still.
        late: Cycles that the device process skipped.
        counts: Cycles in which each reason of the safety filter acted.
        following: Distance of commands to faster targets.
        fault: Reasons of the fault that ended the episode; empty without one.
    """

    seconds: float = 0.0
    targets: int = 0
    pauses: int = 0
    late: int = 0
    counts: Mapping[Reason, int] = field(default_factory=dict)
    following: FollowingError = NO_FOLLOWING_ERROR
    fault: list[str] = field(default_factory=list)


class Teleoperation:
    """Couples leaders and followers.

    Args:
        leaders: Connected leaders.
        device: Device process of the followers: connected and armed, in real time.
        agree: Largest distance (rad) of a revolute joint between leader and follower when they are
            coupled.
        agree_opening: That of a gripper, in openings. A leader that is as closed as its follower's
            goal agrees, also if an object keeps the follower open.
    """

    def __init__(
        self,
        leaders: Leaders,
        device: DeviceProcess,
        embodiment: Embodiment,
        *,
        control_hz: float = 50.0,
        agree: float = 0.3,
        agree_opening: float = 0.3,
    ) -> None:
        if not min(control_hz, agree, agree_opening) > 0:
            raise ValueError(
                f"control_hz is {control_hz}, agree {agree} and agree_opening {agree_opening}; all "
                f"must be above 0."
            )
        self._leaders = leaders
        self._device = device
        self._embodiment = embodiment
        self._period_s = 1.0 / control_hz
        grippers = list(embodiment.grippers.values())
        self._allowed = np.full(len(embodiment.joints), agree)
        self._allowed[grippers] = agree_opening
        self._grippers = np.zeros(len(embodiment.joints), dtype=np.bool_)
        self._grippers[grippers] = True
        self._restored_s = -math.inf  # Time of the last try.
        self._target: Vector | None = None
        self._sent_s = 0.0  # Time of the last target.
        self._coupled_tick = 0  # Cycle in which the device process may have got the first target.

    def target_of(self, leader: ArmState) -> Vector:
        """Returns the target (J,): the leaders' joints, clipped to the followers' range."""
        return np.clip(leader.position, self._embodiment.lower, self._embodiment.upper)

    def disagreement(self) -> tuple[float, str]:
        """Returns the largest distance between leader and follower, and its joint.

        The distance is a share of what is allowed. It is infinite if a servo or a port of the
        leaders does not answer, or has restarted, with a sentence about it: the last known pose may
        be old.
        """
        silent: list[str] = []
        for _ in range(_SILENT_READS):
            leader = self._leaders.read(time.monotonic)
            if not (silent := self._silent(leader)):
                return self._distance(self.target_of(leader))
            self._restore(leader)
        return math.inf, silent[0]

    def _restore(self, leader: ArmState) -> None:
        """Sets leaders up again that have restarted, or whose port was lost, once per second."""
        if not _restarted(leader).any() and not leader.lost.any():
            return
        now = time.monotonic()
        if not isinstance(self._leaders, RestoringDriver) or now < self._restored_s:
            return
        log.warning("%s", " ".join(self._silent(leader)))
        try:
            self._leaders.restore()
        except RobotNotReadyError as error:
            log.warning("Leaders: %s", " ".join(error.problems))
        self._restored_s = time.monotonic() + _RESTORE_EVERY_S

    def _silent(self, leader: ArmState) -> list[str]:
        """Returns a sentence for each lost port, and servo without an answer or that restarted."""
        ports = zip(self._leaders.arms, leader.lost, strict=True)
        servos = zip(self._leaders.servos, leader.servo_misses, strict=True)
        found = [_no_answer(f"port of the arm {arm}") for arm, lost in ports if lost]
        found += [_no_answer(servo) for servo, misses in servos if misses]
        restarted = zip(self._leaders.servos, _restarted(leader), strict=True)
        return found + [
            f"{servo} of the leaders has restarted. Check its cable and its power; the followers "
            f"hold until leaders and followers agree again."
            for servo, again in restarted
            if again
        ]

    def _distance(self, target: Vector) -> tuple[float, str]:
        """Returns the largest distance from the followers as a share of what is allowed."""
        state = self._device.latest()
        off = np.abs(target - state.arms.position)
        # A gripper on an object is between its goal and where it is measured.
        low = np.minimum(state.command, state.arms.position)
        high = np.maximum(state.command, state.arms.position)
        held = np.maximum(np.maximum(low - target, target - high), 0.0)
        share = np.where(self._grippers, held, off) / self._allowed
        worst = int(share.argmax())
        return float(share[worst]), self._embodiment.joints[worst].name

    def _describe(self, share: float, joint: str) -> str:
        """Returns how far a joint is away, and what is allowed."""
        index = next(n for n, one in enumerate(self._embodiment.joints) if one.name == joint)
        allowed = self._allowed[index]
        unit = "" if self._grippers[index] else " rad"
        return f"{joint} is {share * allowed:.2f}{unit} away; allowed: {allowed:g}{unit}."

    def wait(
        self, patience_s: float, *, stop: Callable[[], bool], report: Callable[[str], None]
    ) -> bool:
        """Waits for a person to bring the leaders to the followers; returns whether they agree.

        `report` receives a line whenever another joint has the largest distance.
        """
        deadline = time.monotonic() + patience_s
        reported = ""
        while time.monotonic() < deadline and not stop():
            off, joint = self.disagreement()
            if off <= 1.0:
                return True
            if joint != reported:
                report(
                    f"Bring the leaders to the followers: {self._describe(off, joint)}"
                    if math.isfinite(off)
                    else joint
                )
                reported = joint
            time.sleep(_POLL_S)
        return False

    def approach(
        self,
        seconds: float,
        stop: Callable[[], bool] = lambda: False,
        reset: Callable[[list[str]], bool] = lambda _: False,
    ) -> bool:
        """Moves the followers, grippers included, slowly to the leaders.

        Returns whether they have arrived; False after `stop`. For `reset` see `Approach`.

        Raises:
            RobotNotReadyError: A servo or a port of the leaders does not answer.
            RuntimeError: The safety filter reports a fault that is not reset, or the followers do
                not arrive.
        """
        leader = self._answered(stop)
        if leader is None:
            return False
        approach = Approach(self._device, self._embodiment, reset=reset)
        return approach.to(self.target_of(leader), seconds, "the pose of the leaders", stop)

    def _answered(self, stop: Callable[[], bool]) -> ArmState | None:
        """Reads until all leaders answer; returns None after `stop`."""
        deadline = time.monotonic() + _ANSWER_S
        while not stop():
            leader = self._leaders.read(time.monotonic)
            if not (silent := self._silent(leader)):
                return leader
            if time.monotonic() > deadline:
                raise RobotNotReadyError(silent)
            self._restore(leader)
            time.sleep(_POLL_S)
        return None

    def run(
        self,
        seconds: float,
        *,
        stop: Callable[[], bool],
        record: Callable[[DeviceState, Vector], None],
        report: Callable[[DeviceState, float], None],
    ) -> TeleopEpisode:
        """Lets the leaders lead until the time is over, `stop`, or a fault.

        Raises:
            ValueError: Leaders and followers do not agree at the beginning, or a leader does not
                answer.
        """
        self._device.begin()
        off, joint = self.disagreement()
        if math.isinf(off):
            raise ValueError(joint)
        if off > 1.0:
            raise ValueError(
                f"Leader and follower do not agree: {self._describe(off, joint)} Bring the "
                "leaders there, or let the followers move slowly to them "
                "(robot.teleoperation.approach_s=4)."
            )
        self._target = None
        start = due = time.monotonic()
        episode = TeleopEpisode()
        while True:
            state = self._device.latest()
            episode.seconds = time.monotonic() - start
            episode.counts = state.counts
            episode.following = state.following
            episode.late = state.late
            report(state, episode.seconds)
            if state.mode is Mode.FAULT:
                episode.fault = explain_fault(state, self._device)
                return episode
            if episode.seconds >= seconds or stop():
                return episode
            if (target := self._lead(state, episode)) is not None:
                record(state, target)
            due = max(due + self._period_s, time.monotonic() - self._period_s)
            time.sleep(max(0.0, due - time.monotonic()))

    def _lead(self, state: DeviceState, episode: TeleopEpisode) -> Vector | None:
        """Sends the target of this period and returns it; None if the followers must hold.

        After a hold, and after a target whose life has ended, leaders and followers must agree
        again.
        """
        leader = self._leaders.read(time.monotonic)
        gone = leader.lost.any() or _restarted(leader).any()
        if self._held(state) or gone or leader.servo_misses.max() >= _SILENT_READS:
            self._pause(episode)
            self._restore(leader)
            return None
        target = self.target_of(leader)
        before = self._target
        if before is None or time.monotonic() > self._sent_s + _TARGET_PERIODS * self._period_s:
            if self._distance(target)[0] > 1.0:
                self._pause(episode)
                return None
            before = self._recoupled()
        # A ramp from the target before to this one within a period: no steps, but 20 ms later.
        due = leader.time + self._period_s * np.arange(_TARGET_PERIODS + 1, dtype=np.float64)
        self._device.send(
            ActionChunk(due, np.stack([before, *[target] * _TARGET_PERIODS]).astype(np.float32))
        )
        self._note_sent(target)
        episode.targets += 1
        return target

    def _recoupled(self) -> Vector:
        """Forgets the target before; returns the command (J,) from which the next one departs."""
        self._target = None
        return self._device.latest().command

    def _note_sent(self, target: Vector) -> None:
        self._sent_s = time.monotonic()
        if self._target is None:
            # The cycle that runs now may have looked for targets before this one was sent.
            self._coupled_tick = self._device.latest().tick + 1
        self._target = target

    def _held(self, state: DeviceState) -> bool:
        """Returns whether the filter holds the followers.

        It also holds until it has got the first target after a pause; that is not another pause.
        """
        if state.mode is not Mode.HOLD:
            return False
        received = self._target is not None and state.tick > self._coupled_tick
        return received or not state.reasons & Reason.STARVED

    def _pause(self, episode: TeleopEpisode) -> None:
        episode.pauses += self._target is not None
        self._target = None


def _no_answer(name: str) -> str:
    return f"{name} of the leaders does not answer. Check its cable and its power."


def _restarted(leader: ArmState) -> NDArray[np.bool_]:
    """Returns which servos (S,) have restarted since they were set up."""
    return np.asarray((leader.servo_error & RESTARTED) != 0)
