"""Places for models that need to know where in the image every patch is, whether or not its depth is known."""

import torch
from torch import Tensor

from stringline.encoders.coordinates.coordinates import PatchDepthPlaces
from stringline.encoders.coordinates.geometry import View


class FilledDepthPlaces(PatchDepthPlaces):
    """Three axes as in `PatchDepthPlaces`, but patches without depth keep u and v and stand at the mean depth of the others.

    So a model like DINOv3, which turns by u and v, loses none of its places to a hole in the depth,
    and a shift of all depths still changes nothing. Without any depth all patches stand at zero
    depth.
    """

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Returns (u, v, slope depth + offset); all have a place."""
        places, known = super().patches(view, patch, batch, device)
        depth = torch.where(known, places[..., 2], 0.0)
        mean = depth.sum(dim=1, keepdim=True) / known.sum(dim=1, keepdim=True).clamp(min=1)
        filled = torch.where(known, depth, mean)
        return torch.cat((places[..., :2], filled.unsqueeze(-1)), dim=-1), torch.ones_like(known)
