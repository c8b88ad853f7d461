"""Check of camera extrinsics: their errors, and corrections.

The clouds of each pair of cameras are aligned (`icp.py`) at several steps. The error of a mount is
constant in the frame of its camera, so the results of the steps are combined there, also for moving
cameras. A pair does not reveal which of its cameras is wrong: one camera is the reference; the
others are corrected from it, each through the pair with the largest overlap.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.transforms import inverse, pose, rotation_about
from stringline.datasets.pointclouds.clouds import Floats, cloud_cameras, depth_view
from stringline.datasets.pointclouds.icp import Alignment, PosedSurface, align, surface_of
from stringline.datasets.store.episode import StoredEpisode

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
