"""Check of camera extrinsics: surfaces that two cameras see are aligned; errors and corrections.

Surfaces come from depth images; aligned are their points that the other camera sees as well.

The clouds of each pair of cameras are aligned at several steps. The error of a mount is
constant in the frame of its camera, so the results of the steps are combined there, also for moving
cameras. A pair does not reveal which of its cameras is wrong: one camera is the reference; the
others are corrected from it, each through the pair with the largest overlap.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.cameras.resampling import resample_depth, resample_intrinsics
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.transforms import inverse, pose, rotation_about
from stringline.datasets.pointclouds.clouds import (
    DepthView,
    Floats,
    back_projected,
    cloud_cameras,
    depth_view,
    open3d,
    transformed,
)
from stringline.datasets.store.episode import StoredEpisode

# Relative difference of depth above which a neighbour lies on another surface.
EDGE = 0.012
GRAZING = 0.2  # Smallest cosine between the normal and the line of sight for reliable depth.
ALIKE = 0.85  # Smallest cosine between the normals of corresponding points.
LARGEST = 320  # Rows and columns of depth images; larger ones are averaged.
REACH_PX = 2  # Half width of the window for a normal.
REACH = 3.0  # Largest distance of partners along the surface relative to that across it.


@dataclass(frozen=True)
class Surface:
    """The points and normals of a depth image in the frame of the camera, metres.

    Attributes:
        points: (H, W, 3).
        normals: (H, W, 3), of length 1, towards the camera; 0 if unknown.
        valid: (H, W), whether all four neighbours lie on the same surface, not at a grazing angle.
        intrinsics: (3, 3) pixels.
    """

    points: Floats
    normals: Floats
    valid: NDArray[np.bool_]
    intrinsics: Floats

    @cached_property
    def listed(self) -> tuple[Floats, Floats]:
        """The valid points and their normals, (N, 3) each, row by row."""
        return self.points[self.valid], self.normals[self.valid]

    def sees(self, points: Floats, normals: Floats, within_m: float) -> NDArray[np.bool_]:
        """Returns (N,) whether points are in the image, near this surface, and face the same way.

        Points and normals (N, 3) are in the frame of the camera; `within_m` is the largest distance
        across the surface.
        """
        z = points[:, 2]
        pixels = np.floor((points / np.where(z > 0, z, 1.0)[:, None]) @ self.intrinsics.T).astype(
            np.int64
        )
        columns = pixels[:, 0]
        rows = pixels[:, 1]
        inside = (
            (z > 0)
            & (columns >= 0)
            & (columns < self.valid.shape[1])
            & (rows >= 0)
            & (rows < self.valid.shape[0])
        )
        rows = np.where(inside, rows, 0)
        columns = np.where(inside, columns, 0)
        away = points - self.points[rows, columns]
        facing = self.normals[rows, columns]
        near = np.abs((away * facing).sum(1)) < within_m
        near &= np.linalg.norm(away, axis=1) < REACH * within_m
        return np.asarray(
            inside & self.valid[rows, columns] & near & ((normals * facing).sum(1) > ALIKE)
        )


def surface_of(view: DepthView) -> Surface:
    """Computes the normals of a depth image by fitting a plane to the neighbourhood of each pixel.

    A plane is linear in 1 / z: 1 / z = m (u, v, 1), and its normal is K^T m. So m is fitted by
    least squares to the pixels of a window on the same surface; differences between neighbours
    alone are too noisy for a real camera.
    """
    depth, K = _at_most(LARGEST, view)
    points = back_projected(depth, K)
    height, width = depth.shape
    padded = np.pad(depth, REACH_PX)
    sums = np.zeros((height, width, 3, 3))
    right = np.zeros((height, width, 3))
    same_beside = depth > 0
    for row in range(2 * REACH_PX + 1):
        for column in range(2 * REACH_PX + 1):
            other = padded[row : row + height, column : column + width]
            same = (other > 0) & (np.abs(other - depth) < EDGE * depth)
            place = np.array([column - REACH_PX, row - REACH_PX, 1.0])  # Pixels from the centre.
            sums += same[..., None, None] * np.outer(place, place)
            right += (same / np.where(same, other, 1.0))[..., None] * place
            if abs(place[0]) + abs(place[1]) == 1:
                same_beside &= same
    m = np.linalg.solve(np.where(same_beside[..., None, None], sums, np.eye(3)), right[..., None])[
        ..., 0
    ]
    v, u = np.mgrid[:height, :width] + 0.5
    # From pixel coordinates relative to the window to those of the image.
    m[..., 2] -= m[..., 0] * u + m[..., 1] * v
    away = m @ K
    normals = -away / np.maximum(np.linalg.norm(away, axis=-1, keepdims=True), 1e-12)
    sight = points / np.maximum(np.linalg.norm(points, axis=-1, keepdims=True), 1e-12)
    valid = same_beside & (-(normals * sight).sum(-1) > GRAZING)
    return Surface(points, np.where(valid[..., None], normals, 0.0), valid, K)


def _at_most(largest: int, view: DepthView) -> tuple[Floats, Floats]:
    """Returns depth (H, W) in metres and intrinsics, with at most `largest` rows and columns."""
    size = view.depth.shape[0], view.depth.shape[1]
    shrink = -(-max(size) // largest)
    if shrink == 1:
        return view.metres, view.intrinsics
    height = size[0] // shrink
    width = size[1] // shrink
    small = (
        resample_depth(view.depth[None], height, width, "valid_mean")[0].astype(np.float64)
        * view.camera.depth_unit_m
    )
    return small, np.asarray(
        resample_intrinsics(view.intrinsics, size, (height, width)), np.float64
    )


def rotated(T_ab: Floats, directions: Floats) -> Floats:
    """Rotates directions (N, 3) from frame b to frame a."""
    return np.asarray(directions @ T_ab[:3, :3].T)


def common(
    a: Surface, b: Surface, T_ab: Floats, within_m: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Returns for the listed points of each surface whether the other camera sees them as well.

    `T_ab` (4, 4) maps from the frame of b's camera to that of a's; `within_m` is the largest
    distance across the surface.
    """
    T_ba = inverse(T_ab)
    points_a, normals_a = a.listed
    points_b, normals_b = b.listed
    return (
        b.sees(transformed(T_ba, points_a), rotated(T_ba, normals_a), within_m),
        a.sees(transformed(T_ab, points_b), rotated(T_ab, normals_b), within_m),
    )


# Largest distance of corresponding points in each round: from each start, then from the best one.
COARSE_M = (0.03, 0.02, 0.01)
FINE_M = (0.02, 0.01, 0.01, 0.005, 0.005)
# Clouds slide on a table: starts in all directions find minima that a single start misses.
START_M = 0.02
ITERATIONS = 20  # Per round.
VOXEL_M = 0.003
FEWEST_POINTS = 600
SMALLEST_OVERLAP = 0.15
# For the worst determined of the 6 motions: mean square of the displacement of points across their
# surfaces, relative to their displacement. On a plane it is 0.
WEAKEST = 0.0005


@dataclass(frozen=True)
class PosedSurface:
    """A surface in the frame of a camera, and the pose (4, 4) of the camera."""

    surface: Surface
    T_base_camera: Floats


@dataclass(frozen=True)
class Alignment:
    """The motion that aligns the cloud of a camera at one step, or the reason of a rejection.

    Attributes:
        overlap: Share of the points of one camera that the other one sees, the larger of both.
        T: (4, 4) in the base frame, moves points of the source onto those of the target; None if
            rejected.
        fitness: Share of the common points with a partner within 5 mm, as computed by open3d.
        rmse_mm: Root mean squared distance of partners, which includes the spacing of points.
        rejected: The reason of a rejection, or empty.
    """

    overlap: float
    T: Floats | None = None
    fitness: float = 0.0
    rmse_mm: float = float("nan")
    rejected: str = ""


def align(target: PosedSurface, source: PosedSurface) -> Alignment:
    """Aligns the cloud of a source camera to that of a target camera in their common view.

    Point-to-plane ICP (Chen and Medioni 1992) with Tukey's weights, from coarse to fine. Each round
    uses the points that both cameras see, on surfaces that face the same way.
    """
    shifts = [np.zeros(3), *(sign * START_M * axis for axis in np.eye(3) for sign in (1, -1))]
    found = [_rounds(target, source, pose(shift), COARSE_M) for shift in shifts]
    overlap, T, result, clouds, rejected = max(found, key=lambda each: each[0])
    if not rejected:
        overlap, T, result, clouds, rejected = _rounds(target, source, T, FINE_M)
    if rejected:
        return Alignment(overlap, rejected=rejected)
    weakest = determined(*_partners(result, *clouds))
    if weakest < WEAKEST:
        return Alignment(
            overlap,
            rejected=(
                f"the common view is too flat to determine all six motions ({weakest:.1e} of "
                f"{WEAKEST})"
            ),
        )
    return Alignment(overlap, T, float(result.fitness), 1000 * float(result.inlier_rmse))


def _rounds(
    target: PosedSurface, source: PosedSurface, T: Floats, distances: Sequence[float]
) -> tuple[float, Floats, Any, Any, str]:
    """Returns overlap, motion, open3d's last result and clouds, and the reason of a rejection."""
    result: Any = None
    clouds: Any = None
    overlap = 0.0
    for distance in distances:
        T_ab = inverse(target.T_base_camera) @ T @ source.T_base_camera
        in_a, in_b = common(target.surface, source.surface, T_ab, distance)
        overlap = float(max(in_a.sum() / max(len(in_a), 1), in_b.sum() / max(len(in_b), 1)))
        if min(in_a.sum(), in_b.sum()) < FEWEST_POINTS or overlap < SMALLEST_OVERLAP:
            least = f"allowed: {FEWEST_POINTS} and {SMALLEST_OVERLAP:.0%}"
            shared = f"{min(in_a.sum(), in_b.sum())} points, {overlap:.1%} of a cloud"
            return overlap, T, None, None, f"the common view is too small ({shared}; {least})"
        of_source = _cloud(source.surface, source.T_base_camera, in_b).voxel_down_sample(VOXEL_M)
        clouds = _cloud(target.surface, target.T_base_camera, in_a), of_source
        result = _icp(clouds[0], clouds[1], T, distance)
        T = np.asarray(result.transformation)
    return overlap, T, result, clouds, ""


def determined(points: Floats, normals: Floats) -> float:
    """Measures how well point-to-plane distances determine a motion (Gelfand et al. 2003, sec. 3).

    Returns the smallest eigenvalue of the mean of J J^T with J = (p x n / s, n), for points p (N,
    3) relative to their mean, the root s of their mean square, and unit normals n (N, 3). 0 without
    points.
    """
    if not len(points):
        return 0.0
    centred = points - points.mean(axis=0)
    size = max(np.sqrt((centred**2).sum(axis=1).mean()), 1e-9)
    J = np.hstack((np.cross(centred / size, normals), normals))
    return float(np.linalg.eigvalsh(J.T @ J / len(J))[0])


def _cloud(surface: Surface, T_base_camera: Floats, chosen: Any) -> Any:
    points, normals = (array[chosen] for array in surface.listed)
    library = open3d()
    cloud = library.geometry.PointCloud(
        library.utility.Vector3dVector(transformed(T_base_camera, points))
    )
    cloud.normals = library.utility.Vector3dVector(rotated(T_base_camera, normals))
    return cloud


def _icp(target: Any, source: Any, T: Floats, distance: float) -> Any:
    registration = open3d().pipelines.registration
    method = registration.TransformationEstimationPointToPlane(registration.TukeyLoss(distance))
    stop = registration.ICPConvergenceCriteria(1e-7, 1e-7, ITERATIONS)
    return registration.registration_icp(source, target, distance, T, method, stop)


def _partners(result: Any, target: Any, source: Any) -> tuple[Floats, Floats]:
    pairs = np.asarray(result.correspondence_set).reshape(-1, 2)
    return np.asarray(source.points)[pairs[:, 0]], np.asarray(target.normals)[pairs[:, 1]]


Views = Mapping[str, Sequence[PosedSurface]]


@dataclass(frozen=True)
class Pair:
    """The result for a pair of a fixed camera, the target, and a moved one, the source.

    Attributes:
        alignments: One alignment per step.
        T_source_corrected: (4, 4), the median correction of the source over all steps if the target
            is correct, in the frame of the source; None if every step is rejected.
    """

    target: str
    source: str
    alignments: tuple[Alignment, ...]
    T_source_corrected: Floats | None

    @property
    def used(self) -> list[Alignment]:
        """The valid alignments."""
        return [each for each in self.alignments if each.T is not None]

    def __str__(self) -> str:
        """Returns the result in one line."""
        name = f"{self.target} - {self.source}"
        if self.T_source_corrected is None:
            return f"{name}: no result; {self.alignments[0].rejected}"
        fitness, rmse = (
            np.median([getattr(each, key) for each in self.used]) for key in ("fitness", "rmse_mm")
        )
        overlap = np.median([each.overlap for each in self.used])
        return (
            f"{name}: {self.source} off by {describe_motion(self.T_source_corrected)} if "
            f"{self.target} is correct; overlap {overlap:.0%}, fitness {fitness:.2f}, RMSE "
            f"{rmse:.1f} mm, {len(self.used)} of {len(self.alignments)} steps"
        )


@dataclass(frozen=True)
class Correction:
    """The correction of the extrinsics of one camera.

    Attributes:
        T_camera_corrected: (4, 4), in the frame of the camera; T_base_camera times this matrix is
            correct at every frame.
        T_base_camera: (4, 4), the corrected pose of a fixed camera, or None.
        spread_mm: Largest deviation of a single step, also `spread_deg`.
        through: The camera of the comparison.
    """

    camera: str
    T_camera_corrected: Floats
    T_base_camera: Floats | None
    spread_mm: float
    spread_deg: float
    through: str

    def __str__(self) -> str:
        """Returns the correction in one line."""
        spread = f"steps agree within {self.spread_mm:.1f} mm and {self.spread_deg:.2f} deg"
        return (
            f"{self.camera}: off by {describe_motion(self.T_camera_corrected)}, compared with "
            f"{self.through}; {spread}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain lists and numbers for JSON; metres and degrees."""
        fixed = None if self.T_base_camera is None else self.T_base_camera.tolist()
        distance, angle = size_of(self.T_camera_corrected)
        return {
            "camera": self.camera,
            "translation_mm": distance,
            "rotation_deg": angle,
            "T_camera_corrected": self.T_camera_corrected.tolist(),
            "T_base_camera": fixed,
            "through": self.through,
        }


@dataclass(frozen=True)
class CameraCheck:
    """The result of a check; `unreached` cameras are not connected to the reference."""

    reference: str
    pairs: tuple[Pair, ...]
    corrections: tuple[Correction, ...]
    unreached: tuple[str, ...]


def check_cameras(
    episode: StoredEpisode,
    *,
    steps: Iterable[int] = (),
    cameras: Sequence[str] | None = None,
    reference: str | None = None,
) -> CameraCheck:
    """Compares the extrinsics of the cameras of an episode with depth and geometry, at least two.

    Args:
        episode: The episode.
        steps: The steps; by default five, spread over the episode.
        cameras: Names of the cameras; None takes all with depth and geometry.
        reference: The reference camera, which overlaps with another one; None takes the first one.
    """
    names = cloud_cameras(episode.attributes.contract, cameras)
    if len(names) < 2:
        raise ValueError(
            f"Cameras are compared in pairs; only {names[0]!r} has depth and geometry."
        )
    reference = names[0] if reference is None else reference
    if reference not in names:
        raise unknown_name("camera with depth and geometry", reference, names)
    at = list(steps) or np.unique(np.linspace(0, episode.steps - 1, 5).astype(int)).tolist()
    looks = {name: [depth_view(episode, name, step) for step in at] for name in names}
    views = {
        name: [PosedSurface(surface_of(view), view.T_base_camera) for view in seen]
        for name, seen in looks.items()
    }
    pairs = tuple(_pair(target, source, views) for target, source in combinations(names, 2))
    fixed = {name for name in names if episode.arrays[f"T_base_camera/{name}"].ndim == 2}
    corrections = _spread_from(reference, pairs, views, fixed)
    if not corrections:
        reasons = "; ".join(str(pair) for pair in pairs if reference in (pair.target, pair.source))
        raise ValueError(
            f"The reference {reference!r} can be compared with no other camera. {reasons}."
        )
    reached = {reference, *(correction.camera for correction in corrections)}
    return CameraCheck(
        reference, pairs, corrections, tuple(name for name in names if name not in reached)
    )


def size_of(T: Floats) -> tuple[float, float]:
    """Returns the translation (mm) and rotation (degrees) of a transform."""
    return 1000 * float(np.linalg.norm(T[:3, 3])), float(
        np.rad2deg(np.linalg.norm(_rotation_vector(T)))
    )


def describe_motion(T: Floats) -> str:
    """Returns the translation and rotation of a transform in words."""
    distance, angle = size_of(T)
    return f"{distance:.1f} mm and {angle:.2f} deg"


def _pair(target: str, source: str, views: Views) -> Pair:
    moves = tuple(align(a, b) for a, b in zip(views[target], views[source], strict=True))
    local = [
        _local(view, alignment.T)
        for view, alignment in zip(views[source], moves, strict=True)
        if alignment.T is not None
    ]
    return Pair(target, source, moves, _middle(local) if local else None)


def _local(view: PosedSurface, T: Floats) -> Floats:
    """Returns a motion of the base frame in the frame of the camera."""
    return np.asarray(inverse(view.T_base_camera) @ T @ view.T_base_camera)


def _spread_from(
    reference: str, pairs: Sequence[Pair], views: Views, fixed: Set[str]
) -> tuple[Correction, ...]:
    """Corrects one camera after the other, through the open pair with the largest overlap."""
    done: dict[str, Floats] = {reference: np.eye(4)}
    found: list[Correction] = []
    while True:
        open_pairs = [
            pair for pair in pairs if pair.used and (pair.target in done) != (pair.source in done)
        ]
        if not open_pairs:
            return tuple(found)
        best = max(
            open_pairs,
            key=lambda pair: float(np.median([alignment.overlap for alignment in pair.used])),
        )
        through, camera = (
            (best.target, best.source) if best.target in done else (best.source, best.target)
        )
        per_step = []
        for alignment, known, view in zip(
            best.alignments, views[through], views[camera], strict=True
        ):
            if alignment.T is not None:
                towards = alignment.T if camera == best.source else inverse(alignment.T)
                earlier = known.T_base_camera @ done[through] @ inverse(known.T_base_camera)
                per_step.append(_local(view, earlier @ towards))
        done[camera] = _middle(per_step)
        T_base_camera = views[camera][0].T_base_camera @ done[camera] if camera in fixed else None
        found.append(
            Correction(
                camera, done[camera], T_base_camera, *_spread(done[camera], per_step), through
            )
        )


def _spread(C: Floats, per_step: Sequence[Floats]) -> tuple[float, float]:
    """Returns the largest deviation of single steps from the correction, mm and degrees."""
    spread_mm, spread_deg = (
        max(values)
        for values in zip(*(size_of(inverse(C) @ each) for each in per_step), strict=True)
    )
    return spread_mm, spread_deg


def _middle(transforms: Sequence[Floats]) -> Floats:
    """Returns the componentwise median of small motions (position and rotation vector)."""
    vector = np.median([_rotation_vector(T) for T in transforms], axis=0)
    angle = float(np.linalg.norm(vector))
    rotation = rotation_about(vector / angle, angle) if angle > 1e-12 else np.eye(3)
    return pose(np.median([T[:3, 3] for T in transforms], axis=0), rotation)


def _rotation_vector(T: Floats) -> Floats:
    """Returns axis times angle (3,) in rad, for angles below a half turn."""
    R = T[:3, :3]
    twice_sine = np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])
    length = float(np.linalg.norm(twice_sine))
    angle = np.arctan2(length, np.trace(R) - 1)
    return np.asarray(twice_sine * (angle / length if length > 1e-12 else 0.5))
