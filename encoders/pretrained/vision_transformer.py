"""Pre-trained vision transformers with positions in their attention, initially equal to timm's."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, cast

import torch
from torch import Tensor, nn

from stringline.encoders.coordinates.coordinates import Coordinates
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.coordinates.ray_places import patches_with_spread
from stringline.encoders.positions.encoding import EncodingFactory, PositionEncoding
from stringline.encoders.positions.folding import check_foldable
from stringline.encoders.pretrained.blocks import PretrainedBlock
from stringline.encoders.pretrained.pretrained_rotary import continued, in_cells, own_frequencies
from stringline.encoders.pretrained.timm_models import TimmModel, normalised_colours, timm_model
from stringline.encoders.vision.rgbd import Tokens
from stringline.encoders.vision.vit import encoding_parameters


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
            view: Depth and geometry; None: unknown.

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
