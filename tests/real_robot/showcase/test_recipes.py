"""The demonstration, collection and training have the same defaults; recipes name differences."""

from dataclasses import asdict, replace
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from stringline.datasets.command.choices import CONFIGS, choice_names
from stringline.real_robot.showcase.demo_chain import DemoChain
from stringline.real_robot.showcase.demo_settings import DEMONSTRATION_SEED, DemoSettings
from stringline.sim.collect import recipe_of
from stringline.sim.tasks.task_registry import TASKS

PLAIN = "hand_over_banana"


def composed(command: str, *overrides: str) -> dict[str, Any]:
    with initialize_config_module("stringline.configs", version_base="1.3"):
        plain = OmegaConf.to_container(
            compose(command, overrides=["output=runs/x", *overrides]), resolve=True
        )
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def demo(*overrides: str) -> DemoSettings:
    return DemoSettings.of(composed("demo", *overrides))


@pytest.mark.parametrize("task", [PLAIN, "fmb_1", "kuka_pick"])
def test_the_demonstration_records_as_the_collection_of_a_plain_expert(task: str) -> None:
    collection = composed("collect", f"task={task}", "varied=false")
    settings = demo(f"task={task}")
    recipe = DemoChain(settings).disturbed_recipe()
    assert asdict(recipe) == asdict(recipe_of(OmegaConf.create(collection)))
    assert collection["first_seed"] == DEMONSTRATION_SEED


def test_disturbances_and_variation_are_options() -> None:
    plain = DemoChain(demo()).disturbed_recipe()
    varied = DemoChain(demo("varied=true", "noise_rad=0.03")).disturbed_recipe()
    assert varied == replace(plain, varied=True, noise_rad=0.03)


@pytest.mark.parametrize("recipe", ["keyposes", "diffusion", "dp3", "kuka_pick"])
def test_the_demonstration_trains_as_the_training(recipe: str) -> None:
    """The default is that of `stringline-train training_recipe=keyposes`."""
    cameras = "policy.observation_encoder.cameras=[overhead,wrist_left,wrist_right]"
    choice = f"training_recipe={recipe}"
    training = composed("train", "dataset.path=runs/x", cameras, choice)
    settings = demo(*(() if recipe == "keyposes" else (choice,)))
    assert settings.policy == training["policy"]
    assert settings.training.augmentation == training["augmentation"]
    assert settings.training.pad_last_action_s == training["dataset"]["pad_last_action_s"]
    early = {key: training["dataset"][key] for key in ("oversample_first_s", "oversample_factor")}
    assert early == {
        "oversample_first_s": settings.training.oversample_first_s,
        "oversample_factor": settings.training.oversample_factor,
    }
    assert composed("demo", choice)["trainer"] == training["trainer"]
    if recipe == "keyposes":
        assert training["evaluation"]["execute_steps"] == settings.execute_steps


def test_recipes_of_collections_are_files_of_tasks() -> None:
    assert {*choice_names(CONFIGS, "recipe")} <= {*TASKS, "none"}
