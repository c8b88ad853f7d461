"""A small random model of each family of timm, without zeros that would hide an error."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from stringline import CayleyString, PretrainedVisionTransformer
from stringline.encoders.pretrained.timm_models import TimmModel, timm_model
from stringline.encoders.pretrained.vision_transformer import FilledDepthPlaces

Make = Callable[[str], TimmModel]
Features = Callable[[TimmModel, Tensor], Tensor]
Images = Callable[[int, int], Tensor]
SMALL: dict[str, object] = {"depth": 2, "embed_dim": 32, "num_heads": 2}
FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "siglip": ("vit_base_patch16_siglip_224", SMALL),
    "dinov2": ("vit_small_patch14_dinov2", SMALL | {"img_size": 112}),
    "dinov2_registers": ("vit_small_patch14_reg4_dinov2", SMALL | {"img_size": 112}),
    "dinov2_swiglu": ("vit_giant_patch14_dinov2", SMALL | {"img_size": 112, "mlp_ratio": 4}),
    "clip": ("vit_base_patch16_clip_224", SMALL),
    "clip_quickgelu": ("vit_base_patch16_clip_quickgelu_224", SMALL),
    "qk_norm": ("vit_base_patch16_224", SMALL | {"qk_norm": True}),
    "dinov3": ("vit_small_patch16_dinov3", SMALL | {"img_size": 128}),
    "dinov3_biases": ("vit_small_patch16_dinov3_qkvb", SMALL | {"img_size": 128}),
    "dinov3_swiglu": ("vit_small_plus_patch16_dinov3", SMALL | {"img_size": 128}),
}
# The families that rotate queries and keys themselves.
TURNING = ("dinov3", "dinov3_biases", "dinov3_swiglu")


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """Every family."""
    return str(request.param)


@pytest.fixture
def make() -> Make:
    """Returns a family's model in float64 and evaluation mode, the same in every call."""

    def made(family: str) -> TimmModel:
        name, options = FAMILIES[family]
        model = timm_model(name, pretrained=False, options=options)
        assert isinstance(model, nn.Module)
        generator = torch.Generator().manual_seed(0)
        for key, parameter in model.named_parameters():
            noise = 0.1 * torch.randn(parameter.shape, generator=generator)
            start = (
                1.0 if "norm" in key and key.endswith("weight") else 0.5 if "gamma" in key else 0.0
            )
            parameter.detach().copy_(noise + start)
        return model.double().eval()

    return made


@pytest.fixture
def pair(
    make: Callable[[str], TimmModel], tmp_path: Path
) -> Callable[[str], tuple[TimmModel, PretrainedVisionTransformer]]:
    """Returns a model of timm and ours with its weights from a file, in float32."""

    def both(family: str) -> tuple[TimmModel, PretrainedVisionTransformer]:
        theirs, (name, options) = make(family), FAMILIES[family]
        assert isinstance(theirs, nn.Module)
        save_file(theirs.float().state_dict(), tmp_path / "model.safetensors")
        encoding = None if family in TURNING else partial(CayleyString, wavelengths=(1.0, 20.0))
        ours = PretrainedVisionTransformer.load(
            name,
            FilledDepthPlaces(),
            encoding,
            weights=tmp_path / "model.safetensors",
            options=options,
        )
        return theirs, ours.eval()

    return both


@pytest.fixture
def timms_own() -> Features:
    """Returns timm's outputs for images (B, H, W, 3) from 0 to 255."""

    def features(model: TimmModel, images: Tensor) -> Tensor:
        assert isinstance(model, nn.Module)
        kind = next(model.parameters()).dtype
        mean, deviation = (
            torch.tensor(model.pretrained_cfg[key], dtype=kind) for key in ("mean", "std")
        )
        normalised = (images.to(kind) / 255 - mean) / deviation
        with torch.no_grad():
            seen: Tensor = model.get_submodule("").forward_features(normalised.permute(0, 3, 1, 2))  # type: ignore[operator]
        return seen

    return features


@pytest.fixture
def images() -> Images:
    """Returns two images (2, height, width, 3) uint8, the same in every call."""

    def drawn(height: int, width: int) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        return torch.randint(0, 256, (2, height, width, 3), dtype=torch.uint8, generator=generator)

    return drawn
