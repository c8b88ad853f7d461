"""Depth as an input of the network."""

from dataclasses import replace

import pytest
import torch

from stringline import ColourOnly, DepthChannel, NormalsOnly, SurfaceNormals, View
from stringline.encoders.coordinates.geometry import surface_normals
from stringline.encoders.training.checkpoint import build
from stringline.encoders.vision.depth_inputs import DepthInput, StreamFusion

COLOURS = torch.randn(2, 32, 48, 3, generator=torch.Generator().manual_seed(0))


def _view(*, geometry: bool = True, depth: bool = True) -> View:
    millimetres = 600 + 20 * torch.rand(2, 32, 48, generator=torch.Generator().manual_seed(1))
    millimetres[:, 4:8, 4:8] = torch.nan
    pose = torch.eye(4).repeat(2, 1, 1)
    pose[:, :3, :3] = torch.tensor([[1.0, 0, 0], [0, -1, 0], [0, 0, -1]])
    return View(
        height=32,
        width=48,
        depth=millimetres if depth else None,
        intrinsics=torch.tensor([[60.0, 0, 24], [0, 60, 16], [0, 0, 1]]).expand(2, 3, 3)
        if geometry
        else None,
        T_base_camera=pose if geometry else None,
    )


def test_colours_are_the_only_input() -> None:
    (seen,) = ColourOnly()(COLOURS, _view())
    assert torch.equal(seen, COLOURS)


def test_depth_is_a_fourth_channel_in_metres_and_zero_without_depth() -> None:
    (seen,) = DepthChannel()(COLOURS, _view())
    assert torch.equal(seen[..., :3], COLOURS)
    torch.testing.assert_close(seen[..., 3], (_view().depth * 0.001).nan_to_num(0.0))  # type: ignore[operator]
    (without,) = DepthChannel()(COLOURS, _view(depth=False))
    assert without.shape == (2, 32, 48, 4)
    assert without[..., 3].abs().max() == 0


@pytest.mark.parametrize("base_frame", [True, False])
def test_normals_are_a_second_image_in_the_range_of_colours(base_frame: bool) -> None:
    view = _view()
    assert view.depth is not None
    assert view.intrinsics is not None
    first, second = SurfaceNormals(base_frame=base_frame, radius_px=2)(COLOURS.bfloat16(), view)
    assert torch.equal(first, COLOURS.bfloat16())
    expected = surface_normals(
        view.depth, 0.001, view.intrinsics, view.T_base_camera if base_frame else None, radius_px=2
    )
    assert torch.equal(second, (2 * expected).bfloat16())
    assert torch.sign(second[second[..., 2] != 0][:, 2].mean()) == (1 if base_frame else -1)


def test_without_depth_or_geometry_normals_are_zero() -> None:
    no_pose = View(height=32, width=48, depth=_view().depth, intrinsics=_view().intrinsics)
    for view in (_view(depth=False), _view(geometry=False), no_pose):
        assert SurfaceNormals()(COLOURS, view)[1].abs().max() == 0
    assert SurfaceNormals(base_frame=False)(COLOURS, no_pose)[1].abs().max() > 1.9


def test_normals_in_place_of_colours_are_those_beside_them() -> None:
    """No colour has an effect, and a camera without depth or geometry is named."""
    for base_frame in (True, False):
        alone = NormalsOnly(base_frame=base_frame, radius_px=2)
        (seen,) = alone(COLOURS, _view())
        expected = SurfaceNormals(base_frame=base_frame, radius_px=2)(COLOURS, _view())[1]
        assert torch.equal(seen, expected)
        assert torch.equal(alone(0 * COLOURS, _view())[0], seen)
        assert seen.abs().max() > 1.9
        assert (alone.streams, alone.channels) == (1, 3)
        assert alone.reads == SurfaceNormals(base_frame=base_frame).reads
    assert NormalsOnly()(COLOURS.bfloat16(), _view())[0].dtype == torch.bfloat16
    for view in (replace(_view(depth=False), name="wrist"), _view(geometry=False)):
        name = view.name or "without a name"
        with pytest.raises(ValueError, match=f"Camera {name} has no depth or no geometry"):
            NormalsOnly()(COLOURS, view)


@pytest.mark.parametrize(
    "choice",
    [
        ColourOnly(),
        DepthChannel(),
        SurfaceNormals(),
        SurfaceNormals(base_frame=False),
    ],
)
def test_every_choice_declares_its_channels_streams_and_keys(choice: DepthInput) -> None:
    everything = _view()
    seen = choice(COLOURS, everything)
    assert len(seen) == choice.streams
    assert all(image.shape == (2, 32, 48, choice.channels) for image in seen)
    for kind in ("depth", "intrinsics", "T_base_camera"):
        given = {
            name: getattr(everything, name)
            for name in ("depth", "intrinsics", "T_base_camera")
            if name != kind
        }
        without = choice(COLOURS, View(height=32, width=48, **given))
        same = all(torch.equal(one, other) for one, other in zip(without, seen, strict=True))
        assert same == (kind not in choice.reads)


def test_a_configuration_selects_the_depth_input() -> None:
    built = build({"_target_": "stringline.SurfaceNormals", "base_frame": False}, torch.nn.Module)
    assert isinstance(built, SurfaceNormals)
    assert not built.base_frame


def test_normals_reject_arguments_out_of_range() -> None:
    for arguments in ({"radius_px": 0}, {"steepest_deg": 0.0}, {"steepest_deg": 90.0}):
        with pytest.raises(ValueError, match="allowed: from 1, and between 0 and 90"):
            SurfaceNormals(**arguments)  # type: ignore[arg-type]


def test_fusion_is_one_linear_map_of_the_tokens_at_a_place() -> None:
    torch.manual_seed(0)
    fusion = StreamFusion(8, 2)
    tokens = torch.randn(3, 10, 8)
    assert isinstance(fusion.fuse, torch.nn.Linear)
    expected = (
        tokens[:, :5] @ fusion.fuse.weight[:, :8].mT
        + tokens[:, 5:] @ fusion.fuse.weight[:, 8:].mT
        + fusion.fuse.bias
    )
    torch.testing.assert_close(fusion(tokens), expected)


def test_one_stream_is_unchanged_and_has_no_parameters() -> None:
    fusion, tokens = StreamFusion(8, 1), torch.randn(3, 10, 8)
    assert torch.equal(fusion(tokens), tokens)
    assert not list(fusion.parameters())
