"""What a body is: arms as chains of hinges, grippers, cameras and the capsules that enclose its links.

Everything is in the embodiment's base frame, metres and radians; grippers count as opening from 0
(closed) to 1 (open).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.contract.contract import ActionDimension, Camera, Contract
from stringline.datasets.embodiments.transforms import Matrix, rotation_about

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class JointSpec:
    """One entry of the joint vector, and of the action.

    Attributes:
        name: Unique, such as `left/waist`.
        arm: The arm it belongs to.
        kind: `hinge` (rad) or `gripper` (opening, 0 to 1).
        lower: Smallest position.
        upper: Largest position.
        velocity: Largest speed, rad/s or openings/s.
        effort: Largest torque in Nm; force in N of a gripper.
    """

    name: str
    arm: str
    kind: Literal["hinge", "gripper"]
    lower: float
    upper: float
    velocity: float
    effort: float


@dataclass(frozen=True, eq=False)
class Link:
    """A link that turns by one hinge.

    Attributes:
        name: Such as `upper_arm`.
        T_parent_link: Pose (4, 4) in the link before it, at angle 0.
        axis: Unit vector (3,) of the hinge, in the link's frame.
    """

    name: str
    T_parent_link: Matrix
    axis: Vector


@dataclass(frozen=True, eq=False)
class Chain:
    """An arm: links in order, one for each hinge of that arm in the joint vector.

    Attributes:
        arm: Name.
        T_base_root: Pose (4, 4) of its foot in the base frame.
        links: From the foot to the hand.
        T_last_gripper: Pose (4, 4) of the gripper (TCP, between the pads, x forward) in the last
            link.
    """

    arm: str
    T_base_root: Matrix
    links: tuple[Link, ...]
    T_last_gripper: Matrix

    @cached_property
    def axes(self) -> Vector:
        """Unit vectors (links, 3) of the hinges, each in its link's frame."""
        return np.stack([link.axis for link in self.links])

    @cached_property
    def T_parent_link(self) -> Matrix:
        """Poses (links, 4, 4) of the links in those before them, at angle 0."""
        return np.stack([link.T_parent_link for link in self.links])


@dataclass(frozen=True, eq=False)
class CameraMount:
    """Where a camera sits.

    Attributes:
        name: As in the contract.
        parent: `world`, or the arm whose gripper (TCP) frame carries it.
        T_parent_camera: Pose (4, 4) of the camera (x right, y down, z forward) in the parent's
            frame.
        fovy_deg: Vertical field of view of the stored image.
    """

    name: str
    parent: str
    T_parent_camera: Matrix
    fovy_deg: float


@dataclass(frozen=True, eq=False)
class CapsuleMount:
    """A capsule fixed to a link of every arm.

    Attributes:
        link: Index of the link; -1 is the foot.
        start: One end (3,) of the axis in the link's frame.
        end: The other end.
        radius: In metres.
        per_opening: How far (3,) both ends move while the gripper goes from closed to open.
    """

    link: int
    start: Vector
    end: Vector
    radius: float
    per_opening: Vector


@dataclass(frozen=True, eq=False)
class Capsule:
    """A capsule in the base frame: axis from `start` (3,) to `end` (3,), `radius` in metres."""

    arm: str
    start: Vector
    end: Vector
    radius: float


@dataclass(frozen=True, eq=False)
class Embodiment:
    """A body with its kinematics; the order of `joints` is the order of states and actions.

    Attributes:
        name: Such as `aloha`.
        base_frame: In words.
        joints: J entries, hinges of an arm in the order of its links.
        chains: One for each arm.
        cameras: Mounts of all cameras.
        capsule_mounts: Enclose the links of each arm.
        home: Joint vector (J,) to start from.
    """

    name: str
    base_frame: str
    joints: tuple[JointSpec, ...]
    chains: tuple[Chain, ...]
    cameras: tuple[CameraMount, ...]
    capsule_mounts: tuple[CapsuleMount, ...]
    home: Vector

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return tuple(chain.arm for chain in self.chains)

    @cached_property
    def lower(self) -> Vector:
        """Smallest joint positions (J,)."""
        return np.array([joint.lower for joint in self.joints])

    @cached_property
    def upper(self) -> Vector:
        """Largest joint positions (J,)."""
        return np.array([joint.upper for joint in self.joints])

    @cached_property
    def velocity_limits(self) -> Vector:
        """Largest joint speeds (J,)."""
        return np.array([joint.velocity for joint in self.joints])

    @cached_property
    def hinges(self) -> Mapping[str, NDArray[np.int64]]:
        """For each arm the places of its hinges in the joint vector."""
        return {
            arm: np.array(
                [
                    i
                    for i, joint in enumerate(self.joints)
                    if joint.arm == arm and joint.kind == "hinge"
                ]
            )
            for arm in self.arms
        }

    @cached_property
    def grippers(self) -> Mapping[str, int]:
        """For each arm the place of its gripper in the joint vector."""
        return {joint.arm: i for i, joint in enumerate(self.joints) if joint.kind == "gripper"}

    def forward_kinematics(self, q: Vector) -> dict[str, Matrix]:
        """Returns for each arm the pose of its gripper in the base frame.

        Args:
            q: Joint positions (..., J).

        Returns:
            `T_base_gripper` (..., 4, 4), float64, by arm.
        """
        return {
            chain.arm: self._link_poses(chain, q)[-1] @ chain.T_last_gripper
            for chain in self.chains
        }

    def camera_poses(self, q: Vector) -> dict[str, Matrix]:
        """Returns `T_base_camera` (4, 4) of each camera for the joint vector `q` (J,)."""
        parents: dict[str, Matrix] = {"world": np.eye(4), **self.forward_kinematics(q)}
        return {mount.name: parents[mount.parent] @ mount.T_parent_camera for mount in self.cameras}

    def capsules(self, q: Vector) -> list[Capsule]:
        """Returns the capsules that enclose the links at the joint vector `q` (J,), in the base frame."""
        return [
            Capsule(arm, start, end, mount.radius)
            for arm, axes in zip(self.arms, self.capsule_axes(q), strict=True)
            for (start, end), mount in zip(axes, self.capsule_mounts, strict=True)
        ]

    def capsule_axes(self, q: Vector) -> Vector:
        """Returns the two ends (..., arms, mounts, 2, 3) of every capsule's axis in the base frame.

        Args:
            q: Joint positions (..., J).
        """
        q = np.asarray(q, dtype=np.float64)
        ends, per_opening, links = self._mounted
        axes = []
        for chain in self.chains:
            T_base_link = np.stack(self._link_poses(chain, q), axis=-3)[..., links, :, :]
            opening = (
                q[..., self.grippers[chain.arm], None, None, None]
                if chain.arm in self.grippers
                else 0.0
            )
            turned = (ends + opening * per_opening) @ T_base_link[..., :3, :3].swapaxes(-1, -2)
            axes.append(turned + T_base_link[..., None, :3, 3])
        return np.stack(axes, axis=-4)

    @cached_property
    def _mounted(self) -> tuple[Vector, Vector, NDArray[np.int64]]:
        """Ends (mounts, 2, 3) and their way per opening (mounts, 1, 3) in the frames of links, and those; the foot is 0."""
        ends = np.array([(mount.start, mount.end) for mount in self.capsule_mounts]).reshape(
            -1, 2, 3
        )
        per_opening = np.array([mount.per_opening for mount in self.capsule_mounts]).reshape(
            -1, 1, 3
        )
        return (
            ends,
            per_opening,
            np.array([mount.link + 1 for mount in self.capsule_mounts], dtype=np.int64),
        )

    def contract(self, cameras: Sequence[Camera], control_hz: float) -> Contract:
        """Returns the contract of absolute joint targets on this body.

        Raises:
            ValueError: The body has no camera of such a name.
        """
        known = [mount.name for mount in self.cameras]
        for camera in cameras:
            if camera.name not in known:
                raise unknown_name("camera", camera.name, known)
        names = tuple(joint.name for joint in self.joints)
        action = tuple(
            ActionDimension(
                joint.name,
                joint.arm,
                "gripper" if joint.kind == "gripper" else "joint",
                "absolute",
                _unit(joint),
            )
            for joint in self.joints
        )
        return Contract(
            self.name, self.base_frame, control_hz, tuple(cameras), names, self.arms, action
        )

    def _link_poses(self, chain: Chain, q: Vector) -> list[Matrix]:
        """Returns the poses (..., 4, 4) of the foot and of every link in the base frame."""
        q = np.asarray(q, dtype=np.float64)
        if q.shape[-1] != len(self.joints):
            raise ValueError(
                f"{self.name} has {len(self.joints)} joints (last axis); got shape {q.shape}."
            )
        angles = q[..., self.hinges[chain.arm]]
        turns = np.zeros((*angles.shape, 4, 4))
        turns[..., :3, :3] = rotation_about(chain.axes, angles)
        turns[..., 3, 3] = 1.0
        steps = chain.T_parent_link @ turns
        poses = [np.broadcast_to(chain.T_base_root, (*q.shape[:-1], 4, 4))]
        for index in range(len(chain.links)):
            poses.append(poses[-1] @ steps[..., index, :, :])
        return poses


def _unit(joint: JointSpec) -> str:
    return "opening" if joint.kind == "gripper" else "rad"
