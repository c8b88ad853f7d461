"""Collecting demonstrations of a scripted expert, in parallel, into an episode store; the command `stringline-collect`.

An episode depends on its seed alone, so the store holds the same episodes whatever the number of
workers, on one machine or on many that share the store's folder. Collection can be stopped at any
time and goes on where it was. Neither this process nor the workers import torch.
"""

import logging
from collections.abc import Generator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig
from tqdm import tqdm

from stringline.datasets.command.application import run
from stringline.datasets.contract.arguments import COUNT, WHOLE
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore
from stringline.sim.collection.collection_state import SOURCE, Collection, Outcome, Recipe
from stringline.sim.collection.demonstration import NOISES_RAD, record_episode
from stringline.sim.rollout.cluster import Cluster, LocalCluster, WorkerFace
from stringline.sim.rollout.messages import Lost, Returned
from stringline.sim.rollout.retries import Losses
from stringline.sim.rollout.rollout import Simulation
from stringline.sim.rollout.shared_folder import SharedFolder, shared
from stringline.sim.rollout.world_interface import World
from stringline.sim.worlds.world_registry import demand_task_settings, make_any_expert, open_world

logger = logging.getLogger(__name__)

ATTEMPTS_PER_EPISODE = 3
# Compiled worlds and graphics cost more than an episode, so experts and stores are kept in a worker
# as its world is.
_expert_of = cache(make_any_expert)
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
    """Fills a store with episodes of the seeds from `first_seed` on, until it holds that many.

    Args:
        recipe: What to record.
        path: Of the store; it is made where there is none, and completed where there is one.
        episodes: How many to have in the end.
        workers: Worlds at a time; 0 takes one per processor.
        first_seed: Evaluations count from another one.
        cluster: Where the worlds run; by default in processes of this machine.

    Returns:
        All attempts.

    Raises:
        ValueError: Something about the arguments, the expert fails too often, or a worker does not
            see the store.
    """
    COUNT.check(episodes=episodes)
    WHOLE.check(workers=workers, first_seed=first_seed)
    NOISES_RAD.check(noise_rad=recipe.noise_rad)
    make_any_expert(recipe.task, varied=recipe.varied)
    world = open_recipe_world(
        recipe
    )  # Unknown names and values are complained about here, before anything is written.
    recipe = replace(recipe, cameras=tuple(camera.name for camera in world.contract.cameras))
    world.close()
    store = EpisodeStore.create(path)
    store.remove_leftovers()
    collection = Collection(store, recipe, first_seed)
    with (
        tqdm(
            total=episodes, initial=min(episodes, collection.kept), unit="episode", desc=recipe.task
        ) as progress,
        closing(_outcomes(collection, episodes, workers, cluster or LocalCluster())) as outcomes,
    ):
        for outcome in outcomes:
            progress.update(int(outcome.success or (recipe.keep_failures and not outcome.lost)))
    collection.remove_repeats()
    store.remove_leftovers()
    logger.info(
        "%s holds %d episodes of %r; %d of %d attempts succeeded.",
        path,
        collection.kept,
        recipe.task,
        collection.successes,
        collection.tried,
    )
    return collection


def open_recipe_world(recipe: Recipe) -> World:
    """Builds the world of a recipe.

    Raises:
        ValueError: The recipe names something unknown, or a value is out of range.
    """
    COUNT.check(
        image_size=recipe.image_size
    )  # Rows and columns alike: policies are measured on square images.
    world = open_world(
        recipe.task,
        cameras=recipe.cameras,
        image_size=recipe.image_size,
        control_hz=recipe.control_hz,
        frame_hz=recipe.frame_hz,
        time_limit_s=recipe.time_limit_s,
        robot_model=recipe.robot_model,
    )
    try:
        world.check_options(recipe.options)
    except ValueError:
        world.close()
        raise
    return world


def open_world_beside(folder: SharedFolder, recipe: Recipe) -> World:
    """Builds the world of a recipe where the store can be written.

    Raises:
        ValueError: The folder is not there.
    """
    folder.require()
    return open_recipe_world(recipe)


@dataclass(frozen=True)
class Attempt:
    """Has a world run the expert on one seed, and stores the episode when it is to be kept.

    Attributes:
        recipe: What to record.
        path: Of the store.
        seed: Which episode.
    """

    recipe: Recipe
    path: Path
    seed: int

    def run(self, world: Simulation) -> Outcome:
        """Runs it."""
        assert isinstance(world, World)
        recipe = self.recipe
        task = world.task
        expert = _expert_of(recipe.task, varied=recipe.varied)
        recording = record_episode(
            world, expert, self.seed, noise_rad=recipe.noise_rad, options=recipe.options
        )
        if recording.success or recipe.keep_failures:
            extra = {"recipe": asdict(recipe), "stages": list(task.stages)}
            attributes = EpisodeAttributes(
                world.contract,
                task.name,
                self.seed,
                recording.success,
                SOURCE,
                task.instruction,
                extra,
            )
            _store_at(self.path).write(recording.arrays, attributes)
        return Outcome(
            self.seed,
            recording.success,
            recording.stage,
            len(recording.arrays["time"]),
            recording.trouble,
        )


def main() -> None:
    """The command `stringline-collect`."""
    run("collect", _collect)


def _collect(config: DictConfig) -> None:
    task = config.task
    demand_task_settings(task)
    recipe = Recipe(
        task=task.name,
        cameras=tuple(task.cameras),
        image_size=task.image_size,
        control_hz=task.control_hz,
        frame_hz=task.frame_hz,
        time_limit_s=task.time_limit_s,
        noise_rad=config.noise_rad,
        keep_failures=config.keep_failures,
        varied=config.varied,
        options={str(key): value for key, value in task.options.items()},
        robot_model=config.robot.model,
    )
    collect(
        recipe,
        str(config.output),
        config.episodes,
        workers=config.workers,
        first_seed=config.first_seed,
        cluster=instantiate(config.cluster),
    )


def _outcomes(
    collection: Collection, episodes: int, workers: int, cluster: Cluster
) -> Generator[Outcome, None, None]:
    """Makes the attempts that are missing, writes them down, and yields them as they end."""
    recipe = collection.recipe
    path = collection.store.path.absolute()
    running = dict[WorkerFace, int]()
    idle = set[WorkerFace]()
    losses = Losses()
    if not (missing := len(collection.next_seeds(episodes))):
        return
    with (
        shared(path) as folder,
        cluster.open(partial(open_world_beside, folder, recipe), workers, missing) as pool,
    ):
        for worker, message in pool.messages():
            (idle.discard if isinstance(message, Lost) else idle.add)(worker)
            if isinstance(message, Returned):
                assert isinstance(message.result, Outcome)
                yield collection.add(message.result)
            seed = running.pop(worker, None)
            if (
                isinstance(message, Lost)
                and seed is not None
                and (outcome := _lost(collection, seed, message, losses))
            ):
                yield outcome
            waiting = [
                seed for seed in collection.next_seeds(episodes) if seed not in running.values()
            ]
            if collection.tried > ATTEMPTS_PER_EPISODE * episodes + 10:
                raise ValueError(
                    f"The expert succeeded in {collection.successes} of {collection.tried} "
                    f"attempts; giving up."
                )
            while (
                waiting and idle
            ):  # One that had nothing to do may take over from one that was lost.
                free = idle.pop()
                seed = waiting.pop(0)
                running[free] = seed
                free.send(Attempt(recipe, path, seed))
            if not waiting and not running:
                return


def _lost(collection: Collection, seed: int, message: Lost, losses: Losses) -> Outcome | None:
    """Returns how an attempt ended whose worker died, or None when it is to be made again."""
    if (stored := collection.find_stored(seed)) is not None:
        return stored  # The worker died between storing the episode and saying so.
    if losses.again(seed, message.reason):
        return None
    return collection.add(Outcome(seed, success=False, stage=0, steps=0, trouble=message.reason))
