"""Keyposes of synthetic recordings, whose events are known, plain and as of human hands."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline.datasets.embodiments.transforms import pose, rotation_about
from stringline.datasets.loading.keyposes import (
    Keyposes,
    Motion,
    NoKeyposeError,
    carried_spans,
    events_in_words,
    find_keyposes,
)
from stringline.datasets.loading.window_settings import KeyposeSettings

Floats = NDArray[np.float64]
HZ = 50.0


@dataclass
class Recorder:
    """Records minimum-jerk reaches and strokes at rest of some arms."""

    arms: int = 1
    hz: float = HZ
    place: list[list[Floats]] = field(default_factory=list)
    opening: list[list[float]] = field(default_factory=list)
    events: list[tuple[int, ...]] = field(default_factory=list)
    at: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        start = [np.array([0.4 * arm, -0.2, 0.3]) for arm in range(self.arms)]
        self.place.append(start)
        self.opening.append([1.0] * self.arms)

    def reach(self, seconds: float, **goals: Floats) -> None:
        """Moves arms to goals (3,), named `arm0` and `arm1`; `open0` is an opening at the end."""
        first = self.place[-1]
        before = self.opening[-1]
        for u in np.arange(1, round(seconds * self.hz) + 1) / round(seconds * self.hz):
            s = u**3 * (10 - 15 * u + 6 * u**2)
            self.place.append([p + s * (goals.get(f"arm{n}", p) - p) for n, p in enumerate(first)])
            self.opening.append(
                [float(o + s * (goals.get(f"open{n}", o) - o)) for n, o in enumerate(before)]
            )

    def stroke(self, goal: float, *arms: int, seconds: float = 0.3, counts: bool = True) -> None:
        """Closes or opens grippers at rest; an event if it counts."""
        if counts:
            self.events.append(arms)
            self.at.append((len(self.place) - 1) / self.hz)
        before = self.opening[-1]
        steps = round(seconds * self.hz)
        for u in np.arange(1, steps + 1) / steps:
            self.place.append(self.place[-1])
            self.opening.append(
                [o + u * (goal - o) if n in arms else o for n, o in enumerate(before)]
            )

    def rest(self, seconds: float) -> None:
        for _ in range(round(seconds * self.hz)):
            self.place.append(self.place[-1])
            self.opening.append(self.opening[-1])

    def motion(self, jitter_m: float = 0.0, seed: int = 0) -> Motion:
        place = np.array(self.place)
        if jitter_m:
            place = place + tremor(place.shape, jitter_m, self.hz, seed)
        poses = np.tile(np.eye(4), (*place.shape[:2], 1, 1))
        poses[..., :3, 3] = place
        return Motion(poses, np.array(self.opening), self.hz)


def tremor(shape: tuple[int, ...], size_m: float, hz: float, seed: int) -> Floats:
    """Returns trembling of hands: noise of about 4 to 10 Hz of a standard deviation of its norm."""
    random = np.random.default_rng(seed)
    t = np.arange(shape[0])[:, None, None] / hz
    total = np.zeros(shape)
    for _ in range(6):
        rate = random.uniform(4, 10, shape[1:])
        total += np.sin(2 * np.pi * rate * t + random.uniform(0, 6.3, shape[1:]))
    return np.asarray(total * size_m / np.sqrt(3 * 3))


def pick_and_place(hz: float = HZ, random: np.random.Generator | None = None) -> Recorder:
    random = random or np.random.default_rng(0)
    made = Recorder(hz=hz)
    grasp = np.array([0.1, 0.1, 0.02]) + random.uniform(-0.05, 0.05, 3) * [1, 1, 0]
    put = np.array([-0.2, 0.15, 0.06]) + random.uniform(-0.05, 0.05, 3) * [1, 1, 0]
    up = np.array([0.0, 0.0, 0.12])
    made.rest(0.2)
    made.reach(1.2, arm0=grasp + up)
    made.reach(0.8, arm0=grasp)
    made.stroke(0.1, 0)
    made.reach(0.8, arm0=grasp + up)
    made.reach(1.2, arm0=put + up)
    made.reach(0.8, arm0=put)
    made.stroke(0.8, 0)
    made.reach(0.8, arm0=put + up)
    return made


def by_hand(random: np.random.Generator) -> tuple[Recorder, list[bool]]:
    """Returns a recording with pauses, overshoots, shaping, chatter and second grasps."""
    made = Recorder()
    closes: list[bool] = []
    for _ in range(2):
        grasp = np.array([random.uniform(-0.2, 0.2), random.uniform(-0.2, 0.2), 0.02])
        put = grasp + np.array([random.choice((-1, 1)) * random.uniform(0.15, 0.3), 0.1, 0.05])
        up = np.array([0.0, 0.0, random.uniform(0.08, 0.14)])
        shape: Any = float(random.uniform(0.5, 1.0))
        made.reach(random.uniform(0.8, 1.6), arm0=grasp + up, open0=shape)
        made.rest(random.uniform(0.0, 0.6))  # A pause in the air.
        made.reach(random.uniform(0.6, 1.2), arm0=grasp + random.normal(0, 0.008, 3))
        made.reach(0.4, arm0=grasp)  # Back from the overshoot.
        made.rest(random.uniform(0.0, 0.4))
        if random.random() < 0.3:  # It misses, and tries again in place.
            made.stroke(0.1, 0, counts=False)
            made.stroke(0.7, 0, counts=False)
            made.reach(0.3, arm0=grasp + random.normal(0, 0.004, 3))
        made.stroke(0.1, 0)
        closes.append(True)
        made.rest(random.uniform(0.0, 0.3))
        made.reach(random.uniform(0.6, 1.0), arm0=grasp + up)
        made.rest(random.uniform(0.0, 0.5))
        made.reach(random.uniform(0.8, 1.4), arm0=put + up)
        made.reach(random.uniform(0.6, 1.0), arm0=put)
        made.rest(random.uniform(0.0, 0.3))
        made.stroke(float(random.uniform(0.6, 1.0)), 0)
        closes.append(False)
        made.reach(random.uniform(0.6, 1.0), arm0=put + up)
    return made, closes


def check_events(found: Keyposes, made: Recorder, within_s: float = 0.0) -> None:
    assert [tuple(np.flatnonzero(row)) for row in found.acting] == made.events
    np.testing.assert_allclose(found.start / made.hz, made.at, atol=within_s + 1.5 / made.hz)


def test_plain_recordings_have_their_events() -> None:
    made = pick_and_place()
    found = find_keyposes(made.motion())
    check_events(found, made)
    assert (found.after[:, 0] < found.before[:, 0]).tolist() == [True, False]
    place = np.array(made.place)
    for row, start in enumerate(found.start):
        np.testing.assert_allclose(found.pose[row, :, :3, 3], place[start], atol=1e-12)


@pytest.mark.parametrize("hz", [10.0, 25.0, 100.0, 200.0])
def test_the_rate_does_not_matter(hz: float) -> None:
    check_events(find_keyposes(pick_and_place(hz).motion()), pick_and_place(hz), 0.05)


def test_the_base_frame_does_not_matter() -> None:
    motion = pick_and_place().motion(0.001)
    plain = find_keyposes(motion)
    turn = pose((1.0, -2.0, 0.5), rotation_about(np.array([0.6, 0.0, 0.8]), 1.1))
    moved = find_keyposes(Motion(turn @ motion.pose, motion.opening, motion.control_hz))
    np.testing.assert_array_equal(moved.start, plain.start)
    np.testing.assert_array_equal(moved.acting, plain.acting)
    for name in ("pose", "approach", "corner", "departure"):
        np.testing.assert_allclose(getattr(moved, name), turn @ getattr(plain, name), atol=1e-9)


@pytest.mark.slow
def test_hands_have_their_true_events_in_95_of_100() -> None:
    right = 0
    wrong = []
    for seed in range(100):
        made, closes = by_hand(np.random.default_rng(seed))
        found = find_keyposes(made.motion(0.003, seed))
        same = len(found) == len(closes) and bool(
            (np.abs(found.start / HZ - np.array(made.at)) < 0.25).all()
            and ((found.after[:, 0] < found.before[:, 0]) == np.array(closes)).all()
        )
        right += same
        wrong += [] if same else [seed]
    assert right >= 95, wrong


def test_a_hand_that_widens_before_and_after_a_grasp_has_grasped_and_released_once() -> None:
    """It narrows in flight, widens again at rest above the object and after the release."""
    made = Recorder()
    narrow: Any = 0.6
    grasp, put, up = np.array([[0.1, 0.1, 0.02], [-0.2, 0.1, 0.02], [0.0, 0.0, 0.1]])
    made.reach(1.0, arm0=grasp + up, open0=narrow)
    made.reach(0.8, arm0=grasp)
    made.stroke(0.8, 0, counts=False)
    made.stroke(0.1, 0)
    made.reach(0.8, arm0=put + up)
    made.reach(0.8, arm0=put)
    made.stroke(0.9, 0)
    made.reach(0.8, arm0=put + up, open0=narrow)
    made.rest(0.3)
    made.stroke(0.9, 0, counts=False)
    check_events(find_keyposes(made.motion()), made)


def test_a_grip_that_loosens_in_place_and_holds_on_is_no_release() -> None:
    made = Recorder()
    made.reach(1.0, arm0=np.array([0.1, 0.1, 0.02]))
    made.stroke(0.1, 0)
    made.stroke(0.3, 0, counts=False)
    made.reach(1.0, arm0=np.array([-0.2, 0.1, 0.02]))
    made.stroke(0.9, 0)
    found = find_keyposes(made.motion())
    assert (found.after < found.before)[:, 0].tolist() == [True, False]


def test_a_chattering_gripper_acts_once() -> None:
    made = Recorder()
    made.reach(1.0, arm0=np.array([0.0, 0.1, 0.1]))
    made.stroke(0.1, 0)
    motion = made.motion()
    random = np.random.default_rng(0)
    motion.opening[:, 0] += random.uniform(-0.04, 0.04, len(motion.opening))
    found = find_keyposes(motion)
    assert found.acting.tolist() == [[True]]


def test_arms_that_act_together_are_one_event_with_the_pose_of_each() -> None:
    """The second arm arrives and closes a fifth of a second later."""
    made = Recorder(arms=2)
    goals = np.array([0.1, 0.2, 0.1]), np.array([0.5, 0.2, 0.15])
    made.reach(0.8, arm0=goals[0], arm1=goals[1] + [0.0, 0.0, 0.05])
    first = len(made.place) - 1
    made.stroke(0.1, 0, seconds=0.2)
    # While the first gripper closes, the second arm still comes down.
    for number, step in enumerate(range(first + 1, len(made.place))):
        u = (number + 1) / 10
        s = u**3 * (10 - 15 * u + 6 * u**2)
        made.place[step] = [goals[0], goals[1] + [0.0, 0.0, 0.05 * (1 - s)]]
    made.stroke(0.2, 1, seconds=0.3)
    made.rest(0.3)
    found = find_keyposes(made.motion())
    assert found.acting.tolist() == [[True, True]]
    for arm in range(2):
        np.testing.assert_allclose(found.pose[0, arm, :3, 3], goals[arm], atol=0.002)
    np.testing.assert_allclose(found.after[0], [0.1, 0.2], atol=0.01)


def test_two_arms_with_time_between_are_two_events() -> None:
    made = Recorder(arms=2)
    made.reach(1.0, arm0=np.array([0.1, 0.2, 0.1]))
    made.stroke(0.1, 0)
    made.reach(1.0, arm1=np.array([0.5, 0.2, 0.15]))
    made.stroke(0.2, 1)
    check_events(find_keyposes(made.motion()), made)


def test_a_recording_that_begins_with_an_object_in_the_hand_has_its_release() -> None:
    """It releases the object, and grasps another."""
    made = Recorder()
    made.opening[0] = [0.2]
    made.reach(1.0, arm0=np.array([0.1, 0.2, 0.1]))
    made.stroke(0.9, 0)
    made.reach(1.0, arm0=np.array([-0.1, 0.2, 0.1]))
    made.stroke(0.1, 0)
    made.reach(0.5, arm0=np.array([-0.1, 0.2, 0.2]))
    made.stroke(0.9, 0)
    found = find_keyposes(made.motion())
    assert len(found) >= 2  # The first opening may be the shaping of an empty hand.
    assert found.start[-1] / HZ == pytest.approx(made.at[-1], abs=0.05)


def test_a_carried_object_ends_at_its_stop() -> None:
    made = Recorder()
    made.reach(1.0, arm0=np.array([0.1, 0.2, 0.1]))
    made.stroke(0.1, 0)
    made.reach(1.0, arm0=np.array([0.1, 0.2, 0.3]))
    stop = len(made.place) - 1
    made.rest(0.5)
    found = find_keyposes(made.motion())
    assert found.acting.tolist() == [[True], [True]]
    assert found.before[1, 0] == found.after[1, 0]
    assert abs(found.start[1] - stop) <= 0.25 * HZ
    assert len(find_keyposes(made.motion(), KeyposeSettings(stops="never"))) == 1


def test_an_arm_that_holds_while_the_other_one_acts_makes_no_stop() -> None:
    """As it holds a socket: where it stands is its place at the events of the other arm."""
    made = Recorder(arms=2)
    stand = np.array([0.1, 0.2, 0.3])
    made.reach(1.0, arm0=np.array([0.1, 0.2, 0.1]))
    made.stroke(0.1, 0)
    made.reach(1.0, arm0=stand)
    made.rest(0.5)
    made.reach(1.0, arm1=np.array([0.4, 0.2, 0.1]))
    made.stroke(0.1, 1)
    made.reach(1.0, arm1=np.array([0.2, 0.2, 0.3]))
    made.stroke(1.0, 1)
    made.reach(1.0, arm1=np.array([0.4, 0.2, 0.3]))
    found = find_keyposes(made.motion())
    check_events(found, made)
    np.testing.assert_allclose(found.pose[1:, 0, :3, 3], [stand, stand], atol=1e-6)
    steps = np.arange(len(made.place))
    counts = np.bincount(found.next_of(steps)[~found.during(steps)] + 1, minlength=4)
    assert (counts[1:] > 0.5 * HZ).all()


def test_without_a_gripper_event_keyposes_are_stops() -> None:
    made = Recorder()
    stops = []
    for goal in ((0.1, 0.2, 0.1), (0.2, 0.1, 0.1), (-0.1, 0.2, 0.2)):
        made.reach(1.0, arm0=np.array(goal))
        stops.append(len(made.place) - 1)
        made.rest(0.5)
    found = find_keyposes(made.motion())
    np.testing.assert_allclose(found.start, stops, atol=0.2 * HZ)
    with pytest.raises(NoKeyposeError, match="stops"):
        find_keyposes(made.motion(), KeyposeSettings(stops="never"))


def test_stops_are_added_always_if_wanted() -> None:
    made = pick_and_place()
    found = find_keyposes(made.motion(), KeyposeSettings(stops="always"))
    assert len(found) > 2
    plain = find_keyposes(made.motion()).start
    assert set(plain) <= set(found.start)


@pytest.mark.parametrize("lift", [0.2, 0.12, 0.0])
def test_straight_part_and_departure_are_those_of_the_recording(lift: float) -> None:
    made = Recorder()
    grasp = np.array([0.1, 0.1, 0.02])
    rim = grasp + np.array([0.0, 0.0, 0.1])
    made.reach(1.2, arm0=rim)
    made.rest(0.1)
    made.reach(1.0, arm0=grasp)
    made.stroke(0.1, 0)
    top = grasp + np.array([0.0, 0.0, lift])
    if lift:
        made.reach(1.0, arm0=top)
    made.reach(1.0, arm0=top + np.array([0.0, 0.3, 0.0]))
    found = find_keyposes(made.motion())
    np.testing.assert_allclose(found.approach[0, 0, :3, 3], rim, atol=0.004)
    # As far as the way is straight, but no further than 16 cm.
    first = (top - grasp) / lift if lift else np.array([0.0, 1.0, 0.0])
    departure = grasp + min(lift or 0.3, 0.16) * first
    np.testing.assert_allclose(found.departure[0, 0, :3, 3], departure, atol=0.025)


def test_a_departure_that_turns_at_once_has_the_least_distance() -> None:
    made = Recorder()
    grasp = np.array([0.1, 0.1, 0.02])
    made.reach(1.0, arm0=grasp)
    made.stroke(0.1, 0)
    made.reach(0.5, arm0=grasp + np.array([0.0, 0.0, 0.04]))
    made.reach(1.0, arm0=grasp + np.array([0.0, 0.3, 0.04]))
    found = find_keyposes(made.motion())
    away = np.linalg.norm(found.departure[0, 0, :3, 3] - grasp)
    assert 0.075 <= away < 0.09


def test_motion_without_any_event_is_refused() -> None:
    made = Recorder()
    made.rest(2.0)
    with pytest.raises(NoKeyposeError, match="policy=diffusion"):
        find_keyposes(made.motion())


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_very_short_recordings_are_refused_in_words(steps: int) -> None:
    made = Recorder()
    made.rest((steps - 1) / HZ)
    with pytest.raises(NoKeyposeError):
        find_keyposes(made.motion())


@pytest.mark.parametrize(
    "name", [each for each in KeyposeSettings.__dataclass_fields__ if each != "stops"]
)
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), True])
def test_settings_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        KeyposeSettings(**{name: value})


def test_targets_are_those_of_the_next_keypose() -> None:
    found = find_keyposes(pick_and_place().motion())
    steps = np.array([0, found.start[0], found.start[0] + 1, found.start[1], found.start[1] + 1])
    targets = found.targets(steps)
    assert targets["keypose/number"].tolist() == [0, 0, 1, 1, -1]
    assert targets["keypose/acting"][:, 0].tolist() == [True, True, True, True, False]
    np.testing.assert_allclose(targets["keypose/pose"][0], found.pose[0], atol=1e-6)


def test_what_is_carried_lies_between_closing_and_opening() -> None:
    made = pick_and_place()
    motion = made.motion()
    found = find_keyposes(motion)
    steps = np.arange(0, len(made.place), 4)
    ((arm, away, marked),) = carried_spans(found, steps, motion.pose[steps])
    assert arm == 0
    for frames in (away, marked):
        assert (steps[frames] > found.end[0]).all()
        assert (steps[frames] <= found.start[1]).all()
    grasp = found.pose[0, 0, :3, 3]
    distance = np.linalg.norm(motion.pose[steps[away], 0, :3, 3] - grasp, axis=-1)
    assert distance.min() > 0.04


def hurried(*corners: Floats, speed: float = 0.8) -> Floats:
    """Returns positions (T, 3) on straight lines between corners, with slower steps near them."""
    way = [corners[0]]
    for goal in corners[1:]:
        while (left := float(np.linalg.norm(goal - way[-1]))) > 0.004:
            step = min(speed / HZ, max(0.4 * left, 0.003))
            way.append(way[-1] + (goal - way[-1]) * step / left)
    return np.array(way)


def motion_of(way: Floats, opening: Floats) -> Motion:
    poses = np.tile(np.eye(4), (len(way), 1, 1, 1))
    poses[:, 0, :3, 3] = way
    return Motion(poses, opening[:, None], HZ)


START, ABOVE, BLOCK, GOAL = map(
    np.array, ([0.0, 0.0, 0.2], [0.2, 0.1, 0.2], [0.2, 0.1, 0.02], [-0.1, 0.3, 0.2])
)


def test_a_stroke_in_flight_is_where_the_hand_turns() -> None:
    """The gripper of a hand in a hurry begins to close before it is there."""
    way = hurried(START, ABOVE, BLOCK, GOAL)
    lowest = int(way[:, 2].argmin())
    opening = np.where(np.arange(len(way)) < lowest - 8, 0.9, 0.2)
    found = find_keyposes(motion_of(way, opening))
    assert list(events_in_words(found, ("arm",))) == ["arm closes", "arm stops"]
    assert abs(found.start[0] - lowest) <= 2
    np.testing.assert_allclose(found.pose[0, 0, :3, 3], BLOCK, atol=0.01)
    assert (found.before[0, 0], found.after[0, 0]) == (0.9, 0.2)
    assert found.start[1] == len(way) - 1, "it ends in flight"
    np.testing.assert_allclose(found.pose[1, 0, :3, 3], way[-1])


def test_turns_in_flight_are_stops_without_strokes() -> None:
    way = hurried(START, ABOVE, BLOCK, GOAL)
    found = find_keyposes(motion_of(way, np.ones(len(way))))
    assert list(events_in_words(found, ("arm",))) == 3 * ["arm stops"]
    for place, goal in zip(found.pose[:, 0, :3, 3], (ABOVE, BLOCK, GOAL), strict=True):
        np.testing.assert_allclose(place, goal, atol=0.015)


def test_an_arm_that_stands_still_on_its_way_is_not_in_a_hurry() -> None:
    """Then a stroke in flight is the shape of the hand, as before."""
    way = np.concatenate([hurried(START, ABOVE), np.tile(ABOVE, (40, 1)), hurried(ABOVE, GOAL)])
    opening = np.where(np.arange(len(way)) < 5, 0.9, 0.2)
    found = find_keyposes(motion_of(way, opening))
    assert set(events_in_words(found, ("arm",))) == {"arm stops"}
    np.testing.assert_allclose(found.pose[0, 0, :3, 3], ABOVE, atol=0.01)


def test_frames_at_a_turn_ask_for_what_comes_next() -> None:
    """Nobody has waited there, but an arm that has been sent there does."""
    way = hurried(START, ABOVE, BLOCK, GOAL)
    found = find_keyposes(motion_of(way, np.ones(len(way))))
    near = np.linalg.norm(way - found.pose[0, 0, :3, 3], axis=-1) < 0.02
    assert (found.next_of(np.flatnonzero(near)[1:]) == 1).all()
    assert (found.end == found.start).all()
