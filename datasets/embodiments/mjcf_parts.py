"""What the models of all arms share: who collides with whom, what is drawn, inertias, cameras, fingers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dm_control import mjcf

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.embodiments.embodiment import CameraMount
from stringline.datasets.embodiments.transforms import Matrix, quaternion

Numbers = Sequence[float]

# Collision bits. Two shapes meet when the type of one is in the affinity of the other.
SCENERY = 1
PROP = 2
ARM_BIT = {"left": 8, "right": 16, "arm": 8}  # One that is alone is called `arm`.

# From MuJoCo's cameras, which look along -z with y up, to the contract's, along +z with y down; and
# back again.
CAMERA_FLIP: Matrix = np.diag([1.0, -1.0, -1.0, 1.0])

# Render groups: 0 is drawn, 3 only collides.
DRAWN = 0
HIDDEN = 3

PAD_FRICTION = (1.2, 0.02, 0.002)
PAD_CONTACT: dict[str, object] = {
    "friction": PAD_FRICTION,
    "solref": (0.004, 1),
    "solimp": (0.95, 0.99, 0.001),
}


@dataclass(frozen=True)
class Inertia:
    """Of a body: kg, metres, kg m^2 about its main axes, and where these point (wxyz)."""

    mass: float
    com: Numbers
    diagonal: Numbers
    quat: Numbers = (1, 0, 0, 0)


def add_inertia(body: mjcf.Element, inertia: Inertia) -> None:
    """Gives a body its mass."""
    body.add(
        "inertial",
        mass=inertia.mass,
        pos=inertia.com,
        diaginertia=inertia.diagonal,
        quat=inertia.quat,
    )


def add_camera(parent: mjcf.Element, mount: CameraMount, T_body_parent: Matrix) -> None:
    """Adds a camera."""
    T_body_camera = T_body_parent @ mount.T_parent_camera @ CAMERA_FLIP
    quat = quaternion(T_body_camera[:3, :3])
    parent.add("camera", name=mount.name, pos=T_body_camera[:3, 3], quat=quat, fovy=mount.fovy_deg)


def couple_fingers(model: mjcf.RootElement) -> None:
    """Lets the right finger do as the left one does, and keeps the two from colliding."""
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
    """Returns what a finger's shapes collide with: scenery, props and the other arm; they are drawn and weigh nothing.

    Raises:
        ValueError: No arm is called that.
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
    """Returns the bits of all arms but one."""
    return (ARM_BIT["left"] | ARM_BIT["right"]) & ~ARM_BIT[arm]
