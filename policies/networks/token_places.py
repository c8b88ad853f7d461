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
    """

    coordinates: Tensor
    has_position: Tensor
    grippers: Tensor
    directions: Tensor

    def clone(self) -> "TokenPlaces":
        """Returns a copy of all tensors."""
        return TokenPlaces(**{name: tensor.clone() for name, tensor in vars(self).items()})
