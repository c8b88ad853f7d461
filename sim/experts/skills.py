"""Scripted experts and their skills in closed loop: picking, carrying and placing.

A script is a generator that reads the true poses and contacts of the world and yields joint
targets. Grasps are measured after the gripper has closed, and failed ones are repeated. An expert
whose motions do not vary replaces its random draws by draws that are the same in every episode.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics, OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, angle_between, inverse
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.motion import (
    OPEN,
    TOLERANCE,
    Grasp,
    Motion,
    Move,
    Target,
    backed,
    raised,
)
from stringline.sim.props.prop import Prop
from stringline.sim.tasks.tabletop import TabletopTask

FALLEN_M = 0.1  # Depth below the table at which an object lies on the floor.


class Scene:
    """Reads the true state of a world in a running episode."""

    def __init__(self, env: TaskEnvironment, task: TabletopTask) -> None:
        self.env = env
        self.task = task

    @property
    def table(self) -> float:
        """Height of the table top, metres."""
        return self.task.table_height

    def joints(self) -> Vector:
        """Returns the measured joints (J,)."""
        return self.task.robot.positions(self.env.physics)

    def gripper(self, arm: str) -> Matrix:
        """Returns the measured pose (4, 4) of a gripper in the base frame."""
        return self.task.embodiment.forward_kinematics(self.joints())[arm]

    def pose(self, prop: Prop) -> Matrix:
        """Returns the pose (4, 4) of a prop in the base frame."""
        return self.task.pose(self.env.physics, prop)

    def in_gripper(self, arm: str, prop: Prop) -> Matrix:
        """Returns the measured pose (4, 4) of a prop in the frame of a gripper."""
        return inverse(self.gripper(arm)) @ self.pose(prop)

    def holds(self, arm: str, prop: Prop) -> bool:
        """Returns whether both pads of an arm touch a prop."""
        return self.task.contact_state(self.env.physics).held(arm, prop.name)

    def held(self, arm: str) -> list[Prop]:
        """Returns the props that both pads of an arm touch."""
        contacts = self.task.contact_state(self.env.physics)
        return [prop for prop in self.task.props.values() if contacts.held(arm, prop.name)]

    def fallen(self) -> str | None:
        """Returns the name of a prop that has fallen off the table, or None."""
        names = self.task.props.items()
        low = (name for name, prop in names if self.pose(prop)[2, 3] < self.table - FALLEN_M)
        return next(low, None)

    def is_free(self, arm: str, prop: Prop) -> bool:
        """Returns whether a held prop touches arms and props that arms hold, and nothing else."""
        contacts = self.task.contact_state(self.env.physics)
        still = [name for name in self.task.props if not contacts.held_by_any(name)]
        return not any(contacts.between(prop.name, other) for other in (*still, "table"))

    def foot(self, arm: str) -> Vector:
        """Returns the position (3,) of an arm's foot in the base frame, metres."""
        chains = self.task.embodiment.chains
        return next(chain.T_base_root[:3, 3] for chain in chains if chain.arm == arm)


# Share of a range by which the draws of each further attempt leave its middle more.
MORE_SHARE = 0.25


class PlainDraws(np.random.Generator):
    """A source of randomness that depends on the number of the attempt alone.

    Numbers from a range lie in its middle at the first attempt, and farther from it at each further
    one, up to the whole range.
    """

    def __init__(self, attempt: int = 0) -> None:
        super().__init__(np.random.PCG64(attempt))
        self._share = min(MORE_SHARE * attempt, 1.0)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        """Returns numbers around the middle of a range."""
        middle = (np.asarray(low) + np.asarray(high)) / 2
        return middle + self._share * (super().uniform(low, high, size) - middle)


# Seconds until a grip holds: 0.42 for the command to arrive and 0.2 for the drive; a learner's
# timing is no better.
CLOSING = 0.6
OPENING = 0.3
SETTLING = 0.15
RETURNING = 0.2  # From the command to the measured joints, after a missed grasp.

SUCCESS = 0.8  # Until what has been done counts.
STOPPING = 0.2  # Until arms that another one has moved stand still.
# Largest distance between the commanded and the measured gripper, metres, when an expert takes
# over; beyond it the arm is blocked, and commands start anew from the measured joints.
WINDUP = 0.03
LOWERING = 0.08  # Speed at which an object is put back, m/s.
RELEASE = 0.35  # Opening by which a gripper releases an object beside others.
AWAY = (0.09, 0.05)  # Distances by which a gripper withdraws, the first in reach.
FAR = 0.09  # Gap to the ball around an object from which on it need not withdraw.

# Metres and radians by which a gripper may miss the grasp; beyond, it backs off and tries again.
MISS = (0.015, 0.25)
FURTHER_APPROACHES = 2
# Attempts in which a plain expert keeps to its usual options.
USUAL_ATTEMPTS = 40

Done = Generator[Vector, None, bool]
ItemT = TypeVar("ItemT")


class Skills:
    """The motions that a script consists of.

    Skills yield joint targets (J,); `yield from` returns whether they succeeded.

    Args:
        scene: The true state of the world.
        motion: Planner of joint targets.
        kinematics: Inverse kinematics of the arms.
        rng: Source of randomness.
        pace: Factor by which phases last longer than their nominal duration.
        varied: Whether choices are drawn. Otherwise the same ones come first in every episode.
    """

    def __init__(
        self,
        scene: Scene,
        motion: Motion,
        kinematics: InverseKinematics,
        rng: np.random.Generator,
        pace: float = 1.0,
        *,
        varied: bool = True,
    ) -> None:
        self.scene = scene
        self.motion = motion
        self.rng = rng
        self.pace = pace
        self.varied = varied
        self._kinematics = kinematics
        self._attempt = 0

    def with_motion(self, motion: Motion) -> "Skills":
        """Returns these skills with another planner, as for one of two arms that move at once."""
        return Skills(self.scene, motion, self._kinematics, self.rng, self.pace, varied=self.varied)

    def go(self, seconds: float, moves: Mapping[str, Move]) -> Iterator[Vector]:
        """Moves arms at the episode's pace, see `Motion.go`."""
        yield from self.motion.go(seconds * self.pace, moves)

    def wait(self, seconds: float) -> Iterator[Vector]:
        """Waits at rest, while grippers move."""
        yield from self.motion.hold(seconds * self.pace)

    def grip(self, arm: str, opening: float, seconds: float) -> Iterator[Vector]:
        """Moves a gripper to an opening and waits for it, at least as long as the drive needs."""
        self.motion.grip(arm, opening)
        yield from self.motion.hold(seconds * max(self.pace, 1.0))

    def go_home(self, *arms: str, seconds: float = 0.8) -> Iterator[Vector]:
        """Moves arms to their home pose."""
        yield from self.motion.go_home(seconds * self.pace, arms)

    def in_reach(self, arm: str, *targets: Matrix) -> bool:
        """Returns whether an arm can go through successive gripper poses (4, 4) from here."""
        return self.joints_along(arm, *targets) is not None

    def joints_along(self, arm: str, *targets: Matrix) -> list[Vector] | None:
        """Returns the joints (J,) at successive gripper poses (4, 4); None if out of reach."""
        q = self.motion.q
        found = list[Vector]()
        try:
            for target in targets:
                q = self._kinematics.solve({arm: target}, q, tolerance=TOLERANCE)
                found.append(q)
        except OutOfReachError:
            return None
        return found

    def attempt(self, number: int) -> None:
        """Begins the draws of an attempt, which are the same in all episodes unless they vary."""
        self._attempt = number
        if not self.varied:
            self.rng = PlainDraws(number)

    def ordered(self, items: Sequence[ItemT], cost: Callable[[ItemT], float]) -> list[ItemT]:
        """Returns items in a random order, or by their cost, the lowest first."""
        if not self.varied:
            return sorted(items, key=cost)
        return [items[int(index)] for index in self.rng.permutation(len(items))]

    def ordered_grasps(
        self,
        arm: str,
        T_base_prop: Matrix,
        grasps: Sequence[Grasp],
        cost: Callable[[Matrix], float] = lambda _: 0.0,
    ) -> list[Grasp]:
        """Returns grasps in a random order, or by their `turn`, the smallest first.

        `cost`, rad, of a gripper's pose (4, 4) in the base frame is added to the turn. It decides
        between grasps of equal turns, where otherwise rounding would.
        """

        def total(grasp: Grasp) -> float:
            at = T_base_prop @ grasp.T_prop_gripper
            return self.turn(arm, at) + cost(at)

        return self.ordered(grasps, total)

    def one_of(self, items: Sequence[ItemT], cost: Callable[[ItemT], float]) -> ItemT:
        """Returns a random item, or the one of the lowest cost."""
        if not self.varied:
            return min(items, key=cost)
        return items[int(self.rng.integers(len(items)))]

    def option(self, options: Sequence[float], usual: float) -> float:
        """Returns a random option, or the usual one unless many attempts with it have failed."""
        if not self.varied and self._attempt < USUAL_ATTEMPTS:
            return usual
        return float(self.rng.choice(options))

    def unit(self, *shape: int) -> Vector:
        """Returns random numbers from 0 to 1, or the same ones in every episode."""
        rng = self.rng if self.varied else np.random.default_rng(0)
        return rng.uniform(size=shape)

    def turn(self, arm: str, T_base_gripper: Matrix) -> float:
        """Returns the angle between a pose (4, 4) of a gripper and that at home, rad."""
        embodiment = self.scene.task.embodiment
        home = embodiment.forward_kinematics(embodiment.home)[arm]
        return angle_between(home[:3, :3], T_base_gripper[:3, :3])

    def choose(
        self,
        arm: str,
        prop: Prop,
        grasps: Sequence[Grasp],
        cost: Callable[[Matrix], float] = lambda _: 0.0,
    ) -> Grasp | None:
        """Chooses a grasp in reach with the way to it, or returns None; see `ordered_grasps`."""
        T_base_prop = self.scene.pose(prop)
        for grasp in self.ordered_grasps(arm, T_base_prop, grasps, cost):
            at = T_base_prop @ grasp.T_prop_gripper
            if self.in_reach(arm, backed(at, grasp.hover), at):
                return grasp
        return None

    def pick(
        self,
        arm: str,
        prop: Prop,
        grasps: Sequence[Grasp],
        *,
        lift: float = 0.08,
        attempts: int = 3,
    ) -> Done:
        """Grasps an object and lifts it, in several attempts; returns whether it is held.

        Args:
            arm: Name of the arm.
            prop: The object.
            grasps: Grasps to draw from.
            lift: Height of the lift, metres.
            attempts: Number of attempts, each with a grasp of its own.

        Raises:
            OutOfReachError: No grasp is in reach.
        """
        for _ in range(attempts):
            grasp = self.choose(arm, prop, grasps)
            if grasp is None:
                where = np.round(self.scene.pose(prop)[:3, 3], 3).tolist()
                raise OutOfReachError(
                    f"None of {len(grasps)} grasps of {prop.name} at {where} m is in reach of the "
                    f"{arm} arm."
                )
            yield from self._take(arm, prop, grasp)
            yield from self.rise(arm, lift)
            if self.scene.holds(arm, prop):
                return True
        return False

    def place(
        self,
        arm: str,
        prop: Prop,
        goal: Callable[[], Matrix],
        *,
        above: float = 0.08,
        release: float = 1.0,
        retreat: float = 0.09,
    ) -> Done:
        """Brings a held object to a pose, releases it and backs off; ends early if it is lost.

        Args:
            arm: The arm that holds it.
            prop: The object.
            goal: Returns `T_base_prop` (4, 4) of the release; called at every step.
            above: Height above the goal from which the object comes down, metres.
            release: Opening that releases the object.
            retreat: Distance by which the gripper backs off, metres.
        """
        yield from self.carry(arm, prop, lambda: raised(goal(), above), seconds=1.1)
        if not self.scene.holds(arm, prop):
            return False
        yield from self.carry(arm, prop, goal, seconds=0.6, straight=True)
        if not self.scene.holds(arm, prop):
            return False
        yield from self.wait(SETTLING)
        yield from self.grip(arm, release, OPENING)
        yield from self.back_off(arm, retreat)
        return True

    def carry(
        self,
        arm: str,
        prop: Prop,
        goal: Callable[[], Matrix],
        *,
        seconds: float = 1.0,
        straight: bool = False,
    ) -> Iterator[Vector]:
        """Moves a held object to a pose `T_base_prop` (4, 4), by its measured pose in the gripper.

        Slips are corrected on the way. If the object is lost, the gripper goes on to its target.
        """
        T_prop_gripper = inverse(self.scene.in_gripper(arm, prop))

        def target() -> Matrix:
            nonlocal T_prop_gripper
            if self.scene.holds(arm, prop):
                T_prop_gripper = inverse(self.scene.in_gripper(arm, prop))
            return goal() @ T_prop_gripper

        yield from self.go(seconds, {arm: Move(target, straight=straight)})

    def rise(self, arm: str, height: float, seconds: float = 0.4) -> Iterator[Vector]:
        """Moves a gripper straight up, by metres."""
        T_up = raised(self.scene.gripper(arm), height)
        yield from self.go(seconds, {arm: Move(lambda: T_up, straight=True)})

    def back_off(self, arm: str, distance: float = 0.09, seconds: float = 0.5) -> Iterator[Vector]:
        """Moves a gripper backwards along its x axis, by metres."""
        T_away = backed(self.scene.gripper(arm), distance)
        yield from self.go(seconds, {arm: Move(lambda: T_away, straight=True)})

    def stop(self) -> Iterator[Vector]:
        """Stops arms that another controller has moved; a blocked one stays where it is."""
        yield from self.motion.hold(STOPPING)
        embodiment = self.scene.task.embodiment
        joints = self.scene.joints()
        commanded, measured = map(embodiment.forward_kinematics, (self.motion.q, joints))
        blocked = [
            arm
            for arm in embodiment.arms
            if np.linalg.norm(commanded[arm][:3, 3] - measured[arm][:3, 3]) > WINDUP
        ]
        if blocked:
            yield from self.motion.turn(RETURNING, dict.fromkeys(blocked, joints))

    def put_back(self, arm: str, prop: Prop) -> Iterator[Vector]:
        """Lowers a held object until it, or the arm, touches something that no arm holds."""
        T_start = self.scene.task.embodiment.forward_kinematics(self.motion.q)[arm]
        step = LOWERING / self.scene.env.contract.control_hz
        lowest = T_start[2, 3] - self.scene.table
        with suppress(OutOfReachError):
            for number in range(1, max(int(lowest / step), 0) + 1):
                contacts = self.scene.task.contact_state(self.scene.env.physics)
                free = self.scene.is_free(arm, prop) and not contacts.by_arm(arm, "table")
                if not free or not self.scene.holds(arm, prop):
                    break
                yield self.motion.step(arm, raised(T_start, -number * step))

    def withdraw(self, *arms: str) -> Iterator[Vector]:
        """Releases what arms hold, moves away from objects, and brings the arms home, open."""
        joints = self.scene.joints()
        for arm in arms:
            opening = float(joints[self.scene.task.embodiment.grippers[arm]])
            self.motion.grip(arm, min(opening + RELEASE, OPEN))
        yield from self.wait(OPENING)
        for arm in arms:
            with suppress(OutOfReachError):
                yield from self._move_away(arm)
            self.motion.grip(arm, OPEN)
        yield from self.go_home(*arms)

    def _move_away(self, arm: str) -> Iterator[Vector]:
        """Moves an open gripper backwards, or up, unless no object is near."""
        T = self.scene.gripper(arm)
        props = self.scene.task.props.values()
        places = [(self.scene.pose(prop)[:3, 3], prop.reach) for prop in props]
        if min(np.linalg.norm(place - T[:3, 3]) - reach for place, reach in places) > FAR:
            return
        ways = [move(T, distance) for distance in AWAY for move in (backed, raised)]
        T_away = next((way for way in ways if self.in_reach(arm, way)), None)
        if T_away is not None:
            yield from self.go(0.5, {arm: Move(lambda: T_away, straight=True)})

    def clear(self, arm: str, prop: Prop, height: float) -> Iterator[Vector]:
        """Lifts a held object by metres off what it touches, or half as high."""
        T = self.scene.gripper(arm)
        if self.scene.is_free(arm, prop):
            return
        for share in (1.0, 0.5):
            if self.in_reach(arm, raised(T, share * height)):
                with suppress(OutOfReachError):
                    yield from self.rise(arm, share * height)
                return

    def _take(self, arm: str, prop: Prop, grasp: Grasp) -> Iterator[Vector]:
        def at() -> Matrix:
            return self.scene.pose(prop) @ grasp.T_prop_gripper

        self.motion.grip(arm, grasp.opening)
        yield from self._approach(arm, at, grasp.hover)
        for _ in range(FURTHER_APPROACHES):
            if not self._misses(arm, at()):
                break
            yield from self.motion.turn(RETURNING, {arm: self.scene.joints()})
            yield from self.back_off(arm, grasp.hover)
            yield from self._approach(arm, at, grasp.hover)
        yield from self.grip(arm, grasp.closed, CLOSING)

    def _approach(self, arm: str, at: Target, hover: float) -> Iterator[Vector]:
        yield from self.go(1.0, {arm: Move(lambda: backed(at(), hover))})
        T_base_gripper = at()
        yield from self.go(0.5, {arm: Move(lambda: T_base_gripper, straight=True)})
        yield from self.wait(SETTLING)

    def _misses(self, arm: str, T_base_grasp: Matrix) -> bool:
        """Whether a gripper is too far from the grasp (4, 4), as after a disturbed approach."""
        T_error = inverse(T_base_grasp) @ self.scene.gripper(arm)
        angle = angle_between(np.eye(3), T_error[:3, :3])
        return bool(np.linalg.norm(T_error[:3, 3]) > MISS[0] or angle > MISS[1])


TaskT = TypeVar("TaskT", bound=TabletopTask)
CONTINUATIONS = 5  # Attempts of an expert that has taken over.
KEPT_ATTEMPTS = 2  # The attempts of them that go on with what an arm holds.


class ScriptedExpert(ABC, Generic[TaskT]):
    """Follows a script; grasps, motions and pace vary from episode to episode unless it is plain.

    Args:
        paces: Range of the factor by which the phases of an episode last longer than their nominal
            duration; the factor is drawn uniformly. If None, the range of the class.
        varied: Whether grasps, goals and pace are drawn. Otherwise the expert acts in one way at
            its nominal pace: from a varied start it goes home first, of what is in reach it chooses
            the grasp with the smallest turn of the gripper from home, and numbers near the middle
            of their ranges.

    It can also take over from another controller at any state: it goes on with what the arms hold,
    as far as its script does, puts other things back, and brings the other arms home first.

    Attributes:
        task_class: Class of the task; subclasses set it.
        clear_m: Height by which an object that is held when the expert takes over is lifted off
            what it touches, metres.
        from_home: Whether the arms go home first from a varied start, because the script needs a
            long way in reach, which other joints may not have.
        paces: Default range of the factor. Where the limits of the joints already stretch the long
            motions of faster episodes, only a wide range varies the length of episodes.
    """

    task_class: type[TaskT]
    from_home: ClassVar[bool] = False
    clear_m: ClassVar[float] = 0.08
    paces: ClassVar[tuple[float, float]] = (0.8, 1.35)

    def __init__(self, paces: tuple[float, float] | None = None, *, varied: bool = True) -> None:
        self._varied = varied
        self._paces = paces or self.paces
        if not 0.5 <= self._paces[0] <= self._paces[1] <= 5:
            raise ValueError(
                f"paces is {paces}; allowed: two numbers from 0.5 to 5, the smaller one first."
            )
        self._embodiment = self.task_class.cell.embodiment
        self._kinematics = InverseKinematics(self._embodiment)
        self._plan: Iterator[Vector] = iter(())
        self._last = self._embodiment.home.copy()

    def reset(self, env: TaskEnvironment, rng: np.random.Generator) -> None:
        """Begins an episode that `env` has just begun; `rng` makes episodes vary.

        Raises:
            ValueError: The environment runs another task.
        """
        self._plan = self._follow(env.task, self._begin(env, rng, env.start))

    def take_over(self, env: TaskEnvironment, rng: np.random.Generator, targets: Vector) -> None:
        """Continues the episode of `env` from its present state.

        `targets` (J,) are the last joint targets of the other controller; `rng` makes it vary.

        Raises:
            ValueError: The environment runs another task.
        """
        self._plan = self._continue(env.task, self._begin(env, rng, targets))

    def _begin(self, env: TaskEnvironment, rng: np.random.Generator, start: Vector) -> Skills:
        """Returns the skills for an episode, whose joint targets go on from `start` (J,)."""
        if not isinstance(env.task, self.task_class):
            raise ValueError(
                f"This expert does {self.task_class.name!r}; the environment runs "
                f"{env.task.name!r}."
            )
        cell = env.task.cell
        if cell.embodiment is not self._embodiment:  # The task has another arm than usual.
            self._embodiment = cell.embodiment
            self._kinematics = InverseKinematics(self._embodiment)
        hz = env.contract.control_hz
        limits = {"top_speed": cell.top_speed, "top_acceleration": cell.top_acceleration}
        motion = Motion(self._embodiment, self._kinematics, hz, start=start, **limits)
        self._last = motion.q.copy()
        pace = rng.uniform(*self._paces) if self._varied else 1.0
        scene = Scene(env, env.task)
        skills = Skills(scene, motion, self._kinematics, rng, pace, varied=self._varied)
        skills.attempt(0)
        return skills

    def act(self, env: TaskEnvironment) -> Vector:
        """Returns the next joint targets (J,); after the end of the script the last ones."""
        self._last = next(self._plan, self._last)
        return self._last

    def keeps(self, task: TaskT, skills: Skills, arm: str, prop: Prop) -> bool:
        """Returns whether the script goes on with a prop that an arm holds; else it is put back."""
        return True

    def _continue(self, task: TaskT, skills: Skills) -> Iterator[Vector]:
        """Follows the script from any state, in several attempts.

        Raises:
            OutOfReachError: The last attempt met a target out of reach.
        """
        for number in range(CONTINUATIONS):
            skills.attempt(number)
            yield from self._make_ready(task, skills, keep=number < KEPT_ATTEMPTS)
            try:
                yield from self.script(task, skills)
                yield from skills.wait(SUCCESS)
            except OutOfReachError:
                if number == CONTINUATIONS - 1:
                    raise

    def _make_ready(self, task: TaskT, skills: Skills, *, keep: bool) -> Iterator[Vector]:
        """Stops the arms, and brings them to a state from which the script begins or goes on."""
        yield from skills.stop()
        scene = skills.scene
        arms = self._embodiment.arms
        held = {arm: scene.held(arm) for arm in arms}
        kept = {
            arm: prop
            for arm in arms
            for prop in held[arm]
            if keep and self.keeps(task, skills, arm, prop)
        }
        free = [arm for arm in arms if arm not in kept]
        for arm in free:
            for prop in held[arm]:
                if prop not in kept.values():
                    yield from skills.put_back(arm, prop)
        if free:
            yield from skills.withdraw(*free)
        for arm, prop in kept.items():
            yield from skills.clear(arm, prop, self.clear_m)

    def _follow(self, task: TaskT, skills: Skills) -> Iterator[Vector]:
        """Follows the script; where nothing is in reach from a varied start, from home."""
        if (self.from_home or not self._varied) and not task.starts_at_home:
            yield from skills.go_home(*self._embodiment.arms)
        script = self.script(task, skills)
        try:
            first = next(script, None)
        except OutOfReachError:
            if task.starts_at_home:
                raise
            yield from skills.go_home(*self._embodiment.arms)
            script = self.script(task, skills)
        else:
            if first is not None:
                yield first
        yield from script

    @abstractmethod
    def script(self, task: TaskT, skills: Skills) -> Iterator[Vector]:
        """Yields joint targets (J,), one per control period; the world moves in between."""
