"""The command `stringline-replay`: does in simulation again what a recorded episode did, and says whether the same came of it.

The world begins at the episode's seed and gets its actions. Physics is deterministic, so what a
person steered goes the same way to the last bit on one machine. What was executed otherwise than it
was recorded does not: scripted experts' targets are rounded to float32 when they are stored, and
under `noise_rad` the disturbed ones were executed.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from omegaconf import DictConfig

from stringline.datasets.command.application import run
from stringline.datasets.pointclouds.clouds import find_episode
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.collect import open_recipe_world
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.robots.robot_model import PRIMITIVES
from stringline.sim.rollout.world_interface import World

STATE = "sim/state"


@dataclass(frozen=True)
class EpisodeReplay:
    """What came of an episode when it was done again.

    Attributes:
        steps: Its length.
        difference: Largest distance of any number of the physics' state from the recorded one, at
            any step: m, rad, m/s, rad/s.
        final_difference: The same at the last step.
        success: Whether the task was done at the end.
        stage: The furthest stage.
    """

    steps: int
    difference: float
    final_difference: float
    success: bool
    stage: int


def recorded_world(episode: StoredEpisode) -> Recipe:
    """Returns what an episode says about the world that it was recorded in.

    Raises:
        ValueError: It is not from one of our simulated worlds, or from that of another version.
    """
    recipe = episode.attributes.extra.get("recipe")
    if not isinstance(recipe, Mapping) or STATE not in episode.arrays:
        raise ValueError(
            f"Episode {episode.name} (source {episode.attributes.source!r}) does not say in which "
            f"simulated world it happened; "
            "episodes of stringline-collect and stringline-teleop do."
        )
    known = {field.name for field in fields(Recipe)}
    if unknown := sorted(set(recipe) - known):
        raise ValueError(
            f"The world of episode {episode.name} has {', '.join(unknown)}, which this version "
            f"does not know."
        )
    cameras = recipe.get("cameras")
    plain: dict[str, Any] = {**recipe, "cameras": None if cameras is None else tuple(cameras)}
    return Recipe(**plain)


def replay_episode(episode: StoredEpisode) -> EpisodeReplay:
    """Does an episode again in a world of its own, without images; so what the arms were drawn with is not needed.

    Raises:
        ValueError: It does not say in which world it happened.
    """
    recipe = recorded_world(episode)
    world = open_recipe_world(replace(recipe, cameras=(), robot_model=PRIMITIVES))
    try:
        return _replay(world, episode, recipe.options)
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
    found = replay_episode(episode)
    then = {True: "a success", False: "no success", None: "not judged"}[episode.attributes.success]
    sys.stdout.write(
        f"{episode.name}: {found.steps} steps again. The states differ by at most "
        f"{found.difference:g}, by "
        f"{found.final_difference:g} at the end. Now "
        f"{'a success' if found.success else 'no success'} (stage {found.stage}), "
        f"then {then}.\n"
    )


if __name__ == "__main__":
    main()
