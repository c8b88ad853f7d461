"""Tasks that put all objects from both sides of the table into one container in the middle."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.aloha import ARMS
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.props.containers import Bin
from stringline.sim.props.dishes import Bowl
from stringline.sim.props.handheld import Apple, Banana, Pear, SnackBox
from stringline.sim.props.prop import Prop
from stringline.sim.tasks.goal_task import GoalTask
from stringline.sim.tasks.success import Touching, in_frame, upright

UP = (0.0, 0.0, 1.0)
APART_M = 0.05  # Between things, and between them and the container: room for a finger.
CLEAR_M = 0.02  # Lifted means that far off the table.
LAYOUTS = 20
TRIES = 60


@dataclass(frozen=True)
class Solid:
    """A prop as balls, which say where it is.

    Attributes:
        prop: The prop.
        points: (N, 3), centres of balls in its frame, metres; close enough to each other to stand
            for its outline.
        radii: (N,), metres; 0 where the points are its corners.
    """

    prop: Prop
    points: Matrix
    radii: Vector


class GatheringTask(GoalTask):
    """Three things go into the container; stages are start, lifted, one_in, two_in, all_in and success.

    Start: container at x U(`container_x`), y U(`container_y`), yaw U(`container_yaw_deg`). Things
    at any yaw, two on one side and one on the other, which ones being drawn, at |x| U(`thing_x`), y
    U(`thing_y`), 5 cm clear of each other and of the container. Success: each thing is inside the
    upright container by geometry; touched by no arm, all at rest, for 0.5 s.

    Args:
        control_hz: Actions per second.
        container: Where everything goes.
        things: What goes there: three of them.
    """

    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "one_in", "two_in", "all_in", "success")
    container_x: ClassVar[tuple[float, float]] = (-0.04, 0.04)
    container_y: ClassVar[tuple[float, float]] = (-0.04, 0.04)
    container_yaw_deg: ClassVar[tuple[float, float]] = (-15.0, 15.0)
    thing_x: ClassVar[tuple[float, float]] = (0.18, 0.32)
    thing_y: ClassVar[tuple[float, float]] = (-0.17, 0.17)

    def __init__(self, control_hz: float, container: Solid, things: Sequence[Solid]) -> None:
        assert len(things) == len(self.stages) - 3, "there is a stage for each thing"
        self.container = container
        self.things = tuple(things)
        super().__init__(control_hz, container.prop, *(thing.prop for thing in things))

    @abstractmethod
    def contains(self, points: Matrix) -> bool:
        """Says whether points (N, 3) in the container's frame, metres, are inside it."""

    @abstractmethod
    def lying(self, thing: Solid) -> Matrix:
        """Returns the pose (4, 4) of a thing that rests on the table at the origin."""

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws where everything is.

        Raises:
            RuntimeError: In 20 layouts there was no free place for all, which the ranges rule out.
        """
        for _ in range(LAYOUTS):
            layout = self._layout(random_state)
            if layout is not None:
                for solid, T_table_solid in layout:
                    self.place(physics, solid.prop, T_table_solid)
                return
        raise RuntimeError(f"No place for all things in {LAYOUTS} layouts.")

    def reached(self, physics: mjcf.Physics) -> bool:
        """Says whether everything is inside."""
        return all(self.inside(physics, thing) for thing in self.things)

    def inside(self, physics: mjcf.Physics, thing: Solid) -> bool:
        """Says by geometry alone whether a thing is inside the container, which stands upright on the table."""
        container = self.container.prop
        place = thing.prop.get_pose(physics)[0]
        there = container.get_pose(physics)[0]
        if np.hypot(*(place - there)[:2]) > container.reach:
            return False  # Mostly so, and cheap to see.
        T_base_container = self.pose(physics, container)
        stands = (
            upright(T_base_container, 0.999)
            and abs(T_base_container[2, 3] - self.table_height) < 0.005
        )
        return stands and self.contains(
            in_frame(T_base_container, self.pose(physics, thing.prop), thing.points)
        )

    def progress(self, physics: mjcf.Physics, touching: Touching) -> int:
        """Lifted: something is held 2 cm off the table; one, two, all in: as many are inside and touched by no arm."""
        count = sum(
            self.inside(physics, thing) and not touching.by_any_arm([thing.prop.name])
            for thing in self.things
        )
        return (
            1 + count
            if count
            else int(any(self._lifted(physics, touching, thing) for thing in self.things))
        )

    def lowest(self, physics: mjcf.Physics, thing: Solid) -> float:
        """Returns the height of a thing's lowest point, metres."""
        T_base_thing = self.pose(physics, thing.prop)
        return float((thing.points @ T_base_thing[2, :3] + T_base_thing[2, 3] - thing.radii).min())

    def _lifted(self, physics: mjcf.Physics, touching: Touching, thing: Solid) -> bool:
        held = any(touching.held(arm, thing.prop.name) for arm in ARMS)
        return held and self.lowest(physics, thing) - self.table_height > CLEAR_M

    def _layout(self, random_state: np.random.RandomState) -> list[tuple[Solid, Matrix]] | None:
        spot = (
            random_state.uniform(*self.container_x),
            random_state.uniform(*self.container_y),
            0.0,
        )
        layout = [(self.container, pose(spot, _turned(random_state, self.container_yaw_deg)))]
        sides = random_state.permutation((-1, 1, random_state.choice((-1, 1))))
        for thing, side in zip(self.things, sides, strict=True):
            free = self._free_place(random_state, thing, float(side), layout)
            if free is None:
                return None
            layout.append((thing, free))
        return layout

    def _free_place(
        self,
        random_state: np.random.RandomState,
        thing: Solid,
        side: float,
        layout: Sequence[tuple[Solid, Matrix]],
    ) -> Matrix | None:
        for _ in range(TRIES):
            spot = (
                side * random_state.uniform(*self.thing_x),
                random_state.uniform(*self.thing_y),
                0.0,
            )
            T_table_thing = pose(spot, _turned(random_state, (-180.0, 180.0))) @ self.lying(thing)
            if all(distance(thing, T_table_thing, other, at) > APART_M for other, at in layout):
                return T_table_thing
        return None


def distance(a: Solid, T_base_a: Matrix, b: Solid, T_base_b: Matrix) -> float:
    """Returns how far apart two things at poses (4, 4) are, seen from above, metres; below zero where they overlap."""
    across_a, across_b = (
        (solid.points @ T[:2, :3].T + T[:2, 3]) for solid, T in ((a, T_base_a), (b, T_base_b))
    )
    between = (
        np.linalg.norm(across_a[:, None] - across_b[None], axis=-1)
        - a.radii[:, None]
        - b.radii[None]
    )
    return float(between.min())


def _turned(random_state: np.random.RandomState, yaws_deg: tuple[float, float]) -> Matrix:
    return rotation_about(UP, np.radians(random_state.uniform(*yaws_deg)))


class FruitBowl(GatheringTask):
    """A banana, an apple and a pear go into the bowl in the middle.

    Start: bowl at x and y U(-0.04, 0.04) m; fruits lie at |x| U(0.18, 0.32), y U(-0.17, 0.17) m at
    any yaw, two on one side and one on the other, 5 cm clear of each other and of the rim. Success:
    the middle of each ball of each fruit (apple 1, pear 3, along the banana's axis 6) is within the
    bowl's slanted wall, above its floor and below its rim; the bowl stands; no arm touches anything
    and all is at rest for 0.5 s. Sizes are ours, as no public task has them: the gripper opens 58.6
    mm, apple and pear are 50 mm thick, the banana 150 by 36 mm, the bowl is 280 mm wide and 80 mm
    high.
    """

    name: ClassVar[str] = "fruit_bowl"
    instruction: ClassVar[str] = "put all the fruits into the bowl"

    def __init__(self, control_hz: float = 50.0) -> None:
        self.bowl = Bowl(diameter=0.28, height=0.08, floor_diameter=0.18, mass=0.5)
        self.banana = Banana(length=0.15)
        self.apple = Apple()
        self.pear = Pear()
        fruits = (
            Solid(
                self.banana,
                self.banana.points,
                np.full(len(self.banana.points), self.banana.radius),
            ),
            Solid(self.pear, self.pear.points, self.pear.radii),
            Solid(self.apple, self.apple.points, self.apple.radii),
        )
        super().__init__(
            control_hz, Solid(self.bowl, np.zeros((1, 3)), np.array([self.bowl.reach])), fruits
        )

    def contains(self, points: Matrix) -> bool:
        """Says whether points (N, 3) in the bowl's frame, metres, are inside it."""
        return self.bowl.contains(points)

    def lying(self, thing: Solid) -> Matrix:
        """Returns the pose (4, 4) of a fruit that lies on the table at the origin."""
        tilt = self.pear.tilt if thing.prop is self.pear else 0.0
        return pose((0.0, 0.0, float(thing.radii[0])), rotation_about((1.0, 0.0, 0.0), -tilt))


class StorageBin(GatheringTask):
    """A red, a yellow and a blue snack box go into the bin in the middle, whose walls are 100 mm high.

    Start: bin at x and y U(-0.04, 0.04) m, yaw +-15 degrees; boxes stand at |x| U(0.18, 0.32), y
    U(-0.17, 0.17) m at any yaw, two on one side and one on the other, 5 cm clear of each other and
    of the bin. Success: all corners of all boxes are between the bin's walls, above its floor and
    below its rim (walls and floor give way 1 mm); the bin stands; no arm touches anything and all
    is at rest for 0.5 s. Sizes are ours, as no public task has them: boxes of 120 x 40 x 50, 90 x
    44 x 36 and the upright 44 x 40 x 80 mm (the gripper opens 58.6 mm), a bin of 160 x 290 mm
    inside.
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
        things = [Solid(box, box.points, np.zeros(len(box.points))) for box in self.boxes]
        super().__init__(
            control_hz, Solid(self.bin, self.bin.outline, np.zeros(len(self.bin.outline))), things
        )

    def contains(self, points: Matrix) -> bool:
        """Says whether points (N, 3) in the bin's frame, metres, are inside it."""
        return self.bin.contains(points)

    def lying(self, thing: Solid) -> Matrix:
        """Returns the pose (4, 4) of a box that stands on the table at the origin."""
        return pose((0.0, 0.0, -float(thing.points[:, 2].min())))
