"""Pre-trained vision transformers whose attention knows places; before training their outputs are those of timm."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self, cast

import torch
from torch import Tensor, nn

from stringline.encoders.coordinates.coordinates import Coordinates
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.positions.encoding import EncodingFactory, PositionEncoding
from stringline.encoders.positions.folding import require_foldable
from stringline.encoders.pretrained.blocks import PretrainedBlock
from stringline.encoders.pretrained.pretrained_rotary import continued, in_cells, own_frequencies
from stringline.encoders.pretrained.timm_models import TimmModel, timm_model
from stringline.encoders.vision.rgbd import Tokens


class PretrainedVisionTransformer(nn.Module):
    """A vision transformer of timm with an encoding of places in its attention.

    The encoding starts at zero frequency, so the first outputs are timm's own. Of a model that
    turns queries and keys itself (DINOv3), the encoding takes over these frequencies, and only its
    further axes start at zero. The model's table of positions in the image stays, and is resampled
    to other resolutions as timm does.

    Attributes:
        dim: Channels of the tokens.
        patch: Side of a patch, pixels.
        prefix: Tokens that come before those of the patches: CLS and registers, which have no
            place.
        mean: Of each colour, 0 ... 1, in what the model was trained on.
        deviation: Their standard deviation.
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
        """Takes a model over.

        Args:
            model: Of timm, as `timm_model` makes it; not to be used afterwards. Its pooled head is
                dropped.
            coordinates: What a place is.
            encoding: How places enter attention, such as `functools.partial(CayleyString,
                wavelengths=(0.04, 2.0))`. May be None for a model with a rotary encoding of its
                own, which then goes on without a basis.
            values: Relative values, see `PositionalAttention`; not for models that turn queries and
                keys themselves.
            share_layers: One encoding for all blocks, whose places are computed once; else each
                block has its own.

        Raises:
            ValueError: The model is of a kind that cannot be given places, or does not go with the
                other arguments.
        """
        super().__init__()
        if not isinstance(getattr(model, "patch_drop", None) or nn.Identity(), nn.Identity):
            raise ValueError(
                "The model drops patches, so tokens would lose their places; make it without "
                "patch_drop_rate."
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
        """Makes one by timm's name; `name`, `weights`, `pretrained` and `options` as for `timm_model`.

        Raises:
            ValueError: As `timm_model`, or as the constructor.
        """
        model = timm_model(name, weights=weights, pretrained=pretrained, options=options)
        return cls(model, coordinates, encoding, values=values, share_layers=share_layers)

    def forward(self, images: Tensor, view: View | None = None) -> Tokens:
        """Encodes images, each by itself.

        Args:
            images: (B, H, W, 3), 0 ... 255, H and W multiples of the patch; they are normalised as
                the model was trained.
            view: What is known of where they look; None: nothing.

        Returns:
            CLS and registers, then the patches row by row, as timm's `forward_features` gives them,
            and their places.

        Raises:
            ValueError: The images have another shape than the view, the patches or the model allow.
        """
        view = View(height=images.shape[1], width=images.shape[2]) if view is None else view
        self._check(images, view)
        coordinates, placed = self.coordinates.patches(view, self.patch, len(images), images.device)
        coordinates = nn.functional.pad(coordinates, (0, 0, self.prefix, 0))
        placed = nn.functional.pad(placed, (self.prefix, 0), value=False)
        x = self._embedded(images)
        x = x + torch.where(placed.unsqueeze(-1), 0.0, self.unplaced_mark).to(x.dtype)
        places = [encoding.prepare(coordinates, placed) for encoding in self.encodings]
        x = places[0].embed(x)
        for layer, block in enumerate(self.blocks):
            x = block(x, places[layer % len(places)])
        return Tokens(self.rest.norm(x), coordinates, placed)

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay would falsify, those of the encodings included."""
        inside = {
            f"encodings.{i}.{name}"
            for i, encoding in enumerate(self.encodings)
            for name in encoding.no_weight_decay()
        }
        return inside | {"unplaced_mark"}

    @torch.no_grad()
    def fold_(self) -> None:
        """Folds all bases into the weights, for deployment: the same outputs to rounding, and nothing left to learn in them.

        Raises:
            ValueError: The model normalises queries and keys; nothing has changed then.
        """
        blocks = [cast(PretrainedBlock, block) for block in self.blocks]
        for block in blocks:
            require_foldable(block.attention.q_norm)
            require_foldable(block.attention.k_norm)
        for layer, block in enumerate(blocks):
            block.attention.fold_(self.encodings[layer % len(self.encodings)].basis())
        self.encodings = nn.ModuleList([encoding.folded() for encoding in self.encodings])  # type: ignore[assignment]

    def _embedded(self, images: Tensor) -> Tensor:
        """Returns what enters the first block, (B, prefix + N, dim)."""
        kind = self.unplaced_mark.dtype
        colours = images.to(torch.promote_types(kind, torch.float32)) / 255
        normalised = (colours - colours.new_tensor(self.mean)) / colours.new_tensor(self.deviation)
        patches = self.rest.patch_embed(normalised.to(kind).permute(0, 3, 1, 2))
        embedded = self.rest._pos_embed(patches)  # Eva returns its rotations too, here None.
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
                f"allowed: the same."
            )
        if not self.rest.dynamic_img_size and size != native:
            raise ValueError(
                f"Images are {size[0]}x{size[1]}; allowed: {native}, or make the model with "
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
    """Returns the encoding at the start from which the model's outputs are timm's."""
    omega = own_frequencies(model)
    if omega is not None:
        if values:
            raise ValueError(
                "The model turns queries and keys, not values; with values=True its outputs would "
                "not be its own."
            )
        return continued(in_cells(omega, coordinates), encoding, heads)
    if encoding is None:
        raise ValueError(
            "The model has no rotary encoding of its own; name the one to insert, such as "
            "CayleyString."
        )
    return encoding(heads=heads, head_dim=model.embed_dim // heads, axes=coordinates.axes).zero_()


def _patch(model: TimmModel) -> int:
    rows, columns = model.patch_embed.feat_ratio(as_scalar=False)
    if rows != columns:
        raise ValueError(f"The model has patches of {rows}x{columns} pixels; allowed: square ones.")
    return rows


def _without_blocks(model: TimmModel) -> TimmModel:
    """Returns the model without what is taken over or not used: blocks, rotations, the pooled head."""
    model.reset_classifier(0, "")
    model.blocks = nn.ModuleList()
    model.fc_norm = nn.Identity()
    if hasattr(model, "rope"):
        model.rope = None
    return model
