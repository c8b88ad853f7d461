"""What has been collected into an episode store, and by which recipe: so that collection can stop and go on."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from stringline.datasets.disk import write_file
from stringline.datasets.store import EpisodeStore
from stringline.sim.environment import ALL_CAMERAS

COLLECTION_FILE = "collection.json"


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
    """The attempts that went into a store, in a file beside its episodes.

    Args:
        store: The store.
        recipe: Of all episodes of that task in it.
        first_seed: Attempts below it are kept in mind but not counted.

    Raises:
        ValueError: Episodes of that task were collected by another recipe.
    """

    def __init__(self, store: EpisodeStore, recipe: Recipe, first_seed: int = 0) -> None:
        self._path, self._recipe, self._first_seed = store.path / COLLECTION_FILE, recipe, first_seed
        self._all: dict[str, Any] = json.loads(self._path.read_text()) if self._path.exists() else {}
        entry = self._all.get(recipe.task, {"recipe": _plain(recipe), "outcomes": []})
        self._check_recipe(entry["recipe"])
        self._outcomes = {row["seed"]: Outcome(**row) for row in entry["outcomes"]}
        self._find_unwritten(store)

    @property
    def outcomes(self) -> list[Outcome]:
        """The attempts from the first seed on, by seed."""
        return [self._outcomes[seed] for seed in sorted(self._outcomes) if seed >= self._first_seed]

    @property
    def tried(self) -> int:
        """How many attempts there were."""
        return len(self.outcomes)

    @property
    def successes(self) -> int:
        """How many of them succeeded."""
        return sum(outcome.success for outcome in self.outcomes)

    @property
    def kept(self) -> int:
        """How many of them are in the store."""
        return self.tried if self._recipe.keep_failures else self.successes

    def add(self, outcome: Outcome) -> None:
        """Writes down an attempt."""
        self._outcomes[outcome.seed] = outcome
        rows = [asdict(self._outcomes[seed]) for seed in sorted(self._outcomes)]
        self._all[self._recipe.task] = {"recipe": _plain(self._recipe), "outcomes": rows}
        write_file(self._path, json.dumps(self._all, indent=1).encode())

    def next_seeds(self, episodes: int) -> list[int]:
        """Returns the seeds to try next: as many as episodes are missing, were all of them to succeed.

        So the attempts are those up to the seed at which the number is reached, in whatever order they are made and however
        often they are interrupted: after an interruption the holes come first.
        """
        missing = max(0, episodes - self.kept)
        end = self._first_seed + self.tried + missing
        return [seed for seed in range(self._first_seed, end) if seed not in self._outcomes][:missing]

    def _check_recipe(self, known: dict[str, Any]) -> None:
        changed = [
            f"{key}={known.get(key)!r} (now {value!r})"
            for key, value in _plain(self._recipe).items()
            if known.get(key) != value
        ]
        if changed:
            raise ValueError(
                f"{self._path.parent} was collected with {', '.join(changed)}. Choose another folder, or the same settings."
            )

    def _find_unwritten(self, store: EpisodeStore) -> None:
        """A crash between storing an episode and writing it down leaves an episode without an outcome."""
        known = {seed for seed in store.seeds(self._recipe.task) if seed not in self._outcomes}
        for episode in store.episodes() if known else ():
            attributes = episode.attributes
            if attributes.task == self._recipe.task and attributes.seed in known:
                self._check_recipe(dict(attributes.extra.get("recipe", {})))
                stage = int(episode.arrays["stage"][-1])
                self._outcomes[attributes.seed] = Outcome(attributes.seed, bool(attributes.success), stage, episode.steps)


def _plain(recipe: Recipe) -> dict[str, Any]:
    """Returns the recipe as it comes back from JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(recipe)))
    return plain
