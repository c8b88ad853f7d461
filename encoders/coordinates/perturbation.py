"""Pixels of patches: their centres, or in training random pixels around them."""

import math

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import NOT_NEGATIVE
from stringline.encoders.coordinates.geometry import View, patch_centres


def truncated_normal(
    shape: tuple[int, ...], deviation: float, device: torch.device | None = None
) -> Tensor:
    """Draws float32 numbers from a normal distribution of mean 0 conditioned on [-1/2, 1/2].

    By the inverse distribution function, from torch's global generator of the device. `deviation`,
    above 0, is the standard deviation before truncation; the result approaches a uniform
    distribution as it grows.
    """
    unit = deviation * math.sqrt(2)
    # Near 1 floating-point numbers cannot resolve deviates above about 5.5: infinite ones are
    # clamped.
    uniform = 2 * torch.rand(shape, device=device) - 1
    return (unit * torch.erfinv(uniform * math.erf(0.5 / unit))).clamp(-0.5, 0.5)


class PatchCentres(nn.Module):
    """The pixels of patches; in training mode each patch may be moved within its cell.

    Position perturbation of ComRoPE (Yu et al., 2025, arXiv 2506.03737, equation 11): normal with
    standard deviation sigma cells, truncated to the cell. The published code takes half of it,
    clamps, which leaves a third of the draws on the border, and needs to be switched off at test
    time; here evaluation mode never draws.
    """

    def __init__(self, perturbation: float = 0.0) -> None:
        """Sets sigma, in cells; 0: no perturbation. The paper recommends 1."""
        super().__init__()
        if perturbation not in NOT_NEGATIVE:
            raise ValueError(
                f"perturbation is {perturbation}; allowed: 0 (none) and above, in cells."
            )
        self.perturbation = perturbation

    def forward(self, view: View, patch: int, batch: int, device: torch.device) -> Tensor:
        """Returns pixels (u, v), (batch, N, 2) float32, row by row; random in training."""
        if view.height % patch or view.width % patch:
            raise ValueError(
                f"Images are {view.height}x{view.width}; allowed: multiples of the patch of "
                f"{patch} pixels."
            )
        centres = patch_centres(view.height, view.width, patch, device).expand(batch, -1, -1)
        if not self.training or not self.perturbation:
            return centres
        return centres + patch * truncated_normal(tuple(centres.shape), self.perturbation, device)
