"""The KUKA's workcell with a printed board on the table or in the hand, for emulated calibrations.

Configurations name these worlds as `module:Class`, like a user's own tasks, since no policy is
trained on them.
"""

from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.iiwa14 import ALONE
from stringline.datasets.embodiments.mjcf_parts import DRAWN
from stringline.datasets.embodiments.transforms import Matrix, pose, quaternion
from stringline.real_robot.calibration.board import Board
from stringline.real_robot.calibration.opencv_library import opencv
from stringline.sim.robots.workcells import KUKA_CELL, Workcell
from stringline.sim.tasks.tabletop import TabletopTask

BOARD = Board()
SQUARE_PX = 64  # Halves exactly down to a pixel, as the graphics' coarser versions of the image do.
MARGIN_PX = 32
# Grey values of ink and paper.
BLACK = 25
WHITE = 215
HALF_THICK_M = 0.002
# A board's z axis points into it, that of a box out of its upper face.
FACING_CAMERA = np.diag([1.0, -1.0, -1.0])

# On the table its x axis is that of the base; in the hand it hangs below the fingers and faces the
# front.
T_BASE_BOARD: Matrix = pose((0.44, 0.0, 2 * HALF_THICK_M), FACING_CAMERA) @ pose(
    (-BOARD.size_m[0] / 2, -BOARD.size_m[1] / 2, 0.0)
)
T_GRIPPER_BOARD: Matrix = pose(
    (0.02, -BOARD.size_m[0] / 2, HALF_THICK_M),
    np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]]),
)
# Objects that both cameras see: position and half lengths (m), degrees about z.
BLOCKS = (
    ((0.36, 0.19), (0.03, 0.04, 0.04), 20.0),
    ((0.52, 0.21), (0.025, 0.05, 0.025), -35.0),
    ((0.60, 0.02), (0.02, 0.06, 0.035), 10.0),
    ((0.50, -0.20), (0.04, 0.025, 0.05), 40.0),
    ((0.35, -0.18), (0.05, 0.03, 0.02), -10.0),
)
COLOURS = (
    (0.75, 0.25, 0.2, 1.0),
    (0.2, 0.5, 0.7, 1.0),
    (0.8, 0.7, 0.25, 1.0),
    (0.3, 0.6, 0.3, 1.0),
    (0.6, 0.4, 0.65, 1.0),
)


class _BoardTask(TabletopTask):
    """A task without a goal; it never succeeds."""

    cell: ClassVar[Workcell] = KUKA_CELL
    instruction: ClassVar[str] = "look at the board"
    stages: ClassVar[tuple[str, ...]] = ("start",)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Places nothing, since all objects are fixed."""

    def after_step(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Updates nothing."""


class KukaBoardOnTable(_BoardTask):
    """The board lies on the table, among some blocks."""

    name: ClassVar[str] = f"{__name__}:KukaBoardOnTable"

    def __init__(self, control_hz: float = 50.0) -> None:
        super().__init__(control_hz)
        root = self._arena.mjcf_model
        add_board(root.worldbody, T_BASE_BOARD)
        for ((x, y), half, turn), colour in zip(BLOCKS, COLOURS, strict=True):
            quat = (np.cos(np.radians(turn) / 2), 0.0, 0.0, np.sin(np.radians(turn) / 2))
            looks = {"contype": 0, "conaffinity": 0, "group": DRAWN, "rgba": colour}
            root.worldbody.add(
                "geom", type="box", pos=(x, y, half[2]), quat=quat, size=half, **looks
            )


class KukaBoardInHand(_BoardTask):
    """The board is screwed to the hand."""

    name: ClassVar[str] = f"{__name__}:KukaBoardInHand"

    def __init__(self, control_hz: float = 50.0) -> None:
        super().__init__(control_hz)
        hand = self.robot.mjcf_model.find("body", f"{ALONE}/hand")
        (chain,) = self.embodiment.chains
        add_board(hand, chain.T_last_gripper @ T_GRIPPER_BOARD)


def add_board(body: mjcf.Element, T_body_board: Matrix) -> None:
    """Fixes a board to a body of a model, as a thin plate without collisions; metres."""
    paper = (
        BLACK + BOARD.drawn(SQUARE_PX, MARGIN_PX).astype(np.float64) * ((WHITE - BLACK) / 255)
    ).astype(np.uint8)
    image = opencv().imencode(".png", np.repeat(paper[..., None], 3, axis=2))[1].tobytes()
    asset = body.root.asset
    texture = asset.add("texture", name="board", type="2d", file=mjcf.Asset(image, ".png"))
    material = asset.add(
        "material", name="board", texture=texture, specular=0.0, shininess=0.0, reflectance=0.0
    )
    length, height = BOARD.size_m
    margin = MARGIN_PX / SQUARE_PX * BOARD.square_mm / 1e3
    T_body_plate = T_body_board @ pose((length / 2, height / 2, HALF_THICK_M), FACING_CAMERA)
    # Without mass, as for a real controller that compensates the board's weight.
    looks = {"contype": 0, "conaffinity": 0, "group": DRAWN, "mass": 0}
    body.add(
        "geom",
        name="board",
        type="box",
        pos=T_body_plate[:3, 3],
        quat=quaternion(T_body_plate[:3, :3]),
        size=(length / 2 + margin, height / 2 + margin, HALF_THICK_M),
        material=material,
        **looks,
    )
