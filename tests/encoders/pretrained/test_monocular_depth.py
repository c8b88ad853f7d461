"""Depth by tiny untrained networks of transformers, and the command that writes it."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stringline import Camera, Contract, EpisodeAttributes, EpisodeStore, MonocularDepth
from stringline.datasets.contract.contract import ActionDimension
from stringline.datasets.data import main
from stringline.encoders.pretrained.initial_weights import declare_torchvision_operators


def save_model(path: Path, meaning: str) -> Any:
    """Saves a Depth Anything of two layers with random weights, and returns it."""
    declare_torchvision_operators()
    transformers = importlib.import_module("transformers")
    torch.manual_seed(0)
    backbone = transformers.Dinov2Config(
        image_size=28,
        patch_size=14,
        num_hidden_layers=2,
        hidden_size=16,
        num_attention_heads=2,
        mlp_ratio=2,
        out_features=["stage1", "stage2"],
        reshape_hidden_states=False,
    )
    config = transformers.DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=16,
        reassemble_factors=[2, 1],
        neck_hidden_sizes=[8, 8],
        fusion_hidden_size=8,
        head_hidden_size=8,
        depth_estimation_type=meaning,
        max_depth=4,
        initializer_range=0.1,
    )
    network = transformers.DepthAnythingForDepthEstimation(config).eval()
    network.save_pretrained(path)
    transformers.DPTImageProcessor(size={"height": 56, "width": 56}).save_pretrained(path)
    return network


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    paths = {meaning: tmp_path_factory.mktemp(meaning) for meaning in ("metric", "relative")}
    for meaning, path in paths.items():
        save_model(path, meaning)
    return paths


@pytest.fixture(scope="module")
def images() -> Any:
    return np.random.default_rng(0).integers(0, 256, (3, 30, 40, 3), np.uint8)


@pytest.mark.slow
def test_metric_depth_is_the_output_of_the_network(models: dict[str, Path], images: Any) -> None:
    depth = MonocularDepth(str(models["metric"]))(images)
    assert depth.shape == (3, 30, 40)
    assert depth.dtype == np.float32
    assert (depth > 0).all()
    assert (depth < 4).all(), "the model's largest depth"
    assert depth.std() > 0
    transformers = importlib.import_module("transformers")
    processor = transformers.AutoImageProcessor.from_pretrained(models["metric"])
    network = transformers.AutoModelForDepthEstimation.from_pretrained(models["metric"])
    with torch.inference_mode():
        raw = network(**processor(images=list(images), return_tensors="pt")).predicted_depth
    resized = torch.nn.functional.interpolate(
        raw[:, None], (30, 40), mode="bicubic", align_corners=False
    )[:, 0]
    np.testing.assert_allclose(depth, resized.numpy(), atol=1e-5)


def test_inverse_depth_needs_a_scale(models: dict[str, Path], images: Any) -> None:
    path = str(models["relative"])
    with pytest.raises(
        ValueError,
        match=r"returns inverse depth of unknown scale; inverse_scale is None. Set .*\(above 0\)",
    ):
        MonocularDepth(path)
    one = 1 / MonocularDepth(path, inverse_scale=1.0, inverse_shift=1.0)(images) - 1.0
    other = 1 / MonocularDepth(path, inverse_scale=2.0, inverse_shift=0.5)(images) - 0.5
    np.testing.assert_allclose(other, 2.0 * one, rtol=1e-3, atol=1e-5)
    assert np.isnan(MonocularDepth(path, inverse_scale=1.0, inverse_shift=-1e6)(images)).all()


def test_unusable_models_are_rejected(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ValueError,
        match=r"There is no folder /nowhere/model. Give a folder with config.json and weights",
    ):
        MonocularDepth("/nowhere/model")
    with pytest.raises(ValueError, match="transformers cannot load a depth model"):
        MonocularDepth(str(tmp_path))
    with pytest.raises(ValueError, match=r"declares metric depth; got gives=inverse"):
        MonocularDepth(str(models["metric"]), gives="inverse")
    with pytest.raises(ValueError, match="a depth model's output 'metrik'. Did you mean 'metric'"):
        MonocularDepth(str(models["metric"]), gives="metrik")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        ValueError, match=r'needs transformers, .* Run: pip install "stringline\[depth\]"'
    ):
        MonocularDepth(str(models["metric"]))


def test_the_command(
    models: dict[str, Path],
    images: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    contract = Contract(
        "small",
        "table",
        10.0,
        (Camera("eye", 30, 40, has_geometry=False),),
        (),
        (),
        (ActionDimension("a", "one", "joint"),),
    )
    time = np.arange(3) * 0.1
    arrays = {
        "time": time,
        "action": np.zeros((3, 1), np.float32),
        "rgb/eye": images,
        "time/eye": time,
    }
    store = EpisodeStore.create(tmp_path / "store")
    name = store.write(
        arrays | {"frame/eye": np.arange(3, dtype=np.int32)},
        EpisodeAttributes(contract, "small", 0),
    )

    def run(*arguments: str) -> None:
        monkeypatch.setattr(
            sys, "argv", ["stringline-data", "depth", f"output={tmp_path / 'copy'}", *arguments]
        )
        main()

    run(f"store={store.path}", f"model={models['metric']}")
    assert "1 episodes with estimated depth" in capsys.readouterr().out
    episode = EpisodeStore.open(tmp_path / "copy").episode(name)
    assert episode.attributes.contract.camera("eye").depth == "estimated"
    expected = np.rint(MonocularDepth(str(models["metric"]))(images).astype(np.float64) * 1000)
    np.testing.assert_array_equal(episode.arrays["depth/eye"], expected)
    for arguments, answer in (
        ([f"store={store.path}", "model=/nowhere"], "There is no folder /nowhere."),
        (
            [f"store={tmp_path / 'copy'}", f"model={models['metric']}"],
            "Camera 'eye' has estimated depth already",
        ),
    ):
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            run(*arguments)
        assert caught.value.code == 2
        assert answer in capsys.readouterr().err
