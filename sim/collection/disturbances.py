"""Disturbances of demonstrations, which experts correct or from which they recover.

A held object slips in the gripper, a gripper opens during a grasp, or an arm is displaced while it
approaches an object.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from dm_control import mjcf

from stringline.datasets.contract.argument_checks import Range
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics, OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, pose, quaternion, rotation_about
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.tasks.tabletop import TabletopTask

HELD_STEPS = (5, 60)  # Range of control periods in the gripper before the slip.


class Slip:
    """Moves a held object along the pads of a gripper, once in an episode.

    The distance is 0 to 0.05 m; time and direction of the slip are random.
    """

    def __init__(self, distance: float, rng: np.random.Generator) -> None:
        if not 0 <= distance <= 0.05:
            raise ValueError(f"The slip is {distance} m; allowed: 0 to 0.05.")
        angle = rng.uniform(-np.pi, np.pi)
        # The pads close along y.
        self._along_pads = distance * np.array([np.cos(angle), 0.0, np.sin(angle)])
        self._remaining = int(rng.integers(*HELD_STEPS)) if distance else -1

    @property
    def happened(self) -> bool:
        """Whether the object has slipped."""
        return self._remaining == 0

    def after_step(self, task: TabletopTask, physics: mjcf.Physics) -> None:
        """Counts the control periods of a held, lifted object, and moves it after the last one."""
        if self._remaining <= 0:
            return
        contacts = task.contact_state(physics)
        held = [
            (arm, prop)
            for arm in task.embodiment.arms
            for prop in task.props.values()
            if contacts.held(arm, prop.name) and not contacts.between(prop.name, "table")
        ]
        if not held:
            return
        self._remaining -= 1
        if not self._remaining:
            arm, prop = held[0]
            T_base_gripper = task.embodiment.forward_kinematics(task.robot.positions(physics))[arm]
            T_base_prop: Matrix = pose(T_base_gripper[:3, :3] @ self._along_pads) @ task.pose(
                physics, prop
            )
            prop.set_pose(physics, T_base_prop[:3, 3], quaternion(T_base_prop[:3, :3]))


# Range of the time from the first contact of both pads until the gripper opens. Early openings are
# missed grasps: the object has not left the table yet.
HELD_S = (0.1, 1.2)
OPEN_S = 0.4
SHARES = Range(least=0, most=1)


@dataclass(frozen=True)
class Opening:
    """The opening of a gripper against its command.

    Attributes:
        arm: The arm.
        begin_s: Time of the episode, seconds.
        seconds: Its duration.
    """

    arm: str
    begin_s: float
    seconds: float = OPEN_S


class LostGrasp:
    """Opens a gripper that holds an object, once in a share of the episodes.

    Args:
        share: Share of the episodes, 0 to 1.
        rng: Source of randomness, which decides whether and when the gripper opens.
    """

    def __init__(self, share: float, rng: np.random.Generator) -> None:
        SHARES.check(lost_grasps=share)
        self._waits = bool(rng.uniform() < share)
        self._held_s = float(rng.uniform(*HELD_S))
        self._opening: Opening | None = None

    def disturbed(self, env: TaskEnvironment, action: Vector) -> Vector:
        """Returns the action (J,) to execute instead of the expert's."""
        if self._waits:
            self._wait(env)
        opening = self._opening
        if opening is None or env.time >= opening.begin_s + opening.seconds - 1e-9:
            return action
        changed = action.copy()
        changed[env.embodiment.grippers[opening.arm]] = 1.0
        return changed

    def describe(self) -> dict[str, Any] | None:
        """Returns arm, time and duration as plain data; None if no gripper has opened."""
        return None if self._opening is None else asdict(self._opening)

    def _wait(self, env: TaskEnvironment) -> None:
        contacts = env.task.contact_state(env.physics)
        holding = [
            arm
            for arm in env.embodiment.arms
            if any(contacts.held(arm, name) for name in env.task.props)
        ]
        if holding:
            self._held_s -= 1.0 / env.contract.control_hz
        if holding and self._held_s <= 0:
            self._waits = False
            self._opening = Opening(holding[0], env.time)


NEAR_M = 0.12  # Distance of gripper and object at which the displacement begins.
DISTANCES_M = (0.01, 0.045)
TURNS_RAD = (-0.45, 0.45)
LONGEST_S = 3.0  # Longer than a descent, after which experts notice.
RAMP_S = 0.3
STILL_M = 1e-4  # Motion of a command at rest in a control period.
STILL_PERIODS = 3
NOTICED = 0.1  # Share of the offset by which a command moves once it is noticed.
UP = np.array([0.0, 0.0, 1.0])
_TOLERANCE = 1e-3  # Metres or radians.


@dataclass(frozen=True)
class Displacement:
    """The displacement of a gripper from its commanded pose.

    Attributes:
        arm: The arm.
        begin_s: Time of the episode, seconds.
        offset_m: Displacement along x and y of the base frame, metres.
        turn_rad: Rotation about the vertical axis through the gripper.
    """

    arm: str
    begin_s: float
    offset_m: tuple[float, float]
    turn_rad: float

    def displaced(self, T_base_gripper: Matrix, share: float) -> Matrix:
        """Returns a pose (4, 4) displaced by a share, 0 to 1."""
        found = T_base_gripper.copy()
        found[:3, :3] = rotation_about(UP, share * self.turn_rad) @ T_base_gripper[:3, :3]
        found[:2, 3] += share * np.array(self.offset_m)
        return found

    def along(self, way: Vector) -> float:
        """Returns the share of the offset that a way (3,) of the gripper covers."""
        offset = np.array(self.offset_m)
        return float(way[:2] @ offset / (offset @ offset))


class MissedGrasp:
    """Displaces a gripper that approaches an object, once in a share of the episodes.

    The commands remain those of the expert, so the recorded data shows the correction. The
    displacement ends when the expert notices it, so that its resting command moves towards the
    executed pose, or after its longest duration; then the executed action returns to the command.

    Args:
        embodiment: The embodiment of the episode.
        share: Share of the episodes, 0 to 1.
        rng: Source of randomness, which decides whether and how the gripper is displaced.
    """

    def __init__(self, embodiment: Embodiment, share: float, rng: np.random.Generator) -> None:
        SHARES.check(missed_grasps=share)
        self._embodiment = embodiment
        self._waits = bool(rng.uniform() < share)
        self._kinematics = InverseKinematics(embodiment) if self._waits else None
        distance = rng.uniform(*DISTANCES_M)
        angle = rng.uniform(-np.pi, np.pi)
        self._offset_m = (float(distance * np.cos(angle)), float(distance * np.sin(angle)))
        self._turn_rad = float(rng.uniform(*TURNS_RAD))
        self._displacement: Displacement | None = None
        self._end_s: float | None = None
        self._displaced = np.zeros(0)
        self._rest = np.zeros(3)
        self._still = 0

    def disturbed(self, env: TaskEnvironment, action: Vector) -> Vector:
        """Returns the action (J,) to execute instead of the expert's."""
        if self._waits:
            self._wait(env)
        displacement = self._displacement
        if displacement is None:
            return action
        if self._end_s is None:
            self._displace(env.time, action, displacement)
        back = 0.0 if self._end_s is None else min((env.time - self._end_s) / RAMP_S, 1.0)
        revolute = self._embodiment.revolute_joints[displacement.arm]
        executed = action.copy()
        executed[revolute] = (1.0 - back) * self._displaced[revolute] + back * action[revolute]
        return executed

    def describe(self) -> dict[str, Any] | None:
        """Returns the displacement as plain data; None if there was none."""
        if self._displacement is None:
            return None
        plain = asdict(self._displacement)
        return plain | {"offset_m": list(self._displacement.offset_m)}

    def _wait(self, env: TaskEnvironment) -> None:
        """Begins the displacement when an arm that holds nothing is near an object."""
        contacts = env.task.contact_state(env.physics)
        grippers = self._embodiment.forward_kinematics(env.task.robot.positions(env.physics))
        for arm in self._embodiment.arms:
            if any(contacts.held(arm, name) for name in env.task.props):
                continue
            places = [env.task.pose(env.physics, prop)[:3, 3] for prop in env.task.props.values()]
            if min(np.linalg.norm(grippers[arm][:3, 3] - place) for place in places) < NEAR_M:
                self._waits = False
                self._displacement = Displacement(arm, env.time, self._offset_m, self._turn_rad)
                return

    def _displace(self, time: float, action: Vector, displacement: Displacement) -> None:
        """Sets the displaced action (J,), or ends the displacement at the last one."""
        assert self._kinematics is not None
        T_commanded = self._embodiment.forward_kinematics(action)[displacement.arm]
        since = time - displacement.begin_s
        if since > LONGEST_S or self._is_noticed(T_commanded[:3, 3], displacement):
            self._end_s = time
            return
        T_executed = displacement.displaced(T_commanded, min(since / RAMP_S, 1.0))
        try:
            self._displaced = self._kinematics.solve(
                {displacement.arm: T_executed}, action, tolerance=_TOLERANCE
            )
        except OutOfReachError:
            self._end_s = time
            self._displaced = self._displaced if len(self._displaced) else action

    def _is_noticed(self, commanded: Vector, displacement: Displacement) -> bool:
        """Whether a command (3,) has moved from its rest along the displacement."""
        way = commanded - self._rest
        if np.linalg.norm(way) < STILL_M:
            self._still += 1
            return False
        if self._still < STILL_PERIODS:
            self._rest = commanded
            self._still = 0
            return False
        return displacement.along(way) > NOTICED
