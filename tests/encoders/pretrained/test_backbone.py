"""Image tokens by the name of a network: equal to timm's at first, for images of any size."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tests.encoders.pretrained.conftest import FAMILIES
from tests.encoders.pretrained.test_tokens import CAMERAS, observation_of
from torch import Tensor

from stringline import Camera, CayleyString, MetricPlaces, PretrainedImages, View
from stringline.encoders.pretrained.timm_models import timm_model
from stringline.encoders.vision.rgbd import resized

CAYLEY = partial(CayleyString, wavelengths=(0.1, 2.0))


def images_by(name: str, cameras: tuple[Camera, ...] = CAMERAS, **options: Any) -> PretrainedImages:
    torch.manual_seed(0)
    return PretrainedImages(
        cameras,
        coordinates=MetricPlaces(),
        encoding=CAYLEY,
        dim=24,
        name=name,
        norm="group",
        **options,
    )


@pytest.mark.parametrize("family", ["siglip", "dinov3"])
def test_initial_tokens_are_timms(tmp_path: Path, family: str) -> None:
    name, options = FAMILIES[family]
    theirs = timm_model(name, pretrained=False, options=options)
    save_file(theirs.state_dict(), tmp_path / "model.safetensors")  # type: ignore[attr-defined]
    ours = images_by(name, weights=tmp_path, options=options, size=64).eval()
    observation = observation_of()
    with torch.no_grad():
        found = ours(observation)
        wanted = []
        for number, camera in enumerate(CAMERAS):
            images, _ = ours.view(observation, camera, ())
            mean, deviation = (torch.tensor(theirs.pretrained_cfg[key]) for key in ("mean", "std"))
            seen = ((images / 255 - mean) / deviation).permute(0, 3, 1, 2)
            features = theirs.forward_features(seen)  # type: ignore[attr-defined]
            wanted.append(ours.project(features) + ours.camera_mark[number])
    torch.testing.assert_close(found.features, torch.cat(wanted, dim=1), rtol=1e-4, atol=1e-4)
    assert found.coordinates.shape[-1] == 3


@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "vit_tiny_patch16_224"])
def test_places_do_not_depend_on_the_size_for_the_network(name: str) -> None:
    """A patch of twice the size in an image of twice the size shows the same scene."""
    cameras = CAMERAS[:1]
    observation = observation_of()
    # The depth of the pixel in the middle of a patch decides; without steps all agree.
    observation["depth/wrist"] = torch.full((2, 32, 48), 700, dtype=torch.int32)
    small = images_by(name, cameras).eval()(observation)
    large = images_by(name, cameras, size=(64, 96)).eval()(observation)
    first = small.coordinates[:, -6:].reshape(2, 2, 3, 3)
    inside = large.coordinates[:, -24:].reshape(2, 2, 2, 3, 2, 3).mean(dim=(2, 4))
    torch.testing.assert_close(inside, first, rtol=0, atol=1e-5)
    assert large.has_position[:, -24:].all()


def test_resized_images_keep_colours_depth_and_rays() -> None:
    depth = torch.arange(8 * 12).reshape(1, 8, 12) + 100
    images = torch.full((1, 8, 12, 3), 77, dtype=torch.uint8)
    K = torch.tensor([[[10.0, 0, 6], [0, 9, 4], [0, 0, 1]]])
    view = View(height=8, width=12, depth=depth, intrinsics=K)
    found, smaller = resized(images, view, (4, 6))
    assert found.shape == (1, 4, 6, 3)
    assert torch.allclose(found, torch.tensor(77.0))
    assert smaller.depth is not None
    assert torch.equal(smaller.depth, depth[:, 1::2, 1::2])
    again, larger = resized(found, smaller, (8, 12))
    assert again.shape == images.shape
    assert larger.intrinsics is not None
    assert torch.allclose(larger.intrinsics, K)
    assert resized(images, view, (8, 12))[0] is images


def test_every_weight_gets_a_gradient() -> None:
    observation = observation_of()
    tokens = images_by("vit_tiny_patch16_224", options={"depth": 2})
    found: Tensor = tokens(observation).features
    found.square().mean().backward()
    without = {
        name
        for name, parameter in tokens.named_parameters()
        if parameter.grad is None and not name.endswith("unplaced_mark")
    }
    assert not without


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 50}, "size is 50; allowed: .* in multiples of 16"),
        ({"size": (32, 32, 3)}, r"size is \(32, 32, 3\)"),
        ({"weights": "installed"}, "weights=installed has none of 'vit_tiny_patch16_224'"),
        ({"name": "vit_tiny_patch61"}, "timm has no vision transformer 'vit_tiny_patch61'"),
        ({"name": "vit_small_patch16_dinov3"}, "images of several sizes; set size"),
        ({"name": "vit_small_patch14_dinov2"}, "Camera 'wrist' has 32x48 pixels; allowed: multip"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        images_by(options.pop("name", "vit_tiny_patch16_224"), **options)
