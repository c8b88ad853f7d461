"""The recipe and the attempts of a collection, stored beside its episodes to continue it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from stringline.datasets.editing.edit import delete
from stringline.datasets.files.atomic import write_file
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore, episode_name
from stringline.sim.collection.takeovers import Takeovers
from stringline.sim.interpreters.environment_process import Interpreter
from stringline.sim.robots.arm_appearance import PRIMITIVES, RobotModel

COLLECTION_FILE = "collection.json"
SOURCE = "expert"
CORRECTED = "policy"


@dataclass(frozen=True)
class Recipe:
    """All settings on which the content of an episode depends, besides its seed.

    Attributes:
        task: Name of the task and of its expert.
        varied: Whether the choices of the expert are drawn; False: it acts in one way at one pace.
        cameras: Recorded cameras; if None, all cameras of the world.
        image_size: Rows and columns of the images: one number for both, or two.
        control_hz: Actions per second.
        frame_hz: Images per second.
        time_limit_s: Longest episode, seconds.
        noise_rad: Largest standard deviation of the disturbance of executed joint targets.
        lost_grasps: Share of episodes in which the gripper opens once during a grasp.
        missed_grasps: Share of episodes in which an arm is displaced once near an object.
        keep_failures: Whether failed episodes are stored, too.
        options: Options of the task, such as `table_height`.
        robot_model: Meshes of the arms.
        segments: Whether the segments of images are stored.
        embodiment: Another arm than that of the workcell, see `arm_cell`.
        human_like: Whether the expert moves as a person by teleoperation, see `HumanMotion`.
        policy: What decides on the actions of a policy that the expert corrects: `checkpoint`, the
            digest, `instruction`, and those of `RecordedExecution`; if None, the expert acts alone.
        takeovers: When it takes over from the policy; None without one.
        versions: Versions of task, physics and packages, see `world_versions`.
        interpreter: Where an environment of another interpreter runs; `versions` has what its
            episodes depend on, so it is not stored.
    """

    task: str = "hand_over_banana"
    varied: bool = True
    cameras: tuple[str, ...] | None = None
    image_size: int | tuple[int, int] = 128
    control_hz: float = 50.0
    frame_hz: float = 12.5
    time_limit_s: float = 12.0
    noise_rad: float = 0.0
    lost_grasps: float = 0.0
    keep_failures: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    robot_model: RobotModel = PRIMITIVES
    versions: dict[str, Any] = field(default_factory=dict)
    segments: bool = False
    missed_grasps: float = 0.0
    embodiment: str | None = None
    human_like: bool = False
    policy: dict[str, Any] | None = None
    takeovers: Takeovers | None = None
    interpreter: Interpreter | None = None

    def described(self) -> dict[str, Any]:
        """Returns all settings on which episodes depend."""
        return {name: value for name, value in asdict(self).items() if name != "interpreter"}

    @property
    def source(self) -> str:
        """The source of the actions of its episodes, see `EpisodeAttributes`."""
        return SOURCE if self.policy is None else CORRECTED

    def world(self) -> dict[str, Any]:
        """Returns the arguments of `open_world` besides the task."""
        names = (
            *("cameras", "image_size", "control_hz", "frame_hz", "time_limit_s", "robot_model"),
            *("embodiment", "interpreter"),
        )
        found = {name: getattr(self, name) for name in names} | {"segmentation": self.segments}
        if self.takeovers is not None:
            found["time_limit_s"] += self.takeovers.expert_time_s(self.time_limit_s)
        return found


@dataclass(frozen=True)
class Outcome:
    """The outcome of the attempt at one seed.

    Attributes:
        stage: The furthest stage.
        steps: Length in control periods; 0 if every worker died.
        error: Reason why the attempt ended early; empty without one.
        takeover: Sign at which the expert has taken over from a policy; empty without a takeover.
    """

    seed: int
    success: bool
    stage: int
    steps: int
    error: str = ""
    takeover: str = ""

    @property
    def lost(self) -> bool:
        """Whether every worker of the attempt died, so that there is no episode."""
        return self.steps == 0


class Collection:
    """The attempts of a collection, in a file beside the episodes of its store.

    Args:
        store: The store.
        recipe: Recipe of all episodes of the task in the store.
        first_seed: First counted seed; attempts at smaller ones are kept.

    Raises:
        ValueError: Episodes of the task were collected by another recipe.
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
        self.remove_duplicates()
        self._find_unlisted()

    @property
    def outcomes(self) -> list[Outcome]:
        """The attempts from the first seed on, in order of seeds."""
        return [self._outcomes[seed] for seed in sorted(self._outcomes) if seed >= self._first_seed]

    @property
    def tried(self) -> int:
        """Number of attempts."""
        return len(self.outcomes)

    @property
    def successes(self) -> int:
        """Number of successful attempts."""
        return sum(outcome.success for outcome in self.outcomes)

    @property
    def kept(self) -> int:
        """Number of attempts with an episode in the store."""
        return (
            sum(not outcome.lost for outcome in self.outcomes)
            if self.recipe.keep_failures
            else self.successes
        )

    def add(self, outcome: Outcome) -> Outcome:
        """Stores an outcome and returns it."""
        self._outcomes[outcome.seed] = outcome
        rows = [asdict(self._outcomes[seed]) for seed in sorted(self._outcomes)]
        self._all[self.recipe.task] = {"recipe": _plain(self.recipe), "outcomes": rows}
        write_file(self._path, json.dumps(self._all, indent=1).encode())
        return outcome

    def next_seeds(self, episodes: int) -> list[int]:
        """Returns the next seeds, one for each missing episode.

        So the attempts cover all seeds up to the one that completes the store, for any order of
        attempts; after an interruption the gaps come first.
        """
        missing = max(0, episodes - self.kept)
        end = self._first_seed + self.tried + missing
        return [seed for seed in range(self._first_seed, end) if seed not in self._outcomes][
            :missing
        ]

    def _check_recipe(self, known: dict[str, Any]) -> None:
        there = _settings(known)
        here = _settings(_plain(self.recipe))
        changed = [
            f"{key}={there.get(key)!r} (now {value!r})"
            for key, value in here.items()
            if there.get(key) != value
        ]
        if changed:
            raise ValueError(
                f"{self._path.parent} was collected with {', '.join(changed)}. Choose another "
                f"folder or the same settings."
            )

    def find_stored(self, seed: int) -> Outcome | None:
        """Returns the outcome of a seed whose episode is in the store, listed or not."""
        self._find_unlisted()
        return self._outcomes.get(seed)

    def _find_unlisted(self) -> None:
        """Adds outcomes of stored episodes that a crash left without one."""
        unlisted = [
            name
            for seed, names in self._names().items()
            if seed not in self._outcomes
            for name in names
        ]
        for episode in self._episodes(unlisted):
            attributes = episode.attributes
            self._check_recipe(dict(attributes.extra.get("recipe", {})))
            stage = int(episode.arrays["stage"][-1])
            success = bool(attributes.success)
            takeover = attributes.extra.get("takeover") or {}
            self._outcomes[attributes.seed] = Outcome(
                attributes.seed,
                success,
                stage,
                episode.steps,
                takeover=str(takeover.get("sign", "")),
            )

    def remove_duplicates(self) -> None:
        """Moves episodes that two processes have stored to the trash.

        A process on an unreachable machine may still store an episode that another one repeats.
        """
        for names in self._names().values():
            episodes = self._episodes(names) if len(names) > 1 else []
            ours = [
                episode
                for episode in episodes
                if episode.attributes.extra.get("recipe") == _plain(self.recipe)
            ]
            copies = [episode.name for episode in ours[1:] if episode.entries == ours[0].entries]
            if copies:
                delete(self.store, copies)

    def _names(self) -> dict[int, list[str]]:
        """Returns the names of the task's episodes by seed."""
        found: dict[int, list[str]] = {}
        prefix = episode_name(self.recipe.task, 0).partition(".")[0]
        for name in self.store.names():
            task, seed, _ = name.rsplit(".", 2)
            if task == prefix:
                found.setdefault(int(seed), []).append(name)
        return found

    def _episodes(self, names: Sequence[str]) -> list[StoredEpisode]:
        """Opens the episodes of the recipe's source; teleoperated ones follow no recipe."""
        ours = (self.recipe.task, self.recipe.source)
        episodes = [self.store.episode(name) for name in names]
        return [
            episode
            for episode in episodes
            if (episode.attributes.task, episode.attributes.source) == ours
        ]


def _settings(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a plain recipe, with each version as one of them."""
    settings = {name: value for name, value in plain.items() if name != "versions"}
    return {**settings, **plain.get("versions", {})}


def _plain(recipe: Recipe) -> dict[str, Any]:
    """Returns the recipe as JSON restores it."""
    plain: dict[str, Any] = json.loads(json.dumps(recipe.described()))
    return plain
