"""The base class of experts that put objects from both sides into a container in the middle."""

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
from stringline.sim.experts.motion import Motion, Move
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import OPENING, SETTLING, Skills
from stringline.sim.tasks.gathering_tasks import GatheringTask, Solid

TaskT = TypeVar("TaskT", bound=GatheringTask)
ATTEMPTS = 4  # Per object.
ROUNDS = 3  # An object lost on the other arm's side belongs to that arm in the next round.
OVER_RIM_M = 0.03
MIDDLE_M = 0.2  # Objects nearer to the middle are taken by one arm at a time.
FINGER_M = 0.023  # Thickness of a finger.
# A gripper that leans more towards its own shoulder has its wrist in the other arm's way.
BACKWARDS = -0.1
DIP_M = 0.02  # Depth by which a gripper may come down on its way over the container.
# Pose in which an arm makes room for the other: distance from the middle, height above the table.
BESIDE_M = (0.26, 0.25)
SIGNS = {"left": -1.0, "right": 1.0}


class GatheringExpert(ScriptedExpert[TaskT]):
    """Each arm serves its side. Both work at the same time; only one of them is over the container.

    Objects that are not in place are taken again. The next object, its grasp and its drop are drawn
    among those in reach.
    """

    paces = (0.8, 2.0)

    @abstractmethod
    def grasps(self, task: TaskT, item: Solid, T_base_item: Matrix) -> Sequence[Grasp]:
        """Returns the grasps of an object as it lies."""

    @abstractmethod
    def drops(self, task: TaskT, item: Solid, rotation: Matrix, member: Member) -> Sequence[Drop]:
        """Returns places to release an object that the other arm has not reserved, the best first.

        The object is held, or lies before it is grasped; `rotation` (3, 3) is that of the gripper
        in the grasp.
        """

    @abstractmethod
    def rim(self, task: TaskT) -> float:
        """Returns the height of the container, metres."""

    def script(self, task: TaskT, skills: Skills) -> Iterator[Vector]:
        """Yields joint targets (14,).

        Raises:
            OutOfReachError: An object is out of reach of both arms.
        """
        scene = skills.scene
        team = Teamwork(settled=set(ARMS) if task.starts_at_home else set())
        targets, hz = skills.motion.q.copy(), scene.env.contract.control_hz
        motions = {arm: Motion(ALOHA, self._kinematics, hz, start=targets) for arm in ARMS}
        members = [Member(arm, skills.with_motion(motion), team) for arm, motion in motions.items()]
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
        """Puts the objects on an arm's side into the container."""
        arm = member.arm
        team = member.team
        while (item := self._next(task, member)) is not None:
            team.taken[arm] = item.prop.name
            member.skills.attempt(team.tries[item.prop.name])
            team.tries[item.prop.name] += 1
            with suppress(OutOfReachError):  # It slipped away, and may be in reach again.
                yield from self._fetch(task, item, member)
            yield from self._make_room(task, member)
            team.leave(arm)

    def _fetch(self, task: TaskT, item: Solid, member: Member) -> Iterator[Vector]:
        """Takes an object and puts it into the container."""
        if abs(member.skills.scene.pose(item.prop)[0, 3]) < MIDDLE_M:
            yield from member.enter_middle()
        yield from self._take(task, item, member)
        if member.skills.scene.holds(member.arm, item.prop):
            yield from member.enter_middle()
            yield from self._put(task, item, member)

    def _next(self, task: TaskT, member: Member) -> Solid | None:
        """Draws the next object: on the arm's side, or one that the other arm cannot take."""
        scene = member.skills.scene
        team = member.team
        mine = list[Solid]()
        for item in task.objects:
            name = item.prop.name
            left, right = ARMS
            own, other = (left, right) if scene.pose(item.prop)[0, 3] < 0 else (right, left)
            server = own if (own, name) not in team.refused else other
            waiting = name not in team.taken.values() and team.tries[name] < ATTEMPTS
            possible = server == member.arm and (server, name) not in team.refused
            if waiting and possible and not task.inside(scene.env.physics, item):
                mine.append(item)
        foot = scene.foot(member.arm)

        def distance(item: Solid) -> float:
            return float(np.linalg.norm(scene.pose(item.prop)[:3, 3] - foot))

        return member.skills.one_of(mine, distance) if mine else None

    def _take(self, task: TaskT, item: Solid, member: Member) -> Iterator[Vector]:
        grasp = self._grasp(task, item, member)
        if grasp is None and member.arm not in member.team.settled:
            yield from self._make_room(task, member)
            grasp = self._grasp(task, item, member)
        if grasp is None:
            member.team.refused.add((member.arm, item.prop.name))
            return
        lift = self._clearance(task)
        yield from member.skills.pick(member.arm, item.prop, [grasp], lift=lift, attempts=1)

    def _grasp(self, task: TaskT, item: Solid, member: Member) -> Grasp | None:
        """Draws a grasp with a reachable drop, and reserves the drop's place."""
        arm = member.arm
        skills = member.skills
        T_base_item = member.skills.scene.pose(item.prop)
        grasps = self.grasps(task, item, T_base_item)
        drawn = skills.ordered_grasps(arm, T_base_item, grasps)

        def blocked(grasp: Grasp) -> bool:
            at = T_base_item @ grasp.T_prop_gripper
            return not _free(task, item, skills, at, grasp.opening)

        # Grasps whose fingers come down on another object are the last resort.
        drawn.sort(key=blocked)
        for grasp in drawn:
            at = T_base_item @ grasp.T_prop_gripper
            way = (backed(at, grasp.hover), at, raised(at, self._clearance(task)))
            if not _backwards(arm, at) and skills.in_reach(arm, *way):
                drop = self._drop(task, item, at, member, way)
                if drop is not None:
                    member.team.reserved[arm] = drop.spot
                    return grasp
        return None

    def _drop(
        self,
        task: TaskT,
        item: Solid,
        T_base_gripper: Matrix,
        member: Member,
        way: Sequence[Matrix] = (),
    ) -> Drop | None:
        """Returns the first drop in reach after the poses `way`, for the object as it is held."""
        held = inverse(T_base_gripper) @ member.skills.scene.pose(item.prop)
        for drop in self.drops(task, item, T_base_gripper[:3, :3], member):
            heights = (self._clearance(task), drop.bottom)
            over, at = (drop.gripper(item, held, task.table_height + height) for height in heights)
            if not _backwards(member.arm, at) and self._passable(member, (*way, over, at)):
                return drop
        return None

    def _passable(self, member: Member, poses: Sequence[Matrix]) -> bool:
        """Returns whether an arm can go through poses and does not dip before the last but one.

        That way leads over the container. It is straight in joint space; where joints turn far, the
        gripper may come down to the table in between.
        """
        found = member.skills.joints_along(member.arm, *poses)
        if found is None:
            return False
        start, over, _ = [member.skills.motion.q, *found][-3:]
        way = [start + share * (over - start) for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)]
        heights = [ALOHA.forward_kinematics(q)[member.arm][2, 3] for q in way]
        return bool(min(heights) > min(heights[0], heights[-1]) - DIP_M)

    def _put(self, task: TaskT, item: Solid, member: Member) -> Iterator[Vector]:
        """Releases the held object in the container; puts it back if no drop is in reach."""
        arm = member.arm
        skills = member.skills
        clearance = self._clearance(task)
        drop = self._drop(task, item, skills.scene.gripper(arm), member)
        if drop is None:
            yield from skills.rise(arm, -clearance, seconds=0.8)
            yield from skills.grip(arm, 1.0, OPENING)
            return
        over, into = (
            _following(task, item, member, drop, height) for height in (clearance, drop.bottom)
        )
        yield from skills.go(1.1, {arm: Move(over)})
        if not skills.scene.holds(arm, item.prop):
            return
        yield from skills.go(0.6, {arm: Move(into, straight=True)})
        yield from skills.wait(SETTLING)
        yield from skills.grip(arm, drop.opening, OPENING)
        yield from skills.rise(arm, clearance - drop.bottom, seconds=0.5)

    def _make_room(self, task: TaskT, member: Member) -> Iterator[Vector]:
        """Moves an arm out of the other's way, its gripper leaning towards the middle.

        The joints there are always the same: from the joints after some drops little is in reach.
        """
        arm = member.arm
        member.team.settled.add(arm)
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
    task: GatheringTask, item: Solid, member: Member, drop: Drop, height: float
) -> Callable[[], Matrix]:
    """Returns a target of the gripper with the object, as it is held, over the drop."""
    scene = member.skills.scene
    arm = member.arm
    held = scene.in_gripper(arm, item.prop)

    def target() -> Matrix:
        nonlocal held
        if scene.holds(arm, item.prop):
            held = scene.in_gripper(arm, item.prop)
        return drop.gripper(item, held, task.table_height + height)

    return target


def _free(
    task: GatheringTask, item: Solid, skills: Skills, T_base_gripper: Matrix, opening: float
) -> bool:
    """Returns whether the fingers come down beside all other objects."""
    away = opening * GAP_M / 2 + FINGER_M / 2
    fingers = T_base_gripper[:3, 3] + np.array([[away], [-away]]) * T_base_gripper[:3, 1]
    for other in task.objects:
        if other is not item:
            T = skills.scene.pose(other.prop)
            points = other.points @ T[:3, :3].T + T[:3, 3]
            between = np.linalg.norm(fingers[:, None] - points, axis=-1)
            if (between - other.radii < FINGER_M).any():
                return False
    return True


def _backwards(arm: str, T_base_gripper: Matrix) -> bool:
    return bool(-SIGNS[arm] * T_base_gripper[0, 0] < BACKWARDS)
