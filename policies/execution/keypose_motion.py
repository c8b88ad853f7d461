"""From predicted keyposes to targets of the arms: smooth motion within the robot's limits.

The way to a keypose has four parts: a free motion by its corner to its approach pose, the straight
part, the stroke of the gripper, and the departure. The free motion is planned again with each
prediction, from the position, speed and acceleration that the last plan commands now, so targets
are smooth to their second derivative. What follows it is committed, since a hand close to an object
hides it. A gripper that closed on nothing opens and goes back, and the next prediction may choose
another mode. A gripper that is stopped before it opens may search for the way in, and an arm that
holds something stays where it is when nothing is left to do.

This module does not import torch.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, angle_between
from stringline.policies.execution.trajectories import (
    MotionSettings,
    MotionSpace,
    TrajectoryPlanner,
)

logger = logging.getLogger(__name__)
Floats = NDArray[np.float64]
_LEAST_FREE_S = 0.3
"""Least time of a free motion. One that ends sooner is not planned again, or it would never end."""
_BLOCKED_M = 0.006
"""Distance by which a gripper stays behind its target where something stops it, m."""
_BLOCKED_MOVING_M = 0.011
"""The same of a gripper that still moves, whose joints lag."""
_FREE_M = 0.0036
"""Distance behind its target below which a gripper that searches has found the way in, m."""
_PRESS_M = 0.006
"""Distance by which a search presses, m."""
_SLOW_S = 1.5
"""Least time of a straight part on which a search can begin, s: slow joints lag little."""
_LOOK_S = 0.34
"""Time at a keypose in which a search can begin, s: more than the time between two plans."""
_MOST_SEARCHES = 2
"""Searches on the way to one keypose."""
_PASSED = 0.05
"""Share of a stop where the arm has been, at most: from there on it looks like before it."""


@dataclass(frozen=True)
class PredictedKeypose:
    """A prediction with M modes for each of A arms; openings and probabilities are of each arm.

    Attributes:
        pose: (A, M, 4, 4) `T_base_gripper`.
        approach: (A, M, 3) position of the approach pose, whose rotation is that of the keypose.
        corner: (A, M, 3) the same of the corner.
        departure: (A, M, 3) the same of the departure.
        share: (A, M) weights of the modes, falling.
        acts: (A,) probability that the arm acts.
        moves: (A,) probability that it moves.
        before: (A, M) openings at the keypose, before the stroke.
        after: (A, M) openings after it.
    """

    pose: Floats
    approach: Floats
    corner: Floats
    departure: Floats
    share: Floats
    acts: Floats
    moves: Floats
    before: Floats
    after: Floats

    def acting(self, least: float = 0.5) -> tuple[int, ...]:
        """Returns the arms that act: those more likely than not, or else the likeliest.

        Args:
            least: Probability below which no arm acts: the task is done.
        """
        likely = np.flatnonzero(self.acts > 0.5)
        if not len(likely) and self.acts.max() > least:
            likely = np.array([self.acts.argmax()])
        return tuple(likely.tolist())


@dataclass(frozen=True)
class _Goal:
    """The chosen keypose: poses (A, 4, 4) and openings (A,) of each arm.

    Arms that act are among those that move.
    """

    acting: tuple[int, ...]
    moving: tuple[int, ...]
    pose: Floats
    approach: Floats
    corner: Floats
    departure: Floats
    before: Floats
    after: Floats

    def closes(self, arm: int) -> bool:
        """Returns whether the gripper of an arm closes."""
        return bool(self.after[arm] < self.before[arm] - 0.02)


@dataclass
class _Miss:
    """Misses of one arm at one place."""

    arm: int
    position: Floats
    count: int = 1


@dataclass
class _Plan:
    """Commanded targets (T, J) from a time on, and what they are for.

    Attributes:
        start: Time of the first target, s.
        q: (T, J).
        goal: The keypose; if None, the arms hold or go home.
        corner_at: Time at which the arms have passed the corner, s.
        free_until: Time until which a new prediction may change the way, s.
        done_at: Time from which a prediction of the next keypose is wanted, s.
        straight_at: Time at which the straight part to the keypose begins, s.
        arrived_at: Time at which it ends, s.
        stroke_at: Time at which the strokes begin, s.
        stroke_end: Time at which they have ended, s.
        search_until: Time until which it searches, s.
        retreats: Whether it goes back from an empty grasp.
        checked: Whether the grasp has been checked.
    """

    start: float
    q: Floats
    goal: _Goal | None = None
    corner_at: float = np.inf
    free_until: float = 0.0
    done_at: float = 0.0
    straight_at: float = np.inf
    arrived_at: float = np.inf
    stroke_at: float = np.inf
    stroke_end: float = np.inf
    search_until: float = -np.inf
    retreats: bool = False
    checked: bool = False

    def may_change(self, time: float) -> bool:
        """Returns whether a new prediction may change the way from a time on."""
        return time < self.free_until and not 0 < self.corner_at - time <= _LEAST_FREE_S


class KeyposeMotion:
    """The motion of one episode.

    Args:
        space: The coordinates in which the arms move, of this episode only.
        control_hz: Targets per second.
        settings: See `MotionSettings`.
        held_opening: (A,) smallest opening of each gripper that holds something in the data; a
            closed gripper at less than half of it has missed.
    """

    def __init__(
        self,
        space: MotionSpace,
        control_hz: float,
        settings: MotionSettings,
        held_opening: Sequence[float],
    ) -> None:
        self._space = space
        self._arms = space.arms
        self._dt = 1.0 / control_hz
        self._settings = settings
        self._held_opening = np.asarray(held_opening, np.float64)
        self._planner = TrajectoryPlanner(space, control_hz, settings)
        self._plan: _Plan | None = None
        self._holds = [False] * len(self._arms)
        self._opening = dict.fromkeys(range(len(self._arms)), 1.0)
        self._misses: list[_Miss] = []
        self._grasped: dict[int, Floats] = {}
        self._passed: dict[int, Floats] = {}
        self._released: dict[int, Floats] = {}
        self._doubts = 0
        self._idle = 0
        self._searches = 0

    def wants_prediction(self, time: float) -> bool:
        """Returns whether a prediction at a time could change the motion."""
        plan = self._plan
        return plan is None or plan.may_change(time) or time >= plan.done_at

    def targets(
        self,
        time: float,
        count: int,
        measured: Vector,
        prediction: PredictedKeypose | None,
        fixed_s: float = 0.0,
    ) -> Floats:
        """Returns joint targets (count, J) from a time on, one for each control period.

        Args:
            time: Time of the observation, s.
            count: Number of targets.
            measured: (J,) measured joints.
            prediction: The prediction for the observation; None if the motion goes on.
            fixed_s: Time during which the targets of the last plan stay as they are, s.
        """
        self._resynchronise(time, measured)
        start = time + fixed_s
        self._check_grips(time, start, measured)
        self._search(time, start, measured)
        if prediction is not None and self.wants_prediction(time):
            self._decide(time, start, prediction)
        plan = self._plan
        assert plan is not None  # `_resynchronise` has made one.
        return self._sampled(plan, time + self._dt * np.arange(count, dtype=np.float64))

    def _resynchronise(self, time: float, measured: Vector) -> None:
        """Starts from the measured joints at first, and where the arms did not follow."""
        q = np.clip(measured, self._space.lower, self._space.upper)
        if self._plan is not None:
            commanded = self._sampled(self._plan, np.array([time]))[0]
            away = (np.abs(commanded - measured) / self._space.astray)[self._space.moving].max()
            if away <= 1.0:
                return
            logger.debug("The arms are far from their targets; they start anew there.")
            # The measured opening of a gripper is no command to hold.
            places = list(self._space.grippers.values())
            q[places] = commanded[places]
        self._plan = _Plan(time, q[None].astype(np.float64), free_until=np.inf, done_at=time)

    def _sampled(self, plan: _Plan, times: Floats) -> Floats:
        """Returns the targets (N, J) of a plan at times (N,), the last one after its end."""
        place = np.clip((times - plan.start) / self._dt, 0.0, len(plan.q) - 1.0)
        first = np.floor(place + 1e-6).astype(int)
        share = np.clip(place - first, 0.0, 1.0)[:, None]
        later = np.minimum(first + 1, len(plan.q) - 1)
        return np.asarray(plan.q[first] * (1 - share) + plan.q[later] * share)

    def _check_grips(self, time: float, start: float, measured: Vector) -> None:
        """Notices grippers that hold nothing after their stroke, and starts the retreat."""
        plan = self._plan
        assert plan is not None
        goal = plan.goal
        is_free = time < plan.free_until or time >= plan.done_at
        if is_free and self._lost(start, measured):
            return
        if goal is None or time < plan.stroke_end - 1e-6 or plan.checked or plan.retreats:
            return
        plan.checked = True
        empty = []
        for arm in goal.acting:
            self._holds[arm] = goal.closes(arm)
            self._opening[arm] = float(goal.before[arm])
            for places in (self._passed, self._released, self._grasped):
                places.pop(arm, None)
            if not self._acts_visibly(goal, arm):
                self._passed[arm] = goal.pose[arm, :3, 3]
            elif self._opens(goal, arm):
                self._released[arm] = goal.pose[arm, :3, 3]
            place = self._space.grippers.get(self._arms[arm])
            least = 0.5 * self._held_opening[arm]
            if place is not None and goal.closes(arm) and measured[place] < least:
                empty.append(arm)
                self._holds[arm] = False
                self._count_miss(arm, goal.pose[arm, :3, 3])
            elif goal.closes(arm):
                self._grasped[arm] = goal.pose[arm, :3, 3]
        if empty:
            self._retreat(time, start, goal, empty)

    def _search(self, time: float, start: float, measured: Vector) -> None:
        """Searches for the way in where something stops a gripper that is about to open.

        The gripper presses a little and moves on a spiral, until it is no longer stopped; from
        there it goes on.
        """
        plan = self._plan
        assert plan is not None
        goal = plan.goal
        if not self._settings.search_m or goal is None or len(goal.acting) != 1:
            return
        (arm,) = goal.acting
        along = goal.pose[arm, :3, 3] - goal.approach[arm, :3, 3]
        length = float(np.linalg.norm(along))
        if length < 1e-3 or not self._opens(goal, arm):
            return
        along = along / length
        tracks = self._sampled(plan, np.array([time]))[0], measured
        target, here = (self._space.poses(q)[self._arms[arm]][:3, 3] for q in tracks)
        behind = float(along @ (target - here))
        q, v, a = self._state(start)
        if time < plan.search_until:
            if behind < _FREE_M:
                pose = goal.pose.copy()
                beside = target - pose[arm, :3, 3]
                pose[arm, :3, 3] += beside - (beside @ along) * along
                stop = self._planner.free(q, v, a, q, 0.1)
                self._plan = self._to_the_end([stop], replace(goal, pose=pose), time, start)
        elif plan.straight_at <= time < plan.stroke_at and self._searches < _MOST_SEARCHES:
            moves = time < plan.arrived_at + self._settings.settle_s
            if behind > (_BLOCKED_MOVING_M if moves else _BLOCKED_M):
                self._searches += 1
                centre = goal.pose[arm].copy()
                centre[:3, 3] += (along @ (here - centre[:3, 3]) + _PRESS_M) * along
                back = self._planner.free(q, v, a, self._planner.solved({arm: centre}, q), 0.2)
                way = self._planner.spiral(back[-1], arm, centre, along, self._settings.search_m)
                self._plan = self._to_the_end([back, way], goal, time, start)
                self._plan.search_until = start + self._dt * (len(back) + len(way))

    def _lost(self, start: float, measured: Vector) -> bool:
        """Opens grippers that have lost what they held, and stops for a new prediction."""
        plan = self._plan
        assert plan is not None
        lost = [
            arm
            for arm, name in enumerate(self._arms)
            if self._holds[arm]
            and name in self._space.grippers
            and measured[self._space.grippers[name]] < 0.5 * self._held_opening[arm]
        ]
        if not lost:
            return False
        q, v, a = self._state(start)
        opened = q.copy()
        for arm in lost:
            self._holds[arm] = False
            if arm in self._grasped:  # What slips out of the pads was not grasped well there.
                self._count_miss(arm, self._grasped.pop(arm))
            self._set_opening(opened, arm, self._opening[arm])
        stop = self._planner.free(q, v, a, opened, 0.4)
        self._plan = self._joined(start, start, stop, goal=None)
        return True

    def _count_miss(self, arm: int, position: Floats) -> None:
        for miss in self._misses:
            if miss.arm == arm and np.linalg.norm(miss.position - position) < self._settings.same_m:
                miss.count += 1
                return
        self._misses.append(_Miss(arm, position.copy()))

    def _decide(self, time: float, start: float, prediction: PredictedKeypose) -> None:
        """Chooses the goal of a prediction and plans the way to it from a time on."""
        plan = self._plan
        assert plan is not None
        if not plan.may_change(start) and time < plan.done_at:
            return  # What is fixed ends in the part of the plan that is committed.
        acting = prediction.acting(
            self._settings.rest_holding if any(self._holds) else self._settings.rest
        )
        if not acting:
            self._rest(time, start)
            return
        self._idle = 0
        on_its_way = plan.goal if time < plan.free_until else None
        goal = self._chosen(prediction, acting, on_its_way)
        differs = on_its_way is not None and self._differs(goal, on_its_way)
        if differs:
            self._doubts += 1
            if self._doubts < 2:
                return
        self._doubts = 0
        passed = on_its_way is not None and start >= plan.corner_at and not differs
        self._plan = self._way_to(goal, time, start, by_corner=not passed)

    def _chosen(
        self, prediction: PredictedKeypose, acting: tuple[int, ...], before: _Goal | None
    ) -> _Goal:
        """Chooses a mode for each arm: the goal so far where it is still likely, never a miss."""
        arms = range(len(self._arms))
        moving = tuple(arm for arm in arms if arm in acting or prediction.moves[arm] > 0.5)
        modes = [self._mode(prediction, arm, before) for arm in arms]
        chosen = np.stack([prediction.pose[arm, modes[arm]] for arm in arms])
        pose = self._space.attainable(chosen)

        def beside(positions: Floats) -> Floats:
            poses = pose.copy()
            for arm in arms:
                poses[arm, :3, 3] = positions[arm, modes[arm]]
            return poses

        return _Goal(
            acting,
            moving,
            pose,
            beside(prediction.approach),
            beside(prediction.corner),
            beside(prediction.departure),
            np.clip([prediction.before[arm, modes[arm]] for arm in arms], 0.0, 1.0),
            np.array([self._opening_after(prediction, arm, modes[arm]) for arm in arms]),
        )

    def _opening_after(self, prediction: PredictedKeypose, arm: int, mode: int) -> float:
        """Returns the opening after the stroke.

        A release that is due again where it has just been made did not free the load, such as a
        box that lies turned between the fingers: then the gripper opens fully.
        """
        before, after = (float(part[arm, mode]) for part in (prediction.before, prediction.after))
        if after > before + 0.02 and arm in self._released:
            away = np.linalg.norm(prediction.pose[arm, mode, :3, 3] - self._released[arm])
            if away < self._settings.same_m:
                return 1.0
        return min(max(after, 0.0), 1.0)

    def _mode(self, prediction: PredictedKeypose, arm: int, before: _Goal | None) -> int:
        positions = prediction.pose[arm, :, :3, 3]
        share = prediction.share[arm].copy()
        for miss in self._misses:
            if miss.arm == arm and miss.count >= self._settings.missed:
                near = np.linalg.norm(positions - miss.position, axis=-1) < self._settings.same_m
                share[near] = np.minimum(share[near], 1e-3)
        if arm in self._passed:
            near = np.linalg.norm(positions - self._passed[arm], axis=-1) < self._settings.same_m
            share[near] = np.minimum(share[near], _PASSED)
        if before is not None and arm in before.moving:
            away = np.linalg.norm(positions - before.pose[arm, :3, 3], axis=-1)
            near = (away < self._settings.jump_m) & (share > 0.25 * share.max())
            if near.any():
                return int(np.where(near, away, np.inf).argmin())
        return int(share.argmax())

    def _differs(self, goal: _Goal, other: _Goal) -> bool:
        """Returns whether two goals are different keyposes, not one seen a little otherwise."""
        if goal.acting != other.acting:
            return True
        away = np.linalg.norm(goal.pose[:, :3, 3] - other.pose[:, :3, 3], axis=-1)
        return any(
            away[arm] > self._settings.jump_m or goal.closes(arm) != other.closes(arm)
            for arm in goal.acting
        )

    def _rest(self, time: float, start: float) -> None:
        """Holds; after the second prediction without an event, arms without a load go home.

        The others stay: on the way home a load could turn, and fall out of the hand or apart.
        """
        plan = self._plan
        assert plan is not None
        self._idle += 1
        q, v, a = self._state(start)
        home = self._space.home.copy()
        for place in self._space.grippers.values():
            home[place] = q[place]  # A closed hand without anything looks as if it held something.
        for arm, places in enumerate(self._space.of_arm):
            if self._holds[arm]:
                home[places] = q[places]
        away = np.abs(q - home)[self._space.moving].max()
        if self._idle < 2 or away < 0.05:
            if plan.goal is not None and time < plan.free_until:
                return  # A single doubt does not stop a motion.
            stop = self._planner.free(q, v, a, q, 0.3) if np.abs(v).max() > 1e-3 else q[None]
            self._plan = self._joined(time, start, stop, goal=None)
            return
        if (
            plan.goal is None
            and time < plan.start + self._dt * (len(plan.q) - 1)
            and self._idle > 2
        ):
            return  # It is on its way.
        way = self._planner.free(q, v, a, home, 0.8)
        self._plan = self._joined(time, start, way, goal=None)

    def _joined(self, time: float, start: float, q: Floats, goal: _Goal | None) -> _Plan:
        """Returns a plan with the targets of the last plan until a start, and new ones after it.

        The first target is a few before the time of the observation: enough for speed and
        acceleration.
        """
        plan = self._plan
        assert plan is not None
        kept = round((start - time) / self._dt) + 4
        times = start - self._dt * np.arange(kept, -1, -1, dtype=np.float64)
        whole = np.concatenate((self._sampled(plan, times), q))
        return _Plan(float(times[0]), whole, goal, np.inf, start)

    def _state(self, time: float) -> tuple[Vector, Vector, Vector]:
        """Returns the commanded position, speed and acceleration at a time."""
        plan = self._plan
        assert plan is not None
        before, now, after = self._sampled(plan, time + self._dt * np.array([-1.0, 0.0, 1.0]))
        return now, (after - before) / (2 * self._dt), (after - 2 * now + before) / self._dt**2

    def _way_to(self, goal: _Goal, time: float, start: float, by_corner: bool) -> _Plan:
        """Plans the whole way to a goal, its strokes and the departure."""
        q, v, a = self._state(start)
        arms = self._space.poses(q)
        goal = self._pressed(self._where_it_is(goal, arms))
        in_place = all(np.allclose(goal.approach[arm], goal.pose[arm]) for arm in goal.acting)
        parts: list[Floats] = []
        free_s = 0.0
        corner_s = 0.0
        if in_place:
            parts.append(self._planner.free(q, v, a, q, 0.1))
        else:
            first = {arm: (goal.corner if by_corner else goal.approach)[arm] for arm in goal.acting}
            first |= {arm: goal.pose[arm] for arm in goal.moving if arm not in goal.acting}
            target = self._planner.solved(first, q)
            for arm in goal.acting:
                self._set_opening(target, arm, goal.before[arm])
            parts.append(self._planner.free(q, v, a, target, _LEAST_FREE_S))
            corner_s = self._dt * len(parts[0]) if by_corner else 0.0
            ends = {arm: goal.approach[arm] for arm in goal.acting}
            straight = self._planner.straight(parts[-1][-1], ends)
            if straight is not None:
                parts.append(straight)
            free_s = self._dt * sum(map(len, parts))
        self._searches = 0
        plan = self._to_the_end(parts, goal, time, start)
        plan.corner_at = start + corner_s
        plan.free_until = start + max(free_s - _LEAST_FREE_S, 0.0)
        return plan

    def _to_the_end(self, parts: list[Floats], goal: _Goal, time: float, start: float) -> _Plan:
        """Returns a plan of some parts, the straight part to the keypose, strokes and departure."""
        settings = self._settings
        parts = list(parts)
        straight_at = start + sum(map(len, parts)) * self._dt
        looks = settings.search_m and any(self._opens(goal, arm) for arm in goal.acting)
        straight = self._planner.straight(
            parts[-1][-1],
            {arm: goal.pose[arm] for arm in goal.acting},
            least_s=_SLOW_S if looks else None,
        )
        if straight is not None:
            parts.append(straight)
        arrived_at = start + sum(map(len, parts)) * self._dt
        wait = settings.settle_s + (_LOOK_S if looks else 0.0)
        parts.append(self._planner.held(parts[-1][-1], wait))
        stroke_at = start + sum(map(len, parts)) * self._dt
        parts.append(self._stroke(parts[-1][-1], goal))
        stroke_end = sum(map(len, parts)) * self._dt
        departure = self._planner.straight(
            parts[-1][-1], {arm: goal.departure[arm] for arm in goal.acting}, least_s=0.4
        )
        if departure is not None and any(self._acts_visibly(goal, arm) for arm in goal.acting):
            parts.append(departure)
        plan = self._joined(time, start, np.concatenate(parts), goal)
        end = start + sum(map(len, parts)) * self._dt
        plan.straight_at = straight_at
        plan.arrived_at = arrived_at
        plan.stroke_at = stroke_at
        plan.stroke_end = start + stroke_end
        # The scene is free again half-way through the departure.
        plan.done_at = max(start + stroke_end, end - 0.2)
        return plan

    def _pressed(self, goal: _Goal) -> _Goal:
        """Returns a goal whose gripper moves `press_m` further before it opens."""
        pose = goal.pose.copy()
        for arm in goal.acting:
            way = pose[arm, :3, 3] - goal.approach[arm, :3, 3]
            length = float(np.linalg.norm(way))
            if goal.after[arm] > goal.before[arm] + 0.02 and length > 1e-3:
                pose[arm, :3, 3] += self._settings.press_m / length * way
        return replace(goal, pose=pose)

    def _opens(self, goal: _Goal, arm: int) -> bool:
        return self._acts_visibly(goal, arm) and not goal.closes(arm)

    def _acts_visibly(self, goal: _Goal, arm: int) -> bool:
        return abs(float(goal.after[arm] - goal.before[arm])) > 0.02

    def _where_it_is(self, goal: _Goal, now: Mapping[str, Matrix]) -> _Goal:
        """Replaces keyposes at which their grippers are already by the present poses."""
        names = ("pose", "approach", "corner", "departure")
        poses = {name: getattr(goal, name).copy() for name in names}
        changed = False
        for arm in goal.acting:
            here = now[self._arms[arm]]
            offset = goal.pose[arm, :3, 3] - here[:3, 3]
            turn = angle_between(here[:3, :3], goal.pose[arm, :3, :3])
            if np.linalg.norm(offset) < self._settings.same_m and turn < self._settings.same_rad:
                changed = True
                away = goal.departure[arm, :3, 3] - goal.pose[arm, :3, 3]
                for name in names:
                    poses[name][arm] = here
                poses["departure"][arm, :3, 3] += away
        if not changed:
            return goal
        return _Goal(goal.acting, goal.moving, **poses, before=goal.before, after=goal.after)

    def _retreat(self, time: float, start: float, goal: _Goal, empty: Sequence[int]) -> None:
        """Opens grippers that closed on nothing and goes straight back to the approach."""
        q, v, a = self._state(start)
        opened = q.copy()
        for arm in empty:
            self._set_opening(opened, arm, goal.before[arm])
        first = self._planner.free(q, v, a, opened, 0.3)
        back = self._planner.straight(
            first[-1], {arm: goal.approach[arm] for arm in empty}, least_s=0.4
        )
        way = first if back is None else np.concatenate((first, back))
        plan = self._joined(time, start, way, goal)
        plan.free_until = time
        plan.done_at = start + self._dt * (len(way) - 1)
        plan.retreats = True
        self._plan = plan

    def _set_opening(self, q: Vector, arm: int, opening: float) -> None:
        place = self._space.grippers.get(self._arms[arm])
        if place is not None:
            q[place] = opening

    def _stroke(self, q: Vector, goal: _Goal) -> Floats:
        """Returns targets (T, J) of the strokes of the acting grippers."""
        settings = self._settings
        visible = [arm for arm in goal.acting if self._acts_visibly(goal, arm)]
        if not visible:
            return self._planner.held(q, self._dt)
        seconds = max(settings.close_s if goal.closes(arm) else settings.open_s for arm in visible)
        end = q.copy()
        for arm in visible:
            self._set_opening(end, arm, goal.after[arm])
        places = [
            self._space.grippers[self._arms[arm]]
            for arm in visible
            if self._arms[arm] in self._space.grippers
        ]
        stroke_s = max(
            (abs(end[p] - q[p]) / self._planner.top_speed[p] for p in places), default=0.0
        )
        count = max(round(max(seconds, stroke_s + 0.1) / self._dt), 1)
        time = self._dt * np.arange(1, count + 1)
        share = np.clip(time / max(stroke_s, self._dt), 0.0, 1.0)[:, None]
        return np.asarray(q + share * (end - q))
