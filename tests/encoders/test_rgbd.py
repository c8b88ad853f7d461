"""From pictures to placed tokens, and what a common shift of the world does to them: nothing."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from stringline.datasets.contract import Camera
from stringline.encoders.depth_inputs import Colours, DepthChannel, DepthInput, Normals
from stringline.encoders.geometry import View
from stringline.encoders.patches import ConvolutionalStem, PatchProjection
from stringline.encoders.positions.canonical import CanonicalPlaces, CylindricalPlaces, SphericalPlaces
from stringline.encoders.positions.circle import WholeOnCircle
from stringline.encoders.positions.coordinates import Coordinates, GridPlaces, MetricPlaces, PatchDepthPlaces
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.frequencies import Mixed
from stringline.encoders.positions.presets import RopeMixed
from stringline.encoders.positions.rotary import NoEncoding, RotaryEncoding
from stringline.encoders.rgbd import RgbdTokens, RgbdVisionTransformer, Tokens
from stringline.encoders.vit import VisionTransformer

STEM = partial(ConvolutionalStem, width=8)
CAMERAS = (
    Camera("overhead", 32, 48, depth="simulated"),
    Camera("wrist", 32, 32, depth="measured", depth_unit_m=0.0005),
    Camera("web", 32, 32, has_geometry=False),
    Camera("colour", 32, 32),
)
PLACED = 6 + 4


def _observation(batch: int = 2) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    observation: dict[str, Tensor] = {}
    for camera in CAMERAS:
        size = (batch, camera.height, camera.width)
        observation[f"rgb/{camera.name}"] = torch.randint(0, 256, (*size, 3), generator=generator).to(torch.uint8)
        if camera.depth is not None:
            depth = torch.randint(400, 1600, size, generator=generator)
            depth[torch.rand(size, generator=generator) < 0.2] = 0
            depth[0, :16, :16] = 0
            observation[f"depth/{camera.name}"] = depth.to(torch.uint16)
        if camera.has_geometry:
            K = torch.tensor([[60.0, 0, camera.width / 2], [0, 60, camera.height / 2], [0, 0, 1]], dtype=torch.float64)
            observation[f"intrinsics/{camera.name}"] = K.expand(batch, 3, 3)
            pose = torch.eye(4, dtype=torch.float64).repeat(batch, 1, 1)
            pose[:, :3, 3] = torch.randn(batch, 3, generator=generator)
            observation[f"T_base_camera/{camera.name}"] = pose
    return observation


def _shifted(observation: dict[str, Tensor], shift: Tensor) -> dict[str, Tensor]:
    moved = dict(observation)
    for key in observation:
        if key.startswith("T_base_camera/"):
            moved[key] = observation[key].clone()
            moved[key][:, :3, 3] += shift
    return moved


def _tokens(coordinates: Coordinates | None = None, dim: int = 32, *, depth: DepthInput | None = None) -> RgbdTokens:
    torch.manual_seed(0)
    return RgbdTokens(CAMERAS, coordinates or MetricPlaces(), dim, depth=depth, embedding=STEM)


def _blocks(encoding: PositionEncoding, registers: int = 2) -> VisionTransformer:
    torch.manual_seed(1)
    blocks = VisionTransformer(encoding, 32, depth=2, registers=registers).double()
    torch.nn.init.normal_(blocks.unplaced_mark)
    return blocks


class FirstAxes(MetricPlaces):
    """The first few metric coordinates, for encodings of fewer axes."""

    def __init__(self, axes: int) -> None:
        super().__init__()
        self.axes = axes

    def patches(self, view: View, patch: int, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
        coordinates, placed = super().patches(view, patch, batch, device)
        return coordinates[..., : self.axes], placed


class AtOrigin(FirstAxes):
    """The mistake: tokens without a place are put at the origin."""

    def patches(self, view: View, patch: int, batch: int, device: torch.device) -> tuple[Tensor, Tensor]:
        coordinates, placed = super().patches(view, patch, batch, device)
        return torch.where(placed.unsqueeze(-1), coordinates, 0.0), torch.ones_like(placed)


SHIFT = torch.tensor([0.7, -1.3, 0.4], dtype=torch.float64)


def _change_by_a_common_shift(coordinates: Coordinates, encoding: PositionEncoding, depth: DepthInput | None = None) -> float:
    encode = RgbdVisionTransformer(_tokens(coordinates, depth=depth).double(), _blocks(encoding))
    observation = _observation()
    return float((encode(_shifted(observation, SHIFT)).features - encode(observation).features).detach().abs().max())


def test_a_common_shift_changes_nothing(relative_encoding: PositionEncoding) -> None:
    """The batch has holes, a camera without geometry, one without depth, and the network has registers."""
    placed = _tokens()(_observation()).placed
    assert [int(count) for count in (~placed).sum(dim=1)] == [2 + 8, 8]
    assert _change_by_a_common_shift(FirstAxes(relative_encoding.axes), relative_encoding) <= 1e-9


def test_it_would_if_tokens_without_a_place_stood_at_the_origin(relative_encoding: PositionEncoding) -> None:
    broken = _change_by_a_common_shift(AtOrigin(relative_encoding.axes), relative_encoding)
    assert (broken > 1e-3) == (not isinstance(relative_encoding, NoEncoding))


@pytest.mark.parametrize("depth", [DepthChannel(), Normals(), Normals(base_frame=False)])
def test_whatever_the_network_sees_of_depth_a_common_shift_changes_nothing(depth: DepthInput) -> None:
    assert _change_by_a_common_shift(MetricPlaces(), RopeMixed(2, 16, 3, wavelengths=(0.2, 2.0)).double(), depth) <= 1e-9


def test_a_common_shift_takes_points_of_the_robot_along(spatial_encoding: PositionEncoding) -> None:
    """Grippers join the tokens of the pictures, and one of them has no place."""
    tokenise, blocks = _tokens().double(), _blocks(spatial_encoding, registers=0)
    grippers, features = torch.randn(2, 2, 2, 16, dtype=torch.float64)[..., :3], torch.randn(2, 2, 32, dtype=torch.float64)
    has_gripper = torch.tensor([[True, False], [True, True]])

    def encode(shift: Tensor) -> Tensor:
        places, _ = tokenise.coordinates.points(grippers[0] + shift)
        tokens: Tokens = tokenise(_shifted(_observation(), shift)) + Tokens(features, places, has_gripper)
        encoded: Tensor = blocks(tokens.features, tokens.coordinates, tokens.placed)
        return encoded

    torch.testing.assert_close(encode(SHIFT), encode(torch.zeros_like(SHIFT)), rtol=0, atol=1e-9)


def _turned(observation: dict[str, Tensor], angle: float) -> dict[str, Tensor]:
    """Turns the whole world about the y axis through the point that `CANONICAL` has for its origin."""
    cos, sin = torch.tensor(angle, dtype=torch.float64).cos(), torch.tensor(angle, dtype=torch.float64).sin()
    turn = torch.eye(4, dtype=torch.float64)
    turn[0, 0], turn[0, 2], turn[2, 0], turn[2, 2] = cos, sin, -sin, cos
    to_origin = torch.eye(4, dtype=torch.float64)
    to_origin[2, 3] = 6.0
    about = torch.linalg.inv(to_origin) @ turn @ to_origin
    return {key: about @ value if key.startswith("T_base_camera/") else value for key, value in observation.items()}


def _canonical(kind: type[CanonicalPlaces]) -> CanonicalPlaces:
    """Returns places about an axis behind all cameras, which look away from it."""
    return kind(origin=(0.0, 0.0, -6.0), axis=(0.0, 1.0, 0.0), forward=(0.0, 0.0, 1.0))


@pytest.mark.parametrize("kind", [SphericalPlaces, CylindricalPlaces])
def test_a_turn_about_the_axis_changes_nothing_in_canonical_places(
    kind: type[CanonicalPlaces], spatial_encoding: PositionEncoding
) -> None:
    """Unplaced tokens and normals in the camera frame included; in metric places it changes something."""
    observation = _observation()

    def change(coordinates: Coordinates) -> float:
        tokenise = _tokens(coordinates, depth=Normals(base_frame=False)).double()
        encode = RgbdVisionTransformer(tokenise, _blocks(spatial_encoding))
        return float((encode(_turned(observation, 0.4)).features - encode(observation).features).detach().abs().max())

    assert change(_canonical(kind)) <= 1e-9
    assert (change(MetricPlaces()) > 1e-4) == (not isinstance(spatial_encoding, NoEncoding))


def test_a_turn_across_the_cut_asks_for_whole_frequencies() -> None:
    """Here every token has a place: the mean of azimuths on both sides of the cut is none of the scene."""
    cameras = CAMERAS[:2]
    observation = {key: value for key, value in _observation().items() if key.partition("/")[2] in ("overhead", "wrist")}
    for name in ("overhead", "wrist"):
        observation[f"depth/{name}"] = observation[f"depth/{name}"].int().clamp(min=400)
    torch.manual_seed(0)
    tokenise = RgbdTokens(cameras, _canonical(CylindricalPlaces), 32, embedding=STEM).double()
    free = partial(Mixed, wavelengths=(0.2, 6.0))
    turned = _turned(observation, 3.1)
    placed = tokenise(turned)
    assert placed.placed.all()
    assert placed.coordinates[..., 0].min() < -3
    assert placed.coordinates[..., 0].max() > 3
    changes = []
    for frequencies in (partial(WholeOnCircle, frequencies=free, angles=(0,)), free):
        encoding = RotaryEncoding(2, 16, 3, frequencies=frequencies).double()
        encode = RgbdVisionTransformer(tokenise, _blocks(encoding, registers=0))
        changes.append(float((encode(turned).features - encode(observation).features).detach().abs().max()))
    assert changes[0] <= 1e-9
    assert changes[1] > 1e-3


def test_moving_one_camera_alone_does_change_the_tokens() -> None:
    encode = RgbdVisionTransformer(_tokens(), VisionTransformer(RopeMixed(2, 16, 3, wavelengths=(0.2, 2.0)), 32, depth=1))
    observation = {key: value.float() if value.dtype == torch.float64 else value for key, value in _observation().items()}
    moved = dict(observation)
    moved["T_base_camera/wrist"] = observation["T_base_camera/wrist"].clone()
    moved["T_base_camera/wrist"][:, 0, 3] += 0.1
    assert not torch.allclose(encode(observation).features, encode(moved).features, atol=1e-3)


def test_tokens_come_camera_by_camera() -> None:
    tokens: Tokens = _tokens()(_observation())
    assert tokens.features.shape == (2, 18, 32)
    assert tokens.placed.tolist()[1] == [True] * PLACED + [False] * 8
    changed = _observation()
    changed["rgb/wrist"] = 255 - changed["rgb/wrist"]
    differs = (_tokens()(changed).features - tokens.features).abs().amax(dim=(0, 2)) > 1e-6
    assert differs.tolist() == [False] * 6 + [True] * 4 + [False] * 8


def test_cameras_with_the_same_picture_are_told_apart() -> None:
    observation = _observation()
    observation["rgb/web"] = observation["rgb/wrist"]
    tokens: Tokens = _tokens()(observation)
    assert not torch.allclose(tokens.features[:, 6:10], tokens.features[:, 10:14], atol=1e-3)


def test_each_camera_has_its_own_depth_unit() -> None:
    fine = _observation()
    fine["depth/wrist"] = (fine["depth/wrist"].int() * 2).to(torch.uint16)
    by_mm = RgbdTokens((Camera("wrist", 32, 32, depth="measured", depth_unit_m=0.001),), MetricPlaces(), 32)
    torch.testing.assert_close(by_mm(_observation()).coordinates, _tokens()(fine).coordinates[:, 6:10])


def test_depth_is_an_optional_fourth_channel() -> None:
    tokenise = _tokens(depth=DepthChannel())
    observation = _observation()
    before: Tensor = tokenise(observation).features
    further = dict(observation)
    further["depth/wrist"] = (observation["depth/wrist"].int() * 2).to(torch.uint16)
    changed = (tokenise(further).features - before).abs().amax(dim=(0, 2)) > 1e-6
    assert changed.tolist() == [False] * 6 + [True] * 4 + [False] * 8
    plain: Tensor = _tokens()(observation).features
    torch.testing.assert_close(_tokens()(further).features, plain, rtol=0, atol=0)


def test_normals_are_tokens_of_their_own_at_the_same_places() -> None:
    """The shared embedding sees both pictures: the colours' tokens are those without normals, the others hang on depth."""
    tokenise, observation = _tokens(depth=Normals()), _observation()
    tokens: Tokens = tokenise(observation)
    colours: Tokens = _tokens()(observation)
    assert tokens.features.shape == (2, 36, 32)
    torch.testing.assert_close(tokens.features[:, :18], colours.features)
    for half in (slice(None, 18), slice(18, None)):
        assert torch.equal(tokens.coordinates[:, half], colours.coordinates)
        assert torch.equal(tokens.placed[:, half], colours.placed)
    flat = dict(observation)
    flat["depth/wrist"] = torch.full((2, 32, 32), 700).to(torch.uint16)
    differs = (tokenise(flat).features - tokens.features).abs().amax(dim=(0, 2)) > 1e-6
    assert differs.tolist() == [False] * (18 + 6) + [True] * 4 + [False] * 8


def test_normals_take_part_in_their_places_even_while_places_are_drawn() -> None:
    tokens: Tokens = _tokens(MetricPlaces(perturbation=1.0), depth=Normals()).train()(_observation())
    assert torch.equal(tokens.coordinates[:, :18], tokens.coordinates[:, 18:])


def test_streams_are_split_and_fused_after_the_transformer() -> None:
    tokenise = _tokens(depth=Normals()).double()
    blocks = _blocks(RopeMixed(2, 16, 3, wavelengths=(0.2, 2.0)).double())
    encoded: Tokens = RgbdVisionTransformer(tokenise, blocks)(_observation())
    assert encoded.features.shape == (2, 18, 32)
    assert encoded.coordinates.shape == (2, 18, 3)
    assert encoded.placed.shape == (2, 18)
    tokens: Tokens = tokenise(_observation())
    through: Tensor = blocks(tokens.features, tokens.coordinates, tokens.placed)
    torch.testing.assert_close(encoded.features, tokenise.fusion(through))
    others = torch.randn(2, 3, 32, dtype=torch.float64)
    joined = tokenise.fuse(torch.cat((through, others), dim=1), others=3)
    assert torch.equal(joined, torch.cat((encoded.features, others), dim=1))
    assert tokenise.no_weight_decay() == {"camera_mark", "stream_mark"}


def test_one_stream_needs_no_fusion_and_keeps_its_parameters_names() -> None:
    tokenise = _tokens()
    features = torch.randn(2, 5, 32)
    assert torch.equal(tokenise.fuse(features, others=2), features)
    assert {name.split(".")[0] for name, _ in tokenise.named_parameters()} == {"camera_mark", "embedding"}
    assert all(".stem." in name for name, _ in tokenise.named_parameters() if name != "camera_mark")


def test_patches_may_be_projected_instead() -> None:
    cameras = (Camera("wide", 28, 42, depth="simulated"),)
    tokenise = RgbdTokens(cameras, GridPlaces((2, 3)), 32, embedding=partial(PatchProjection, patch=14), depth=DepthChannel())
    tokens: Tokens = tokenise(
        {"rgb/wide": torch.zeros(1, 28, 42, 3), "depth/wide": torch.ones(1, 28, 42), "intrinsics/wide": torch.eye(3)[None]}
    )
    assert tokens.features.shape == (1, 6, 32)
    torch.testing.assert_close(tokens.coordinates[0, -1], torch.tensor([2.5, 1.5]))


@pytest.mark.parametrize("depth", [None, DepthChannel(), Normals()])
@pytest.mark.parametrize("coordinates", [GridPlaces(2), PatchDepthPlaces(2), MetricPlaces(), SphericalPlaces()])
def test_every_use_of_depth_trains(coordinates: Coordinates, depth: DepthInput | None) -> None:
    """Figure 5 of STRING compares these: no depth, a channel, normals, lifting, both."""
    encoding = RopeMixed(2, 16, coordinates.axes, wavelengths=(0.5, 8.0))
    encode = RgbdVisionTransformer(_tokens(coordinates, depth=depth), VisionTransformer(encoding, 32, depth=1))
    encode.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        tokens: Tokens = encode(_observation())
    (tokens.features.float() * torch.randn(32)).sum().backward()
    for name, parameter in encode.named_parameters():
        if not (name == "blocks.unplaced_mark" and coordinates.axes == 2):
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert name.endswith("offset") or parameter.grad.abs().max() > 0, name  # A common offset is a shift.


def test_pictures_of_another_size_keep_the_meaning_of_places() -> None:
    """Twice the size with twice the patch: the same places, of grid and metres."""
    camera = Camera("one", 32, 48, depth="simulated")
    observation = {key: value for key, value in _observation().items() if key.endswith("/overhead")}
    observation = {key.replace("overhead", "one"): value for key, value in observation.items()}
    larger = dict(observation)
    for key in ("rgb/one", "depth/one"):
        larger[key] = observation[key].int().repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
    larger["intrinsics/one"] = observation["intrinsics/one"] * torch.tensor([[2.0], [2.0], [1.0]])
    for coordinates in (GridPlaces((2, 3)), PatchDepthPlaces((2, 3)), MetricPlaces()):
        small: Tokens = RgbdTokens((camera,), coordinates, 8, embedding=PatchProjection)(observation)
        doubled = replace(camera, height=64, width=96)
        large: Tokens = RgbdTokens((doubled,), coordinates, 8, embedding=partial(PatchProjection, patch=32))(larger)
        torch.testing.assert_close(large.coordinates, small.coordinates)
        finer: Tokens = RgbdTokens((camera,), coordinates, 8, embedding=PatchProjection)(larger)
        assert finer.coordinates.shape[1] == 4 * small.coordinates.shape[1]
        quarters = finer.coordinates.reshape(2, 2, 2, 3, 2, -1)  # Rows, upper and lower, columns, left and right.
        middle = quarters.mean(dim=(2, 4)).flatten(1, 2)[..., :2]
        if not isinstance(coordinates, MetricPlaces):  # There the quarters differ in depth.
            torch.testing.assert_close(middle, small.coordinates[..., :2])


def test_only_what_is_used_must_be_there() -> None:
    pictures = {key: value for key, value in _observation().items() if key.startswith("rgb/")}
    assert _tokens(GridPlaces())(pictures).placed.all()  # Nobody reads depth,
    colour = {"rgb/colour": pictures["rgb/colour"]}
    metric = RgbdTokens((replace(CAMERAS[3]),), MetricPlaces(), 32, depth=Normals())
    assert not metric(colour).placed.any()  # or the contract promises none.
    undeclared = colour | {"depth/colour": torch.full((2, 32, 32), -1.0)}
    assert not metric(undeclared).placed.any()


@pytest.mark.parametrize(
    ("key", "coordinates", "depth"),
    [
        ("rgb/wrist", GridPlaces(), Colours()),
        ("depth/wrist", PatchDepthPlaces(), Colours()),
        ("depth/wrist", GridPlaces(), DepthChannel()),
        ("intrinsics/wrist", MetricPlaces(), Colours()),
        ("intrinsics/wrist", GridPlaces(), Normals()),
        ("T_base_camera/wrist", CylindricalPlaces(), Colours()),
    ],
)
def test_a_missing_key_is_named_with_the_nearest(key: str, coordinates: Coordinates, depth: DepthInput) -> None:
    observation = _observation()
    observation[key.replace("wrist", "wirst")] = observation.pop(key)
    with pytest.raises(
        ValueError, match=f"There is no observation key '{key}'. Did you mean .*'{key.replace('wrist', 'wirst')}'"
    ):
        _tokens(coordinates, depth=depth)(observation)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rgb/web", torch.zeros(2, 20, 32, 3), "H and W multiples of 16"),
        ("rgb/wrist", torch.zeros(2, 32, 32), r"rgb/wrist has shape \(2, 32, 32\); allowed: \(B, H, W, 3\)"),
        ("rgb/wrist", torch.zeros(2, 32, 32, 4), r"rgb/wrist has shape \(2, 32, 32, 4\)"),
        ("depth/wrist", torch.ones(2, 16, 16), r"Camera 'wrist': depth has shape \(2, 16, 16\) beside pictures of 32x32"),
        ("depth/wrist", torch.full((2, 32, 32), -0.1), "depth holds -0.1"),
        ("intrinsics/wrist", torch.zeros(2, 3, 3), "intrinsics holds"),
        ("T_base_camera/wrist", torch.full((2, 4, 4), torch.nan), "T_base_camera holds nan"),
    ],
)
def test_what_has_no_meaning_is_refused(key: str, value: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _tokens()(_observation() | {key: value})


def test_cameras_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="Camera 'odd' has 30x32 pixels; allowed: multiples of 16"):
        RgbdTokens((Camera("odd", 30, 32),), GridPlaces())
    with pytest.raises(ValueError, match="Camera 'odd' has 28x32 pixels; allowed: multiples of 14"):
        RgbdTokens((Camera("odd", 28, 32),), GridPlaces(), embedding=partial(PatchProjection, patch=14))
    with pytest.raises(ValueError, match="'brown_conrady' distortion; undistort"):
        RgbdTokens((Camera("bent", 32, 32, distortion_model="brown_conrady", distortion=(0.1,)),), GridPlaces())
