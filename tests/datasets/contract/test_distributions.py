"""A setting is a value, a range or a list, and is drawn from one stream of random numbers."""

from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from stringline.datasets.augmentation.augment import draw
from stringline.datasets.contract.argument_checks import Range
from stringline.datasets.contract.distributions import Distribution, distribution

LENGTHS = Range(least=-1, most=2, unit="m")
NAMES = ("plain", "textured")


@pytest.mark.parametrize(
    ("given", "values", "between"),
    [
        (1, (1.0,), False),
        (np.float32(0.5), (0.5,), False),
        ([0, 1], (0.0, 1.0), True),
        ((1, 1.5), (1.0, 1.5), True),
        ({"one_of": [1, 0, 2]}, (1.0, 0.0, 2.0), False),
        (OmegaConf.create([0, 1]), (0.0, 1.0), True),
        (OmegaConf.create({"one_of": [1]}), (1.0,), False),
    ],
)
def test_a_setting_of_numbers_is_read(given: Any, values: tuple[float, ...], between: bool) -> None:
    assert distribution("x", given, LENGTHS) == Distribution(values, between)


def test_a_setting_of_names_is_read() -> None:
    assert distribution("x", "plain", NAMES).values == ("plain",)
    assert distribution("x", {"one_of": ["textured", "plain"]}, NAMES).values == NAMES[::-1]


@pytest.mark.parametrize(
    ("given", "allowed", "message"),
    [
        (3, LENGTHS, r"x must be a number from -1 to 2 m \(got 3\)\."),
        ("long", LENGTHS, r"x must be .*got 'long'"),
        (True, LENGTHS, r"x must be .*got True"),
        ([0, 3], LENGTHS, r"x must be .*got 3"),
        ([1, 0], LENGTHS, r"x is \[1, 0\]; the ends of a range ascend: \[0, 1\]\."),
        ([1, 2, 0], LENGTHS, r"a value, a range \[LOW, HIGH\] or \{one_of: \[A, B\]\}\."),
        ({"one_of": []}, LENGTHS, r"allowed: \{one_of: \[A, B, \.\.\.\]\}\."),
        ({"oneof": [1]}, LENGTHS, "Did you mean 'one_of'"),
        ("plan", NAMES, "There is no x 'plan'. Did you mean 'plain'"),
        (["plain", "textured"], NAMES, r"allowed: a value or \{one_of: \[A, B\]\}"),
    ],
)
def test_what_is_not_allowed_is_refused(given: Any, allowed: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distribution("x", given, allowed)


@pytest.mark.parametrize("given", [1.5, [0.0, 2.0], {"one_of": [0.0, 1.0, 2.0]}])
def test_numpy_and_torch_draw_from_the_same_values(given: Any) -> None:
    setting = distribution("x", given, LENGTHS)
    rng = np.random.default_rng(0)
    generator = torch.Generator().manual_seed(0)
    drawn = (
        np.array([setting.draw(rng) for _ in range(3000)]),
        draw(setting, 3000, generator).numpy(),
    )
    expected = np.mean(setting.values)
    for values in drawn:
        assert values.mean() == pytest.approx(expected, abs=0.06)
        assert set(np.round(values, 6)) <= set(setting.values) or setting.between
        assert values.min() >= min(setting.values)
        assert values.max() <= setting.highest


def test_a_value_takes_as_many_random_numbers_as_a_range() -> None:
    """So a fixed setting leaves the others as they were drawn."""
    after = []
    for given in (1.0, [0.0, 2.0], {"one_of": [0.0, 1.0]}):
        generator = torch.Generator().manual_seed(1)
        draw(distribution("x", given, LENGTHS), 5, generator)
        after.append(torch.rand(1, generator=generator).item())
    assert len(set(after)) == 1


def test_a_range_of_a_falling_function_ascends() -> None:
    assert Distribution((1.0, 4.0), between=True).mapped(lambda x: 1 / x).values == (0.25, 1.0)
    assert Distribution((1.0, 4.0)).mapped(lambda x: 1 / x).values == (1.0, 0.25)
