"""Random numbers with a generator per row are those of each generator alone."""

from collections.abc import Callable

import pytest
import torch

from stringline.policies.algorithms.learned_policy import normal, uniform

DEVICE = torch.device("cpu")


def generators(count: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in range(count)]


@pytest.mark.parametrize("draw", [normal, uniform])
@pytest.mark.parametrize("shape", [(3, 2), (3, 4, 16, 14)])
def test_rows_are_independent(draw: Callable[..., torch.Tensor], shape: tuple[int, ...]) -> None:
    together = draw(shape, generators(3), DEVICE)
    for row, generator in zip(together, generators(3), strict=True):
        torch.testing.assert_close(row, draw((1, *shape[1:]), generator, DEVICE)[0], rtol=0, atol=0)


def test_another_number_of_generators() -> None:
    with pytest.raises(ValueError, match=r"2 generators for 3 rows; allowed: one for all rows"):
        normal((3, 2), generators(2), DEVICE)
