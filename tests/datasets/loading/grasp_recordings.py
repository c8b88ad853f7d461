"""Recordings of ALOHA's left arm that grasps a block and puts it down, under a camera with depth.

The block is at a random place with a random turn; the grasp is beside its middle.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore

HZ = 50.0
HEIGHT, WIDTH = 48, 64
FOCAL = 60.0
CAMERA_M = 0.6
BLOCK_M = (0.04, 0.04, 0.05)
CONTRACT = ALOHA.contract([Camera("overhead", HEIGHT, WIDTH, "simulated")], HZ)
BLIND = ALOHA.contract([], HZ)
DOWN = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
T_BASE_CAMERA = pose([-0.1, 0.0, CAMERA_M], np.diag([1.0, -1.0, -1.0]))
GRIPPER = ALOHA.grippers["left"]
IK = InverseKinematics(ALOHA)


def grasp_episode(seed: int, beside_m: float = 0.02, *, grips: bool = True) -> dict[str, Array]:
    """Returns the arrays of an episode.

    Args:
        seed: Decides the place and the turn of the block.
        beside_m: Distance of the grasp from the middle of the block along its own y axis.
        grips: Whether the gripper closes and opens.
    """
    random = np.random.default_rng(seed)
    block = pose(
        [*random.uniform([-0.16, -0.06], [-0.06, 0.06]), 0.0],
        rotation_about([0.0, 0.0, 1.0], random.uniform(-0.4, 0.4)),
    )
    grasp = block @ pose([0.0, beside_m, 0.03], DOWN)
    release = pose([-0.2, 0.1, 0.04], DOWN)
    lifted = pose([0.0, 0.0, 0.1])
    q = np.concatenate([part for part in _motion(grasp, release, lifted, grips)])
    steps = len(q) - 1
    arrays: dict[str, Array] = {
        "time": np.arange(steps) / HZ,
        "joints/position": q[:-1].astype(np.float32),
        "action": q[1:].astype(np.float32),
    }
    for arm, T in ALOHA.forward_kinematics(q[:-1]).items():
        arrays[f"T_base_gripper/{arm}"] = T.astype(np.float32)
    return arrays | _seen(block, steps)


def _motion(
    grasp: Matrix, release: Matrix, lifted: Matrix, grips: bool
) -> list[NDArray[np.float64]]:
    home = ALOHA.home.copy()
    home[GRIPPER] = 1.0
    above = IK.solve({"left": lifted @ grasp}, home, tolerance=1e-3, iterations=400)
    at = IK.solve({"left": grasp}, above, tolerance=1e-3, iterations=400)
    over = IK.solve({"left": lifted @ release}, above, tolerance=1e-3, iterations=400)
    down = IK.solve({"left": release}, over, tolerance=1e-3, iterations=400)
    ways = [(home, above), (above, at), (at, above), (above, over), (over, down), (down, over)]
    shares = np.linspace(0, 1, 30)[:, None]
    parts = []
    for number, (start, end) in enumerate(ways):
        part = start + (3 * shares**2 - 2 * shares**3) * (end - start)
        part[:, GRIPPER] = 0.3 if grips and 2 <= number < 5 else 1.0
        parts.append(part)
        if number in (1, 4):
            stroke = np.repeat(part[-1:], 30, axis=0)
            stroke[10:20, GRIPPER] = np.linspace(part[-1, GRIPPER], 1.3 - part[-1, GRIPPER], 10)
            stroke[20:, GRIPPER] = 1.3 - part[-1, GRIPPER]
            parts.append(stroke if grips else np.repeat(part[-1:], 30, axis=0))
    return parts


def _seen(block: Matrix, steps: int) -> dict[str, Array]:
    """Returns the images of one camera, which sees the block on the table at all times."""
    v, u = np.mgrid[0.5:HEIGHT, 0.5:WIDTH]
    rays = np.stack(((u - WIDTH / 2) / FOCAL, (v - HEIGHT / 2) / FOCAL), axis=-1)
    top = CAMERA_M - BLOCK_M[2]
    at_top = np.concatenate((rays * top, np.full((HEIGHT, WIDTH, 1), top)), axis=-1)
    points = at_top @ T_BASE_CAMERA[:3, :3].T + T_BASE_CAMERA[:3, 3]
    local = (points - block[:3, 3]) @ block[:3, :3]
    inside = np.asarray((np.abs(local[..., :2]) < BLOCK_M[:2]).all(axis=-1))
    depth = np.where(inside, top, CAMERA_M)
    colour = np.where(inside[..., None], (200, 30, 30), (90, 90, 90))
    return {
        "rgb/overhead": colour[None].astype(np.uint8),
        "depth/overhead": np.round(1e3 * depth)[None].astype(np.uint16),
        "frame/overhead": np.zeros(steps, np.int32),
        "time/overhead": np.zeros(1),
        "intrinsics/overhead": np.array(
            [[FOCAL, 0, WIDTH / 2], [0, FOCAL, HEIGHT / 2], [0, 0, 1]], np.float32
        ),
        "T_base_camera/overhead": T_BASE_CAMERA.astype(np.float32),
    }


def grasp_store(
    path: Path, beside_m: tuple[float, ...], *, still: int = 0, blind: bool = False
) -> EpisodeStore:
    """Writes a store with an episode for each grasp, and some without any motion.

    Args:
        path: Its folder.
        beside_m: Where each block is grasped.
        still: Number of further episodes in which nothing moves.
        blind: Whether there are no cameras.
    """
    store = EpisodeStore.create(path)
    for seed, beside in enumerate((*beside_m, *[0.02] * still)):
        arrays = grasp_episode(seed, beside)
        if seed >= len(beside_m):
            constant = ("joints/position", "action", "T_base_gripper/left", "T_base_gripper/right")
            arrays |= {
                key: np.repeat(arrays[key][:1], len(arrays[key]), axis=0) for key in constant
            }
        if blind:
            arrays = {key: array for key, array in arrays.items() if "overhead" not in key}
        contract = BLIND if blind else CONTRACT
        store.write(arrays, EpisodeAttributes(contract, "put_down", seed, True))
    return store
