"""Leader arms in a person's hands drive the followers: same hinge angles, same opening of the grippers, 50 targets per second.

Targets go through the mailbox and the safety filter like those of any policy. Nothing moves before
leaders and followers agree, and whenever the leaders fall silent, or the filter holds the followers
for any reason, they hold until both agree again.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.execution.approach import Approach
from stringline.real_robot.execution.lock_step import explain_fault
from stringline.real_robot.safety.reasons import Mode, Reason

_SILENT_READS = 3
_HELD_PERIODS = (
    5  # A target stays due for so long when no newer one comes; then the followers hold.
)
_LOOK_S = 0.05


class Leaders(Protocol):
    """Arms that are only read."""

    def read(self, clock: Callable[[], float]) -> ArmState:
        """Measures; never raises for what the arms do."""
        ...


@dataclass
class LedEpisode:
    """How an episode of teleoperation went.

    Attributes:
        seconds: How long it took.
        targets: Sent to the followers.
        pauses: How often the followers had to hold because the leaders fell silent, or the filter
            had a reason.
        late: Cycles that the device process had to skip.
        counts: Cycles in which each reason of the safety filter acted.
        fault: Why the safety filter stopped the episode; empty when it did not.
    """

    seconds: float = 0.0
    targets: int = 0
    pauses: int = 0
    late: int = 0
    counts: Mapping[Reason, int] = field(default_factory=dict)
    fault: list[str] = field(default_factory=list)


class Teleoperation:
    """Couples leaders and followers.

    Args:
        leaders: Connected.
        device: Of the followers: connected and armed, by the clock.
        embodiment: The followers' body.
        control_hz: Targets per second.
        agree: Largest distance (rad) of any hinge between leader and follower at which coupling
            begins.
    """

    def __init__(
        self,
        leaders: Leaders,
        device: DeviceProcess,
        embodiment: Embodiment,
        *,
        control_hz: float = 50.0,
        agree: float = 0.3,
    ) -> None:
        if not control_hz > 0 or not agree > 0:
            raise ValueError(f"control_hz is {control_hz} and agree {agree}; both must be above 0.")
        self._leaders = leaders
        self._device = device
        self._embodiment = embodiment
        self._period_s = 1.0 / control_hz
        self._agree = agree
        self._hinges = np.concatenate([embodiment.hinges[arm] for arm in embodiment.arms])
        self._target: Vector | None = None

    def target_of(self, leader: ArmState) -> Vector:
        """Returns the followers' target (J,): the leaders' joints, inside the followers' range, which is smaller in places."""
        return np.clip(leader.position, self._embodiment.lower, self._embodiment.upper)

    def disagreement(self) -> tuple[float, str]:
        """Returns the largest distance in rad between a leader's hinge and the follower's, and the joint."""
        return self._apart(self.target_of(self._leaders.read(time.monotonic)))

    def _apart(self, target: Vector) -> tuple[float, str]:
        off = np.abs(target - self._device.latest().arms.position)[self._hinges]
        return float(off.max()), self._embodiment.joints[int(self._hinges[off.argmax()])].name

    def wait(
        self, patience_s: float, *, stop: Callable[[], bool], say: Callable[[str], None]
    ) -> bool:
        """Waits until a person has brought the leaders to where the followers are; returns whether that happened.

        Args:
            patience_s: Longest wait.
            stop: Ends the wait.
            say: Gets a line whenever another joint is the worst.
        """
        deadline = time.monotonic() + patience_s
        told = ""
        while time.monotonic() < deadline and not stop():
            off, joint = self.disagreement()
            if off <= self._agree:
                return True
            if joint != told:
                say(
                    f"Bring the leaders to the followers: {joint} is {off:.2f} rad away; "
                    f"{self._agree} rad will do."
                )
                told = joint
            time.sleep(_LOOK_S)
        return False

    def approach(self, seconds: float) -> None:
        """Moves the followers slowly to where the leaders are held, grippers included.

        Raises:
            RuntimeError: A fault, or they do not arrive.
        """
        pose = self.target_of(self._leaders.read(time.monotonic))
        Approach(self._device, self._embodiment).to(pose, seconds, "the pose of the leaders")

    def run(
        self,
        seconds: float,
        *,
        stop: Callable[[], bool],
        record: Callable[[DeviceState, Vector], None],
        report: Callable[[DeviceState, float], None],
    ) -> LedEpisode:
        """Lets the leaders lead until the time is over, somebody stops it, or the filter reports a fault.

        Args:
            seconds: Longest time.
            stop: Asked in every period.
            record: Gets the followers' state and the target (J,) that answers it, in every period
                in which they are led.
            report: Gets the newest state and the seconds so far, in every period.

        Raises:
            ValueError: Leaders and followers do not agree at the beginning.
        """
        self._device.begin()
        off, joint = self.disagreement()
        if off > self._agree:
            raise ValueError(
                f"Leader and follower do not agree: {joint} is {off:.2f} rad away; allowed: "
                f"{self._agree}. Bring the leaders "
                "there, or let the followers come slowly (robot.teleoperation.approach_s=4)."
            )
        self._target = None
        start = due = time.monotonic()
        episode = LedEpisode()
        while True:
            state = self._device.latest()
            episode.seconds = time.monotonic() - start
            episode.counts = state.counts
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

    def _lead(self, state: DeviceState, episode: LedEpisode) -> Vector | None:
        """Sends the target of this period and returns it, or nothing when the followers are to hold.

        Whatever made them hold, leaders and followers must agree again before they go on.
        """
        leader = self._leaders.read(time.monotonic)
        held = (
            state.mode is Mode.HOLD and not state.reasons & Reason.STARVED
        )  # For want of a target they hold as asked.
        if held or leader.lost.any() or leader.servo_misses.max() >= _SILENT_READS:
            episode.pauses += self._target is not None
            self._target = None
            return None
        target = self.target_of(leader)
        before = self._target
        if before is None:
            if self._apart(target)[0] > self._agree:
                return None
            before = state.command
        # From the target before to this one within a period: no staircase, at the price of 20 ms.
        due = leader.time + self._period_s * np.arange(_HELD_PERIODS + 1, dtype=np.float64)
        self._device.send(
            ActionChunk(due, np.stack([before, *[target] * _HELD_PERIODS]).astype(np.float32))
        )
        self._target = target
        episode.targets = episode.targets + 1
        return target
