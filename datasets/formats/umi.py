"""Reader of UMI's replay buffers: hand-held grippers with a camera, poses from SLAM, no joints.

Layout (Chi et al., 2024, arXiv 2402.10329): `camera<i>_rgb`, `robot<i>_eef_pos` (N, 3) m,
`robot<i>_eef_rot_axis_angle` (N, 3) rad, `robot<i>_gripper_width` (N, 1) m, but no
actions: as in UMI's own training, the action of a step is the pose at the next step.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.formats.checks import numbers
from stringline.datasets.formats.depth_series import DepthOptions
from stringline.datasets.formats.diffusion_policy import named_rate
from stringline.datasets.formats.dimensions import NumberVector, pose_dimensions
from stringline.datasets.formats.foreign import ForeignEpisode, Reference, camera_times
from stringline.datasets.formats.grippers import linear
from stringline.datasets.formats.poses import pose_of_vectors
from stringline.datasets.formats.replay_buffer import ReplayBuffer
from stringline.datasets.formats.replay_cameras import (
    ReplayCamera,
    other_series,
    replay_cameras,
    replay_images,
)
from stringline.datasets.formats.vector_layout import Meaning

FRAME = "map"


class UmiReader:
    """Reads UMI's data: states are openings of grippers, actions their next poses and openings."""

    def __init__(
        self,
        *,
        gripper_open_m: float | None = None,
        gripper_closed_m: float = 0.0,
        control_hz: float | None = None,
        cameras: Mapping[str, str] | None = None,
        depth: Mapping[str, str] | None = None,
        depth_unit_m: float | None = None,
    ) -> None:
        """Sets the options that the files do not contain.

        Args:
            gripper_open_m: Width at opening 1.
            gripper_closed_m: Width at opening 0.
            control_hz: Steps per second; 60 or 59.94, the rate of the camera.
            cameras: Name of the camera by series; None takes all series with images.
            depth: Series of depth by series of colours; None pairs `camera0_rgb` with
                `camera0_depth`, {} leaves depth out.
            depth_unit_m: Metres per stored number of depth.
        """
        if gripper_open_m is None:
            raise ValueError(
                "UMI stores the width of the gripper in m; set the width of an open gripper, "
                "format.gripper_open_m=NUMBER."
            )
        self._gripper = linear("width_m", "width in m", gripper_closed_m, gripper_open_m)
        self._hz = named_rate(control_hz)
        self._cameras = cameras
        self._depth = DepthOptions(depth, depth_unit_m)

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists a replay buffer.

        Raises:
            ValueError: It is not a replay buffer, or has no grippers.
        """
        buffer = ReplayBuffer(path)
        arms = [key.removesuffix("_eef_pos") for key in buffer.shapes if key.endswith("_eef_pos")]
        if not arms:
            raise ValueError(
                f"{path} is not a buffer of UMI: it has no robot0_eef_pos. It has: "
                f"{buffer.offered()}."
            )
        cameras = replay_cameras(buffer, self._cameras, self._depth)
        for number, bounds in enumerate(buffer.bounds):
            yield Reference(path.name, number, partial(self._read, buffer, cameras, arms, bounds))

    def _read(
        self,
        buffer: ReplayBuffer,
        cameras: Sequence[ReplayCamera],
        arms: list[str],
        bounds: tuple[int, int],
    ) -> ForeignEpisode:
        series = np.concatenate([_series(buffer, arm, bounds) for arm in arms], axis=1)
        motion = NumberVector(
            tuple(d for arm in arms for d in pose_dimensions(arm, FRAME, self._gripper))
        )
        state = motion.imported("robot<i>_eef_pos, _eef_rot_axis_angle, _gripper_width", series)
        grippers = NumberVector(motion.dimensions[6::7])
        meaning = Meaning(
            grippers, motion, "umi", "the map of UMI's SLAM; z up where it was aligned with a tag"
        )
        time = np.arange(len(state)) / self._hz
        contract = meaning.contract([entry.camera for entry in cameras], self._hz, arms)
        arrays = {
            "time": time,
            "joints/position": state[:, 6::7],
            "action": np.concatenate([state[1:], state[-1:]]),
            **{
                f"T_base_gripper/{arm}": pose_of_vectors(
                    series[:, 7 * i : 7 * i + 3], series[:, 7 * i + 3 : 7 * i + 6]
                )
                for i, arm in enumerate(arms)
            },
        }
        further, left_out = other_series(buffer, _series_of(arms), cameras, bounds)
        return ForeignEpisode(
            contract,
            arrays | camera_times(contract, time) | further,
            replay_images(buffer, cameras, bounds),
            left_out=left_out,
        )


def _series(buffer: ReplayBuffer, arm: str, bounds: tuple[int, int]) -> Array:
    """Returns position, rotation vector and width (T, 7) of one gripper."""
    return np.concatenate(
        [
            numbers(key, buffer.rows(key, *bounds), width)
            for key, width in _series_of([arm]).items()
        ],
        axis=1,
    )


def _series_of(arms: Sequence[str]) -> dict[str, int]:
    """Returns the series of grippers and their widths."""
    widths = {"eef_pos": 3, "eef_rot_axis_angle": 3, "gripper_width": 1}
    return {f"{arm}_{part}": width for arm in arms for part, width in widths.items()}
