"""What networks of policies read beside tokens: their places, fixed actions, and sinusoids.

`TokenPlaces` has the places of conditioning tokens and of grippers, in the coordinates of the
memory. `NormalisedPrefix` has the fixed actions of a new chunk, such as those executed meanwhile.
Sines and cosines of positions in sequences and images are added to tokens.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class TokenPlaces:
    """Where conditioning tokens and grippers are, for networks that read tokens by their places.

    Attributes:
        coordinates: (B, N, axes) of the tokens.
        has_position: (B, N) bool, False for tokens without a position.
        grippers: (B, arms, axes) of the measured grippers (TCP).
        directions: (B, arms, axes, 3), the change of the coordinates of a point per metre along x,
            y and z of each measured gripper.
        spread: (B, N, axes), standard deviation of the places of tokens as a vector; if None, they
            are exact.
    """

    coordinates: Tensor
    has_position: Tensor
    grippers: Tensor
    directions: Tensor
    spread: Tensor | None = None

    def clone(self) -> "TokenPlaces":
        """Returns a copy of all tensors."""
        return TokenPlaces(
            coordinates=self.coordinates.clone(),
            has_position=self.has_position.clone(),
            grippers=self.grippers.clone(),
            directions=self.directions.clone(),
            spread=None if self.spread is None else self.spread.clone(),
        )


@dataclass(frozen=True)
class NormalisedPrefix:
    """Actions that a new chunk has to follow, with weights.

    Attributes:
        action: (B, T, A) normalised actions; finite, and without meaning at weight 0.
        weight: (T,) in [0, 1]. 1: the action is fixed and comes out unchanged; 0: free; in between:
            it comes out at that share of the way from the policy's action to `action`.
    """

    action: Tensor
    weight: Tensor

    def __post_init__(self) -> None:
        if self.action.ndim != 3:
            raise ValueError(
                f"Prefix actions have shape {tuple(self.action.shape)}; allowed: (B, T, A)."
            )
        if self.weight.shape != self.action.shape[1:2]:
            raise ValueError(
                f"Weights have shape {tuple(self.weight.shape)}; allowed: "
                f"{tuple(self.action.shape[1:2])}."
            )
        if not bool(((self.weight >= 0) & (self.weight <= 1)).all()):
            raise ValueError(
                f"Weights of prefix actions are {self.weight.tolist()}; allowed: 0 to 1."
            )
        if not bool(self.action.isfinite().all()):
            raise ValueError(
                "Prefix actions are not finite; allowed: finite numbers, also at weight 0."
            )

    def check_shape(self, shape: torch.Size | tuple[int, ...]) -> None:
        """Raises a ValueError unless the chunks have this shape (B, T, A)."""
        if tuple(self.action.shape) != tuple(shape):
            raise ValueError(
                f"Prefix actions have shape {tuple(self.action.shape)}; allowed for this plan: "
                f"{tuple(shape)}."
            )

    def blend(self, free: Tensor, goal: Tensor | None = None) -> Tensor:
        """Moves chunks (B, K, T, A) towards a goal, each action by its weight; exact at 0 and 1.

        The goal is broadcast; if None, the prefix actions.
        """
        goal = self.action[:, None] if goal is None else goal
        return torch.lerp(
            free, goal.to(free.dtype).expand_as(free), self.weight[:, None].to(free.dtype)
        )

    def enforce(self, chunk: Tensor) -> Tensor:
        """Returns chunks (B, K, T, A) with the fixed actions in their place, to the bit."""
        return torch.where(self.weight[:, None] == 1, self.action[:, None].to(chunk.dtype), chunk)


def sequence_positions(length: int, dim: int, device: torch.device | None = None) -> Tensor:
    """Returns the table of Vaswani et al. (2017, section 3.5), (length, dim).

    Even channels are sines, odd channels cosines; their number is even.
    """
    return _waves(torch.arange(length, dtype=torch.float32, device=device), dim)


def image_positions(
    rows: int, columns: int, dim: int, device: torch.device | None = None
) -> Tensor:
    """Returns DETR's table of a feature map (Carion et al., ECCV 2020), (rows, columns, dim).

    After appendix A.4: the first half of the channels encodes the row, the second the column; both
    run to 2 pi at the end of the image. The number of channels is a multiple of 4.
    """
    if dim % 4:
        raise ValueError(f"Positions in images have {dim} channels; allowed: multiples of 4.")
    down, right = (
        _waves(
            2 * math.pi * torch.arange(1, count + 1, dtype=torch.float32, device=device) / count,
            dim // 2,
        )
        for count in (rows, columns)
    )
    return torch.cat(
        (down[:, None].expand(-1, columns, -1), right[None].expand(rows, -1, -1)), dim=-1
    )


def _waves(position: Tensor, dim: int) -> Tensor:
    """Returns alternating sines and cosines of positions (N,), frequencies 1 to 10^-4, (N, dim)."""
    if dim < 2 or dim % 2:
        raise ValueError(f"Positions have {dim} channels; allowed: even numbers.")
    falling = torch.arange(0, dim, 2, dtype=torch.float32, device=position.device) / dim
    phase = position[:, None] * torch.exp(-math.log(10000.0) * falling)
    return torch.stack((phase.sin(), phase.cos()), dim=-1).flatten(1)
