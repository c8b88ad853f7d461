"""Tokens of images by a network of timm, given by its name."""

from collections.abc import Mapping, Sequence

from stringline.datasets.contract.contract import Camera
from stringline.encoders.coordinates.coordinates import Coordinates, GridPlaces
from stringline.encoders.positions.encoding import EncodingFactory
from stringline.encoders.pretrained.feature_maps import PretrainedFeatureMap
from stringline.encoders.pretrained.initial_weights import InitialWeights, WeightsFrom
from stringline.encoders.pretrained.installed_weights import INSTALLED, check_installed
from stringline.encoders.pretrained.norms import Norm
from stringline.encoders.pretrained.pretrained_rotary import own_frequencies
from stringline.encoders.pretrained.timm_models import TimmModel, timm_model
from stringline.encoders.pretrained.tokens import (
    PretrainedTokens,
    TokenNetwork,
    rows_and_columns,
)
from stringline.encoders.pretrained.vision_transformer import PretrainedVisionTransformer

_TRANSFORMERS = "vit_"


class PretrainedImages(PretrainedTokens):
    """Image tokens of an `ObservationEncoder` by a pre-trained network of timm.

    A vision transformer gets the position encoding of the observation encoder in its attention,
    where it starts at zero frequency, so that the initial outputs are timm's. A transformer that
    rotates by columns and rows itself (DINOv3) continues that. A convolutional network is used up
    to one of its feature maps, whose cells are the tokens.
    """

    def __init__(
        self,
        cameras: Sequence[Camera],
        *,
        coordinates: Coordinates,
        encoding: EncodingFactory,
        dim: int,
        name: str,
        weights: InitialWeights = None,
        size: int | Sequence[int] | None = None,
        stride: int = 16,
        norm: Norm = "frozen",
        options: Mapping[str, object] | None = None,
    ) -> None:
        """Builds the network.

        Args:
            cameras: The cameras to read.
            coordinates: Coordinates of the tokens.
            encoding: Factory of the position encoding in the attention of the network.
            dim: Channels of the tokens, by a linear map.
            name: Name in timm, such as `vit_base_patch16_siglip_224` or `tf_efficientnet_lite0`.
            weights: A safetensors file with timm's names, or a folder with `model.safetensors`;
                `installed`: those of an installed package; None: random weights.
            size: See `PretrainedTokens`.
            stride: Pixels per cell of the feature map of a convolutional network.
            norm: Replacement of batch norms; see `PretrainedFeatureMap`.
            options: Arguments of `timm.create_model` that replace the architecture's own.

        Raises:
            ValueError: See `timm_model`, `PretrainedFeatureMap` and `PretrainedTokens`.
        """
        encode: TokenNetwork
        if name.startswith(_TRANSFORMERS):
            images = _common_size(cameras) if size is None else rows_and_columns(size)
            encode = _with_places(
                _transformer(name, weights, options), coordinates, encoding, images
            )
        else:
            encode = PretrainedFeatureMap(
                name, coordinates, stride=stride, norm=norm, weights=weights, options=options
            )
        super().__init__(cameras, encode, dim, coordinates=coordinates, size=size)


def _transformer(
    name: str, weights: InitialWeights, options: Mapping[str, object] | None
) -> TimmModel:
    if weights == INSTALLED:
        check_installed(name)
    file = None if isinstance(weights, WeightsFrom) else weights
    return timm_model(name, weights=file, pretrained=False, options=options)


def _with_places(
    model: TimmModel,
    coordinates: Coordinates,
    encoding: EncodingFactory,
    images: tuple[int, int] | None,
) -> PretrainedVisionTransformer:
    """Inserts the encoding; `images` are the rows and columns of all images, None if they vary."""
    if own_frequencies(model) is None:
        return PretrainedVisionTransformer(model, coordinates, encoding)
    if images is None:
        raise ValueError(
            "The network rotates by columns and rows of one grid, and the cameras have images of "
            "several sizes; set size, so that all are equal."
        )
    patch = model.patch_embed.feat_ratio(as_scalar=False)
    grid = GridPlaces([side // pixels for side, pixels in zip(images, patch, strict=True)])
    return PretrainedVisionTransformer(model, grid)


def _common_size(cameras: Sequence[Camera]) -> tuple[int, int] | None:
    """Returns rows and columns of the images of all cameras; None if they differ."""
    sizes = {(camera.height, camera.width) for camera in cameras}
    return sizes.pop() if len(sizes) == 1 else None
