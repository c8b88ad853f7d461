"""Settings of a task as configurations give them."""

import json

import pytest
from omegaconf import OmegaConf

from stringline.sim.collect import task_recipe
from stringline.sim.worlds.task_settings import TaskSettings


@pytest.mark.parametrize("size", [128, [480, 640]])
def test_a_recipe_of_a_configuration_is_plain(size: object) -> None:
    config = OmegaConf.create({"name": "kuka_pick", "cameras": ["overhead"], "image_size": size})
    recipe = task_recipe(TaskSettings.of(config))
    described = json.loads(json.dumps(recipe.described()))
    assert described["image_size"] == size
    assert described["cameras"] == ["overhead"]
