"""Picking, carrying and placing, in closed loop: what is held is measured, and what slipped is taken again."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics, OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse
from stringline.sim.experts.grasps import Grasp, backed, raised
from stringline.sim.experts.motion import TOLERANCE, Motion, Move
from stringline.sim.experts.scene import Scene
from stringline.sim.props.prop import Prop

# Seconds until a grip holds: 0.42 for the command to arrive and 0.2 for the drive; a learner's
# timing is no better.
CLOSING = 0.6
OPENING = 0.3
SETTLING = 0.15

Done = Generator[Vector, None, bool]


class Skills:
    """What the arms can do.

    Skills yield joint targets (J,); `yield from` returns whether they were done.

    Args:
        scene: What is seen.
        motion: Turns poses into joint targets.
        kinematics: Says what is in reach.
        rng: Source of variety.
        pace: How many times their normal duration phases last.
    """

    def __init__(
        self,
        scene: Scene,
        motion: Motion,
        kinematics: InverseKinematics,
        rng: np.random.Generator,
        pace: float = 1.0,
    ) -> None:
        self.scene = scene
        self.motion = motion
        self.rng = rng
        self.pace = pace
        self._kinematics = kinematics

    def go(self, seconds: float, moves: Mapping[str, Move]) -> Iterator[Vector]:
        """Moves arms at the episode's pace, see `Motion.go`."""
        yield from self.motion.go(seconds * self.pace, moves)

    def wait(self, seconds: float) -> Iterator[Vector]:
        """Stays, while grippers move."""
        yield from self.motion.hold(seconds * self.pace)

    def grip(self, arm: str, opening: float, seconds: float) -> Iterator[Vector]:
        """Moves a gripper to an opening, and waits for it; not faster than the drive, whatever the pace."""
        self.motion.grip(arm, opening)
        yield from self.motion.hold(seconds * max(self.pace, 1.0))

    def go_home(self, *arms: str, seconds: float = 0.8) -> Iterator[Vector]:
        """Moves arms to where they start."""
        yield from self.motion.go_home(seconds * self.pace, arms)

    def in_reach(self, arm: str, *targets: Matrix) -> bool:
        """Says whether an arm can go through gripper poses (4, 4) one after the other, from where it is, as `go` would."""
        return self.joints_along(arm, *targets) is not None

    def joints_along(self, arm: str, *targets: Matrix) -> list[Vector] | None:
        """Returns the joints (J,) at gripper poses (4, 4) that follow one another from where it is; None if one is too far."""
        q = self.motion.q
        found = list[Vector]()
        try:
            for target in targets:
                q = self._kinematics.solve({arm: target}, q, tolerance=TOLERANCE)
                found.append(q)
        except OutOfReachError:
            return None
        return found

    def choose(self, arm: str, prop: Prop, grasps: Sequence[Grasp]) -> Grasp | None:
        """Returns one of the grasps that are in reach with the way to them, drawn at random; None where none is."""
        T_base_prop = self.scene.pose(prop)
        for index in self.rng.permutation(len(grasps)):
            grasp: Grasp = grasps[int(index)]
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
        """Takes a thing and lifts it by metres; tries again, perhaps in another way, when it is not held then.

        Raises:
            OutOfReachError: No grasp is in reach.
        """
        for _ in range(attempts):
            grasp = self.choose(arm, prop, grasps)
            if grasp is None:
                where = np.round(self.scene.pose(prop)[:3, 3], 3).tolist()
                raise OutOfReachError(
                    f"None of {len(grasps)} ways for the {arm} arm to take {prop.name} at {where} "
                    f"m."
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
        """Brings what an arm holds to a pose, lets go and backs off; ends early where it is lost on the way.

        Args:
            arm: That holds it.
            prop: What is held.
            goal: Returns `T_base_prop` (4, 4) when it is let go; asked at every step.
            above: From how far above the goal it comes down, metres.
            release: The opening that lets go.
            retreat: How far the gripper backs off, metres.
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
        """Moves what an arm holds to a pose `T_base_prop` (4, 4), as it is measured to lie in the gripper.

        Where it slips it is brought to the goal all the same; where it is lost, the gripper goes
        where it was going.
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
        """Moves a gripper backwards along where it points, by metres."""
        T_away = backed(self.scene.gripper(arm), distance)
        yield from self.go(seconds, {arm: Move(lambda: T_away, straight=True)})

    def _take(self, arm: str, prop: Prop, grasp: Grasp) -> Iterator[Vector]:
        def at() -> Matrix:
            return self.scene.pose(prop) @ grasp.T_prop_gripper

        self.motion.grip(arm, grasp.opening)
        yield from self.go(1.0, {arm: Move(lambda: backed(at(), grasp.hover))})
        T_base_gripper = at()
        yield from self.go(0.5, {arm: Move(lambda: T_base_gripper, straight=True)})
        yield from self.wait(SETTLING)
        yield from self.grip(arm, grasp.closed, CLOSING)
