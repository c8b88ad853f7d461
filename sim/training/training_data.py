"""The data of a training run: stores or mixtures, split into training and held-out episodes, as batches of tensors."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stringline.datasets.contract.arguments import POSITIVE
from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.mixture import MixedWindows, Source, mixed_contract
from stringline.datasets.loading.prefetch import Prefetcher
from stringline.datasets.loading.sampler import BatchSampler, favour_early
from stringline.datasets.loading.statistics import Statistics
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.sim.robots.robot_model import PRIMITIVES, ROBOT_MODEL

FIELDS = ("path", "weight", "cameras")
MAPPINGS = "allowed: a list of mappings, such as [{path: runs/a, weight: 2}, {path: runs/b}]."


class TrainingData:
    """Stores, and which of their episodes serve what.

    Attributes:
        training: Names of the episodes of each store that are trained on.
        probing: Those that are held out.
    """

    def __init__(self, data: EpisodeStore | Sequence[Source], held_out: int) -> None:
        """Splits the stores.

        Args:
            data: One store, whose examples need not say which cameras they have, or the sources of
                a mixture.
            held_out: Episodes of each store that are not trained on, the last ones; at most a fifth
                of it.

        Raises:
            ValueError: There is no store, or one has no episodes.
        """
        self._mixed = not isinstance(data, EpisodeStore)
        self._sources = (Source(data.path),) if isinstance(data, EpisodeStore) else tuple(data)
        self._stores = (
            [data]
            if isinstance(data, EpisodeStore)
            else [EpisodeStore.open(source.path) for source in data]
        )
        if not self._stores:
            raise ValueError("A mixture needs at least one store.")
        self.training: list[list[str]] = []
        self.probing: list[list[str]] = []
        for store in self._stores:
            names = list(store.names())
            if not names:
                raise ValueError(
                    f"There are no episodes to train from in {store.path}. Record some with "
                    f"stringline-collect."
                )
            kept = len(names) - min(held_out, len(names) // 5)
            self.training.append(names[:kept])
            self.probing.append(names[kept:])

    @property
    def can_probe(self) -> bool:
        """Says whether enough is held out, of every store, for the localisation probe."""
        return all(self.probing) and sum(map(len, self.probing)) >= 3

    @property
    def contract(self) -> Contract:
        """What an example looks like.

        Raises:
            ValueError: The stores cannot be mixed.
        """
        contracts = [
            store.episode(names[0]).attributes.contract
            for store, names in zip(self._stores, self.training, strict=True)
        ]
        return mixed_contract(self._sources, contracts) if self._mixed else contracts[0]

    def statistics(self) -> Statistics:
        """Returns the statistics of what is trained on; every step counts once, whatever the weights.

        The instructions of what is held out are known as well, since policies are asked about it.
        """
        return Statistics.of_episodes(
            self._episodes(self.training), others=self._episodes(self.probing)
        )

    def windows(
        self,
        names: Sequence[Sequence[str]],
        chunk: int,
        cameras: Sequence[str],
        *,
        past: Sequence[int] = (),
        past_images: bool = True,
    ) -> Windows | MixedWindows:
        """Returns the windows of episodes of each store, seen through the cameras of those names; `past` as in `Windows`."""
        if not self._mixed:
            return Windows(
                self._stores[0],
                chunk=chunk,
                cameras=cameras,
                names=names[0],
                past=past,
                past_images=past_images,
            )
        return MixedWindows(
            self._sources,
            self._stores,
            chunk=chunk,
            cameras=cameras,
            names=names,
            past=past,
            past_images=past_images,
        )

    def windows_for(
        self, policy: ChunkPolicy, names: Sequence[Sequence[str]]
    ) -> Windows | MixedWindows:
        """Returns windows with all that a policy reads: its cameras, its chunk, its history.

        Args:
            policy: Who reads them.
            names: Episodes of each store.

        Raises:
            ValueError: The data lack something that the policy needs, such as a camera; says what
                there is.
        """
        if misfits := policy.contract.misfits(self.contract):
            stores = ", ".join(str(source.path) for source in self._sources)
            raise ValueError(f"The data of {stores} do not fit the policy. {' '.join(misfits)}")
        history = policy.history
        return self.windows(
            names,
            policy.chunk,
            [camera.name for camera in policy.contract.cameras],
            past=() if history is None else history.steps(policy.contract.control_hz),
            past_images=history is not None and history.images,
        )

    def _episodes(self, names: Sequence[Sequence[str]]) -> list[StoredEpisode]:
        return [
            store.episode(name)
            for store, chosen in zip(self._stores, names, strict=True)
            for name in chosen
        ]

    def robot_models(self) -> list[str]:
        """Returns what arms are drawn with in the episodes that are trained on, as far as they are of our simulation."""
        recipes = (
            episode.attributes.extra.get("recipe") for episode in self._episodes(self.training)
        )
        return sorted(
            {
                str(recipe.get(ROBOT_MODEL, PRIMITIVES))
                for recipe in recipes
                if isinstance(recipe, Mapping)
            }
        )

    def describe(self) -> dict[str, Any]:
        """Returns, as plain data, what decides which examples there are."""
        if not self._mixed:
            return {
                "store": str(self._sources[0].path),
                "training": self.training[0],
                "held_out": self.probing[0],
            }
        stores = [
            {"path": str(source.path), "weight": source.weight, "cameras": dict(source.cameras)}
            for source in self._sources
        ]
        return {"store": stores, "training": self.training, "held_out": self.probing}


def sources_of(stores: object) -> list[Source]:
    """Reads the sources of a mixture from a configuration: a mapping with `path`, and maybe `weight` and `cameras`, for each.

    Raises:
        ValueError: It is no list of mappings, or one of them lacks a path, has other entries, or
            entries of another kind.
    """
    if not isinstance(stores, Sequence) or isinstance(stores, str):
        raise ValueError(f"dataset.stores is {stores!r}; {MAPPINGS}")
    return [_source(plain) for plain in stores]


def _source(plain: object) -> Source:
    if not isinstance(plain, Mapping):
        raise ValueError(f"dataset.stores has the entry {plain!r}; {MAPPINGS}")
    if "path" not in plain or not set(plain) <= set(FIELDS):
        raise ValueError(
            f"dataset.stores has an entry with {sorted(map(str, plain))}; allowed: path, which "
            f"must be, weight, cameras."
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
    """Batches of windows as tensors; step n sees the same ones whenever a run is continued."""

    def __init__(
        self,
        windows: Windows | MixedWindows,
        batch_size: int,
        *,
        seed: int,
        early_s: float = 0.0,
        early_factor: float = 1.0,
    ) -> None:
        """Sets the order.

        Args:
            windows: The data.
            batch_size: Windows per step.
            seed: Of the order.
            early_s: How many seconds from the start of an episode count as early.
            early_factor: How much more often an early window is drawn.
        """
        self._windows = windows
        weights = favour_early(windows.step / windows.contract.control_hz, early_s, early_factor)
        weights = windows.balanced(weights) if isinstance(windows, MixedWindows) else weights
        self._sampler = BatchSampler(len(windows), batch_size, seed, weights=weights)

    def stream(
        self, first_step: int, last_step: int, process: int = 0, processes: int = 1
    ) -> Iterator[Mapping[str, Tensor]]:
        """Yields the batches of steps first_step (included) to last_step (excluded), read ahead in a thread."""

        def read(step: int) -> dict[str, Tensor]:
            return tensors(self._windows, self._indices(step, process, processes))

        with Prefetcher(read, first_step, last_step) as batches:
            yield from batches

    def describe(self, step: int, process: int = 0, processes: int = 1) -> list[str]:
        """Names the windows of a batch."""
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
    """Windows to validate with: spread evenly over those there are, the same ones whenever it is called."""

    def __init__(self, windows: Windows | MixedWindows, batch_size: int, count: int) -> None:
        """Chooses them.

        Args:
            windows: Of episodes that are not trained on.
            batch_size: Windows per batch.
            count: How many at most.
        """
        self._windows = windows
        self._chosen = np.unique(
            np.linspace(0, len(windows) - 1, min(count, len(windows))).round().astype(np.int64)
        )
        self._batch_size = batch_size

    def __call__(self) -> Iterator[Mapping[str, Tensor]]:
        """Yields the batches."""
        for first in range(0, len(self._chosen), self._batch_size):
            yield tensors(self._windows, self._chosen[first : first + self._batch_size])


def tensors(windows: Windows | MixedWindows, indices: Indices) -> dict[str, Tensor]:
    """Reads windows as tensors."""
    return {key: torch.from_numpy(array) for key, array in windows.batch(indices).items()}
