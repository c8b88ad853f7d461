"""Points of an arm whose Cartesian speed is limited, and their positions."""

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Chain, Embodiment

Vector = NDArray[np.float64]


class LinkPoints:
    """P points fixed to the links of one arm: its gripper and the ends of its capsules' axes.

    No point of a segment of a rigid body is faster than both ends. So these points stand for all
    axes, including the elbow, and for the gripper. Fingers count as open: closed ones lie between
    them. The motion of fingers relative to the hand does not count.

    Args:
        chain: The arm.

    Attributes:
        hinges: (H,) indices of its hinges in the joint vector.
        reach: (H,) upper bound of the distance of all points from the axis of each hinge, metres.
    """

    def __init__(self, embodiment: Embodiment, chain: Chain) -> None:
        self.hinges = embodiment.hinges[chain.arm]
        own = [_points(embodiment, chain, link) for link in range(len(chain.links))]
        self._points = np.concatenate(own, axis=-1)
        self._first = np.cumsum([0, *(points.shape[1] for points in own[:-1])])
        # Rodrigues' formula: the pose of a link in the frame of its parent is a sum of constant
        # matrices, times 1, the sine and 1 - cosine of its angle.
        cross = np.cross(np.eye(3), chain.axes[:, None])
        turns = np.stack([np.zeros_like(cross), cross, cross @ cross], axis=1)
        parts = np.zeros((len(own), 3, 4, 4))
        parts[:, 0] = chain.T_parent_link
        parts[..., :3, :3] += chain.T_parent_link[:, None, :3, :3] @ turns
        self._parts = parts.reshape(len(own), 3, 16)
        self.reach = _reach(chain, own)

    def positions(self, q: Vector) -> Vector:
        """Returns the positions (T, P, 3) at joint vectors (T, J), in the frame of the root."""
        angles = q[:, self.hinges].T
        factors = np.stack([np.ones_like(angles), np.sin(angles), 1 - np.cos(angles)], axis=-1)
        T_parent_link = (factors @ self._parts).reshape(*angles.shape, 4, 4)
        found = np.repeat(self._points[None], len(q), axis=0)
        for link in reversed(range(len(self._first))):
            beyond = found[..., self._first[link] :]
            beyond[:] = T_parent_link[link] @ beyond
        return np.asarray(found[:, :3].swapaxes(-1, -2))


def _points(embodiment: Embodiment, chain: Chain, link: int) -> Vector:
    """Returns the points (4, N) of a link in its frame, homogeneous."""
    mounts = [mount for mount in embodiment.capsule_mounts if mount.link == link]
    found = [end + mount.per_opening for mount in mounts for end in (mount.start, mount.end)]
    if link == len(chain.links) - 1:
        found.append(chain.T_last_gripper[:3, 3])
    points = np.ones((4, len(found)))
    points[:3] = np.array(found).reshape(-1, 3).T
    return points


def _reach(chain: Chain, points: list[Vector]) -> Vector:
    """Returns the reach (H,) of links with points (4, N): the largest length of a way outwards."""
    reach = np.zeros(len(points))
    beyond = 0.0
    for link in reversed(range(len(points))):
        own = np.linalg.norm(points[link][:3], axis=0).max(initial=0.0)
        reach[link] = max(float(own), beyond)
        beyond = reach[link] + float(np.linalg.norm(chain.T_parent_link[link, :3, 3]))
    return reach
