"""Residual networks: timm's outputs with frozen norms, no running statistics, and errors."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from stringline.encoders.pretrained.convolutional import Norm, ResNet
from stringline.encoders.pretrained.initial_weights import WeightsFrom, without_files
from stringline.encoders.pretrained.timm_models import import_timm

OPTIONS = {"channels": [16, 16, 32, 32], "layers": [1, 1, 1, 1]}


@pytest.fixture
def images() -> Tensor:
    return torch.randint(
        0, 256, (3, 64, 96, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )


@pytest.fixture
def theirs() -> nn.Module:
    """A network of timm whose batch norms have statistics."""
    torch.manual_seed(0)
    network: nn.Module = import_timm().create_model(
        "resnet18", num_classes=7, zero_init_last=False, **OPTIONS
    )
    network.train()
    with torch.no_grad():
        for _ in range(3):
            network(torch.randn(4, 3, 64, 64))
    return network.eval()


@pytest.fixture
def weights(theirs: nn.Module, tmp_path: Path) -> Path:
    save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_frozen_norms_give_timms_features(weights: Path, theirs: nn.Module, images: Tensor) -> None:
    ours = ResNet(norm="frozen", weights=weights, options=OPTIONS).train()
    colours = (images / 255 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor(
        [0.229, 0.224, 0.225]
    )
    expected: Tensor = theirs.forward_features(colours.permute(0, 3, 1, 2))  # type: ignore[operator]
    found = ours(images)
    assert found.shape == (3, ours.dim, 2, 3)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_a_classifier_may_be_missing_from_the_file(weights: Path, theirs: nn.Module) -> None:
    kept = {
        key: value
        for key, value in theirs.state_dict().items()
        if "num_batches" not in key and not key.startswith("fc.")
    }
    save_file(kept, weights)
    found = ResNet(norm="group", weights=weights, options=OPTIONS).network.state_dict()
    for key, value in found.items():
        torch.testing.assert_close(value, kept[key], rtol=0, atol=0)


@pytest.mark.parametrize("norm", ["group", "frozen"])
def test_images_are_encoded_independently(norm: Norm, weights: Path, images: Tensor) -> None:
    """In training too: so a moving average of the weights is the whole network."""
    network = ResNet(norm=norm, weights=weights, options=OPTIONS).train()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    together = network(images)
    torch.testing.assert_close(network(images[1:2]), together[1:2], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(network.eval()(images), together)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())


def test_groups_have_sixteen_channels() -> None:
    norms = [
        module for module in ResNet(options=OPTIONS).modules() if isinstance(module, nn.GroupNorm)
    ]
    assert {(norm.num_channels, norm.num_groups) for norm in norms} == {(64, 4), (16, 1), (32, 2)}


def test_it_has_the_size_of_the_published_network() -> None:
    """The trunk of torchvision's resnet18: 11.69 million parameters minus the classifier."""
    assert sum(parameter.numel() for parameter in ResNet().parameters()) == 11_689_512 - 513_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "resnet8"}, r"residual network 'resnet8'. Did you mean '.*timm.list_models\('"),
        ({"norm": "batch"}, "norm is 'batch'; allowed: 'group', 'frozen'."),
        (
            {"norm": "frozen"},
            r"norm=frozen needs the statistics of trained weights: set weights=FILE",
        ),
        ({"options": {"layer": 3}}, "timm cannot make 'resnet18'"),
        ({"weights": "nowhere.safetensors"}, "nowhere.safetensors cannot be read as safetensors"),
        ({"name": "resnetv2_50"}, "'resnetv2_50' is a ResNetV2"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ResNet(**arguments)  # type: ignore[arg-type]


def test_weights_of_another_network_are_rejected(weights: Path) -> None:
    with pytest.raises(ValueError, match="does not fit this model: missing"):
        ResNet(weights=weights)


def test_a_checkpoint_needs_no_file_of_weights() -> None:
    """The placeholder replaces files at any depth of a configuration, but not null."""
    network = {"norm": "frozen", "weights": "gone.safetensors"}
    found = without_files(
        {"observation_encoder": [{"network": network, "other": {"weights": None}}], "weights": 3}
    )
    assert found == {
        "observation_encoder": [
            {
                "network": {"norm": "frozen", "weights": WeightsFrom.CHECKPOINT},
                "other": {"weights": None},
            }
        ],
        "weights": 3,
    }
    assert network["weights"] == "gone.safetensors"
    assert ResNet(options=OPTIONS, norm="frozen", weights=WeightsFrom.CHECKPOINT).dim == 32
