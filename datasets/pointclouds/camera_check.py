"""How far the extrinsics of cameras are off, and what they should be.

Each pair of cameras is laid over each other (`registration.py`) at several steps. An error of a
mount is constant in the frame of its camera, so what the steps say is put together there, also for
cameras that move. Which camera of a pair is wrong no pair can say: one is trusted, the reference;
the others are set right from it, each through the pair with the greatest overlap.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.embodiments.transforms import inverse, pose, rotation_about
from stringline.datasets.pointclouds.clouds import Floats, cloud_cameras, look
from stringline.datasets.pointclouds.icp import Move, Sight, align
from stringline.datasets.pointclouds.surfaces import surface_of
from stringline.datasets.store.episode import StoredEpisode

Views = Mapping[str, Sequence[Sight]]


@dataclass(frozen=True)
class Pair:
    """What one pair of cameras says.

    Attributes:
        target: The camera that stays.
        source: The camera that is moved.
        moves: One per step.
        T_source_corrected: (4, 4), the median over steps of how the source's mount would have to
            move if the target were right, in the source's frame; None where every step is refused.
    """

    target: str
    source: str
    moves: tuple[Move, ...]
    T_source_corrected: Floats | None

    @property
    def used(self) -> list[Move]:
        """The moves that say something."""
        return [move for move in self.moves if move.T is not None]

    def __str__(self) -> str:
        """Says it in a line."""
        name = f"{self.target} - {self.source}"
        if self.T_source_corrected is None:
            return f"{name}: nothing can be said; {self.moves[0].refused}"
        fitness, rmse = (
            np.median([getattr(move, key) for move in self.used]) for key in ("fitness", "rmse_mm")
        )
        overlap = np.median([move.overlap for move in self.used])
        return (
            f"{name}: {self.source} off by {said(self.T_source_corrected)} if {self.target} is "
            f"right; "
            f"overlap {overlap:.0%}, fitness {fitness:.2f}, RMSE {rmse:.1f} mm, "
            f"{len(self.used)} of {len(self.moves)} steps"
        )


@dataclass(frozen=True)
class Correction:
    """What the extrinsics of one camera should be.

    Attributes:
        camera: Its name.
        T_camera_corrected: (4, 4), in the camera's frame: T_base_camera times it is right, at every
            frame.
        T_base_camera: (4, 4), the corrected one, of a camera that does not move; else None.
        spread_mm: How far single steps disagree with it, at most.
        spread_deg: The same.
        through: The camera that it was compared with.
    """

    camera: str
    T_camera_corrected: Floats
    T_base_camera: Floats | None
    spread_mm: float
    spread_deg: float
    through: str

    def __str__(self) -> str:
        """Says it in a line."""
        spread = f"steps agree within {self.spread_mm:.1f} mm and {self.spread_deg:.2f} deg"
        return (
            f"{self.camera}: off by {said(self.T_camera_corrected)}, compared with "
            f"{self.through}; {spread}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain lists and numbers, fit for JSON; metres and degrees."""
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
    """The result.

    Attributes:
        reference: The camera that is trusted.
        pairs: All pairs.
        corrections: Of each camera that the reference reaches.
        unreached: The cameras that it does not reach.
    """

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
    """Compares the extrinsics of an episode's cameras.

    Args:
        episode: With at least two cameras that have depth and geometry.
        steps: At which; by default five, spread over the episode.
        cameras: Which; None takes all that give a cloud.
        reference: The camera that is trusted; None takes the first.

    Raises:
        ValueError: A camera or step does not exist, there is only one camera, or the reference
            overlaps with no other.
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
    looks = {name: [look(episode, name, step) for step in at] for name in names}
    views = {
        name: [Sight(surface_of(view), view.T_base_camera) for view in seen]
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
    """Returns how far a transform moves, mm, and turns, degrees."""
    return 1000 * float(np.linalg.norm(T[:3, 3])), float(
        np.rad2deg(np.linalg.norm(_rotation_vector(T)))
    )


def said(T: Floats) -> str:
    """Says how far a transform moves and turns."""
    distance, angle = size_of(T)
    return f"{distance:.1f} mm and {angle:.2f} deg"


def _pair(target: str, source: str, views: Views) -> Pair:
    moves = tuple(align(a, b) for a, b in zip(views[target], views[source], strict=True))
    local = [
        _local(view, move.T)
        for view, move in zip(views[source], moves, strict=True)
        if move.T is not None
    ]
    return Pair(target, source, moves, _middle(local) if local else None)


def _local(view: Sight, T: Floats) -> Floats:
    """Returns a motion of the base frame in the camera's frame."""
    return np.asarray(inverse(view.T_base_camera) @ T @ view.T_base_camera)


def _spread_from(
    reference: str, pairs: Sequence[Pair], views: Views, fixed: Set[str]
) -> tuple[Correction, ...]:
    """Sets cameras right one after the other, by the pair with the greatest overlap among those with one camera done."""
    done: dict[str, Floats] = {reference: np.eye(4)}
    found: list[Correction] = []
    while True:
        open_pairs = [
            pair for pair in pairs if pair.used and (pair.target in done) != (pair.source in done)
        ]
        if not open_pairs:
            return tuple(found)
        best = max(
            open_pairs, key=lambda pair: float(np.median([move.overlap for move in pair.used]))
        )
        through, camera = (
            (best.target, best.source) if best.target in done else (best.source, best.target)
        )
        per_step = []
        for move, known, view in zip(best.moves, views[through], views[camera], strict=True):
            if move.T is not None:
                towards = move.T if camera == best.source else inverse(move.T)
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
    """Returns how far single steps are from what they say together, mm and degrees, at most."""
    spread_mm, spread_deg = (
        max(values)
        for values in zip(*(size_of(inverse(C) @ each) for each in per_step), strict=True)
    )
    return spread_mm, spread_deg


def _middle(transforms: Sequence[Floats]) -> Floats:
    """Returns the median of small motions, by component of position and rotation vector."""
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
