"""Feature maps of convolutional networks of timm, with the places of their cells."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from stringline.encoders.coordinates.coordinates import Coordinates
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.coordinates.ray_places import patches_with_spread
from stringline.encoders.pretrained.initial_weights import InitialWeights, WeightsFrom
from stringline.encoders.pretrained.installed_weights import INSTALLED, installed_weights
from stringline.encoders.pretrained.norms import Norm, check_norm, without_running_statistics
from stringline.encoders.pretrained.timm_models import (
    check_timm_name,
    import_timm,
    normalised_colours,
)
from stringline.encoders.training.weight_files import fill, read_weights
from stringline.encoders.vision.rgbd import Tokens

_COUNTER = "num_batches_tracked"


class PretrainedFeatureMap(nn.Module):
    """A convolutional network of timm up to one of its feature maps; each cell is a token.

    Batch norms are replaced, as in `ResNet`.

    Attributes:
        dim: Channels of the tokens.
        patch: Side of a cell, pixels.
        prefix: Number of tokens before the cells, 0.
    """

    prefix = 0

    def __init__(
        self,
        name: str,
        coordinates: Coordinates,
        *,
        stride: int = 16,
        norm: Norm = "frozen",
        weights: InitialWeights = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        """Builds the network.

        Args:
            name: Name in timm, such as `tf_efficientnet_lite0`, `resnet18` or `convnext_atto`.
            coordinates: The coordinates of the cells.
            stride: Pixels per cell. Stages after this feature map are left out.
            norm: Replacement of batch norms; see `without_running_statistics`.
            weights: A safetensors file with timm's names; `installed`: those of an installed
                package; None: random weights.
            options: Arguments of `timm.create_model` that replace the architecture's own.

        Raises:
            ValueError: timm is not installed, the name, the file or the stride is unknown, weights
                or options do not fit, or frozen norms have no weights.
        """
        super().__init__()
        check_norm(norm, weights)
        network = _create(name, options or {})
        if weights == INSTALLED:
            _fill_in_order(network, name)
        elif weights is not None and not isinstance(weights, WeightsFrom):
            _fill_by_name(network, weights)
        described = cast(Any, network)
        index = _stage(name, [each["reduction"] for each in described.feature_info], stride)
        self.dim = int(described.feature_info[index]["num_chs"])
        described.prune_intermediate_layers([index], prune_head=True)
        self._index = index
        self.coordinates = coordinates
        self.patch = stride
        self.mean, self.deviation = (
            tuple(described.pretrained_cfg[key]) for key in ("mean", "std")
        )
        self.network = without_running_statistics(network, norm)

    def forward(self, images: Tensor, view: View) -> Tokens:
        """Encodes images independently.

        Args:
            images: (B, H, W, 3), 0 ... 255, H and W multiples of `patch`.
            view: Depth and geometry.

        Returns:
            The cells row by row, and their positions.
        """
        dtype = next(self.network.parameters()).dtype
        colours = normalised_colours(images, self.mean, self.deviation, dtype)
        (maps,) = cast(Any, self.network).forward_intermediates(
            colours, indices=[self._index], intermediates_only=True
        )
        coordinates, has_position, spread = patches_with_spread(
            self.coordinates, view, self.patch, len(images), images.device
        )
        return Tokens(maps.flatten(2).mT, coordinates, has_position, spread=spread)


def _create(name: str, options: Mapping[str, object]) -> nn.Module:
    timm = import_timm()
    check_timm_name("network", name, timm.list_models(), "*")
    try:
        network: nn.Module = timm.create_model(name, pretrained=False, **options)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(f"timm cannot make {name!r}: {error}") from error
    return network


def _stage(name: str, strides: Sequence[int], stride: int) -> int:
    """Returns the number of the last feature map with a stride."""
    if stride not in strides:
        raise ValueError(
            f"stride is {stride}; allowed for {name!r}: {', '.join(map(str, strides))}."
        )
    return len(strides) - 1 - list(reversed(strides)).index(stride)


def _fill_in_order(network: nn.Module, name: str) -> None:
    names = network.state_dict()
    found = installed_weights(name)
    if len(found) != len(names):
        raise ValueError(
            f"The installed weights of {name!r} are {len(found)} tensors; allowed: {len(names)}."
        )
    fill(network, dict(zip(names, found, strict=True)), names, f"The package of {name!r}")


def _fill_by_name(network: nn.Module, path: Path | str) -> None:
    head = cast(Any, network).pretrained_cfg["classifier"]
    heads = (head,) if isinstance(head, str) else tuple(head)

    def used(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            key: tensor
            for key, tensor in tensors.items()
            if not key.startswith(heads) and not key.endswith(_COUNTER)
        }

    fill(network, used(read_weights(path)), used(network.state_dict()), path)
