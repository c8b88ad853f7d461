"""The ALOHA 1 of gym-aloha: the arms of `aloha.py` at another table, with longer, wider fingers.

Lengths are those of gym-aloha 0.1.3 (`vx300s_left.xml`, `scene.xml`), with the origin moved to the
midpoint of the two arm bases, which stand on the table top.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import CameraMount, FingerTravel
from stringline.datasets.embodiments.transforms import Matrix, looking_at, pose

T_BASE_WORLD = pose((0.0, -0.5, 0.0))  # From gym-aloha's own frame.
ROOTS: dict[str, Matrix] = {
    "left": pose((-0.469, 0.0, 0.0)),
    "right": pose((0.469, 0.0, 0.0), np.diag([-1.0, -1.0, 1.0])),
}
T_LINK_GRIPPER = pose((0.13, 0.0, 0.0))  # Between the pads, which end at 0.154 m.

# Travel of one finger in metres: the physical range, and the wider range that gym-aloha counts from
# 0 to 1 (ACT's `PUPPET_GRIPPER_POSITION_CLOSE` and `_OPEN`).
FINGERS = FingerTravel(0.0224, 0.057)
NORMALISED = FingerTravel(0.01844, 0.05800)

# Positions of the fixed cameras, which all look at the middle of the table.
LOOKS_AT = (0.0, 0.1, 0.0)
FOVY_DEG = 78.0
STANDING: dict[str, tuple[float, float, float]] = {
    "overhead": (0.0, 0.1, 0.8),  # Its `top`.
    "angle": (0.0, -0.5, 0.6),
    "left_pillar": (-0.5, -0.3, 0.6),
    "right_pillar": (0.5, -0.3, 0.6),
}


def normalised_of_opening(opening: ArrayLike) -> NDArray[np.float64]:
    """Returns openings (...) in gym-aloha's count: 0.10 for closed pads, 0.97 for open ones."""
    return NORMALISED.opening(FINGERS.travel(opening))


# The cameras of gym-aloha that track an object (wrists and front) cannot be described by a mount.
# There are no capsules, since no safety filter uses this embodiment.
GYM_ALOHA = replace(
    ALOHA,
    name="gym_aloha",
    chains=tuple(
        replace(chain, T_base_root=ROOTS[chain.arm], T_last_gripper=T_LINK_GRIPPER)
        for chain in ALOHA.chains
    ),
    cameras=tuple(
        CameraMount(name, "world", looking_at(place, LOOKS_AT), FOVY_DEG)
        for name, place in STANDING.items()
    ),
    capsule_mounts=(),
)
