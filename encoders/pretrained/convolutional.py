"""Convolutional networks of timm: residual networks for single images, and maps of features.

Residual networks for single images are the vision of ACT and diffusion policy. A map of features
of any convolutional network gives tokens with the places of its cells.

Batch norms are replaced by norms without running statistics: a moving average of the weights does
not cover running statistics, as Chi et al. found (Diffusion Policy, RSS 2023, section III-B).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, cast, get_args

from torch import Tensor, nn

from stringline.encoders.coordinates.coordinates import Coordinates, patches_with_spread
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.pretrained.initial_weights import (
    INSTALLED,
    InitialWeights,
    WeightsFrom,
    installed_weights,
)
from stringline.encoders.pretrained.timm_models import (
    check_timm_name,
    import_timm,
    normalised_colours,
)
from stringline.encoders.training.checkpoint import fill, read_weights
from stringline.encoders.vision.rgbd import Tokens

Norm = Literal["group", "frozen"]
CHANNELS_PER_GROUP = 16


def check_norm(norm: str, weights: InitialWeights) -> None:
    """Raises a ValueError for an unknown norm, and for frozen norms without trained weights."""
    if norm not in get_args(Norm):
        raise ValueError(f"norm is {norm!r}; allowed: {', '.join(map(repr, get_args(Norm)))}.")
    if norm == "frozen" and weights is None:
        raise ValueError(
            "norm=frozen needs the statistics of trained weights: set weights=FILE, or norm=group."
        )


def without_running_statistics(network: nn.Module, norm: Norm) -> nn.Module:
    """Returns the network with its batch norms replaced.

    Args:
        network: A network of timm; not usable afterwards.
        norm: `frozen`: the constant statistics of the network. `group`: group norms of 16 channels
            per group, or the next larger groups that divide the channels, with scale and shift of
            the network.
    """
    from timm.layers.norm_act import freeze_batch_norm_2d

    if norm == "frozen":
        frozen: nn.Module = freeze_batch_norm_2d(network)  # type: ignore[no-untyped-call]
        return frozen
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, _grouped(child))
    return network


def _grouped(norm: nn.BatchNorm2d) -> nn.Module:
    """Returns a group norm, with the activation of a batch norm of timm that has one."""
    from timm.layers.norm_act import BatchNormAct2d

    channels = norm.num_features
    groups = max(1, channels // CHANNELS_PER_GROUP)
    while channels % groups:
        groups -= 1
    made = nn.GroupNorm(groups, channels)
    made.load_state_dict({"weight": norm.weight.detach(), "bias": norm.bias.detach()})
    if isinstance(norm, BatchNormAct2d):
        return nn.Sequential(made, norm.get_submodule("drop"), norm.get_submodule("act"))
    return made


HEAD = "fc."


class TimmResNet(Protocol):
    """The used attributes of timm's `ResNet`."""

    num_features: int
    pretrained_cfg: Mapping[str, Sequence[float]]

    def forward_features(self, x: Tensor) -> Tensor:
        """Returns the last feature map of images (B, 3, H, W)."""
        ...


class ImageNetwork(Protocol):
    """A network that makes a feature map of `dim` channels of an image; a `torch.nn.Module`."""

    dim: int

    def __call__(self, images: Tensor) -> Tensor:
        """Returns (B, dim, rows, columns) of images (B, H, W, 3), 0 to 255."""
        ...


ImageNetworkFactory = Callable[[], ImageNetwork]
"""Makes an image network, such as `functools.partial(ResNet, norm="group")`."""


class ResNet(nn.Module):
    """A residual network (He et al., CVPR 2016) up to its last feature map, one cell per 32 pixels.

    Batch norms are replaced, since a moving average of the weights does not cover their running
    statistics, as in diffusion policy (Chi et al., RSS 2023, section III-B).
    """

    def __init__(
        self,
        name: str = "resnet18",
        *,
        norm: Norm = "group",
        weights: InitialWeights = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        """Builds the network.

        Args:
            name: Name in timm, such as `resnet18` or `resnet50`.
            norm: In place of batch norms: `group`: group norms of 16 channels per group, as in
                diffusion policy; or, with weights, `frozen`: their constant statistics, as in ACT.
            weights: A safetensors file with timm's or torchvision's names, such as the
                `model.safetensors` of timm/resnet18.tv_in1k; if None, random weights.

        Other Args:
            options: Arguments of timm's `ResNet` that replace the architecture's own, such as
                `channels`.

        Raises:
            ValueError: timm is not installed, the name or file is unknown, weights or options do
                not fit, or frozen norms have no weights.
        """
        super().__init__()
        check_norm(norm, weights)
        network = _create_resnet(name, options or {})
        if weights is not None and not isinstance(weights, WeightsFrom):
            fill(network, _used(read_weights(weights)), _used(network.state_dict()), weights)
        described = cast(TimmResNet, network)
        self.dim = described.num_features
        self.mean, self.deviation = (
            tuple(described.pretrained_cfg[key]) for key in ("mean", "std")
        )
        self.network = without_running_statistics(network, norm)

    def forward(self, images: Tensor) -> Tensor:
        """Returns feature maps (B, dim, ceil(H / 32), ceil(W / 32)) of images (B, H, W, 3).

        Images are from 0 to 255.
        """
        dtype = next(self.network.parameters()).dtype
        colours = normalised_colours(images, self.mean, self.deviation, dtype)
        return cast(TimmResNet, self.network).forward_features(colours)


def _create_resnet(name: str, options: Mapping[str, object]) -> nn.Module:
    timm = import_timm()
    from timm.models import resnet

    check_timm_name("residual network", name, timm.list_models("resnet*"), "resnet*")
    try:
        network = timm.create_model(name, pretrained=False, num_classes=0, **options)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(f"timm cannot make {name!r}: {error}") from error
    if not isinstance(network, resnet.ResNet):
        raise ValueError(
            f"{name!r} is a {type(network).__name__}; allowed: networks of timm's class ResNet."
        )
    return network


def _used(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors without those of the classifier and the counters of batch norms."""
    return {
        key: tensor
        for key, tensor in tensors.items()
        if not key.startswith(HEAD) and not key.endswith("num_batches_tracked")
    }


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
                package; if None, random weights.
            options: Arguments of `timm.create_model` that replace the architecture's own.

        Raises:
            ValueError: timm is not installed, the name, the file or the stride is unknown, weights
                or options do not fit, or frozen norms have no weights.
        """
        super().__init__()
        check_norm(norm, weights)
        network = _create_feature_map(name, options or {})
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


def _create_feature_map(name: str, options: Mapping[str, object]) -> nn.Module:
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
