"""The rotary encoding that a pre-trained model brings along, as one of ours."""

import math
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from stringline.encoders.coordinates.coordinates import Coordinates, GridPlaces, PatchDepthPlaces
from stringline.encoders.positions.encoding import EncodingFactory, PositionEncoding
from stringline.encoders.positions.frequencies import MixedFrequencies
from stringline.encoders.positions.initialisation import Start
from stringline.encoders.positions.rotary import RotaryEncoding
from stringline.encoders.pretrained.timm_models import TimmModel


def own_frequencies(model: TimmModel) -> Tensor | None:
    """Returns the frequencies of DINOv3 (Siméoni et al., 2025, arXiv 2508.10104), None for models that turn nothing.

    Column u and row v of a patch run from -1 to 1 over the image, (2 i + 1) / n - 1. The first half
    of the planes turns by v, the second by u, by 2 pi / period per unit with the periods 100^(i /
    (head_dim / 4)), i = 0 ... head_dim / 4 - 1. Planes are the channels n and n + head_dim / 2, as
    ours.

    Args:
        model: Of timm.

    Returns:
        (2, head_dim / 2) float64, the rows u and v, in radians per half an image.

    Raises:
        ValueError: It turns in another way.
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
            f"The model has a rotary encoding of the kind {got}; allowed: that of DINOv3, or none."
        )
    turn = 2 * math.pi / cast(Tensor, rope.periods).detach().double()
    still = torch.zeros_like(turn)
    return torch.stack((torch.cat((still, turn)), torch.cat((turn, still))))


def in_cells(omega: Tensor, coordinates: Coordinates) -> Tensor:
    """Returns frequencies per half an image in the unit of coordinates that contain the image's.

    Args:
        omega: (2, planes), of u and v.
        coordinates: Their first two axes are u and v in cells; an image is grid columns wide and
            grid rows high.

    Returns:
        (1, axes, planes) in radians per cell, zero along further axes: z starts without effect.

    Raises:
        ValueError: The coordinates have no u and v.
    """
    if not isinstance(coordinates, GridPlaces | PatchDepthPlaces):
        raise ValueError(
            f"The model turns by places in the image, and {type(coordinates).__name__} has none; "
            f"allowed: GridPlaces, "
            "PatchDepthPlaces, FilledDepthPlaces."
        )
    rows, columns = coordinates.grid
    per_cell = omega * omega.new_tensor((2 / columns, 2 / rows)).unsqueeze(1)
    return nn.functional.pad(per_cell, (0, 0, 0, coordinates.axes - 2)).unsqueeze(0)


def continued(omega: Tensor, recipe: EncodingFactory | None, heads: int) -> PositionEncoding:
    """Makes a learned encoding that starts at given frequencies.

    Args:
        omega: (1, axes, head_dim / 2).
        recipe: Whose encoding is to start there: `MixedFrequencies` frequencies in a basis that
            starts as the identity, such as `CayleyString`. None: no basis.
        heads: Attention heads.

    Raises:
        ValueError: The recipe makes something that cannot start there.
    """
    axes = omega.shape[1]
    head_dim = 2 * omega.shape[2]
    made = (recipe or partial(RotaryEncoding, frequencies=partial(MixedFrequencies, omega=omega)))(
        heads=heads, head_dim=head_dim, axes=axes
    )
    if (
        not isinstance(made, RotaryEncoding)
        or not isinstance(made.frequency_model, MixedFrequencies)
        or not _plain(made.basis())
    ):
        raise ValueError(
            f"The model has a rotary encoding, from which {type(made).__name__} cannot go on; "
            f"allowed: `MixedFrequencies` frequencies in "
            "a basis that starts as the identity (RopeMixed, CayleyString), or no encoding, which "
            "goes on without a basis."
        )
    made.frequency_model.start = Start(omega=omega)
    made.frequency_model.reset_parameters(0)
    return made


def _plain(basis: Tensor | None) -> bool:
    return basis is None or bool(
        torch.equal(basis, torch.eye(basis.shape[-1]).to(basis).expand_as(basis))
    )
