"""KUKA LBR iiwa 14 R820 with a parallel gripper: a single arm, and two arms that face each other.

Lengths, limits and speeds are those of the published model (Drake, MuJoCo Menagerie
`kuka_iiwa_14`); KUKA calls the axes A1 to A7. The gripper is our own design with the stroke of a
Schunk WSG 50, 110 mm. Fixed cameras are RealSense D435, whose colour images have a vertical field
of view of 42 degrees; wrist cameras are D405, with 58 degrees.
"""

from collections.abc import Mapping

import numpy as np

from stringline.datasets.embodiments.embodiment import (
    CameraMount,
    CapsuleMount,
    Chain,
    Embodiment,
    FingerTravel,
    JointSpec,
    Link,
    Vector,
)
from stringline.datasets.embodiments.transforms import Matrix, looking_at, pose, rotation_about

X, Y, Z = np.eye(3)
STRAIGHT = np.eye(3)
# Rotations by 180 degrees about (0, 1, 1), and by 90 degrees about x.
OVER = np.array([[-1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
ASIDE = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])

# Origin and rotation of a link in the frame of its parent; the revolute joint is its z axis. Range
# in degrees, speed in degrees/s, torque in Nm.
LINKS: tuple[tuple[tuple[float, float, float], Matrix, float, float, float], ...] = (
    ((0.0, 0.0, 0.1575), STRAIGHT, 170.0, 85.0, 320.0),
    ((0.0, 0.0, 0.2025), OVER, 120.0, 85.0, 320.0),
    ((0.0, 0.2045, 0.0), OVER, 170.0, 100.0, 176.0),
    ((0.0, 0.0, 0.2155), ASIDE, 120.0, 75.0, 176.0),
    ((0.0, 0.1845, 0.0), OVER, 170.0, 130.0, 110.0),
    ((0.0, 0.0, 0.2155), ASIDE, 120.0, 135.0, 40.0),
    ((0.0, 0.081, 0.0), OVER, 175.0, 135.0, 40.0),
)
FLANGE_Z = 0.045  # In the last link.
HAND_LENGTH = 0.073  # From the flange to the fingers.
GRIPPER_Z = 0.19  # Midpoint of the pads in the last link.
T_LINK_GRIPPER = pose((0.0, 0.0, GRIPPER_Z), np.stack([Z, Y, -X], axis=1))
# The pads meet at 0; each finger travels 55 mm. Force and speed are typical of electric grippers.
FINGERS = FingerTravel(0.0, 0.055)
GRIPPER_FORCE = 60.0  # Newton, the sum of both pads.
GRIPPER_SPEED = 2.0  # Openings per second: 220 mm/s between the pads.

ALONE = "arm"
FACING = ("left", "right")
BASE_X = 0.72  # Bimanual cell: distance of a base plate from the middle.
ROOTS: dict[str, Matrix] = {
    "left": pose((-BASE_X, 0.0, 0.0)),
    "right": pose((BASE_X, 0.0, 0.0), np.diag([-1.0, -1.0, 1.0])),
}

# Gripper pointing down, 0.39 m above the base, open.
START_POSE: Vector = np.array([0.0, 0.0, 0.0, -1.85, 0.0, np.pi - 1.85, 0.0, 1.0])
START_POSE.setflags(write=False)


def _joints(arm: str) -> list[JointSpec]:
    revolute = [
        JointSpec(
            f"{arm}/a{number}",
            arm,
            "revolute",
            -np.radians(limit),
            np.radians(limit),
            np.radians(speed),
            torque,
        )
        for number, (_, _, limit, speed, torque) in enumerate(LINKS, 1)
    ]
    return [
        *revolute,
        JointSpec(f"{arm}/gripper", arm, "gripper", 0.0, 1.0, GRIPPER_SPEED, GRIPPER_FORCE),
    ]


def _chain(arm: str, T_base_root: Matrix) -> Chain:
    links = tuple(
        Link(f"link_{number}", pose(origin, turn), Z)
        for number, (origin, turn, *_) in enumerate(LINKS, 1)
    )
    return Chain(arm, T_base_root, links, T_LINK_GRIPPER)


def _wrist_mount(name: str, arm: str) -> CameraMount:
    """Returns the mount on the back of the hand, inclined by 30 degrees to the fingers."""
    level = np.stack([-Y, -Z, X], axis=1)
    return CameraMount(
        name, arm, pose((-0.13, 0.0, 0.085), rotation_about(Y, np.radians(30.0)) @ level), 58.0
    )


HAND_CAPSULE = CapsuleMount.of(6, (0.0, -0.048, 0.081), (0.0, 0.048, 0.081), 0.045)
# The capsules enclose the published collision spheres.
CAPSULES: tuple[CapsuleMount, ...] = (
    CapsuleMount.of(-1, (0.0, 0.0, 0.03), (0.0, 0.0, 0.14), 0.1),
    CapsuleMount.of(0, (0.0, 0.0, 0.0), (0.0, -0.035, 0.1), 0.085),
    CapsuleMount.of(1, (0.0, 0.0, -0.01), (0.0, 0.0, 0.045), 0.095),
    CapsuleMount.of(1, (0.0, 0.04, 0.05), (0.0, 0.18, 0.0), 0.075),
    CapsuleMount.of(2, (0.0, 0.0, 0.0355), (0.0, 0.05, 0.165), 0.075),
    CapsuleMount.of(2, (0.0, 0.0, 0.2155), (0.0, 0.045, 0.2155), 0.075),
    CapsuleMount.of(3, (0.0, 0.01, 0.046), (0.0, 0.12, 0.034), 0.072),
    CapsuleMount.of(3, (0.0, 0.12, 0.034), (0.0, 0.184, 0.0), 0.073),
    CapsuleMount.of(4, (0.0, 0.0, 0.0335), (0.0, 0.031, 0.0755), 0.07),
    CapsuleMount.of(4, (0.0, 0.055, 0.1), (0.0, 0.065, 0.18), 0.048),
    CapsuleMount.of(5, (0.0, 0.0, -0.055), (0.0, -0.01, 0.0), 0.075),
    CapsuleMount.of(6, (0.0, 0.0, -0.005), (0.0, 0.0, 0.02), 0.06),
    HAND_CAPSULE,
    CapsuleMount.of(
        6, (0.0, 0.0135, 0.13), (0.0, 0.0135, 0.198), 0.0145, (0.0, FINGERS.opened, 0.0)
    ),
    CapsuleMount.of(
        6, (0.0, -0.0135, 0.13), (0.0, -0.0135, 0.198), 0.0145, (0.0, -FINGERS.opened, 0.0)
    ),
)
# Around the parts of Menagerie's meshes that those do not contain.
ENCLOSING_CAPSULES: tuple[CapsuleMount, ...] = (
    CapsuleMount.of(-1, (-0.0465, 0.0, 0.0674), (0.001, 0.0, -0.0124), 0.1265),
    CapsuleMount.of(0, (-0.031, -0.066, 0.189), (0.031, -0.066, 0.189), 0.066),
    CapsuleMount.of(3, (-0.034, -0.0448, 0.0508), (0.034, -0.0448, 0.0508), 0.027),
    CapsuleMount.of(5, (-0.003, 0.0145, 0.001), (-0.003, -0.0193, 0.0183), 0.071),
)


def _embodiment(
    name: str, base_frame: str, roots: Mapping[str, Matrix], cameras: tuple[CameraMount, ...]
) -> Embodiment:
    return Embodiment(
        name=name,
        base_frame=base_frame,
        joints=tuple(joint for arm in roots for joint in _joints(arm)),
        chains=tuple(_chain(arm, root) for arm, root in roots.items()),
        cameras=cameras,
        capsule_mounts=CAPSULES,
        enclosing_mounts=ENCLOSING_CAPSULES,
        home=np.tile(START_POSE, len(roots)),
    )


IIWA14 = _embodiment(
    "iiwa14",
    "base plate of the arm; x forwards, y left, z up",
    {ALONE: np.eye(4)},
    (
        CameraMount("overhead", "world", looking_at((1.05, 0.0, 0.75), (0.57, 0.0, 0.03)), 42.0),
        _wrist_mount("wrist", ALONE),
    ),
)
"""One KUKA LBR iiwa 14 R820 with a parallel gripper."""
IIWA14_BIMANUAL = _embodiment(
    "iiwa14_bimanual",
    (
        "midpoint of the two base plates, which face each other; x right, y away from the "
        "operator, z up"
    ),
    ROOTS,
    (
        CameraMount("overhead", "world", looking_at((0.0, -0.8, 0.85), (0.0, 0.0, 0.05)), 42.0),
        *(_wrist_mount(f"wrist_{arm}", arm) for arm in FACING),
    ),
)
"""Two KUKA LBR iiwa 14 R820 with parallel grippers that face each other."""
