"""The ALOHA 2 arms as MJCF from primitives: kinematics, masses and gains of the published model.

Differences from the published model: gravity of the arms is compensated (with its gains the
fingertip sags by 2 cm, which the integral term of the real servos removes), shapes are boxes and
capsules, and an arm does not collide with itself.
"""

from dataclasses import dataclass

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.aloha import (
    ALOHA,
    ARMS,
    FINGER_CLOSED,
    FINGER_OPEN,
    LINKS,
    ROOTS,
)
from stringline.datasets.embodiments.mjcf_parts import (
    ARM_BIT,
    DRAWN,
    HIDDEN,
    PAD_CONTACT,
    SCENERY,
    Inertia,
    Numbers,
    add_camera,
    add_inertia,
    couple_fingers,
    finger_bits,
    other_arms,
)
from stringline.datasets.embodiments.transforms import quaternion

METAL = (0.25, 0.26, 0.28, 1.0)
DARK = (0.11, 0.11, 0.12, 1.0)
PAD = (0.05, 0.05, 0.06, 1.0)
FINGER_ORIGIN = (0.0562, 0.0191, 0.0142)  # In the gripper link, at zero travel.
# From the origin of the finger inwards to the face of the pad; the pads meet at `FINGER_CLOSED`.
PAD_FACE = FINGER_ORIGIN[1] + FINGER_CLOSED
# Rotation to the axes x, y, z of the published `gripper_base`: -y, -z and x of the link.
BASE_QUAT = quaternion(np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]))


@dataclass(frozen=True)
class _Drive:
    """Gains of a revolute joint: position gain, damping, armature, friction loss."""

    kp: float
    damping: float
    armature: float
    frictionloss: float


INERTIAS = {
    "base_link": Inertia(
        0.969034, (-0.0535, -0.0006, 0.0206), (0.0071633, 0.00602451, 0.00169819), (1, 0, 0, 0)
    ),
    "shoulder_link": Inertia(
        0.798614,
        (0.0003, 0, 0.0116),
        (0.00120156, 0.00113744, 0.0009388),
        (-0.476119, 0.476083, 0.52279, 0.522826),
    ),
    "upper_arm_link": Inertia(
        0.792592,
        (0.0207, 0, 0.2265),
        (0.00911338, 0.008925, 0.000759317),
        (0, 0.0728458, 0, 0.997343),
    ),
    "upper_forearm_link": Inertia(
        0.322228,
        (0.1057, 0, 0),
        (0.00144107, 0.00134228, 0.000152047),
        (-0.000621631, 0.704724, 0.0105292, 0.709403),
    ),
    "lower_forearm_link": Inertia(
        0.414823,
        (0.0513, 0.0068, 0),
        (0.0005911, 0.000546493, 0.000155707),
        (-0.702604, -0.0796724, -0.702604, 0.0796724),
    ),
    "wrist_link": Inertia(
        0.115395,
        (0.0467, 0, 0.0106),
        (5.457e-5, 4.631e-5, 4.327e-5),
        (-0.00100191, 0.544586, 0.0026583, 0.8387),
    ),
    "gripper_link": Inertia(
        0.251652,
        (0.0396, 0, 0.004),
        (0.000689546, 0.000650316, 0.000468142),
        (0.62033, 0.619916, -0.339682, 0.339869),
    ),
    "gripper_base": Inertia(
        0.42158,
        (0.0002, -0.0342, -0.0106),
        (0.00110438, 0.000790537, 0.000469727),
        (-0.00292324, 0.712517, 0.00480387, 0.701633),
    ),
}
FINGER_INERTIA = Inertia(0.0863, (0.04, 0, -0.01), (5.87e-5, 4.45e-5, 1.84e-5), (1, 0, 0, 0))
DRIVES = {
    "waist": _Drive(43, 5.76, 0, 0),
    "shoulder": _Drive(265, 20, 0.395, 2.0),
    "elbow": _Drive(227, 18.49, 0.383, 1.15),
    "forearm_roll": _Drive(78, 6.78, 0.14, 0),
    "wrist_angle": _Drive(37, 6.28, 0.008, 0),
    "wrist_rotate": _Drive(10.4, 1.2, 0, 0),
}
# Visible boxes: centre and half size in the frame of the link, and colour.
BOXES: dict[str, tuple[tuple[Numbers, Numbers, Numbers], ...]] = {
    "base_link": (
        ((-0.048, 0, 0.025), (0.15, 0.075, 0.025), DARK),
        ((0, 0, 0.062), (0.06, 0.06, 0.014), METAL),
    ),
    "shoulder_link": (((0, 0, 0.028), (0.055, 0.055, 0.03), DARK),),
    "upper_arm_link": (
        ((0.012, 0, 0.155), (0.022, 0.03, 0.15), METAL),
        ((0.04, 0, 0.3), (0.03, 0.045, 0.022), DARK),
    ),
    "upper_forearm_link": (((0.1, 0, 0), (0.1, 0.025, 0.0195), METAL),),
    "lower_forearm_link": (((0.055, 0.005, 0), (0.055, 0.034, 0.023), DARK),),
    "wrist_link": (((0.035, 0, 0.006), (0.033, 0.026, 0.024), METAL),),
    "gripper_link": (
        ((0.022, 0, 0.0), (0.028, 0.07, 0.028), DARK),
        ((0.012, 0, 0.055), (0.008, 0.02, 0.03), DARK),
        ((0.012, 0.011, 0.085), (0.01, 0.02, 0.012), METAL),
    ),
}


def bare_arms_mjcf() -> mjcf.RootElement:
    """Returns both arms and all cameras in the base frame; elements are named like the joints.

    Actuators are in the order of the joints of the embodiment. The control of a revolute joint is
    its target in rad, that of a gripper is the finger travel in metres (`finger_of_opening`). The
    sites `left/gripper` and `right/gripper` are the gripper frames (TCP).
    """
    root = mjcf.RootElement(model="aloha")
    root.compiler.angle = "radian"
    root.compiler.autolimits = True
    for arm in ARMS:
        frame = root.attach(_arm(arm))
        frame.pos = ROOTS[arm][:3, 3]
        frame.quat = quaternion(ROOTS[arm][:3, :3])
    for mount in ALOHA.cameras:
        if mount.parent == "world":
            add_camera(root.worldbody, mount, np.eye(4))
    return root


def _arm(arm: str) -> mjcf.RootElement:
    model = mjcf.RootElement(model=arm)
    body = model.worldbody.add("body", name="base_link")
    _add_matter(body, "base_link")
    for name, hinge, origin, axis, limits, torque in LINKS:
        body = body.add("body", name=name, pos=origin, gravcomp=1)
        _add_matter(body, name)
        drive = DRIVES[hinge]
        body.add(
            "joint",
            name=hinge,
            type="hinge",
            axis=axis,
            range=limits,
            damping=drive.damping,
            armature=drive.armature,
            frictionloss=drive.frictionloss,
        )
        model.actuator.add(
            "position",
            name=hinge,
            joint=hinge,
            kp=drive.kp,
            ctrlrange=limits,
            forcerange=(-torque, torque),
        )
    _add_capsules(model, arm)
    _add_gripper(model, body, arm)
    return model


def _add_matter(body: mjcf.Element, name: str) -> None:
    add_inertia(body, INERTIAS[name])
    for centre, half, colour in BOXES.get(name, ()):
        body.add(
            "geom",
            type="box",
            pos=centre,
            size=half,
            rgba=colour,
            contype=0,
            conaffinity=0,
            group=DRAWN,
        )


def _add_capsules(model: mjcf.RootElement, arm: str) -> None:
    """Adds the capsules that keep links off the table and off the other arm."""
    bodies = [model.find("body", name) for name in ("base_link", *(link[0] for link in LINKS))]
    for mount in ALOHA.capsule_mounts:
        if not mount.per_opening.any():
            ends = (*mount.start, *mount.end)
            # Base and shoulder stand beside the table, below the top of a raised table.
            met = other_arms(arm) | (SCENERY if mount.link > 0 else 0)
            bits = {"contype": ARM_BIT[arm], "conaffinity": met, "group": HIDDEN, "mass": 0}
            bodies[mount.link + 1].add(
                "geom", type="capsule", fromto=ends, size=(mount.radius,), **bits
            )


def _add_gripper(model: mjcf.RootElement, hand: mjcf.Element, arm: str) -> None:
    base = hand.add("body", name="gripper_base", pos=(0.035, 0, 0), quat=BASE_QUAT, gravcomp=1)
    add_inertia(base, INERTIAS["gripper_base"])
    T_link_gripper = ALOHA.chains[ARMS.index(arm)].T_last_gripper
    hand.add("site", name="gripper", pos=T_link_gripper[:3, 3], size=(0.005,), group=HIDDEN)
    for mount in ALOHA.cameras:
        if mount.parent == arm:
            add_camera(hand, mount, T_link_gripper)
    for side, sign in (("left", 1.0), ("right", -1.0)):
        _add_finger(hand, side, sign, arm)
    couple_fingers(model)
    model.actuator.add(
        "position",
        name="gripper",
        joint="left_finger",
        kp=2000,
        kv=124,
        ctrlrange=(0.002, FINGER_OPEN),
        forcerange=(-35, 35),
    )


def _add_finger(hand: mjcf.Element, side: str, sign: float, arm: str) -> None:
    x, y, z = FINGER_ORIGIN
    finger = hand.add("body", name=f"{side}_finger_link", pos=(x, sign * y, z), gravcomp=1)
    add_inertia(finger, FINGER_INERTIA)
    finger.add(
        "joint",
        name=f"{side}_finger",
        type="slide",
        axis=(0, sign, 0),
        range=(0, 0.041),
        damping=40,
        armature=0.243,
    )
    inwards = -sign * PAD_FACE
    finger.add(
        "geom",
        name=f"{side}_pad",
        type="box",
        pos=(0.069, inwards + sign * 0.004, -0.0172),
        size=(0.0202, 0.004, 0.0125),
        rgba=PAD,
        **finger_bits(arm),
        **PAD_CONTACT,
    )
    finger.add(
        "geom",
        name=f"{side}_finger",
        type="box",
        pos=(0.03, inwards + sign * 0.015, -0.0142),
        size=(0.04, 0.008, 0.014),
        rgba=METAL,
        **finger_bits(arm),
        **PAD_CONTACT,
    )
