"""The KUKA cell with another arm: built in, from a file, or of MuJoCo Menagerie.

Table, cameras, home pose of the gripper and range of starts are those of the KUKA cell. Masses,
shapes, joints and gains are those of the file. Gravity is compensated, as by a real controller; the
arm does not collide with itself, and its first two links not with the table, beside which they
stand. The pads have the friction of those of the KUKA cell, and the fingers its drive. An arm whose
file names no joint of a gripper gets the gripper of the KUKA cell at its flange.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from xml.etree import ElementTree

import mujoco
import numpy as np
from dm_control import mjcf

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments import iiwa14
from stringline.datasets.embodiments.capsule_fitting import surface_of
from stringline.datasets.embodiments.embodiment import (
    CameraMount,
    CapsuleMount,
    Embodiment,
    FingerTravel,
    JointSpec,
    Vector,
)
from stringline.datasets.embodiments.embodiment_file import (
    EmbodimentFile,
    compile_embodiment,
    moving_joints,
)
from stringline.datasets.embodiments.embodiment_record import EMBODIMENTS
from stringline.datasets.embodiments.embodiment_source import (
    MENAGERIE,
    is_source,
    load_parts,
    menagerie_names,
)
from stringline.datasets.embodiments.iiwa14 import ALONE, IIWA14
from stringline.datasets.embodiments.iiwa14_mjcf import (
    FOOT,
    add_capsule,
    add_gripper,
    add_gripper_drive,
    add_stand,
    add_wrist_camera,
)
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics, OutOfReachError
from stringline.datasets.embodiments.mjcf_parts import (
    ARM_BIT,
    DRAWN,
    HIDDEN,
    PAD_CONTACT,
    PROP,
    SCENERY,
    add_camera,
    finger_bits,
    other_arms,
)
from stringline.datasets.embodiments.model_file import RobotModel
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, quaternion
from stringline.sim.robots.workcells import KUKA_CELL, PadSizes, Workcell

ARM = iiwa14.ALONE
WITH_GRIPPER = "_with_gripper"  # End of the name of an arm with the gripper of the KUKA cell.
SIDES = ("left", "right")
# From the flange, x forwards, to the link at whose z axis the gripper of the KUKA cell is.
T_MOUNT_FLANGE = pose((0.0, 0.0, iiwa14.FLANGE_Z), iiwa14.T_LINK_GRIPPER[:3, :3])
TWO_FINGERS = "a gripper of two fingers that slide by the same way"


@dataclass(frozen=True, eq=False)
class FileArm:
    """An arm from a file.

    Attributes:
        embodiment: Its kinematics, with the gripper that it has here, and with `cameras`.
        fingers: Travel of each finger.
        pads: Sizes of the pads.
        joints: Names of its revolute joints in the file, from the base to the gripper.
        sliders: Names of the joints of both fingers in the file; without, the gripper is ours.
        text: The file's model as MJCF, with the properties of this module.
        T_world_file: (4, 4), pose of the file's world frame in the base frame.
        T_body_last: (4, 4), frame of the last link in its body.
    """

    embodiment: Embodiment
    fingers: FingerTravel
    pads: PadSizes
    joints: tuple[str, ...]
    sliders: tuple[str, ...]
    text: str
    T_world_file: Matrix
    T_body_last: Matrix

    @classmethod
    def of(
        cls, robot: RobotModel, file: EmbodimentFile, cameras: Sequence[CameraMount]
    ) -> "FileArm":
        """Prepares an arm.

        Raises:
            ValueError: It has several arms, no gripper, another kind of gripper or drive, further
                joints, or its model lacks meshes or torque limits.
        """
        _check(robot, file)
        numbers = moving_joints(robot, file, ARM)
        joints = tuple(robot.model.joint(number).name for number in numbers)
        sliders = _sliders(robot, file)
        _check_joints(robot, file, joints, sliders)
        base, T_body_base = robot.frame(file.arms[ARM].base, "base frame")
        rest = robot.positions({})
        T_file_base = pose(rest.xpos[base], rest.xmat[base].reshape(3, 3)) @ T_body_base
        compiled = compile_embodiment(robot, file)
        _check_torques(compiled)
        body = compiled if sliders else _with_gripper(compiled)
        grip = file.arms[ARM].gripper
        assert grip is not None
        return cls(
            replace(body, cameras=tuple(cameras)),
            FingerTravel(grip.closed, grip.open) if sliders else iiwa14.FINGERS,
            _pad_sizes(robot, file, compiled, sliders) if sliders else PadSizes(),
            joints,
            sliders,
            _prepared(robot, joints, sliders),
            file.arms[ARM].pose.matrix @ inverse(T_file_base),
            pose(robot.model.jnt_pos[numbers[-1]]),
        )

    def model(self) -> mjcf.RootElement:
        """Returns the model of arm and cameras in the base frame; see `Workcell`."""
        arm = mjcf.from_xml_string(self.text)
        arm.model = ARM
        # Those of the world count.
        for name in ("option", "size", "visual", "statistic"):
            getattr(arm, name).remove()
        specs = [joint for joint in self.embodiment.joints if joint.kind == "revolute"]
        _set_drives(arm, dict(zip(self.joints, specs, strict=True)))
        last = arm.find("joint", self.joints[-1]).parent
        self._finish_gripper(arm, last)
        foot = arm.worldbody.body[0]
        if (other := arm.find("body", FOOT)) not in (None, foot):
            other.name = f"{FOOT}_of_file"
        foot.name = FOOT
        add_stand(foot)
        root = mjcf.RootElement(model=self.embodiment.name)
        root.compiler.angle = "radian"
        root.compiler.autolimits = True
        root.option.integrator = "implicitfast"
        frame = root.attach(arm)
        frame.pos = self.T_world_file[:3, 3]
        frame.quat = quaternion(self.T_world_file[:3, :3])
        for mount in self.embodiment.cameras:
            if mount.parent == "world":
                add_camera(root.worldbody, mount, pose())
        return root

    def _finish_gripper(self, arm: mjcf.RootElement, last: mjcf.Element) -> None:
        """Names the parts of the gripper as `Workcell` has them, or adds ours to the last link."""
        (chain,) = self.embodiment.chains
        T_body_gripper = self.T_body_last @ chain.T_last_gripper
        cameras = [mount for mount in self.embodiment.cameras if mount.parent == ARM]
        if not self.sliders:
            T = T_body_gripper @ inverse(iiwa14.T_LINK_GRIPPER)
            place = {"pos": T[:3, 3], "quat": quaternion(T[:3, :3])}
            mount = last.add("body", name="gripper_mount", **place)
            add_capsule(mount, iiwa14.HAND_CAPSULE, ARM)
            add_gripper(arm, mount, ARM, cameras)
            return
        for side, name in zip(SIDES, self.sliders, strict=True):
            joint = arm.find("joint", name)
            joint.name = f"{side}_finger"
            pads = [geom for geom in joint.parent.find_all("geom") if geom.contype]
            for number, pad in enumerate(pads):
                pad.name = f"{side}_pad_{number}" if number else f"{side}_pad"
        add_gripper_drive(arm, self.fingers)
        for camera in cameras:
            add_wrist_camera(last, camera, T_body_gripper)


def _check(robot: RobotModel, file: EmbodimentFile) -> None:
    """Checks arms, gripper and meshes."""
    if list(file.arms) != [ARM]:
        raise ValueError(
            f"{file.name} has the arms {', '.join(file.arms)}; allowed in simulation: one arm, "
            f"called {ARM}."
        )
    if robot.urdf:
        raise ValueError(
            f"{file.name} is a URDF, which has no drives; allowed in simulation: MJCF with a "
            "position actuator for each joint."
        )
    if file.arms[ARM].gripper is None:
        raise ValueError(
            f"{file.name} has no gripper; allowed in simulation: {TWO_FINGERS}. To mount that of "
            f"the KUKA cell, let tcp be the flange in the embodiment file, and add arms.{ARM}."
            "gripper: {name: gripper}."
        )
    if robot.missing:
        name, reason = next(iter(robot.missing.items()))
        raise ValueError(
            f"{robot.path} lacks {len(robot.missing)} meshes, such as {name}, which {reason}; the "
            "simulation needs all of them."
        )


def _sliders(robot: RobotModel, file: EmbodimentFile) -> tuple[str, ...]:
    """Returns the names of the joints of both fingers; none if the model has no gripper."""
    grip = file.arms[ARM].gripper
    if grip is None or grip.joint is None:
        return ()
    pairs = [(name, follower.leader) for name, follower in robot.followers.items()]
    found = next((pair for pair in pairs if grip.joint in pair), (grip.joint,))
    kinds = [robot.model.jnt_type[robot.joint(name)] for name in found]
    factors = [robot.followers[name].factor for name in found if name in robot.followers]
    slide = mujoco.mjtJoint.mjJNT_SLIDE
    if kinds != [slide, slide] or factors != [1.0] or grip.closed >= grip.open:
        raise ValueError(
            f"The gripper of {file.name}, joint {grip.joint!r}, is of another kind; allowed in "
            f"simulation: {TWO_FINGERS} and is larger when it is open, or a model without a "
            f"gripper and arms.{ARM}.gripper: {{name: gripper}}, which gets that of the KUKA cell."
        )
    return found


def _check_joints(
    robot: RobotModel, file: EmbodimentFile, joints: Sequence[str], sliders: Sequence[str]
) -> None:
    """Checks that nothing else moves, and that the file has one drive for each joint."""
    model = robot.model
    if others := [name for name in robot.joints if name not in (*joints, *sliders)]:
        raise ValueError(
            f"{robot.path.name} has further joints, {', '.join(others)}; allowed in simulation: "
            "those of one arm and its fingers. Remove them from the model."
        )
    if len(roots := np.flatnonzero(model.body_parentid[1:] == 0)) != 1:
        raise ValueError(
            f"{robot.path.name} has {len(roots)} bodies in its world; allowed in simulation: 1, "
            "the foot of the arm. Remove the others from the model."
        )
    for name in joints:
        drives = [
            number
            for number in range(model.nu)
            if model.actuator_trntype[number] == mujoco.mjtTrn.mjTRN_JOINT
            and model.actuator_trnid[number, 0] == robot.joints[name]
        ]
        position = [
            n for n in drives if model.actuator_biasprm[n, 1] == -model.actuator_gainprm[n, 0]
        ]
        if len(drives) != 1 or not position:
            raise ValueError(
                f"{robot.path.name} has {len(drives)} actuators of the joint {name!r}; allowed in "
                "simulation: one position actuator."
            )


def _check_torques(body: Embodiment) -> None:
    """Checks that each joint has a torque limit."""
    for joint in body.joints:
        if joint.kind == "revolute" and not joint.effort:
            raise ValueError(
                f"The joint {joint.name!r} has no torque limit, which the simulation needs. Add "
                f"joints: {{{joint.name}: {{effort: NM}}}} to the embodiment file."
            )


def _with_gripper(body: Embodiment) -> Embodiment:
    """Returns an embodiment whose gripper frame is the flange, with the gripper of the KUKA."""
    (chain,) = body.chains
    T_last_mount = chain.T_last_gripper @ inverse(T_MOUNT_FLANGE)
    ours = [
        mount
        for mount in iiwa14.CAPSULES
        if mount is iiwa14.HAND_CAPSULE or mount.per_opening.any()
    ]
    turn = T_last_mount[:3, :3].T
    moved = [
        CapsuleMount(
            len(chain.links) - 1,
            mount.start @ turn + T_last_mount[:3, 3],
            mount.end @ turn + T_last_mount[:3, 3],
            mount.radius,
            mount.per_opening @ turn,
        )
        for mount in ours
    ]
    return replace(
        body,
        name=f"{body.name}{WITH_GRIPPER}",
        chains=(replace(chain, T_last_gripper=T_last_mount @ iiwa14.T_LINK_GRIPPER),),
        capsule_mounts=(*body.capsule_mounts, *moved),
    )


def _pad_sizes(
    robot: RobotModel, file: EmbodimentFile, body: Embodiment, sliders: Sequence[str]
) -> PadSizes:
    """Returns the sizes of the model's own pads, from the shapes of its fingers and its hand."""
    grip = file.arms[ARM].gripper
    assert grip is not None
    rest = robot.positions({name: grip.open for name in sliders})
    tcp, T_body_tcp = robot.frame(file.arms[ARM].tcp, "gripper frame (tcp)")
    T_world_tcp = pose(rest.xpos[tcp], rest.xmat[tcp].reshape(3, 3)) @ T_body_tcp
    T_gripper_world = inverse(T_world_tcp @ file.arms[ARM].T_tcp_gripper)
    fingers = {int(robot.model.jnt_bodyid[robot.joints[name]]) for name in sliders}
    hand = {int(robot.model.body_parentid[finger]) for finger in fingers}

    def shape(bodies: set[int]) -> Matrix:
        found = []
        for each in bodies:
            T = T_gripper_world @ pose(rest.xpos[each], rest.xmat[each].reshape(3, 3))
            found.append(surface_of(robot, each) @ T[:3, :3].T + T[:3, 3])
        return np.concatenate(found)

    tips = shape(fingers)
    return PadSizes(
        half_width=float(np.abs(tips[tips[:, 0] > 0, 2]).max()),
        tip=float(tips[:, 0].max()),
        free=float(-shape(hand)[:, 0].max()),
    )


def _prepared(robot: RobotModel, joints: Sequence[str], sliders: Sequence[str]) -> str:
    """Returns the model as MJCF without scenery, with the collisions of a workcell."""
    spec = robot.spec.copy()
    for part in (*spec.lights, *spec.cameras, *spec.keys, *spec.sensors, *spec.worldbody.geoms):
        spec.delete(part)
    # Settings of the reader, which would otherwise hold for the objects, too.
    spec.compiler.boundmass = 0.0
    spec.compiler.boundinertia = 0.0
    spec.compiler.balanceinertia = False
    for body in spec.worldbody.bodies:
        _set_shapes(body, joints, sliders)
    spec.compile()
    return _without_frames(str(spec.to_xml()), robot.path.name)


def _without_frames(text: str, name: str) -> str:
    """Removes empty elements <frame>, which MuJoCo writes for fixed joints of a URDF.

    Raises:
        ValueError: An element has contents: dm_control cannot read it.
    """
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for frame in parent.findall("frame"):
            if len(frame):
                raise ValueError(
                    f"{name} has <frame> elements, which dm_control cannot read; allowed in "
                    "simulation: bodies, geoms and sites with their own pos and quat."
                )
            parent.remove(frame)
    return ElementTree.tostring(root, encoding="unicode")


def _set_shapes(
    body: mujoco.MjsBody,
    joints: Sequence[str],
    sliders: Sequence[str],
    link: int = 0,
    *,
    finger: bool = False,
) -> None:
    """Sets the collisions of a body and of those that hang on it; `link` joints move its parent."""
    own = {joint.name for joint in body.joints}
    link += len(own & set(joints))
    finger = finger or bool(own & set(sliders))
    body.gravcomp = 1.0
    visible = [geom for geom in body.geoms if not (geom.contype or geom.conaffinity)]
    for geom in body.geoms:
        if not (geom.contype or geom.conaffinity):
            geom.group = DRAWN if geom.group < HIDDEN else HIDDEN
            continue
        met = other_arms(ARM) | (SCENERY if link > 1 else 0) | (PROP if link == len(joints) else 0)
        bits: dict[str, object] = {"contype": ARM_BIT[ARM], "conaffinity": met}
        if finger:
            bits = {**finger_bits(ARM), **PAD_CONTACT}
            del bits["mass"]  # The file has the masses.
        for name, value in bits.items():
            given = np.asarray(value, float)
            if given.ndim:
                getattr(geom, name)[: len(given)] = given
            else:
                setattr(geom, name, value)
        geom.group = HIDDEN if visible else DRAWN
    for child in body.bodies:
        _set_shapes(child, joints, sliders, link, finger=finger)


def _set_drives(arm: mjcf.RootElement, joints: dict[str, JointSpec]) -> None:
    """Limits the drives of the joints, by their names in the file, and removes all others."""
    for drive in arm.actuator.all_children():
        joint = drive.joint
        if joint is not None and joint.name in joints:
            spec = joints[joint.name]
            drive.name = joint.name
            drive.ctrlrange = (spec.lower, spec.upper)
            drive.forcerange = (-spec.effort, spec.effort)
            joint.range = (spec.lower, spec.upper)
            continue
        tendon = drive.tendon
        drive.remove()
        if tendon is not None:
            tendon.remove()


OPTION = "task.embodiment"
# Places (x, y) on the table that the gripper must reach from above, metres.
CORNERS = ((0.46, -0.2), (0.46, 0.2), (0.68, -0.2), (0.68, 0.2))
ABOVE_TABLE_M = 0.03
HOME_DECIMALS = 5  # So the home pose of a record does not depend on the processor.
# Share of the velocity limit of the fastest joint that experts use.
SPEED_SHARE = KUKA_CELL.top_speed / float(np.max(IIWA14.velocity_limits[:-1]))


@lru_cache(8)
def arm_cell(source: str) -> Workcell:
    """Returns the KUKA cell with the arm that a text names; see `load_embodiment`.

    An arm without a gripper gets that of the KUKA.

    Raises:
        ValueError: There is no such arm, or the cell cannot have it: it has two arms, no gripper or
            no drives, its files are missing, or it does not reach the objects.
    """
    if source == IIWA14.name:
        return KUKA_CELL
    if source in EMBODIMENTS:
        raise ValueError(
            f"{OPTION} is {source!r}, which has two arms; allowed: one arm, such as {IIWA14.name} "
            f"or {MENAGERIE}ur5e."
        )
    if not is_source(source):
        known = [IIWA14.name, *(f"{MENAGERIE}{name}" for name in menagerie_names())]
        raise unknown_name(OPTION, source, known)
    arm = FileArm.of(*load_parts(source), IIWA14.cameras)
    body = replace(arm.embodiment, home=_home(arm.embodiment))
    fastest = max(joint.velocity for joint in body.joints if joint.kind == "revolute")
    return replace(
        KUKA_CELL,
        embodiment=body,
        model=arm.model,
        fingers=arm.fingers,
        pads=arm.pads,
        source=source,
        top_speed=min(KUKA_CELL.top_speed, SPEED_SHARE * fastest),
    )


def _home(body: Embodiment) -> Vector:
    """Returns the joints (J,) with the gripper at the home pose of the KUKA.

    Raises:
        ValueError: The arm does not reach it, or a corner of the objects' places.
    """
    T_home = IIWA14.forward_kinematics(IIWA14.home)[ALONE]
    kinematics = InverseKinematics(body)
    goals = [T_home, *(pose((x, y, ABOVE_TABLE_M), T_home[:3, :3]) for x, y in CORNERS)]
    q = body.home
    found: list[Vector] = []
    for goal in goals:
        try:
            q = kinematics.solve({ALONE: goal}, found[0] if found else q)
        except OutOfReachError as error:
            raise ValueError(
                f"{body.name} cannot do the tasks of the KUKA cell, because its gripper does not "
                f"reach {np.round(goal[:3, 3], 2).tolist()} m, pointing down, from its "
                f"home; choose a bent pose near it as arms.{ARM}.home. {error}"
            ) from error
        found.append(q)
    return np.round(found[0], HOME_DECIMALS)
