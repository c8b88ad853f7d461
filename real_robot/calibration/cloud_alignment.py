"""Calibration by point clouds: the pose of a camera from the depth images of a calibrated one.

First the clouds of one pose of the arms are aligned from several initial values
(`datasets/pointclouds/camera_check.py`, open3d). From there the clouds of all poses are aligned at
once: point-to-plane ICP (Chen and Medioni 1992) for one unknown, the pose of the camera on its
parent, with Tukey's weights. That needs no board, but objects that stand out of the table, which
both cameras see, and an assumed camera pose that is right to about 3 cm and 3 degrees.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.cameras.resampling import resample_depth, resample_intrinsics
from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.embodiments.transforms import Matrix, inverse
from stringline.datasets.pointclouds.camera_check import (
    WEAKEST,
    PosedSurface,
    Surface,
    align,
    common,
    determined,
    rotated,
    size_of,
    surface_of,
)
from stringline.datasets.pointclouds.clouds import DepthView, transformed
from stringline.real_robot.calibration.hand_eye import motion_of
from stringline.real_robot.calibration.opencv_library import neighbours

Floats = NDArray[np.float64]

FEWEST_ALIGNED = 3
FEWEST_POINTS = 300  # Points of a pose that both cameras see.
# Largest distance of corresponding points in each round.
ROUNDS_M = (0.02, 0.01, 0.01, 0.006, 0.006, 0.006, 0.006)
LARGEST_PX = 160  # Rows and columns of the mean images, which also averages pixels.
_UNIT_M = 1e-4  # Unit of mean depths.
# A pixel with depth in fewer of the images than this share is at an edge and left out.
_STEADY = 0.6


@dataclass
class DepthMean:
    """The mean of several depth images of one scene, which has less noise than one image.

    The intrinsics (3, 3) are those of the images.
    """

    camera: Camera
    intrinsics: Floats
    _sum: Floats | None = field(default=None, init=False)
    _seen: NDArray[np.int64] | None = field(default=None, init=False)
    _images: int = field(default=0, init=False)

    def add(self, depth: Array) -> None:
        """Adds an image (H, W), 0 at pixels without a return."""
        metres = depth * self.camera.depth_unit_m
        seen = (depth > 0).astype(np.int64)
        self._sum = metres if self._sum is None else self._sum + metres
        self._seen = seen if self._seen is None else self._seen + seen
        self._images += 1

    def surface(self) -> Surface:
        """Returns the surface of the mean image.

        Raises:
            ValueError: No image was added.
        """
        if self._sum is None or self._seen is None:
            raise ValueError(f"The camera {self.camera.name!r} has taken no depth image.")
        steady = self._seen >= max(_STEADY * self._images, 1)
        metres = np.where(steady, self._sum / np.maximum(self._seen, 1), 0.0)
        counts = np.minimum(np.rint(metres / _UNIT_M), np.iinfo(np.uint16).max).astype(np.uint16)
        old = metres.shape[0], metres.shape[1]
        shrink = -(-max(old) // LARGEST_PX)
        height, width = new = old[0] // shrink, old[1] // shrink
        small = resample_depth(counts[None], *new, how="valid_mean")[0]
        K = np.asarray(resample_intrinsics(self.intrinsics, old, new), np.float64)
        mean = Camera(self.camera.name, height, width, "measured", depth_unit_m=_UNIT_M)
        return surface_of(
            DepthView(mean, small, np.zeros((height, width, 3), np.uint8), K, np.eye(4))
        )


@dataclass(frozen=True, eq=False)
class CloudPair:
    """The surfaces of two cameras at one pose of the arms.

    Attributes:
        trusted: Surface of the calibrated camera.
        T_base_trusted: (4, 4) its pose.
        surface: Surface of the other camera.
        T_base_parent: (4, 4) pose of that camera's parent.
    """

    pose: int
    trusted: Surface
    T_base_trusted: Matrix
    surface: Surface
    T_base_parent: Matrix


@dataclass(frozen=True, eq=False)
class CloudFit:
    """The solution from all poses.

    Attributes:
        T_parent_camera: (4, 4), metres.
        std_mm: Standard error of the position, leaving out one pose at a time (jackknife, Efron
            1982).
        std_deg: The same of the rotation.
        each_mm: Root mean square distance of points and surfaces, by pose.
        unused: Reasons why other poses were not used, by pose.
    """

    T_parent_camera: Matrix
    std_mm: float
    std_deg: float
    each_mm: dict[int, float]
    unused: dict[int, str]


@dataclass(frozen=True, eq=False)
class _Correspondences:
    """Points of a camera and surfaces of the calibrated one, in the camera's frame, metres.

    Attributes:
        points: (N, 3).
        normals: (N, 3) of the surfaces.
        distances: (N,) of the points in front of the surfaces.
        weights: (N,).
    """

    points: Floats
    normals: Floats
    distances: Floats
    weights: Floats

    def equations(self) -> tuple[Floats, Floats]:
        """Returns the normal equations (6, 6) and (6,) of the camera's motion in its own frame.

        The unknowns are a rotation vector and a translation.
        """
        J = np.hstack((np.cross(self.points, self.normals), self.normals))
        weighted = J * self.weights[:, None]
        return weighted.T @ J, weighted.T @ self.distances


def solve_clouds(pairs: Sequence[CloudPair], T_parent_camera: Matrix) -> CloudFit:
    """Solves the pose of a camera on its parent, from an assumed one (4, 4).

    Raises:
        ValueError: Too few poses can be used, or all together do not determine the pose.
    """
    found = _initial(pairs, T_parent_camera)
    for within_m in ROUNDS_M:
        found = found @ _solved([one.equations() for one in _used(pairs, found, within_m).values()])
    used = _used(pairs, found, ROUNDS_M[-1])
    points = np.concatenate([one.points for one in used.values()])
    normals = np.concatenate([one.normals for one in used.values()])
    weakest = determined(points, normals)
    if weakest < WEAKEST:
        raise ValueError(
            f"the surfaces are too flat to determine all six motions ({weakest:.1e}; needed: "
            f"{WEAKEST}). Put objects of different heights on the table."
        )
    unused = {
        each.pose: f"fewer than {FEWEST_POINTS} points in common"
        for each in pairs
        if each.pose not in used
    }
    each_mm = {
        number: 1e3 * float(np.sqrt(np.average(one.distances**2, weights=one.weights)))
        for number, one in used.items()
    }
    std_mm, std_deg = _standard_error([one.equations() for one in used.values()])
    return CloudFit(found, std_mm, std_deg, each_mm, unused)


def _used(
    pairs: Sequence[CloudPair], T_parent_camera: Matrix, within_m: float
) -> dict[int, _Correspondences]:
    """Returns the correspondences of each pose with enough of them, by number."""
    found = {each.pose: _correspondences(each, T_parent_camera, within_m) for each in pairs}
    used = {number: one for number, one in found.items() if len(one.points) >= FEWEST_POINTS}
    if len(used) < FEWEST_ALIGNED:
        raise ValueError(
            f"both cameras see enough of the same at {len(used)} of {len(pairs)} poses; needed: "
            f"{FEWEST_ALIGNED}, with {FEWEST_POINTS} points each. Put objects on the table that "
            "both cameras see."
        )
    return used


def _initial(pairs: Sequence[CloudPair], T_parent_camera: Matrix) -> Matrix:
    """Returns the camera pose from the first pose whose clouds can be aligned."""
    reasons = []
    for each in pairs:
        T_base_camera = each.T_base_parent @ T_parent_camera
        trusted = PosedSurface(each.trusted, each.T_base_trusted)
        move = align(trusted, PosedSurface(each.surface, T_base_camera))
        if move.T is not None:
            return np.asarray(inverse(each.T_base_parent) @ move.T @ T_base_camera)
        reasons.append(f"pose {each.pose}: {move.rejected}")
    shown = "; ".join(reasons[:3]) or "no pose was reached"
    raise ValueError(
        f"the clouds could be aligned at no pose. {shown}. Put objects on the table that both "
        "cameras see."
    )


def _correspondences(each: CloudPair, T_parent_camera: Matrix, within_m: float) -> _Correspondences:
    """Returns nearest points of common surfaces with Tukey's weights of their distances."""
    T_camera_trusted = inverse(each.T_base_parent @ T_parent_camera) @ each.T_base_trusted
    in_trusted, in_own = common(each.trusted, each.surface, inverse(T_camera_trusted), within_m)
    if min(in_trusted.sum(), in_own.sum()) < FEWEST_POINTS:
        return _Correspondences(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0), np.zeros(0))
    places, normals = (array[in_trusted] for array in each.trusted.listed)
    places = transformed(T_camera_trusted, places)
    normals = rotated(T_camera_trusted, normals)
    points = each.surface.listed[0][in_own]
    nearest: Any = neighbours().cKDTree(places).query(points)[1]
    distances = ((points - places[nearest]) * normals[nearest]).sum(axis=1)
    inside = np.abs(distances) < within_m
    weights = (1 - (distances[inside] / within_m) ** 2) ** 2
    return _Correspondences(points[inside], normals[nearest][inside], distances[inside], weights)


def _solved(equations: Sequence[tuple[Floats, Floats]]) -> Matrix:
    """Returns the motion (4, 4) of the camera in its own frame that solves all equations."""
    H = sum(each[0] for each in equations)
    g = sum(each[1] for each in equations)
    return motion_of(-np.linalg.lstsq(np.asarray(H), np.asarray(g), rcond=1e-12)[0])


def _standard_error(equations: Sequence[tuple[Floats, Floats]]) -> tuple[float, float]:
    """Returns the jackknife's standard errors, mm and degrees."""
    count = len(equations)
    without = [
        _solved([each for place, each in enumerate(equations) if place != out])
        for out in range(count)
    ]
    sizes = np.array([size_of(one) for one in without])
    mm, degrees = np.sqrt((count - 1) / count * (sizes**2).sum(axis=0))
    return float(mm), float(degrees)
