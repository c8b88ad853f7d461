"""Where a camera sits, by what it and a camera that is trusted see of the same things in depth.

First the clouds of one pose of the arms are laid over each other from several starts
(`datasets/pointclouds/icp.py`, open3d). From there the clouds of all poses are laid over each other
at once: point-to-plane ICP (Chen and Medioni 1992) for one unknown, the place of the camera on what
carries it, with Tukey's weights. That needs no board, but things that stand out of the table, which
both cameras see, and a place of the camera that is known to some 3 cm and 3 degrees.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.editing.resampling import resample_depth, resample_intrinsics
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.datasets.pointclouds.camera_check import size_of
from stringline.datasets.pointclouds.clouds import DepthView, transformed
from stringline.datasets.pointclouds.icp import WEAKEST, Sight, align, determined
from stringline.datasets.pointclouds.surfaces import Surface, common, rotated, surface_of
from stringline.real_robot.calibration.opencv_library import neighbours

Floats = NDArray[np.float64]

FEWEST_ALIGNED = 3
FEWEST_POINTS = 300  # Of a pose, that the other camera sees too.
# Within which points count as the same, round by round.
ROUNDS_M = (0.02, 0.01, 0.01, 0.006, 0.006, 0.006, 0.006)
LARGEST = 160  # Rows and columns of the means that are compared: pixels are averaged, too.
_UNIT_M = 1e-4  # Of mean depths.
# A pixel that has depth in fewer of the images than this share is left out: it is at an edge.
_STEADY = 0.6


@dataclass
class DepthMean:
    """The mean of several depth images of the same, which has less noise than one.

    Attributes:
        camera: As the contract has it.
        intrinsics: (3, 3) of the images.
    """

    camera: Camera
    intrinsics: Floats
    _sum: Floats | None = field(default=None, init=False)
    _seen: NDArray[np.int64] | None = field(default=None, init=False)
    _images: int = field(default=0, init=False)

    def add(self, depth: Array) -> None:
        """Takes an image (H, W), 0 where there is no return."""
        metres = depth * self.camera.depth_unit_m
        self._sum = metres if self._sum is None else self._sum + metres
        self._seen = (
            (depth > 0).astype(np.int64) if self._seen is None else self._seen + (depth > 0)
        )
        self._images += 1

    def surface(self) -> Surface:
        """Returns what the mean shows.

        Raises:
            ValueError: There was no image.
        """
        if self._sum is None or self._seen is None:
            raise ValueError(f"The camera {self.camera.name!r} has shown no depth.")
        steady = self._seen >= max(_STEADY * self._images, 1)
        metres = np.where(steady, self._sum / np.maximum(self._seen, 1), 0.0)
        counts = np.minimum(np.rint(metres / _UNIT_M), np.iinfo(np.uint16).max).astype(np.uint16)
        old = metres.shape[0], metres.shape[1]
        shrink = -(-max(old) // LARGEST)
        height, width = new = old[0] // shrink, old[1] // shrink
        small = resample_depth(counts[None], *new)[0]
        K = np.asarray(resample_intrinsics(self.intrinsics, old, new), np.float64)
        mean = Camera(self.camera.name, height, width, "measured", depth_unit_m=_UNIT_M)
        return surface_of(
            DepthView(mean, small, np.zeros((height, width, 3), np.uint8), K, np.eye(4))
        )


@dataclass(frozen=True, eq=False)
class Encounter:
    """What two cameras saw at one pose of the arms, and where they were taken to be.

    Attributes:
        pose: Number of the pose, from 1.
        trusted: The surface that the trusted camera saw.
        T_base_trusted: (4, 4), its place.
        surface: That the other one saw.
        T_base_parent: (4, 4), the place of what carries the other one.
    """

    pose: int
    trusted: Surface
    T_base_trusted: Matrix
    surface: Surface
    T_base_parent: Matrix


@dataclass(frozen=True, eq=False)
class CloudFit:
    """What all encounters together say.

    Attributes:
        T_parent_camera: (4, 4), metres.
        unsure_mm: Standard error of the place, by leaving out one pose at a time (jackknife: Efron
            1982).
        unsure_deg: The same of its rotation.
        each_mm: Distance between points and surfaces at each pose that was used, by its number,
            root of the mean square.
        refused: Why the others could not be used, by the number of the pose.
    """

    T_parent_camera: Matrix
    unsure_mm: float
    unsure_deg: float
    each_mm: dict[int, float]
    refused: dict[int, str]


@dataclass(frozen=True, eq=False)
class _Partners:
    """Points of a camera (N, 3) beside surfaces of the trusted one, in the camera's frame, metres.

    Attributes:
        points: (N, 3).
        normals: (N, 3) of the surfaces.
        away: (N,) how far the points are in front of them.
        weights: (N,).
    """

    points: Floats
    normals: Floats
    away: Floats
    weights: Floats

    def equations(self) -> tuple[Floats, Floats]:
        """Returns the normal equations (6, 6) and (6,) of the motion (rotation vector, place) of the camera in its frame."""
        J = np.hstack((np.cross(self.points, self.normals), self.normals))
        weighted = J * self.weights[:, None]
        return weighted.T @ J, weighted.T @ self.away


def solve_clouds(encounters: Sequence[Encounter], T_parent_camera: Matrix) -> CloudFit:
    """Finds where a camera sits on what carries it.

    Args:
        encounters: At several poses.
        T_parent_camera: (4, 4) where it is taken to be, to begin from.

    Raises:
        ValueError: Too few poses say anything, or all together leave a motion open; says why.
    """
    found = _start(encounters, T_parent_camera)
    for within_m in ROUNDS_M:
        found = found @ _solved(
            [partners.equations() for partners in _used(encounters, found, within_m).values()]
        )
    used = _used(encounters, found, ROUNDS_M[-1])
    weakest = determined(
        *(
            np.concatenate([getattr(one, name) for one in used.values()])
            for name in ("points", "normals")
        )
    )
    if weakest < WEAKEST:
        raise ValueError(
            f"what both cameras see is too flat to fix all six motions ({weakest:.1e} of "
            f"{WEAKEST}). Put things of different "
            "heights on the table."
        )
    refused = {
        each.pose: f"fewer than {FEWEST_POINTS} points in common"
        for each in encounters
        if each.pose not in used
    }
    each_mm = {
        number: 1e3 * float(np.sqrt(np.average(one.away**2, weights=one.weights)))
        for number, one in used.items()
    }
    return CloudFit(
        found, *_unsure([partners.equations() for partners in used.values()]), each_mm, refused
    )


def _used(
    encounters: Sequence[Encounter], T_parent_camera: Matrix, within_m: float
) -> dict[int, _Partners]:
    """Returns what is beside what at each pose at which both cameras see enough of the same, by its number.

    Raises:
        ValueError: These are too few.
    """
    pairs = {each.pose: _partners(each, T_parent_camera, within_m) for each in encounters}
    used = {
        number: partners
        for number, partners in pairs.items()
        if len(partners.points) >= FEWEST_POINTS
    }
    if len(used) < FEWEST_ALIGNED:
        raise ValueError(
            f"both cameras see enough of the same at {len(used)} of {len(encounters)} poses; "
            f"needed: {FEWEST_ALIGNED}, with "
            f"{FEWEST_POINTS} points each. Put things on the table that both see."
        )
    return used


def _start(encounters: Sequence[Encounter], T_parent_camera: Matrix) -> Matrix:
    """Returns where the camera sits by the first pose that says it alone.

    Raises:
        ValueError: None does.
    """
    reasons = []
    for each in encounters:
        T_base_camera = each.T_base_parent @ T_parent_camera
        move = align(Sight(each.trusted, each.T_base_trusted), Sight(each.surface, T_base_camera))
        if move.T is not None:
            return np.asarray(inverse(each.T_base_parent) @ move.T @ T_base_camera)
        reasons.append(f"pose {each.pose}: {move.refused}")
    said = "; ".join(reasons[:3]) or "there are no poses"
    raise ValueError(
        f"the clouds could be laid over each other at no pose. {said}. Put things on the table "
        f"that both cameras see."
    )


def _partners(each: Encounter, T_parent_camera: Matrix, within_m: float) -> _Partners:
    """Finds for each point that both cameras see the nearest of the other's, and Tukey's weight for how far that is."""
    T_camera_trusted = inverse(each.T_base_parent @ T_parent_camera) @ each.T_base_trusted
    in_trusted, in_own = common(each.trusted, each.surface, inverse(T_camera_trusted), within_m)
    if min(in_trusted.sum(), in_own.sum()) < FEWEST_POINTS:
        return _Partners(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0), np.zeros(0))
    places, normals = (array[in_trusted] for array in each.trusted.listed)
    places = transformed(T_camera_trusted, places)
    normals = rotated(T_camera_trusted, normals)
    points = each.surface.listed[0][in_own]
    nearest: Any = neighbours().cKDTree(places).query(points)[1]
    away = ((points - places[nearest]) * normals[nearest]).sum(axis=1)
    inside = np.abs(away) < within_m
    weights = (1 - (away[inside] / within_m) ** 2) ** 2
    return _Partners(points[inside], normals[nearest][inside], away[inside], weights)


def _solved(equations: Sequence[tuple[Floats, Floats]]) -> Matrix:
    """Returns the motion (4, 4) of the camera in its own frame that solves all equations together."""
    H = sum(each[0] for each in equations)
    g = sum(each[1] for each in equations)
    change = -np.linalg.lstsq(np.asarray(H), np.asarray(g), rcond=1e-12)[0]
    angle = float(np.linalg.norm(change[:3]))
    return pose(
        change[3:], rotation_about(change[:3] / angle, angle) if angle > 1e-12 else np.eye(3)
    )


def _unsure(equations: Sequence[tuple[Floats, Floats]]) -> tuple[float, float]:
    """Returns the jackknife's standard errors, mm and degrees."""
    count = len(equations)
    without = [
        _solved([each for place, each in enumerate(equations) if place != out])
        for out in range(count)
    ]
    sizes = np.array([size_of(one) for one in without])
    mm, degrees = np.sqrt((count - 1) / count * (sizes**2).sum(axis=0))
    return float(mm), float(degrees)
