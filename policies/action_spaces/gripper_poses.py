"""Actions as gripper poses relative to the measured ones, solved by inverse kinematics.

The forward kinematics of batches runs in torch. Rotations are six numbers, the first two columns
of their matrices: Zhou et al., On the Continuity of Rotation Representations in Neural Networks,
CVPR 2019, arXiv 1812.07035.
"""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stringline.datasets.contract.argument_checks import COUNT, POSITIVE, unknown_name
from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.embodiment import Chain, Embodiment, Vector
from stringline.datasets.embodiments.embodiment_record import EMBODIMENTS, embodiment_of
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics
from stringline.policies.action_spaces.space import ActionSpace


class ForwardKinematics:
    """Computes the poses of the grippers of an embodiment.

    Matrices are multiplied by products and sums: a matmul on a GPU may be rounded to TF32, which is
    half a millimetre here.
    """

    def __init__(self, embodiment: Embodiment) -> None:
        self._arms = [
            _Arm(chain, embodiment.revolute_joints[chain.arm].tolist())
            for chain in embodiment.chains
        ]

    def __call__(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the poses of the grippers in the base frame, of joints q (..., J), in their type.

        Rotations are (..., arms, 3, 3) and positions (..., arms, 3), in metres.
        """
        rotations, positions = zip(*(arm(q) for arm in self._arms), strict=True)
        return torch.stack(rotations, dim=-3), torch.stack(positions, dim=-2)


class _Arm:
    """One chain. Its tables are numpy's, since not every device has double precision."""

    def __init__(self, chain: Chain, revolute: Sequence[int]) -> None:
        self._revolute = list(revolute)
        self._fixed = np.stack(
            [chain.T_base_root, *(link.T_parent_link for link in chain.links), chain.T_last_gripper]
        )
        crosses = np.stack([np.cross(np.eye(3), link.axis) for link in chain.links])
        self._rodrigues = np.stack([crosses, crosses @ crosses])

    def __call__(self, q: Tensor) -> tuple[Tensor, Tensor]:
        one, fixed, (first, second) = (
            torch.as_tensor(table, dtype=q.dtype).to(q.device, non_blocking=True)
            for table in (np.eye(3), self._fixed, self._rodrigues)
        )
        rotation, position = _parts(fixed[0])
        for number, index in enumerate(self._revolute):
            angle = q[..., index, None, None]
            turn = (
                one + angle.sin() * first[number] + (1 - angle.cos()) * second[number]
            )  # Rodrigues' formula.
            rotation, position = compose(rotation, position, *_parts(fixed[number + 1]))
            rotation = product(rotation, turn)
        return compose(rotation, position, *_parts(fixed[-1]))


def _parts(transform: Tensor) -> tuple[Tensor, Tensor]:
    return transform[..., :3, :3], transform[..., :3, 3]


def product(a: Tensor, b: Tensor) -> Tensor:
    """Returns the products of matrices (..., 3, 3)."""
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(dim=-2)


def rotated(rotation: Tensor, vector: Tensor) -> Tensor:
    """Rotates vectors (..., 3) by rotations (..., 3, 3)."""
    return (rotation * vector.unsqueeze(-2)).sum(dim=-1)


def compose(
    rotation: Tensor, position: Tensor, inner: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the transform (rotation, position) times the transform (inner, offset)."""
    return product(rotation, inner), position + rotated(rotation, offset)


def relative_to(
    rotation: Tensor, position: Tensor, inner: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the inverse of (rotation, position) times the transform (inner, offset)."""
    back = rotation.mT
    return product(back, inner), rotated(back, offset - position)


SMALL = 1e-6


def six_numbers(rotation: Tensor) -> Tensor:
    """Returns the first two columns of rotation matrices (..., 3, 3), (..., 6)."""
    return torch.cat((rotation[..., 0], rotation[..., 1]), dim=-1)


def rotation_of(six: Tensor) -> Tensor:
    """Returns rotation matrices (..., 3, 3) of six numbers (..., 6), by Gram-Schmidt.

    It is defined for every input: a column shorter than 1e-6, or one parallel to the other, is
    replaced by an axis.
    """
    first = six[..., :3]
    second = six[..., 3:]
    x, y, z = torch.eye(3, dtype=six.dtype, device=six.device)
    first = _unit(first, x)
    aside = torch.where(first[..., :1].abs() < 0.9, x, y).expand_as(first)  # Never along `first`.
    second = _unit(_perpendicular(second, first), _unit(_perpendicular(aside, first), z))
    return torch.stack((first, second, torch.linalg.cross(first, second)), dim=-1)


def _perpendicular(vector: Tensor, to: Tensor) -> Tensor:
    return vector - (vector * to).sum(dim=-1, keepdim=True) * to


def _unit(vector: Tensor, otherwise: Tensor) -> Tensor:
    length = vector.norm(dim=-1, keepdim=True)
    return torch.where(length > SMALL, vector / length.clamp(min=SMALL), otherwise)


logger = logging.getLogger(__name__)

POSE = 9  # Metres along x, y and z, and six numbers of a rotation.


class GripperPoses(ActionSpace):
    """The pose of each gripper, in the frame of the measured gripper.

    Nine numbers per arm, position in metres and six numbers of a rotation
    (`six_numbers`), then the absolute opening of its gripper, relative to the
    measurement at the time of the observation. Commanded and measured poses come from the
    kinematics of the joints, so nothing depends on the base frame: it may be moved and rotated.

    Each pose of a chunk is solved from the joints of the previous one, within their limits. An
    unreachable pose is replaced by the nearest one found, with a warning about its distance:
    generated poses are slightly off everywhere, also at the border of the workspace, and an error
    would end a good episode. The safety filter of the robot checks all commands.
    """

    name = "gripper_poses"

    def __init__(
        self,
        *,
        contract: Contract,
        tolerance: float = 1e-3,
        first_iterations: int = 60,
        iterations: int = 20,
    ) -> None:
        """Loads the embodiment.

        Args:
            tolerance: Tolerated error of a pose after inverse kinematics, in metres and radians.

        Other Args:
            contract: A contract of an embodiment with known kinematics and one absolute target per
                joint.
            first_iterations: Largest number of iterations for the first pose of a chunk.
            iterations: The same for the other poses, which start at the previous one.
        """
        super().__init__()
        embodiment = embodiment_of(contract)
        if embodiment is None:
            raise unknown_name("embodiment with known kinematics", contract.embodiment, EMBODIMENTS)
        POSITIVE.check(tolerance=tolerance)
        COUNT.check(first_iterations=first_iterations, iterations=iterations)
        self.embodiment = embodiment
        _check_joints(contract, self.embodiment)
        self.tolerance = tolerance
        self.first_iterations = first_iterations
        self.iterations = iterations
        self.kinematics = ForwardKinematics(self.embodiment)
        self._grippers = list(self.embodiment.grippers.values())
        first = POSE * len(self.embodiment.arms)
        self.dim = first + len(self._grippers)
        self.openings = list(range(first, self.dim))
        self.arms = [self._numbers(arm) for arm in contract.arms]
        self.positions = [numbers[:3] for numbers in self.arms]

    def targets(self, action: Tensor) -> Tensor:
        """Returns commanded rotations, positions and openings, (..., 12 arms + grippers)."""
        rotation, position = self.kinematics(action)
        return torch.cat(
            (rotation.flatten(-3), position.flatten(-2), action[..., self._grippers]), dim=-1
        )

    def relative(self, targets: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns them in the frames of the measured grippers."""
        rotation, position, openings = self._split(targets)
        now = self._measured(targets, observation)
        rotation, position = relative_to(
            *now, rotation.reshape(*rotation.shape[:-1], 3, 3), position
        )
        return torch.cat(
            (torch.cat((position, six_numbers(rotation)), dim=-1).flatten(-2), openings), dim=-1
        )

    def poses(self, encoded: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the generated gripper poses `T_base_gripper` (B, T, arms, 4, 4)."""
        arms = len(self.embodiment.arms)
        numbers = encoded[..., : POSE * arms].reshape(*encoded.shape[:-1], arms, POSE)
        now = self._measured(encoded, observation)
        rotation, position = compose(*now, rotation_of(numbers[..., 3:]), numbers[..., :3])
        result = torch.zeros(*position.shape[:-1], 4, 4, dtype=encoded.dtype, device=encoded.device)
        result[..., :3, :3] = rotation
        result[..., :3, 3] = position
        result[..., 3, 3] = 1.0
        return result

    def decode(self, encoded: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns joint targets (B, T, A); see the class for unreachable poses."""
        # In this order: not every device has double precision.
        measured = observation["joints/position"].cpu().double()
        poses = self.poses(encoded.cpu().double(), {"joints/position": measured}).numpy()
        # A new solver, since it has a state: plans do not depend on each other.
        solver = InverseKinematics(self.embodiment)
        joints = np.stack(
            [self._joints(solver, *each) for each in zip(poses, measured.numpy(), strict=True)]
        )
        action = torch.from_numpy(joints).to(encoded)
        action[..., self._grippers] = encoded[..., self.openings]
        return action

    def _joints(
        self, solver: InverseKinematics, poses: NDArray[np.float64], measured: Vector
    ) -> Vector:
        """Solves joints (T, J) for poses (T, arms, 4, 4) from measured joints (J,)."""
        lower = self.embodiment.lower
        upper = self.embodiment.upper
        q = np.clip(measured, lower, upper)
        found = list[Vector]()
        errors = list[list[float]]()
        for pose in poses:
            limit = self.iterations if found else self.first_iterations
            targets = dict(zip(self.embodiment.arms, pose, strict=True))
            q, error = solver.nearest(targets, q, tolerance=self.tolerance, iterations=limit)
            q = np.clip(q, lower, upper)
            found.append(q)
            errors.append([error[arm] for arm in self.embodiment.arms])
        off = np.array(errors)
        if (off > self.tolerance).any():
            step, arm = np.unravel_index(off.argmax(), off.shape)
            logger.warning(
                "%d of %d poses are out of reach; the nearest ones are off by up to %.3f (m or "
                "rad): %s, action %d.",
                int((off > self.tolerance).any(axis=1).sum()),
                len(off),
                off.max(),
                self.embodiment.arms[int(arm)],
                int(step),
            )
        return np.stack(found)

    def _numbers(self, arm: str) -> list[int]:
        """Returns the indices of the pose of an arm and of the opening of its gripper."""
        first = POSE * self.embodiment.arms.index(arm)
        opening = [
            POSE * len(self.embodiment.arms) + number
            for number, name in enumerate(self.embodiment.grippers)
            if name == arm
        ]
        return [*range(first, first + POSE), *opening]

    def _measured(self, like: Tensor, observation: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Returns measured rotations (B, 1, arms, 3, 3) and positions (B, 1, arms, 3)."""
        rotation, position = self.kinematics(observation["joints/position"].to(like.dtype))
        return rotation[:, None], position[:, None]

    def _split(self, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns rotations (..., arms, 9), positions (..., arms, 3) and openings."""
        arms = len(self.embodiment.arms)
        rotation, position, openings = targets.tensor_split((9 * arms, 12 * arms), dim=-1)
        shape = targets.shape[:-1]
        return rotation.reshape(*shape, arms, 9), position.reshape(*shape, arms, 3), openings


def _check_joints(contract: Contract, embodiment: Embodiment) -> None:
    names = tuple(joint.name for joint in embodiment.joints)
    commanded = tuple(dimension.name for dimension in contract.action)
    absolute = all(dimension.mode == "absolute" for dimension in contract.action)
    for what, got in (("measured", contract.joints), ("commanded", commanded)):
        if got != names or not absolute:
            raise ValueError(
                f"Gripper poses of {embodiment.name!r} need absolute targets of its {len(names)} "
                f"joints in their order ({', '.join(names[:3])}, ...); {what} are {len(got)} "
                f"({', '.join(got[:3])}, ...){'' if absolute else ', not all of them absolute'}."
            )
