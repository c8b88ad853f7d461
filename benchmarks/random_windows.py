"""Windows of random numbers in memory with the contract of ALOHA, the data of `training.py`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stringline.datasets.contract.contract import NUMBER_KEY, Camera
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.loading.statistics import Statistics, statistics_of

Arrays = dict[str, NDArray[Any]]
CAMERAS = ("overhead", "wrist_left", "wrist_right")
CONTROL_HZ = 50.0


class RandomWindows:
    """The interface of `Windows` over arrays in memory; batches are copies."""

    def __init__(
        self, count: int, chunk: int, image_size: int, cameras: Sequence[str] = CAMERAS
    ) -> None:
        random = np.random.default_rng(0)
        self.contract = ALOHA.contract(
            [Camera(name, image_size, image_size, "simulated") for name in cameras], CONTROL_HZ
        )
        self.step = np.arange(count)
        self.episode = np.zeros(count, np.int64)
        self.names = ("random",)
        self.group = None
        self.until_takeover_s = np.full(count, np.nan)  # Demonstrations, without a policy.
        near_home = ALOHA.home + random.uniform(-0.3, 0.3, (count, chunk, len(ALOHA.joints)))
        joints = np.clip(near_home, ALOHA.lower, ALOHA.upper).astype(np.float32)
        poses = [ALOHA.camera_poses(q) for q in joints[:, 0].astype(np.float64)]
        grippers = [ALOHA.forward_kinematics(q) for q in joints[:, 0].astype(np.float64)]
        self._arrays: Arrays = {
            "time": self.step / CONTROL_HZ,
            "joints/position": joints[:, 0],
            "action": joints,
            "action_mask": np.ones((count, chunk), bool),
            NUMBER_KEY: np.zeros(count, np.int64),
        }
        self._arrays |= {
            f"T_base_gripper/{arm}": np.stack([T[arm] for T in grippers]).astype(np.float32)
            for arm in ALOHA.arms
        }
        pinhole = np.array(
            [[image_size, 0, image_size / 2], [0, image_size, image_size / 2], [0, 0, 1]],
            np.float32,
        )
        for name in cameras:
            self._arrays |= {
                f"rgb/{name}": random.integers(
                    0, 256, (count, image_size, image_size, 3), np.uint8
                ),
                f"depth/{name}": random.integers(
                    300, 1200, (count, image_size, image_size), np.uint16
                ),
                f"T_base_camera/{name}": np.stack([T[name] for T in poses]).astype(np.float32),
                f"intrinsics/{name}": np.tile(pinhole, (count, 1, 1)),
            }

    def __len__(self) -> int:
        """Returns the number of windows."""
        return len(self.step)

    def batch(self, indices: ArrayLike) -> Arrays:
        """Copies windows."""
        chosen = np.asarray(indices, np.int64)
        return {key: array[chosen] for key, array in self._arrays.items()}

    def statistics(self) -> Statistics:
        """Returns the ranges of joints and actions."""
        rows = self._arrays["action"].reshape(-1, len(ALOHA.joints))
        return Statistics(
            {key: statistics_of(lambda: iter([rows])) for key in ("action", "joints/position")}
        )
