"""Augmentation changes images and keeps geometry: crops, light, and errors of a depth camera."""

import math
import subprocess
import sys
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from stringline import Augmentation, Camera, CropAndResize, LightAugmentation, StereoDepth
from stringline.datasets.augmentation.augment import GREY, CameraBatch, Transform, relight
from stringline.datasets.augmentation.camera_augmentation import crop

HEIGHT, WIDTH, UNIT_M = 40, 60, 0.0001
K = torch.tensor([[70.0, 0.5, 29.0], [0, 65, 21], [0, 0, 1]])
NORMAL = torch.tensor([0.3, -0.2, 1.0])  # Of the plane NORMAL . p = 1.
CAMERAS = (Camera("front", HEIGHT, WIDTH, "simulated", UNIT_M), Camera("wrist", 16, 16))


def pixels(height: int = HEIGHT, width: int = WIDTH) -> Tensor:
    """Returns the centres (u, v, 1) of all pixels, (H, W, 3)."""
    v, u = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    return torch.stack((u, v, torch.ones_like(u)), dim=-1)


def plane(batch: int = 3) -> CameraBatch:
    """A slanted plane whose colours encode the pixel of the first image: red 4 u, green 4 v."""
    rays = pixels() @ K.inverse().T
    depth = (1 / (rays @ NORMAL) / UNIT_M).round().to(torch.int32).to(torch.uint16)
    rgb = (4 * pixels()).round().to(torch.uint8)
    return CameraBatch(
        rgb.expand(batch, -1, -1, -1).contiguous(),
        depth.expand(batch, -1, -1).contiguous(),
        UNIT_M,
        K.expand(batch, 3, 3),
    )


def batch_of(view: CameraBatch) -> dict[str, Tensor]:
    """A batch with that camera, another without depth or geometry, and an action."""
    assert view.depth is not None
    assert view.intrinsics is not None
    wrist = torch.randint(
        0, 256, (len(view.rgb), 16, 16, 3), generator=torch.Generator().manual_seed(5)
    ).to(torch.uint8)
    found = {"rgb/front": view.rgb, "depth/front": view.depth, "intrinsics/front": view.intrinsics}
    return found | {"rgb/wrist": wrist, "action": torch.ones(len(view.rgb), 4, 2)}


def one(transform: Transform, view: CameraBatch, seed: int = 0) -> CameraBatch:
    return transform({"front": view}, torch.Generator().manual_seed(seed))["front"]


def test_a_cropped_pixel_shows_the_same_metres() -> None:
    """With the new intrinsics, each pixel lies on the plane at the position of its colour."""
    view = plane(batch=8)
    cut = one(CropAndResize((0.3, 0.7)), view)
    assert cut.depth is not None
    assert cut.intrinsics is not None
    z = cut.depth.to(torch.float64) * UNIT_M
    rays = pixels().double() @ cut.intrinsics.double().inverse()[:, None].mT
    points = rays * z[..., None]
    # The nearest pixel's depth is that of a place at most half a pixel away, half of 1 / 65 of a
    # metre per metre.
    off_plane = (points @ NORMAL.double() - 1).abs().max()
    assert off_plane < 0.75 * z.max() * float(NORMAL.norm()) / 65 * 0.5
    before = rays @ K.double().T
    inside = (
        (before[..., :2] > 1).all(-1) & (before[..., 0] < WIDTH - 1) & (before[..., 1] < HEIGHT - 1)
    )
    assert inside.double().mean() > 0.9
    assert (cut.rgb[..., :2].double() - 4 * before[..., :2])[inside].abs().max() <= 1.0
    assert not torch.equal(cut.intrinsics[0], cut.intrinsics[1]), (
        "each example has a window of its own"
    )


def test_a_point_keeps_its_metres_exactly() -> None:
    """A point projects to (old pixel - corner) / scale, and back to the same metres."""
    scale, left, top = torch.tensor([0.37]), torch.tensor([13.3]), torch.tensor([7.7])
    view = CameraBatch(
        torch.zeros(1, HEIGHT, WIDTH, 3, dtype=torch.uint8), None, 0.001, K[None].double()
    )
    cut = crop(view, scale, left, top).intrinsics
    assert cut is not None
    point = torch.tensor([0.11, -0.07, 0.83], dtype=torch.float64)
    old, new = K.double() @ point / point[2], cut[0] @ point / point[2]
    corner = torch.stack((left[0], top[0])).double()
    torch.testing.assert_close(new[:2], (old[:2] - corner) / scale.double(), rtol=0, atol=1e-10)
    torch.testing.assert_close(cut[0].inverse() @ new * point[2], point, rtol=0, atol=1e-12)


def test_a_window_larger_than_the_image_shows_it_smaller() -> None:
    """Every pixel inside keeps its point; outside the edge continues, and depth is unknown."""
    view = plane(batch=4)
    cut = one(CropAndResize((2.0, 2.0)), view)
    assert cut.depth is not None
    assert cut.intrinsics is not None
    before = pixels().double() @ cut.intrinsics.double().inverse()[:, None].mT @ K.double().T
    inside = (before[..., 0] >= 0) & (before[..., 0] < WIDTH)
    inside &= (before[..., 1] >= 0) & (before[..., 1] < HEIGHT)
    assert inside.double().mean() == pytest.approx(0.25, abs=0.03)
    known = cut.depth.to(torch.int32) > 0
    assert torch.equal(known, inside)
    z = cut.depth.to(torch.float64) * UNIT_M
    rays = pixels().double() @ cut.intrinsics.double().inverse()[:, None].mT
    off_plane = ((rays * z[..., None]) @ NORMAL.double() - 1)[inside].abs().max()
    assert off_plane < 0.05
    edge = cut.rgb[0, 0, 0].tolist()
    assert edge == view.rgb[0, 0, 0].tolist() or inside[0, 0, 0]


def test_the_whole_window_changes_nothing() -> None:
    view = plane()
    cut = one(CropAndResize((1.0, 1.0)), view)
    for kind in ("rgb", "depth", "intrinsics"):
        assert torch.equal(getattr(cut, kind), getattr(view, kind))


def test_light_that_does_not_change_changes_nothing() -> None:
    still: Sequence[float] = (1.0, 1.0)
    none: Sequence[float] = (0.0, 0.0)
    lighting = LightAugmentation(
        brightness=still, contrast=still, saturation=still, hue_deg=none, gain=still, falloff=none
    )
    assert torch.equal(one(lighting, plane()).rgb, plane().rgb)


def test_each_light_setting_has_its_documented_effect() -> None:
    """Limits of saturation, contrast, gain and hue; light falls off across the image."""
    rgb = torch.randint(60, 120, (2, 8, 8, 3), generator=torch.Generator().manual_seed(0)).to(
        torch.uint8
    )
    eye, full = torch.eye(3).repeat(2, 1, 1), torch.ones(2)
    still: Sequence[float] = (1.0, 1.0)
    none: Sequence[float] = (0.0, 0.0)
    base = {
        "brightness": still,
        "contrast": still,
        "saturation": still,
        "hue_deg": none,
        "gain": still,
        "falloff": none,
    }
    grey = one(LightAugmentation(**base | {"saturation": none}), CameraBatch(rgb)).rgb.float()
    assert (grey.amax(-1) - grey.amin(-1)).max() <= 1
    torch.testing.assert_close(grey.mean(-1), rgb.float() @ torch.tensor(GREY), rtol=0, atol=1.0)
    flat = relight(rgb, eye, 0 * full).float()
    assert (flat.flatten(1, 2).amax(1) == flat.flatten(1, 2).amin(1)).all()
    torch.testing.assert_close(
        relight(rgb, 1.5 * eye, full).float(), (1.5 * rgb.float()).round(), rtol=0, atol=1.0
    )
    turned = one(
        LightAugmentation(**base | {"hue_deg": (40.0, 40.0)}), CameraBatch(rgb)
    ).rgb.float()
    torch.testing.assert_close(
        turned @ torch.tensor(GREY), rgb.float() @ torch.tensor(GREY), rtol=0, atol=2.0
    )
    assert (turned - rgb.float()).abs().mean() > 3
    lit = relight(
        torch.full((1, 4, 100, 3), 100, dtype=torch.uint8),
        eye[:1],
        full[:1],
        torch.tensor([[0.5, 0.0]]),
    )[0]
    assert lit[:, 0].float().mean() == pytest.approx(50, abs=1)
    assert lit[:, -1].float().mean() == pytest.approx(150, abs=1)


def wall(metres: float, batch: int = 2, size: int = 100) -> CameraBatch:
    """A plane that faces the camera."""
    depth = torch.full((batch, size, size), round(metres / UNIT_M), dtype=torch.int32).to(
        torch.uint16
    )
    middle = torch.tensor([[100.0, 0, size / 2], [0, 100, size / 2], [0, 0, 1]]).repeat(batch, 1, 1)
    return CameraBatch(torch.zeros(batch, size, size, 3, dtype=torch.uint8), depth, UNIT_M, middle)


def metres(view: CameraBatch) -> Tensor:
    assert view.depth is not None
    return view.depth.double() * UNIT_M


@pytest.mark.parametrize("distance", [0.3, 0.6, 1.2, 2.4])
def test_noise_grows_with_the_square_of_depth(distance: float) -> None:
    """Its deviation is z^2 subpixel / (focal baseline), its mean 0."""
    seen = metres(one(StereoDepth(strength=(1, 1)), wall(distance)))
    sigma = distance**2 * 0.08 / (424 * 0.05)
    assert (seen > 0).all()
    assert seen.std() == pytest.approx(math.hypot(sigma, UNIT_M / math.sqrt(12)), rel=0.03)
    assert seen.mean() == pytest.approx(distance, abs=5 * sigma / 140)


def test_depth_is_rounded_to_counts_and_zero_stays_zero() -> None:
    view = wall(1.0)
    assert view.depth is not None
    view.depth[:, :30] = 0
    seen = one(
        StereoDepth(strength=(10, 10), subpixel=20.0), view
    ).depth  # Noise of nearly ten metres.
    assert seen is not None
    assert seen.dtype == torch.uint16
    assert (seen[:, :30].int() == 0).all()
    assert (seen[:, 30:].int() > 0).all(), "noise alone makes no holes"


def test_edges_and_grazing_surfaces_have_holes() -> None:
    """Only the given share beside a step is lost, and a floor beyond the grazing angle."""
    view = wall(0.5)
    assert view.depth is not None
    view.depth[:, :, 50:] = 10000
    lost = metres(one(StereoDepth(edge_loss=(1, 1)), view)) == 0
    assert lost[:, :, 49:51].all()
    assert lost.double().mean() == pytest.approx(0.02)
    assert not (metres(one(StereoDepth(edge_loss=(0, 0)), view)) == 0).any(), (
        "flat surfaces beside an edge are not grazing"
    )
    half = (metres(one(StereoDepth(edge_loss=(0.5, 0.5)), view)) == 0)[:, :, 49:51].double().mean()
    assert half == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(("angle_deg", "share"), [(60.0, 0.0), (87.0, 1.0)])
def test_a_slanted_surface_is_lost_by_its_angle(angle_deg: float, share: float) -> None:
    """A plane through the middle ray, with a focal length at which all rays are nearly parallel."""
    tilted = torch.tensor(
        [0.0, math.sin(math.radians(angle_deg)), math.cos(math.radians(angle_deg))]
    )
    intrinsics = torch.tensor([[4000.0, 0, 20], [0, 4000, 20], [0, 0, 1]])
    rays = pixels(40, 40) @ intrinsics.inverse().T
    depth = (tilted[2] / (rays @ tilted) / 1e-5).round()[None]
    view = CameraBatch(torch.zeros(1, 40, 40, 3, dtype=torch.uint8), depth, 1e-5, intrinsics[None])
    seen = one(StereoDepth(edge_loss=(0, 0), edge_step=1.0), view).depth
    assert seen is not None
    assert (seen[:, 1:-1] == 0).double().mean() == share
    blind = one(StereoDepth(edge_loss=(0, 0)), CameraBatch(view.rgb, depth, 1e-5)).depth
    assert blind is not None
    assert (blind > 0).all(), "without intrinsics no angle is known"


def test_an_augmentation_is_reproducible_and_keeps_the_other_keys() -> None:
    """The same generator gives the same batch; actions and the input stay unchanged."""
    augment = Augmentation([StereoDepth(), CropAndResize(), LightAugmentation()])
    batch, untouched = batch_of(plane()), batch_of(plane())
    first, again, other = (
        augment(batch, CAMERAS, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert set(first) == set(batch)
    for key, value in first.items():
        assert torch.equal(value, again[key])
        assert torch.equal(batch[key], untouched[key])
        assert (value.shape, value.dtype) == (batch[key].shape, batch[key].dtype)
        assert torch.equal(value, batch[key]) == torch.equal(value, other[key]) == (key == "action")
    nothing = Augmentation()(batch, CAMERAS, torch.Generator())
    assert all(torch.equal(nothing[key], batch[key]) for key in batch)


def test_settings_out_of_range_are_refused() -> None:
    for make, message in (
        (
            lambda: CropAndResize((0.9, 4.1)),
            r"scale must be a number from 0.05 to 4 \(got 4.1\)",
        ),
        (
            lambda: LightAugmentation(contrast=(1.2, 0.8)),
            r"contrast is \[1.2, 0.8\]; the ends of a range ascend",
        ),
        (lambda: StereoDepth(baseline_m=0), r"baseline_m must be a number above 0 \(got 0\)"),
        (
            lambda: StereoDepth(subpixel=-0.1),
            r"subpixel must be a number of at least 0 \(got -0.1\)",
        ),
        (
            lambda: StereoDepth(subpixel=float("nan")),
            r"subpixel must be a number of at least 0 \(got nan\)",
        ),
        (
            lambda: StereoDepth(edge_step=float("inf")),
            r"edge_step must be a number above 0 \(got inf\)",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_the_rest_of_datasets_imports_without_torch() -> None:
    script = (
        "import sys, stringline.datasets.loading.windows, stringline.datasets.loading.statistics; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": ".src"})
