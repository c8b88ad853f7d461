"""Simulated workcells to test calibrations: with a printed board, or with displaced cameras.

Configurations name the worlds with a board, on the table or in the hand of a KUKA, as
`module:Class`, like a user's own tasks, since no policy is trained on them. `SimulatedCell` renders
a workcell whose cameras are displaced.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import mujoco
import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.iiwa14 import ALONE
from stringline.datasets.embodiments.mjcf_parts import DRAWN
from stringline.datasets.embodiments.transforms import Matrix, pose, quaternion
from stringline.real_robot.calibration.board import Board, carrier_pose
from stringline.real_robot.calibration.opencv_library import opencv
from stringline.sim.environment.environment import make_environment
from stringline.sim.environment.sensing import Cameras
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
    stages: ClassVar[tuple[str, ...]] = ("start", "success")

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


_TO_CONTRACT = np.diag([1.0, -1.0, -1.0, 1.0])  # MuJoCo's cameras look along -z with y up.


class SimulatedCell:
    """Renders a world at given joints, without a simulated motion.

    Args:
        task: `module:Class` of a world, such as those of `board_world.py`.
        cameras: Names of the rendered cameras.
        size: Rows and columns of the images.
        image_noise: Standard deviation of the noise of each colour, of 255.
        joint_noise_rad: Standard deviation of the noise of encoders.
    """

    def __init__(
        self,
        task: str,
        cameras: Sequence[str],
        size: tuple[int, int],
        *,
        image_noise: float = 2.0,
        joint_noise_rad: float = 0.0,
    ) -> None:
        self._names = tuple(cameras)
        self._noise = image_noise
        self._joint_noise = joint_noise_rad
        self._world = make_environment(task, cameras=(), image_size=16)
        made = self._world.task
        self.embodiment: Embodiment = made.embodiment
        self._cameras = Cameras(
            self._world.physics, made, self._names, size, segmentation=False, rendering="fast"
        )
        self.contract: Contract = self.embodiment.contract(
            [Camera(name, *size, "simulated") for name in self._names], 50.0
        )
        model = self._world.physics.model
        self._drawn = model.cam_pos.copy(), model.cam_quat.copy()
        self._rng = np.random.default_rng(0)
        self._time = 0.0

    def begin(self, seed: int, knocks: Mapping[str, Matrix]) -> None:
        """Resets the cameras to their nominal poses and displaces some of them.

        Args:
            seed: Seed of all noise.
            knocks: (4, 4) displacement of each camera in its own frame, metres.
        """
        self._world.begin(seed)
        self._rng = np.random.default_rng(seed)
        self._time = 0.0
        model = self._world.physics.model
        model.cam_pos[:], model.cam_quat[:] = self._drawn
        for name, knock in knocks.items():
            number = self._number(name)
            T_body_camera = (
                pose(model.cam_pos[number], _rotation(model.cam_quat[number])) @ _TO_CONTRACT
            )
            moved = T_body_camera @ knock @ _TO_CONTRACT
            model.cam_pos[number] = moved[:3, 3]
            model.cam_quat[number] = quaternion(moved[:3, :3])

    def observe(self, q: Vector, after_s: float = 1.0) -> dict[str, Array]:
        """Sets the joints (J,) and returns a noisy observation, `after_s` after the last one."""
        physics = self._world.physics
        robot = self._world.task.robot
        robot.put(physics, q)
        physics.forward()
        self._time += after_s
        measured = q + self._joint_noise * self._rng.standard_normal(len(q))
        seen: dict[str, Any] = {
            "time": np.asarray(self._time),
            "joints/position": measured.astype(np.float32),
        }
        seen |= self._cameras.frame(self._time)
        for name in self._names:
            clean = seen[f"rgb/{name}"].astype(np.float32)
            noisy = clean + np.float32(self._noise) * self._rng.standard_normal(
                clean.shape, dtype=np.float32
            )
            seen[f"rgb/{name}"] = np.clip(np.rint(noisy), 0, 255).astype(np.uint8)
        return seen

    def truth(self, name: str, q: Vector) -> Matrix:
        """Returns the true pose (4, 4) of a camera on its parent, at any joints (J,)."""
        physics = self._world.physics
        self._world.task.robot.put(physics, q)
        physics.forward()
        number = self._number(name)
        T_base_camera = (
            pose(physics.data.cam_xpos[number], physics.data.cam_xmat[number].reshape(3, 3))
            @ _TO_CONTRACT
        )
        parent = next(mount.parent for mount in self.embodiment.cameras if mount.name == name)
        return np.asarray(carrier_pose(self.embodiment, parent, None, q) @ T_base_camera)

    def close(self) -> None:
        """Releases the graphics and the physics."""
        self._cameras.close()
        self._world.close()

    def _number(self, name: str) -> int:
        model = self._world.physics.model
        return [
            model.id2name(number, "camera").split("/")[-1] for number in range(model.ncam)
        ].index(name)


def _rotation(quat: NDArray[np.float64]) -> NDArray[np.float64]:
    rotation = np.empty(9)
    mujoco.mju_quat2Mat(rotation, quat)
    return rotation.reshape(3, 3)
