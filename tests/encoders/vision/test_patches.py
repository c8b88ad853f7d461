"""Tokens of patches, by the stem and by one linear map.

Depth as an input of the network.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch

from stringline import ColourOnly, DepthChannel, NormalsOnly, SurfaceNormals, View
from stringline.encoders.coordinates.geometry import surface_normals
from stringline.encoders.training.checkpoint import build
from stringline.encoders.vision.patches import (
    ConvolutionalStem,
    DepthInput,
    EmbeddingFactory,
    PatchProjection,
    StreamFusion,
)

FACTORIES: dict[str, tuple[EmbeddingFactory, int]] = {
    "stem": (partial(ConvolutionalStem, width=8), 16),
    "projection_14": (partial(PatchProjection, patch=14), 14),
    "projection_16": (PatchProjection, 16),
    "projection_32": (partial(PatchProjection, patch=32), 32),
}


@pytest.mark.parametrize("kind", FACTORIES)
@pytest.mark.parametrize("channels", [3, 4])
def test_one_token_per_patch_row_by_row(kind: str, channels: int) -> None:
    """The token of a patch changes when its middle changes; the others of its row do not."""
    factory, patch = FACTORIES[kind]
    torch.manual_seed(0)
    embedding = factory(8, channels=channels)
    assert (embedding.patch, embedding.channels) == (patch, channels)
    images = torch.randn(2, 2 * patch, 3 * patch, channels)
    tokens = embedding(images)
    assert tokens.shape == (2, 6, 8)
    changed = images.clone()
    changed[1, patch + patch // 2, 2 * patch + patch // 2] += 1
    differs = (embedding(changed) - tokens).abs().amax(dim=2) > 1e-6
    assert differs.nonzero().tolist() == [[1, 5]]


def test_a_patch_of_the_stem_has_a_symmetric_margin() -> None:
    torch.manual_seed(0)
    images = torch.randn(1, 80, 80, 3, requires_grad=True)
    ConvolutionalStem(8, width=8)(images)[0, 12].sum().backward()  # The middle one of 5 x 5.
    assert images.grad is not None
    rows = images.grad[0].abs().amax(dim=(1, 2)).nonzero().flatten()
    columns = images.grad[0].abs().amax(dim=(0, 2)).nonzero().flatten()
    for seen in (rows, columns):
        assert (int(seen[0]), int(seen[-1])) == (32 - 5, 47 + 5)


@pytest.mark.parametrize("patch", [14, 16, 32])
def test_the_projection_is_one_linear_map_of_the_pixels_of_a_patch(patch: int) -> None:
    torch.manual_seed(0)
    embedding = PatchProjection(8, patch=patch).double()
    images = torch.randn(2, 2 * patch, 3 * patch, 3, dtype=torch.float64)
    patches = images.reshape(2, 2, patch, 3, patch, 3).permute(0, 1, 3, 5, 2, 4).reshape(2, 6, -1)
    weight, bias = embedding.projection.weight.flatten(1), embedding.projection.bias
    torch.testing.assert_close(
        embedding(images), torch.nn.functional.linear(patches, weight, bias), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("kind", FACTORIES)
@pytest.mark.parametrize(
    "shape", [(1, 224, 223, 3), (1, 225, 224, 3), (1, 224, 224, 5), (224, 224, 3)]
)
def test_invalid_images_are_rejected(kind: str, shape: tuple[int, ...]) -> None:
    factory, patch = FACTORIES[kind]
    with pytest.raises(
        ValueError, match=rf"shape \({shape[0]}, .*H, W, 3\), H and W multiples of {patch}"
    ):
        factory(8, channels=3)(torch.zeros(shape))


def test_a_configuration_selects_the_embedding() -> None:
    factory = build(
        {"_target_": "stringline.PatchProjection", "_partial_": True, "patch": 14}, torch.nn.Module
    )
    assert factory(8, channels=4).projection.weight.shape == (8, 4, 14, 14)


def test_an_empty_patch_is_rejected() -> None:
    with pytest.raises(ValueError, match="patch is 0 and channels is 3; allowed: from 1"):
        PatchProjection(8, patch=0)


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
