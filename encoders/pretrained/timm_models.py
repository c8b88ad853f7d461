"""Vision transformers of timm by name, with weights from the hub, a file, or random ones."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from stringline.encoders.pretrained.initial_weights import declare_torchvision_operators
from stringline.encoders.training.checkpoint import fill, read_weights

POOLED_HEAD = ("head.", "fc_norm.", "attn_pool.")  # Pools all tokens to one vector; unused here.


class TimmPatches(Protocol):
    """The used attributes of timm's `PatchEmbed`."""

    img_size: tuple[int, int]

    def feat_ratio(self, as_scalar: bool = True) -> tuple[int, int]:
        """Returns pixels per patch, rows and columns unless as a scalar."""
        ...

    def __call__(self, images: Tensor) -> Tensor:
        """Returns patches of images (B, 3, H, W)."""
        ...


class TimmModel(Protocol):
    """The used attributes of timm's `VisionTransformer` and `Eva`; only the latter has `rope`."""

    pretrained_cfg: Mapping[str, Sequence[float]]
    embed_dim: int
    num_prefix_tokens: int
    dynamic_img_size: bool
    patch_embed: TimmPatches
    norm_pre: nn.Module
    blocks: nn.Sequential | nn.ModuleList
    norm: nn.Module
    fc_norm: nn.Module
    rope: nn.Module | None

    def _pos_embed(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor | None]: ...

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replaces the head; without classes and pooling, removes it."""
        ...


def timm_model(
    name: str,
    *,
    weights: Path | str | None = None,
    pretrained: bool = True,
    options: Mapping[str, object] | None = None,
) -> TimmModel:
    """Builds a vision transformer of timm, for images of any size that its patches tile.

    Args:
        name: Name in timm, such as `vit_small_patch16_dinov3` or, with a tag,
            `vit_base_patch16_siglip_256.webli`.
        weights: A safetensors file.
        pretrained: Without a file, whether timm loads the published weights from the hub (or its
            cache); otherwise they are random.
        options: Arguments of `timm.create_model` that replace the architecture's own, such as
            `img_size` or `depth`.
    """
    timm = import_timm()
    known = [*timm.list_models("vit_*"), *timm.list_pretrained("vit_*")]
    check_timm_name("vision transformer", name, known, "vit_*")
    try:
        model = timm.create_model(
            name,
            pretrained=pretrained and weights is None,
            **{"dynamic_img_size": True} | dict(options or {}),
        )
    except (OSError, RuntimeError, TypeError, AssertionError) as error:
        raise _refusal(name, error, fetched=pretrained and weights is None) from error
    _check_kind(name, model)
    if weights is not None:
        load_weights(model, weights)
    return cast(TimmModel, model)


def load_weights(model: nn.Module, path: Path | str) -> None:
    """Loads a safetensors file in timm's form, or one that timm converts (hub, OpenAI, Meta).

    Position tables and patches of another size are resampled by timm. Weights of a pooled head are
    skipped.
    """
    found = _in_timms_form(read_weights(path), model)
    fill(model, _without_head(found), _without_head(model.state_dict()), path)


def import_timm() -> ModuleType:
    """Returns timm."""
    declare_torchvision_operators()
    try:
        import timm
    except ModuleNotFoundError as error:
        raise ValueError(
            'This needs timm, which is not installed. Run: pip install "stringline[pretrained]"'
        ) from error
    return timm


def check_timm_name(kind: str, name: str, known: Sequence[str], pattern: str) -> None:
    """Raises a ValueError with the nearest names for a name that timm lacks."""
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(repr(each) for each in near)}?" if near else ""
    raise ValueError(
        f"timm has no {kind} {name!r}.{hint} timm.list_models({pattern!r}) lists them."
    )


def normalised_colours(
    images: Tensor, mean: Sequence[float], deviation: Sequence[float], dtype: torch.dtype
) -> Tensor:
    """Returns images (B, H, W, 3), 0 to 255, as the inputs (B, 3, H, W) of a network.

    `mean` and `deviation` are those of colours from 0 to 1 in the training of the network.
    """
    colours = images.to(torch.promote_types(dtype, torch.float32)) / 255
    normalised = (colours - colours.new_tensor(mean)) / colours.new_tensor(deviation)
    return normalised.to(dtype).permute(0, 3, 1, 2)


def _refusal(name: str, error: Exception, *, fetched: bool) -> ValueError:
    if isinstance(error, OSError) and fetched:
        return ValueError(
            f"The weights of {name!r} could not be fetched: {error} Download their "
            f"model.safetensors on a machine with a network connection and set "
            f"weights=Path('model.safetensors')."
        )
    return ValueError(f"timm cannot make {name!r}: {error}")


def _check_kind(name: str, model: object) -> None:
    from timm.models.eva import Eva
    from timm.models.vision_transformer import VisionTransformer

    if not isinstance(model, Eva | VisionTransformer):
        allowed = (
            "vision transformers of timm's classes VisionTransformer (SigLIP, DINOv2, CLIP) and "
            "Eva (DINOv3)"
        )
        raise ValueError(f"{name!r} is a {type(model).__name__}; allowed: {allowed}.")


def _in_timms_form(tensors: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Converts tensors by timm; unchanged if it cannot, for the error message of `fill`."""
    from timm.models import eva, vision_transformer

    # `timm_model` builds no others.
    assert isinstance(model, eva.Eva | vision_transformer.VisionTransformer)
    try:
        if isinstance(model, eva.Eva):
            return eva.checkpoint_filter_fn(tensors, model)
        return vision_transformer.checkpoint_filter_fn(tensors, model)
    except (RuntimeError, KeyError, AssertionError):
        return tensors


def _without_head(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in tensors.items() if not key.startswith(POOLED_HEAD)}
