"""Forward kinematics of batches in torch, and rotations as six numbers.

Zhou et al., On the Continuity of Rotation Representations in Neural Networks, CVPR 2019, arXiv
1812.07035: the six-dimensional representation.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from stringline.datasets.embodiments.embodiment import Chain, Embodiment


class ForwardKinematics:
    """Computes the poses of the grippers of an embodiment.

    Matrices are multiplied by products and sums: a matmul on a GPU may be rounded to TF32, which is
    half a millimetre here.
    """

    def __init__(self, embodiment: Embodiment) -> None:
        self._arms = [
            _Arm(chain, embodiment.hinges[chain.arm].tolist()) for chain in embodiment.chains
        ]

    def __call__(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the poses of the grippers in the base frame, of joints q (..., J), in their type.

        Rotations are (..., arms, 3, 3) and positions (..., arms, 3), in metres.
        """
        rotations, positions = zip(*(arm(q) for arm in self._arms), strict=True)
        return torch.stack(rotations, dim=-3), torch.stack(positions, dim=-2)


class _Arm:
    """One chain. Its tables are numpy's, since not every device has double precision."""

    def __init__(self, chain: Chain, hinges: Sequence[int]) -> None:
        self._hinges = list(hinges)
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
        for number, hinge in enumerate(self._hinges):
            angle = q[..., hinge, None, None]
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
