"""Reading of cameras: required keys, and errors for invalid observations and cameras."""

from functools import partial

import pytest
import torch
from tests.encoders.vision.conftest import MakeTokens, Observation
from torch import Tensor

from stringline import (
    Camera,
    ColourOnly,
    CylindricalPlaces,
    DepthChannel,
    GridPlaces,
    MetricPlaces,
    PatchDepthPlaces,
    PatchProjection,
    RgbdTokens,
    SurfaceNormals,
)
from stringline.encoders.coordinates.coordinates import Coordinates
from stringline.encoders.vision.patches import DepthInput


def test_only_used_keys_are_required(
    observation: Observation, make_tokens: MakeTokens, cameras: tuple[Camera, ...]
) -> None:
    images = {key: value for key, value in observation.items() if key.startswith("rgb/")}
    assert make_tokens(GridPlaces())(images).has_position.all()  # Depth is not read,
    colour = {"rgb/colour": images["rgb/colour"]}
    metric = RgbdTokens(cameras[3:], MetricPlaces(), 32, depth=SurfaceNormals())
    assert not metric(colour).has_position.any()  # or is not in the contract.
    undeclared = colour | {"depth/colour": torch.full((2, 32, 32), -1.0)}
    assert not metric(undeclared).has_position.any()


@pytest.mark.parametrize(
    ("key", "coordinates", "depth"),
    [
        ("rgb/wrist", GridPlaces(), ColourOnly()),
        ("depth/wrist", PatchDepthPlaces(), ColourOnly()),
        ("depth/wrist", GridPlaces(), DepthChannel()),
        ("intrinsics/wrist", MetricPlaces(), ColourOnly()),
        ("intrinsics/wrist", GridPlaces(), SurfaceNormals()),
        ("T_base_camera/wrist", CylindricalPlaces(), ColourOnly()),
    ],
)
def test_a_missing_key_is_reported_with_the_nearest(
    key: str,
    coordinates: Coordinates,
    depth: DepthInput,
    observation: Observation,
    make_tokens: MakeTokens,
) -> None:
    observation[key.replace("wrist", "wirst")] = observation.pop(key)
    with pytest.raises(
        ValueError,
        match=(
            f"There is no observation key '{key}'. Did you mean .*'{key.replace('wrist', 'wirst')}'"
        ),
    ):
        make_tokens(coordinates, depth=depth)(observation)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rgb/web", torch.zeros(2, 20, 32, 3), "allowed: multiples of the patch of 16"),
        ("rgb/wrist", torch.zeros(2, 32, 32), r"rgb/wrist has shape \(2, 32, 32\)"),
        ("rgb/wrist", torch.zeros(2, 32, 32, 4), r"rgb/wrist has shape \(2, 32, 32, 4\)"),
        ("depth/wrist", torch.ones(2, 16, 16), r"Camera 'wrist': depth has shape \(2, 16, 16\)"),
        ("depth/wrist", torch.full((2, 32, 32), -0.1), "depth holds -0.1"),
        ("intrinsics/wrist", torch.zeros(2, 3, 3), "intrinsics holds"),
        ("T_base_camera/wrist", torch.full((2, 4, 4), torch.nan), "T_base_camera holds nan"),
    ],
)
def test_invalid_observations_are_rejected(
    key: str, value: Tensor, message: str, observation: Observation, make_tokens: MakeTokens
) -> None:
    with pytest.raises(ValueError, match=message):
        make_tokens()(observation | {key: value})


def test_unsuitable_cameras_are_rejected() -> None:
    with pytest.raises(ValueError, match="Camera 'odd' has 30x32 pixels; allowed: multiples of 16"):
        RgbdTokens((Camera("odd", 30, 32),), GridPlaces())
    with pytest.raises(ValueError, match="Camera 'odd' has 28x32 pixels; allowed: multiples of 14"):
        RgbdTokens(
            (Camera("odd", 28, 32),), GridPlaces(), embedding=partial(PatchProjection, patch=14)
        )
    with pytest.raises(ValueError, match="'brown_conrady' distortion; undistort"):
        RgbdTokens(
            (Camera("bent", 32, 32, distortion_model="brown_conrady", distortion=(0.1,)),),
            GridPlaces(),
        )
