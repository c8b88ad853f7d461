"""The places of conditioning tokens and of grippers, in the coordinates of the memory."""

from dataclasses import dataclass

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
        spread: (B, N, axes), standard deviation of the places of tokens as a vector; None: they are
            exact.
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
