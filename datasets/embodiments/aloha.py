"""ALOHA 2: two ViperX 300 arms that face each other over a table, with grippers and cameras.

Lengths and limits are those of the published ALOHA 2 model (MuJoCo Menagerie `aloha`, sites of its
`mink` derivative), with the origin moved to the midpoint of the two arm bases on the table plane.
The cameras are RealSense D405 with a vertical field of view of 58 degrees; the overhead image is
the centre crop of 498 of 720 rows, hence 42 degrees.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about

ARMS = ("left", "right")
X, Y, Z = np.eye(3)
HINGE_SPEED = float(np.pi)  # The servos' velocity limit, rad/s.
GRIPPER_SPEED = 2.0  # The same servo limit over the 1.58 rad that open the gripper.

# Name of link and revolute joint, origin in the link before it, axis, range in rad, torque in Nm.
LINKS: tuple[
    tuple[str, str, tuple[float, float, float], Vector, tuple[float, float], float], ...
] = (
    ("shoulder_link", "waist", (0.0, 0.0, 0.079), Z, (-3.14158, 3.14158), 35.0),
    ("upper_arm_link", "shoulder", (0.0, 0.0, 0.04805), Y, (-1.85005, 1.25664), 144.0),
    ("upper_forearm_link", "elbow", (0.05955, 0.0, 0.3), Y, (-1.76278, 1.6057), 59.0),
    ("lower_forearm_link", "forearm_roll", (0.2, 0.0, 0.0), X, (-3.14158, 3.14158), 22.0),
    ("wrist_link", "wrist_angle", (0.1, 0.0, 0.0), Y, (-1.8675, 2.23402), 35.0),
    ("gripper_link", "wrist_rotate", (0.069744, 0.0, 0.0), X, (-3.14158, 3.14158), 35.0),
)
GRIPPER_FORCE = 35.0  # Newton, the sum of both pads.
ROOTS: dict[str, Matrix] = {
    "left": pose((-0.469, 0.0, -0.0099)),
    "right": pose((0.469, 0.0, -0.0099), np.diag([-1.0, -1.0, 1.0])),
}
T_LINK_GRIPPER = pose((0.13, 0.0, -0.003))

# One finger's travel in metres; the gap between the pads is 2 q - 15.6 mm.
FINGER_CLOSED = 0.0078
FINGER_OPEN = 0.037
FINGERS = FingerTravel(FINGER_CLOSED, FINGER_OPEN)


@dataclass(frozen=True)
class GripperServo:
    """A gripper with a servo, a crank and a rod to each finger, and a convention for its opening.

    Half the distance between the fingers is r sin(a) + sqrt(L^2 - (r cos(a))^2) at the servo angle
    a.

    Attributes:
        radius: Radius r of the crank in metres.
        rod: Length L of the rod in metres.
        closed: Servo angle in rad at opening 0.
        opened: Servo angle in rad at opening 1.
    """

    radius: float
    rod: float
    closed: float
    opened: float

    def half_distance(self, angle: ArrayLike) -> NDArray[np.float64]:
        """Returns half the distance of the fingers (...) in metres at servo angles (...) in rad."""
        angle = np.asarray(angle, dtype=np.float64)
        return np.asarray(
            self.radius * np.sin(angle) + np.sqrt(self.rod**2 - (self.radius * np.cos(angle)) ** 2)
        )

    def opening(self, angle: ArrayLike) -> NDArray[np.float64]:
        """Returns the opening (...), 0 to 1, linear in the gap, at servo angles (...) in rad."""
        low = self.half_distance(self.closed)
        high = self.half_distance(self.opened)
        return np.asarray((self.half_distance(angle) - low) / (high - low))

    def angle(self, opening: ArrayLike) -> NDArray[np.float64]:
        """Returns servo angles (...) in rad, at most pi/2, at reachable openings (...)."""
        low = self.half_distance(self.closed)
        high = self.half_distance(self.opened)
        half = low + np.asarray(opening, dtype=np.float64) * (high - low)
        cosine = (self.radius**2 + half**2 - self.rod**2) / (2 * self.radius * half)
        return np.asarray(np.pi / 2 - np.arccos(np.clip(cosine, -1.0, 1.0)))


# The travel of `FOLLOWER` equals that of the fingers of the model.
FOLLOWER = GripperServo(0.022, 0.036, closed=-0.06135, opened=1.5155)
GRIPPER_SERVOS: dict[str, GripperServo] = {
    "follower": FOLLOWER,
    "interbotix_follower": GripperServo(0.022, 0.036, closed=0.6197, opened=1.6214),
    "interbotix_leader": GripperServo(0.014, 0.024, closed=-0.0552, opened=0.8298),
    "aloha1_follower": GripperServo(0.022, 0.036, closed=-0.6213, opened=1.4910),
    "aloha1_leader": GripperServo(0.014, 0.024, closed=-0.6842, opened=0.3083),
}


finger_of_opening = FINGERS.travel
opening_of_finger = FINGERS.opening


def _joints(arm: str) -> list[JointSpec]:
    revolute = [
        JointSpec(f"{arm}/{hinge}", arm, "revolute", low, up, HINGE_SPEED, torque)
        for _, hinge, _, _, (low, up), torque in LINKS
    ]
    return [
        *revolute,
        JointSpec(f"{arm}/gripper", arm, "gripper", 0.0, 1.0, GRIPPER_SPEED, GRIPPER_FORCE),
    ]


def _chain(arm: str) -> Chain:
    links = tuple(Link(name, pose(origin), axis) for name, _, origin, axis, _, _ in LINKS)
    return Chain(arm, ROOTS[arm], links, T_LINK_GRIPPER)


def _looking(position: tuple[float, float, float], tilt_deg: float) -> Matrix:
    """Returns a camera that looks along +y, tilted down by `tilt_deg`, with its x axis along +x."""
    level = np.stack([X, -Z, Y], axis=1)
    return pose(position, rotation_about(X, np.radians(-tilt_deg)) @ level)


def _wrist_mount(arm: str) -> CameraMount:
    """Returns the mount on the back of the gripper, 25 degrees below the forward direction."""
    level = np.stack([-Y, -Z, X], axis=1)
    T_link_camera = pose((0.0254045, 0.011, 0.0814748), rotation_about(Y, np.radians(25.0)) @ level)
    return CameraMount(f"wrist_{arm}", arm, inverse(T_LINK_GRIPPER) @ T_link_camera, 58.0)


def _capsules() -> tuple[CapsuleMount, ...]:
    travel = FINGER_OPEN - FINGER_CLOSED
    return (
        CapsuleMount.of(-1, (-0.11, 0.0, 0.04), (0.03, 0.0, 0.04), 0.075),
        CapsuleMount.of(0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.05), 0.062),
        CapsuleMount.of(1, (0.02, 0.0, 0.02), (0.04, 0.0, 0.29), 0.052),
        CapsuleMount.of(2, (0.0, 0.0, 0.0), (0.2, 0.0, 0.0), 0.045),
        CapsuleMount.of(3, (0.0, 0.0, 0.0), (0.1, 0.0, 0.0), 0.042),
        CapsuleMount.of(4, (0.0, 0.0, 0.0), (0.06, 0.0, 0.008), 0.035),
        CapsuleMount.of(5, (0.02, -0.045, 0.0), (0.02, 0.045, 0.0), 0.04),
        CapsuleMount.of(5, (0.02, 0.0, 0.03), (0.02, 0.0, 0.09), 0.03),
        CapsuleMount.of(
            5, (0.06, 0.0125, 0.0), (0.132, 0.0125, -0.003), 0.0145, (0.0, travel, 0.0)
        ),
        CapsuleMount.of(
            5, (0.06, -0.0125, 0.0), (0.132, -0.0125, -0.003), 0.0145, (0.0, -travel, 0.0)
        ),
    )


def _enclosing_capsules() -> tuple[CapsuleMount, ...]:
    """Returns capsules around the parts of Menagerie's meshes that `_capsules` do not contain."""
    travel = FINGER_OPEN - FINGER_CLOSED
    return (
        CapsuleMount.of(-1, (-0.15, 0.07, 0.025), (0.045, 0.07, 0.025), 0.045),
        CapsuleMount.of(-1, (-0.15, -0.07, 0.025), (0.045, -0.07, 0.025), 0.045),
        CapsuleMount.of(-1, (-0.155, -0.015, 0.03), (-0.155, 0.015, 0.03), 0.056),
        CapsuleMount.of(-1, (0.06, -0.035, 0.03), (0.06, 0.035, 0.03), 0.055),
        CapsuleMount.of(0, (0.0, 0.0, 0.0), (0.0, 0.0, 0.05), 0.0625),
        CapsuleMount.of(1, (0.034, 0.018, 0.2955), (0.034, -0.018, 0.2955), 0.0525),
        CapsuleMount.of(2, (0.017, 0.051, 0.0), (0.017, -0.051, 0.0), 0.0245),
        CapsuleMount.of(3, (0.003, 0.043, 0.0), (0.049, 0.043, 0.0), 0.021),
        CapsuleMount.of(4, (0.0495, 0.029, 0.0285), (0.0495, -0.029, 0.0285), 0.011),
        CapsuleMount.of(5, (0.045, -0.055, 0.002), (0.045, 0.055, 0.002), 0.041),
        CapsuleMount.of(5, (0.005, 0.0, 0.065), (0.012, 0.0, 0.1), 0.0265),
        *(
            CapsuleMount.of(5, start, end, radius, (0.0, side * travel, 0.0))
            for side in (1, -1)
            for start, end, radius in (
                ((0.09, 0.0155 * side, -0.014), (0.09, 0.0155 * side, 0.014), 0.022),
                ((0.1385, 0.0035 * side, -0.0035), (0.1385, 0.0035 * side, -0.0035), 0.0102),
            )
        ),
    )


START_POSE: Vector = np.tile([0.0, -0.96, 1.16, 0.0, -0.3, 0.0, 0.0], 2)
START_POSE.setflags(write=False)

ALOHA = Embodiment(
    name="aloha",
    base_frame=(
        "midpoint of the two arm bases on the table plane; x right, y away from the operator, z up"
    ),
    joints=tuple(joint for arm in ARMS for joint in _joints(arm)),
    chains=tuple(_chain(arm) for arm in ARMS),
    cameras=(
        CameraMount("overhead", "world", _looking((0.0, -0.284794, 0.99534), 65.019), 42.0),
        _wrist_mount("left"),
        _wrist_mount("right"),
        CameraMount("table", "world", _looking((0.0, -0.358167, 0.0317), -5.455), 58.0),
    ),
    capsule_mounts=_capsules(),
    enclosing_mounts=_enclosing_capsules(),
    home=START_POSE,
)
"""ALOHA 2: two ViperX 300 arms on a table, with four cameras."""
