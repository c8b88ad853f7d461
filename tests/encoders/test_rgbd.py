"""From pictures to placed tokens, and what a common shift of the world does to them: nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stringline.datasets.contract import Camera
from stringline.encoders.positions.coordinates import GridPlaces, MetricPlaces, PatchDepthPlaces
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.rotary import NoEncoding, RopeMixed
from stringline.encoders.rgbd import PatchEmbedding, RgbdTokens, RgbdVisionTransformer, Tokens
from stringline.encoders.vit import VisionTransformer

Draw = Callable[..., Tensor]
CAMERAS = (
    Camera("overhead", 32, 48, depth="simulated"),
    Camera("wrist", 32, 32, depth="measured", depth_unit_m=0.0005),
    Camera("web", 32, 32, has_geometry=False),
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


def _tokens(coordinates: MetricPlaces | GridPlaces | PatchDepthPlaces | None = None, dim: int = 32) -> RgbdTokens:
    torch.manual_seed(0)
    return RgbdTokens(CAMERAS, coordinates or MetricPlaces(), dim, width=8)


def test_a_common_shift_changes_nothing(spatial_encoding: PositionEncoding) -> None:
    """The batch has holes, tokens of a camera without geometry, and gripper tokens of which one has no place."""
    tokenise = _tokens().double()
    torch.manual_seed(1)
    blocks = VisionTransformer(spatial_encoding, 32, depth=2).double()
    torch.nn.init.normal_(blocks.unplaced_mark)
    grippers, gripper_features = torch.randn(2, 2, 3, dtype=torch.float64), torch.randn(2, 2, 32, dtype=torch.float64)
    has_gripper = torch.tensor([[True, False], [True, True]])
    observation = _observation()

    def encode(shift: Tensor, *, at_origin: bool) -> Tensor:
        tokens: Tokens = tokenise(_shifted(observation, shift)) + Tokens(gripper_features, grippers + shift, has_gripper)
        assert [int(count) for count in (~tokens.placed).sum(dim=1)] == [2 + 4 + 1, 4]
        coordinates, placed = tokens.coordinates, tokens.placed
        if at_origin:
            coordinates = torch.where(placed.unsqueeze(-1), coordinates, 0.0)
            placed = torch.ones_like(placed)
        encoded: Tensor = blocks(tokens.features, coordinates, placed)
        return encoded

    nowhere, shift = torch.zeros(3, dtype=torch.float64), torch.tensor([0.7, -1.3, 0.4], dtype=torch.float64)
    still = encode(nowhere, at_origin=False)
    torch.testing.assert_close(encode(shift, at_origin=False), still, rtol=0, atol=1e-9)
    if not isinstance(spatial_encoding, NoEncoding):
        broken = encode(shift, at_origin=True) - encode(nowhere, at_origin=True)
        assert broken.abs().max() > 1e-3


def test_moving_one_camera_alone_does_change_the_tokens() -> None:
    encode = RgbdVisionTransformer(_tokens(), VisionTransformer(RopeMixed(2, 16, 3, wavelengths=(0.2, 2.0)), 32, depth=1))
    observation = {key: value.float() if value.dtype == torch.float64 else value for key, value in _observation().items()}
    moved = dict(observation)
    moved["T_base_camera/wrist"] = observation["T_base_camera/wrist"].clone()
    moved["T_base_camera/wrist"][:, 0, 3] += 0.1
    assert not torch.allclose(encode(observation).features, encode(moved).features, atol=1e-3)


def test_tokens_come_camera_by_camera() -> None:
    tokens: Tokens = _tokens()(_observation())
    assert tokens.features.shape == (2, 14, 32)
    assert tokens.placed.tolist()[1] == [True] * PLACED + [False] * 4
    changed = _observation()
    changed["rgb/wrist"] = 255 - changed["rgb/wrist"]
    differs = (_tokens()(changed).features - tokens.features).abs().amax(dim=(0, 2)) > 1e-6
    assert differs.tolist() == [False] * 6 + [True] * 4 + [False] * 4


def test_cameras_with_the_same_picture_are_told_apart() -> None:
    observation = _observation()
    observation["rgb/web"] = observation["rgb/wrist"]
    tokens: Tokens = _tokens()(observation)
    assert not torch.allclose(tokens.features[:, 6:10], tokens.features[:, 10:], atol=1e-3)


def test_each_camera_has_its_own_depth_unit() -> None:
    fine = _observation()
    fine["depth/wrist"] = (fine["depth/wrist"].int() * 2).to(torch.uint16)
    by_mm = RgbdTokens((Camera("wrist", 32, 32, depth="measured", depth_unit_m=0.001),), MetricPlaces(), 32)
    torch.testing.assert_close(by_mm(_observation()).coordinates, _tokens()(fine).coordinates[:, 6:10])


def test_a_patch_sees_a_symmetric_margin() -> None:
    torch.manual_seed(0)
    pictures = torch.randn(1, 80, 80, 3, requires_grad=True)
    PatchEmbedding(8, width=8)(pictures)[0, 12].sum().backward()  # The middle one of 5 x 5.
    assert pictures.grad is not None
    rows = pictures.grad[0].abs().amax(dim=(1, 2)).nonzero().flatten()
    columns = pictures.grad[0].abs().amax(dim=(0, 2)).nonzero().flatten()
    for seen in (rows, columns):
        assert (int(seen[0]), int(seen[-1])) == (32 - 5, 47 + 5)


def test_depth_is_an_optional_fourth_channel() -> None:
    torch.manual_seed(0)
    tokenise = RgbdTokens(CAMERAS, MetricPlaces(), 32, depth_channel=True, width=8)
    observation = _observation()
    before: Tensor = tokenise(observation).features
    further = dict(observation)
    further["depth/wrist"] = (observation["depth/wrist"].int() * 2).to(torch.uint16)
    changed = (tokenise(further).features - before).abs().amax(dim=(0, 2)) > 1e-6
    assert changed.tolist() == [False] * 6 + [True] * 4 + [False] * 4
    plain: Tensor = _tokens()(observation).features
    torch.testing.assert_close(_tokens()(further).features, plain, rtol=0, atol=0)


@pytest.mark.parametrize("coordinates", [GridPlaces(2), PatchDepthPlaces(2), MetricPlaces()])
def test_every_choice_of_coordinates_trains(coordinates: GridPlaces | PatchDepthPlaces | MetricPlaces) -> None:
    encoding = RopeMixed(2, 16, coordinates.axes, wavelengths=(0.5, 8.0))
    encode = RgbdVisionTransformer(_tokens(coordinates), VisionTransformer(encoding, 32, depth=1))
    with torch.autocast("cpu", torch.bfloat16):
        tokens: Tokens = encode(_observation())
    (tokens.features.float() * torch.randn(32)).sum().backward()
    for name, parameter in encode.named_parameters():
        if not (name == "blocks.unplaced_mark" and coordinates.axes == 2):
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert name.endswith("offset") or parameter.grad.abs().max() > 0, name  # A common offset is a shift.


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="Camera 'odd' has 30x32 pixels; allowed: multiples of 16"):
        RgbdTokens((Camera("odd", 30, 32),), GridPlaces())
    with pytest.raises(ValueError, match="'brown_conrady' distortion; undistort"):
        RgbdTokens((Camera("bent", 32, 32, distortion_model="brown_conrady", distortion=(0.1,)),), GridPlaces())
    observation = _observation()
    del observation["rgb/wrist"]
    with pytest.raises(ValueError, match="There is no observation key 'rgb/wrist'"):
        _tokens()(observation)
    with pytest.raises(ValueError, match="H and W multiples of 16"):
        PatchEmbedding(32)(torch.zeros(1, 20, 32, 3))
