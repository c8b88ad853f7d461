"""What experts do that put all things from both sides into a container in the middle: each arm serves its side."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

import numpy as np

from stringline.datasets.embodiments.aloha import ALOHA, ARMS
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse
from stringline.sim.experts.both_arms import Member, Teamwork, together
from stringline.sim.experts.drops import GAP_M, Drop
from stringline.sim.experts.grasps import Grasp, backed, gripper_pose, raised
from stringline.sim.experts.motion import TOLERANCE, Motion, Move
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import OPENING, SETTLING, Skills
from stringline.sim.tasks.gathering_tasks import GatheringTask, Solid

TaskT = TypeVar("TaskT", bound=GatheringTask)
PACES = (
    0.8,
    2.0,
    # Long ways take what the joints' limits ask for; only slower paces show in the length of an
    # episode.
)
ATTEMPTS = 4  # Per thing.
ROUNDS = 3  # What one arm lost on the other's side is that one's in the next round.
OVER_RIM_M = 0.03
MIDDLE_M = 0.2  # Things nearer to the middle than that are taken by one arm at a time.
FINGER_M = 0.023  # Thickness of a finger.
BACKWARDS = (
    -0.1
)  # A gripper that leans more towards its own shoulder has its wrist in the other arm's way.
DIP_M = 0.02  # How far a gripper may come down on its way over the container.
BESIDE_M = (
    0.26,
    0.25,
)  # Where an arm makes room for the other: from the middle, and above the table.
SIGNS = {"left": -1.0, "right": 1.0}


class GatheringExpert(ScriptedExpert[TaskT]):
    """Both arms work at the same time; only one of them is over the container.

    What is not in place is taken again.

    Which thing comes next, how it is taken and where it is let go are drawn among what is in reach.

    Args:
        paces: See `ScriptedExpert`.
    """

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        super().__init__(paces)

    @abstractmethod
    def grasps(self, task: TaskT, thing: Solid, T_base_thing: Matrix) -> Sequence[Grasp]:
        """Returns the ways to take a thing as it lies."""

    @abstractmethod
    def drops(self, task: TaskT, thing: Solid, rotation: Matrix, member: Member) -> Sequence[Drop]:
        """Returns where to let a thing go, the best places first, and none that the other arm has reserved.

        Args:
            task: What is done.
            thing: What is held, or lies as it is going to be held.
            rotation: (3, 3), of the gripper when it takes the thing.
            member: The arm.
        """

    @abstractmethod
    def rim(self, task: TaskT) -> float:
        """Returns the height of the container, metres."""

    def script(self, task: TaskT, skills: Skills) -> Iterator[Vector]:
        """Yields joint targets (14,).

        Raises:
            OutOfReachError: Something is out of reach of both arms.
        """
        scene = skills.scene
        team = Teamwork()
        motions = {
            arm: Motion(ALOHA, self._kinematics, scene.env.contract.control_hz) for arm in ARMS
        }
        members = [
            Member(arm, Skills(scene, motion, self._kinematics, skills.rng, skills.pace), team)
            for arm, motion in motions.items()
        ]
        targets = skills.motion.q.copy()
        for _ in range(ROUNDS):
            scripts = {member.arm: self._serve(task, member) for member in members}
            for moved in together(ALOHA, targets, scripts):
                targets = moved
                yield targets
            if task.reached(scene.env.physics):
                return
        lost = [name for name in task.props if all((arm, name) in team.refused for arm in ARMS)]
        if lost:
            raise OutOfReachError(f"Neither arm can put {', '.join(lost)} into the container.")

    def _serve(self, task: TaskT, member: Member) -> Iterator[Vector]:
        """Puts everything away that is on an arm's side."""
        arm = member.arm
        team = member.team
        while (thing := self._next(task, member)) is not None:
            team.taken[arm] = thing.prop.name
            team.tries[thing.prop.name] += 1
            with suppress(
                OutOfReachError
            ):  # It rolled or slipped away; where it is now it may be taken again.
                yield from self._fetch(task, thing, member)
            yield from self._make_room(task, member)
            team.leave(arm)

    def _fetch(self, task: TaskT, thing: Solid, member: Member) -> Iterator[Vector]:
        """Takes a thing and puts it into the container.

        Raises:
            OutOfReachError: It moved out of reach on the way.
        """
        if abs(member.skills.scene.pose(thing.prop)[0, 3]) < MIDDLE_M:
            yield from member.enter_middle()
        yield from self._take(task, thing, member)
        if member.skills.scene.holds(member.arm, thing.prop):
            yield from member.enter_middle()
            yield from self._put(task, thing, member)

    def _next(self, task: TaskT, member: Member) -> Solid | None:
        """Draws what an arm takes next: on its side, or on the other one where that arm cannot take it."""
        scene = member.skills.scene
        team = member.team
        mine = list[Solid]()
        for thing in task.things:
            name = thing.prop.name
            left, right = ARMS
            own, other = (left, right) if scene.pose(thing.prop)[0, 3] < 0 else (right, left)
            server = own if (own, name) not in team.refused else other
            waiting = name not in team.taken.values() and team.tries[name] < ATTEMPTS
            if waiting and server == member.arm and (server, name) not in team.refused:
                mine += [] if task.inside(scene.env.physics, thing) else [thing]
        return mine[member.skills.rng.integers(len(mine))] if mine else None

    def _take(self, task: TaskT, thing: Solid, member: Member) -> Iterator[Vector]:
        grasp = self._grasp(task, thing, member)
        if grasp is None:
            member.team.refused.add((member.arm, thing.prop.name))
            return
        yield from member.skills.pick(
            member.arm, thing.prop, [grasp], lift=self._clearance(task), attempts=1
        )

    def _grasp(self, task: TaskT, thing: Solid, member: Member) -> Grasp | None:
        """Draws a grasp from which there is a way into the container, and reserves the place there."""
        arm = member.arm
        skills = member.skills
        T_base_thing = member.skills.scene.pose(thing.prop)
        grasps = self.grasps(task, thing, T_base_thing)
        drawn = [grasps[int(index)] for index in skills.rng.permutation(len(grasps))]
        # Grasps whose fingers come down on something else are the last resort.
        drawn.sort(
            key=lambda grasp: (
                not _free(task, thing, skills, T_base_thing @ grasp.T_prop_gripper, grasp.opening)
            )
        )
        for grasp in drawn:
            at = T_base_thing @ grasp.T_prop_gripper
            way = (backed(at, grasp.hover), at, raised(at, self._clearance(task)))
            if not _backwards(arm, at) and skills.in_reach(arm, *way):
                drop = self._drop(task, thing, at, member, way)
                if drop is not None:
                    member.team.reserved[arm] = drop.spot
                    return grasp
        return None

    def _drop(
        self,
        task: TaskT,
        thing: Solid,
        T_base_gripper: Matrix,
        member: Member,
        way: Sequence[Matrix] = (),
    ) -> Drop | None:
        """Returns the first place to let go that is in reach after a way, with the thing as it lies in the gripper."""
        held = inverse(T_base_gripper) @ member.skills.scene.pose(thing.prop)
        for drop in self.drops(task, thing, T_base_gripper[:3, :3], member):
            heights = (self._clearance(task), drop.bottom)
            over, at = (drop.gripper(thing, held, task.table_height + height) for height in heights)
            if not _backwards(member.arm, at) and self._passable(member, (*way, over, at)):
                return drop
        return None

    def _passable(self, member: Member, poses: Sequence[Matrix]) -> bool:
        """Says whether an arm can go through poses, and does not dip on its long way to the last but one, over the container.

        The way is straight for the joints; where they have to turn far, the gripper may come down
        to the table in between.
        """
        joints = [member.skills.motion.q]
        try:
            for target in poses:
                joints.append(
                    self._kinematics.solve({member.arm: target}, joints[-1], tolerance=TOLERANCE)
                )
        except OutOfReachError:
            return False
        start = joints[-3]
        over = joints[-2]
        between = [
            ALOHA.forward_kinematics(start + share * (over - start))[member.arm]
            for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
        ]
        heights = [T[2, 3] for T in between]
        return bool(min(heights) > min(heights[0], heights[-1]) - DIP_M)

    def _put(self, task: TaskT, thing: Solid, member: Member) -> Iterator[Vector]:
        """Lets what an arm holds go in the container; puts it back where there is no way."""
        arm = member.arm
        skills = member.skills
        clearance = self._clearance(task)
        drop = self._drop(task, thing, skills.scene.gripper(arm), member)
        if drop is None:
            yield from skills.rise(arm, -clearance, seconds=0.8)
            yield from skills.grip(arm, 1.0, OPENING)
            return
        over, into = (
            _following(task, thing, member, drop, height) for height in (clearance, drop.bottom)
        )
        yield from skills.go(1.1, {arm: Move(over)})
        if not skills.scene.holds(arm, thing.prop):
            return
        yield from skills.go(0.6, {arm: Move(into, straight=True)})
        yield from skills.wait(SETTLING)
        yield from skills.grip(arm, drop.opening, OPENING)
        yield from skills.rise(arm, clearance - drop.bottom, seconds=0.5)

    def _make_room(self, task: TaskT, member: Member) -> Iterator[Vector]:
        """Moves an arm out of the other's way, its gripper leaning towards the middle.

        It always gets there with the same joints: from how they are turned after some drops little
        is in reach.
        """
        arm = member.arm
        motion = member.skills.motion
        sign = SIGNS[arm]
        lean = np.radians(40.0)
        spot = (sign * BESIDE_M[0], 0.0, BESIDE_M[1] + task.table_height / 2)
        beside = gripper_pose(spot, (-sign * np.sin(lean), 0.0, -np.cos(lean)), (0.0, -sign, 0.0))
        goal = self._kinematics.solve({arm: beside}, ALOHA.home)
        yield from motion.turn(0.6 * member.skills.pace, {arm: goal})

    def _clearance(self, task: TaskT) -> float:
        return self.rim(task) + OVER_RIM_M


def _following(
    task: GatheringTask, thing: Solid, member: Member, drop: Drop, height: float
) -> Callable[[], Matrix]:
    """Returns where the gripper has to be so that what it holds is over the drop, as it is measured to lie in it."""
    scene = member.skills.scene
    arm = member.arm
    held = scene.in_gripper(arm, thing.prop)

    def target() -> Matrix:
        nonlocal held
        if scene.holds(arm, thing.prop):
            held = scene.in_gripper(arm, thing.prop)
        return drop.gripper(thing, held, task.table_height + height)

    return target


def _free(
    task: GatheringTask, thing: Solid, skills: Skills, T_base_gripper: Matrix, opening: float
) -> bool:
    """Says whether the fingers come down beside all other things."""
    away = opening * GAP_M / 2 + FINGER_M / 2
    fingers = T_base_gripper[:3, 3] + np.array([[away], [-away]]) * T_base_gripper[:3, 1]
    for other in task.things:
        if other is not thing:
            T = skills.scene.pose(other.prop)
            between = np.linalg.norm(
                fingers[:, None] - (other.points @ T[:3, :3].T + T[:3, 3]), axis=-1
            )
            if (between - other.radii < FINGER_M).any():
                return False
    return True


def _backwards(arm: str, T_base_gripper: Matrix) -> bool:
    return bool(-SIGNS[arm] * T_base_gripper[0, 0] < BACKWARDS)
