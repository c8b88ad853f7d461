"""Data of a training run: episodes of stores, the directory of the run, and batches of windows.

Episodes are for training or held out. The store of a run may have been edited since it began, so
its directory names the episodes with which it began. The directory has the checkpoints as well.
Batches of windows are tensors.
"""

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import POSITIVE
from stringline.datasets.contract.contract import Contract
from stringline.datasets.extensions.trust import Trust
from stringline.datasets.loading.corrections import correction_weights
from stringline.datasets.loading.mixture import MixedWindows, Source, mixed_contract
from stringline.datasets.loading.sampler import (
    BatchSampler,
    Prefetcher,
    equal_shares,
    named_counts,
    oversampling_weights,
    split_names,
)
from stringline.datasets.loading.statistics import Statistics
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.transactions import trash_of
from stringline.encoders.training.checkpoint import ASKED_FOR
from stringline.encoders.training.settings import (
    END,
    completed_steps,
    latest_state,
    stored_fingerprint,
)
from stringline.encoders.training.trainer import Trainer
from stringline.policies.action_spaces.space import ContractActions
from stringline.policies.algorithms.chunk_policy import ChunkPolicy, fit_posture, fit_remainder
from stringline.policies.algorithms.learned_policy import LearnedPolicy
from stringline.policies.algorithms.posture import ChunkRemainder
from stringline.policies.checkpoints.load import add_action_statistics, save_policy
from stringline.policies.probes.probes import linear_motion
from stringline.sim.robots.arm_appearance import PRIMITIVES, ROBOT_MODEL
from stringline.sim.training.training_settings import TrainingSettings

logger = logging.getLogger(__name__)


def check_kept(store: EpisodeStore, begun: Sequence[str]) -> None:
    """Checks that the episodes with which a run began can be read still."""
    removed = _without(begun, store.names())
    if lost := [name for name in removed if not store.has_removed(name)]:
        raise ValueError(
            f"{store.path} has changed since the run began: neither the store nor "
            f"{trash_of(store.path)} has {_named(lost)}. Move the episodes back, or choose another "
            "output."
        )


def describe_change(before: Sequence[str], now: Sequence[str]) -> str:
    """Describes which episodes were removed and added; empty if none were."""
    parts = {"Removed": _without(before, now), "Added": _without(now, before)}
    return " ".join(f"{word}: {_named(names)}." for word, names in parts.items() if names)


def _without(names: Sequence[str], others: Iterable[str]) -> list[str]:
    excluded = set(others)
    return [name for name in names if name not in excluded]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}"


def begun_episodes(directory: Path, stores: object) -> list[list[str]] | None:
    """Returns the names of the episodes of each store with which an unfinished run began.

    `stores` are plain data, `TrainingData.sources`. None means that the directory holds no
    unfinished run of these stores; `check_run_directory` explains a damaged file.
    """
    try:
        run = stored_fingerprint(directory)
        if run is None or _is_finished(directory, run):
            return None
        parts = (run["training"], run["held_out"])
        if run["store"] != stores:
            return None
        pairs = zip(*parts, strict=True) if isinstance(stores, list) else [parts]
        return [[*training, *held_out] for training, held_out in pairs]
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        return None


def _is_finished(directory: Path, run: Mapping[str, Any]) -> bool:
    """Returns whether a run has the checkpoint of its last step, also of a raised number."""
    state = latest_state(directory)
    done = None if state is None else completed_steps(state)
    return (directory / END).exists() and (done is None or done >= run["trainer"]["steps"])


def changed_episodes(stored: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Returns in words how the episodes have changed since the run began, given fingerprints."""
    change = describe_change(_names(stored), _names(now))
    return change and f" The store has changed since. {change}"


def _names(fingerprint: Mapping[str, Any]) -> list[str]:
    """Returns the names of all episodes of a run, those of a mixture are in one list per store."""
    parts = [part for key in ("training", "held_out") for part in fingerprint.get(key) or ()]
    return [name for part in parts for name in ([part] if isinstance(part, str) else part)]


@dataclass(frozen=True, eq=False)
class RunCheckpoints:
    """Writes the checkpoints of a run, each replaced as a whole.

    `model` is the configuration of the policy, `record` a description of the training as plain
    data, and `steps` the number of steps of the whole run.
    """

    directory: Path
    policy: LearnedPolicy
    model: Mapping[str, Any]
    record: Mapping[str, Any]
    steps: int

    def keep(self, model: nn.Module, name: str, steps_done: int) -> None:
        """Writes `directory/name`; `model` is the policy."""
        record = {**self.record, "steps": steps_done}
        save_policy(self.directory / name, self.policy, self.model, record)

    def end(self, model: nn.Module) -> None:
        """Writes `directory/checkpoint`."""
        self.keep(model, END, self.steps)


FIELDS = ("path", "weight", "cameras")
MAPPINGS = "allowed: a list of mappings, such as [{path: runs/a, weight: 2}, {path: runs/b}]."


class TrainingData:
    """Stores with training and held-out episodes.

    The stores are pinned: edits do not reach the episodes as long as this object exists.

    Args:
        data: One store, or the sources of a mixture.
        held_out: Number of held-out episodes of each store, see `split_names`.
        run: Directory of the run. An unfinished one keeps the episodes with which it began.

    Attributes:
        training: Names of the training episodes of each store.
        held_out: Names of the held-out episodes of each store.
        changes: A sentence for each store that was edited since the run began; its old episodes
            are used.
    """

    def __init__(
        self,
        data: EpisodeStore | Sequence[Source],
        held_out: int,
        run: Path | None = None,
    ) -> None:
        self._mixed = not isinstance(data, EpisodeStore)
        self._sources = (Source(data.path),) if isinstance(data, EpisodeStore) else tuple(data)
        self._stores = (
            [data]
            if isinstance(data, EpisodeStore)
            else [EpisodeStore.open(source.path) for source in data]
        )
        if not self._stores:
            raise ValueError("A mixture needs at least one store.")
        self.changes: list[str] = []
        self.training: list[list[str]] = []
        self.held_out: list[list[str]] = []
        self._pins = [store.pin() for store in self._stores]  # Before their episodes are listed.
        begun = None if run is None else begun_episodes(run, self.sources)
        for number, store in enumerate(self._stores):
            names = store.names()
            if begun is not None:
                if change := describe_change(begun[number], names):
                    self.changes.append(f"{store.path} has changed since the run began. {change}")
                check_kept(store, begun[number])
                names = begun[number]
            if not names:
                raise ValueError(
                    f"{store.path} has no episodes. Record some with stringline-collect."
                )
            training, validation = split_names(store, names, held_out)
            self.training.append(training)
            self.held_out.append(validation)

    @property
    def can_probe(self) -> bool:
        """Whether every store has enough held-out episodes for the aim probe."""
        return all(self.held_out) and sum(map(len, self.held_out)) >= 3

    @property
    def contract(self) -> Contract:
        """Contract of the examples."""
        contracts = [episode.attributes.contract for episode in self.first_episodes]
        return mixed_contract(self._sources, contracts) if self._mixed else contracts[0]

    @property
    def first_episodes(self) -> list[StoredEpisode]:
        """The first training episode of each store."""
        return [
            store.episode(names[0], removed=True)
            for store, names in zip(self._stores, self.training, strict=True)
        ]

    @property
    def slots(self) -> list[Mapping[str, str]]:
        """The camera in each slot of each store; without a mixture, a slot is its camera."""
        contracts = [episode.attributes.contract for episode in self.first_episodes]
        return [
            source.slots(contract)
            for source, contract in zip(self._sources, contracts, strict=True)
        ]

    def statistics(self, model: Mapping[str, Any], trust: Trust = ASKED_FOR) -> Statistics:
        """Returns the statistics of the training episodes; every step counts once, for any weights.

        The instructions of held-out episodes are included, because policies are probed with them.
        Actions are measured as the policy of the configuration `model` generates them, which may
        name classes of the packages in `trust`.
        """
        episodes = self._episodes(self.training)
        statistics = Statistics.of_episodes(episodes, others=self._episodes(self.held_out))
        slots = self._slots_of_episodes()
        return add_action_statistics(statistics, model, self.contract, episodes, slots, trust)

    def fit(self, policy: ChunkPolicy) -> None:
        """Fits the linear part of the chunks of a policy, if it has one, to the training episodes.

        As for the statistics, every window counts once, for any weights of the stores.
        """
        fit_posture(policy, self._episodes(self.training), self._slots_of_episodes())

    def linear_motion(self, policy: ChunkPolicy) -> ChunkRemainder | None:
        """Returns a linear map of joints and velocities to actions, fitted to the training windows.

        None if the data have no joints.
        """
        linear = linear_motion(policy)
        if linear is not None:
            space = ContractActions(contract=policy.contract)
            slots = self._slots_of_episodes()
            fit_remainder(linear, policy, space, self._episodes(self.training), slots)
        return linear

    def _slots_of_episodes(self) -> list[Mapping[str, str]]:
        """Returns the camera in each slot of each training episode."""
        return [each for each, names in zip(self.slots, self.training, strict=True) for _ in names]

    def windows_for(
        self,
        policy: LearnedPolicy,
        names: Sequence[Sequence[str]],
        *,
        segments: bool = False,
        labels: bool = False,
        pad_last_action_s: float = 0.0,
    ) -> Windows | MixedWindows:
        """Returns windows of the named episodes of each store with the inputs of a policy.

        With `segments` they have the segments of images as well, as far as these are stored, and
        with `labels` the targets of experts. The last action of an episode is repeated for
        `pad_last_action_s` seconds.

        Raises:
            ValueError: The data lack an input of the policy, such as a camera.
        """
        if reasons := policy.contract.incompatibilities(self.contract):
            stores = ", ".join(str(source.path) for source in self._sources)
            raise ValueError(f"The data of {stores} do not fit the policy. {' '.join(reasons)}")
        settings = replace(
            policy.window_settings(),
            segments=segments,
            labels=labels,
            pad_last_action_steps=round(pad_last_action_s * policy.contract.control_hz),
        )
        if not self._mixed:
            return Windows(self._stores[0], settings, names=names[0])
        return MixedWindows(self._sources, self._stores, settings, names=names)

    def check_chunk(self, policy: ChunkPolicy, pad_last_action_s: float = 0.0) -> None:
        """Checks that a chunk fits into the longest training episode, see `windows_for`.

        Raises:
            ValueError: All further actions of a chunk would be padding, which no loss counts.
        """
        longest = max(episode.steps for episode in self._episodes(self.training))
        most = longest + round(pad_last_action_s * policy.contract.control_hz)
        if policy.chunk > most:
            raise ValueError(
                f"policy.chunk is {policy.chunk}; allowed: up to {most}, the actions of the "
                "longest episode. Further ones would never be trained."
            )

    def _episodes(self, names: Sequence[Sequence[str]]) -> list[StoredEpisode]:
        return [
            store.episode(name, removed=True)
            for store, chosen in zip(self._stores, names, strict=True)
            for name in chosen
        ]

    def held_out_episodes(self) -> list[StoredEpisode]:
        """Returns the held-out episodes of all stores."""
        return self._episodes(self.held_out)

    def tasks(self) -> dict[str, str]:
        """Returns the tasks of the training episodes with the instruction of their first one."""
        instructions: dict[str, str] = {}
        for episode in self._episodes(self.training):
            instructions.setdefault(episode.attributes.task, episode.attributes.instruction)
        return instructions

    def instructions(self) -> list[str]:
        """Returns the different instructions of the training episodes."""
        texts = {each.attributes.instruction for each in self._episodes(self.training)}
        return sorted(texts - {""})

    def robot_models(self) -> list[str]:
        """Returns the meshes of the arms in simulated training episodes."""
        return sorted({str(world.get(ROBOT_MODEL, PRIMITIVES)) for world in self.worlds})

    @cached_property
    def worlds(self) -> list[Mapping[str, Any]]:
        """The different recipes of the simulated training episodes, see `Recipe`."""
        recipes: list[Mapping[str, Any]] = []
        for episode in self._episodes(self.training):
            recipe = episode.attributes.extra.get("recipe")
            if isinstance(recipe, Mapping) and recipe not in recipes:
                recipes.append(recipe)
        return recipes

    def digests(self) -> list[dict[str, Any]]:
        """Returns number of episodes and digest of each store, see `EpisodeStore.digest`."""
        used = [[*one, *other] for one, other in zip(self.training, self.held_out, strict=True)]
        return [
            {"episodes": len(names), "digest": store.digest(names)}
            for store, names in zip(self._stores, used, strict=True)
        ]

    def held_out_digests(self) -> list[str]:
        """Returns the digest of each held-out episode, see `EpisodeStore.digest`."""
        return [
            store.digest([name])
            for store, names in zip(self._stores, self.held_out, strict=True)
            for name in names
        ]

    def names_of(self, parts: Sequence[Sequence[str]]) -> Sequence[str] | Sequence[Sequence[str]]:
        """Returns the names of episodes of each store; without a mixture, those of its store."""
        return parts if self._mixed else parts[0]

    @property
    def paths(self) -> list[Path]:
        """The folder of each store."""
        return [source.path for source in self._sources]

    @property
    def sources(self) -> str | list[dict[str, Any]]:
        """The store, or the sources of a mixture, as plain data."""
        if not self._mixed:
            return str(self._sources[0].path)
        return [
            {"path": str(source.path), "weight": source.weight, "cameras": dict(source.cameras)}
            for source in self._sources
        ]


def sources_of(stores: object) -> list[Source]:
    """Reads the sources of a mixture: mappings with `path` and optional `weight` and `cameras`.

    Raises:
        ValueError: `stores` is not a list of mappings, or a key or value is wrong.
    """
    if not isinstance(stores, Sequence) or isinstance(stores, str):
        raise ValueError(f"dataset.stores is {stores!r}; {MAPPINGS}")
    return [_source(plain) for plain in stores]


def _source(plain: object) -> Source:
    if not isinstance(plain, Mapping):
        raise ValueError(f"dataset.stores has the entry {plain!r}; {MAPPINGS}")
    if "path" not in plain or not set(plain) <= set(FIELDS):
        raise ValueError(
            f"dataset.stores has an entry with {sorted(map(str, plain))}; required: path; "
            f"allowed: weight, cameras."
        )
    path = str(plain["path"])
    weight = plain.get("weight", 1.0)
    cameras = plain.get("cameras", {})
    POSITIVE.check(**{f"The weight of {path}": weight})
    if not isinstance(cameras, Mapping):
        raise ValueError(
            f"The cameras of {path} are {cameras!r}; allowed: the camera of each slot, such as "
            f"{{overhead: top}}."
        )
    return Source(
        Path(path), float(weight), {str(slot): str(camera) for slot, camera in cameras.items()}
    )


Indices = NDArray[np.int64]


class WindowBatches:
    """Batches of windows as tensors; a continued run gets the same batch at each step.

    Windows with keyposes are drawn equally often for each keypose: most frames of a recording
    belong to its long ways. Windows in the first `oversample_first_s` seconds of an episode are
    `oversample_factor` times as probable. With `equal_tasks`, windows of each task (see
    `task_names`) are drawn equally often; the weights of stores then apply among the windows of one
    task. `corrections` and `corrections_lead_s` then scale the shares of corrections and
    demonstrations, see `correction_weights`. `num_workers` threads read ahead, into page-locked
    memory with `pin_memory`.
    """

    def __init__(
        self,
        windows: Windows | MixedWindows,
        batch_size: int,
        *,
        seed: int,
        oversample_first_s: float = 0.0,
        oversample_factor: float = 1.0,
        equal_tasks: bool = False,
        corrections: float | None = None,
        corrections_lead_s: float = 0.0,
        num_workers: int = 1,
        pin_memory: bool = False,
    ) -> None:
        self._windows = windows
        self._num_workers = num_workers
        self._pin_memory = pin_memory
        weights = oversampling_weights(
            windows.step / windows.contract.control_hz, oversample_first_s, oversample_factor
        )
        weights = windows.balanced(weights) if isinstance(windows, MixedWindows) else weights
        if windows.group is not None:
            weights = equal_shares(weights, windows.group)
        if equal_tasks:
            tasks = np.asarray(windows.tasks)
            weights = equal_shares(weights, tasks[windows.episode])
            named, counts = np.unique(tasks, return_counts=True)
            logger.info("equal_tasks: %s.", named_counts(dict(zip(named, counts, strict=True))))
        until_s = windows.until_takeover_s
        weights = correction_weights(weights, until_s, corrections, corrections_lead_s)
        self._sampler = BatchSampler(len(windows), batch_size, seed, weights=weights)

    def stream(
        self, first_step: int, last_step: int, process: int = 0, processes: int = 1
    ) -> Generator[Mapping[str, Tensor], None, None]:
        """Yields the batches of `first_step` to `last_step - 1`, which threads read ahead."""

        def read(step: int) -> dict[str, Tensor]:
            batch = tensors(self._windows, self._indices(step, process, processes))
            if not self._pin_memory:
                return batch
            return {key: value.pin_memory() for key, value in batch.items()}

        with Prefetcher(read, first_step, last_step, threads=self._num_workers) as batches:
            yield from batches

    def describe(self, step: int, process: int = 0, processes: int = 1) -> list[str]:
        """Returns the names of the windows of a batch."""
        windows = self._windows
        return [
            (
                f"window {index} (step {int(windows.step[index])} of "
                f"{windows.names[int(windows.episode[index])]})"
            )
            for index in self._indices(step, process, processes).tolist()
        ]

    def _indices(self, step: int, process: int, processes: int) -> Indices:
        return self._sampler.batch(step * processes + process)


class HeldOutBatches:
    """Batches of up to `count` evenly spaced held-out windows, the same in each call.

    Windows that a policy leads are left out.
    """

    def __init__(self, windows: Windows | MixedWindows, batch_size: int, count: int) -> None:
        self._windows = windows
        until_s = windows.until_takeover_s
        led = np.flatnonzero(np.isnan(until_s) | (until_s == 0))
        among = led if len(led) else np.arange(len(windows))
        spaced = np.linspace(0, len(among) - 1, min(count, len(among))).round().astype(np.int64)
        self._chosen = among[np.unique(spaced)]
        self._batch_size = batch_size

    def __call__(self) -> Iterator[Mapping[str, Tensor]]:
        """Yields the batches."""
        for first in range(0, len(self._chosen), self._batch_size):
            yield tensors(self._windows, self._chosen[first : first + self._batch_size])


def tensors(windows: Windows | MixedWindows, indices: Indices) -> dict[str, Tensor]:
    """Reads windows as tensors."""
    return {key: torch.from_numpy(array) for key, array in windows.batch(indices).items()}


def training_batches(
    windows: Windows | MixedWindows, trainer: Trainer, settings: TrainingSettings
) -> WindowBatches:
    """Returns the batches of a training."""
    return WindowBatches(
        windows,
        trainer.batch_size,
        seed=trainer.seed,
        oversample_first_s=settings.oversample_first_s,
        oversample_factor=settings.oversample_factor,
        equal_tasks=settings.equal_tasks,
        corrections=settings.corrections,
        corrections_lead_s=settings.corrections_lead_s,
        num_workers=trainer.num_workers,
        pin_memory=trainer.pin_memory,
    )
