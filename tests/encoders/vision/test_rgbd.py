"""From the images of several cameras to tokens with places."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from tests.encoders.vision.conftest import MakeTokens, Observation
from tests.encoders.vision.rgbd_network import RgbdVisionTransformer
from torch import Tensor

from stringline import (
    Camera,
    DepthChannel,
    GridPlaces,
    MetricPlaces,
    PatchDepthPlaces,
    PatchProjection,
    RgbdTokens,
    RopeMixed,
    SphericalPlaces,
    SurfaceNormals,
)
from stringline.datasets.command.choices import CONFIGS, choice_names, completed
from stringline.encoders.coordinates.coordinates import Coordinates
from stringline.encoders.training.checkpoint import build
from stringline.encoders.vision.patches import DepthInput
from stringline.encoders.vision.rgbd import Tokens
from stringline.encoders.vision.vit import VisionTransformer

WITH_POSITION = 6 + 4


def test_a_shift_of_one_camera_changes_the_tokens(
    observation: Observation, make_tokens: MakeTokens
) -> None:
    encode = RgbdVisionTransformer(
        make_tokens(), VisionTransformer(RopeMixed(2, 16, 3, wavelengths=(0.2, 2.0)), 32, depth=1)
    )
    observation = {
        key: value.float() if value.dtype == torch.float64 else value
        for key, value in observation.items()
    }
    moved = dict(observation)
    moved["T_base_camera/wrist"] = observation["T_base_camera/wrist"].clone()
    moved["T_base_camera/wrist"][:, 0, 3] += 0.1
    assert not torch.allclose(encode(observation).features, encode(moved).features, atol=1e-3)


def test_tokens_are_ordered_by_camera(observation: Observation, make_tokens: MakeTokens) -> None:
    tokens: Tokens = make_tokens()(observation)
    assert tokens.features.shape == (2, 18, 32)
    assert tokens.has_position.tolist()[1] == [True] * WITH_POSITION + [False] * 8
    changed = observation
    changed["rgb/wrist"] = 255 - changed["rgb/wrist"]
    differs = (make_tokens()(changed).features - tokens.features).abs().amax(dim=(0, 2)) > 1e-6
    assert differs.tolist() == [False] * 6 + [True] * 4 + [False] * 8


def test_cameras_with_the_same_image_have_different_tokens(
    observation: Observation, make_tokens: MakeTokens
) -> None:
    observation["rgb/web"] = observation["rgb/wrist"]
    tokens: Tokens = make_tokens()(observation)
    assert not torch.allclose(tokens.features[:, 6:10], tokens.features[:, 10:14], atol=1e-3)


def test_each_camera_has_its_own_depth_unit(
    observation: Observation, make_tokens: MakeTokens
) -> None:
    fine = dict(observation)
    fine["depth/wrist"] = (fine["depth/wrist"].int() * 2).to(torch.uint16)
    by_mm = RgbdTokens(
        (Camera("wrist", 32, 32, depth="measured", depth_unit_m=0.001),), MetricPlaces(), 32
    )
    torch.testing.assert_close(
        by_mm(observation).coordinates, make_tokens()(fine).coordinates[:, 6:10]
    )


def test_depth_is_an_optional_fourth_channel(
    observation: Observation, make_tokens: MakeTokens
) -> None:
    tokenise = make_tokens(depth=DepthChannel())
    before: Tensor = tokenise(observation).features
    further = dict(observation)
    further["depth/wrist"] = (observation["depth/wrist"].int() * 2).to(torch.uint16)
    changed = (tokenise(further).features - before).abs().amax(dim=(0, 2)) > 1e-6
    assert changed.tolist() == [False] * 6 + [True] * 4 + [False] * 8
    plain: Tensor = make_tokens()(observation).features
    torch.testing.assert_close(make_tokens()(further).features, plain, rtol=0, atol=0)


def test_normals_are_further_tokens_at_the_same_places(
    observation: Observation, make_tokens: MakeTokens
) -> None:
    """The embedding is shared: tokens of colours equal those without normals."""
    tokenise = make_tokens(depth=SurfaceNormals())
    tokens: Tokens = tokenise(observation)
    colours: Tokens = make_tokens()(observation)
    assert tokens.features.shape == (2, 36, 32)
    torch.testing.assert_close(tokens.features[:, :18], colours.features)
    for half in (slice(None, 18), slice(18, None)):
        assert torch.equal(tokens.coordinates[:, half], colours.coordinates)
        assert torch.equal(tokens.has_position[:, half], colours.has_position)
    flat = dict(observation)
    flat["depth/wrist"] = torch.full((2, 32, 32), 700).to(torch.uint16)
    differs = (tokenise(flat).features - tokens.features).abs().amax(dim=(0, 2)) > 1e-6
    assert differs.tolist() == [False] * (18 + 6) + [True] * 4 + [False] * 8


def test_normals_have_the_places_of_colours_with_perturbation(
    observation: Observation, make_tokens: MakeTokens
) -> None:
    tokens: Tokens = make_tokens(MetricPlaces(perturbation=1.0), depth=SurfaceNormals()).train()(
        observation
    )
    assert torch.equal(tokens.coordinates[:, :18], tokens.coordinates[:, 18:])


def test_streams_are_split_and_fused_after_the_transformer(
    observation: Observation, make_tokens: MakeTokens
) -> None:
    tokenise = make_tokens(depth=SurfaceNormals()).double()
    blocks = VisionTransformer(
        RopeMixed(2, 16, 3, wavelengths=(0.2, 2.0)), 32, depth=1, registers=2
    ).double()
    encoded: Tokens = RgbdVisionTransformer(tokenise, blocks)(observation)
    assert encoded.features.shape == (2, 18, 32)
    assert encoded.coordinates.shape == (2, 18, 3)
    assert encoded.has_position.shape == (2, 18)
    tokens: Tokens = tokenise(observation)
    through: Tensor = blocks(
        tokens.features, tokens.coordinates, tokens.has_position, tokens.present
    )
    torch.testing.assert_close(encoded.features, tokenise.fusion(through))
    assert tokenise.no_weight_decay() == {"camera_mark", "stream_mark"}


def test_one_stream_needs_no_fusion_and_keeps_parameter_names(make_tokens: MakeTokens) -> None:
    tokenise = make_tokens()
    features = torch.randn(2, 5, 32)
    assert torch.equal(tokenise.fusion(features), features)
    assert {name.split(".")[0] for name, _ in tokenise.named_parameters()} == {
        "camera_mark",
        "embedding",
    }
    assert all(".stem." in name for name, _ in tokenise.named_parameters() if name != "camera_mark")


@pytest.mark.parametrize("name", choice_names(CONFIGS, "coordinates"))
def test_every_configuration_of_coordinates_builds_and_trains(
    name: str, observation: Observation, make_tokens: MakeTokens
) -> None:
    choice = completed(CONFIGS, f"coordinates/{name}")
    places = build(choice["places"], torch.nn.Module)
    encoding = RopeMixed(2, 16, places.axes, wavelengths=tuple(choice["wavelengths"]))
    encode = RgbdVisionTransformer(
        make_tokens(places), VisionTransformer(encoding, 32, depth=1)
    ).train()
    first, again = (encode(observation).features for _ in range(2))
    assert torch.equal(first, again), "configurations have no perturbation by default"
    first.sum().backward()
    assert all(
        parameter.grad is None or parameter.grad.isfinite().all()
        for parameter in encode.parameters()
    )
    assert places.points(torch.zeros(2, 3, 3))[0].shape == (2, 3, places.axes)


def test_patches_may_be_projected() -> None:
    cameras = (Camera("wide", 28, 42, depth="simulated"),)
    tokenise = RgbdTokens(
        cameras,
        GridPlaces((2, 3)),
        32,
        embedding=partial(PatchProjection, patch=14),
        depth=DepthChannel(),
    )
    tokens: Tokens = tokenise(
        {
            "rgb/wide": torch.zeros(1, 28, 42, 3),
            "depth/wide": torch.ones(1, 28, 42),
            "intrinsics/wide": torch.eye(3)[None],
        }
    )
    assert tokens.features.shape == (1, 6, 32)
    torch.testing.assert_close(tokens.coordinates[0, -1], torch.tensor([2.5, 1.5]))


@pytest.mark.parametrize("depth", [None, DepthChannel(), SurfaceNormals()])
@pytest.mark.parametrize(
    "coordinates", [GridPlaces(2), PatchDepthPlaces(2), MetricPlaces(), SphericalPlaces()]
)
def test_every_use_of_depth_trains(
    coordinates: Coordinates,
    depth: DepthInput | None,
    observation: Observation,
    make_tokens: MakeTokens,
) -> None:
    """Figure 5 of STRING compares these: no depth, a channel, normals, lifting, both."""
    encoding = RopeMixed(2, 16, coordinates.axes, wavelengths=(0.5, 8.0))
    encode = RgbdVisionTransformer(
        make_tokens(coordinates, depth=depth), VisionTransformer(encoding, 32, depth=1)
    )
    encode.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        tokens: Tokens = encode(observation)
    (tokens.features.float() * torch.randn(32)).sum().backward()
    for name, parameter in encode.named_parameters():
        if not (name == "blocks.unplaced_mark" and coordinates.axes == 2):
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert name.endswith("offset") or parameter.grad.abs().max() > 0, (
                name
            )  # A common offset is a shift.


@pytest.mark.slow
@torch.no_grad()
def test_the_network_compiles_as_one_graph(
    observation: Observation, make_tokens: MakeTokens
) -> None:
    blocks = VisionTransformer(
        RopeMixed(2, 16, 3, wavelengths=(0.2, 2.0)), 32, depth=1, registers=1
    )
    encode = RgbdVisionTransformer(make_tokens(depth=SurfaceNormals()), blocks)
    compiled = torch.compile(encode, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(observation).features, encode(observation).features)


def test_images_of_another_size_keep_the_meaning_of_places(observation: Observation) -> None:
    """Twice the size with twice the patch: the same places, of grid and metres."""
    camera = Camera("one", 32, 48, depth="simulated")
    observation = {key: value for key, value in observation.items() if key.endswith("/overhead")}
    observation = {key.replace("overhead", "one"): value for key, value in observation.items()}
    larger = dict(observation)
    for key in ("rgb/one", "depth/one"):
        larger[key] = observation[key].int().repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
    larger["intrinsics/one"] = observation["intrinsics/one"] * torch.tensor([[2.0], [2.0], [1.0]])
    for coordinates in (GridPlaces((2, 3)), PatchDepthPlaces((2, 3)), MetricPlaces()):
        small: Tokens = RgbdTokens((camera,), coordinates, 8, embedding=PatchProjection)(
            observation
        )
        doubled = replace(camera, height=64, width=96)
        large: Tokens = RgbdTokens(
            (doubled,), coordinates, 8, embedding=partial(PatchProjection, patch=32)
        )(larger)
        torch.testing.assert_close(large.coordinates, small.coordinates)
        finer: Tokens = RgbdTokens((camera,), coordinates, 8, embedding=PatchProjection)(larger)
        assert finer.coordinates.shape[1] == 4 * small.coordinates.shape[1]
        quarters = finer.coordinates.reshape(
            2, 2, 2, 3, 2, -1
        )  # Rows, upper and lower, columns, left and right.
        middle = quarters.mean(dim=(2, 4)).flatten(1, 2)[..., :2]
        if not isinstance(coordinates, MetricPlaces):  # In metres the quarters differ in depth.
            torch.testing.assert_close(middle, small.coordinates[..., :2])
