"""Embodiments: arms as chains of joints, grippers, cameras, and capsules that enclose the links.

Units are metres and radians in the base frame of the embodiment; the position of a gripper is its
opening from 0 (closed) to 1 (open). `FingerTravel` converts between the travel of the fingers, the
gap of the pads and the opening.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import ActionDimension, Camera, Contract
from stringline.datasets.embodiments.transforms import Matrix, rotation_about


@dataclass(frozen=True)
class FingerTravel:
    """The range of a finger; the opening is linear in the travel, and so in the gap.

    Attributes:
        closed: Travel of one finger in metres at opening 0, where the pads meet.
        opened: Travel of one finger in metres at opening 1.
    """

    closed: float
    opened: float

    def travel(self, opening: ArrayLike) -> NDArray[np.float64]:
        """Returns the travel (...) of one finger in metres at openings (...)."""
        return np.asarray(
            self.closed + (self.opened - self.closed) * np.asarray(opening, dtype=np.float64)
        )

    def opening(self, travel: ArrayLike) -> NDArray[np.float64]:
        """Returns openings (...) at the travel (...) of one finger in metres."""
        return np.asarray(
            (np.asarray(travel, dtype=np.float64) - self.closed) / (self.opened - self.closed)
        )

    def gap(self, opening: ArrayLike) -> NDArray[np.float64]:
        """Returns the gap between the pads (...) in metres at openings (...)."""
        return 2 * (self.travel(opening) - self.closed)

    @property
    def openings_per_metre(self) -> float:
        """Change of the opening per metre of travel of one finger."""
        return float(self.opening(1.0) - self.opening(0.0))


Vector = NDArray[np.float64]
"""A one-dimensional array of float64."""


@dataclass(frozen=True)
class JointSpec:
    """One entry of the joint vector and of the action.

    Attributes:
        name: Unique name, such as `left/waist`.
        arm: Name of the arm.
        kind: `revolute` (rad) or `gripper` (opening, 0 to 1).
        lower: Lower position limit.
        upper: Upper position limit.
        velocity: Speed limit, rad/s or openings/s.
        effort: Torque limit in Nm; for a gripper the limit of the sum of its pads' forces in N.
    """

    name: str
    arm: str
    kind: Literal["revolute", "gripper"]
    lower: float
    upper: float
    velocity: float
    effort: float


@dataclass(frozen=True, eq=False)
class Link:
    """A link with the revolute joint that moves it.

    Attributes:
        name: Name, such as `upper_arm`.
        T_parent_link: Pose (4, 4) in the frame of the parent link, at angle 0.
        axis: Unit vector (3,) of the revolute joint, in the frame of the link.
    """

    name: str
    T_parent_link: Matrix
    axis: Vector


@dataclass(frozen=True, eq=False)
class Chain:
    """An arm as a chain of links, one for each revolute joint of the arm in the joint vector.

    Attributes:
        arm: Name.
        T_base_root: Pose (4, 4) of the root in the base frame.
        links: Links from the root to the hand.
        T_last_gripper: Pose (4, 4) of the gripper (TCP, between the pads, x forward) in the frame
            of the last link.
    """

    arm: str
    T_base_root: Matrix
    links: tuple[Link, ...]
    T_last_gripper: Matrix

    @cached_property
    def axes(self) -> Vector:
        """Unit vectors (links, 3) of the revolute joints in the frames of their links."""
        return np.stack([link.axis for link in self.links])

    @cached_property
    def T_parent_link(self) -> Matrix:
        """Poses (links, 4, 4) of the links in the frames of their parents, at angle 0."""
        return np.stack([link.T_parent_link for link in self.links])


@dataclass(frozen=True, eq=False)
class CameraMount:
    """The mount of a camera.

    Attributes:
        name: Name in the contract.
        parent: `world`, or the arm whose gripper (TCP) frame carries the camera.
        T_parent_camera: Pose (4, 4) of the camera (x right, y down, z forward) in the parent frame.
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
        link: Index of the link; -1 is the root.
        start: First end (3,) of the axis in the frame of the link.
        end: Second end (3,).
        radius: Radius in metres.
        per_opening: Displacement (3,) of both ends from a closed to an open gripper.
    """

    link: int
    start: Vector
    end: Vector
    radius: float
    per_opening: Vector

    @classmethod
    def of(
        cls,
        link: int,
        start: ArrayLike,
        end: ArrayLike,
        radius: float,
        per_opening: ArrayLike = (0.0, 0.0, 0.0),
    ) -> Self:
        """Builds a capsule from sequences of numbers."""
        vectors = [np.asarray(vector, float) for vector in (start, end, per_opening)]
        return cls(link, vectors[0], vectors[1], radius, vectors[2])


@dataclass(frozen=True, eq=False)
class Capsule:
    """A capsule in the base frame: axis from `start` (3,) to `end` (3,), `radius` in metres."""

    arm: str
    start: Vector
    end: Vector
    radius: float


@dataclass(frozen=True, eq=False)
class Embodiment:
    """A robot with its kinematics; the order of `joints` is the order of states and actions.

    Attributes:
        name: Name, such as `aloha`.
        base_frame: Description of the base frame.
        joints: J entries; the revolute joints of an arm are in the order of its links.
        chains: One chain for each arm.
        cameras: Mounts of all cameras.
        capsule_mounts: Capsules that enclose the links of each arm.
        home: Initial joint vector (J,).
        enclosing_mounts: Further capsules of each arm, for the safety filter only: with
            `capsule_mounts` they contain the published meshes.
    """

    name: str
    base_frame: str
    joints: tuple[JointSpec, ...]
    chains: tuple[Chain, ...]
    cameras: tuple[CameraMount, ...]
    capsule_mounts: tuple[CapsuleMount, ...]
    home: Vector
    enclosing_mounts: tuple[CapsuleMount, ...] = ()

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return tuple(chain.arm for chain in self.chains)

    @cached_property
    def lower(self) -> Vector:
        """Lower joint limits (J,)."""
        return np.array([joint.lower for joint in self.joints])

    @cached_property
    def upper(self) -> Vector:
        """Upper joint limits (J,)."""
        return np.array([joint.upper for joint in self.joints])

    @cached_property
    def velocity_limits(self) -> Vector:
        """Speed limits of the joints (J,)."""
        return np.array([joint.velocity for joint in self.joints])

    @cached_property
    def revolute_joints(self) -> Mapping[str, NDArray[np.int64]]:
        """Indices of the revolute joints of each arm in the joint vector."""
        found: dict[str, list[int]] = {arm: [] for arm in self.arms}
        for index, joint in enumerate(self.joints):
            if joint.kind == "revolute" and joint.arm in found:
                found[joint.arm].append(index)
        return {arm: np.array(indices) for arm, indices in found.items()}

    @cached_property
    def grippers(self) -> Mapping[str, int]:
        """Index of the gripper of each arm in the joint vector."""
        return {joint.arm: i for i, joint in enumerate(self.joints) if joint.kind == "gripper"}

    def forward_kinematics(self, q: Vector) -> dict[str, Matrix]:
        """Returns `T_base_gripper` (..., 4, 4) of each arm at joint positions `q` (..., J)."""
        return {
            chain.arm: self.link_poses(chain, q)[-1] @ chain.T_last_gripper for chain in self.chains
        }

    def camera_poses(self, q: Vector) -> dict[str, Matrix]:
        """Returns `T_base_camera` (4, 4) of each camera at joint positions `q` (J,)."""
        parents: dict[str, Matrix] = {"world": np.eye(4), **self.forward_kinematics(q)}
        return {mount.name: parents[mount.parent] @ mount.T_parent_camera for mount in self.cameras}

    def capsules(self, q: Vector) -> list[Capsule]:
        """Returns the capsules around the links at joint positions `q` (J,), in the base frame."""
        return [
            Capsule(arm, start, end, mount.radius)
            for arm, axes in zip(self.arms, self.capsule_axes(q), strict=True)
            for (start, end), mount in zip(axes, self.capsule_mounts, strict=True)
        ]

    def capsule_axes(self, q: Vector) -> Vector:
        """Returns the ends (..., arms, mounts, 2, 3) of the axes of all capsules in the base frame.

        Args:
            q: Joint positions (..., J).
        """
        q = np.asarray(q, dtype=np.float64)
        ends, per_opening, links = self._mounted
        axes = []
        for chain in self.chains:
            T_base_link = np.stack(self.link_poses(chain, q), axis=-3)[..., links, :, :]
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
        """Ends (mounts, 2, 3), displacements per opening (mounts, 1, 3), and links (0: root)."""
        mounts = self.capsule_mounts
        ends = np.array([(mount.start, mount.end) for mount in mounts]).reshape(-1, 2, 3)
        per_opening = np.array([mount.per_opening for mount in mounts]).reshape(-1, 1, 3)
        return ends, per_opening, np.array([mount.link + 1 for mount in mounts], dtype=np.int64)

    def contract(self, cameras: Sequence[Camera], control_hz: float) -> Contract:
        """Returns the contract of absolute joint targets for this embodiment.

        Raises:
            ValueError: A camera does not exist.
        """
        known = [mount.name for mount in self.cameras]
        for camera in cameras:
            if camera.name not in known:
                raise unknown_name("camera", camera.name, known)
        names = tuple(joint.name for joint in self.joints)
        action = tuple(
            ActionDimension(joint.name, joint.arm, "gripper", "absolute", "opening")
            if joint.kind == "gripper"
            else ActionDimension(joint.name, joint.arm, "joint", "absolute", "rad")
            for joint in self.joints
        )
        return Contract(
            self.name, self.base_frame, control_hz, tuple(cameras), names, self.arms, action
        )

    def link_poses(self, chain: Chain, q: Vector) -> list[Matrix]:
        """Returns the poses (..., 4, 4) of the root and of every link in the base frame."""
        q = np.asarray(q, dtype=np.float64)
        if q.shape[-1] != len(self.joints):
            raise ValueError(
                f"{self.name} has {len(self.joints)} joints (last axis); got shape {q.shape}."
            )
        angles = q[..., self.revolute_joints[chain.arm]]
        turns = np.zeros((*angles.shape, 4, 4))
        turns[..., :3, :3] = rotation_about(chain.axes, angles)
        turns[..., 3, 3] = 1.0
        steps = chain.T_parent_link @ turns
        poses = [np.broadcast_to(chain.T_base_root, (*q.shape[:-1], 4, 4))]
        for index in range(len(chain.links)):
            poses.append(poses[-1] @ steps[..., index, :, :])
        return poses
