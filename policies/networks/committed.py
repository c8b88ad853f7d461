"""Actions that are decided before a chunk is planned, such as those that run while the policy still thinks."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Committed:
    """What a new chunk has to keep to, and how much.

    Attributes:
        action: (B, T, A) normalised actions; where the weight is 0 they mean nothing, but must be
            finite.
        weight: (T,) in [0, 1]. 1: this action is decided and comes out unchanged; 0: free; in
            between: it comes out that share of the way from what the policy would do to `action`.
    """

    action: Tensor
    weight: Tensor

    def __post_init__(self) -> None:
        """Refuses weights that do not belong to the actions.

        Raises:
            ValueError: A shape is wrong, a weight is beyond [0, 1], or an action is not finite.
        """
        if self.action.ndim != 3:
            raise ValueError(
                f"Committed actions have shape {tuple(self.action.shape)}; allowed: (B, T, A)."
            )
        if self.weight.shape != self.action.shape[1:2]:
            raise ValueError(
                f"Weights have shape {tuple(self.weight.shape)}; allowed: "
                f"{tuple(self.action.shape[1:2])}."
            )
        if not bool(((self.weight >= 0) & (self.weight <= 1)).all()):
            raise ValueError(
                f"Weights of committed actions are {self.weight.tolist()}; allowed: 0 to 1."
            )
        if not bool(self.action.isfinite().all()):
            raise ValueError(
                "Committed actions are not all finite; allowed: finite numbers, also where the "
                "weight is 0."
            )

    def fit(self, shape: torch.Size | tuple[int, ...]) -> None:
        """Refuses to be used for chunks of another shape.

        Args:
            shape: (B, T, A) of the chunks.

        Raises:
            ValueError: The committed actions have another.
        """
        if tuple(self.action.shape) != tuple(shape):
            raise ValueError(
                f"Committed actions have shape {tuple(self.action.shape)}; allowed for this plan: "
                f"{tuple(shape)}."
            )

    def pull(self, free: Tensor, goal: Tensor | None = None) -> Tensor:
        """Moves chunks towards a goal, each action by its weight; exact at the weights 0 and 1.

        Args:
            free: (B, K, T, A) what the policy would do.
            goal: (B, K, T, A) or broadcast; None: the committed actions.
        """
        goal = self.action[:, None] if goal is None else goal
        return torch.lerp(
            free, goal.to(free.dtype).expand_as(free), self.weight[:, None].to(free.dtype)
        )

    def settle(self, chunk: Tensor) -> Tensor:
        """Returns chunks (B, K, T, A) with what is decided in its place to the bit, whatever a sampler rounded or clipped."""
        return torch.where(self.weight[:, None] == 1, self.action[:, None].to(chunk.dtype), chunk)
