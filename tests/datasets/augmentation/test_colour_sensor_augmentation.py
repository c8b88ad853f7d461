"""Blur, noise and gamma of a colour camera have their stated sizes, and move no pixel."""

import pytest
import torch

from stringline.datasets.augmentation.augment import CameraBatch
from stringline.datasets.augmentation.camera_augmentation import ColourSensor

NONE, ONE = (0.0, 0.0), (1.0, 1.0)


def taken(sensor: ColourSensor, rgb: torch.Tensor, seed: int = 0) -> torch.Tensor:
    depth = torch.full(rgb.shape[:3], 500, dtype=torch.int32).to(torch.uint16)
    view = CameraBatch(rgb, depth, 0.001, torch.eye(3).expand(len(rgb), 3, 3))
    after = sensor({"front": view}, torch.Generator().manual_seed(seed))["front"]
    assert after.depth is depth
    assert after.intrinsics is view.intrinsics
    assert (after.rgb.shape, after.rgb.dtype) == (rgb.shape, rgb.dtype)
    rgb_after: torch.Tensor = after.rgb
    return rgb_after


def grey(level: int, batch: int = 2, size: int = 64) -> torch.Tensor:
    return torch.full((batch, size, size, 3), level, dtype=torch.uint8)


def test_a_perfect_camera_changes_nothing() -> None:
    rgb = torch.randint(0, 256, (2, 9, 11, 3), generator=torch.Generator().manual_seed(0))
    sensor = ColourSensor(blur_px=NONE, noise=NONE, gamma=ONE)
    assert torch.equal(taken(sensor, rgb.to(torch.uint8)), rgb.to(torch.uint8))
    almost = ColourSensor(blur_px=(0, 1e-6), noise=(0, 1e-9), gamma=(1, 1 + 1e-9))
    assert torch.equal(taken(almost, rgb.to(torch.uint8)), rgb.to(torch.uint8))


@pytest.mark.parametrize("deviation", [0.6, 0.8])
def test_a_blurred_point_is_a_gaussian_of_its_deviation(deviation: float) -> None:
    """Its light is kept, its middle stays, and its variance is that of the setting."""
    point = grey(0, size=15)
    point[:, 7, 7] = 255
    seen = taken(ColourSensor(blur_px=(deviation,) * 2, noise=NONE, gamma=ONE), point).double()
    assert seen.sum() == pytest.approx(255 * 2 * 3, rel=0.03)
    away = torch.arange(15) - 7
    for axis in (1, 2):
        along = seen.sum(dim=[each for each in (1, 2) if each != axis])[0, :, 0]
        assert float((along * away).sum()) == 0
        assert float((along * away**2).sum() / along.sum()) == pytest.approx(deviation**2, rel=0.1)
    assert torch.equal(taken(ColourSensor(noise=NONE, gamma=ONE), grey(77)), grey(77)), "borders"


def test_noise_has_its_deviation_and_gamma_its_exponent() -> None:
    noisy = taken(ColourSensor(blur_px=NONE, noise=(0.05, 0.05), gamma=ONE), grey(128)).double()
    assert noisy.std() == pytest.approx(0.05 * 255, rel=0.03)
    assert noisy.mean() == pytest.approx(128, abs=0.5)
    for exponent in (0.5, 2.0):
        bent = taken(ColourSensor(blur_px=NONE, noise=NONE, gamma=(exponent,) * 2), grey(64))
        assert (bent == round(255 * (64 / 255) ** exponent)).all()


def test_examples_differ_and_the_generator_decides() -> None:
    sensor = ColourSensor()
    first, again, other = (taken(sensor, grey(100), seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"blur_px": (0, 3)}, r"blur_px must be a number from 0 to 1 \(got 3\)"),
        ({"noise": (0.2, 0.1)}, r"noise is \[0.2, 0.1\]; the ends"),
        ({"gamma": (0, 1)}, r"gamma must be a number from 0.2 to 5 \(got 0\)"),
    ],
)
def test_settings_out_of_range_are_refused(
    wrong: dict[str, tuple[float, float]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ColourSensor(**wrong)
