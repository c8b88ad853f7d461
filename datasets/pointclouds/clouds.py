"""Point clouds of episodes: of one camera, of all cameras in the base frame of the robot, in files.

All computations are numpy in float64; `encoders/coordinates/geometry.py` does the same for batches
of patches in torch. The optional library open3d is imported on its first use.
"""

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.store.episode import StoredEpisode

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cloud:
    """Points (N, 3) in metres, by default in the base frame, and colours (N, 3) uint8, sRGB."""

    points: Floats
    colours: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.points)


@dataclass(frozen=True)
class DepthView:
    """The image and depth of one camera at one step.

    Attributes:
        camera: Description of the camera.
        depth: (H, W) uint16, in its `depth_unit_m` along the optical axis; 0 = no return.
        colours: (H, W, 3) uint8.
        intrinsics: (3, 3) pixels; pixel (0, 0) has its centre at (0.5, 0.5).
        T_base_camera: (4, 4) camera (x right, y down, z forward) to base, metres.
    """

    camera: Camera
    depth: Array
    colours: Array
    intrinsics: Floats
    T_base_camera: Floats

    @property
    def metres(self) -> Floats:
        """Depth (H, W) in metres."""
        return np.asarray(self.depth.astype(np.float64) * self.camera.depth_unit_m)

    def cloud(self) -> Cloud:
        """Returns the points of the pixels with depth, row by row, in the base frame."""
        seen = self.depth > 0
        points = transformed(self.T_base_camera, back_projected(self.metres, self.intrinsics)[seen])
        return Cloud(points, np.ascontiguousarray(self.colours[seen]))


def back_projected(depth_m: Floats, intrinsics: ArrayLike) -> Floats:
    """Returns the point (H, W, 3) of each pixel in the camera frame, metres.

    `depth_m` (H, W) is along the optical axis; where it is 0, the point is the origin. Intrinsics
    (3, 3) are those of a pinhole without distortion.
    """
    height, width = depth_m.shape
    u, v = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    rays = (
        np.stack((u, v, np.ones_like(u)), axis=-1)
        @ np.linalg.inv(np.asarray(intrinsics, np.float64)).T
    )
    return np.asarray(rays * depth_m[..., None])


def transformed(T_ab: Floats, points: Floats) -> Floats:
    """Transforms points (..., 3) from frame b to frame a."""
    return np.asarray(points @ T_ab[:3, :3].T + T_ab[:3, 3])


def missing_for_cloud(camera: Camera) -> str | None:
    """Returns why a camera cannot give a point cloud, or None if it can."""
    if camera.depth is None:
        return "it has no depth"
    if not camera.has_geometry:
        return "its intrinsics and its pose are unknown"
    if camera.distortion_model != "none":
        return (
            f"its images are distorted ({camera.distortion_model!r}); undistort them before they "
            "are stored"
        )
    return None


def cloud_cameras(contract: Contract, chosen: Iterable[str] | None = None) -> list[str]:
    """Returns the names of the cameras with a point cloud.

    Each of the `chosen` cameras must have one; None takes all that have one, at least one.
    """
    cameras = contract.cameras if chosen is None else [contract.camera(name) for name in chosen]
    reasons = {camera.name: missing_for_cloud(camera) for camera in cameras}
    found = [name for name, reason in reasons.items() if reason is None]
    if not found or (chosen is not None and len(found) < len(reasons)):
        listed = "; ".join(
            f"camera {name!r}: {reason}" for name, reason in reasons.items() if reason is not None
        )
        raise ValueError(f"There is no cloud: {listed or 'there is no camera'}.")
    return found


def depth_view(episode: StoredEpisode, camera: str, step: int) -> DepthView:
    """Returns the view of a camera with depth and geometry at a step.

    Negative steps count from the end.
    """
    (name,) = cloud_cameras(episode.attributes.contract, [camera])
    frame = int(episode.arrays[f"frame/{name}"][valid_step(episode, step)])
    T = np.asarray(episode.arrays[f"T_base_camera/{name}"], np.float64)
    return DepthView(
        episode.attributes.contract.camera(name),
        episode.arrays[f"depth/{name}"][frame],
        episode.arrays[f"rgb/{name}"][frame],
        np.asarray(episode.arrays[f"intrinsics/{name}"], np.float64),
        T if T.ndim == 2 else T[frame],
    )


def valid_step(episode: StoredEpisode, step: int) -> int:
    """Returns a step counted from 0."""
    if not -episode.steps <= step < episode.steps:
        raise ValueError(f"Episode {episode.name} has {episode.steps} steps; got step {step}.")
    return step % episode.steps


def fused_cloud(episode: StoredEpisode, step: int, cameras: Sequence[str] | None = None) -> Cloud:
    """Returns the common cloud of several cameras at a step, in the base frame.

    Negative steps count from the end. Without `cameras` all with depth and geometry are used.
    """
    names = cloud_cameras(episode.attributes.contract, cameras)
    clouds = [depth_view(episode, name, step).cloud() for name in names]
    return Cloud(
        np.concatenate([cloud.points for cloud in clouds]),
        np.concatenate([cloud.colours for cloud in clouds]),
    )


def find_episode(names: Sequence[str], chosen: str | None) -> str:
    """Returns the name of an episode, given its name, a unique prefix or its index.

    None is the first episode; negative indices count from the end.
    """
    if not names:
        raise ValueError("The store has no episodes.")
    chosen = "0" if chosen is None else chosen
    if chosen in names:
        return chosen
    if chosen.lstrip("-").isdecimal() and -len(names) <= int(chosen) < len(names):
        return names[int(chosen)]
    begun = [name for name in names if name.startswith(chosen)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise ValueError(
            f"{len(begun)} episodes begin with {chosen!r}: {', '.join(begun[:5])}. Give a longer "
            "prefix."
        )
    raise unknown_name("episode", chosen, names[:20])


def open3d() -> ModuleType:
    """Imports open3d.

    Raises:
        ValueError: open3d is not installed, or a system library that it needs.
    """
    try:
        return importlib.import_module("open3d")
    except (ImportError, OSError) as error:
        remedy = (
            "Install the system library: apt install libusb-1.0-0"
            if "libusb" in str(error)
            else 'Run: pip install "stringline[view]"'
        )
        raise ValueError(
            f"This needs open3d, which cannot be imported ({error}). {remedy}"
        ) from error


def write_ply(cloud: Cloud, path: Path) -> None:
    """Writes a cloud as a binary PLY file with positions in double precision."""
    if path.suffix != ".ply":
        raise ValueError(f"A cloud is written as a .ply file; got {path}.")
    if not len(cloud):
        raise ValueError("The cloud is empty: no camera has a valid depth pixel.")
    library = open3d()
    points = library.geometry.PointCloud(library.utility.Vector3dVector(cloud.points))
    points.colors = library.utility.Vector3dVector(cloud.colours / np.float64(255))
    path.parent.mkdir(parents=True, exist_ok=True)
    if not library.io.write_point_cloud(str(path), points):
        raise ValueError(f"{path} could not be written.")
