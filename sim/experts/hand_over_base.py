"""The base class of experts that take a long object lying, and hand it over upright."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stringline.datasets.embodiments.aloha import ARMS
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.inverse_kinematics import OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, inverse, rotation_about
from stringline.sim.experts.grasps import OPEN, Grasp, backed, raised
from stringline.sim.experts.hand_over_grasps import HandOverGrasps, HandOverT
from stringline.sim.experts.motion import Move
from stringline.sim.experts.skills import CLOSING, OPENING, SETTLING, Done, Skills
from stringline.sim.props.prop import Prop

LIFT = 0.07
ABOVE_TABLE = 0.08
RETREAT = 0.09
AWAY = 0.13
# Rotations of a held item by slips that a plain expert expects.
SLIPS = [np.eye(3), *(rotation_about(axis, a) for axis in np.eye(3) for a in (-0.1, 0.1))]
ROUNDS = 6
DRAWS = 80
PASSES = 3
TAKES = 20
RELEASES = 12  # Goals that a plain expert considers for one meeting.


@dataclass(frozen=True)
class HandOverPlan:
    """One way to hand an item over.

    Attributes:
        take: Grasp of the right gripper, from above.
        T_base_meeting: (4, 4), the item where it changes hands.
        receive: Grasp of the left gripper there.
    """

    take: Grasp
    T_base_meeting: Matrix
    receive: Grasp


class HandOverExpert(HandOverGrasps[HandOverT]):
    """Hands an item from the right arm to the left one, which puts it into the container.

    Random choices: the end by which the right gripper takes the item, its distance from the middle
    and its lean along the item; where and in which direction the grippers meet; how steeply and
    from which side the left one comes; how it releases the item. An item that was lost is taken
    again, by the left arm first where the right one does not reach it.
    """

    _round = 0

    @abstractmethod
    def goal(self, task: HandOverT, skills: Skills, receive: Grasp, upwards: Vector) -> Matrix:
        """Draws a pose (4, 4) of the item in which the left gripper releases it.

        `upwards` (3,) is the item's axis towards the left gripper, in the item's frame.
        """

    def script(self, task: HandOverT, skills: Skills) -> Iterator[Vector]:
        """Hands over until the item is in the container."""
        for number in range(ROUNDS):
            self._round = number
            skills.attempt(number)
            try:
                yield from self._once(task, skills)
            except OutOfReachError:  # The item moved in a gripper; its goal is now out of reach.
                if all(skills.scene.holds(arm, task.item) for arm in ARMS):
                    yield from skills.grip("left", OPEN, OPENING)
            if self._inside(task, skills) and not skills.scene.holds("left", task.item):
                break
            yield from skills.go_home(*ARMS)
        yield from skills.go_home(*ARMS)

    def _inside(self, task: HandOverT, skills: Skills) -> bool:
        return task.inside(skills.scene.pose(task.item), skills.scene.pose(task.container))

    def _once(self, task: HandOverT, skills: Skills) -> Iterator[Vector]:
        """Hands over, with the item on the table or in one of the grippers at first."""
        if not skills.scene.holds("left", task.item):
            plan = self._plan_hand_over(task, skills)
            if plan is None:
                yield from self._fetch(task, skills)
                return
            if not skills.scene.holds("right", task.item):
                yield from skills.pick("right", task.item, [plan.take], lift=LIFT, attempts=1)
            if not skills.scene.holds("right", task.item) or not (
                yield from self._pass_on(task, skills, plan)
            ):
                return
        for _ in range(PASSES):
            contacts = task.contact_state(skills.scene.env.physics)
            if not contacts.by_arm("left", task.item.name):
                break
            if self._inside(task, skills):
                yield from skills.grip("left", OPEN, OPENING)
                yield from skills.back_off("left", RETREAT)
                break
            yield from self._put(skills, task.item, self._release_pose(task, skills), self.above)
        yield from skills.wait(0.6)

    def _put(self, skills: Skills, item: Prop, T_goal: Matrix, above: float) -> Done:
        release = {"above": above, "release": self.release, "retreat": RETREAT}
        return (yield from skills.place("left", item, lambda: T_goal, **release))

    def _held(self, task: HandOverT, skills: Skills, arm: str) -> Grasp:
        """Returns the measured grasp of an arm that holds the item."""
        return Grasp(inverse(skills.scene.in_gripper(arm, task.item)), self.closed)

    def _release_pose(self, task: HandOverT, skills: Skills) -> Matrix:
        """Draws a reachable goal for the item in the left gripper; else the gripper opens."""
        held = self._held(task, skills, "left")
        for number in range(DRAWS):
            # The way to the goal of the round before may have been out of reach.
            skills.attempt(self._round + number)
            T_goal = self.goal(task, skills, held, self.end(task, held))
            if self._can_release(skills, held, T_goal):
                return T_goal
        skills.motion.grip("left", OPEN)
        raise OutOfReachError(
            "The left arm cannot bring the item into the container as it holds it."
        )

    def _can_release(self, skills: Skills, held: Grasp, T_goal: Matrix, *before: Matrix) -> bool:
        """Returns whether the left arm can release the item at a goal and back off."""
        # Of goals that spread from the middle of a range, the first in reach is near the limit, and
        # a small slip takes it out of reach.
        for turn in (np.eye(3),) if skills.varied else SLIPS:
            leave = T_goal @ held.T_prop_gripper
            leave[:3, :3] = turn @ leave[:3, :3]
            way = (raised(leave, self.above), leave, backed(leave, RETREAT))
            if not skills.in_reach("left", *before, *way):
                return False
        return True

    def _pass_on(self, task: HandOverT, skills: Skills, plan: HandOverPlan) -> Done:
        scene = skills.scene
        item = task.item
        T_meeting = self._meet_at(task, skills, plan)
        T_right = T_meeting @ inverse(scene.in_gripper("right", item))
        T_left = backed(T_meeting @ plan.receive.T_prop_gripper, plan.receive.hover)
        skills.motion.grip("left", OPEN)
        yield from skills.go(1.0, {"right": Move(lambda: T_right), "left": Move(lambda: T_left)})
        come = Move(lambda: scene.pose(item) @ plan.receive.T_prop_gripper, straight=True)
        for _ in range(PASSES):
            yield from skills.wait(0.1)
            if not scene.holds("right", item):
                return False
            yield from skills.go(0.5, {"left": come})
            yield from skills.wait(SETTLING)
            yield from skills.grip("left", self.closed, CLOSING)
            if scene.holds("left", item):
                break
            yield from skills.grip("left", OPEN, OPENING)
            yield from skills.back_off("left")
        yield from skills.grip("right", OPEN, OPENING)
        if skills.in_reach("right", backed(scene.gripper("right"), AWAY)):
            yield from skills.back_off("right", AWAY)
        else:
            yield from skills.go_home("right")
        return scene.holds("left", item)

    def _meet_at(self, task: HandOverT, skills: Skills, plan: HandOverPlan) -> Matrix:
        """Returns the planned meeting, or another one if the item moved in the gripper."""
        held = self._held(task, skills, "right")
        T_meeting = plan.T_base_meeting
        for number in range(DRAWS):
            skills.attempt(number)
            if self._meets(skills, held, T_meeting, plan.receive):
                break
            T_meeting = self.draw_meeting(task, skills, held)
        return T_meeting

    def _meets(
        self, skills: Skills, held: Grasp, T_meeting: Matrix, receive: Grasp, *before: Matrix
    ) -> bool:
        """Returns whether both arms reach a meeting, and the right one can back off from it."""
        at = T_meeting @ held.T_prop_gripper
        come = T_meeting @ receive.T_prop_gripper
        if not skills.in_reach("right", *before, at, backed(at, AWAY)):
            return False
        return skills.in_reach("left", backed(come, receive.hover), come)

    def _fetch(self, task: HandOverT, skills: Skills) -> Iterator[Vector]:
        """Brings an item that the right arm does not reach closer to it, with the left arm."""
        item = task.item
        found = []
        for number in range(TAKES):
            skills.attempt(number)
            if (take := self.draw_take(task, skills, "left")) is not None:
                found.append(take)
        yield from skills.pick("left", item, found, lift=LIFT, attempts=1)
        T_there = skills.scene.pose(item)
        T_there[:2, 3] = skills.rng.uniform((0.0, -0.1), (0.05, 0.1))
        T_there[2, 3] = skills.scene.table + self.thickness(task)
        if skills.scene.holds("left", item):
            yield from self._put(skills, item, T_there, ABOVE_TABLE)

    def _plan_hand_over(self, task: HandOverT, skills: Skills) -> HandOverPlan | None:
        """Draws a reachable plan, or returns None if all draws are out of reach."""
        T_item = skills.scene.pose(task.item)
        held = self._held(task, skills, "right") if skills.scene.holds("right", task.item) else None
        for number in range(DRAWS):
            skills.attempt(number)
            take = held or self.draw_take(task, skills, "right")
            if take is None:
                continue
            at = T_item @ take.T_prop_gripper
            before = () if held else (backed(at, take.hover), at, raised(at, LIFT))
            if not skills.in_reach("right", *before):
                continue
            T_meeting = self.draw_meeting(task, skills, take)
            receive = self.draw_receive(task, skills, take)
            if not self._meets(skills, take, T_meeting, receive, *before):
                continue
            if self._some_release(task, skills, T_meeting, receive):
                return HandOverPlan(take, T_meeting, receive)
        return None

    def _some_release(
        self, task: HandOverT, skills: Skills, T_meeting: Matrix, receive: Grasp
    ) -> bool:
        """Returns whether a drawn goal is in reach after the meeting; a plain expert draws more."""
        come = T_meeting @ receive.T_prop_gripper
        for number in range(1 if skills.varied else RELEASES):
            skills.attempt(number)
            T_goal = self.goal(task, skills, receive, self.end(task, receive))
            if self._can_release(skills, receive, T_goal, backed(come, receive.hover), come):
                return True
        return False
