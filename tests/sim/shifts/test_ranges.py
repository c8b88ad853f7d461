"""Options that each episode draws: values of ranges and lists, and their errors."""

from typing import Any

import numpy as np
import pytest

from stringline import TaskEnvironment, TaskSettings
from stringline.sim.shifts.shift import NAMES

TASK = "hand_over_banana"
WORLD = {"cameras": ()}


def drawn(world: TaskEnvironment, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    world.begin(seed, options)
    return dict(world.drawn)


def test_every_shift_takes_a_range_that_the_seed_draws(world: TaskEnvironment) -> None:
    options = {name: [0.2, 0.7] for name in NAMES} | {"table_height": [-0.02, 0.02]}
    found = [drawn(world, seed, options) for seed in (1, 2, 1)]
    assert found[0] == found[2]
    assert set(found[0]) == set(options)
    for name, (low, high) in options.items():
        assert low <= found[0][name] <= high
        assert found[0][name] != found[1][name]
    assert len(set(found[0].values())) == len(options), "each has a random stream of its own"
    assert world.task.table_height == found[2]["table_height"]
    assert world.task.strengths["dim_light"] == found[2]["dim_light"]


def test_one_draw_does_not_depend_on_other_options(world: TaskEnvironment) -> None:
    alone = drawn(world, 1, {"dim_light": [0, 1]})
    both = drawn(world, 1, {"camera_pose": [0, 1], "dim_light": [0, 1], "object_colour": 1.0})
    assert both["dim_light"] == alone["dim_light"]
    assert "object_colour" not in both, "a fixed value is not drawn"


def test_a_list_has_each_value_with_equal_probability(world: TaskEnvironment) -> None:
    options = {"side_light": {"one_of": [0.0, 0.5, 1.0]}}
    counts = np.zeros(3)
    for seed in range(60):
        counts[int(2 * drawn(world, seed, options)["side_light"])] += 1
    assert counts.min() >= 10


def test_a_drawn_strength_acts_as_a_fixed_one(world: TaskEnvironment) -> None:
    found = drawn(world, 1, {"dim_light": [0, 1]})
    light = world.physics.model.light_diffuse.copy()
    assert drawn(world, 1, found) == {}
    np.testing.assert_array_equal(world.physics.model.light_diffuse, light)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim_light": [1.0, 0.0]}, r"dim_light is \[1\.0, 0\.0\]; the ends of a range ascend"),
        ({"dim_light": [0.0, 1.5]}, r"dim_light must be a number from 0 to 1 \(got 1\.5\)"),
        ({"dim_light": [0, 0.5, 1]}, r"dim_light is .*; allowed: a value, a range \[LOW, HIGH\]"),
        ({"dim_light": {"one_of": []}}, r"dim_light is .*; allowed: \{one_of: \[A, B, \.\.\.\]\}"),
        ({"dim_light": {"oneof": [1.0]}}, r"no key of dim_light 'oneof'\. Did you mean 'one_of'"),
        ({"dim_lihgt": [0, 1]}, r"There is no task option 'dim_lihgt'\. Did you mean 'dim_light'"),
        ({"table_height": [-1, 0]}, r"table_height must be .* -0\.05 to 0\.08 m \(got -1"),
        ({"strict": [True, False]}, r"strict is \[True, False\]; allowed: true, false"),
    ],
)
def test_invalid_ranges_are_refused(
    world: TaskEnvironment, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        world.check_options(options)
    assert "\n" not in str(error.value)


def test_settings_of_a_task_hold_plain_ranges() -> None:
    settings = TaskSettings.of({"name": TASK, "options": {"dim_light": (0.0, 1.0)}})
    assert settings.options == {"dim_light": [0.0, 1.0]}
