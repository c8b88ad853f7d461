"""The bare iiwa 14 as MJCF, alone or two of them, from primitives: true kinematics, masses and torques, no meshes.

Differences from the published model: gains are ours; gravity of the arm is compensated, as by the
real controller; torques are bounded by those of the axes; links are capsules that span its
collision spheres, and an arm does not collide with itself.
"""

from dm_control import mjcf

from stringline.datasets.embodiments.embodiment import CapsuleMount, Chain, Embodiment
from stringline.datasets.embodiments.iiwa14 import (
    FINGERS,
    FLANGE_Z,
    GRIPPER_FORCE,
    GRIPPER_Z,
    HAND_CAPSULE,
    HAND_LENGTH,
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
# Of each axis, Nm/rad and Nm s/rad. The published 2000 and 200 chatter where the wrist is at the
# limit of its torque.
GAINS = ((4000, 250), (4000, 250), (3000, 150), (3000, 150), (1000, 40), (1000, 40), (1000, 40))
# Nm s/rad; kg m^2, as of rotors behind gears; both of every axis.
DAMPING = 0.5
ARMATURE = 0.1
FINGER_KP = 2500.0
FINGER_KV = 150.0
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
# A box of 50 x 146 x 73 mm and of 1.2 kg, and two bars of 80 g.
HAND_HALF = (0.025, 0.073, HAND_LENGTH / 2)
HAND_INERTIA = Inertia(1.2, (0, 0, FLANGE_Z + HAND_LENGTH / 2), (0.00266, 0.00078, 0.00238))
FINGER_INERTIA = Inertia(0.08, (0, 0, 0.04), (5e-5, 5e-5, 5e-6))
FINGER_HALF = (0.012, 0.005, 0.043)
PAD_HALF = (0.013, 0.004, 0.018)
ORANGE_CAPSULES = (3, 5, 7)  # Of the capsules: the covers of the joints between the long links.


def bare_arms_mjcf(body: Embodiment) -> mjcf.RootElement:
    """Returns the arms and cameras of a body in its base frame; elements are named like the joints, `arm/a1`.

    Actuators are in the order of the body's joints. A hinge's control is its target in rad, a
    gripper's is the travel of each finger in metres (`FINGERS`). Sites such as `arm/gripper` are
    the gripper frames (TCP).
    """
    root = mjcf.RootElement(model=body.name)
    root.compiler.angle = "radian"
    root.compiler.autolimits = True
    root.option.integrator = "implicitfast"  # Others do not see that the drives damp, and blow up.
    for chain in body.chains:
        frame = root.attach(_arm(body, chain))
        frame.pos = chain.T_base_root[:3, 3]
        frame.quat = quaternion(chain.T_base_root[:3, :3])
    for mount in body.cameras:
        if mount.parent == "world":
            add_camera(root.worldbody, mount, pose())
    return root


def _arm(body: Embodiment, chain: Chain) -> mjcf.RootElement:
    model = mjcf.RootElement(model=chain.arm)
    link = model.worldbody.add("body", name=FOOT)
    add_inertia(link, INERTIAS[0])
    stand = {"contype": 0, "conaffinity": 0, "group": DRAWN, "mass": 0}
    link.add(
        "geom",
        name=STAND,
        type="cylinder",
        size=(0.11, 0.25),
        pos=(0, 0, -0.25),
        rgba=DARK,
        **stand,
    )
    hinges = [body.joints[place] for place in body.hinges[chain.arm]]
    for part, hinge, inertia, (kp, kv) in zip(
        chain.links, hinges, INERTIAS[1:], GAINS, strict=True
    ):
        T = part.T_parent_link
        link = link.add(
            "body", name=part.name, pos=T[:3, 3], quat=quaternion(T[:3, :3]), gravcomp=1
        )
        add_inertia(link, inertia)
        name = hinge.name.split("/")[-1]
        limits = (hinge.lower, hinge.upper)
        link.add(
            "joint",
            name=name,
            type="hinge",
            axis=part.axis,
            range=limits,
            damping=DAMPING,
            armature=ARMATURE,
        )
        force = (-hinge.effort, hinge.effort)
        model.actuator.add(
            "position", name=name, joint=name, kp=kp, kv=kv, ctrlrange=limits, forcerange=force
        )
    for number, mount in enumerate(body.capsule_mounts):
        if not mount.per_opening.any():
            _add_capsule(model, mount, chain.arm, ORANGE if number in ORANGE_CAPSULES else SILVER)
    _add_gripper(model, link, chain, body)
    return model


def _add_capsule(
    model: mjcf.RootElement, mount: CapsuleMount, arm: str, colour: tuple[float, ...]
) -> None:
    """Adds a capsule that keeps a link off the table and off the other arm; that of the hand is hidden, and meets props too."""
    link = model.find("body", FOOT if mount.link < 0 else f"link_{mount.link + 1}")
    hand = mount is HAND_CAPSULE
    # Foot and shoulder stand beside the table, and below its top when that is raised.
    met = other_arms(arm) | (SCENERY if mount.link > 0 else 0) | (PROP if hand else 0)
    bits = {
        "contype": ARM_BIT[arm],
        "conaffinity": met,
        "group": HIDDEN if hand else DRAWN,
        "mass": 0,
    }
    ends = (*mount.start, *mount.end)
    link.add("geom", type="capsule", fromto=ends, size=(mount.radius,), rgba=colour, **bits)


def _add_gripper(
    model: mjcf.RootElement, link: mjcf.Element, chain: Chain, body: Embodiment
) -> None:
    T_link_gripper = chain.T_last_gripper
    hand = link.add("body", name="hand", gravcomp=1)
    add_inertia(hand, HAND_INERTIA)
    drawn = {"contype": 0, "conaffinity": 0, "group": DRAWN, "mass": 0}
    hand.add("geom", type="box", pos=HAND_INERTIA.com, size=HAND_HALF, rgba=DARK, **drawn)
    hand.add(
        "site",
        name="gripper",
        pos=T_link_gripper[:3, 3],
        quat=quaternion(T_link_gripper[:3, :3]),
        size=(0.005,),
        group=HIDDEN,
    )
    for mount in body.cameras:
        if mount.parent == chain.arm:
            add_camera(hand, mount, T_link_gripper)
            T_camera = T_link_gripper @ mount.T_parent_camera
            _add_housing(hand, T_camera)
    for side, sign in (("left", 1.0), ("right", -1.0)):
        _add_finger(hand, side, sign, chain.arm)
    couple_fingers(model)
    travel = (FINGERS.closed, FINGERS.opened)
    force = (-GRIPPER_FORCE, GRIPPER_FORCE)
    gains = {"kp": FINGER_KP, "kv": FINGER_KV, "ctrlrange": travel, "forcerange": force}
    model.actuator.add("position", name="gripper", joint="left_finger", **gains)


def _add_housing(hand: mjcf.Element, T_hand_camera: Matrix) -> None:
    """Draws a camera's body behind its lens, where it does not see it."""
    centre = T_hand_camera @ (0.0, 0.0, -0.012, 1.0)
    look = {"contype": 0, "conaffinity": 0, "group": DRAWN, "mass": 0, "rgba": METAL}
    turn = quaternion(T_hand_camera[:3, :3])
    hand.add("geom", type="box", pos=centre[:3], quat=turn, size=(0.021, 0.021, 0.011), **look)


def _add_finger(hand: mjcf.Element, side: str, sign: float, arm: str) -> None:
    """A bar and at its end a pad, whose face is at the middle of the hand when the finger has not travelled."""
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
