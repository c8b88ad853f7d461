"""The task to stand the mug on the plate, among other objects.

The start is that of aloha_sim's DiningPlaceMugOnPlate: two rows of three cells, shuffled, with all
four distractors. There a mug that lies on the plate or is still held is a success; here it has to
stand.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.aloha import ROOTS
from stringline.datasets.embodiments.transforms import Matrix, rotation_about
from stringline.sim.props.prop import Prop
from stringline.sim.props.table_props import Banana, Bowl, Holder, Mug, Pen, Plate
from stringline.sim.tasks.placement import UP, Range, draw_pose
from stringline.sim.tasks.success import ContactState, in_frame, upright
from stringline.sim.tasks.tabletop import GoalTask

Discs = np.ndarray[tuple[int, int], np.dtype[np.float64]]

FRONT_X = ((-0.3, -0.2), (-0.05, 0.05), (0.2, 0.3))
FRONT_Y = (-0.25, -0.1)
BACK_X = ((-0.3, -0.22), (-0.03, 0.03), (0.22, 0.3))
BACK_Y = (0.1, 0.2)
GAP_M = 0.01  # Smallest gap between two props at the start.
DRAWS = 300
# The arms' feet begin that far inwards of their axis, and have half that width.
FOOT_X = 0.105
FOOT_HALF_Y = 0.08
OVER_PLATE_M = 0.04  # Largest distance from the plate's axis that counts as over it.
# Standing on the plate's floor, not on its rim or leaning on it.
UPRIGHT_COSINE = np.cos(np.radians(3.0))
FLOOR_TOLERANCE_M = 0.002


class MugOnPlate(GoalTask):
    """The mug stands on the plate.

    Start: mug, pen and banana in the front cells, x -0.3 to -0.2, -0.05 to 0.05 and 0.2 to 0.3 m, y
    -0.25 to -0.1 m; plate, bowl and holder in those behind, x -0.3 to -0.22, -0.03 to 0.03 and 0.22
    to 0.3 m, y 0.1 to 0.2 m; each row is shuffled, and all are turned by any angle, 1 cm or more
    from one another and from the feet of the arms.

    Success: the mug stands upright to within 3 degrees on the floor of the upright plate (2 mm up
    or down), its whole base within that floor, so its axis within 18 mm of the plate's. No arm
    touches any prop.

    Sizes are YCB's as in aloha_sim: mug 118 x 94 x 83, plate 210 x 25, bowl 161 x 55 mm.
    """

    name: ClassVar[str] = "mug_on_plate"
    instruction: ClassVar[str] = "put the mug on the plate"
    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "over_plate", "on_plate", "success")
    may_be_strict: ClassVar[bool] = True

    def __init__(self, control_hz: float = 50.0) -> None:
        self.mug = Mug()
        self.plate = Plate()
        self._front: tuple[Prop, ...] = (self.mug, pen := Pen(), banana := Banana())
        bowl = Bowl(diameter=0.161, height=0.055, floor_diameter=0.1, mass=0.15)
        self._back: tuple[Prop, ...] = (self.plate, bowl, holder := Holder(floor_boxes=1))
        self._heights: Mapping[str, float] = {pen.name: pen.radius, banana.name: banana.radius}
        handle = self.mug.radius + self.mug.handle
        self._discs: Mapping[str, Discs] = {
            self.mug.name: np.array([(0, 0, self.mug.radius), (handle - 0.012, 0, 0.012)]),
            pen.name: np.insert(pen.points[:, :2], 2, pen.radius, axis=1),
            banana.name: np.insert(banana.points[:, :2], 2, banana.radius, axis=1),
            self.plate.name: np.array([(0, 0, self.plate.diameter / 2)]),
            bowl.name: np.array([(0, 0, bowl.reach)]),
            holder.name: np.array([(0, 0, holder.radius)]),
        }
        super().__init__(control_hz, *self._front, *self._back)
        # Six props in one place would have more contacts than MuJoCo has room for.
        for place, prop in enumerate(self.props.values()):
            mjcf.get_attachment_frame(prop.mjcf_model).pos = (0.0, 0.5 * (1 + place), 0.2)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the poses of all props."""
        places = self._start(random_state)
        for _ in range(DRAWS):
            if self._apart(places):
                break
            places = self._start(random_state)
        for name, T_table_prop in places.items():
            self.place(physics, self.props[name], T_table_prop)

    def footprint(self, prop: Prop, T_base_prop: Matrix) -> Discs:
        """Returns discs (D, 3), x, y, radius in metres, that cover a prop in its start attitude."""
        discs = self._discs[prop.name]
        spots = in_frame(np.eye(4), T_base_prop, np.insert(discs[:, :2], 2, 0.0, axis=1))
        return np.column_stack([spots[:, :2], discs[:, 2]])

    def reached(self, physics: mjcf.Physics) -> bool:
        """Returns whether the mug stands on the plate's floor."""
        return self.stands(self.pose(physics, self.mug), self.pose(physics, self.plate))

    def stands(self, T_base_mug: Matrix, T_base_plate: Matrix) -> bool:
        """Returns whether a mug stands on the floor of a plate; poses are (4, 4)."""
        x, y, z = in_frame(T_base_plate, T_base_mug, np.zeros(3))
        within = np.hypot(x, y) + self.mug.radius <= self.plate.floor_radius
        parallel = T_base_mug[:3, 2] @ T_base_plate[:3, 2] > UPRIGHT_COSINE
        on_floor = abs(z - self.plate.thickness) < FLOOR_TOLERANCE_M
        return bool(upright(T_base_plate) and within and parallel and on_floor)

    def progress(self, physics: mjcf.Physics, contacts: ContactState) -> int:
        """Returns the stage: lifted, held over the plate, or on the plate."""
        if self.reached(physics):
            return 3
        T_base_plate = self.pose(physics, self.plate)
        x, y, z = in_frame(T_base_plate, self.pose(physics, self.mug), np.zeros(3))
        on_table = contacts.between(self.mug.name, "table")
        if not contacts.held_by_any(self.mug.name) or on_table:
            return 0
        return 2 if np.hypot(x, y) < OVER_PLATE_M and z > 0 else 1

    def _start(self, random_state: np.random.RandomState) -> dict[str, Matrix]:
        front = self._draw(self._front, FRONT_X, FRONT_Y, random_state)
        return front | self._draw(self._back, BACK_X, BACK_Y, random_state)

    def _draw(
        self,
        props: tuple[Prop, ...],
        cells_x: tuple[Range, ...],
        range_y: Range,
        random_state: np.random.RandomState,
    ) -> dict[str, Matrix]:
        places = {}
        for prop, cell in zip(props, random_state.permutation(len(cells_x)), strict=True):
            yaw = rotation_about(UP, random_state.uniform(-np.pi, np.pi))
            height = self._heights.get(prop.name, 0.0)
            place = draw_pose(random_state, cells_x[cell], range_y, height, rotation=yaw)
            places[prop.name] = place
        return places

    def _apart(self, places: Mapping[str, Matrix]) -> bool:
        """Returns whether all props keep the gap to each other and to the arms' feet."""
        covered = [self.footprint(self.props[name], T) for name, T in places.items()]
        others = all(gap(a, b) > GAP_M for i, a in enumerate(covered) for b in covered[:i])
        return others and all(_gap_to_feet(discs) > GAP_M for discs in covered)


def gap(a: Discs, b: Discs) -> float:
    """Returns the gap between discs (D, 3) and (E, 3), x, y, radius, metres; below 0: overlap."""
    apart = np.linalg.norm(a[:, None, :2] - b[None, :, :2], axis=-1)
    return float((apart - a[:, None, 2] - b[None, :, 2]).min())


def _gap_to_feet(discs: Discs) -> float:
    inner = ROOTS["right"][0, 3] - FOOT_X
    beyond = np.stack([inner - np.abs(discs[:, 0]), np.abs(discs[:, 1]) - FOOT_HALF_Y])
    return float((np.hypot(*np.maximum(beyond, 0.0)) - discs[:, 2]).min())
