import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from stringline.encoders.pretrained.timm_models import TimmModel, load_weights, timm_model

SIGLIP = "vit_base_patch16_siglip_224"
SMALL: dict[str, object] = {"depth": 1, "embed_dim": 32, "num_heads": 2}

LOAD = """
import sys
from pathlib import Path
from stringline.encoders.pretrained.vision_transformer import timm_model
assert "timm" not in sys.modules, "timm is optional, so it is imported on its first use"
def attempt():
    try:
        timm_model("vit_tiny_patch16_224.augreg_in21k")
    except ValueError as error:
        print(error)
sys.modules["timm"] = None  # As if it were not installed.
attempt()
del sys.modules["timm"]
attempt()
"""


@pytest.mark.slow
def test_a_missing_timm_and_a_missing_network_are_reported_with_a_remedy(tmp_path: Path) -> None:
    environment = os.environ | {
        "PYTHONPATH": ".src",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path),
    }
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", LOAD],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    missing, unreachable = done.stdout.splitlines()
    assert (
        missing
        == 'This needs timm, which is not installed. Run: pip install "stringline[pretrained]"'
    )
    assert unreachable.startswith(
        "The weights of 'vit_tiny_patch16_224.augreg_in21k' could not be fetched: "
    )
    assert unreachable.endswith(
        "Download their model.safetensors on a machine with a network connection and set "
        "weights=Path('model.safetensors')."
    )


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("vit_base_patch16_siglp_224", "'vit_base_patch16_siglip_224'"),
        ("vit_small_dinov3", "'vit_small_patch16_dinov3'"),
        ("vit_base_patch16_siglip_256.webl", "'vit_base_patch16_siglip_256.webli'"),
    ],
)
def test_an_unknown_name_is_reported_with_the_nearest_ones(name: str, near: str) -> None:
    with pytest.raises(
        ValueError,
        match=f"timm has no vision transformer '{name}'. Did you mean .*{near}.*timm.list_models",
    ):
        timm_model(name, pretrained=False)


def test_other_networks_than_vision_transformers_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"no vision transformer 'resnet18'"):
        timm_model("resnet18", pretrained=False)
    with pytest.raises(ValueError, match="'vit_relpos_small_patch16_224': VisionTransformerRelPos"):
        timm_model("vit_relpos_small_patch16_224", pretrained=False)
    with pytest.raises(
        ValueError,
        match=f"'{SIGLIP}' is a NaFlexVit; allowed: vision transformers of timm's classes",
    ):
        timm_model(SIGLIP, pretrained=False, options=SMALL | {"use_naflex": True})
    with pytest.raises(
        ValueError, match=f"timm cannot make '{SIGLIP}': .* unexpected keyword argument 'dept'"
    ):
        timm_model(SIGLIP, pretrained=False, options={"dept": 3})


def test_a_file_of_another_resolution_is_resampled_as_by_timm(tmp_path: Path) -> None:
    import timm

    path = tmp_path / "model.safetensors"
    save_model(timm_model(SIGLIP, pretrained=False, options=SMALL), path)
    ours = timm_model(SIGLIP, weights=path, options=SMALL | {"img_size": 160})
    theirs = timm.create_model(
        SIGLIP,
        pretrained=True,
        pretrained_cfg_overlay={"file": str(path)},
        img_size=160,
        depth=1,
        embed_dim=32,
        num_heads=2,
    )
    assert isinstance(ours, nn.Module)
    found = ours.state_dict()
    assert found["pos_embed"].shape == (1, 100, 32)
    for key, expected in theirs.state_dict().items():
        if not key.startswith("attn_pool."):
            torch.testing.assert_close(found[key], expected, rtol=0, atol=0)


def save_model(model: TimmModel, path: Path) -> None:
    """Writes all weights of a model, as timm does for its hub."""
    assert isinstance(model, nn.Module)
    save_file(model.state_dict(), path)


def test_a_pooled_head_is_optional(tmp_path: Path, make: Callable[[str], TimmModel]) -> None:
    model = make("siglip")
    save_model(model, tmp_path / "with.safetensors")
    tensors = load_file(tmp_path / "with.safetensors")
    assert any(key.startswith("attn_pool.") for key in tensors)
    save_file(
        {k: v for k, v in tensors.items() if not k.startswith("attn_pool.")},
        tmp_path / "without.safetensors",
    )
    for name in ("with", "without"):
        other = timm_model(SIGLIP, pretrained=False, options=SMALL | {"depth": 2})
        assert isinstance(other, nn.Module)
        load_weights(other, tmp_path / f"{name}.safetensors")
        torch.testing.assert_close(
            other.state_dict()["pos_embed"], tensors["pos_embed"].float(), rtol=0, atol=0
        )


def test_the_mismatch_of_a_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with pytest.raises(ValueError, match="model.safetensors cannot be read as safetensors: "):
        timm_model(SIGLIP, weights=path, options=SMALL)
    path.write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="model.safetensors cannot be read as safetensors: "):
        timm_model(SIGLIP, weights=path, options=SMALL)
    save_model(timm_model(SIGLIP, pretrained=False, options=SMALL), path)
    with pytest.raises(
        ValueError,
        match="does not fit this model: missing: blocks.1.attn.proj.bias, .* and 9 more.$",
    ):
        timm_model(SIGLIP, weights=path, options=SMALL | {"depth": 2})
    with pytest.raises(
        ValueError, match=r"of another shape: .*blocks.0.mlp.fc1.bias \(128,\) for \(64,\)"
    ):
        timm_model(SIGLIP, weights=path, options=SMALL | {"mlp_ratio": 2})
    with pytest.raises(
        ValueError,
        match=(
            "does not fit this model: missing: cls_token.*; unknown: .*; of another shape: "
            "pos_embed"
        ),
    ):
        timm_model("vit_base_patch16_clip_224", weights=path, options=SMALL)
    save_file(load_file(path) | {"blocks.0.extra": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="does not fit this model: unknown: blocks.0.extra.$"):
        timm_model(SIGLIP, weights=path, options=SMALL)
