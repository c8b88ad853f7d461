"""Workcells: arms at a table, and the speed at which experts move them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from dm_control import mjcf

from stringline.datasets.embodiments import aloha, aloha_mjcf, iiwa14, iiwa14_mjcf
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.fingers import FingerTravel
from stringline.sim.rendering.depth_sensor import StereoSensor
from stringline.sim.robots.robot import Robot
from stringline.sim.robots.start_range import StartRange
from stringline.sim.shifts.distractors import Zone


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
        start_range: Range of the arms' start poses in version 2 of tasks; None: only version 1.
        room_half_m: Distance of the walls of textured looks from the middle. The view of films is
            within, and the corners are nearer than the far plane of cameras, 5 m.
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
