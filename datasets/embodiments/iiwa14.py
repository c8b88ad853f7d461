"""KUKA LBR iiwa 14 R820 with a parallel gripper: one arm alone, and two that face each other across a table.

Lengths, limits and speeds are those of the published model (Drake's, which is that of MuJoCo
Menagerie `kuka_iiwa_14`); KUKA calls the axes A1 to A7. The gripper is one of ours with the stroke
of a Schunk WSG 50, 110 mm. Cameras that stand are RealSense D435, whose colour images have a
vertical field of view of 42 degrees; those at the wrists are D405, with 58 degrees.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from stringline.datasets.embodiments.embodiment import (
    CameraMount,
    CapsuleMount,
    Chain,
    Embodiment,
    JointSpec,
    Link,
    Vector,
)
from stringline.datasets.embodiments.fingers import FingerTravel
from stringline.datasets.embodiments.transforms import Matrix, looking_at, pose, rotation_about

X, Y, Z = np.eye(3)
STRAIGHT = np.eye(3)
OVER = np.array(
    [[-1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
)  # Half a turn about (0, 1, 1).
ASIDE = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])  # A quarter turn about x.

# Origin and turn of a link in the one before it; it turns about its z axis. Range in degrees, speed
# in degrees/s, torque in Nm.
LINKS: tuple[tuple[tuple[float, float, float], Matrix, float, float, float], ...] = (
    ((0.0, 0.0, 0.1575), STRAIGHT, 170.0, 85.0, 320.0),
    ((0.0, 0.0, 0.2025), OVER, 120.0, 85.0, 320.0),
    ((0.0, 0.2045, 0.0), OVER, 170.0, 100.0, 176.0),
    ((0.0, 0.0, 0.2155), ASIDE, 120.0, 75.0, 176.0),
    ((0.0, 0.1845, 0.0), OVER, 170.0, 130.0, 110.0),
    ((0.0, 0.0, 0.2155), ASIDE, 120.0, 135.0, 40.0),
    ((0.0, 0.081, 0.0), OVER, 175.0, 135.0, 40.0),
)
FLANGE_Z = 0.045  # Of the last link.
HAND_LENGTH = 0.073  # From the flange to where the fingers begin.
GRIPPER_Z = 0.19  # Of the last link: the middle between the pads.
T_LINK_GRIPPER = pose((0.0, 0.0, GRIPPER_Z), np.stack([Z, Y, -X], axis=1))
# The pads meet at 0; each finger goes 55 mm. Force and speed are ordinary for electric grippers of
# that size.
FINGERS = FingerTravel(0.0, 0.055)
GRIPPER_FORCE = 60.0  # Newton, of a finger.
GRIPPER_SPEED = 2.0  # Openings per second: 220 mm/s between the pads.

ALONE = "arm"
FACING = ("left", "right")
BASE_X = 0.72  # Of the bimanual cell: a base plate's distance from the middle.
ROOTS: dict[str, Matrix] = {
    "left": pose((-BASE_X, 0.0, 0.0)),
    "right": pose((BASE_X, 0.0, 0.0), np.diag([-1.0, -1.0, 1.0])),
}

START_POSE: Vector = np.array(
    [0.0, 0.0, 0.0, -1.85, 0.0, np.pi - 1.85, 0.0, 1.0]
)  # Pointing down, 0.39 m up, open.
START_POSE.setflags(write=False)


def _joints(arm: str) -> list[JointSpec]:
    hinges = [
        JointSpec(
            f"{arm}/a{number}",
            arm,
            "hinge",
            -np.radians(limit),
            np.radians(limit),
            np.radians(speed),
            torque,
        )
        for number, (_, _, limit, speed, torque) in enumerate(LINKS, 1)
    ]
    return [
        *hinges,
        JointSpec(f"{arm}/gripper", arm, "gripper", 0.0, 1.0, GRIPPER_SPEED, GRIPPER_FORCE),
    ]


def _chain(arm: str, T_base_root: Matrix) -> Chain:
    links = tuple(
        Link(f"link_{number}", pose(origin, turn), Z)
        for number, (origin, turn, *_) in enumerate(LINKS, 1)
    )
    return Chain(arm, T_base_root, links, T_LINK_GRIPPER)


def _wrist_mount(name: str, arm: str) -> CameraMount:
    """On the hand's back, looking forward and 30 degrees to the fingers."""
    level = np.stack([-Y, -Z, X], axis=1)
    return CameraMount(
        name, arm, pose((-0.13, 0.0, 0.085), rotation_about(Y, np.radians(30.0)) @ level), 58.0
    )


def _capsule(
    link: int,
    start: ArrayLike,
    end: ArrayLike,
    radius: float,
    per_opening: ArrayLike = (0.0, 0.0, 0.0),
) -> CapsuleMount:
    return CapsuleMount(
        link,
        np.asarray(start, float),
        np.asarray(end, float),
        radius,
        np.asarray(per_opening, float),
    )


HAND_CAPSULE = _capsule(6, (0.0, -0.048, 0.081), (0.0, 0.048, 0.081), 0.045)
# They span the published collision spheres.
CAPSULES: tuple[CapsuleMount, ...] = (
    _capsule(-1, (0.0, 0.0, 0.03), (0.0, 0.0, 0.14), 0.1),
    _capsule(0, (0.0, 0.0, 0.0), (0.0, -0.035, 0.1), 0.085),
    _capsule(1, (0.0, 0.0, -0.01), (0.0, 0.0, 0.045), 0.095),
    _capsule(1, (0.0, 0.04, 0.05), (0.0, 0.18, 0.0), 0.075),
    _capsule(2, (0.0, 0.0, 0.0355), (0.0, 0.05, 0.165), 0.075),
    _capsule(2, (0.0, 0.0, 0.2155), (0.0, 0.045, 0.2155), 0.075),
    _capsule(3, (0.0, 0.01, 0.046), (0.0, 0.12, 0.034), 0.072),
    _capsule(3, (0.0, 0.12, 0.034), (0.0, 0.184, 0.0), 0.073),
    _capsule(4, (0.0, 0.0, 0.0335), (0.0, 0.031, 0.0755), 0.07),
    _capsule(4, (0.0, 0.055, 0.1), (0.0, 0.065, 0.18), 0.048),
    _capsule(5, (0.0, 0.0, -0.055), (0.0, -0.01, 0.0), 0.075),
    _capsule(6, (0.0, 0.0, -0.005), (0.0, 0.0, 0.02), 0.06),
    HAND_CAPSULE,
    _capsule(6, (0.0, 0.0135, 0.13), (0.0, 0.0135, 0.198), 0.0145, (0.0, FINGERS.opened, 0.0)),
    _capsule(6, (0.0, -0.0135, 0.13), (0.0, -0.0135, 0.198), 0.0145, (0.0, -FINGERS.opened, 0.0)),
)


def _body(
    name: str, base_frame: str, roots: Mapping[str, Matrix], cameras: tuple[CameraMount, ...]
) -> Embodiment:
    return Embodiment(
        name=name,
        base_frame=base_frame,
        joints=tuple(joint for arm in roots for joint in _joints(arm)),
        chains=tuple(_chain(arm, root) for arm, root in roots.items()),
        cameras=cameras,
        capsule_mounts=CAPSULES,
        home=np.tile(START_POSE, len(roots)),
    )


IIWA14 = _body(
    "iiwa14",
    "base plate of the arm; x forwards, y left, z up",
    {ALONE: np.eye(4)},
    (
        CameraMount("overhead", "world", looking_at((1.05, 0.0, 0.75), (0.57, 0.0, 0.03)), 42.0),
        _wrist_mount("wrist", ALONE),
    ),
)
IIWA14_BIMANUAL = _body(
    "iiwa14_bimanual",
    (
        "midpoint of the two base plates, which face each other; x right, y away from the "
        "operator, z "
        "up"
    ),
    ROOTS,
    (
        CameraMount("overhead", "world", looking_at((0.0, -0.8, 0.85), (0.0, 0.0, 0.05)), 42.0),
        *(_wrist_mount(f"wrist_{arm}", arm) for arm in FACING),
    ),
)
