"""Norms without running statistics, in place of batch norms.

A moving average of the weights does not cover running statistics, as Chi et al. found (Diffusion
Policy, RSS 2023, section III-B).
"""

from typing import Literal, get_args

from torch import nn

from stringline.encoders.pretrained.initial_weights import InitialWeights

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
