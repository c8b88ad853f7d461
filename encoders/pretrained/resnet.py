"""Residual networks of timm for single images: the vision of ACT and diffusion policy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

from torch import Tensor, nn

from stringline.encoders.pretrained.initial_weights import InitialWeights, WeightsFrom
from stringline.encoders.pretrained.norms import Norm, check_norm, without_running_statistics
from stringline.encoders.pretrained.timm_models import (
    check_timm_name,
    import_timm,
    normalised_colours,
)
from stringline.encoders.training.weight_files import fill, read_weights

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
            norm: Replacement of batch norms. `group`: group norms of 16 channels per group, as in
                diffusion policy, with scale and shift of `weights`. `frozen`: the constant
                statistics of `weights`, as in ACT.
            weights: A safetensors file with timm's or torchvision's names, such as the
                `model.safetensors` of timm/resnet18.tv_in1k; None: random weights.
            options: Arguments of timm's `ResNet` that replace the architecture's own, such as
                `channels`.

        Raises:
            ValueError: timm is not installed, the name or file is unknown, weights or options do
                not fit, or frozen norms have no weights.
        """
        super().__init__()
        check_norm(norm, weights)
        network = _create(name, options or {})
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


def _create(name: str, options: Mapping[str, object]) -> nn.Module:
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
