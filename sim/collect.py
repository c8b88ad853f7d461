"""Collection of demonstrations by a scripted expert into an episode store: `stringline-collect`.

An episode depends on recipe and seed alone, so the store holds the same episodes for any number of
workers, on one machine or on many that share the store's folder. A stopped collection can be
continued. With a policy the expert corrects: it takes over from the policy, which stays in this
process as in an evaluation. The workers never import torch, this process only for a policy.
"""

import logging
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from collections.abc import Collection as AnyCollection
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from hydra.utils import instantiate
from omegaconf import DictConfig
from tqdm import tqdm

from stringline.datasets.cameras.resampling import checked_image_size
from stringline.datasets.command.application import report_next, run
from stringline.datasets.contract.argument_checks import COUNT, WHOLE
from stringline.datasets.contract.contract import Array
from stringline.datasets.loading.sampler import named_counts
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore, new_store
from stringline.sim.collection.collection_state import Collection, Outcome, Recipe
from stringline.sim.collection.correction import record_correction
from stringline.sim.collection.demonstration import (
    NOISES_RAD,
    Recording,
    check_disturbances,
    check_looks_of_demonstrations,
    record_episode,
)
from stringline.sim.collection.human_motion import HumanMotion
from stringline.sim.collection.takeovers import Takeovers
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.evaluation.runner import PolicySessions
from stringline.sim.experts.expert_registry import Expert, make_correcting_expert
from stringline.sim.rollout.cluster import Cluster, LocalCluster, dispatch
from stringline.sim.rollout.jobs import SharedFolder, shared
from stringline.sim.rollout.rollout import Answer
from stringline.sim.rollout.workers import (
    EpisodeEnd,
    PlannedTask,
    PlanRequest,
    TaskResult,
    WorkerReady,
    WorldTask,
)
from stringline.sim.rollout.world_interface import Simulation, World
from stringline.sim.tasks.task_registry import is_remote_task
from stringline.sim.worlds.task_settings import TaskSettings, with_interpreter
from stringline.sim.worlds.world_registry import is_third_party, make_any_expert, open_world
from stringline.sim.worlds.world_versions import world_versions

if TYPE_CHECKING:  # It loads torch, which collections without a policy do not need.
    from stringline.sim.evaluation.corrected_policy import CorrectedPolicy

logger = logging.getLogger(__name__)

OPEN_CORRECTED = "stringline.sim.evaluation.corrected_policy:open_corrected"
WITH_TRAINED = "stringline.sim.evaluation.trained_settings:with_trained_settings"
"""Both load torch, so they are imported for a policy only."""
POLICY = "policy="
ATTEMPTS_PER_EPISODE = 3
FAILURES_IN_A_ROW = 30


def collecting_expert(task: str, varied: bool, human_like: bool) -> Expert[Any]:
    """Builds the expert of a collection.

    Raises:
        ValueError: The task has no expert, or plain motions or those of an arm without known joints
            are to be those of a person.
    """
    expert = make_any_expert(task, varied=varied)
    if not human_like:
        return expert
    if not varied:
        raise ValueError(
            "human_like=true needs varied=true: people do not move in one way. Leave one of them "
            "out."
        )
    if is_remote_task(task):
        raise ValueError(
            f"human_like is true, but {task} has no arms with known joints; allowed: false."
        )
    return HumanMotion(expert)


# A worker keeps experts and stores like its world: to open them takes longer than an episode.
_expert_of = cache(collecting_expert)
_correcting_expert_of = cache(make_correcting_expert)
_store_at = cache(EpisodeStore.open)


def collect(
    recipe: Recipe,
    path: str | Path,
    episodes: int,
    *,
    workers: int = 2,
    first_seed: int = 0,
    cluster: Cluster | None = None,
    policy: "CorrectedPolicy | None" = None,
) -> Collection:
    """Fills a store with episodes of the seeds from `first_seed` on.

    Args:
        recipe: Task, observations and disturbances of the episodes.
        path: The store; it is created if necessary, and continued otherwise.
        episodes: Number of episodes at the end.
        workers: Number of parallel worlds; 0 takes one per processor.
        first_seed: Seed of the first attempt; evaluations start at 1000000.
        cluster: Where the worlds run; by default in processes of this machine.
        policy: The policy that the expert corrects, with `takeovers` in the recipe; if None, the
            expert demonstrates.

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
    _check_expert(recipe)
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
            policy=None if policy is None else policy.described(),
        )
    # Two collections at once would overwrite each other's list of attempts.
    with new_store(path) as store, shared(store.path.absolute(), alone=True) as folder:
        store.remove_leftovers()
        collection = Collection(store, recipe, first_seed)
        attempts = _Attempts(collection, episodes, policy.sessions() if policy else None)
        _complete(attempts, workers, cluster or LocalCluster(), folder)
        collection.remove_duplicates()
        store.remove_leftovers()
    _report(collection, path)
    return collection


def _report(collection: Collection, path: str | Path) -> None:
    """Logs what the store holds, and by which signs experts took over."""
    recipe = collection.recipe
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
    if recipe.takeovers is not None:
        signs = Counter(outcome.takeover or "none" for outcome in collection.outcomes)
        logger.info("Takeovers: %s.", named_counts(signs))


def _check_expert(recipe: Recipe) -> None:
    """Checks that the task has an expert, and one that can take over if it corrects."""
    if recipe.takeovers is None:
        collecting_expert(recipe.task, recipe.varied, recipe.human_like)
        return
    if is_third_party(recipe.task):
        raise ValueError(
            f"policy is given, but the expert of the third-party task {recipe.task} cannot take "
            "over; allowed: the tasks of this package, or yours with an expert that can."
        )
    make_correcting_expert(recipe.task, varied=recipe.varied)
    disturbed = ("noise_rad", "lost_grasps", "missed_grasps", "human_like")
    if given := [name for name in disturbed if getattr(recipe, name)]:
        raise ValueError(
            f"{given[0]} is {getattr(recipe, given[0])}, but corrections are not disturbed: the "
            f"policy makes the errors. Leave it out, or leave policy out."
        )


def _complete(attempts: "_Attempts", workers: int, cluster: Cluster, folder: SharedFolder) -> None:
    """Runs the missing attempts and shows the progress."""
    collection, episodes = attempts.collection, attempts.episodes
    recipe = collection.recipe
    done = min(episodes, collection.kept)
    with (
        tqdm(total=episodes, initial=done, unit="episode", desc=recipe.task) as progress,
        closing(_outcomes(attempts, workers, cluster, folder)) as outcomes,
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
        return stored(world, recording, recipe, self.path, self.seed)


@dataclass(frozen=True)
class CorrectedAttempt:
    """Runs a policy that the expert corrects on one seed, and stores the episode at `path`.

    The policy plans every `execute_steps` control periods; if None, after each chunk.
    """

    recipe: Recipe
    path: Path
    seed: int
    execute_steps: int | None

    def course(self, world: Simulation) -> Generator[dict[str, Array], Answer, Outcome]:
        """Yields observations for the policy, and returns the outcome; see `Attempt`."""
        assert isinstance(world, TaskEnvironment)
        recipe = self.recipe
        assert recipe.takeovers is not None
        recording = yield from record_correction(
            world,
            _correcting_expert_of(recipe.task, varied=recipe.varied),
            self.seed,
            recipe.takeovers,
            time_limit_s=recipe.time_limit_s,
            execute_steps=self.execute_steps,
            options=recipe.options,
        )
        return stored(world, recording, recipe, self.path, self.seed)


def stored(world: World, recording: Recording, recipe: Recipe, path: Path, seed: int) -> Outcome:
    """Stores an episode if it succeeded or the recipe keeps failures; returns its outcome."""
    task = world.task
    if recording.success or recipe.keep_failures:
        extra = {"recipe": recipe.described(), "stages": list(task.stages)}
        attributes = EpisodeAttributes(
            world.contract,
            task.name,
            seed,
            recording.success,
            recipe.source,
            task.instruction,
            extra | recording.extra(),
        )
        _store_at(path).write(recording.arrays, attributes)
    takeover = recording.takeover or {}
    return Outcome(
        seed,
        recording.success,
        recording.stage,
        len(recording.arrays["time"]),
        recording.error,
        str(takeover.get("sign", "")),
    )


class _Attempts:
    """The attempts of a collection, for the dispatcher."""

    plan_batch = 1

    def __init__(
        self, collection: Collection, episodes: int, sessions: PolicySessions | None
    ) -> None:
        self.collection = self._collection = collection
        self.episodes = self._episodes = episodes
        self._sessions = sessions
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
        """Checks that the policy fits; for an expert every world of the recipe does."""
        if self._sessions is not None:
            self._sessions.check(message)

    def start(self, seed: int) -> WorldTask | PlannedTask:
        recipe = self._collection.recipe
        if self._sessions is None:
            return Attempt(recipe, self._path, seed)
        self._sessions.begin(seed)
        return CorrectedAttempt(recipe, self._path, seed, self._sessions.replan_after)

    def plans(self, requests: Mapping[int, PlanRequest]) -> Mapping[int, Answer]:
        assert self._sessions is not None  # An expert needs no plans.
        return self._sessions.plans(requests)

    def finish(self, seed: int, message: EpisodeEnd | TaskResult) -> Outcome:
        assert isinstance(message, TaskResult)
        assert isinstance(message.result, Outcome)
        if self._sessions is not None:
            self._sessions.end(seed)
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
    attempts: _Attempts, workers: int, cluster: Cluster, folder: SharedFolder
) -> Generator[Outcome, None, None]:
    """Runs the missing attempts and yields each outcome when its attempt ends."""
    if not (missing := len(attempts.collection.next_seeds(attempts.episodes))):
        return
    world = partial(open_world_beside, folder, attempts.collection.recipe)
    with cluster.open(world, workers, missing) as pool:
        yield from dispatch(pool, attempts)


def task_recipe(task: TaskSettings, **settings: Any) -> Recipe:
    """Returns the recipe of a task, with other settings of `Recipe`."""
    return Recipe(
        task=task.name,
        **seen_by(task),
        frame_hz=task.frame_hz,
        options=dict(task.options),
        embodiment=task.embodiment,
        interpreter=task.interpreter,
        **{"time_limit_s": task.time_limit_s, **settings},
    )


def seen_by(task: TaskSettings) -> dict[str, Any]:
    """Returns the settings of a recipe that the contract of a policy decides."""
    names = ("cameras", "image_size", "control_hz")
    return {name: getattr(task, name) for name in names}


def main() -> None:
    """The command `stringline-collect`."""
    run("collect", _collect, complete=with_task_of_policy)


def with_task_of_policy(arguments: Sequence[str]) -> list[str]:
    """Adds what other options decide: the environment of a name, and the task of a policy.

    The record of a given policy has the task, its rule, frame rate and arm.
    """
    chosen = with_interpreter(arguments)
    given = [argument.partition("=")[2] for argument in chosen if argument.startswith(POLICY)]
    if not given or given[-1] == "null":
        return chosen
    complete: Callable[[Sequence[str]], list[str]] = resolve_name(WITH_TRAINED)
    added = complete([*chosen, f"checkpoint={given[-1]}"])[len(chosen) + 1 :]
    return [*chosen, *(each for each in added if each.lstrip("+").startswith("task"))]


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
    recipe = recipe_of(config)
    policy: CorrectedPolicy | None = None
    if config.policy is not None:
        task = TaskSettings.of(config.task)
        policy, task = resolve_name(OPEN_CORRECTED)(str(config.policy), task, str(config.device))
        takeovers: Takeovers = instantiate(config.takeovers)
        recipe = replace(recipe, takeovers=takeovers, **seen_by(task))
    collect(
        recipe,
        str(config.output),
        config.episodes,
        workers=config.workers,
        first_seed=config.first_seed,
        cluster=instantiate(config.cluster),
        policy=policy,
    )
    report_next("stringline-train", _next_training(config, policy))


def _next_training(config: DictConfig, policy: "CorrectedPolicy | None") -> dict[str, object]:
    """Returns the options of a training on demonstrations, or on corrections of its policy."""
    if policy is None:
        return {"dataset.path": str(config.output)}
    return {
        **policy.training_choices(),
        "dataset.path": str(config.output),
        "dataset.corrections": 1.0,
        "initialise_from": str(config.policy),
        "keep_normalisation": True,
        "output": f"{config.output}_training",
    }
