"""Tasks of the KUKA cell: pick, place and hand-over, with one arm or two."""

from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.transforms import Matrix, rotation_about
from stringline.sim.props.insertion_parts import Block
from stringline.sim.props.table_props import Bin, Tray
from stringline.sim.robots.workcells import KUKA_BIMANUAL_CELL, Workcell
from stringline.sim.tasks.hand_over_tasks import HandOverTask
from stringline.sim.tasks.placement import UP, RandomObjectTask, draw_pose, draw_yaw
from stringline.sim.tasks.success import CLEAR_M, ContactState, in_frame, upright
from stringline.sim.tasks.tabletop import GoalTask

LIFTED_M = 0.1  # Height of a picked object.
# m/s of the object's fastest point. Rest is not required: learned policies plan twice a second,
# hold an object up for any time, and keep it moving at 3 to 13 cm/s.
CALM_SPEED = 0.2
TRAY_GAP_M = 0.04  # Smallest gap between object and tray at the start: room for a finger.
TRIES = 100
BAR_X = (0.14, 0.26)
BAR_Y = (-0.14, 0.14)
BAR_YAW_DEG = (-40.0, 40.0)
BIN_X = (-0.26, -0.14)
BIN_Y = (-0.12, 0.12)
BIN_YAW_DEG = (-25.0, 25.0)


class KukaPick(RandomObjectTask):
    """An object is held between the pads, at least 10 cm above the table, and moves slowly.

    Start: one of 24 forms (boxes, cylinders, a ball, bent and branched bars, hollow ones, objects
    composed of several solids), drawn for each episode, at x U(0.46, 0.68), y U(-0.2, 0.2) m and
    any yaw. Success: its lowest point at least 10 cm above the table, both pads of one gripper on
    it, no part of it faster than 20 cm/s, for 0.5 s without a break.

    Sizes, forms and ranges are ours.
    """

    name: ClassVar[str] = "kuka_pick"
    any_arm: ClassVar[bool] = True
    instruction: ClassVar[str] = "pick up the object"
    stages: ClassVar[tuple[str, ...]] = ("start", "grasped", "lifted", "success")

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the object and its pose."""
        self.draw_object(physics, random_state)
        self.place(physics, self.object, self.draw_start(random_state))

    def after_step(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Updates success and stage."""
        contacts = self.contact_state(physics)
        clearance = self.clearance(physics)
        held = contacts.held_by_any(self.object.name)
        calm = self.speed(physics, self.object) < CALM_SPEED
        self.success = self.has_lasted(held and clearance > LIFTED_M and calm, physics)
        stage = 2 if held and clearance > CLEAR_M else int(held)
        self.stage = max(self.stage, 3 if self.success else stage)


class KukaPlace(GoalTask, RandomObjectTask):
    """An object lies or stands in the tray, all of it within the rim.

    Start: one of 24 forms as in `KukaPick`, at x U(0.46, 0.68), y U(-0.22, 0.22) m and any yaw, and
    the tray at x U(0.48, 0.64), y U(-0.2, 0.2) m, yaw U(-45, 45) degrees, at least 4 cm apart.
    Success: no point of it beyond the inside of the rim (200 x 200 mm), its lowest one on the
    tray's floor (to 4 mm), the tray flat.

    Sizes and ranges are ours.
    """

    name: ClassVar[str] = "kuka_place"
    any_arm: ClassVar[bool] = True
    instruction: ClassVar[str] = "put the object into the tray"
    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "over_tray", "in_tray", "success")
    may_be_strict: ClassVar[bool] = True
    object_y: ClassVar[tuple[float, float]] = (-0.22, 0.22)
    tray_x: ClassVar[tuple[float, float]] = (0.48, 0.64)
    tray_y: ClassVar[tuple[float, float]] = (-0.2, 0.2)

    def __init__(self, control_hz: float = 50.0) -> None:
        self.tray = Tray()
        super().__init__(control_hz, self.tray)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the object, its pose and the tray's."""
        self.draw_object(physics, random_state)
        T_item = self.draw_start(random_state)
        T_tray = self._draw_tray(random_state)
        for _ in range(TRIES):
            if self._apart(T_item, T_tray):
                break
            T_item = self.draw_start(random_state)
            T_tray = self._draw_tray(random_state)
        self.place(physics, self.object, T_item)
        self.place(physics, self.tray, T_tray)

    def reached(self, physics: mjcf.Physics) -> bool:
        """Returns whether the object is in the tray."""
        T_base_tray = self.pose(physics, self.tray)
        points = in_frame(T_base_tray, self.pose(physics, self.object), self.object.points)
        return upright(T_base_tray, 0.999) and self.tray.holds(points, self.object.radii)

    def progress(self, physics: mjcf.Physics, contacts: ContactState) -> int:
        """Returns the stage: lifted by 2 cm, held over the tray, or in the tray."""
        if self.reached(physics):
            return 3
        if not contacts.held_by_any(self.object.name) or self.clearance(physics) < CLEAR_M:
            return 0
        T_base_tray = self.pose(physics, self.tray)
        x, y, _ = in_frame(T_base_tray, self.pose(physics, self.object), np.zeros(3))
        return 2 if max(abs(x), abs(y)) < self.tray.inner else 1

    def _draw_tray(self, random_state: np.random.RandomState) -> Matrix:
        yaw = rotation_about(UP, random_state.uniform(-np.pi / 4, np.pi / 4))
        return draw_pose(random_state, self.tray_x, self.tray_y, rotation=yaw)

    def _apart(self, T_item: Matrix, T_tray: Matrix) -> bool:
        """Returns whether the object, as discs, keeps clear of the tray."""
        points = in_frame(T_tray, T_item, self.object.points)
        beyond = np.maximum(np.abs(points[:, :2]) - self.tray.outer, 0.0)
        return bool((np.hypot(*beyond.T) - self.object.radii > TRAY_GAP_M).all())


class KukaHandOver(HandOverTask):
    """The bar goes from the right gripper to the left one, and with all corners into the bin.

    Start: bar lying at x U(0.14, 0.26), y U(-0.14, 0.14) m, yaw U(-40, 40) degrees; bin at x
    U(-0.26, -0.14), y U(-0.12, 0.12) m, yaw U(-25, 25) degrees. Success: as in `HandOverTask`, more
    than 2 cm off the table in the right gripper, then all corners between the walls of the upright
    bin, above its floor and below its rim.

    Sizes (ours): bar 200 x 28 x 28, bin 260 x 180 x 60 mm inside.
    """

    cell: ClassVar[Workcell] = KUKA_BIMANUAL_CELL
    varied_starts: ClassVar[bool] = True
    name: ClassVar[str] = "kuka_hand_over"
    instruction: ClassVar[str] = "hand over the red bar and put it into the bin"
    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "handed_over", "in_bin", "success")
    may_be_strict: ClassVar[bool] = True

    def __init__(self, control_hz: float = 50.0) -> None:
        self.bar = Block("bar", length=0.2, width=0.028, mass=0.1)
        self.bin = Bin(inner=(0.26, 0.18), height=0.06)
        corners = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
        self._corners = corners * (self.bar.length / 2, self.bar.width / 2, self.bar.width / 2)
        super().__init__(control_hz, self.bar, self.bin, self._corners)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the poses of bar and bin."""
        for prop, x, y, yaw_deg, z in (
            (self.bar, BAR_X, BAR_Y, BAR_YAW_DEG, self.bar.width / 2),
            (self.bin, BIN_X, BIN_Y, BIN_YAW_DEG, 0.0),
        ):
            yaw = draw_yaw(random_state, yaw_deg)
            self.place(physics, prop, draw_pose(random_state, x, y, z, rotation=yaw))

    def inside(self, T_base_bar: Matrix, T_base_bin: Matrix) -> bool:
        """Returns whether all corners of the bar are inside the upright bin."""
        corners = in_frame(T_base_bin, T_base_bar, self._corners)
        return upright(T_base_bin) and self.bin.contains(corners)


class KukaBimanualPick(KukaPick):
    """`KukaPick` between two arms that face each other; either arm may pick the object.

    Start: the object at x U(-0.26, 0.26), y U(-0.16, 0.16) m and any yaw. Forms and the rule of
    success are those of `KukaPick`.
    """

    cell: ClassVar[Workcell] = KUKA_BIMANUAL_CELL
    any_arm: ClassVar[bool] = False
    name: ClassVar[str] = "kuka_bimanual_pick"
    object_x: ClassVar[tuple[float, float]] = (-0.26, 0.26)
    object_y: ClassVar[tuple[float, float]] = (-0.16, 0.16)


class KukaBimanualPlace(KukaPlace):
    """`KukaPlace` between two arms that face each other; either arm may place the object.

    Start: the object at x U(-0.26, 0.26), y U(-0.16, 0.16) m and any yaw, the tray in the middle at
    x U(-0.03, 0.03), y U(-0.1, 0.1) m, yaw U(-45, 45) degrees, at least 4 cm apart. Forms and the
    rule of success are those of `KukaPlace`.
    """

    cell: ClassVar[Workcell] = KUKA_BIMANUAL_CELL
    any_arm: ClassVar[bool] = False
    name: ClassVar[str] = "kuka_bimanual_place"
    object_x: ClassVar[tuple[float, float]] = (-0.26, 0.26)
    object_y: ClassVar[tuple[float, float]] = (-0.16, 0.16)
    tray_x: ClassVar[tuple[float, float]] = (-0.03, 0.03)
    tray_y: ClassVar[tuple[float, float]] = (-0.1, 0.1)
