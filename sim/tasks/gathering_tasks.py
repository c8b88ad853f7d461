"""Tasks that put all objects from both sides of the table into one container in the middle."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.props.prop import Prop
from stringline.sim.props.table_props import Apple, Banana, Bin, Bowl, Pear, SnackBox
from stringline.sim.tasks import handling
from stringline.sim.tasks.placement import draw_yaw
from stringline.sim.tasks.success import CLEAR_M, ContactState, in_frame, upright
from stringline.sim.tasks.tabletop import GoalTask

APART_M = 0.05  # Smallest gap between two props at the start: room for a finger.
LAYOUTS = 20
TRIES = 60


@dataclass(frozen=True)
class Solid:
    """A prop and balls that cover it.

    Attributes:
        points: (N, 3), centres of the balls in its frame, metres, close enough to each other to
            follow its outline.
        radii: (N,), radii of the balls, metres; 0 for the corners of a box.
    """

    prop: Prop
    points: Matrix
    radii: Vector


class GatheringTask(GoalTask):
    """Three objects go into the container.

    Start: container at x U(`container_x`), y U(`container_y`), yaw U(`container_yaw_deg`). Objects
    at any yaw, two on a drawn side and one on the other, in a drawn order, at |x| U(`object_x`), y
    U(`object_y`), 5 cm clear of each other and of the container. Success: each object is inside the
    upright container by geometry; touched by no arm, all at rest, for 0.5 s.
    """

    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "one_in", "two_in", "all_in", "success")
    may_be_strict: ClassVar[bool] = True
    drop_speed: ClassVar[float] = handling.DROP_SPEED_INTO_CONTAINER
    container_x: ClassVar[tuple[float, float]] = (-0.04, 0.04)
    container_y: ClassVar[tuple[float, float]] = (-0.04, 0.04)
    container_yaw_deg: ClassVar[tuple[float, float]] = (-15.0, 15.0)
    object_x: ClassVar[tuple[float, float]] = (0.18, 0.32)
    object_y: ClassVar[tuple[float, float]] = (-0.17, 0.17)

    def __init__(self, control_hz: float, container: Solid, objects: Sequence[Solid]) -> None:
        assert len(objects) == len(self.stages) - 3, "each object needs a stage"
        self.container = container
        self.objects = tuple(objects)
        super().__init__(control_hz, container.prop, *(item.prop for item in objects))

    @abstractmethod
    def contains(self, points: Matrix) -> bool:
        """Returns whether points (N, 3) in the container's frame, metres, are inside it."""

    @abstractmethod
    def lying(self, item: Solid) -> Matrix:
        """Returns the pose (4, 4) of an object that rests on the table at the origin."""

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the poses of all props.

        Raises:
            RuntimeError: None of 20 layouts has room for all, which the ranges rule out.
        """
        for _ in range(LAYOUTS):
            layout = self._layout(random_state)
            if layout is not None:
                for solid, T_table_solid in layout:
                    self.place(physics, solid.prop, T_table_solid)
                return
        raise RuntimeError(f"None of {LAYOUTS} layouts has room for all objects.")

    def reached(self, physics: mjcf.Physics) -> bool:
        """Returns whether all objects are inside."""
        return all(self.inside(physics, item) for item in self.objects)

    def inside(self, physics: mjcf.Physics, item: Solid) -> bool:
        """Returns by geometry alone whether an object is inside the container on the table."""
        container = self.container.prop
        place = self.position(physics, item.prop)
        there = self.position(physics, container)
        if np.hypot(*(place - there)[:2]) > container.reach:
            return False  # The common case, found at little cost.
        T_base_container = self.pose(physics, container)
        lifted = abs(T_base_container[2, 3] - self.table_height) >= 0.005
        if lifted or not upright(T_base_container, 0.999):
            return False
        T_base_item = self.pose(physics, item.prop)
        return self.contains(in_frame(T_base_container, T_base_item, item.points))

    def progress(self, physics: mjcf.Physics, contacts: ContactState) -> int:
        """Returns the stage: an object lifted by 2 cm, or the number of objects released inside."""
        count = sum(
            self.inside(physics, item) and not contacts.by_any_arm([item.prop.name])
            for item in self.objects
        )
        if count:
            return 1 + count
        return int(any(self._lifted(physics, contacts, item) for item in self.objects))

    def lowest(self, physics: mjcf.Physics, item: Solid) -> float:
        """Returns the height of an object's lowest point, metres."""
        T_base_item = self.pose(physics, item.prop)
        return float((item.points @ T_base_item[2, :3] + T_base_item[2, 3] - item.radii).min())

    def _lifted(self, physics: mjcf.Physics, contacts: ContactState, item: Solid) -> bool:
        held = contacts.held_by_any(item.prop.name)
        return held and self.lowest(physics, item) - self.table_height > CLEAR_M

    def _layout(self, random_state: np.random.RandomState) -> list[tuple[Solid, Matrix]] | None:
        x = random_state.uniform(*self.container_x)
        y = random_state.uniform(*self.container_y)
        yaw = draw_yaw(random_state, self.container_yaw_deg)
        layout = [(self.container, pose((x, y, 0.0), yaw))]
        sides = random_state.permutation((-1, 1, random_state.choice((-1, 1))))
        for item, side in zip(self.objects, sides, strict=True):
            free = self._free_place(random_state, item, float(side), layout)
            if free is None:
                return None
            layout.append((item, free))
        return layout

    def _free_place(
        self,
        random_state: np.random.RandomState,
        item: Solid,
        side: float,
        layout: Sequence[tuple[Solid, Matrix]],
    ) -> Matrix | None:
        for _ in range(TRIES):
            x = side * random_state.uniform(*self.object_x)
            y = random_state.uniform(*self.object_y)
            yaw = draw_yaw(random_state, (-180.0, 180.0))
            T_table_item = pose((x, y, 0.0), yaw) @ self.lying(item)
            if all(distance(item, T_table_item, other, at) > APART_M for other, at in layout):
                return T_table_item
        return None


def distance(a: Solid, T_base_a: Matrix, b: Solid, T_base_b: Matrix) -> float:
    """Returns the gap between two props as seen from above, metres; below zero: they overlap."""
    across_a, across_b = (
        (solid.points @ T[:2, :3].T + T[:2, 3]) for solid, T in ((a, T_base_a), (b, T_base_b))
    )
    between = np.linalg.norm(across_a[:, None] - across_b[None], axis=-1)
    return float((between - a.radii[:, None] - b.radii[None]).min())


class FruitBowl(GatheringTask):
    """A banana, an apple and a pear go into the bowl in the middle.

    Start: bowl at x and y U(-0.04, 0.04) m; fruits lie at |x| U(0.18, 0.32), y U(-0.17, 0.17) m at
    any yaw, two on one side and one on the other, 5 cm clear of each other and of the rim. Success:
    the middle of each ball of each fruit (apple 1, pear 3, banana 6) is within the wall of the
    upright bowl, above its floor and below its rim.

    Sizes (ours): apple and pear 50 mm thick, banana 150 x 36 mm, bowl 280 mm wide and 80 mm high;
    the gripper opens 58.6 mm.
    """

    name: ClassVar[str] = "fruit_bowl"
    instruction: ClassVar[str] = "put all the fruits into the bowl"

    def __init__(self, control_hz: float = 50.0) -> None:
        self.bowl = Bowl(diameter=0.28, height=0.08, floor_diameter=0.18, mass=0.5)
        self.banana = Banana(length=0.15)
        self.apple = Apple()
        self.pear = Pear()
        banana_radii = np.full(len(self.banana.points), self.banana.radius)
        fruits = (
            Solid(self.banana, self.banana.points, banana_radii),
            Solid(self.pear, self.pear.points, self.pear.radii),
            Solid(self.apple, self.apple.points, self.apple.radii),
        )
        bowl = Solid(self.bowl, np.zeros((1, 3)), np.array([self.bowl.reach]))
        super().__init__(control_hz, bowl, fruits)

    def contains(self, points: Matrix) -> bool:
        """Returns whether points (N, 3) in the bowl's frame, metres, are inside it."""
        return self.bowl.contains(points)

    def lying(self, item: Solid) -> Matrix:
        """Returns the pose (4, 4) of a fruit that lies on the table at the origin."""
        tilt = self.pear.tilt if item.prop is self.pear else 0.0
        return pose((0.0, 0.0, float(item.radii[0])), rotation_about((1.0, 0.0, 0.0), -tilt))


class StorageBin(GatheringTask):
    """A red, a yellow and a blue snack box go into the bin in the middle, with walls of 100 mm.

    Start: bin at x and y U(-0.04, 0.04) m, yaw +-15 degrees; boxes stand at |x| U(0.18, 0.32), y
    U(-0.17, 0.17) m at any yaw, two on one side and one on the other, 5 cm clear of each other and
    of the bin. Success: all corners of all boxes are between the walls of the upright bin, above
    its floor and below its rim (to 1 mm).

    Sizes (ours): boxes of 120 x 40 x 50, 90 x 44 x 36 and, upright, 44 x 40 x 80 mm; bin 160 x 290
    mm inside; the gripper opens 58.6 mm.
    """

    name: ClassVar[str] = "storage_bin"
    instruction: ClassVar[str] = "put all the snack boxes into the storage bin"

    def __init__(self, control_hz: float = 50.0) -> None:
        self.bin = Bin()
        self.boxes = (
            SnackBox("red_box", size=(0.12, 0.04, 0.05), colour=(0.85, 0.12, 0.10, 1.0)),
            SnackBox("yellow_box", size=(0.09, 0.044, 0.036), colour=(0.96, 0.76, 0.10, 1.0)),
            SnackBox("blue_box", size=(0.044, 0.04, 0.08), colour=(0.10, 0.35, 0.85, 1.0)),
        )
        objects = [Solid(box, box.points, np.zeros(len(box.points))) for box in self.boxes]
        outline = self.bin.outline
        super().__init__(control_hz, Solid(self.bin, outline, np.zeros(len(outline))), objects)

    def contains(self, points: Matrix) -> bool:
        """Returns whether points (N, 3) in the bin's frame, metres, are inside it."""
        return self.bin.contains(points)

    def lying(self, item: Solid) -> Matrix:
        """Returns the pose (4, 4) of a box that stands on the table at the origin."""
        return pose((0.0, 0.0, -float(item.points[:, 2].min())))
