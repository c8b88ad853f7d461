"""Residual networks of timm as encoders of single images: the vision of ACT and of diffusion policy, for comparison."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, cast, get_args

import torch
from torch import Tensor, nn

from stringline.encoders.pretrained.starting_weights import (
    StartingWeights,
    ToFollow,
    fill,
    read_weights,
)
from stringline.encoders.pretrained.timm_models import import_timm

Norm = Literal["group", "frozen"]
CHANNELS_PER_GROUP = 16
HEAD = "fc."


class TimmResNet(Protocol):
    """What is read and called of timm's `ResNet`."""

    num_features: int
    pretrained_cfg: Mapping[str, Sequence[float]]

    def forward_features(self, x: Tensor) -> Tensor:
        """Returns the last feature map of images (B, 3, H, W)."""
        ...


class ImageNetwork(Protocol):
    """What makes a feature map of an image, such as `ResNet`, a `torch.nn.Module`.

    Attributes:
        dim: Channels of the map.
    """

    dim: int

    def __call__(self, images: Tensor) -> Tensor:
        """Returns (B, dim, rows, columns) of images (B, H, W, 3), 0 to 255."""
        ...


class ImageNetworkFactory(Protocol):
    """Makes such a network, as `functools.partial(ResNet, norm="group")` does."""

    def __call__(self) -> ImageNetwork:
        """Returns it with its starting parameters."""
        ...


class ResNet(nn.Module):
    """A residual network (He et al., CVPR 2016) up to its last feature map, one cell per 32 pixels a side.

    Batch norms are replaced: a moving average of the weights knows nothing of their running
    statistics. Diffusion policy does without them for that reason too (Chi et al., RSS 2023,
    section III-B).
    """

    def __init__(
        self,
        name: str = "resnet18",
        *,
        norm: Norm = "group",
        weights: StartingWeights = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        """Makes the network.

        Args:
            name: As timm calls it, such as `resnet18` or `resnet50`.
            norm: What batch norms become. `group`: group norms of 16 channels per group, as in
                diffusion policy; of `weights` they keep scale and shift. `frozen`: the statistics
                of `weights`, never changed, as in ACT.
            weights: A safetensors file with timm's or torchvision's names to start from, such as
                the `model.safetensors` of timm/resnet18.tv_in1k; None: start at random.
            options: Arguments of timm's `ResNet` in the place of the architecture's own, such as
                `channels`.

        Raises:
            ValueError: timm is not installed, there is no such network or file, the weights or the
                options do not fit, or frozen norms have nothing to be frozen at.
        """
        super().__init__()
        if norm not in get_args(Norm):
            raise ValueError(f"norm is {norm!r}; allowed: {', '.join(map(repr, get_args(Norm)))}.")
        if norm == "frozen" and weights is None:
            raise ValueError(
                "Frozen norms keep the statistics of trained weights: name their file "
                "(weights=...), or norm=group."
            )
        network = _create(name, options or {})
        if weights is not None and not isinstance(weights, ToFollow):
            found = {
                key: tensor for key, tensor in read_weights(weights).items() if not _unused(key)
            }
            wanted = {
                key: tensor for key, tensor in network.state_dict().items() if not _unused(key)
            }
            fill(network, found, wanted, weights)
        described = cast(TimmResNet, network)
        self.dim = described.num_features
        self.mean, self.deviation = (
            tuple(described.pretrained_cfg[key]) for key in ("mean", "std")
        )
        self.network = _without_running_statistics(network, norm)

    def forward(self, images: Tensor) -> Tensor:
        """Returns feature maps (B, dim, ceil(H / 32), ceil(W / 32)) of images (B, H, W, 3), 0 to 255."""
        kind = next(self.network.parameters()).dtype
        colours = images.to(torch.promote_types(kind, torch.float32)) / 255
        normalised = (colours - colours.new_tensor(self.mean)) / colours.new_tensor(self.deviation)
        return cast(TimmResNet, self.network).forward_features(
            normalised.to(kind).permute(0, 3, 1, 2)
        )


def _create(name: str, options: Mapping[str, object]) -> nn.Module:
    timm = import_timm()
    from timm.models import resnet

    known = timm.list_models("resnet*")
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f" Did you mean {' or '.join(repr(each) for each in near)}?" if near else ""
        raise ValueError(
            f"timm has no residual network {name!r}.{hint} Allowed: what "
            f"timm.list_models('resnet*') lists."
        )
    try:
        network = timm.create_model(name, pretrained=False, num_classes=0, **options)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(f"timm cannot make {name!r}: {error}") from error
    if not isinstance(network, resnet.ResNet):
        raise ValueError(
            f"{name!r} is a {type(network).__name__}; allowed: networks of timm's class ResNet."
        )
    return network


def _unused(key: str) -> bool:
    """Whether a tensor of published weights is of no use here: the classifier's, and the counters of batch norms."""
    return key.startswith(HEAD) or key.endswith("num_batches_tracked")


def _without_running_statistics(network: nn.Module, norm: Norm) -> nn.Module:
    """Returns the network with other norms in the place of its batch norms."""
    from timm.layers.norm_act import freeze_batch_norm_2d

    if norm == "frozen":
        frozen: nn.Module = freeze_batch_norm_2d(network)  # type: ignore[no-untyped-call]
        return frozen
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, _grouped(child))
    return network


def _grouped(norm: nn.BatchNorm2d) -> nn.GroupNorm:
    channels = norm.num_features
    made = nn.GroupNorm(max(1, channels // CHANNELS_PER_GROUP), channels)
    made.load_state_dict({"weight": norm.weight.detach(), "bias": norm.bias.detach()})
    return made
