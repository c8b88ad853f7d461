"""Dropped colours are grey in all cameras of an example, and nothing else changes."""

from typing import Any

import pytest
import torch

from stringline.datasets.augmentation.augment import CameraBatch
from stringline.datasets.augmentation.camera_augmentation import GREY, ColourDropout

BATCH = 400


def view(seed: int) -> CameraBatch:
    generator = torch.Generator().manual_seed(seed)
    rgb = torch.randint(0, 256, (BATCH, 6, 5, 3), generator=generator).to(torch.uint8)
    depth = torch.randint(1, 900, (BATCH, 6, 5), generator=generator).to(torch.uint16)
    intrinsics = torch.eye(3).expand(BATCH, 3, 3)
    return CameraBatch(rgb, depth, 0.001, intrinsics, torch.zeros(BATCH, 6, 5, dtype=torch.uint8))


def test_all_cameras_of_an_example_lose_their_colours_and_the_others_keep_all() -> None:
    views = {"overhead": view(1), "wrist": view(2)}
    copies = {name: each.rgb.clone() for name, each in views.items()}
    after = ColourDropout(probability=0.3)(views, torch.Generator().manual_seed(0))
    lost = [(after[name].rgb == GREY).flatten(1).all(dim=1) for name in views]
    assert torch.equal(lost[0], lost[1])
    assert 0.2 < float(lost[0].double().mean()) < 0.4, "4 standard errors are 0.09"
    for name, before in views.items():
        assert torch.equal(after[name].rgb[~lost[0]], before.rgb[~lost[0]])
        assert torch.equal(before.rgb, copies[name]), "the input stays"
        for attribute in ("depth", "intrinsics", "segments"):
            assert getattr(after[name], attribute) is getattr(before, attribute)


@pytest.mark.parametrize(("probability", "grey"), [(0, False), (1, True)])
def test_the_ends_of_the_range_drop_none_and_all(probability: float, grey: bool) -> None:
    before = view(3)
    after = ColourDropout(probability=probability)({"a": before}, torch.Generator())["a"]
    expected = torch.full_like(before.rgb, GREY) if grey else before.rgb
    assert torch.equal(after.rgb, expected)
    assert ColourDropout()({}, torch.Generator()) == {}


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan"), True, "0.5"])
def test_a_probability_out_of_range_is_refused(probability: Any) -> None:
    with pytest.raises(ValueError, match=r"probability must be a number from 0 to 1 \(got .*\)\."):
        ColourDropout(probability=probability)


def test_a_camera_without_depth_is_named() -> None:
    flat = CameraBatch(torch.zeros(2, 4, 4, 3, dtype=torch.uint8))
    with pytest.raises(ValueError, match="Camera wrist has no depth"):
        ColourDropout()({"wrist": flat}, torch.Generator())
