"""Scripted experts and their skills in closed loop: picking, carrying and placing.

A script is a generator that reads the true poses and contacts of the world and yields joint
targets. Grasps are measured after the gripper has closed, and failed ones are repeated. An expert
whose motions do not vary replaces its random draws by draws that are the same in every episode.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics, OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, angle_between, inverse
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.experts.grasps import Grasp, backed, raised
from stringline.sim.experts.motion import TOLERANCE, Motion, Move, Target
from stringline.sim.props.prop import Prop
from stringline.sim.tasks.tabletop import TabletopTask


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


class ScriptedExpert(ABC, Generic[TaskT]):
    """Follows a script; grasps, motions and pace vary from episode to episode unless it is plain.

    Args:
        paces: Range of the factor by which the phases of an episode last longer than their nominal
            duration; the factor is drawn uniformly. If None, the range of the class.
        varied: Whether grasps, goals and pace are drawn. Otherwise the expert acts in one way at
            its nominal pace: from a varied start it goes home first, of what is in reach it chooses
            the grasp with the smallest turn of the gripper from home, and numbers near the middle
            of their ranges.

    Attributes:
        task_class: Class of the task; subclasses set it.
        from_home: Whether the arms go home first from a varied start, because the script needs a
            long way in reach, which other joints may not have.
        paces: Default range of the factor. Where the limits of the joints already stretch the long
            motions of faster episodes, only a wide range varies the length of episodes.
    """

    task_class: type[TaskT]
    from_home: ClassVar[bool] = False
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
        motion = Motion(self._embodiment, self._kinematics, hz, start=env.start, **limits)
        self._last = motion.q.copy()
        pace = rng.uniform(*self._paces) if self._varied else 1.0
        scene = Scene(env, env.task)
        skills = Skills(scene, motion, self._kinematics, rng, pace, varied=self._varied)
        skills.attempt(0)
        self._plan = self._follow(env.task, skills)

    def act(self, env: TaskEnvironment) -> Vector:
        """Returns the next joint targets (J,); after the end of the script the last ones."""
        self._last = next(self._plan, self._last)
        return self._last

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
