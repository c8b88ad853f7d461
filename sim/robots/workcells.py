"""Workcells: arms at a table, the poses from which they start, and the speed of experts.

Arms are a composer entity, with positions and targets in the joints of their embodiment. Draws from
the range of start poses are free of contacts.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import mujoco
import numpy as np
from dm_control import composer, mjcf
from numpy.typing import NDArray

from stringline.datasets.embodiments import aloha, aloha_mjcf, iiwa14, iiwa14_mjcf
from stringline.datasets.embodiments.embodiment import Embodiment, FingerTravel, JointSpec, Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics, OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.rendering.depth_sensor import StereoSensor
from stringline.sim.shifts.shift import Zone

SIDES = ("left", "right")


class Robot(composer.Entity):
    """All arms and the world's cameras; vectors (J,) are in the order of the embodiment."""

    def _build(
        self, embodiment: Embodiment, model: mjcf.RootElement, fingers: FingerTravel
    ) -> None:
        """Wraps a model whose elements have the names of the embodiment's joints, below their arms.

        Each gripper has a drive `gripper`, and slides `left_finger` and `right_finger`.
        """
        self.embodiment = embodiment
        self._root = model
        self._travel = fingers
        self._gripper_places = np.array([embodiment.grippers[arm] for arm in embodiment.arms])
        self._revolute_places = np.array(
            [i for i, joint in enumerate(embodiment.joints) if joint.kind == "revolute"]
        )
        self._openings_per_metre = fingers.openings_per_metre
        self._actuators = [
            model.find("actuator", name_in_model(joint)) for joint in embodiment.joints
        ]
        self._revolute = [
            model.find("joint", name_in_model(embodiment.joints[i])) for i in self._revolute_places
        ]
        self._fingers = [
            model.find("joint", f"{arm}/{side}_finger") for arm in embodiment.arms for side in SIDES
        ]

    @property
    def mjcf_model(self) -> mjcf.RootElement:
        """The model to attach."""
        return self._root

    def shapes(self, arm: str) -> list[mjcf.Element]:
        """Returns all shapes of one arm, from its foot to its fingers."""
        return list(self._root.find("body", f"{arm}/base_link").find_all("geom"))

    def pads(self, arm: str, side: str) -> list[mjcf.Element]:
        """Returns the shapes of one pad of an arm: `left_pad`, and further ones `left_pad_1` ..."""
        name = re.compile(rf"{side}_pad(_\d+)?")
        return [shape for shape in self.shapes(arm) if name.fullmatch(shape.name or "")]

    def after_compile(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Looks up the joints' indices; in each step that would cost more than the physics."""
        model = physics.model
        revolute, fingers = (
            np.array(physics.bind(joints).element_id) for joints in (self._revolute, self._fingers)
        )
        self._revolute_q = model.jnt_qposadr[revolute]
        self._finger_q = model.jnt_qposadr[fingers]
        self._revolute_v = model.jnt_dofadr[revolute]
        self._finger_v = model.jnt_dofadr[fingers]
        self._controls = np.array(physics.bind(self._actuators).element_id)
        self._effort_limits = model.actuator_forcerange[self._controls].copy()

    def positions(self, physics: mjcf.Physics) -> Vector:
        """Returns the measured joints (J,): rad, and openings of the grippers."""
        openings = self._travel.opening(self._per_gripper(physics.data.qpos[self._finger_q]))
        return self._joined(physics.data.qpos[self._revolute_q], openings)

    def velocities(self, physics: mjcf.Physics) -> Vector:
        """Returns the measured speeds (J,): rad/s and openings/s."""
        fingers = self._per_gripper(physics.data.qvel[self._finger_v])
        return self._joined(physics.data.qvel[self._revolute_v], self._openings_per_metre * fingers)

    def efforts(self, physics: mjcf.Physics) -> Vector:
        """Returns the efforts of the drives (J,): Nm, and N of the grippers."""
        return np.array(physics.data.actuator_force[self._controls])

    def limit_efforts(self, physics: mjcf.Physics, largest: Vector) -> None:
        """Limits the efforts of the drives (J,), Nm and N of the grippers, below their own limits.

        The force of a gripper is the sum of those of its two pads.
        """
        limits = np.clip(self._effort_limits, -largest[:, None], largest[:, None])
        physics.model.actuator_forcerange[self._controls] = limits

    def put(self, physics: mjcf.Physics, q: Vector) -> None:
        """Sets joints (J,) and their targets at once."""
        physics.data.qpos[self._revolute_q] = q[self._revolute_places]
        physics.data.qpos[self._finger_q] = np.repeat(
            self._travel.travel(q[self._gripper_places]), len(SIDES)
        )
        self.command(physics, q)

    def command(self, physics: mjcf.Physics, action: Vector) -> None:
        """Sets the targets (J,), rad and openings, clipped to the joints' ranges."""
        target = np.clip(action, self.embodiment.lower, self.embodiment.upper)
        target[self._gripper_places] = self._travel.travel(target[self._gripper_places])
        physics.data.ctrl[self._controls] = target

    def _per_gripper(self, fingers: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(fingers.reshape(len(self._gripper_places), len(SIDES)).mean(axis=1))

    def _joined(self, revolute: NDArray[np.float64], grippers: NDArray[np.float64]) -> Vector:
        result = np.empty(len(self.embodiment.joints))
        result[self._revolute_places] = revolute
        result[self._gripper_places] = grippers
        return result


def name_in_model(joint: JointSpec) -> str:
    """Returns the name of a joint and its drive, `<arm>/<name>`; joints of files lack the arm."""
    name = "gripper" if joint.kind == "gripper" else joint.name.removeprefix(f"{joint.arm}/")
    return f"{joint.arm}/{name}"


Range = tuple[float, float]
TRIES = 60
# Gap between an arm and everything else at the start, metres; less than at the home poses is free.
GAP_M = 0.02
TOUCHING_M = 1e-4  # Depth from which shapes of the same arm count as colliding.
X, Y, Z = np.eye(3)


@dataclass(frozen=True)
class StartRange:
    """Uniform ranges of each gripper's start pose around the home pose.

    Attributes:
        level_m: Largest distance along x and along y of the base frame, metres.
        height_m: Lowest and highest distance along z, metres.
        yaw_deg: Largest rotation about the vertical axis, degrees.
        tilt_deg: Largest rotation about a level axis of any direction, degrees.
        opening: Smallest and largest opening of the gripper, 0 closed to 1 open.
    """

    level_m: float
    height_m: Range
    yaw_deg: float
    tilt_deg: float
    opening: Range

    def draw(
        self, T_base_home: Matrix, home_opening: float, rng: np.random.Generator, share: float = 1.0
    ) -> tuple[Matrix, float]:
        """Draws a pose (4, 4) and an opening of a gripper.

        Args:
            T_base_home: (4, 4), its home pose.
            home_opening: Its opening there.
            rng: Source of randomness.
            share: Share of the distances from home in the ranges, 0 to 1.
        """
        level = rng.uniform(-self.level_m, self.level_m, 2)
        offset = share * np.array([*level, rng.uniform(*self.height_m)])
        direction = rng.uniform(-np.pi, np.pi)
        axis = np.cos(direction) * X + np.sin(direction) * Y
        tilt = rotation_about(axis, share * np.radians(rng.uniform(0.0, self.tilt_deg)))
        yaw = rotation_about(Z, share * np.radians(rng.uniform(-self.yaw_deg, self.yaw_deg)))
        turned = pose(T_base_home[:3, 3] + offset, tilt @ yaw @ T_base_home[:3, :3])
        opening = float(rng.uniform(*self.opening))
        return turned, share * opening + (1 - share) * home_opening

    def __str__(self) -> str:
        """Returns the ranges in words, for documentation."""
        low, high = (f"{100 * height:+.0f}" for height in self.height_m)
        closed, opened = self.opening
        return (
            f"up to {100 * self.level_m:.0f} cm along x and y, {low} to {high} cm in height, up to "
            f"{self.yaw_deg:.0f} degrees of yaw and {self.tilt_deg:.0f} of tilt, gripper "
            f"{closed:g} to {opened:g} open"
        )


class StartDraws:
    """Draws the joints (J,) of an episode's start.

    Each arm in turn gets the first of 60 draws that its joints reach and in which it keeps 2 cm
    away from table, objects and the other arm.
    """

    def __init__(self, robot: Robot, embodiment: Embodiment, chosen: StartRange) -> None:
        self._robot = robot
        self._embodiment = embodiment
        self._range = chosen
        self._kinematics = InverseKinematics(embodiment)
        self._home = embodiment.forward_kinematics(embodiment.home)

    def draw(self, physics: mjcf.Physics, rng: np.random.Generator, share: float = 1.0) -> Vector:
        """Returns the joints (J,) of a start among the objects, which stay where they are.

        The distances from home are a share, 0 to 1, of those in the range.

        Raises:
            ValueError: An arm has no free start in its range, such as over a table that is too
                high.
        """
        home = self._embodiment.home
        shapes = {
            arm: np.array(physics.bind(self._robot.shapes(arm)).element_id)
            for arm in self._embodiment.arms
        }
        usual = self._contacts(physics, home, list(shapes.values()))
        q = home.copy()
        for arm, own in shapes.items():
            draw = partial(
                self._range.draw,
                self._home[arm],
                float(home[self._embodiment.grippers[arm]]),
                rng,
                share,
            )
            q = self._free(physics, q, arm, own, usual, draw)
        return q

    def _free(
        self,
        physics: mjcf.Physics,
        q: Vector,
        arm: str,
        own: NDArray[np.int_],
        usual: set[tuple[int, int]],
        draw: Callable[[], tuple[Matrix, float]],
    ) -> Vector:
        for _ in range(TRIES):
            T_base_gripper, opening = draw()
            try:
                found = self._kinematics.solve({arm: T_base_gripper}, q)
            except OutOfReachError:
                continue
            found[self._embodiment.grippers[arm]] = opening
            if self._contacts(physics, found, [own]) <= usual:
                return found
        raise ValueError(
            f"None of {TRIES} start poses of the {arm} arm is reachable and free of contacts. The "
            f"range is {self._range}. start_spread=0 starts at the home pose."
        )

    def _contacts(
        self, physics: mjcf.Physics, q: Vector, arms: Sequence[NDArray[np.int_]]
    ) -> set[tuple[int, int]]:
        """Returns the pairs of shapes that are close, of which one belongs to one of the arms."""
        model = physics.model.ptr
        data = physics.data.ptr
        self._robot.put(physics, q)
        margins = model.geom_margin.copy()
        model.geom_margin[np.concatenate(arms)] += GAP_M
        mujoco.mj_fwdPosition(model, data)
        model.geom_margin[:] = margins
        pairs = data.contact.geom
        gaps = data.contact.dist
        inside = np.stack([np.isin(pairs, own).sum(axis=1) for own in arms])
        close = (inside == 1).any(axis=0) | ((inside == 2).any(axis=0) & (gaps < -TOUCHING_M))
        return {(int(a), int(b)) for a, b in pairs[close]}


@dataclass(frozen=True)
class PadSizes:
    """Sizes of a gripper for grasps from above, metres; by default those of the KUKA's.

    Attributes:
        half_width: Half the width of a pad, along the z axis of the gripper.
        tip: Distance of the fingers' tips beyond the gripper frame.
        free: Room for an object between the gripper frame and the hand.
    """

    half_width: float = iiwa14_mjcf.PAD_HALF[0]
    tip: float = iiwa14_mjcf.PAD_HALF[2]
    free: float = 0.055


@dataclass(frozen=True)
class Workcell:
    """Arms at a table, whose top is by default the plane z = 0 of the base frame.

    Attributes:
        embodiment: Description of the arms, their grippers and the cameras.
        model: Builds the MJCF model of the arms.
        fingers: Travel of each gripper's fingers.
        table_centre: (x, y) in the base frame, metres.
        table_half: Half of the table's lengths along x and y, metres.
        table_heights: Lowest and highest height of the table top, metres.
        top_speed: Speed limit of an expert's fastest revolute joint, rad/s; the limits of the
            others are lower by the ratio of their velocity limits.
        top_acceleration: Acceleration limit, scaled in the same way, rad/s^2.
        distractor_zones: Zones for distractors, seen by the overhead camera and out of the arms'
            way.
        depth_sensor: Model of the depth cameras under `depth_noise`.
        usual: Default strengths of shifts, which options override.
        azimuth_deg: Direction of view of films about z; 90 looks along y.
        start_range: Range of the arms' start poses, see `start_spread`; if None, they start at
            home.
        room_half_m: Distance of the walls of textured looks from the middle. The view of films is
            within, and the corners are nearer than the far plane of cameras, 5 m.
        pads: Sizes of the gripper, for the experts of `kuka_pick` and `kuka_place`.
        source: Name or file of the arm, if `task.embodiment` has chosen it.
    """

    embodiment: Embodiment
    model: Callable[[], mjcf.RootElement]
    fingers: FingerTravel
    table_centre: tuple[float, float]
    table_half: tuple[float, float]
    table_heights: tuple[float, float]
    top_speed: float
    top_acceleration: float
    distractor_zones: tuple[Zone, ...] = ()
    depth_sensor: StereoSensor = field(default_factory=StereoSensor)
    usual: Mapping[str, float] = field(default_factory=dict)
    azimuth_deg: float = 90.0
    start_range: StartRange | None = None
    room_half_m: float = 3.0
    pads: PadSizes = PadSizes()
    source: str | None = None

    def robot(self) -> Robot:
        """Builds the simulated arms."""
        return Robot(self.embodiment, self.model(), self.fingers)


# A higher table would bury the arms' shoulders.
ALOHA_CELL = Workcell(
    aloha.ALOHA,
    aloha_mjcf.bare_arms_mjcf,
    aloha.FINGERS,
    table_centre=(0.0, 0.019),
    table_half=(0.605, 0.38),
    table_heights=(-0.05, 0.08),
    top_speed=2.8,
    top_acceleration=7.0,
    room_half_m=1.8,  # Wrist cameras measure it: depth reaches 2.5 m.
    distractor_zones=(
        Zone((-0.42, 0.42), (0.29, 0.35)),
        Zone((-0.4, 0.4), (0.53, 0.6), on_table=False),
    ),
    start_range=StartRange(
        level_m=0.08, height_m=(-0.08, 0.1), yaw_deg=20.0, tilt_deg=15.0, opening=(0.0, 1.0)
    ),
)
"""Two ALOHA arms, `left` at negative x and `right` at positive x, on either side of a table."""
# The table begins 22 cm before the arm, and an axis may accelerate by 8.6 to 15.7 rad/s^2.
KUKA_CELL = Workcell(
    iiwa14.IIWA14,
    partial(iiwa14_mjcf.bare_arms_mjcf, iiwa14.IIWA14),
    iiwa14.FINGERS,
    table_centre=(0.62, 0.0),
    table_half=(0.4, 0.5),
    table_heights=(-0.1, 0.1),
    top_speed=2.0,
    top_acceleration=11.0,
    distractor_zones=(Zone((0.25, 0.5), (-0.42, -0.34)), Zone((0.25, 0.5), (0.34, 0.42))),
    usual={"depth_noise": 1.0},
    azimuth_deg=115.0,
    # Lower and higher than the table's shifts, so that height does not tell the phase.
    start_range=StartRange(
        level_m=0.1, height_m=(-0.12, 0.2), yaw_deg=30.0, tilt_deg=15.0, opening=(0.4, 1.0)
    ),
)
"""One KUKA, or another arm in its place, called `arm`; objects at x 0.46 to 0.68 m."""
KUKA_BIMANUAL_CELL = replace(
    KUKA_CELL,
    embodiment=iiwa14.IIWA14_BIMANUAL,
    model=partial(iiwa14_mjcf.bare_arms_mjcf, iiwa14.IIWA14_BIMANUAL),
    table_centre=(0.0, 0.0),
    table_half=(0.5, 0.45),
    azimuth_deg=90.0,
    distractor_zones=(
        Zone((-0.42, 0.42), (0.32, 0.4)),
        Zone((-0.4, 0.4), (0.6, 0.7), on_table=False),
    ),
)
