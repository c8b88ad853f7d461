"""Normalised action prefixes: fixed actions of a new chunk, such as those executed meanwhile."""

from dataclasses import dataclass

import torch
from torch import Tensor


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

        The goal is broadcast; None: the prefix actions.
        """
        goal = self.action[:, None] if goal is None else goal
        return torch.lerp(
            free, goal.to(free.dtype).expand_as(free), self.weight[:, None].to(free.dtype)
        )

    def enforce(self, chunk: Tensor) -> Tensor:
        """Returns chunks (B, K, T, A) with the fixed actions in their place, to the bit."""
        return torch.where(self.weight[:, None] == 1, self.action[:, None].to(chunk.dtype), chunk)
