"""Frames of coordinates: the base of the robot and the grippers of its arms."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.encoders.coordinates.coordinates import Coordinates

Division = Literal["axes", "heads"]
Pose = Tensor | None
"""Poses (B, 4, 4) of a frame in the base frame; None: the base frame itself."""


class Frames(nn.Module):
    """The frames in which tokens have coordinates, in metres.

    In the frame of a gripper, a point p of the base frame has the coordinates R^T (p - t), with the
    present rotation R and position t of the gripper. So the orientation of the gripper enters
    attention, and relative values are rotated with it. If the base frame is not among the frames, a
    rigid motion of the whole scene including the robot has no effect.
    """

    def __init__(self, *, names: Sequence[str] = ("grippers",), by: Division = "axes") -> None:
        """Sets the frames.

        Args:
            names: `base`, `grippers` (one frame per arm) or `gripper/<arm>`, each frame once.
            by: `axes`: one encoding over the coordinates in all frames, 3 axes per frame; `heads`:
                the attention heads are divided among the frames, and each frame has its own
                encoding.
        """
        super().__init__()
        if by not in get_args(Division):
            raise unknown_name("division of frames", str(by), get_args(Division))
        if isinstance(names, str) or not names:
            raise ValueError(
                f"The names of frames are {names!r}; allowed: a list such as [base, grippers]."
            )
        self.names = tuple(names)
        self.by = by

    def arms(self, known: Sequence[str]) -> tuple[str | None, ...]:
        """Returns the arm of each frame, None for the base frame.

        Args:
            known: The arms that have a gripper pose.

        Raises:
            ValueError: A frame does not exist or occurs twice.
        """
        of_one = {f"gripper/{arm}": (arm,) for arm in known}
        meanings: dict[str, tuple[str | None, ...]] = {"base": (None,), "grippers": tuple(known)}
        meanings |= of_one
        for name in self.names:
            if name not in meanings:
                raise unknown_name("frame", name, meanings)
        found = [arm for name in self.names for arm in meanings[name]]
        if len(set(found)) < len(found):
            raise ValueError(f"The frames {list(self.names)} repeat one; allowed: each once.")
        return tuple(found)


def are_metric(coordinates: Coordinates) -> bool:
    """Returns whether coordinates are metres in the base frame: points keep their coordinates."""
    point = torch.tensor([[[0.1, -0.2, 0.3]]])
    placed, has_position = coordinates.points(point)
    return placed.shape == point.shape and torch.equal(placed, point) and bool(has_position.all())


def in_frames(points: Tensor, poses: Sequence[Pose]) -> Tensor:
    """Returns the coordinates of points (B, N, 3) in F frames side by side, (B, N, 3 F)."""
    return torch.cat([points if T is None else _inside(points, T) for T in poses], dim=-1)


def directions_in_frames(rotations: Tensor, poses: Sequence[Pose]) -> Tensor:
    """Returns the axes of rotations (B, M, 3, 3) in F frames, (B, M, 3 F, 3).

    These are the derivatives of `in_frames` of a point along the axes of each rotation.
    """
    return torch.cat([rotations if T is None else _turned(rotations, T) for T in poses], dim=-2)


def vectors_in_frames(vectors: Tensor, poses: Sequence[Pose]) -> Tensor:
    """Returns vectors (B, N, 3), without an origin, in F frames side by side, (B, N, 3 F)."""
    return torch.cat([vectors if T is None else _rotated(vectors, T) for T in poses], dim=-1)


# Products and sums instead of a matmul, which TF32 or autocast would round.
def _inside(points: Tensor, T: Tensor) -> Tensor:
    T = T.to(points.dtype)
    return _rotated(points - T[:, None, :3, 3], T)


def _rotated(vectors: Tensor, T: Tensor) -> Tensor:
    return (T[:, None, :3, :3].to(vectors.dtype) * vectors[..., None]).sum(dim=-2)


def _turned(rotations: Tensor, T: Tensor) -> Tensor:
    back = T[:, None, :3, :3].to(rotations.dtype)
    return (back[..., :, None] * rotations[..., :, None, :]).sum(dim=-3)
