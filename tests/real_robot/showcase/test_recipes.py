"""The demonstration, collection and training have the same defaults; recipes name differences."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

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
def test_the_demonstration_records_as_the_collection(task: str) -> None:
    chosen = [f"recipe={task}"] if task == PLAIN else []
    collection = composed("collect", f"task={task}", *chosen)
    settings = demo(f"task={task}")
    recipe = DemoChain(settings).recipe(noise_rad=settings.noise_rad)
    assert asdict(recipe) == asdict(recipe_of(OmegaConf.create(collection)))
    assert collection["episodes"] == settings.episodes
    assert collection["first_seed"] == DEMONSTRATION_SEED


def test_the_recipe_of_the_shipped_policy_is_the_published_one() -> None:
    """Rates in docs/results.md were measured with it."""
    settings = demo()
    recipe = DemoChain(settings).recipe(noise_rad=settings.noise_rad)
    assert (recipe.varied, recipe.noise_rad) == (False, 0.03)
    varied = demo("varied=true", "noise_rad=0")
    assert replace(DemoChain(varied).recipe(noise_rad=0.0)) == replace(
        recipe, varied=True, noise_rad=0.0
    )


def test_the_demonstration_trains_as_the_training() -> None:
    cameras = "policy.observation_encoder.cameras=[overhead,wrist_left,wrist_right]"
    training = composed("train", "dataset.path=runs/x", cameras)
    settings = demo()
    model = dict(settings.policy)
    encoder = dict(model.pop("observation_encoder"))
    # Of normalisation, training has a choice, whose default is that of the policy.
    usual = {key: value for key, value in training["policy"].items() if key != "normalisation"}
    usual_encoder = {
        key: value
        for key, value in usual.pop("observation_encoder").items()
        if key != "normalisation"
    }
    assert model == usual
    assert encoder == usual_encoder
    early = {key: training["dataset"][key] for key in ("early_s", "early_factor")}
    assert early == {"early_s": settings.training.early_s, "early_factor": 2.0}
    assert settings.training.early_factor == early["early_factor"]
    assert composed("demo")["trainer"] == training["trainer"]
    assert training["evaluation"]["execute_steps"] == settings.execute_steps


def test_recipes_are_files_of_tasks() -> None:
    """`stringline-demo` chooses the recipe that has the name of the task."""
    folder = Path(__file__).parents[3] / "configs" / "recipe"
    assert {file.stem for file in folder.glob("*.yaml")} <= set(TASKS)
