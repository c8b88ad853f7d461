from functools import partial

import pytest
import torch
from tests.encoders.pretrained.conftest import Make
from torch import Tensor

from stringline.datasets.contract.contract import Camera
from stringline.encoders.coordinates.coordinates import GridPlaces, MetricPlaces
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.positions.rotary import CayleyString
from stringline.encoders.pretrained.backbone import PretrainedTokens
from stringline.encoders.pretrained.vision_transformer import (
    FilledDepthPlaces,
    PretrainedVisionTransformer,
)
from stringline.encoders.vision.vit import VisionTransformer

CAYLEY = partial(CayleyString, wavelengths=(0.1, 2.0))
CAMERAS = (
    Camera("wrist", 32, 48, depth="measured", has_geometry=True, depth_unit_m=0.0005),
    Camera("web", 32, 32),
)


def observation_of(batch: int = 2) -> dict[str, Tensor]:
    """Returns an observation of both cameras, with a hole in the depth of the first."""
    generator = torch.Generator().manual_seed(0)
    depth = torch.randint(300, 900, (batch, 32, 48), generator=generator)
    depth[:, :16, :16] = 0
    intrinsics = torch.tensor(
        [[40.0, 0.0, 24.0], [0.0, 40.0, 16.0], [0.0, 0.0, 1.0]], dtype=torch.float64
    )
    return {
        "rgb/wrist": torch.randint(
            0, 256, (batch, 32, 48, 3), dtype=torch.uint8, generator=generator
        ),
        "rgb/web": torch.randint(
            0, 256, (batch, 32, 32, 3), dtype=torch.uint8, generator=generator
        ),
        "depth/wrist": depth.to(torch.uint16),
        "intrinsics/wrist": intrinsics.expand(batch, 3, 3),
        "T_base_camera/wrist": torch.eye(4, dtype=torch.float64).expand(batch, 4, 4),
    }


def test_tokens_are_those_of_the_network_camera_by_camera(make: Make) -> None:
    observation = observation_of()
    encode = PretrainedVisionTransformer(make("clip"), MetricPlaces(), CAYLEY).double()
    tokens = PretrainedTokens(CAMERAS, encode).double()(observation)
    assert tokens.features.shape == (2, (1 + 6) + (1 + 4), 32)
    view = View(
        height=32,
        width=48,
        depth=observation["depth/wrist"],
        depth_unit_m=0.0005,
        intrinsics=observation["intrinsics/wrist"],
        T_base_camera=observation["T_base_camera/wrist"],
    )
    wrist, web = encode(observation["rgb/wrist"], view), encode(observation["rgb/web"])
    torch.testing.assert_close(
        tokens.features, torch.cat((wrist.features, web.features), dim=1), rtol=0, atol=0
    )
    torch.testing.assert_close(tokens.coordinates[:, :7], wrist.coordinates, rtol=0, atol=0)
    assert (
        tokens.has_position.tolist() == [[False, False, *[True] * 5, *[False] * 5]] * 2
    )  # CLS, a hole, and the second camera.


def test_tokens_of_a_missing_camera_are_absent(make: Make) -> None:
    encode = PretrainedVisionTransformer(make("clip"), MetricPlaces(), CAYLEY).double()
    tokenise = PretrainedTokens(CAMERAS, encode).double()
    present = {"present/wrist": torch.tensor([True, False])}
    tokens, whole = tokenise(observation_of() | present), tokenise(observation_of())
    assert tokens.present is not None
    assert whole.present is not None
    assert torch.equal(tokens.present[0], whole.present[0])
    assert tokens.present[1].tolist() == [False] * 7 + [True] * 5
    hole = whole.has_position.logical_not()
    hole[:, 0] = False  # CLS, which is never excluded,
    hole[:, 7:] = False  # and a camera without depth.
    assert hole.any()
    assert torch.equal(whole.present, ~hole)
    assert torch.equal(tokens.has_position[0], whole.has_position[0])
    assert not tokens.has_position[1].any()


def test_returned_places_may_differ_from_those_of_the_network(make: Make) -> None:
    observation = observation_of()
    in_image = PretrainedVisionTransformer(make("dinov3"), FilledDepthPlaces()).double()
    tokens = PretrainedTokens(CAMERAS, in_image, 24, coordinates=MetricPlaces()).double()(
        observation
    )
    metric = PretrainedVisionTransformer(make("dinov3"), GridPlaces()).double()
    assert tokens.features.shape == (2, (5 + 6) + (5 + 4), 24)
    expected, has_position = MetricPlaces().patches(
        View(
            height=32,
            width=48,
            depth=observation["depth/wrist"],
            depth_unit_m=0.0005,
            intrinsics=observation["intrinsics/wrist"],
            T_base_camera=observation["T_base_camera/wrist"],
        ),
        metric.patch,
        2,
        torch.device("cpu"),
    )
    torch.testing.assert_close(tokens.coordinates[:, 5:11], expected, rtol=0, atol=0)
    assert tokens.has_position[:, 5:11].tolist() == has_position.tolist()
    assert not tokens.has_position[:, :5].any()


def test_all_parameters_train_with_a_following_transformer(make: Make) -> None:
    encode = PretrainedVisionTransformer(
        make("siglip").float(),  # type: ignore[attr-defined]
        MetricPlaces(),
        CAYLEY,
        values=True,
    )
    tokenise = PretrainedTokens(CAMERAS, encode, 32)
    fuse = VisionTransformer(CAYLEY(heads=2, head_dim=16, axes=3), 32, depth=1)
    with torch.autocast("cpu", torch.bfloat16):
        tokens = tokenise(observation_of())
        features = fuse(tokens.features, tokens.coordinates, tokens.has_position)
    (
        features.float() * torch.randn(32, generator=torch.Generator().manual_seed(0))
    ).sum().backward()
    for name, parameter in tokenise.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert tokenise.camera_mark.grad is not None
    assert tokenise.no_weight_decay() == {"camera_mark"}


def test_invalid_cameras_and_observations_are_rejected(make: Make) -> None:
    encode = PretrainedVisionTransformer(make("dinov2"), MetricPlaces(), CAYLEY)
    with pytest.raises(ValueError, match="Camera 'wrist' has 32x48 pixels"):
        PretrainedTokens(CAMERAS, encode)
    bent = Camera(
        "bent",
        28,
        28,
        depth="measured",
        has_geometry=True,
        distortion_model="brown_conrady",
        distortion=(0.1,),
    )
    with pytest.raises(ValueError, match="Camera 'bent' has 'brown_conrady' distortion"):
        PretrainedTokens((bent,), encode)
    encode = PretrainedVisionTransformer(make("siglip"), MetricPlaces(), CAYLEY).double()
    for key in observation_of():
        observation = observation_of()
        del observation[key]
        with pytest.raises(ValueError, match=f"There is no observation key '{key}'"):
            PretrainedTokens(CAMERAS, encode)(observation)
    with pytest.raises(ValueError, match=r"rgb/web has shape \(32, 32, 3\)"):
        PretrainedTokens(CAMERAS[1:], encode)({"rgb/web": observation_of()["rgb/web"][0]})
