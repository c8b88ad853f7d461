"""Distances of segments from each other and from shapes, by closed forms and convex searches."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Distance = Callable[[Vector, Vector], Vector]
"""Distances (T, C) of the axes (T, C, 2, 3) of capsules; exact where they are below (C,)."""

GOLDEN = (np.sqrt(5.0) - 1) / 2
SEARCH_STEPS = 60
CUBE_EDGE = 2.0  # Of the mesh `CUBE`, in the units of its file; one corner is its origin.
CUBE = """v 0 0 0\nv 2 0 0\nv 0 2 0\nv 2 2 0\nv 0 0 2\nv 2 0 2\nv 0 2 2\nv 2 2 2
f 1 3 2\nf 2 3 4\nf 5 6 7\nf 6 8 7\nf 1 2 5\nf 2 6 5\nf 3 7 4\nf 4 7 8\nf 1 5 3\nf 3 5 7
f 2 4 6\nf 4 8 6\n"""


def between_segments(one: Vector, other: Vector) -> Vector:
    """Returns the distances (N,) of segments (N, 2, 3) (Ericson, 2005, section 5.1.9)."""
    d1, d2, r = one[:, 1] - one[:, 0], other[:, 1] - other[:, 0], one[:, 0] - other[:, 0]
    a, e, b = (np.einsum("ni,ni->n", *pair) for pair in ((d1, d1), (d2, d2), (d1, d2)))
    c, f = (np.einsum("ni,ni->n", *pair) for pair in ((d1, r), (d2, r)))
    slope = a * e - b * b
    s = np.clip(_ratio(b * f - c * e, slope, slope > 1e-9 * a * e), 0, 1)
    t = np.clip(_ratio(b * s + f, e, e > 0), 0, 1)
    s = np.clip(_ratio(b * t - c, a, a > 0), 0, 1)
    t = np.clip(_ratio(b * s + f, e, e > 0), 0, 1)
    apart = r + s[:, None] * d1 - t[:, None] * d2
    best = np.linalg.norm(apart, axis=-1)
    # Almost parallel segments: an end of one of them is nearest.
    for place, ends in ((one, other), (other, one)):
        for end in (0, 1):
            best = np.minimum(best, from_points(place, ends[:, end]))
    return np.asarray(best)


def from_points(segments: Vector, points: Vector) -> Vector:
    """Returns the distances (N,) of segments (N, 2, 3) from points (N, 3) or (3,)."""
    along, to = segments[:, 1] - segments[:, 0], points - segments[:, 0]
    square = np.einsum("ni,ni->n", along, along)
    share = np.clip(_ratio(np.einsum("ni,ni->n", along, to), square, square > 0), 0, 1)
    return np.asarray(np.linalg.norm(to - share[:, None] * along, axis=-1))


def from_box(segments: Vector, half: Vector) -> Vector:
    """Returns the distances (N,) of segments (N, 2, 3) from a box around the origin; inside: 0.

    The distance from a convex shape is convex along a segment, so a search by golden sections
    (Kiefer, 1953) finds the smallest one.
    """
    start, along = segments[:, 0], segments[:, 1] - segments[:, 0]

    def at(share: Vector) -> Vector:
        outside = np.maximum(np.abs(start + share[:, None] * along) - half, 0.0)
        return np.asarray(np.linalg.norm(outside, axis=-1))

    low, high = np.zeros(len(start)), np.ones(len(start))
    best = np.minimum(at(low), at(high))
    for _ in range(SEARCH_STEPS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        at_left, at_right = at(left), at(right)
        best = np.minimum(best, np.minimum(at_left, at_right))
        low, high = (
            np.where(at_left < at_right, low, left),
            np.where(at_left < at_right, right, high),
        )
    return best


def _ratio(over: Vector, under: Vector, valid: NDArray[np.bool_]) -> Vector:
    return np.divide(over, under, out=np.zeros_like(over), where=valid)


def _turn(rpy_deg: Vector) -> Vector:
    """Returns the rotation about the fixed axes x, then y, then z."""
    (a, b, c), (d, e, f) = np.cos(np.radians(rpy_deg)), np.sin(np.radians(rpy_deg))
    about_x = np.array([[1, 0, 0], [0, a, -d], [0, d, a]])
    about_y = np.array([[b, 0, e], [0, 1, 0], [-e, 0, b]])
    about_z = np.array([[c, -f, 0], [f, c, 0], [0, 0, 1]])
    return np.asarray(about_z @ about_y @ about_x)


def _box(one: Mapping[str, Any], half: Vector, middle: Vector) -> Distance:
    """Returns the distance from a box with its middle there in the frame of the obstacle."""
    turn, position = _turn(np.array(one.get("rpy_deg", (0, 0, 0)))), np.array(one["position"])
    reach = float(np.linalg.norm(half))

    def distance(ends: Vector, up_to: Vector) -> Vector:
        local = (ends - position) @ turn - middle
        halves = np.linalg.norm(local[:, :, 1] - local[:, :, 0], axis=-1) / 2
        found = np.linalg.norm(local.mean(axis=2), axis=-1) - halves - reach
        near = found < up_to
        found[near] = from_box(local[near], half)
        return np.asarray(found)

    return distance


def box(one: Mapping[str, Any]) -> Distance:
    """Returns the distance from a box."""
    return _box(one, np.array(one["size"]) / 2, np.zeros(3))


def mesh(one: Mapping[str, Any]) -> Distance:
    """Returns the distance from the mesh `CUBE`."""
    half = np.full(3, one["scale"] * CUBE_EDGE / 2)
    return _box(one, half, half)


def capsule(one: Mapping[str, Any]) -> Distance:
    """Returns the distance from a capsule along the z axis of its frame."""
    along = _turn(np.array(one.get("rpy_deg", (0, 0, 0))))[:, 2] * one.get("length", 0.0) / 2
    axis = np.array(one["position"]) + np.stack([-along, along])

    def distance(ends: Vector, _: Vector) -> Vector:
        flat = ends.reshape(-1, 2, 3)
        found = between_segments(flat, np.broadcast_to(axis, flat.shape)) - one["radius"]
        return np.asarray(found.reshape(ends.shape[:2]))

    return distance


SHAPES: Mapping[str, Callable[[Mapping[str, Any]], Distance]] = {
    "box": box,
    "mesh": mesh,
    "capsule": capsule,
    "sphere": capsule,
}
