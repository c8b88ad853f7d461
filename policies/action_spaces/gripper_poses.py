"""Poses of the grippers relative to where the grippers are, turned into joint targets by inverse kinematics."""

import logging
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stringline.datasets.contract.arguments import COUNT, POSITIVE, unknown_name
from stringline.datasets.contract.contract import Contract
from stringline.datasets.embodiments.catalogue import BODIES
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics
from stringline.policies.action_spaces.kinematics import (
    ForwardKinematics,
    placed,
    rotation_of,
    seen_from,
    six_numbers,
)
from stringline.policies.action_spaces.space import ActionSpace

logger = logging.getLogger(__name__)

POSE = 9  # Metres along x, y and z, and six numbers of a rotation.


class GripperPoses(ActionSpace):
    """For each arm where its gripper shall be, in the frame of the gripper as measured at the time of the observation.

    Nine numbers per arm, position in metres and rotation (`rotations.py`), then the opening of its
    gripper, absolute. Both poses, of what is commanded and of what is measured, come from the
    kinematics of the joints, so nothing depends on where or how the base frame lies: it may be
    moved and turned, and the numbers stay the same.

    On the way back each pose is sought from the joints of the one before it, within the limits of
    the joints. A pose that cannot be reached is answered with the nearest one that was found, and a
    warning says how far off it is: what a network says is a little off everywhere, also at the rim
    of what is reachable, and to stop for that would end an episode that is going well. What must
    not be is refused behind it, by the bridge's safety filter.
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
        """Looks up the body.

        Args:
            contract: Of a body whose kinematics are known, with one absolute target for each joint.
            tolerance: Error of a pose that is not worth another iteration nor a warning, in metres
                and in radians.
            first_iterations: How long to look for the first pose of a chunk.
            iterations: And for each of the others, which begin where the one before ended.

        Raises:
            ValueError: The body is not known, or its joints are not what is commanded and measured.
        """
        super().__init__()
        if contract.embodiment not in BODIES:
            raise unknown_name("body with known kinematics", contract.embodiment, BODIES)
        POSITIVE.check(tolerance=tolerance)
        COUNT.check(first_iterations=first_iterations, iterations=iterations)
        self.body = BODIES[contract.embodiment]
        _check_joints(contract, self.body)
        self.tolerance = tolerance
        self.first_iterations = first_iterations
        self.iterations = iterations
        self.kinematics = ForwardKinematics(self.body)
        self.openings = list(self.body.grippers.values())
        self.dim = POSE * len(self.body.arms) + len(self.openings)

    def targets(self, action: Tensor) -> Tensor:
        """Returns the commanded rotations, positions and openings, (..., 12 arms + grippers)."""
        rotation, position = self.kinematics(action)
        return torch.cat(
            (rotation.flatten(-3), position.flatten(-2), action[..., self.openings]), dim=-1
        )

    def relative(self, targets: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns them in the frames of the measured grippers."""
        rotation, position, openings = self._split(targets)
        now = self._measured(targets, observation)
        rotation, position = seen_from(*now, rotation.reshape(*rotation.shape[:-1], 3, 3), position)
        return torch.cat(
            (torch.cat((position, six_numbers(rotation)), dim=-1).flatten(-2), openings), dim=-1
        )

    def poses(self, encoded: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the gripper poses `T_base_gripper` (B, T, arms, 4, 4) that were generated, reachable or not."""
        arms = len(self.body.arms)
        numbers = encoded[..., : POSE * arms].reshape(*encoded.shape[:-1], arms, POSE)
        now = self._measured(encoded, observation)
        rotation, position = placed(*now, rotation_of(numbers[..., 3:]), numbers[..., :3])
        result = torch.zeros(*position.shape[:-1], 4, 4, dtype=encoded.dtype, device=encoded.device)
        result[..., :3, :3] = rotation
        result[..., :3, 3] = position
        result[..., 3, 3] = 1.0
        return result

    def decode(self, encoded: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns joint targets (B, T, A); see the class for poses that cannot be reached."""
        measured = (
            observation["joints/position"].cpu().double()
        )  # In this order: not every device has double precision.
        poses = self.poses(encoded.cpu().double(), {"joints/position": measured}).numpy()
        solver = InverseKinematics(
            self.body
        )  # Made anew, since it remembers where it was: plans do not depend on each other.
        joints = np.stack(
            [self._joints(solver, *each) for each in zip(poses, measured.numpy(), strict=True)]
        )
        action = torch.from_numpy(joints).to(encoded)
        action[..., self.openings] = encoded[..., POSE * len(self.body.arms) :]
        return action

    def _joints(
        self, solver: InverseKinematics, poses: NDArray[np.float64], measured: Vector
    ) -> Vector:
        """Returns joints (T, J) for poses (T, arms, 4, 4) from the measured ones (J,) on, and warns of what is out of reach."""
        lower = self.body.lower
        upper = self.body.upper
        q = np.clip(measured, lower, upper)
        found = list[Vector]()
        errors = list[list[float]]()
        for pose in poses:
            limit = self.iterations if found else self.first_iterations
            targets = dict(zip(self.body.arms, pose, strict=True))
            q, error = solver.nearest(targets, q, tolerance=self.tolerance, iterations=limit)
            q = np.clip(q, lower, upper)
            found.append(q)
            errors.append([error[arm] for arm in self.body.arms])
        off = np.array(errors)
        if (off > self.tolerance).any():
            step, arm = np.unravel_index(off.argmax(), off.shape)
            logger.warning(
                (
                    "%d of %d poses are out of reach; the nearest is taken, off by up to %.3f (m "
                    "or "
                    "rad): %s, action %d."
                ),
                int((off > self.tolerance).any(axis=1).sum()),
                len(off),
                off.max(),
                self.body.arms[int(arm)],
                int(step),
            )
        return np.stack(found)

    def _measured(self, like: Tensor, observation: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Returns rotations (B, 1, arms, 3, 3) and positions (B, 1, arms, 3) of the grippers as they were measured."""
        rotation, position = self.kinematics(observation["joints/position"].to(like.dtype))
        return rotation[:, None], position[:, None]

    def _split(self, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns rotations (..., arms, 9), positions (..., arms, 3) and openings (..., grippers)."""
        arms = len(self.body.arms)
        shape = targets.shape[:-1]
        rotation = targets[..., : 9 * arms]
        position = targets[..., 9 * arms : 12 * arms]
        return (
            rotation.reshape(*shape, arms, 9),
            position.reshape(*shape, arms, 3),
            targets[..., 12 * arms :],
        )


def _check_joints(contract: Contract, body: Embodiment) -> None:
    names = tuple(joint.name for joint in body.joints)
    commanded = tuple(dimension.name for dimension in contract.action)
    absolute = all(dimension.mode == "absolute" for dimension in contract.action)
    for what, got in (("measured", contract.joints), ("commanded", commanded)):
        if got != names or not absolute:
            raise ValueError(
                f"Gripper poses of {body.name!r} are made from absolute targets of its "
                f"{len(names)} joints in their order "
                f"({', '.join(names[:3])}, ...); {what} are {len(got)} ({', '.join(got[:3])}, ...)"
                f"{'' if absolute else ', not all of them absolute'}."
            )
