"""Textures change the chosen segments of colour images, and nothing else."""

import pytest
import torch
from torch import Tensor

from stringline import Augmentation, Camera, CropAndResize, TextureOverlay
from stringline.datasets.augmentation.augment import CameraBatch

B, H, W = 48, 32, 40


def view(batch: int = B) -> CameraBatch:
    """The room above, the table below, an arm and an object in front, with depth."""
    segments = torch.zeros(batch, H, W, dtype=torch.uint8)
    segments[:, 12:] = 1
    segments[:, 8:20, 4:12] = 2
    segments[:, 16:24, 20:30] = 5
    rgb = torch.randint(0, 256, (batch, H, W, 3), generator=torch.Generator().manual_seed(3))
    depth = (1000 + 10 * segments.int()).to(torch.uint16)
    eye = torch.tensor([[40.0, 0, 20], [0, 40, 16], [0, 0, 1]]).expand(batch, 3, 3)
    return CameraBatch(rgb.to(torch.uint8), depth, 0.001, eye, segments)


def drawn(transform: TextureOverlay, seed: int = 0) -> dict[str, CameraBatch]:
    views = {"overhead": view(), "wrist": view()}
    changed: dict[str, CameraBatch] = transform(views, torch.Generator().manual_seed(seed))
    return changed


def changed(after: CameraBatch) -> Tensor:
    return (after.rgb != view().rgb).any(-1)


def whole(background: float, others: float = 0.3) -> TextureOverlay:
    return TextureOverlay(
        background=background, others=others, background_opacity=(1, 1), other_opacity=(1, 1)
    )


@pytest.mark.parametrize(("background", "others"), [(1.0, 0.0), (0.0, 1.0)])
def test_only_the_chosen_segments_change(background: float, others: float) -> None:
    """Replaced surfaces keep nothing of the image, the others every value; geometry stays."""
    after = drawn(whole(background=background, others=others))["overhead"]
    segments = view().segments
    assert segments is not None
    replaced = (segments < 2) if background else (segments >= 2)
    assert not changed(after)[~replaced].any()
    assert changed(after)[replaced].double().mean() > 0.98
    for attribute in ("depth", "intrinsics", "segments"):
        assert torch.equal(getattr(after, attribute), getattr(view(), attribute))
    flat = [after.rgb[0][segments[0] == number].float().std(0).mean() for number in (0, 1)]
    assert not background or all(each < 100 for each in flat), "textures are no white noise"


def test_probabilities_and_cameras() -> None:
    """Each surface of an example has a texture as often as told, in all cameras or in none."""
    textures = {name: changed(each) for name, each in drawn(whole(background=0.5)).items()}
    table = {name: each[:, 28, 36] for name, each in textures.items()}
    assert torch.equal(table["overhead"], table["wrist"])
    room = textures["overhead"][:, 2, 2]
    assert 0.25 < table["overhead"].double().mean() < 0.75
    assert 0.25 < room.double().mean() < 0.75
    assert not torch.equal(room, table["overhead"]), "room and table are drawn apart"
    colours = drawn(TextureOverlay(background=1, background_opacity=(1, 1), length=(10, 10)))
    ours, theirs = (colours[name].rgb[:, 24:].float().mean((1, 2)) for name in table)
    assert (ours - theirs).abs().mean() < 0.5 * (ours - theirs.roll(1, 0)).abs().mean()


def test_opacity_is_the_weight_of_the_texture() -> None:
    """Half of the opacity gives half of the change, to rounding."""
    full, half = (
        drawn(
            TextureOverlay(background=1, others=1, background_opacity=(o, o), other_opacity=(o, o))
        )
        for o in (1.0, 0.5)
    )
    before = view().rgb.float()
    expected = before + 0.5 * (full["wrist"].rgb.float() - before)
    inside = (full["wrist"].rgb > 0) & (full["wrist"].rgb < 255)
    assert (half["wrist"].rgb.float() - expected)[inside].abs().max() <= 1.0


def test_without_segments_images_stay() -> None:
    plain = CameraBatch(view().rgb)
    assert TextureOverlay(background=1)({"a": plain}, torch.Generator())["a"] is plain
    assert TextureOverlay()({}, torch.Generator()) == {}


def test_segments_follow_crops_and_the_generator_decides() -> None:
    """A cropped segment has the depth of its pixel still; the same generator draws the same."""
    augment = Augmentation([CropAndResize((0.4, 0.8)), TextureOverlay()])
    assert augment.reads_segments
    assert not Augmentation([CropAndResize()]).reads_segments
    seen = view()
    camera = Camera("front", H, W, "simulated")
    assert seen.depth is not None
    assert seen.intrinsics is not None
    assert seen.segments is not None
    batch = {
        "rgb/front": seen.rgb,
        "depth/front": seen.depth,
        "segmentation/front": seen.segments,
        "intrinsics/front": seen.intrinsics,
    }
    first, again, other = (
        augment(batch, [camera], torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    cut = first["segmentation/front"]
    assert cut.dtype == torch.uint8
    assert torch.equal(first["depth/front"].int(), 1000 + 10 * cut.int())
    assert not torch.equal(cut, batch["segmentation/front"])
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["rgb/front"], other["rgb/front"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"background": 1.5}, r"background must be a number from 0 to 1 \(got 1.5\)"),
        ({"others": "often"}, r"others must be a number from 0 to 1 \(got 'often'\)"),
        (
            {"background_opacity": (0.9, 0.2)},
            r"background_opacity is \[0.9, 0.2\]; the ends of a range ascend",
        ),
        ({"other_opacity": (0, 2)}, r"other_opacity must be a number from 0 to 1 \(got 2\)"),
        ({"length": (0, 1)}, r"length must be a number from 0.02 to 10 \(got 0\)"),
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextureOverlay(**wrong)  # type: ignore[arg-type]
