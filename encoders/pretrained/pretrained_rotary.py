"""Continues the rotary encoding of a pre-trained model as a learned encoding."""

import math
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from stringline.encoders.coordinates.coordinates import Coordinates, GridPlaces, PatchDepthPlaces
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.positions.encoding import EncodingFactory, PositionEncoding
from stringline.encoders.positions.frequencies import MixedFrequencies
from stringline.encoders.positions.initialisation import FrequencyInitialisation
from stringline.encoders.positions.rotary import RotaryEncoding
from stringline.encoders.pretrained.timm_models import TimmModel


def own_frequencies(model: TimmModel) -> Tensor | None:
    """Returns the frequencies of DINOv3 (Siméoni et al., 2025); None: a model without rotation.

    In arXiv 2508.10104, column u and row v of a patch run from -1 to 1 over the image, (2 i + 1) /
    n - 1. The first half of the planes rotates by v, the second by u, by 2 pi / period per unit
    with the periods 100^(i / (head_dim / 4)), i = 0 ... head_dim / 4 - 1. Planes are the channels n
    and n + head_dim / 2, as here. The result is (2, head_dim / 2) float64, the rows u and v, in
    radians per half an image.
    """
    rope = getattr(model, "rope", None)
    if rope is None:
        return None
    form = {
        "normalize_coords": "separate",
        "rotate_half": True,
        "grid_indexing": "ij",
        "grid_offset": 0.0,
        "aug_active": False,
    }
    kind = type(rope).__name__
    odd = [
        f"{key} {got}" for key, value in form.items() if (got := getattr(rope, key, value)) != value
    ]
    if kind != "RotaryEmbeddingDinoV3" or odd:
        got = " ".join((kind, "with", *odd)) if odd and kind == "RotaryEmbeddingDinoV3" else kind
        raise ValueError(
            f"The model has the rotary encoding {got}; allowed: no rotation, or that of DINOv3."
        )
    turn = 2 * math.pi / cast(Tensor, rope.periods).detach().double()
    still = torch.zeros_like(turn)
    return torch.stack((torch.cat((still, turn)), torch.cat((turn, still))))


def in_cells(omega: Tensor, coordinates: Coordinates) -> Tensor:
    """Converts frequencies (2, planes) of u and v, per half an image, to radians per cell.

    The first two axes of the coordinates are u and v in cells. The result, (1, axes, planes), is
    zero along further axes, which start without effect.
    """
    if not isinstance(coordinates, GridPlaces | PatchDepthPlaces):
        raise ValueError(
            f"The model rotates by positions in the image, which {type(coordinates).__name__} "
            f"lacks; allowed: GridPlaces, PatchDepthPlaces, FilledDepthPlaces."
        )
    rows, columns = coordinates.grid
    per_cell = omega * omega.new_tensor((2 / columns, 2 / rows)).unsqueeze(1)
    return nn.functional.pad(per_cell, (0, 0, 0, coordinates.axes - 2)).unsqueeze(0)


def continued(omega: Tensor, factory: EncodingFactory | None, heads: int) -> PositionEncoding:
    """Builds a learned encoding that starts at frequencies (1, axes, head_dim / 2).

    The factory makes an encoding by `MixedFrequencies` in a basis that starts at the identity, such
    as `CayleyString`; None: no basis.
    """
    axes = omega.shape[1]
    head_dim = 2 * omega.shape[2]
    made = (factory or partial(RotaryEncoding, frequencies=partial(MixedFrequencies, omega=omega)))(
        heads=heads, head_dim=head_dim, axes=axes
    )
    if (
        not isinstance(made, RotaryEncoding)
        or not isinstance(made.frequency_model, MixedFrequencies)
        or not _plain(made.basis())
    ):
        raise ValueError(
            f"{type(made).__name__} cannot continue the rotary encoding of the model; allowed: "
            f"`MixedFrequencies` in a basis that starts at the identity (RopeMixed, "
            f"CayleyString), or no encoding, which continues without a basis."
        )
    made.frequency_model.initialisation = FrequencyInitialisation(omega=omega)
    made.frequency_model.reset_parameters(0)
    return made


def _plain(basis: Tensor | None) -> bool:
    return basis is None or bool(
        torch.equal(basis, torch.eye(basis.shape[-1]).to(basis).expand_as(basis))
    )


class FilledDepthPlaces(PatchDepthPlaces):
    """`PatchDepthPlaces` in which patches without depth keep u and v, at the others' mean depth.

    So a model such as DINOv3, which rotates by u and v, loses no position to holes in the depth,
    and a shift of all depths still changes nothing. Without any depth all patches are at zero.
    """

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Returns (u, v, slope depth + offset); all have a position."""
        places, known = super().patches(view, patch, batch, device)
        depth = torch.where(known, places[..., 2], 0.0)
        mean = depth.sum(dim=1, keepdim=True) / known.sum(dim=1, keepdim=True).clamp(min=1)
        filled = torch.where(known, depth, mean)
        return torch.cat((places[..., :2], filled.unsqueeze(-1)), dim=-1), torch.ones_like(known)
