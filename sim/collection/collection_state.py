"""What has been collected into an episode store, and by which recipe: so that collection can stop and go on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from stringline.datasets.editing.edit import delete
from stringline.datasets.files.atomic import write_file
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore, episode_name
from stringline.sim.robots.robot_model import PRIMITIVES, RobotModel

COLLECTION_FILE = "collection.json"
SOURCE = "expert"


@dataclass(frozen=True)
class Recipe:
    """All that the content of an episode depends on, besides its seed.

    Attributes:
        task: Name of the task, and of its expert.
        varied: Whether the expert is the one that varies and recovers, where the task has a plain
            one too.
        cameras: Recorded cameras; None: all of the world.
        image_size: Rows and columns of the images.
        control_hz: Actions per second.
        frame_hz: Images per second.
        time_limit_s: When an episode is given up.
        noise_rad: Largest standard deviation of the disturbance of executed joint targets.
        keep_failures: Whether failed episodes are stored too.
        options: Of the task, such as `table_height`.
        robot_model: What the arms are drawn with.
    """

    task: str = "hand_over_banana"
    varied: bool = True
    cameras: tuple[str, ...] | None = None
    image_size: int = 128
    control_hz: float = 50.0
    frame_hz: float = 12.5
    time_limit_s: float = 12.0
    noise_rad: float = 0.0
    keep_failures: bool = False
    options: dict[str, float] = field(default_factory=dict)
    robot_model: RobotModel = PRIMITIVES


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

    @property
    def lost(self) -> bool:
        """Whether every process that tried it died, so that there is nothing of it."""
        return self.steps == 0


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
        self.store = store
        self.recipe = recipe
        self._path = store.path / COLLECTION_FILE
        self._first_seed = first_seed
        self._all: dict[str, Any] = (
            json.loads(self._path.read_text()) if self._path.exists() else {}
        )
        entry = self._all.get(recipe.task, {"recipe": _plain(recipe), "outcomes": []})
        self._check_recipe(entry["recipe"])
        self._outcomes = {row["seed"]: Outcome(**row) for row in entry["outcomes"]}
        self.remove_repeats()
        self._find_unwritten()

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
        return (
            sum(not outcome.lost for outcome in self.outcomes)
            if self.recipe.keep_failures
            else self.successes
        )

    def add(self, outcome: Outcome) -> Outcome:
        """Writes down an attempt and returns it."""
        self._outcomes[outcome.seed] = outcome
        rows = [asdict(self._outcomes[seed]) for seed in sorted(self._outcomes)]
        self._all[self.recipe.task] = {"recipe": _plain(self.recipe), "outcomes": rows}
        write_file(self._path, json.dumps(self._all, indent=1).encode())
        return outcome

    def next_seeds(self, episodes: int) -> list[int]:
        """Returns the seeds to try next: as many as episodes are missing, were all of them to succeed.

        So the attempts are those up to the seed at which the number is reached, in whatever order
        they are made and however often they are interrupted: after an interruption the holes come
        first.
        """
        missing = max(0, episodes - self.kept)
        end = self._first_seed + self.tried + missing
        return [seed for seed in range(self._first_seed, end) if seed not in self._outcomes][
            :missing
        ]

    def _check_recipe(self, known: dict[str, Any]) -> None:
        changed = [
            f"{key}={_full(known).get(key)!r} (now {value!r})"
            for key, value in _plain(self.recipe).items()
            if _full(known).get(key) != value
        ]
        if changed:
            raise ValueError(
                f"{self._path.parent} was collected with {', '.join(changed)}. Choose another "
                f"folder, or the same settings."
            )

    def find_stored(self, seed: int) -> Outcome | None:
        """Returns the attempt at a seed if its episode is in the store, told of or not; from then on it is known."""
        self._find_unwritten()
        return self._outcomes.get(seed)

    def _find_unwritten(self) -> None:
        """A crash between storing an episode and writing it down leaves an episode without an outcome."""
        unwritten = [
            name
            for seed, names in self._names().items()
            if seed not in self._outcomes
            for name in names
        ]
        for episode in self._episodes(unwritten):
            attributes = episode.attributes
            self._check_recipe(dict(attributes.extra.get("recipe", {})))
            stage = int(episode.arrays["stage"][-1])
            success = bool(attributes.success)
            self._outcomes[attributes.seed] = Outcome(
                attributes.seed, success, stage, episode.steps
            )

    def remove_repeats(self) -> None:
        """Moves to the trash what two processes have stored twice.

        That happens where one that was given up for dead, such as one on a machine that could not
        be reached, lives on.
        """
        for names in self._names().values():
            episodes = self._episodes(names) if len(names) > 1 else []
            ours = [
                episode
                for episode in episodes
                if _full(episode.attributes.extra.get("recipe", {})) == _plain(self.recipe)
            ]
            repeats = [episode.name for episode in ours[1:] if episode.entries == ours[0].entries]
            if repeats:
                delete(self.store, repeats)

    def _names(self) -> dict[int, list[str]]:
        """Returns the episodes in the store whose names begin like the task's, by seed."""
        found: dict[int, list[str]] = {}
        beginning = episode_name(self.recipe.task, 0).partition(".")[0]
        for name in self.store.names():
            task, seed, _ = name.rsplit(".", 2)
            if task == beginning:
                found.setdefault(int(seed), []).append(name)
        return found

    def _episodes(self, names: Sequence[str]) -> list[StoredEpisode]:
        """Opens those that an expert recorded; what people steered may lie among them and follows no recipe."""
        ours = (self.recipe.task, SOURCE)
        episodes = [self.store.episode(name) for name in names]
        return [
            episode
            for episode in episodes
            if (episode.attributes.task, episode.attributes.source) == ours
        ]


def _plain(recipe: Recipe) -> dict[str, Any]:
    """Returns the recipe as it comes back from JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(recipe)))
    return plain


def _full(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a stored recipe with what it lacks if it is from when all experts were plain, and all arms of primitives."""
    return {"varied": False, "robot_model": PRIMITIVES, **recipe}
