"""The demonstration, collection and training have the same defaults; recipes name differences."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from stringline.encoders.training.checkpoint import load_description
from stringline.real_robot.showcase.demo_chain import DemoChain
from stringline.real_robot.showcase.demo_settings import DEMONSTRATION_SEED, DemoSettings
from stringline.real_robot.showcase.training_recipe import with_training_recipe
from stringline.sim.collect import recipe_of
from stringline.sim.tasks.task_registry import TASKS

PLAIN = "hand_over_banana"
PICK = "kuka_pick"
SHIPPED = Path(__file__).parents[3] / "policies" / "checkpoints"


def composed(command: str, *overrides: str) -> dict[str, Any]:
    with initialize_config_module("stringline.configs", version_base="1.3"):
        plain = OmegaConf.to_container(
            compose(command, overrides=["output=runs/x", *overrides]), resolve=True
        )
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def demo(*overrides: str) -> DemoSettings:
    return DemoSettings.of(composed("demo", *with_training_recipe(overrides)))


@pytest.mark.parametrize("task", [PLAIN, "fmb_1", PICK])
def test_the_demonstration_records_as_the_collection(task: str) -> None:
    chosen = [f"recipe={task}"] if task in (PLAIN, PICK) else []
    collection = composed("collect", f"task={task}", *chosen)
    settings = demo(f"task={task}")
    recipe = DemoChain(settings).disturbed_recipe()
    assert asdict(recipe) == asdict(recipe_of(OmegaConf.create(collection)))
    assert collection["episodes"] == settings.episodes
    assert collection["first_seed"] == DEMONSTRATION_SEED


def test_the_recipe_of_the_shipped_policy_is_the_published_one() -> None:
    """Rates in docs/results.md were measured with it."""
    settings = demo()
    recipe = DemoChain(settings).disturbed_recipe()
    assert (recipe.varied, recipe.noise_rad) == (False, 0.03)
    varied = demo("varied=true", "noise_rad=0")
    assert DemoChain(varied).disturbed_recipe() == replace(recipe, varied=True, noise_rad=0.0)


def test_the_demonstration_trains_as_the_training() -> None:
    cameras = "policy.observation_encoder.cameras=[overhead,wrist_left,wrist_right]"
    training = composed("train", "dataset.path=runs/x", cameras)
    settings = demo()
    assert settings.policy == training["policy"]
    early = {key: training["dataset"][key] for key in ("early_s", "early_factor")}
    assert early == {"early_s": settings.training.early_s, "early_factor": 2.0}
    assert settings.training.early_factor == early["early_factor"]
    assert composed("demo")["trainer"] == training["trainer"]
    assert training["evaluation"]["execute_steps"] == settings.execute_steps


def test_the_demonstration_trains_with_the_recipe_of_its_task() -> None:
    """As `stringline-train` with this recipe, and as the shipped policy of the task."""
    cameras = "policy.observation_encoder.cameras=[overhead,wrist]"
    training = composed("train", "dataset.path=x", cameras, f"training_recipe={PICK}")
    settings = demo(f"task={PICK}")
    assert settings.policy == training["policy"]
    assert settings.training.augmentation == training["augmentation"]
    assert settings.training.hold_s == training["dataset"]["hold_s"] == 1.0
    shipped = load_description(SHIPPED / PICK)["model"]
    places = shipped["observation_encoder"]["coordinates"]
    # The shipped policy is older than these options.
    assert settings.policy.pop("posture") is None
    assert settings.policy["observation_encoder"].pop("joints") == "tokens"
    assert (
        places | {"depth_pooling": "median", "missing_depth": "exclude"}
        == (settings.policy["observation_encoder"]["coordinates"])
    )
    settings.policy["observation_encoder"]["coordinates"] = places
    assert settings.policy == shipped


def test_the_recipe_of_the_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        with_training_recipe([f"task={PICK}", "training_recipe=none"])
        assert not caplog.messages
        with_training_recipe([f"task={PICK}"])
    assert caplog.messages == [
        "The training uses training_recipe=kuka_pick, the recipe of the task; "
        "training_recipe=none trains with the defaults."
    ]


def test_another_recipe_and_single_choices_replace_those_of_the_recipe() -> None:
    plain = demo(f"task={PICK}", "training_recipe=none")
    assert "action_space" not in plain.policy
    assert plain.training.hold_s == 0.0
    longer = demo(f"task={PICK}", "action_places=none", "dataset.hold_s=2")
    assert "action_places" not in longer.policy
    assert "action_space" in longer.policy
    assert longer.training.hold_s == 2
    assert with_training_recipe(["task=fmb_1"]) == ["task=fmb_1"]


@pytest.mark.parametrize("group", ["recipe", "training_recipe"])
def test_recipes_are_files_of_tasks(group: str) -> None:
    """`stringline-demo` chooses the recipe that has the name of the task."""
    folder = Path(__file__).parents[3] / "configs" / group
    assert {file.stem for file in folder.glob("*.yaml")} <= {*TASKS, "none"}
