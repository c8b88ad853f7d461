"""Distances and speeds of arms by kinematics of the tests' own, which use no code of the filter.

The geometry is data: revolute joints, capsules and cameras of the embodiment, and the cell as plain
values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.real_robot.shape_distances import SHAPES, between_segments

from stringline.datasets.embodiments.embodiment import CapsuleMount, Chain, Embodiment
from stringline.real_robot.safety.limits import SafetyLimits

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

# Links whose capsules keep their distance from each other; -1 is the root. The second table is for
# what the last link carries: wrist cameras and tools.
APART = {
    "vx300s": {-1: (2, 3, 4, 5), 0: (2, 3, 4, 5), 1: (4, 5)},
    "iiwa14": {-1: (3, 4, 5, 6), 0: (3, 4, 5, 6), 1: (5, 6), 2: (5, 6)},
}
CARRIED_APART = {"vx300s": (-1, 0, 1, 2, 3), "iiwa14": (-1, 0, 1, 2, 3, 4)}
CAMERA_RADIUS_M = 0.032
CAMERA_MIDDLE_M = -0.0115
FIRST_MOVING_LINK = 1
SPACES = ("table", "walls", "other arm", "same arm", "obstacles")
NEAR_M = 0.02  # Distances that exceed a limit by more than this one are not needed exactly.


@dataclass(frozen=True, eq=False)
class Capsules:
    """C capsules of an arm: axes (C, 2, 3) in the frames of their links, and what carries them."""

    links: Indices
    ends: Vector
    per_opening: Vector
    radius: Vector
    carried: NDArray[np.bool_]


def turned(axes: Vector, angles: Vector) -> Vector:
    """Returns rotations (..., H, 3, 3) about axes (H, 3) by Rodrigues' formula."""
    x, y, z = axes.T
    zero = np.zeros_like(x)
    cross = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=-1).reshape(-1, 3, 3)
    sine, versine = np.sin(angles)[..., None, None], (1 - np.cos(angles))[..., None, None]
    return np.asarray(np.eye(3) + sine * cross + versine * (cross @ cross))


def link_poses(body: Embodiment, chain: Chain, path: Vector) -> Vector:
    """Returns the poses (T, links + 1, 4, 4) of the root and all links on a path (T, J)."""
    revolute = [
        index
        for index, joint in enumerate(body.joints)
        if joint.arm == chain.arm and joint.kind == "revolute"
    ]
    turns = turned(np.array([link.axis for link in chain.links]), path[:, revolute])
    poses = [np.broadcast_to(chain.T_base_root, (len(path), 4, 4))]
    for index, link in enumerate(chain.links):
        pose = poses[-1] @ link.T_parent_link
        poses.append(np.concatenate([pose[..., :3] @ turns[:, index], pose[..., 3:]], axis=-1))
    return np.stack(poses, axis=1)


def capsules_of(body: Embodiment, chain: Chain, cell: Mapping[str, Any]) -> Capsules:
    """Returns the capsules of an arm, its wrist cameras and its tool."""
    mounts = [*body.capsule_mounts, *body.enclosing_mounts]
    last, carried = len(chain.links) - 1, list[CapsuleMount]()
    for camera in body.cameras:
        if camera.parent == chain.arm:
            middle = camera.T_parent_camera @ (0.0, 0.0, CAMERA_MIDDLE_M, 1.0)
            place = (chain.T_last_gripper @ middle)[:3]
            carried.append(CapsuleMount.of(last, place, place, CAMERA_RADIUS_M))
    for part in cell.get("tools", {}).get(chain.arm, {}).get("capsules", ()):
        start, end = ((chain.T_last_gripper @ (*part[name], 1.0))[:3] for name in ("start", "end"))
        carried.append(CapsuleMount.of(last, start, end, part["radius"]))
    found = [*mounts, *carried]
    return Capsules(
        np.array([mount.link for mount in found]),
        np.array([(mount.start, mount.end) for mount in found]),
        np.array([mount.per_opening for mount in found]),
        np.array([mount.radius for mount in found]),
        np.arange(len(found)) >= len(mounts),
    )


def own_pairs(capsules: Capsules, model: str) -> Indices:
    """Returns the pairs (2, P) of capsules of an arm that keep their distance."""
    links, carried = capsules.links.tolist(), capsules.carried.tolist()
    found = [
        (one, other)
        for one in range(len(links))
        for other in range(len(links))
        if links[other] in APART[model].get(links[one], ())
        or (carried[other] and not carried[one] and links[one] in CARRIED_APART[model])
    ]
    return np.array(sorted({(min(pair), max(pair)) for pair in found})).T


class ArmJudge:
    """Measures how much nearer than allowed arms come, and how fast their points are.

    Args:
        body: The arms.
        limits: Clearances, table and walls.
        cell: Tools and obstacles as plain values, as in a limits file.
    """

    def __init__(self, body: Embodiment, limits: SafetyLimits, cell: Mapping[str, Any]) -> None:
        self._body, self._limits = body, limits
        self._capsules = [capsules_of(body, chain, cell) for chain in body.chains]
        model = "vx300s" if body.name == "aloha" else "iiwa14"
        self._pairs = [own_pairs(of_arm, model) for of_arm in self._capsules]
        self._obstacles = [SHAPES[one["shape"]](one) for one in cell.get("obstacles", {}).values()]
        self._grippers = [
            next((i for i, j in enumerate(body.joints) if (j.arm, j.kind) == (arm, "gripper")), -1)
            for arm in body.arms
        ]

    def closer(self, path: Vector) -> float:
        """Returns the largest missing clearance on a path (T, J), from anything, in metres.

        An arm may begin too near, as at a measured pose, but it must not come closer then.
        """
        spare = self._spare(path)
        return max(0.0, float((np.minimum(spare[:1], 0.0) - spare).max()))

    def spare(self, path: Vector) -> Vector:
        """Returns the clearance beyond the required one (T, 5) in `SPACES` on a path (T, J).

        Large ones are lower bounds.
        """
        return np.asarray(self._spare(path).min(axis=2))

    def fastest(self, path: Vector, period_s: float) -> float:
        """Returns the speed of the fastest gripper or end of an axis with open fingers, m/s."""
        speeds = [0.0]
        listed = len(self._body.capsule_mounts)
        for chain, of_arm in zip(self._body.chains, self._capsules, strict=True):
            poses = link_poses(self._body, chain, path)
            ends = placed(poses, of_arm, np.ones(len(path)))[:, :listed].reshape(len(path), -1, 3)
            gripper = (poses[:, -1] @ chain.T_last_gripper)[:, None, :3, 3]
            points = np.concatenate([ends, gripper], axis=1)
            speeds += np.linalg.norm(np.diff(points, axis=0), axis=-1).max(axis=-1).tolist()
        return max(speeds) / period_s

    def _spare(self, path: Vector) -> Vector:
        """Returns the clearance beyond the required one (T, 5, capsules of all arms)."""
        axes = [
            placed(
                link_poses(self._body, chain, path),
                of_arm,
                path[:, gripper] if gripper >= 0 else np.zeros(len(path)),
            )
            for chain, of_arm, gripper in zip(
                self._body.chains, self._capsules, self._grippers, strict=True
            )
        ]
        ends = np.concatenate(axes, axis=1)
        radius = np.concatenate([of_arm.radius for of_arm in self._capsules])
        links = np.concatenate([of_arm.links for of_arm in self._capsules])
        still = links < FIRST_MOVING_LINK
        lowest, limits = ends.min(axis=2) - radius[:, None], self._limits
        table = lowest[..., 2] - limits.table_height - limits.table_clearance
        walls = np.full_like(table, np.inf)
        if limits.box is not None:
            highest = ends.max(axis=2) + radius[:, None]
            walls = np.minimum(lowest - limits.box[0], limits.box[1] - highest).min(axis=-1)
        table[:, still] = walls[:, still] = np.inf
        first = np.cumsum([0, *(len(of_arm.radius) for of_arm in self._capsules)])
        own = np.concatenate([p + at for p, at in zip(self._pairs, first, strict=False)], axis=1)
        other = _between(first)
        return np.stack(
            [
                table,
                walls,
                _apart(ends, radius, other, limits.arm_clearance),
                _apart(ends, radius, own, limits.self_clearance),
                self._from_obstacles(ends, radius, ~still),
            ],
            axis=1,
        )

    def _from_obstacles(self, ends: Vector, radius: Vector, moving: NDArray[np.bool_]) -> Vector:
        found = np.full(ends.shape[:2], np.inf)
        allowed = radius[moving] + self._limits.cell_clearance
        for distance in self._obstacles:
            found[:, moving] = np.minimum(
                found[:, moving], distance(ends[:, moving], allowed + NEAR_M) - allowed
            )
        return found


def placed(poses: Vector, capsules: Capsules, opening: Vector) -> Vector:
    """Returns the axes (T, C, 2, 3) of capsules in the base frame, at openings (T,)."""
    local = capsules.ends + (opening[:, None, None] * capsules.per_opening)[:, :, None]
    T_base_link = poses[:, capsules.links + 1]
    return np.asarray(
        np.einsum("tcij,tcej->tcei", T_base_link[..., :3, :3], local)
        + T_base_link[:, :, None, :3, 3]
    )


def _between(first: Indices) -> Indices:
    """Returns the pairs (2, P) of capsules of two arms; (2, 0) for one arm."""
    if len(first) < 3:
        return np.zeros((2, 0), np.int64)
    one, other = np.meshgrid(np.arange(first[1]), np.arange(first[1], first[2]))
    return np.stack([one.ravel(), other.ravel()])


def _apart(ends: Vector, radius: Vector, pairs: Indices, clearance: float) -> Vector:
    """Returns the clearance beyond the required one (T, C) of each capsule from its partners."""
    found = np.full(ends.shape[:2], np.inf)
    one, other = pairs
    allowed = radius[one] + radius[other] + clearance
    middles = ends.mean(axis=2)
    halves = np.linalg.norm(ends[:, :, 1] - ends[:, :, 0], axis=-1) / 2
    bound = np.linalg.norm(middles[:, one] - middles[:, other], axis=-1)
    bound -= halves[:, one] + halves[:, other] + allowed
    at, pair = np.nonzero(bound < NEAR_M)
    spare = between_segments(ends[at, one[pair]], ends[at, other[pair]]) - allowed[pair]
    for side in (one, other):
        np.minimum.at(found, (at, side[pair]), spare)
    return np.minimum(found, NEAR_M)
