"""One or two iiwa 14 arms as MJCF from primitives: published kinematics, masses and torques.

Differences from the published model: own gains; gravity of the arm is compensated, as by the real
controller; torques are limited to those of the axes; links are capsules that enclose its collision
spheres, and an arm does not collide with itself.
"""

from collections.abc import Sequence

from dm_control import mjcf

from stringline.datasets.embodiments.embodiment import (
    CameraMount,
    CapsuleMount,
    Chain,
    Embodiment,
    FingerTravel,
)
from stringline.datasets.embodiments.iiwa14 import (
    FINGERS,
    FLANGE_Z,
    GRIPPER_FORCE,
    GRIPPER_Z,
    HAND_CAPSULE,
    HAND_LENGTH,
    T_LINK_GRIPPER,
)
from stringline.datasets.embodiments.mjcf_parts import (
    ARM_BIT,
    DRAWN,
    HIDDEN,
    PAD_CONTACT,
    PROP,
    SCENERY,
    Inertia,
    add_camera,
    add_inertia,
    couple_fingers,
    finger_bits,
    other_arms,
)
from stringline.datasets.embodiments.transforms import Matrix, pose, quaternion

FOOT = "base_link"
STAND = "stand"
SILVER = (0.80, 0.81, 0.83, 1.0)
ORANGE = (0.96, 0.44, 0.10, 1.0)
DARK = (0.16, 0.16, 0.18, 1.0)
METAL = (0.55, 0.56, 0.58, 1.0)
PAD = (0.05, 0.05, 0.06, 1.0)
# Of each axis, Nm/rad and Nm s/rad. The published 2000 and 200 chatter at the wrist's torque limit.
GAINS = ((4000, 250), (4000, 250), (3000, 150), (3000, 150), (1000, 40), (1000, 40), (1000, 40))
# Of every axis: Nm s/rad; kg m^2, the inertia of the rotor behind the gear.
DAMPING = 0.5
ARMATURE = 0.1
FINGER_KP = 2500.0
FINGER_KV = 150.0
# Attributes of visible geoms without mass and collisions.
SHAPE = {"contype": 0, "conaffinity": 0, "group": DRAWN, "mass": 0}
UPRIGHT = (0, 0, 1, 1)
SIDEWAYS = (1, 1, 0, 0)

INERTIAS: tuple[Inertia, ...] = (
    Inertia(5.0, (-0.1, 0, 0.07), (0.05, 0.06, 0.03)),
    Inertia(5.76, (0, -0.03, 0.12), (0.0333, 0.033, 0.0123)),
    Inertia(6.35, (0.0003, 0.059, 0.042), (0.0305, 0.0304, 0.011), UPRIGHT),
    Inertia(3.5, (0, 0.03, 0.13), (0.025, 0.0238, 0.0076)),
    Inertia(3.5, (0, 0.067, 0.034), (0.017, 0.0164, 0.006), SIDEWAYS),
    Inertia(3.5, (0.0001, 0.021, 0.076), (0.01, 0.0087, 0.00449)),
    Inertia(1.8, (0, 0.0006, 0.0004), (0.0049, 0.0047, 0.0036), SIDEWAYS),
    Inertia(1.2, (0, 0, 0.02), (0.001, 0.001, 0.001)),
)
# The hand is a box of 50 x 146 x 73 mm and 1.2 kg; a finger is a bar of 80 g.
HAND_HALF = (0.025, 0.073, HAND_LENGTH / 2)
HAND_INERTIA = Inertia(1.2, (0, 0, FLANGE_Z + HAND_LENGTH / 2), (0.00266, 0.00078, 0.00238))
FINGER_INERTIA = Inertia(0.08, (0, 0, 0.04), (5e-5, 5e-5, 5e-6))
FINGER_HALF = (0.012, 0.005, 0.043)
PAD_HALF = (0.013, 0.004, 0.018)
ORANGE_CAPSULES = (3, 5, 7)  # The covers of the joints between the long links.


def bare_arms_mjcf(embodiment: Embodiment) -> mjcf.RootElement:
    """Returns the arms and cameras in the base frame; elements are named like the joints.

    Actuators are in the order of the joints of the embodiment. The control of a revolute joint is
    its target in rad, that of a gripper is the travel of each finger in metres (`FINGERS`). Sites
    such as `arm/gripper` are the gripper frames (TCP).
    """
    root = mjcf.RootElement(model=embodiment.name)
    root.compiler.angle = "radian"
    root.compiler.autolimits = True
    # Other integrators do not include the damping of the drives and become unstable.
    root.option.integrator = "implicitfast"
    for chain in embodiment.chains:
        frame = root.attach(_arm(embodiment, chain))
        frame.pos = chain.T_base_root[:3, 3]
        frame.quat = quaternion(chain.T_base_root[:3, :3])
    for mount in embodiment.cameras:
        if mount.parent == "world":
            add_camera(root.worldbody, mount, pose())
    return root


def _arm(embodiment: Embodiment, chain: Chain) -> mjcf.RootElement:
    model = mjcf.RootElement(model=chain.arm)
    link = model.worldbody.add("body", name=FOOT)
    add_inertia(link, INERTIAS[0])
    add_stand(link)
    revolute = [embodiment.joints[index] for index in embodiment.revolute_joints[chain.arm]]
    parts = zip(chain.links, revolute, INERTIAS[1:], GAINS, strict=True)
    for part, hinge, inertia, (kp, kv) in parts:
        T = part.T_parent_link
        link = link.add(
            "body", name=part.name, pos=T[:3, 3], quat=quaternion(T[:3, :3]), gravcomp=1
        )
        add_inertia(link, inertia)
        name = hinge.name.split("/")[-1]
        limits = (hinge.lower, hinge.upper)
        drive = {"range": limits, "damping": DAMPING, "armature": ARMATURE}
        link.add("joint", name=name, type="hinge", axis=part.axis, **drive)
        force = (-hinge.effort, hinge.effort)
        model.actuator.add(
            "position", name=name, joint=name, kp=kp, kv=kv, ctrlrange=limits, forcerange=force
        )
    for number, mount in enumerate(embodiment.capsule_mounts):
        if not mount.per_opening.any():
            part = model.find("body", FOOT if mount.link < 0 else f"link_{mount.link + 1}")
            add_capsule(part, mount, chain.arm, ORANGE if number in ORANGE_CAPSULES else SILVER)
    cameras = [mount for mount in embodiment.cameras if mount.parent == chain.arm]
    add_gripper(model, link, chain.arm, cameras)
    return model


def add_stand(foot: mjcf.Element) -> None:
    """Adds the visible column below the foot of an arm."""
    size = (0.11, 0.25)
    foot.add("geom", name=STAND, type="cylinder", size=size, pos=(0, 0, -0.25), rgba=DARK, **SHAPE)


def add_capsule(
    link: mjcf.Element, mount: CapsuleMount, arm: str, colour: tuple[float, ...] = SILVER
) -> None:
    """Adds a capsule to its link that collides with the table and the other arm.

    The capsule of the hand is hidden and collides with props as well.
    """
    hand = mount is HAND_CAPSULE
    # Base and shoulder stand beside the table, below the top of a raised table.
    met = other_arms(arm) | (SCENERY if mount.link > 0 else 0) | (PROP if hand else 0)
    bits = {
        "contype": ARM_BIT[arm],
        "conaffinity": met,
        "group": HIDDEN if hand else DRAWN,
        "mass": 0,
    }
    ends = (*mount.start, *mount.end)
    link.add("geom", type="capsule", fromto=ends, size=(mount.radius,), rgba=colour, **bits)


def add_gripper(
    model: mjcf.RootElement, link: mjcf.Element, arm: str, cameras: Sequence[CameraMount]
) -> None:
    """Adds the gripper, its drive and cameras to a model; its z axis is that of the link.

    The flange is `FLANGE_Z` in front of the link's origin, the gripper frame at `T_LINK_GRIPPER`.
    """
    hand = link.add("body", name="hand", gravcomp=1)
    add_inertia(hand, HAND_INERTIA)
    hand.add("geom", type="box", pos=HAND_INERTIA.com, size=HAND_HALF, rgba=DARK, **SHAPE)
    hand.add(
        "site",
        name="gripper",
        pos=T_LINK_GRIPPER[:3, 3],
        quat=quaternion(T_LINK_GRIPPER[:3, :3]),
        size=(0.005,),
        group=HIDDEN,
    )
    for mount in cameras:
        add_wrist_camera(hand, mount, T_LINK_GRIPPER)
    for side, sign in (("left", 1.0), ("right", -1.0)):
        _add_finger(hand, side, sign, arm)
    couple_fingers(model)
    add_gripper_drive(model, FINGERS)


def add_gripper_drive(model: mjcf.RootElement, fingers: FingerTravel) -> None:
    """Adds the drive of a gripper; its control is the travel of the joint `left_finger`, metres."""
    travel = (fingers.closed, fingers.opened)
    force = (-GRIPPER_FORCE, GRIPPER_FORCE)
    gains = {"kp": FINGER_KP, "kv": FINGER_KV, "ctrlrange": travel, "forcerange": force}
    model.actuator.add("position", name="gripper", joint="left_finger", **gains)


def add_wrist_camera(hand: mjcf.Element, mount: CameraMount, T_hand_gripper: Matrix) -> None:
    """Adds a camera and its visible housing, which is behind its lens, outside of its view."""
    add_camera(hand, mount, T_hand_gripper)
    T_hand_camera = T_hand_gripper @ mount.T_parent_camera
    centre = (T_hand_camera @ (0.0, 0.0, -0.012, 1.0))[:3]
    quat = quaternion(T_hand_camera[:3, :3])
    half = (0.021, 0.021, 0.011)
    hand.add("geom", type="box", pos=centre, quat=quat, size=half, rgba=METAL, **SHAPE)


def _add_finger(hand: mjcf.Element, side: str, sign: float, arm: str) -> None:
    """Adds a bar with a pad, whose face is in the middle of the hand at zero travel."""
    start = FLANGE_Z + HAND_LENGTH
    finger = hand.add("body", name=f"{side}_finger_link", pos=(0, 0, start), gravcomp=1)
    add_inertia(finger, FINGER_INERTIA)
    travel = (FINGERS.closed - 0.001, FINGERS.opened + 0.001)
    finger.add(
        "joint",
        name=f"{side}_finger",
        type="slide",
        axis=(0, sign, 0),
        range=travel,
        damping=40,
        armature=0.2,
    )
    middle = (0, sign * (2 * PAD_HALF[1] + FINGER_HALF[1]), FINGER_HALF[2])
    bits = {**finger_bits(arm), **PAD_CONTACT}
    finger.add(
        "geom", name=f"{side}_finger", type="box", pos=middle, size=FINGER_HALF, rgba=METAL, **bits
    )
    face = (0, sign * PAD_HALF[1], GRIPPER_Z - start)
    finger.add("geom", name=f"{side}_pad", type="box", pos=face, size=PAD_HALF, rgba=PAD, **bits)
