"""Patches that move within their cells in training."""

import math

import pytest
import torch
from scipy import stats

from stringline.encoders.coordinates.coordinates import PatchCentres, truncated_normal
from stringline.encoders.coordinates.geometry import View, patch_centres

CPU = torch.device("cpu")
VIEW = View(height=64, width=96)


def _moved(module: PatchCentres, batch: int = 3, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    moved: torch.Tensor = module(VIEW, 16, batch, CPU)
    return moved


@pytest.mark.parametrize("deviation", [0.02, 0.3, 1.0, 20.0])
def test_draws_follow_the_truncated_normal_distribution(deviation: float) -> None:
    torch.manual_seed(0)
    drawn = truncated_normal((50000,), deviation).numpy()
    assert abs(drawn).max() <= 0.5
    reference = stats.truncnorm(-0.5 / deviation, 0.5 / deviation, scale=deviation)
    assert stats.kstest(drawn, reference.cdf).pvalue > 0.01
    assert (
        abs(drawn) == 0.5
    ).mean() < 1e-3  # Clamping, as published code does, would leave 62 % there at deviation 1.


def test_patches_do_not_move_in_evaluation_or_without_perturbation() -> None:
    centres = patch_centres(64, 96, 16).expand(3, -1, -1)
    assert torch.equal(_moved(PatchCentres(1.0).eval()), centres)
    state = torch.random.get_rng_state()
    assert torch.equal(PatchCentres().train()(VIEW, 16, 3, CPU), centres)
    assert torch.equal(torch.random.get_rng_state(), state)  # No number is drawn.


def test_patches_stay_in_their_cells_and_fill_them() -> None:
    offset = (_moved(PatchCentres(1.0).train(), batch=200) - patch_centres(64, 96, 16)) / 16
    assert offset.abs().max() <= 0.5
    assert offset.abs().max() > 0.49
    expected = stats.truncnorm(-0.5, 0.5).std()
    assert math.isclose(float(offset.std()), expected, rel_tol=0.02)


def test_examples_patches_and_axes_are_drawn_independently_and_again_in_every_call() -> None:
    module = PatchCentres(1.0).train()
    first = _moved(module) - patch_centres(64, 96, 16)
    assert len(first.flatten().unique()) == first.numel()
    assert not torch.equal(module(VIEW, 16, 3, CPU), module(VIEW, 16, 3, CPU))


def test_a_seed_repeats_the_draws() -> None:
    module = PatchCentres(0.5).train()
    assert torch.equal(_moved(module, seed=3), _moved(module, seed=3))
    assert not torch.equal(_moved(module, seed=3), _moved(module, seed=4))


@pytest.mark.parametrize("perturbation", [-0.1, math.inf, math.nan])
def test_an_invalid_perturbation_is_rejected(perturbation: float) -> None:
    with pytest.raises(ValueError, match=f"perturbation is {perturbation}; allowed: 0"):
        PatchCentres(perturbation)


def test_patches_that_do_not_tile_are_rejected() -> None:
    with pytest.raises(ValueError, match="64x96; allowed: multiples of the patch of 10 pixels"):
        PatchCentres()(VIEW, 10, 1, CPU)
