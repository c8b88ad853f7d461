"""Points of an arm whose Cartesian speed is limited."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import CapsuleMount, Chain, Embodiment

Vector = NDArray[np.float64]


class LinkPoints:
    """P points fixed to the links of one arm: gripper, tips, and ends of its capsules' axes.

    No point of a segment of a rigid body is faster than both ends. So these points stand for all
    axes, including the elbow, for the gripper, and for tools and wrist cameras from tip to tip.
    Fingers count as open: closed ones lie between them. The motion of fingers relative to the hand
    does not count.

    Args:
        chain: The arm.
        carried: Capsules of its tool and its wrist cameras, on its last link.

    Attributes:
        hinges: (H,) indices of its hinges in the joint vector.
        places: The points: link, and place (3,) in its frame; the gripper is the last one.
        reach: (H,) upper bound of the distance of all points from the axis of each hinge, metres.
    """

    def __init__(
        self, embodiment: Embodiment, chain: Chain, carried: Sequence[CapsuleMount]
    ) -> None:
        self.hinges = embodiment.hinges[chain.arm]
        own = [_axis_ends(embodiment, link) for link in range(len(chain.links))]
        own[-1] += [tip for capsule in carried for tip in _tips(capsule)]
        own[-1].append(chain.T_last_gripper[:3, 3])
        self.places = [(link, place) for link, places in enumerate(own) for place in places]
        self.reach = _reach(chain, own)


def _axis_ends(embodiment: Embodiment, link: int) -> list[Vector]:
    """Returns the ends (3,) of the axes of the capsules of a link, in its frame."""
    mounts = [mount for mount in embodiment.capsule_mounts if mount.link == link]
    return [end + mount.per_opening for mount in mounts for end in (mount.start, mount.end)]


def _tips(capsule: CapsuleMount) -> list[Vector]:
    """Returns the outermost points (3,) of a capsule along its axis; the center of a sphere."""
    axis = capsule.end - capsule.start
    length = float(np.linalg.norm(axis))
    if length == 0.0:
        return [capsule.start]
    beyond = capsule.radius / length * axis
    return [capsule.start - beyond, capsule.end + beyond]


def _reach(chain: Chain, points: list[list[Vector]]) -> Vector:
    """Returns the reach (H,) of links with points (3,): the largest length of a way outwards."""
    reach = np.zeros(len(points))
    beyond = 0.0
    for link in reversed(range(len(points))):
        own = max((float(np.linalg.norm(point)) for point in points[link]), default=0.0)
        reach[link] = max(own, beyond)
        beyond = reach[link] + float(np.linalg.norm(chain.T_parent_link[link, :3, 3]))
    return reach
