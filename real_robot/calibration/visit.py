"""The poses of a calibration: a session that moves the arms to them, or a person who does.

The plans of the session pass the mailbox and the safety filter like those of a policy, so the same
reasons hold or stop both. Images are taken where the arms rest.

If a person moves the arms, a key takes the images. The device process is read-only then, so no
command leaves it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stringline.datasets.contract.contract import Array, Contract, Observation
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.calibration.calibration_settings import CalibrationSettings
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.execution.approach import least_jerk
from stringline.real_robot.execution.lock_step import explain_fault
from stringline.real_robot.operator.operator_keys import Key, Keys
from stringline.real_robot.recording.observation_bridge import FrameSource, ObservationAssembler
from stringline.real_robot.safety.clearance import Clearance
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Mode, Reason

REPLAN_S = 0.2
_PLAN_S = 2.0
_SHORTEST_S = 0.8  # Shortest motion.
_PEAK_SPEED = 1.875  # Largest speed over mean speed of the motion with the least jerk.
_STILL = 0.004  # rad; servos flicker by a tick of 0.0015 to both sides.
_ARRIVED = 0.1  # rad; gravity and play may keep real arms from a pose.
_PATH_POINTS = 12
_NEAR = 0.5  # rad, as for a policy's first action.


@dataclass(frozen=True, eq=False)
class _Motion:
    """A motion between two poses (J,) at rest with the least jerk.

    It begins at `begins` (s) on the clock of the observations.
    """

    start: Vector
    goal: Vector
    begins: float
    seconds: float

    def at(self, times: Vector) -> Vector:
        """Returns the joints (T, J) at times (T,)."""
        share = np.clip((times - self.begins) / self.seconds, 0.0, 1.0)
        return np.asarray(self.start + least_jerk(share) * (self.goal - self.start))


class PoseVisit:
    """Visits poses one after the other.

    Grippers keep their goals, and so what they hold, instead of the openings in the poses. While
    the arms hold, each plan begins at the measured joints, at rest, so the arms do not hurry after
    the hold; and a pose has its full time after it.

    Args:
        settings: Settings with poses.
        take: Receives the number of the pose, from 1, and the observation of each image.
        holds: Returns the reasons of the holds since its last call, see `HoldWatch`.
        command: Returns the last command (J,), with the goals of the grippers.

    Attributes:
        reached: Number of poses whose images were taken.
        released_s: Time in which hold-to-run was released.
    """

    def __init__(
        self,
        embodiment: Embodiment,
        control_hz: float,
        settings: CalibrationSettings,
        *,
        take: Callable[[int, Observation], None],
        report: Callable[[str], None],
        holds: Callable[[], Reason],
        command: Callable[[], Vector],
    ) -> None:
        if settings.poses is None:
            raise ValueError("A visit needs a list of poses.")
        self._embodiment = embodiment
        self._period_s = 1.0 / control_hz
        self._settings = settings
        self._poses = settings.poses
        self._take = take
        self._report = report
        self._holds = holds
        self._command = command
        self._revolute = np.concatenate(
            [embodiment.revolute_joints[arm] for arm in embodiment.arms]
        )
        self._grippers = [embodiment.grippers[arm] for arm in embodiment.arms]
        self._openings: Vector | None = None
        self._next = 0
        self._looks = 0
        self.reached = 0
        self.released_s = 0.0
        self._asked_s: float | None = None
        self._motion: _Motion | None = None
        self._seen_until = -np.inf
        self._still_at = np.full(len(embodiment.joints), np.inf)
        self._still_since = np.inf

    @property
    def done(self) -> bool:
        """Whether all poses were visited."""
        return self._next >= len(self._poses)

    @property
    def longest_s(self) -> float:
        """Longest duration: all motions, with the full patience at each pose."""
        motions = sum(
            self._seconds(a, b) for a, b in zip(self._poses[:-1], self._poses[1:], strict=True)
        )
        first = self._seconds(self._embodiment.lower, self._embodiment.upper)
        waits = len(self._poses) * (self._settings.settle_s + self._settings.patience_s)
        return float(motions + first + waits)

    def is_over(self, seconds: float) -> bool:
        """Returns whether all poses were visited, or the longest duration is over.

        A person may release hold-to-run for any time.
        """
        return self.done or seconds > self.longest_s + self.released_s

    def again(self) -> "PoseVisit":
        """Continues after a hold from where the arms are, with the unfinished pose."""
        self._motion = None
        return self

    def plan(self, observation: Observation) -> ActionChunk:
        """Returns the next motion, after taking images if the arms rest at the pose."""
        now = float(observation["time"])
        q = observation["joints/position"].astype(np.float64)
        if np.abs(q - self._still_at)[self._revolute].max() > _STILL:
            self._still_at = q
            self._still_since = now
        if self._openings is None:
            self._openings = self._command()[self._grippers]
        self._note_holds(now)
        motion = self._motion
        if motion is None:
            self._looks = 0
            motion = self._to(min(self._next, len(self._poses) - 1), q, now)
        elif not self.done and now >= motion.begins + motion.seconds:
            motion = self._look(observation, motion, now, q)
        self._motion = motion
        times: Vector = now + self._period_s * np.arange(
            round(_PLAN_S / self._period_s) + 1, dtype=np.float64
        )
        return ActionChunk(times, motion.at(times).astype(np.float32))

    def _note_holds(self, now: float) -> None:
        """Begins the motion again from the measured joints if the arms have held."""
        if reasons := self._holds():
            self._motion = None
        if reasons & Reason.RELEASED and self._asked_s is not None:
            self.released_s += now - self._asked_s
        self._asked_s = now

    def _look(self, observation: Observation, motion: _Motion, now: float, q: Vector) -> _Motion:
        """Takes an image if arms and cameras are ready; returns the motion from now on."""
        settings = self._settings
        off = np.abs(q - motion.goal)[self._revolute]
        rested = self._still_since + settings.settle_s
        oldest = min(float(observation[f"time/{name}"]) for name in settings.needed)
        deadline = motion.begins + motion.seconds + settings.settle_s + settings.patience_s
        if off.max() <= _ARRIVED and oldest >= rested and oldest > self._seen_until:
            self._seen_until = oldest
            self._looks += 1
            self._take(self._next + 1, observation)
            if self._looks < settings.looks:
                return motion
            self.reached += 1
            return self._following(motion, now)
        if now <= deadline:
            return motion
        joint = self._embodiment.joints[int(self._revolute[off.argmax()])].name
        why = "the arms do not rest, or a camera shows no new images"
        if off.max() > _ARRIVED:
            why = f"{joint} is {off.max():.2f} rad away"
        self._report(f"Pose {self._next + 1} was not reached: {why}.")
        return self._following(motion, now)

    def _following(self, motion: _Motion, now: float) -> _Motion:
        """Returns the motion to the next pose, or the same one after the last pose."""
        self._next += 1
        self._looks = 0
        return motion if self.done else self._to(self._next, motion.goal, now)

    def _to(self, index: int, start: Vector, now: float) -> _Motion:
        """Returns the motion to a pose; the openings stay, so that nothing held is dropped."""
        goal = self._poses[index].copy()
        goal[self._grippers] = self._openings
        start = start.copy()
        start[self._grippers] = self._openings
        return _Motion(start, goal, now, self._seconds(start, goal))

    def _seconds(self, start: Vector, goal: Vector) -> float:
        farthest = float(np.abs(goal - start)[self._revolute].max())
        return max(_SHORTEST_S, _PEAK_SPEED * farthest / self._settings.speed)


def check_reachable(
    poses: Sequence[Vector] | Vector, embodiment: Embodiment, limits: SafetyLimits
) -> str:
    """Checks poses (J,), and the straight paths between them, and describes them.

    Raises:
        ValueError: A pose is beyond a limit, or on a path an arm touches the table, a wall, or the
            other arm.
    """
    before: Vector | None = None
    for number, pose in enumerate(poses, 1):
        for index, joint in enumerate(embodiment.joints):
            if not limits.lower[index] <= pose[index] <= limits.upper[index]:
                raise ValueError(
                    f"pose {number}: {joint.name} is {pose[index]:.3f}; allowed: "
                    f"{limits.lower[index]:.3f} to {limits.upper[index]:.3f}."
                )
        if before is None:
            _check_clear(pose, pose, number, embodiment, limits, points=1)
        else:
            _check_clear(before, pose, number, embodiment, limits)
        before = pose
    return f"{len(poses)}, in reach"


def check_first_motion(
    start: Vector, pose: Vector, embodiment: Embodiment, limits: SafetyLimits, *, near: bool
) -> None:
    """Checks the straight path from the measured joints (J,) to the first pose (J,).

    If `near`, the path must be short, because no motion to a known pose came before.

    Raises:
        ValueError: The path is too long, or on it an arm touches the table, a wall, or the other
            arm.
    """
    revolute = np.concatenate([embodiment.revolute_joints[arm] for arm in embodiment.arms])
    off = np.abs(pose - start)[revolute]
    if near and off.max() > _NEAR:
        joint = embodiment.joints[int(revolute[off.argmax()])].name
        raise ValueError(
            f"{joint} is {off.max():.2f} rad away from pose 1; allowed: {_NEAR}. Bring the arms "
            "near to it, or let them move to their home pose first (robot.approach_s=8)."
        )
    _check_clear(start, pose, 1, embodiment, limits)


def _check_clear(
    start: Vector,
    pose: Vector,
    number: int,
    embodiment: Embodiment,
    limits: SafetyLimits,
    points: int = _PATH_POINTS,
) -> None:
    """Checks the straight path to a pose, without its start."""
    clearance = Clearance.of(embodiment, limits)
    for share in np.linspace(1.0, 0.0, points, endpoint=False)[::-1]:
        room = clearance.measure(start + share * (pose - start))
        where = f"pose {number}" if share == 1.0 else f"the way to pose {number}"
        for have, needed_m, what in (
            (room.heights, limits.table_clearance, "over the table"),
            (room.walls, 0.0, "from a wall"),
            (room.between, limits.arm_clearance, "from the other arm"),
            (room.own, limits.self_clearance, "from itself"),
            (room.obstacles, limits.cell_clearance, "from an obstacle of the cell"),
        ):
            if (have_m := float(have.min())) < needed_m:
                raise ValueError(
                    f"{where}: an arm would be {1e3 * have_m:.0f} mm {what}; needed: "
                    f"{1e3 * needed_m:.0f}."
                )


_STILL_BY_HAND = 0.005  # rad; a hand is not as still as a motor.
_POLL_S = 0.02


class ByHand:
    """Takes images when a person presses a key.

    Args:
        device: Connected, armed and read-only device process.
    """

    def __init__(
        self,
        device: DeviceProcess,
        frames: FrameSource,
        contract: Contract,
        embodiment: Embodiment,
        settings: CalibrationSettings,
        *,
        keys: Keys,
        report: Callable[[str], None],
    ) -> None:
        self._device = device
        self._frames = frames
        self._settings = settings
        self._keys = keys
        self._report = report
        self._assembler = ObservationAssembler(contract, embodiment)
        self._revolute = np.concatenate(
            [embodiment.revolute_joints[arm] for arm in embodiment.arms]
        )
        self._seen_until = -np.inf

    def run(self, take: Callable[[int, Observation], None]) -> int:
        """Takes images until the person ends it; returns the number of poses.

        `take` receives the number of the pose, from 1, and the observation of each image.

        Raises:
            RuntimeError: The arms cannot be measured.
        """
        self._device.begin()
        self._report(
            "Bring the arms to a pose from which the camera sees the board, and hold still. k: "
            "take the images; q: finish."
        )
        number = 0
        while self._keys.wait(Key.KEEP, Key.END) is Key.KEEP:
            if self._pose(number + 1, take):
                number += 1
        return number

    def _pose(self, number: int, take: Callable[[int, Observation], None]) -> bool:
        """Takes the images of a pose once the arms rest; returns whether any was taken."""
        deadline = time.monotonic() + self._settings.patience_s + self._settings.settle_s
        looks = 0
        since = np.inf
        at = np.full(len(self._device.latest().arms.position), np.inf)
        while time.monotonic() < deadline:
            state = self._device.latest()
            frames = self._frames.frames()
            if state.mode is Mode.FAULT:  # The measured joints may be wrong.
                raise RuntimeError(" ".join(explain_fault(state, self._device)))
            if state.arms.servo_misses.any():
                since = np.inf
            elif (
                np.abs(state.arms.position - at)[self._revolute].max() > _STILL_BY_HAND
                or since == np.inf
            ):
                since = state.arms.time
                at = state.arms.position
            oldest = self._oldest(frames)
            if oldest >= since + self._settings.settle_s and oldest > self._seen_until:
                history = [past.arms for past in self._device.recent()]
                self._seen_until = oldest
                looks += 1
                take(number, self._assembler.build(state.arms, history, frames))
                if looks == self._settings.looks:
                    return True
            time.sleep(_POLL_S)
        self._report(
            "No image was taken: the arms moved, or a camera shows no new images. Hold the arms "
            "still."
        )
        return looks > 0

    def _oldest(self, frames: dict[str, Array]) -> float:
        """Returns the capture time of the oldest image; -infinity if one is missing."""
        times = [frames.get(f"time/{name}") for name in self._settings.needed]
        return min(
            (float(when) if when is not None else -np.inf for when in times), default=-np.inf
        )
