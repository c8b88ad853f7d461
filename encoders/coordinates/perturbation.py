"""Where in the image a patch is taken to be: at its centre, or in training somewhere around it."""

import math

import torch
from torch import Tensor, nn

from stringline.datasets.contract.arguments import NOT_NEGATIVE
from stringline.encoders.coordinates.geometry import View, patch_centres


def truncated_normal(
    shape: tuple[int, ...], deviation: float, device: torch.device | None = None
) -> Tensor:
    """Draws from the normal distribution of mean 0 on condition that the value lies in [-1/2, 1/2], not by clamping to it.

    Drawn by the inverse of the distribution function from torch's global generator of the device.

    Args:
        shape: Of the result.
        deviation: Standard deviation before truncation, above 0; the larger, the more the result is
            uniform.
        device: Where to draw.

    Returns:
        float32.
    """
    unit = deviation * math.sqrt(2)
    # Floating-point numbers up to 1 cannot tell deviates beyond about 5.5 apart, so an infinite one
    # is cut to the border.
    uniform = 2 * torch.rand(shape, device=device) - 1
    return (unit * torch.erfinv(uniform * math.erf(0.5 / unit))).clamp(-0.5, 0.5)


class PatchCentres(nn.Module):
    """The pixels at which patches stand; in training mode each patch of each example may be moved within its cell.

    Position perturbation of ComRoPE (Yu et al., 2025, arXiv 2506.03737, equation 11): normal with
    standard deviation sigma cells, truncated to the cell. The published code takes half of that,
    clamps, which leaves a third of the draws on the border, and does not stop by itself at test
    time; here evaluation never draws.
    """

    def __init__(self, perturbation: float = 0.0) -> None:
        """Keeps the intensity.

        Args:
            perturbation: Sigma, in cells; 0: none. The paper recommends 1.

        Raises:
            ValueError: It is negative or not finite.
        """
        super().__init__()
        if perturbation not in NOT_NEGATIVE:
            raise ValueError(
                f"perturbation is {perturbation}; allowed: 0 (none) and above, in cells."
            )
        self.perturbation = perturbation

    def forward(self, view: View, patch: int, batch: int, device: torch.device) -> Tensor:
        """Returns pixels (u, v), (batch, N, 2) float32, row by row; drawn anew for each example while training.

        Raises:
            ValueError: The patches do not tile the image.
        """
        if view.height % patch or view.width % patch:
            raise ValueError(
                f"Images are {view.height}x{view.width}; allowed: multiples of the patch of "
                f"{patch} pixels."
            )
        centres = patch_centres(view.height, view.width, patch, device).expand(batch, -1, -1)
        if not self.training or not self.perturbation:
            return centres
        return centres + patch * truncated_normal(tuple(centres.shape), self.perturbation, device)
