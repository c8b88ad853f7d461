"""Pre-trained vision transformers with positions in their attention, initially equal to timm's.

The blocks have the weights of timm's and positional attention. The rotary encoding of a
pre-trained model continues as a learned encoding.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, Self, cast

import torch
from torch import Tensor, nn

from stringline.encoders.coordinates.coordinates import (
    Coordinates,
    GridPlaces,
    PatchDepthPlaces,
    patches_with_spread,
)
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.positions.bases import check_foldable
from stringline.encoders.positions.encoding import EncodingFactory, Places, PositionEncoding
from stringline.encoders.positions.frequencies import FrequencyInitialisation, MixedFrequencies
from stringline.encoders.positions.rotary import RotaryEncoding
from stringline.encoders.pretrained.timm_models import TimmModel, normalised_colours, timm_model
from stringline.encoders.vision.attention import PositionalAttention
from stringline.encoders.vision.rgbd import Tokens
from stringline.encoders.vision.vit import encoding_parameters


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
    as `CayleyString`; if None, no basis.
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


class TimmAttention(Protocol):
    """The common attributes of timm's `Attention` and `EvaAttention`."""

    num_heads: int
    head_dim: int
    qkv: nn.Linear | None
    q_norm: nn.Module
    k_norm: nn.Module
    norm: nn.Module
    proj: nn.Linear
    attn_drop: nn.Dropout
    proj_drop: nn.Dropout


class ChannelScale(nn.Module):
    """Multiplies each channel by a learned factor, as `gamma` does in timm's Eva blocks."""

    def __init__(self, gamma: nn.Parameter) -> None:
        super().__init__()
        self.gamma = gamma

    def forward(self, x: Tensor) -> Tensor:
        """Returns x (B, N, dim) times gamma."""
        return x * self.gamma


class PretrainedBlock(nn.Module):
    """A pre-norm block of timm: all modules but the attention are timm's own."""

    def __init__(self, block: nn.Module, *, values: bool = False) -> None:
        """Takes the modules of timm's `Block` or `EvaBlock`, which is not usable afterwards."""
        super().__init__()
        _check_kind(block, "Block", "EvaBlock")
        part = block.get_submodule
        self.attention_norm = part("norm1")
        self.mlp_norm = part("norm2")
        self.mlp = part("mlp")
        self.attention = adopted(cast(TimmAttention, block.attn), values=values)
        self.attention_scale = _scale(block, 1)
        self.mlp_scale = _scale(block, 2)
        self.attention_drop = part("drop_path1")
        self.mlp_drop = part("drop_path2")

    def forward(self, x: Tensor, places: Places) -> Tensor:
        """Returns tokens (B, N, dim) of the same places."""
        x = x + self.attention_drop(
            self.attention_scale(self.attention(self.attention_norm(x), places))
        )
        y: Tensor = x + self.mlp_drop(self.mlp_scale(self.mlp(self.mlp_norm(x))))
        return y


def adopted(attention: TimmAttention, *, values: bool = False) -> PositionalAttention:
    """Returns positional attention with the weights of timm's, shared if they have the same form.

    A bias of keys that timm fixes at zero becomes a parameter that starts at zero.
    """
    _check(attention)
    norms = iter((attention.q_norm, attention.k_norm))
    made = PositionalAttention(
        attention.proj.in_features,
        attention.num_heads,
        values=values,
        qkv_bias=False,
        qk_norm=lambda _: next(norms),
    )
    made.qkv = _stacked(attention)
    made.out = attention.proj
    return made


def _stacked(attention: TimmAttention) -> nn.Linear:
    """Returns the projections of queries, keys and values as one."""
    if attention.qkv is not None and getattr(attention, "q_bias", None) is None:
        return attention.qkv
    biases: Sequence[Tensor | None]
    if attention.qkv is not None:
        weight = attention.qkv.weight
        biases = [getattr(attention, f"{kind}_bias") for kind in "qkv"]
    else:
        apart: list[nn.Linear] = [getattr(attention, f"{kind}_proj") for kind in "qkv"]
        weight = torch.cat([each.weight for each in apart])
        biases = [each.bias for each in apart]
    rows, width = weight.shape
    known = any(bias is not None for bias in biases)
    made = nn.Linear(width, rows, bias=known, device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        made.weight.copy_(weight)
        if known:
            made.bias.copy_(
                torch.cat(
                    [weight.new_zeros(rows // 3) if bias is None else bias for bias in biases]
                )
            )
    return made


def _check_kind(module: object, *allowed: str) -> None:
    """Checks the class: other blocks of timm have parts of the same names with another meaning."""
    kind = type(module)
    if kind.__name__ not in allowed or not kind.__module__.startswith("timm."):
        raise ValueError(
            f"The model has a {kind.__name__}, which does not support positions; allowed: "
            f"{', '.join(allowed)} of timm."
        )


def _check(attention: TimmAttention) -> None:
    _check_kind(attention, "Attention", "AttentionRope", "EvaAttention")
    width = attention.proj.in_features
    reasons = {
        "heads times channels is not its width": attention.num_heads * attention.head_dim
        != attention.proj.out_features,
        "heads share keys": getattr(attention, "num_kv_groups", 1) != 1,
        "its output has a gate": getattr(attention, "gate", None) is not None,
        "its output is normalised": not isinstance(attention.norm, nn.Identity),
        "it has dropout": attention.attn_drop.p > 0 or attention.proj_drop.p > 0,
        f"{attention.num_heads} heads of {width // attention.num_heads} channels": width
        % (2 * attention.num_heads)
        != 0,
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found:
        raise ValueError(
            f"{type(attention).__name__} does not support positions: {'; '.join(found)}. "
            f"Allowed: plain attention to all tokens."
        )


def _scale(block: nn.Module, number: int) -> nn.Module:
    """Returns the scale of a branch: `ls1` or `ls2` of a Block, `gamma_1` or `gamma_2` of Eva's."""
    if hasattr(block, f"ls{number}"):
        return block.get_submodule(f"ls{number}")
    gamma = getattr(block, f"gamma_{number}")
    return nn.Identity() if gamma is None else ChannelScale(gamma)


class PretrainedVisionTransformer(nn.Module):
    """A vision transformer of timm with a position encoding in its attention.

    The encoding starts at zero frequency, so the initial outputs are timm's. If a model rotates
    queries and keys itself (DINOv3), the encoding continues its frequencies, and only further axes
    start at zero. The model's table of positions is kept, and resampled to other resolutions as
    timm does.

    Attributes:
        dim: Channels of the tokens.
        patch: Side of a patch, pixels.
        prefix: Number of tokens before the patches: CLS and registers, without a position.
        mean: Mean of each colour in the training of the model, 0 ... 1.
        deviation: Standard deviation of each colour.
    """

    def __init__(
        self,
        model: TimmModel,
        coordinates: Coordinates,
        encoding: EncodingFactory | None = None,
        *,
        values: bool = False,
        share_layers: bool = True,
    ) -> None:
        """Takes the modules of a model.

        Args:
            model: A model from `timm_model`; not usable afterwards. Its pooled head is dropped.
            coordinates: The coordinates of patches.
            encoding: Factory of the position encoding, such as `functools.partial(CayleyString,
                wavelengths=(0.04, 2.0))`; None for a model with its own rotary encoding, which
                continues without a basis.
            values: Relative values, see `PositionalAttention`; not for models that rotate queries
                and keys themselves.
            share_layers: One encoding for all blocks, whose places are computed once; otherwise one
                per block.

        Raises:
            ValueError: The model does not support positions or does not fit the other arguments.
        """
        super().__init__()
        if not isinstance(getattr(model, "patch_drop", None) or nn.Identity(), nn.Identity):
            raise ValueError(
                "The model drops patches, so the positions of its tokens are unknown; build it "
                "without patch_drop_rate."
            )
        self.blocks = nn.ModuleList(PretrainedBlock(block, values=values) for block in model.blocks)
        heads = cast(PretrainedBlock, self.blocks[0]).attention.heads
        made = _started_encoding(model, heads, coordinates, encoding, values=values)
        others = 0 if share_layers else len(self.blocks) - 1
        self.encodings: Sequence[PositionEncoding] = nn.ModuleList(  # type: ignore[assignment]
            [made, *(copy.deepcopy(made) for _ in range(others))]
        )
        self.coordinates = coordinates
        self.rest = _without_blocks(model)
        self.dim = model.embed_dim
        self.patch = _patch(model)
        self.prefix = model.num_prefix_tokens
        self.unplaced_mark = nn.Parameter(torch.zeros(self.dim))
        self.mean, self.deviation = (tuple(model.pretrained_cfg[key]) for key in ("mean", "std"))

    @classmethod
    def load(
        cls,
        name: str,
        coordinates: Coordinates,
        encoding: EncodingFactory | None = None,
        *,
        weights: Path | str | None = None,
        pretrained: bool = True,
        options: Mapping[str, object] | None = None,
        values: bool = False,
        share_layers: bool = True,
    ) -> Self:
        """Builds one by timm's name; the first and the optional arguments as for `timm_model`."""
        model = timm_model(name, weights=weights, pretrained=pretrained, options=options)
        return cls(model, coordinates, encoding, values=values, share_layers=share_layers)

    def forward(self, images: Tensor, view: View | None = None) -> Tokens:
        """Encodes images independently.

        Args:
            images: (B, H, W, 3), 0 ... 255, H and W multiples of the patch; normalised as in the
                training of the model.
            view: Depth and geometry; if None, unknown.

        Returns:
            CLS and registers, then the patches row by row, as timm's `forward_features` returns
            them, and their positions.
        """
        view = View(height=images.shape[1], width=images.shape[2]) if view is None else view
        self._check(images, view)
        coordinates, has_position, spread = patches_with_spread(
            self.coordinates, view, self.patch, len(images), images.device
        )
        if spread is not None:
            spread = nn.functional.pad(spread, (0, 0, self.prefix, 0))
        coordinates = nn.functional.pad(coordinates, (0, 0, self.prefix, 0))
        has_position = nn.functional.pad(has_position, (self.prefix, 0), value=False)
        x = self._embedded(images)
        x = x + torch.where(has_position.unsqueeze(-1), 0.0, self.unplaced_mark).to(x.dtype)
        places = [
            encoding.prepare(coordinates, has_position, spread=spread)
            for encoding in self.encodings
        ]
        x = places[0].embed(x)
        for layer, block in enumerate(self.blocks):
            x = block(x, places[layer % len(places)])
        return Tokens(self.rest.norm(x), coordinates, has_position, spread=spread)

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay, encodings included."""
        return {"unplaced_mark"} | encoding_parameters(self.encodings)

    @torch.no_grad()
    def fold_(self) -> None:
        """Folds all bases into the weights, for deployment, without changing the outputs.

        The basis cannot be learned afterwards.

        Raises:
            ValueError: The model normalises queries and keys; nothing has changed then.
        """
        blocks = [cast(PretrainedBlock, block) for block in self.blocks]
        for block in blocks:
            check_foldable(block.attention.q_norm)
            check_foldable(block.attention.k_norm)
        for layer, block in enumerate(blocks):
            block.attention.fold_(self.encodings[layer % len(self.encodings)].basis())
        folded = [encoding.folded() for encoding in self.encodings]
        self.encodings = nn.ModuleList(folded)  # type: ignore[assignment]

    def _embedded(self, images: Tensor) -> Tensor:
        """Returns the input of the first block, (B, prefix + N, dim)."""
        dtype = self.unplaced_mark.dtype
        colours = normalised_colours(images, self.mean, self.deviation, dtype)
        # Eva also returns its rotations, here None.
        embedded = self.rest._pos_embed(self.rest.patch_embed(colours))
        x: Tensor = self.rest.norm_pre(embedded[0] if isinstance(embedded, tuple) else embedded)
        return x

    def _check(self, images: Tensor, view: View) -> None:
        tiled = (
            images.ndim == 4
            and images.shape[1] % self.patch == 0
            and images.shape[2] % self.patch == 0
        )
        if not tiled or images.shape[3] != len(self.mean):
            allowed = f"(B, H, W, {len(self.mean)}) with H and W multiples of {self.patch}"
            raise ValueError(f"Images have shape {tuple(images.shape)}; allowed: {allowed}.")
        size = tuple(images.shape[1:3])
        native = self.rest.patch_embed.img_size
        if size != (view.height, view.width):
            raise ValueError(
                f"Images are {size[0]}x{size[1]} and the view {view.height}x{view.width}; "
                f"allowed: equal sizes."
            )
        if not self.rest.dynamic_img_size and size != native:
            raise ValueError(
                f"Images are {size[0]}x{size[1]}; allowed: {native}, or build the model with "
                f"dynamic_img_size=True."
            )


def _started_encoding(
    model: TimmModel,
    heads: int,
    coordinates: Coordinates,
    encoding: EncodingFactory | None,
    *,
    values: bool,
) -> PositionEncoding:
    """Returns the encoding with which the initial outputs are timm's."""
    omega = own_frequencies(model)
    if omega is not None:
        if values:
            raise ValueError(
                "The model rotates queries and keys, but not values, so values=True would change "
                "its outputs; allowed: values=False."
            )
        return continued(in_cells(omega, coordinates), encoding, heads)
    if encoding is None:
        raise ValueError(
            "The model has no rotary encoding of its own; pass the encoding to insert, such as "
            "CayleyString."
        )
    return encoding(heads=heads, head_dim=model.embed_dim // heads, axes=coordinates.axes).zero_()


def _patch(model: TimmModel) -> int:
    rows, columns = model.patch_embed.feat_ratio(as_scalar=False)
    if rows != columns:
        raise ValueError(f"The model has patches of {rows}x{columns} pixels; allowed: squares.")
    return rows


def _without_blocks(model: TimmModel) -> TimmModel:
    """Returns the model without the unused modules: blocks, rotations and the pooled head."""
    model.reset_classifier(0, "")
    model.blocks = nn.ModuleList()
    model.fc_norm = nn.Identity()
    if hasattr(model, "rope"):
        model.rope = None
    return model
