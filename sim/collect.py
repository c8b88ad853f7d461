"""Collection of demonstrations by a scripted expert into an episode store: `stringline-collect`.

An episode depends on recipe and seed alone, so the store holds the same episodes for any number of
workers, on one machine or on many that share the store's folder. A stopped collection can be
continued. Neither this process nor the workers import torch.
"""

import logging
from collections.abc import Collection as AnyCollection
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig
from tqdm import tqdm

from stringline.datasets.cameras.resampling import checked_image_size
from stringline.datasets.command.application import run
from stringline.datasets.command.command_line import report_next
from stringline.datasets.contract.argument_checks import COUNT, WHOLE
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore, new_store
from stringline.sim.collection.collection_state import SOURCE, Collection, Outcome, Recipe
from stringline.sim.collection.demonstration import (
    NOISES_RAD,
    check_disturbances,
    check_looks_of_demonstrations,
    record_episode,
)
from stringline.sim.collection.human_motion import collecting_expert
from stringline.sim.rollout.cluster import Cluster, LocalCluster, dispatch
from stringline.sim.rollout.jobs import SharedFolder, shared
from stringline.sim.rollout.rollout import Answer
from stringline.sim.rollout.workers import EpisodeEnd, PlanRequest, TaskResult, WorkerReady
from stringline.sim.rollout.world_interface import Simulation, World
from stringline.sim.worlds.task_settings import TaskSettings, with_interpreter
from stringline.sim.worlds.world_registry import open_world
from stringline.sim.worlds.world_versions import world_versions

logger = logging.getLogger(__name__)

ATTEMPTS_PER_EPISODE = 3
FAILURES_IN_A_ROW = 30
# A worker keeps experts and stores like its world: to open them takes longer than an episode.
_expert_of = cache(collecting_expert)
_store_at = cache(EpisodeStore.open)


def collect(
    recipe: Recipe,
    path: str | Path,
    episodes: int,
    *,
    workers: int = 2,
    first_seed: int = 0,
    cluster: Cluster | None = None,
) -> Collection:
    """Fills a store with episodes of the seeds from `first_seed` on.

    Args:
        recipe: Task, observations and disturbances of the episodes.
        path: The store; it is created if necessary, and continued otherwise.
        episodes: Number of episodes at the end.
        workers: Number of parallel worlds; 0 takes one per processor.
        first_seed: Seed of the first attempt; evaluations start at 1000000.
        cluster: Where the worlds run; by default in processes of this machine.

    Returns:
        All attempts.

    Raises:
        ValueError: An argument is wrong, the expert fails too often, another process collects into
            the store, or a worker does not see the store.
    """
    COUNT.check(episodes=episodes)
    WHOLE.check(workers=workers, first_seed=first_seed)
    NOISES_RAD.check(noise_rad=recipe.noise_rad)
    # The expert and the world are built once here, to find wrong settings before any write.
    collecting_expert(recipe.task, recipe.varied, recipe.human_like)
    with closing(open_recipe_world(recipe)) as world:
        check_disturbances(
            world,
            noise_rad=recipe.noise_rad,
            lost_grasps=recipe.lost_grasps,
            missed_grasps=recipe.missed_grasps,
        )
        recipe = replace(
            recipe,
            cameras=tuple(camera.name for camera in world.contract.cameras),
            versions=world_versions(
                recipe.task, recipe.options, recipe.embodiment, recipe.interpreter
            ),
        )
    # Two collections at once would overwrite each other's list of attempts.
    with new_store(path) as store, shared(store.path.absolute(), alone=True) as folder:
        store.remove_leftovers()
        collection = Collection(store, recipe, first_seed)
        _complete(collection, episodes, workers, cluster or LocalCluster(), folder)
        collection.remove_duplicates()
        store.remove_leftovers()
    lost = sum(outcome.lost for outcome in collection.outcomes)
    logger.info(
        "%s holds %d episodes of %r; %d of %d attempts succeeded%s.",
        path,
        collection.kept,
        recipe.task,
        collection.successes,
        collection.tried,
        f", {lost} were lost with their worlds" if lost else "",
    )
    return collection


def _complete(
    collection: Collection, episodes: int, workers: int, cluster: Cluster, folder: SharedFolder
) -> None:
    """Runs the missing attempts and shows the progress."""
    recipe = collection.recipe
    done = min(episodes, collection.kept)
    with (
        tqdm(total=episodes, initial=done, unit="episode", desc=recipe.task) as progress,
        closing(_outcomes(collection, episodes, workers, cluster, folder)) as outcomes,
    ):
        for outcome in outcomes:
            progress.update(int(outcome.success or (recipe.keep_failures and not outcome.lost)))


def open_recipe_world(recipe: Recipe) -> World:
    """Builds the world of a recipe, and checks its options."""
    for side in checked_image_size(recipe.image_size):
        COUNT.check(image_size=side)
    world = open_world(recipe.task, **recipe.world())
    try:
        check_looks_of_demonstrations(recipe.options)
        world.check_options(recipe.options)
    except ValueError:
        world.close()
        raise
    return world


def open_world_beside(folder: SharedFolder, recipe: Recipe) -> World:
    """Builds the world of a recipe on a machine that sees the folder of the store."""
    folder.check()
    return open_recipe_world(recipe)


@dataclass(frozen=True)
class Attempt:
    """Runs the expert on one seed and stores the episode in the store at `path`."""

    recipe: Recipe
    path: Path
    seed: int

    def run(self, world: Simulation) -> Outcome:
        """Returns the outcome; a failed episode is stored only if the recipe keeps failures."""
        assert isinstance(world, World)
        recipe = self.recipe
        task = world.task
        expert = _expert_of(recipe.task, recipe.varied, recipe.human_like)
        recording = record_episode(
            world,
            expert,
            self.seed,
            noise_rad=recipe.noise_rad,
            lost_grasps=recipe.lost_grasps,
            missed_grasps=recipe.missed_grasps,
            options=recipe.options,
        )
        if recording.success or recipe.keep_failures:
            extra = {"recipe": recipe.described(), "stages": list(task.stages)}
            attributes = EpisodeAttributes(
                world.contract,
                task.name,
                self.seed,
                recording.success,
                SOURCE,
                task.instruction,
                extra | recording.extra(),
            )
            _store_at(self.path).write(recording.arrays, attributes)
        return Outcome(
            self.seed,
            recording.success,
            recording.stage,
            len(recording.arrays["time"]),
            recording.error,
        )


class _Attempts:
    """The attempts of a collection, for the dispatcher."""

    plan_batch = 1

    def __init__(self, collection: Collection, episodes: int) -> None:
        self._collection = collection
        self._episodes = episodes
        self._path = collection.store.path.absolute()
        # Those of this run, since a corrected expert gets new attempts.
        self._left = ATTEMPTS_PER_EPISODE * max(0, episodes - collection.kept) + 10
        self._failures = 0
        self._last = ""

    def waiting(self, running: AnyCollection[int]) -> list[int]:
        collection = self._collection
        if self._failures and (self._failures >= FAILURES_IN_A_ROW or self._left < 0):
            raise ValueError(
                f"The expert of {collection.recipe.task!r} fails too often: {collection.successes} "
                f"of {collection.tried} attempts succeeded. {self._last} Correct the expert or the "
                f"settings of the task, or store failures as well: keep_failures=true."
            )
        return [seed for seed in collection.next_seeds(self._episodes) if seed not in running]

    def on_ready(self, message: WorkerReady) -> None:
        """Every world of the recipe fits."""

    def start(self, seed: int) -> Attempt:
        return Attempt(self._collection.recipe, self._path, seed)

    def plans(self, requests: Mapping[int, PlanRequest]) -> Mapping[int, Answer]:
        raise AssertionError("An expert needs no plans.")

    def finish(self, seed: int, message: EpisodeEnd | TaskResult) -> Outcome:
        assert isinstance(message, TaskResult)
        assert isinstance(message.result, Outcome)
        return self._add(message.result)

    def recover(self, seed: int) -> Outcome | None:
        return self._collection.find_stored(seed)

    def give_up(self, seed: int, reason: str) -> Outcome:
        return self._add(Outcome(seed, success=False, stage=0, steps=0, error=reason))

    def _add(self, outcome: Outcome) -> Outcome:
        recipe = self._collection.recipe
        kept = outcome.success or (recipe.keep_failures and not outcome.lost)
        self._left -= 1
        self._failures = 0 if kept else self._failures + 1
        if not kept:
            late = f"stage {outcome.stage} after {recipe.time_limit_s:g} s, the time limit"
            reason = " ".join(outcome.error.rstrip(".").split()) or late
            self._last = f"The last failure, of seed {outcome.seed}: {reason}."
        return self._collection.add(outcome)


def _outcomes(
    collection: Collection, episodes: int, workers: int, cluster: Cluster, folder: SharedFolder
) -> Generator[Outcome, None, None]:
    """Runs the missing attempts and yields each outcome when its attempt ends."""
    if not (missing := len(collection.next_seeds(episodes))):
        return
    world = partial(open_world_beside, folder, collection.recipe)
    with cluster.open(world, workers, missing) as pool:
        yield from dispatch(pool, _Attempts(collection, episodes))


def task_recipe(task: TaskSettings, **settings: Any) -> Recipe:
    """Returns the recipe of a task, with other settings of `Recipe`."""
    return Recipe(
        task=task.name,
        cameras=task.cameras,
        image_size=task.image_size,
        control_hz=task.control_hz,
        frame_hz=task.frame_hz,
        options=dict(task.options),
        embodiment=task.embodiment,
        interpreter=task.interpreter,
        **{"time_limit_s": task.time_limit_s, **settings},
    )


def main() -> None:
    """The command `stringline-collect`."""
    run("collect", _collect, complete=with_interpreter)


def recipe_of(config: DictConfig) -> Recipe:
    """Returns the recipe of a configuration of `stringline-collect`."""
    return task_recipe(
        TaskSettings.of(config.task),
        noise_rad=config.noise_rad,
        lost_grasps=config.lost_grasps,
        missed_grasps=config.missed_grasps,
        human_like=config.human_like,
        keep_failures=config.keep_failures,
        varied=config.varied,
        robot_model=config.robot.model,
        segments=config.segments,
    )


def _collect(config: DictConfig) -> None:
    collect(
        recipe_of(config),
        str(config.output),
        config.episodes,
        workers=config.workers,
        first_seed=config.first_seed,
        cluster=instantiate(config.cluster),
    )
    report_next("stringline-train", {"dataset.path": str(config.output)})
