"""The sigmoid loss equals its naive sum."""

import math
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch

from stringline.encoders.perception.two_towers import (
    initial_bias,
    sigmoid_loss,
)

CAPTIONS = torch.tensor([0, 1, 0, 2, 1, 0])


def draws(n: int = 6, d: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    images, texts = torch.randn(2, n, d, generator=random, dtype=torch.float64)
    return images, texts


def test_it_equals_its_naive_sum() -> None:
    images, texts = draws()
    positives = CAPTIONS[:, None] == CAPTIONS
    total = 0.0
    for i, x in enumerate(images):
        for j, y in enumerate(texts):
            cosine = float(x @ y / x.norm() / y.norm())
            z = 1 if positives[i, j] else -1
            total += math.log(1 + math.exp(-z * (10 * cosine - 2.5)))
    found = sigmoid_loss(images, texts, math.log(10), -2.5, positives)
    assert float(found) == pytest.approx(total / 6, rel=1e-12)


def open_clip_loss() -> ModuleType:
    """Returns open_clip's module of losses without its package, which would import torchvision."""
    package = find_spec("open_clip")
    assert package is not None
    assert package.origin is not None
    found = spec_from_file_location("open_clip_loss", Path(package.origin).with_name("loss.py"))
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_it_equals_that_of_open_clip() -> None:
    images, texts = (torch.nn.functional.normalize(each, dim=-1) for each in draws())
    expected = open_clip_loss().SigLipLoss()(
        images, texts, torch.tensor(10.0), torch.tensor(-2.5), output_dict=False
    )
    torch.testing.assert_close(sigmoid_loss(images, texts, math.log(10), -2.5), expected)


def test_the_initial_bias_is_best_for_random_towers() -> None:
    """With orthogonal towers all logits are equal to the bias."""
    images, texts = torch.eye(16, dtype=torch.float64).chunk(2)

    def loss(bias: float) -> float:
        return float(sigmoid_loss(images, texts, math.log(10), bias))

    best = initial_bias(8)
    assert best == -math.log(7)
    assert loss(best) < min(loss(best - 0.01), loss(best + 0.01))


def test_a_batch_of_one_and_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"batch_size must be an integer of at least 2 \(got 1\)"):
        initial_bias(1)
    images, texts = draws()
    with pytest.raises(ValueError, match=r"texts \(5, 8\); allowed: the same"):
        sigmoid_loss(images, texts[:5], 1.0, 0.0)
    with pytest.raises(ValueError, match=r"torch.float64 of the shape \(6, 8\); allowed: bool"):
        sigmoid_loss(images, texts, 1.0, 0.0, images)
