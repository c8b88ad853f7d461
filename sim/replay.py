"""The command `stringline-replay`: repeats a recorded episode in simulation.

The world begins at the episode's seed and executes its actions. Physics is deterministic, so a
teleoperated episode is reproduced to the last bit on one machine. An episode whose executed actions
differ from the recorded ones is not: targets of scripted experts are rounded to float32 when they
are stored, and with `noise_rad` or a lost grasp the disturbed targets were executed.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from omegaconf import DictConfig

from stringline.datasets.command.application import run
from stringline.datasets.extensions.trust import Trust
from stringline.datasets.pointclouds.clouds import find_episode
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.collect import open_recipe_world
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.collection.takeovers import Takeovers
from stringline.sim.interpreters.environment_process import Interpreter
from stringline.sim.robots.arm_appearance import PRIMITIVES
from stringline.sim.rollout.world_interface import World
from stringline.sim.tasks.task_registry import code_of_task
from stringline.sim.worlds.world_versions import RULE

STATE = "sim/state"


@dataclass(frozen=True)
class EpisodeReplay:
    """The outcome of a replayed episode.

    Attributes:
        difference: Largest difference of the physics' state from the recorded one: m, rad, m/s,
            rad/s.
        final_difference: Largest difference at the last step.
        stage: The furthest stage.
    """

    steps: int
    difference: float
    final_difference: float
    success: bool
    stage: int


def recorded_world(episode: StoredEpisode) -> Recipe:
    """Returns the recipe of the world in which an episode was recorded.

    Raises:
        ValueError: The episode does not describe its world, another version recorded it, or its
            task is a class of a package that is not trusted.
    """
    recipe = episode.attributes.extra.get("recipe")
    if not isinstance(recipe, Mapping) or STATE not in episode.arrays:
        raise ValueError(
            f"Episode {episode.name} (source {episode.attributes.source!r}) does not describe its "
            f"simulated world; episodes of stringline-collect and stringline-teleop do."
        )
    known = {field.name for field in fields(Recipe)}
    if unknown := sorted(set(recipe) - known):
        raise ValueError(
            f"The world of episode {episode.name} has settings that this version does not know: "
            f"{', '.join(unknown)}."
        )
    if (code := code_of_task(str(recipe.get("task")))) is not None:
        Trust(f"Episode {episode.name}").check(code)
    cameras = recipe.get("cameras")
    plain: dict[str, Any] = {**recipe, "cameras": None if cameras is None else tuple(cameras)}
    if recipe.get("takeovers") is not None:
        plain["takeovers"] = Takeovers(**recipe["takeovers"])
    return Recipe(**plain)


def recorded_options(recipe: Recipe) -> dict[str, Any]:
    """Returns the options of a recorded world with its rule, since the usual one may change."""
    rule = {name: recipe.versions[name] for name in RULE if name in recipe.versions}
    return {**rule, **recipe.options}


def replay_episode(episode: StoredEpisode, python: str | None = None) -> EpisodeReplay:
    """Repeats an episode in a world of its own, without images, so without meshes of the arms.

    `python` is the interpreter of an environment that has one of its own.
    """
    recipe = replace(recorded_world(episode), interpreter=Interpreter(python))
    world = open_recipe_world(replace(recipe, cameras=(), robot_model=PRIMITIVES))
    try:
        return _replay(world, episode, recorded_options(recipe))
    finally:
        world.close()


def _replay(world: World, episode: StoredEpisode, options: Mapping[str, Any]) -> EpisodeReplay:
    world.begin(episode.attributes.seed, options)
    difference = 0.0
    last = 0.0
    success = False
    for action, state in zip(episode.arrays["action"], episode.arrays[STATE], strict=True):
        last = float(np.abs(world.physics.get_state() - state).max())
        difference = max(difference, last)
        success = world.advance(action).success
    return EpisodeReplay(episode.steps, difference, last, success, world.task.stage)


def main() -> None:
    """The command `stringline-replay`."""
    run("replay", _replay_stored, stopped="Stopped.")


def _replay_stored(config: DictConfig) -> None:
    store = EpisodeStore.open(config.store)
    episode = store.episode(
        find_episode(store.names(), None if config.episode is None else str(config.episode))
    )
    found = replay_episode(episode, config.python)
    recipe = recorded_world(episode)
    extra = episode.attributes.extra
    events = {f"{name}s": float(name in extra) for name in ("lost_grasp", "missed_grasp")}
    found_disturbances = {"noise_rad": recipe.noise_rad, **events}
    disturbances = ", ".join(
        f"{name}={value:g}" for name, value in found_disturbances.items() if value
    )
    reason = (
        f" The recorded actions are undisturbed, but disturbed ones were executed "
        f"({disturbances}), so the "
        f"states differ."
        if disturbances
        else ""
    )
    words = {True: "success", False: "failure", None: "unknown"}
    sys.stdout.write(
        f"{episode.name}: replayed {found.steps} steps. The states differ by at most "
        f"{found.difference:g}, by {found.final_difference:g} at the end. Outcome: "
        f"{words[found.success]} (stage {found.stage}); recorded: "
        f"{words[episode.attributes.success]}.{reason}\n"
    )


if __name__ == "__main__":
    main()
