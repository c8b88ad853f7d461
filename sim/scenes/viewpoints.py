"""Cameras that look at the things of a room."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stringline.datasets.contract.argument_checks import Range
from stringline.sim.scenes.room_renderer import View
from stringline.sim.scenes.rooms import PlacedAsset, Room
from stringline.sim.scenes.solids import Vectors, turned

CANDIDATES = 8
FROM_WALL_M = 0.15
FREE_M = 0.12  # Around the camera.
SHOWN_PX = 40  # Estimated pixels from which on an object counts as shown.
ENOUGH = 10
DISTANCES_M: Mapping[str, tuple[float, float]] = {"living_room": (1.2, 3.2), "tables": (0.9, 2.2)}
CLOSE_M = (0.6, 1.5)  # Distances of the other kinds.
HEIGHTS_M = (0.3, 1.0)  # Above what is looked at.
SIZES = Range(least=16, most=1024, whole=True)
FIELDS_DEG = Range(least=20, most=110)
ASPECTS = Range(least=0.25, most=4)
OFFSET = 0.06  # Largest distance of the principal point from the centre, share of the image.


@dataclass(frozen=True)
class Optics:
    """Ranges of cameras.

    Attributes:
        size: Rows and columns of images.
        fovy_deg: Vertical field of view.
        aspect: Vertical divided by horizontal focal length. Above 1 the field is wider, as of a
            wide photograph that was resized to `size`.
    """

    size: tuple[int, int] = (96, 96)
    fovy_deg: tuple[float, float] = (45.0, 70.0)
    aspect: tuple[float, float] = (0.75, 1.333)

    def check(self) -> None:
        """Checks the numbers; raises ValueError for one that is not allowed."""
        for side in self.size:
            SIZES.check(image_size=side)
        for name, limits, known in (
            ("fovy_deg", self.fovy_deg, FIELDS_DEG),
            ("aspect", self.aspect, ASPECTS),
        ):
            for number in limits:
                known.check(**{name: number})
            check_order(name, limits)

    def draw(self, rng: np.random.Generator) -> Vectors:
        """Draws intrinsics (3, 3) in pixels."""
        height, width = self.size
        fy = height / 2 / np.tan(np.radians(rng.uniform(*self.fovy_deg)) / 2)
        fx = fy / np.exp(rng.uniform(*np.log(self.aspect)))
        cx, cy = rng.uniform(0.5 - OFFSET, 0.5 + OFFSET, 2) * (width, height)
        return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]])


def check_order(name: str, limits: tuple[float, float]) -> None:
    """Checks that the ends of a range are in order; raises ValueError otherwise."""
    if limits[1] < limits[0]:
        raise ValueError(f"{name} is {list(limits)}; allowed: the least number first.")


def looking(eye: Vectors, target: Vectors) -> Vectors:
    """Returns T_world_camera (4, 4) of a level camera at `eye` that looks at `target`."""
    forward = (target - eye) / np.linalg.norm(target - eye)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3, :3] = np.stack([right, np.cross(forward, right), forward], axis=1)
    pose[:3, 3] = eye
    return pose


def draw_view(kind: str, room: Room, optics: Optics, rng: np.random.Generator) -> View:
    """Returns the view, of some drawn ones, that shows the most objects, or the first with many."""
    best = None
    most = -1
    for _ in range(CANDIDATES):
        view = _candidate(kind, room, optics, rng)
        count = _shown(view, room.placed) if _is_free(view, room.placed) else 0
        if count > most:
            best = view
            most = count
        if count >= ENOUGH:
            break
    assert best is not None
    return best


def _candidate(kind: str, room: Room, optics: Optics, rng: np.random.Generator) -> View:
    """Draws a view of one of the objects, mostly of one that stands on another one."""
    on_tops = [one for one in room.placed if one.support is not None]
    choice = on_tops if on_tops and rng.uniform() < 0.8 else room.placed
    target = choice[rng.integers(len(choice))].centre() + rng.normal(0, 0.08, 3)
    distance = rng.uniform(*DISTANCES_M.get(kind, CLOSE_M))
    angle = rng.uniform(-np.pi, np.pi)
    away = np.array([distance * np.cos(angle), distance * np.sin(angle), rng.uniform(*HEIGHTS_M)])
    eye = target + away
    inside = np.array([*room.half, room.height]) - FROM_WALL_M
    eye = np.clip(eye, (-inside[0], -inside[1], 0.3), inside)
    return View(looking(eye, target), optics.draw(rng), *optics.size)


def _is_free(view: View, placed: Sequence[PlacedAsset]) -> bool:
    """Returns whether a camera is outside of all boxes, by a margin."""
    eye = view.T_world_camera[:3, 3]
    for one in placed:
        local = (eye - one.position) @ turned(one.yaw)
        if (local > one.asset.low - FREE_M).all() and (local < one.asset.high + FREE_M).all():
            return False
    return True


def _shown(view: View, placed: Sequence[PlacedAsset]) -> int:
    """Returns how many objects have their middle in the image, at some size, if none is hidden."""
    centres = np.stack([one.centre() for one in placed]) - view.T_world_camera[:3, 3]
    local = centres @ view.T_world_camera[:3, :3]
    depth = np.maximum(local[:, 2], 1e-6)
    pixels = local @ view.intrinsics.T / depth[:, None]
    inside = (pixels[:, :2] >= 0).all(1) & (pixels[:, :2] < (view.width, view.height)).all(1)
    # An ellipse of two thirds of the diagonal's square is near the outline of most things.
    areas = np.array([(one.asset.size**2).sum() for one in placed]) / 3
    scale = view.intrinsics[0, 0] * view.intrinsics[1, 1] / depth**2
    return int((inside & (local[:, 2] > 0) & (areas * scale >= SHOWN_PX)).sum())
