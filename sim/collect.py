"""Collecting demonstrations of a scripted expert, in parallel, into an episode store; the command `stringline-collect`.

An episode depends on its seed alone, so the store holds the same episodes whatever the number of workers. Collection can be
stopped at any time and goes on where it was.
"""

import json
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path

from omegaconf import DictConfig
from tqdm import tqdm

from stringline.datasets.application import run
from stringline.datasets.disk import write_file
from stringline.datasets.episode import EpisodeAttributes
from stringline.datasets.store import EpisodeStore
from stringline.sim.environment import ALL_CAMERAS, TaskEnvironment
from stringline.sim.experts.expert import Expert, make_expert
from stringline.sim.record import record_episode
from stringline.sim.tasks.catalogue import make_task

_log = logging.getLogger(__name__)

COLLECTION_FILE = "collection.json"
ATTEMPTS_PER_EPISODE = 3


@dataclass(frozen=True)
class Recipe:
    """All that the content of an episode depends on, besides its seed.

    Attributes:
        task: Name of the task, and of its expert.
        cameras: Recorded cameras.
        image_size: Rows and columns of the pictures.
        control_hz: Actions per second.
        frame_hz: Pictures per second.
        time_limit_s: When an episode is given up.
        noise_rad: Largest standard deviation of the disturbance of executed joint targets.
        keep_failures: Whether failed episodes are stored too.
        options: Of the task, such as `table_height`.
    """

    task: str = "hand_over_banana"
    cameras: tuple[str, ...] = ALL_CAMERAS
    image_size: int = 128
    control_hz: float = 50.0
    frame_hz: float = 12.5
    time_limit_s: float = 12.0
    noise_rad: float = 0.0
    keep_failures: bool = False
    options: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How the attempt at one seed ended.

    Attributes:
        seed: The seed.
        success: Whether the task was done.
        stage: The furthest stage.
        steps: Length.
        trouble: Why the expert gave up, or nothing.
    """

    seed: int
    success: bool
    stage: int
    steps: int
    trouble: str = ""


class Collection:
    """The attempts that went into a store, in a file beside its episodes."""

    def __init__(self, store: EpisodeStore, recipe: Recipe) -> None:
        """Reads what has been tried before.

        Raises:
            ValueError: Episodes of that task were collected by another recipe.
        """
        self._path, self._recipe = store.path / COLLECTION_FILE, recipe
        self._all: dict[str, dict[str, object]] = json.loads(self._path.read_text()) if self._path.exists() else {}
        entry = self._all.get(recipe.task)
        plain = json.loads(json.dumps(asdict(recipe)))
        if entry is not None and entry["recipe"] != plain:
            known = entry["recipe"]
            assert isinstance(known, dict)
            changed = ", ".join(f"{key} {known.get(key)!r} (now {value!r})" for key, value in plain.items() if known.get(key) != value)
            raise ValueError(f"{store.path} was collected with {changed}; use another folder, or the same settings.")
        rows = entry["outcomes"] if entry is not None else []
        assert isinstance(rows, list)
        self.outcomes = {row["seed"]: Outcome(**row) for row in rows}
        # A crash between storing an episode and writing this file leaves an episode without an outcome.
        for episode in store.episodes():
            seed = episode.attributes.seed
            if episode.attributes.task == recipe.task and seed not in self.outcomes:
                success = bool(episode.attributes.success)
                self.outcomes[seed] = Outcome(seed, success, int(episode.arrays["stage"][-1]), episode.steps)

    def add(self, outcome: Outcome) -> None:
        """Writes down an attempt."""
        self.outcomes[outcome.seed] = outcome
        rows = [asdict(self.outcomes[seed]) for seed in sorted(self.outcomes)]
        self._all[self._recipe.task] = {"recipe": asdict(self._recipe), "outcomes": rows}
        write_file(self._path, json.dumps(self._all, indent=1).encode())

    def kept(self, first_seed: int) -> int:
        """Returns how many attempts from that seed on are in the store."""
        return sum(seed >= first_seed and (o.success or self._recipe.keep_failures) for seed, o in self.outcomes.items())

    def next_seeds(self, first_seed: int, episodes: int) -> list[int]:
        """Returns the seeds to try next: as many as episodes are missing, were all of them to succeed."""
        missing = max(0, episodes - self.kept(first_seed))
        tried = [seed for seed in self.outcomes if seed >= first_seed]
        # The rounds are those of a collection that was never interrupted, so holes come first.
        candidates = (seed for seed in range(first_seed, first_seed + len(tried) + missing) if seed not in self.outcomes)
        return [seed for seed, _ in zip(candidates, range(missing), strict=False)]


def collect(recipe: Recipe, path: str | Path, episodes: int, *, workers: int = 2, first_seed: int = 0) -> Collection:
    """Fills a store with episodes of the seeds from `first_seed` on, until it holds that many.

    Args:
        recipe: What to record.
        path: Of the store; it is made where there is none, and completed where there is one.
        episodes: How many to have in the end.
        workers: Processes.
        first_seed: Evaluations should use other seeds.

    Returns:
        All attempts.

    Raises:
        ValueError: Something about the arguments, or the expert fails too often.
    """
    if episodes < 1 or workers < 1 or first_seed < 0:
        raise ValueError(f"Got episodes={episodes}, workers={workers}, first_seed={first_seed}; allowed: at least 1, 1 and 0.")
    _World(recipe).env.close()  # Complains here, not in a worker, about unknown names.
    store = EpisodeStore.create(path)
    store.remove_leftovers()
    collection = Collection(store, recipe)
    with tqdm(total=episodes, initial=min(episodes, collection.kept(first_seed)), unit="episode", desc=recipe.task) as progress:
        while seeds := collection.next_seeds(first_seed, episodes):
            if len(collection.outcomes) > ATTEMPTS_PER_EPISODE * episodes + 20:
                raise ValueError(f"The expert succeeded in {collection.kept(first_seed)} of {len(collection.outcomes)} attempts; giving up.")
            for outcome in _attempts(recipe, store.path, seeds, workers):
                collection.add(outcome)
                progress.update(int(outcome.success or recipe.keep_failures))
    tried = len(collection.outcomes)
    _log.info("%s holds %d episodes of %r; the expert succeeded in %d of %d attempts.", path, len(store), recipe.task, _successes(collection), tried)
    return collection


def main() -> None:
    """The command `stringline-collect`."""
    run("collect", _collect)


def _collect(config: DictConfig) -> None:
    recipe = Recipe(
        task=config.task.name,
        cameras=tuple(config.task.cameras),
        image_size=config.task.image_size,
        control_hz=config.task.control_hz,
        frame_hz=config.task.frame_hz,
        time_limit_s=config.task.time_limit_s,
        noise_rad=config.noise_rad,
        keep_failures=config.keep_failures,
        options={str(key): float(value) for key, value in config.task.options.items()},
    )
    collect(recipe, config.store, config.episodes, workers=config.workers or os.cpu_count() or 1, first_seed=config.first_seed)


def _successes(collection: Collection) -> int:
    return sum(outcome.success for outcome in collection.outcomes.values())


def _attempts(recipe: Recipe, path: Path, seeds: Sequence[int], workers: int) -> Iterator[Outcome]:
    """Yields outcomes as they come. A second attempt is handed out only when one is done, so that stopping does not take long."""
    waiting = list(reversed(seeds))
    # Spawned, because an OpenGL context does not survive a fork.
    with ProcessPoolExecutor(min(workers, len(seeds)), get_context("spawn"), _start_worker, (recipe, path)) as pool:
        try:
            running: set[Future[Outcome]] = set()
            while waiting or running:
                while waiting and len(running) < 2 * workers:
                    running.add(pool.submit(_attempt, waiting.pop()))
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class _World:
    """What a worker keeps between episodes: compiling and opening graphics take longer than an episode."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.env = TaskEnvironment(
            make_task(recipe.task, recipe.control_hz),
            cameras=recipe.cameras,
            image_size=recipe.image_size,
            control_hz=recipe.control_hz,
            frame_hz=recipe.frame_hz,
            time_limit_s=recipe.time_limit_s,
        )
        self.env.task.configure(**recipe.options)
        self.expert: Expert = make_expert(recipe.task)

    def attempt(self, store: EpisodeStore, seed: int) -> Outcome:
        """Runs one seed and stores it when it is to be kept."""
        recipe = self.recipe
        recording = record_episode(self.env, self.expert, seed, noise_rad=recipe.noise_rad, options=recipe.options)
        if recording.success or recipe.keep_failures:
            task = self.env.task
            extra = {"recipe": asdict(recipe), "stages": list(task.stages)}
            attributes = EpisodeAttributes(self.env.contract, task.name, seed, recording.success, "expert", task.instruction, extra)
            store.write(recording.arrays, attributes)
        return Outcome(seed, recording.success, recording.stage, len(recording.arrays["time"]), recording.trouble)


_worker: dict[str, tuple[_World, EpisodeStore]] = {}


def _start_worker(recipe: Recipe, path: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent decides what it means.
    _worker["here"] = (_World(recipe), EpisodeStore.open(path))


def _attempt(seed: int) -> Outcome:
    world, store = _worker["here"]
    return world.attempt(store, seed)
