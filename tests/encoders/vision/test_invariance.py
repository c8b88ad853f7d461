"""Encoded tokens do not change with a common shift or rotation of the world."""

from functools import partial

import pytest
import torch
from tests.encoders.vision.conftest import MakeTokens, Observation
from tests.encoders.vision.rgbd_network import RgbdVisionTransformer
from torch import Tensor

from stringline.datasets.contract.contract import Camera
from stringline.encoders.coordinates.canonical import (
    CanonicalPlaces,
    CylindricalPlaces,
    SphericalPlaces,
    WholeOnCircle,
)
from stringline.encoders.coordinates.coordinates import MetricPlaces
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.frequencies import MixedFrequencies
from stringline.encoders.positions.rotary import NoEncoding, RopeMixed, RotaryEncoding
from stringline.encoders.vision.patches import (
    DepthChannel,
    DepthInput,
    PatchProjection,
    SurfaceNormals,
)
from stringline.encoders.vision.rgbd import RgbdTokens, Tokens
from stringline.encoders.vision.vit import VisionTransformer


def _shifted(observation: Observation, shift: Tensor) -> Observation:
    moved = dict(observation)
    for key in observation:
        if key.startswith("T_base_camera/"):
            moved[key] = observation[key].clone()
            moved[key][:, :3, 3] += shift
    return moved


def _blocks(encoding: PositionEncoding, registers: int = 2) -> VisionTransformer:
    torch.manual_seed(1)
    blocks = VisionTransformer(encoding, 32, depth=2, registers=registers).double()
    torch.nn.init.normal_(blocks.unplaced_mark)
    return blocks


class FirstAxes(MetricPlaces):
    """The first metric coordinates, for encodings of fewer axes."""

    def __init__(self, axes: int) -> None:
        super().__init__()
        self.axes = axes

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        coordinates, has_position = super().patches(view, patch, batch, device)
        return coordinates[..., : self.axes], has_position


class AtOrigin(FirstAxes):
    """A wrong choice: tokens without a place are put at the origin."""

    def patches(
        self, view: View, patch: int, batch: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        coordinates, has_position = super().patches(view, patch, batch, device)
        return torch.where(has_position.unsqueeze(-1), coordinates, 0.0), torch.ones_like(
            has_position
        )


SHIFT = torch.tensor([0.7, -1.3, 0.4], dtype=torch.float64)


@torch.no_grad()
def _change(
    tokenise: RgbdTokens, blocks: VisionTransformer, before: Observation, after: Observation
) -> float:
    """Returns the largest difference of the encoded tokens of two observations."""
    encode = RgbdVisionTransformer(tokenise.double(), blocks)
    return float((encode(after).features - encode(before).features).abs().max())


def test_a_common_shift_has_no_effect(
    relative_encoding: PositionEncoding, observation: Observation, make_tokens: MakeTokens
) -> None:
    """The batch has holes, cameras without geometry and depth, and the network has registers."""
    tokenise = make_tokens(FirstAxes(relative_encoding.axes))
    assert [int(count) for count in (~tokenise(observation).has_position).sum(dim=1)] == [2 + 8, 8]
    assert (
        _change(tokenise, _blocks(relative_encoding), observation, _shifted(observation, SHIFT))
        <= 1e-9
    )


def test_a_common_shift_has_an_effect_with_unplaced_tokens_at_the_origin(
    relative_encoding: PositionEncoding, observation: Observation, make_tokens: MakeTokens
) -> None:
    tokenise = make_tokens(AtOrigin(relative_encoding.axes))
    broken = _change(
        tokenise, _blocks(relative_encoding), observation, _shifted(observation, SHIFT)
    )
    assert (broken > 1e-3) == (not isinstance(relative_encoding, NoEncoding))


@pytest.mark.parametrize(
    "depth", [DepthChannel(), SurfaceNormals(), SurfaceNormals(base_frame=False)]
)
def test_a_common_shift_has_no_effect_with_any_depth_input(
    depth: DepthInput, observation: Observation, make_tokens: MakeTokens
) -> None:
    blocks = _blocks(RopeMixed(2, 16, 3, wavelengths=(0.2, 2.0)))
    assert (
        _change(make_tokens(depth=depth), blocks, observation, _shifted(observation, SHIFT)) <= 1e-9
    )


def test_a_common_shift_of_images_and_points_has_no_effect(
    spatial_encoding: PositionEncoding, observation: Observation, make_tokens: MakeTokens
) -> None:
    """Grippers join the tokens of the images; one gripper is without a place."""
    tokenise, blocks = make_tokens().double(), _blocks(spatial_encoding, registers=0)
    grippers = torch.randn(2, 2, 3, dtype=torch.float64)
    features = torch.randn(2, 2, 32, dtype=torch.float64)
    has_gripper = torch.tensor([[True, False], [True, True]])

    def encode(shift: Tensor) -> Tensor:
        places, _ = tokenise.coordinates.points(grippers + shift)
        tokens: Tokens = tokenise(_shifted(observation, shift)) + Tokens(
            features, places, has_gripper
        )
        encoded: Tensor = blocks(tokens.features, tokens.coordinates, tokens.has_position)
        return encoded

    torch.testing.assert_close(encode(SHIFT), encode(torch.zeros_like(SHIFT)), rtol=0, atol=1e-9)


def _turned(observation: Observation, angle: float) -> Observation:
    """Rotates the whole world about the y axis through the origin of `_canonical`."""
    cos = torch.tensor(angle, dtype=torch.float64).cos()
    sin = torch.tensor(angle, dtype=torch.float64).sin()
    turn = torch.eye(4, dtype=torch.float64)
    turn[0, 0], turn[0, 2], turn[2, 0], turn[2, 2] = cos, sin, -sin, cos
    to_origin = torch.eye(4, dtype=torch.float64)
    to_origin[2, 3] = 6.0
    about = torch.linalg.inv(to_origin) @ turn @ to_origin
    return {
        key: about @ value if key.startswith("T_base_camera/") else value
        for key, value in observation.items()
    }


def _canonical(kind: type[CanonicalPlaces]) -> CanonicalPlaces:
    """Returns places about an axis behind all cameras, which are directed away from it."""
    return kind(origin=(0.0, 0.0, -6.0), axis=(0.0, 1.0, 0.0), forward=(0.0, 0.0, 1.0))


@pytest.mark.parametrize("kind", [SphericalPlaces, CylindricalPlaces])
def test_a_rotation_about_the_axis_has_no_effect_in_canonical_places(
    kind: type[CanonicalPlaces],
    spatial_encoding: PositionEncoding,
    observation: Observation,
    make_tokens: MakeTokens,
) -> None:
    """With missing positions and normals in the camera frame; metric places change."""
    turned = _turned(observation, 0.4)
    blocks = _blocks(spatial_encoding)
    depth = SurfaceNormals(base_frame=False)
    assert _change(make_tokens(_canonical(kind), depth=depth), blocks, observation, turned) <= 1e-9
    metric = _change(make_tokens(MetricPlaces(), depth=depth), blocks, observation, turned)
    assert (metric > 1e-4) == (not isinstance(spatial_encoding, NoEncoding))


def test_a_rotation_across_the_cut_needs_integer_frequencies(
    observation: Observation, cameras: tuple[Camera, ...]
) -> None:
    """Every token has a position: the mean of azimuths on both sides of the cut has no meaning."""
    for name in ("overhead", "wrist"):
        observation[f"depth/{name}"] = observation[f"depth/{name}"].int().clamp(min=400)
    torch.manual_seed(0)
    tokenise = RgbdTokens(cameras[:2], _canonical(CylindricalPlaces), 32, embedding=PatchProjection)
    turned = _turned(observation, 3.1)
    has_position: Tokens = tokenise(turned)
    assert has_position.has_position.all()
    assert has_position.coordinates[..., 0].min() < -3
    assert has_position.coordinates[..., 0].max() > 3
    free = partial(MixedFrequencies, wavelengths=(0.2, 6.0))
    whole, not_whole = (
        _change(
            tokenise,
            _blocks(RotaryEncoding(2, 16, 3, frequencies=frequencies), registers=0),
            observation,
            turned,
        )
        for frequencies in (partial(WholeOnCircle, frequencies=free, angles=(0,)), free)
    )
    assert whole <= 1e-9
    assert not_whole > 1e-3
