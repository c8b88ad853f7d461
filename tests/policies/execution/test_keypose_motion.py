"""The motion to keyposes: in limits, smooth over replans, exact at the end, safe after misses."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline import ALOHA, InverseKinematics
from stringline.datasets.embodiments.transforms import pose
from stringline.policies.execution.keypose_motion import KeyposeMotion, PredictedKeypose
from stringline.policies.execution.trajectories import JointSpace, MotionSettings

Floats = NDArray[np.float64]
Predict = Callable[[float, Floats], PredictedKeypose | None]
HZ = 50.0
DT = 1 / HZ
ARMS = len(ALOHA.arms)
HINGES = np.concatenate([ALOHA.revolute_joints[arm] for arm in ALOHA.arms])
GRIPPERS = [ALOHA.grippers[arm] for arm in ALOHA.arms]
SETTINGS = MotionSettings()
TOP_SPEED = SETTINGS.speed * ALOHA.velocity_limits[HINGES]
TOP_ACCELERATION = (
    SETTINGS.acceleration * ALOHA.velocity_limits[HINGES] / ALOHA.velocity_limits[HINGES].max()
)


LIMITS = ALOHA.lower + 0.05, ALOHA.upper - 0.05
KINEMATICS = InverseKinematics(ALOHA)
DOWN = np.where([joint.name.endswith("wrist_angle") for joint in ALOHA.joints], 1.0, 0.0)


def joints_near_home(random: np.random.Generator) -> Floats:
    """Returns joints from which straight ways back by 16 cm and up by 6 are easy.

    Hands point down a little: a straight wrist is singular.
    """
    while True:
        q = ALOHA.home + DOWN + random.uniform(-0.25, 0.25, len(ALOHA.home))
        q = np.clip(q, *LIMITS)
        if all(is_easy(q, way) for way in ((-0.16, 0.0), (0.0, 0.06))):
            return np.asarray(q)


def is_easy(q: Floats, way: tuple[float, float]) -> bool:
    poses = ALOHA.forward_kinematics(q)
    here = q
    for _ in range(4):
        for T in poses.values():
            T[:3, 3] += 0.25 * (way[0] * T[:3, 0] + [0.0, 0.0, way[1]])
        there, errors = KINEMATICS.nearest(poses, here, tolerance=2e-4, iterations=30)
        if max(errors.values()) > 2e-4 or np.abs(there - here).max() > 0.3:
            return False
        here = there
    return True


def predicted(
    goals: Sequence[Floats],
    acts: Sequence[float],
    *,
    straight_m: float = 0.08,
    before: float = 0.7,
    after: float = 0.0,
    share: Sequence[float] | None = None,
    departure_m: float = 0.06,
) -> PredictedKeypose:
    """Returns a prediction whose modes are the gripper poses of joint vectors (J,)."""
    by_mode = [ALOHA.forward_kinematics(q) for q in goals]
    pose = np.stack([np.stack([T[arm] for T in by_mode]) for arm in ALOHA.arms])
    back = pose[..., :3, 3] - straight_m * pose[..., :3, 0]
    chances = np.asarray(acts, float)
    size = pose.shape[:2]
    weights = np.full(len(goals), 1 / len(goals)) if share is None else np.asarray(share)
    return PredictedKeypose(
        pose=pose,
        approach=back,
        corner=back.copy(),
        departure=pose[..., :3, 3] + [0.0, 0.0, departure_m],
        share=np.broadcast_to(weights, size).copy(),
        acts=chances,
        moves=chances,
        before=np.full(size, before),
        after=np.full(size, after),
    )


NOTHING = replace(predicted([ALOHA.home], (0.0, 0.0)), acts=np.zeros(ARMS), moves=np.zeros(ARMS))


@dataclass
class Cell:
    """Arms that follow their targets; a gripper does not close further than what it holds."""

    motion: KeyposeMotion
    held: Floats = field(default_factory=lambda: np.full(ARMS, 0.4))
    time: float = 0.0
    q: Floats = field(default_factory=lambda: ALOHA.home.copy())
    track: list[Floats] = field(default_factory=list)
    fixed: int = 0

    def run(self, predict: Predict, steps: int, every: int = 16) -> Floats:
        """Executes plans for some steps, with a prediction every few; returns all targets."""
        first = len(self.track)
        while len(self.track) - first < steps:
            chunk = self.motion.targets(
                self.time,
                every + self.fixed + 1,
                self.q,
                predict(self.time, self.q),
                fixed_s=self.fixed * DT,
            )
            self.track += list(chunk[:every])
            self.q = self.followed(chunk[every])
            self.time += every * DT
        return np.array(self.track)

    def followed(self, target: Floats) -> Floats:
        """Returns the measured joints of a target."""
        q = target.copy()
        q[GRIPPERS] = np.maximum(q[GRIPPERS], self.held)
        return q


def motion_of(settings: MotionSettings = SETTINGS, held: float = 0.3) -> KeyposeMotion:
    return KeyposeMotion(JointSpace(ALOHA), HZ, settings, [held] * ARMS)


def distances_mm(track: Floats, prediction: PredictedKeypose, arm: int, mode: int = 0) -> Floats:
    place = ALOHA.forward_kinematics(track)[ALOHA.arms[arm]][:, :3, 3]
    return np.asarray(1e3 * np.linalg.norm(place - prediction.pose[arm, mode, :3, 3], axis=-1))


def check_smooth(track: Floats) -> None:
    """Checks limits of positions, speeds and accelerations."""
    assert (track >= ALOHA.lower - 1e-9).all()
    assert (track <= ALOHA.upper + 1e-9).all()
    speed = np.abs(np.diff(track[:, HINGES], axis=0)) / DT
    assert (speed / TOP_SPEED).max() <= 1.06
    bend = np.abs(np.diff(track[:, HINGES], n=2, axis=0)) / DT**2
    assert (bend / TOP_ACCELERATION).max() <= 1.5


class Task:
    """Predicts the keyposes of a task in turn: the next after each stroke; then none."""

    def __init__(self, cell: Cell, keyposes: Sequence[PredictedKeypose], noise_m: float = 0.0):
        self.cell = cell
        self.left = list(keyposes)
        self.noise_m = noise_m
        self.random = np.random.default_rng(0)
        self.reached: list[int] = []

    def __call__(self, time: float, q: Floats) -> PredictedKeypose:
        recent = np.array(self.cell.track[-50:]) if self.cell.track else ALOHA.home[None]
        if self.left and self.has_happened(self.left[0], recent):
            self.left.pop(0)
            self.reached.append(len(self.cell.track))
        if not self.left:
            return NOTHING
        keypose = self.left[0]
        shift = self.random.normal(0, self.noise_m, 3)
        pose = keypose.pose.copy()
        pose[..., :3, 3] += shift
        ways = {
            name: getattr(keypose, name) + shift for name in ("approach", "corner", "departure")
        }
        return replace(keypose, pose=pose, **ways)

    def has_happened(self, keypose: PredictedKeypose, track: Floats) -> bool:
        acting = keypose.acting()
        near = [distances_mm(track, keypose, arm) < 5 + 4e3 * self.noise_m for arm in acting]
        done = [np.abs(track[:, GRIPPERS[arm]] - keypose.after[arm, 0]) < 0.01 for arm in acting]
        return bool(np.logical_and.reduce([*near, *done]).any())


def check_strokes(track: Floats, keyposes: Sequence[PredictedKeypose], within_mm: float) -> None:
    """Checks that grippers act where the keyposes are, and stand still meanwhile."""
    for keypose in keyposes:
        arms = keypose.acting()
        there = [distances_mm(track, keypose, arm) < within_mm for arm in arms]
        assert np.logical_and.reduce(there).any()
    for arm, name in enumerate(ALOHA.arms):
        opening = track[:, GRIPPERS[arm]]
        falls = np.flatnonzero(np.diff(opening) < -0.02)
        place = ALOHA.forward_kinematics(track)[name][:, :3, 3]
        own = [each for each in keyposes if arm in each.acting() and each.after[arm, 0] < 0.1]
        for step in falls:
            near = [1e3 * np.linalg.norm(place[step] - each.pose[arm, 0, :3, 3]) for each in own]
            assert min(near) < within_mm


@pytest.mark.parametrize("fixed", [0, 3, 15])
@pytest.mark.parametrize("every", [16, 8, 3])
def test_a_task_is_done_however_often_predictions_come(every: int, fixed: int) -> None:
    """Also if plans are made ahead, with targets that stay as they are."""
    random = np.random.default_rng(every + fixed)
    cell = Cell(motion_of(), fixed=fixed)
    grasp = predicted([joints_near_home(random)], (1.0, 0.0))
    release = predicted([joints_near_home(random)], (1.0, 0.0), before=0.0, after=0.8)
    task = Task(cell, [grasp, release])
    track = cell.run(task, 600, every)
    assert not task.left
    check_strokes(track[: task.reached[-1]], [grasp, release], 1.0)
    check_smooth(track)


@pytest.mark.parametrize("opens", [True, False])
def test_a_gripper_that_opens_presses_further_along_its_straight_way(opens: bool) -> None:
    random = np.random.default_rng(5)
    before, after = (0.0, 0.8) if opens else (0.8, 0.2)
    keypose = predicted(
        [joints_near_home(random)], (1.0, 0.0), before=before, after=after, straight_m=0.06
    )
    ends = {}
    for press_m in (0.0, 0.007):
        cell = Cell(motion_of(replace(SETTINGS, press_m=press_m)))
        track = cell.run(lambda time, q: keypose, 400, 16)
        opening = track[:, GRIPPERS[0]]
        stroke = int(np.flatnonzero(np.abs(opening - after) < 0.01)[0])
        ends[press_m] = ALOHA.forward_kinematics(track[stroke])["left"][:3, 3]
    way = keypose.pose[0, 0, :3, 3] - keypose.approach[0, 0]
    pressed = ends[0.007] - ends[0.0]
    expected = 0.007 * way / np.linalg.norm(way) if opens else np.zeros(3)
    np.testing.assert_allclose(pressed, expected, atol=5e-4)


def test_what_is_seen_after_the_corner_still_counts() -> None:
    """A keypose seen from near is more exact; the way to the corner is not gone again."""
    random = np.random.default_rng(3)
    first = predicted([joints_near_home(random)], (1.0, 0.0), straight_m=0.06)
    corner = first.approach + np.array([0.0, 0.0, 0.08])
    first = replace(first, corner=corner)
    shift = np.array([0.0, 0.006, 0.0])
    better = replace(
        first,
        pose=first.pose + np.pad(shift[:, None], ((0, 1), (3, 0))),
        **{name: getattr(first, name) + shift for name in ("approach", "corner", "departure")},
    )
    cell = Cell(motion_of())

    def predict(time: float, q: Floats) -> PredictedKeypose:
        way = distances_mm(
            np.array(cell.track or [ALOHA.home]), replace(first, pose=_at(corner)), 0
        )
        return better if way.min() < 15 else first

    def _at(position: Floats) -> Floats:
        pose = first.pose.copy()
        pose[..., :3, 3] = position
        return pose

    track = cell.run(predict, 300, every=4)
    closed = int(np.flatnonzero(np.diff(track[:, GRIPPERS[0]]) < -0.02)[0])
    assert distances_mm(track[closed : closed + 1], better, 0)[0] < 1.0
    assert 0 < np.flatnonzero(distances_mm(track, better, 0) < 1.0)[0] < 200
    check_smooth(track[: closed + 1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_tasks_stay_within_the_limits(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    random = np.random.default_rng(seed)
    cell = Cell(motion_of(), fixed=int(random.integers(0, 12)))
    keyposes = [
        predicted(
            [joints_near_home(random)],
            [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)][number % 3],
            straight_m=float(random.uniform(0.03, 0.12)),
            before=0.7 * (number < 3),
            after=0.7 * (number >= 3),
        )
        for number in range(6)
    ]
    task = Task(cell, keyposes, noise_m=0.002)
    track = cell.run(task, 1800, int(random.integers(4, 20)))
    assert not task.left or caplog.records  # What is out of reach is not reached.
    check_smooth(track)


def test_targets_ahead_stay_as_they_are() -> None:
    random = np.random.default_rng(2)
    motion = motion_of()
    goals = [predicted([joints_near_home(random)], (1.0, 0.0)) for _ in range(4)]
    time, q = 0.0, ALOHA.home
    last = motion.targets(time, 60, q, goals[0])
    for number in range(1, 20):
        time += 4 * DT
        now = motion.targets(time, 60, last[4], goals[number // 5], fixed_s=20 * DT)
        np.testing.assert_allclose(now[:21], last[4:25], atol=1e-9)
        last = now


@pytest.mark.parametrize("offset", [0.0, 0.003, 0.0099])
def test_times_between_control_steps_make_no_jump(offset: float) -> None:
    """Clocks of robots are no multiples of a control period."""
    random = np.random.default_rng(3)
    motion = motion_of()
    goal = predicted([joints_near_home(random)], (1.0, 0.0))
    time, q = 10.0, ALOHA.home
    track, times = [], []
    for number in range(6):
        noisy = replace(goal, pose=goal.pose.copy())
        noisy.pose[..., :3, 3] += random.normal(0, 0.002, 3)
        chunk = motion.targets(time, 40, q, noisy)
        step = 8 * DT + (offset if number % 2 else -offset)
        at = time + DT * np.arange(40)
        fine = np.arange(time, time + step - 1e-9, 0.001)
        track += [np.stack([np.interp(fine, at, column) for column in chunk.T], 1)]
        times.append(fine)
        q = np.array([np.interp(time + step, at, column) for column in chunk.T])
        time += step
    q, t = np.concatenate(track), np.concatenate(times)
    speed = np.abs(np.diff(q[:, HINGES], axis=0)) / np.diff(t)[:, None]
    assert (speed / TOP_SPEED).max() < 1.1
    # Linear interpolation turns acceleration into steps of speed, once in a control period.
    velocity = np.diff(q[:, HINGES], axis=0) / np.diff(t)[:, None]
    assert (np.abs(np.diff(velocity, axis=0)) / DT / TOP_ACCELERATION).max() < 2.5


def test_a_passing_hand_does_not_close_early() -> None:
    """A short straight part ends near the keypose: predictions on the way vary by millimetres."""
    random = np.random.default_rng(4)
    for _ in range(5):
        cell = Cell(motion_of())
        grasp = predicted([joints_near_home(random)], (1.0, 0.0), straight_m=0.027)
        task = Task(cell, [grasp], noise_m=0.004)
        track = cell.run(task, 250, 16)
        falls = np.flatnonzero(np.diff(track[:, GRIPPERS[0]]) < -0.02)
        assert len(falls)
        assert distances_mm(track, grasp, 0)[falls[-1]] < 15


def test_a_gripper_that_is_there_acts_in_place() -> None:
    random = np.random.default_rng(5)
    cell = Cell(motion_of())
    grasp = predicted([joints_near_home(random)], (1.0, 0.0), departure_m=0.0)
    cell.run(Task(cell, [grasp]), 200)
    cell.run(lambda *_: None, 16)
    before = len(cell.track)
    again = predicted([cell.q], (1.0, 0.0), before=0.0, after=0.8, departure_m=0.0)
    assert distances_mm(cell.track[-1][None], again, 0)[0] < 1
    track = cell.run(lambda *_: again, 48, 48)[before:]
    assert distances_mm(track, again, 0).max() < 3
    assert track[-1, GRIPPERS[0]] == pytest.approx(0.8)


def test_an_empty_gripper_opens_and_goes_back_and_the_second_miss_changes_the_mode() -> None:
    random = np.random.default_rng(6)
    first, second = joints_near_home(random), joints_near_home(random)
    keypose = predicted([first, second], (1.0, 0.0), share=(0.8, 0.2))
    cell = Cell(motion_of(), held=np.zeros(ARMS))
    track = cell.run(lambda *_: keypose, 600)
    opening = track[:, GRIPPERS[0]]
    near = [distances_mm(track, keypose, 0, mode) < 1.5 for mode in (0, 1)]
    closed = opening < 0.01
    strokes = np.flatnonzero(closed[1:] & ~closed[:-1]) + 1
    assert [bool(near[0][step]) for step in strokes[:3]] == [True, True, False]
    assert near[1][strokes[2]]
    for step in strokes[:2]:  # Open and away before the next attempt.
        later = slice(step, step + 100)
        assert opening[later].max() >= 0.69
        away = distances_mm(track[later], keypose, 0)
        assert away[opening[later] > 0.6].max() > 60
    check_smooth(track)


@dataclass
class Slippery(Cell):
    """What the first gripper holds slips out of it when it is lifted by 3 cm from a place.

    Attributes:
        place: (3,) where it is grasped.
    """

    place: Floats = field(default_factory=lambda: np.zeros(3))

    def followed(self, target: Floats) -> Floats:
        """Returns the measured joints of a target."""
        lifted = ALOHA.forward_kinematics(target)[ALOHA.arms[0]][2, 3] - self.place[2]
        self.held = np.where(lifted > 0.03, 0.0, 0.3) * np.ones(ARMS)
        return super().followed(target)


def test_a_load_that_slips_out_twice_at_a_place_changes_the_mode() -> None:
    random = np.random.default_rng(6)
    keypose = predicted(
        [joints_near_home(random), joints_near_home(random)], (1.0, 0.0), share=(0.8, 0.2)
    )
    cell = Slippery(motion_of(), place=keypose.pose[0, 0, :3, 3])

    def predict(_: float, q: Floats) -> PredictedKeypose:
        """Predicts nothing more while the gripper holds something."""
        return NOTHING if 0.25 < q[GRIPPERS[0]] < 0.35 else keypose

    track = cell.run(predict, 800)
    opening = track[:, GRIPPERS[0]]
    strokes = np.flatnonzero((opening[1:] < 0.01) & (opening[:-1] >= 0.01)) + 1
    near = [distances_mm(track, keypose, 0, mode) < 1.5 for mode in (0, 1)]
    assert [bool(near[0][step]) for step in strokes[:3]] == [True, True, False]
    assert near[1][strokes[2]]
    check_smooth(track)


@dataclass
class Rim(Cell):
    """A plane that stops the first gripper, with a hole that it can enter.

    Attributes:
        contact: (4, 4) pose of the gripper at the plane, above the hole; its x axis points in.
        clearance: Distance from the axis of the hole within which it enters, m.
    """

    contact: Floats = field(default_factory=lambda: np.eye(4))
    clearance: float = 0.001

    def followed(self, target: Floats) -> Floats:
        q = super().followed(target)
        arm = ALOHA.arms[0]
        poses = ALOHA.forward_kinematics(q)
        offset = np.linalg.inv(self.contact) @ poses[arm]
        before = np.linalg.inv(self.contact) @ ALOHA.forward_kinematics(self.q)[arm]
        entered = np.linalg.norm(offset[1:3, 3]) < self.clearance or before[0, 3] > 0.002
        if offset[0, 3] > 0 and not entered:
            offset[0, 3] = 0.0
            poses[arm] = self.contact @ offset
            q, _ = KINEMATICS.nearest(poses, q)
            q[GRIPPERS] = target[GRIPPERS]
        return q


@pytest.mark.parametrize("search_m", [0.0, 0.004])
@pytest.mark.parametrize("beside_m", [0.0, 0.0025])
def test_a_gripper_that_is_stopped_searches_for_the_way_in(
    search_m: float, beside_m: float
) -> None:
    goal = joints_near_home(np.random.default_rng(6))
    release = predicted([goal], (1.0, 0.0), before=0.4, after=0.8)
    hole = release.pose[0, 0] @ pose((-0.03, beside_m, 0.0))
    cell = Rim(motion_of(replace(SETTINGS, search_m=search_m)), contact=hole)
    done = False

    def predict(time: float, _: Floats) -> PredictedKeypose:
        nonlocal done
        done = done or cell.q[GRIPPERS[0]] > 0.75
        return NOTHING if done else release

    deepest = -1.0
    for _ in range(120):
        cell.run(predict, 8, every=8)
        inside = np.linalg.inv(hole) @ ALOHA.forward_kinematics(cell.q)[ALOHA.arms[0]]
        deepest = max(deepest, float(inside[0, 3]))
    assert done
    assert (deepest > 0.025) == (beside_m < cell.clearance or search_m > beside_m)
    check_smooth(np.array(cell.track))


def test_a_load_that_sticks_is_released_again_with_an_open_gripper() -> None:
    random = np.random.default_rng(6)
    here, there = joints_near_home(random), joints_near_home(random)
    release = predicted([here], (1.0, 0.0), before=0.4, after=0.6)
    cell = Cell(motion_of())
    track = cell.run(lambda *_: release, 600)
    opening = track[:, GRIPPERS[0]]
    opened = opening > 0.98
    first = int(np.flatnonzero(opened)[0])
    half = np.isclose(opening, 0.6, atol=0.01) & (distances_mm(track, release, 0) < 1.5)
    assert half[:first].any()  # At the first attempt it opens as far as predicted.
    assert distances_mm(track, release, 0)[first] < 1.5
    check_smooth(track)
    # A release at another place is another one.
    elsewhere = predicted([there], (1.0, 0.0), before=0.4, after=0.6)
    cell = Cell(motion_of())
    track = cell.run(lambda time, _: release if time < 3 else elsewhere, 400)
    arrived = int(np.flatnonzero(distances_mm(track, elsewhere, 0) < 1.5)[0])
    assert track[arrived : arrived + 50, GRIPPERS[0]].max() == pytest.approx(0.6, abs=0.01)


def test_a_gripper_that_holds_something_is_no_miss() -> None:
    random = np.random.default_rng(7)
    cell = Cell(motion_of(held=0.3), held=np.full(ARMS, 0.3))
    grasp = predicted([joints_near_home(random)], (1.0, 0.0))
    track = cell.run(Task(cell, [grasp]), 400)
    opened = np.flatnonzero(track[:, GRIPPERS[0]] > 0.69)
    later = track[opened[-1] :, GRIPPERS[0]]
    assert (track[opened[0] : opened[-1] + 1, GRIPPERS[0]] > 0.69).all()
    assert later[-1] < 0.01
    assert (np.diff(later) <= 1e-9).all()  # It closes once, and stays closed.
    # The arm with the load stays where it has lifted it; the other one is at home.
    of_arm = [ALOHA.revolute_joints[arm] for arm in ALOHA.arms]
    assert np.ptp(track[-150:, of_arm[0]], axis=0).max() < 1e-9
    assert np.abs(track[-1, of_arm[0]] - ALOHA.home[of_arm[0]]).max() > 0.1
    assert track[-1, of_arm[1]] == pytest.approx(ALOHA.home[of_arm[1]])


def test_without_an_event_the_arms_go_home_once() -> None:
    random = np.random.default_rng(8)
    cell = Cell(motion_of())
    grasp = predicted([joints_near_home(random)], (1.0, 0.0))
    release = replace(
        predicted([joints_near_home(random)], (1.0, 0.0)),
        before=np.zeros((ARMS, 1)),
        after=np.full((ARMS, 1), 0.8),
    )
    track = cell.run(Task(cell, [grasp, release]), 800)
    away = np.abs(track[:, HINGES] - ALOHA.home[HINGES]).max(axis=1)
    home = np.flatnonzero(away[200:] < 0.05)[0] + 200
    assert away[home:].max() < 0.05
    assert np.ptp(track[home + 50 :, HINGES], axis=0).max() < 1e-9
    check_smooth(track)


def test_a_single_doubt_stops_no_motion() -> None:
    random = np.random.default_rng(9)
    grasp = predicted([joints_near_home(random)], (1.0, 0.0))
    doubts = {16 * DT: NOTHING}

    def predict(time: float, q: Floats) -> PredictedKeypose:
        return doubts.get(round(time, 6), grasp)

    tracks = [Cell(motion_of()).run(each, 128) for each in (predict, lambda *_: grasp)]
    arrivals = [int(np.argmax(distances_mm(track, grasp, 0) < 1)) for track in tracks]
    assert 0 < arrivals[0] <= arrivals[1] + 10


def test_arms_that_did_not_follow_start_from_where_they_are() -> None:
    random = np.random.default_rng(10)
    cell = Cell(motion_of())
    goal = predicted([joints_near_home(random)], (1.0, 0.0))
    cell.run(lambda *_: goal, 32)
    cell.q = cell.q.copy()
    cell.q[HINGES[1]] += 0.5
    chunk = cell.motion.targets(cell.time, 48, cell.q, goal)
    np.testing.assert_allclose(chunk[0][HINGES], cell.q[HINGES], atol=1e-9)
    check_smooth(chunk)


def test_arms_that_did_not_follow_keep_their_grip() -> None:
    """The measured opening of a gripper around an object is no command to hold it."""
    random = np.random.default_rng(11)
    cell = Cell(motion_of(), held=np.full(ARMS, 0.4))
    grasp = predicted([joints_near_home(random)], (1.0, 0.0))
    release = predicted([joints_near_home(random)], (1.0, 0.0), before=0.0, after=0.8)
    task = Task(cell, [grasp, release])
    while not task.reached:
        cell.run(task, 16)
    cell.run(task, 16)
    cell.q = cell.q.copy()
    cell.q[HINGES[1]] += 0.5
    chunk = cell.motion.targets(cell.time, 48, cell.q, release)
    assert chunk[0][GRIPPERS[0]] < 0.05


def test_measured_joints_beyond_their_limits_give_targets_within() -> None:
    for side, limit in ((-1, ALOHA.lower), (1, ALOHA.upper)):
        q = ALOHA.home.copy()
        q[HINGES[2]] = limit[HINGES[2]] + side * 1e-3
        chunk = motion_of().targets(0.0, 20, q, NOTHING)
        assert (chunk >= ALOHA.lower).all()
        assert (chunk <= ALOHA.upper).all()


def test_both_arms_act_at_once() -> None:
    random = np.random.default_rng(12)
    cell = Cell(motion_of())
    grasp = predicted([joints_near_home(random)], (1.0, 1.0))
    track = cell.run(Task(cell, [grasp]), 200)
    falls = [np.flatnonzero(np.diff(track[:, place]) < -0.02) for place in GRIPPERS]
    steps = [int(each[0]) for each in falls]
    assert steps[0] == steps[1] > 0
    for arm in range(ARMS):
        assert distances_mm(track, grasp, arm)[steps[arm]] < 1
    check_smooth(track)


def test_straight_ways_past_a_straight_wrist_take_no_longer() -> None:
    """The position stays on the line, and the rotation is exact at the end."""
    random = np.random.default_rng(15)
    for _ in range(6):
        q = np.clip(ALOHA.home + random.uniform(-0.2, 0.2, len(ALOHA.home)), *LIMITS)
        goal = predicted([q], (1.0, 0.0), departure_m=0.0)
        cell = Cell(motion_of())
        task = Task(cell, [goal])
        track = cell.run(task, 16)
        while not task.reached:
            track = cell.run(task, 16)
            assert len(track) < 250
        check_smooth(track)
        poses = ALOHA.forward_kinematics(track)["left"]
        away = poses[:, :3, 3] - goal.pose[0, 0, :3, 3]
        axis = goal.pose[0, 0, :3, 0]
        beside = np.linalg.norm(away - (away @ axis)[:, None] * axis, axis=-1)
        last = np.flatnonzero(np.linalg.norm(away, axis=-1) > 0.079)[-1]
        assert beside[last:].max() < 0.006
        turned = poses[:, :3, :3].swapaxes(1, 2) @ goal.pose[0, 0, :3, :3]
        angle = np.arccos(np.clip((np.trace(turned, axis1=1, axis2=2) - 1) / 2, -1, 1))
        assert angle[last:].max() < 0.3
        assert angle.min() < 0.005


@pytest.mark.slow
def test_a_keypose_out_of_reach_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    random = np.random.default_rng(13)
    goal = predicted([joints_near_home(random)], (1.0, 0.0))
    far = replace(goal, pose=goal.pose.copy())
    far.pose[..., :3, 3] += [0.0, 0.4, 0.0]
    cell = Cell(motion_of())
    with caplog.at_level(logging.WARNING):
        track = cell.run(lambda *_: far, 32)
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "out of reach" in warnings[0].getMessage()
    assert "left" in warnings[0].getMessage()
    check_smooth(track)


def test_an_arm_that_only_moves_keeps_its_opening() -> None:
    random = np.random.default_rng(14)
    goal = predicted([joints_near_home(random)], (1.0, 0.0))
    goal = replace(goal, moves=np.ones(ARMS))
    cell = Cell(motion_of())
    track = cell.run(Task(cell, [goal]), 150)
    assert np.ptp(track[:120, GRIPPERS[1]]) < 1e-9
    assert distances_mm(track, goal, 1).min() < 1


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("speed", 0.0),
        ("speed", 1.1),
        ("acceleration", 0.0),
        ("acceleration", float("nan")),
        ("straight_speed", -1.0),
        ("missed", 0),
        ("missed", 1.5),
        ("least_s", 0.0),
        ("settle_s", -0.1),
        ("jump_m", float("inf")),
    ],
)
def test_settings_out_of_range_are_refused(name: str, number: Any) -> None:
    with pytest.raises(ValueError, match=name):
        MotionSettings(**{name: number})
