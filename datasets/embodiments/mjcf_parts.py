"""Shared parts of the MJCF models of arms: collisions, render groups, inertias, cameras."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dm_control import mjcf

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.embodiment import CameraMount
from stringline.datasets.embodiments.transforms import Matrix, quaternion

Numbers = Sequence[float]

# Collision bits. Two shapes meet when the type of one is in the affinity of the other.
SCENERY = 1
PROP = 2
ARM_BIT = {"left": 8, "right": 16, "arm": 8}  # A single arm is called `arm`.

# Between MuJoCo's camera frame (looking along -z, y up) and the contract's (along +z, y down).
CAMERA_FLIP: Matrix = np.diag([1.0, -1.0, -1.0, 1.0])

# Render groups: 0 is visible, 3 only collides.
DRAWN = 0
"""MuJoCo group of the geoms that cameras see."""
HIDDEN = 3

PAD_FRICTION = (1.2, 0.02, 0.002)
PAD_CONTACT: dict[str, object] = {
    "friction": PAD_FRICTION,
    "solref": (0.004, 1),
    "solimp": (0.95, 0.99, 0.001),
}
"""Contact parameters of gripper pads (MJCF attributes of a geom)."""


@dataclass(frozen=True)
class Inertia:
    """Mass (kg), centre of mass (m), principal moments (kg m^2) and their axes (wxyz) of a body."""

    mass: float
    com: Numbers
    diagonal: Numbers
    quat: Numbers = (1, 0, 0, 0)


def add_inertia(body: mjcf.Element, inertia: Inertia) -> None:
    """Adds the inertia of a body."""
    body.add(
        "inertial",
        mass=inertia.mass,
        pos=inertia.com,
        diaginertia=inertia.diagonal,
        quat=inertia.quat,
    )


def add_camera(parent: mjcf.Element, mount: CameraMount, T_body_parent: Matrix) -> None:
    """Adds a camera to a body, given the pose (4, 4) of the mount's parent frame in the body."""
    T_body_camera = T_body_parent @ mount.T_parent_camera @ CAMERA_FLIP
    quat = quaternion(T_body_camera[:3, :3])
    parent.add("camera", name=mount.name, pos=T_body_camera[:3, 3], quat=quat, fovy=mount.fovy_deg)


def couple_fingers(model: mjcf.RootElement) -> None:
    """Couples the right finger to the left one and disables their collision."""
    model.equality.add(
        "joint",
        joint1="left_finger",
        joint2="right_finger",
        polycoef=(0, 1, 0, 0, 0),
        solref=(0.005, 1),
        solimp=(0.95, 0.99, 0.001),
    )
    model.contact.add("exclude", body1="left_finger_link", body2="right_finger_link")


def finger_bits(arm: str) -> dict[str, object]:
    """Returns the geom attributes of a finger: collides with scenery, props and the other arm.

    Raises:
        ValueError: The arm does not exist.
    """
    if arm not in ARM_BIT:
        raise unknown_name("arm", arm, ARM_BIT)
    return {
        "contype": ARM_BIT[arm],
        "conaffinity": SCENERY | PROP | other_arms(arm),
        "condim": 6,
        "mass": 0,
        "group": DRAWN,
    }


def other_arms(arm: str) -> int:
    """Returns the collision bits of all arms except one."""
    return (ARM_BIT["left"] | ARM_BIT["right"]) & ~ARM_BIT[arm]
