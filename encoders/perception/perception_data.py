"""The images of a run: their split, what a contract takes from them, and training batches."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Collection, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stringline.datasets.cameras.resampling import Fit
from stringline.datasets.contract.argument_checks import Range
from stringline.datasets.contract.contract import Array
from stringline.datasets.images.image_store import ImageStore, Split, SplitBy, split
from stringline.datasets.images.labelled_image import LabelledClip
from stringline.datasets.loading.sampler import BatchSampler, Prefetcher
from stringline.encoders.perception.image_contract import CAMERA, Frame, ImageContract
from stringline.encoders.perception.perception_network import (
    LabelledImages,
    PerceptionNetwork,
    stack,
)
from stringline.encoders.perception.text_tower import BytePairs
from stringline.encoders.training.interfaces import Prepare
from stringline.encoders.training.trainer import augment_batches, build_augmentation

logger = logging.getLogger(__name__)

_SHARE = Range(above=0, most=1)


@dataclass(frozen=True, eq=False)
class PerceptionData:
    """Labelled images with their split.

    Attributes:
        images: The store.
        split: Numbers of the images for training and for testing.
        by: What the split keeps apart, such as `room`.
        needs: See `PerceptionNetwork.needs`.
        train_share: Share of the training images that batches are drawn from; names, classes and
            texts are those of all.
        seed: Selects them. A larger share has the images of a smaller one.
    """

    images: ImageStore
    split: Split
    by: str
    needs: Collection[str] = ()
    train_share: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _SHARE.check(train_share=self.train_share)

    @classmethod
    def of(
        cls,
        images: ImageStore,
        by: SplitBy,
        held_out: float | Sequence[str | int],
        seed: int,
        needs: Collection[str],
        train_share: float = 1.0,
    ) -> Self:
        """Splits a store; images without what a network needs are left out and counted.

        `seed` selects both the test part and the share of the training images.

        Raises:
            ValueError: The store cannot be split so, or a side has no such image.
        """
        found = split(images, by, held_out, seed)
        known = _usable(images, needs)
        train = tuple(index for index in found.train if known[index])
        labels = images.labels()
        learned = {labels[index] for index in train}
        test = tuple(
            index
            for index in found.test
            if known[index] and ("labels" not in needs or labels[index] in learned)
        )
        for side, before, after in (("training", found.train, train), ("test", found.test, test)):
            known_name = "a label" if side == "training" else "a label known in training"
            what = known_name if "labels" in needs else "captions"
            if not after:
                raise ValueError(
                    f"None of the {len(before)} {side} images has {what}; allowed: at least one. "
                    f"Choose another split or held_out."
                )
            if left := len(before) - len(after):
                logger.warning(
                    "%d of %d %s images are left out, without %s.", left, len(before), side, what
                )
        chosen = replace(found, train=train, test=test)
        return cls(images, chosen, by, frozenset(needs), train_share, seed)

    @cached_property
    def train(self) -> tuple[int, ...]:
        """Numbers of the images of the batches: at least one, the classes alike."""
        every = self.split.train
        if self.train_share == 1:
            return every
        labels = self.images.labels() if "labels" in self.needs else [None] * len(self.images)
        order = np.random.default_rng(self.seed).permutation(every).tolist()
        places = _places_in_class([labels[index] for index in order])
        first = np.argsort(places, kind="stable")[: max(1, round(self.train_share * len(order)))]
        return tuple(sorted(order[place] for place in first))

    def groups(self, indices: Sequence[int]) -> list[Hashable]:
        """Returns the room of each image, or the image itself if it has no room."""
        rooms = self.images.rooms()
        return [rooms[index] or index for index in indices]

    def contract(self, height: int, width: int, *, fit: Fit, frame: Frame) -> ImageContract:
        """Returns the contract of the images in a size, with names and texts of the training."""
        first = self.images[self.split.train[0]]
        return ImageContract(
            height=height,
            width=width,
            fit=fit,
            frame=frame,
            depth=first.depth is not None,
            geometry=first.intrinsics is not None,
            frames=len(first.rgb) if isinstance(first, LabelledClip) else 1,
            names=self._names(),
            tokeniser=BytePairs.trained(self._texts()).to_text() if "texts" in self.needs else "",
        )

    def fingerprint(self) -> dict[str, Any]:
        """Returns what decides the training batches, as plain data."""
        digest = hashlib.sha256(json.dumps(list(map(int, self.train))).encode())
        return {"images": len(self.images), "training_images": digest.hexdigest()[:16]}

    def described(self) -> dict[str, Any]:
        """Returns the split as plain data."""
        return {
            "by": self.by,
            "held_out": list(self.split.held_out),
            "skipped": self.split.skipped,
            "train_share": self.train_share,
        }

    def _names(self) -> tuple[str, ...]:
        """Returns the classes, or the names of all objects of the training images."""
        if "labels" in self.needs:
            labels = self.images.labels()
            return tuple(sorted({label for i in self.split.train if (label := labels[i])}))
        if "names" in self.needs:
            names = self.images.names()
            return tuple(sorted(set().union(*(names[index] for index in self.split.train))))
        return ()

    def _texts(self) -> list[str]:
        """Returns the captions of the training images, and the names of their objects."""
        chosen = (self.images.image(index) for index in self.split.train)
        return [text for one in chosen for text in (*one.captions, *(o.name for o in one.objects))]


def drawn_places(count: int, most: int) -> list[int]:
    """Returns up to `most` of the places from 0 to below `count`, ascending, the same each time.

    They are drawn, since labels may alternate, as those of clips and their reversals do.
    """
    return sorted(np.random.default_rng(0).permutation(count)[:most].tolist())


def _places_in_class(labels: Sequence[str | None]) -> Array:
    """Returns the place of each image among those of its class, from 0 to below 1."""
    counts = Counter(labels)
    seen: Counter[str | None] = Counter()
    places = []
    for label in labels:
        places.append(seen[label] / counts[label])
        seen[label] += 1
    return np.array(places)


def _usable(images: ImageStore, needs: Collection[str]) -> list[bool]:
    """Returns which images have what a network needs; one without objects is an example, too."""
    if "labels" in needs:
        return [label is not None for label in images.labels()]
    if "captions" in needs:
        return [bool(images.image(index).captions) for index in range(len(images))]
    return [True] * len(images)


class ImageBatches:
    """Batches of chosen images of a store; a continued run gets the same batch at each step.

    `num_workers` threads read ahead, into page-locked memory with `pin_memory`.
    """

    def __init__(
        self,
        images: LabelledImages,
        indices: Sequence[int],
        network: PerceptionNetwork,
        batch_size: int,
        *,
        seed: int,
        num_workers: int = 1,
        pin_memory: bool = False,
    ) -> None:
        self._images = images
        self._indices = np.asarray(indices, np.int64)
        self._network = network
        self._seed = seed
        self._num_workers = num_workers
        self._pin_memory = pin_memory
        self._sampler = BatchSampler(len(self._indices), batch_size, seed)

    def stream(
        self, first_step: int, last_step: int, process: int = 0, processes: int = 1
    ) -> Generator[Mapping[str, Tensor], None, None]:
        """Yields the batches of `first_step` to `last_step - 1`, which threads read ahead."""

        def read(step: int) -> dict[str, Tensor]:
            batch = self.batch(step * processes + process)
            if not self._pin_memory:
                return batch
            return {key: value.pin_memory() for key, value in batch.items()}

        with Prefetcher(read, first_step, last_step, threads=self._num_workers) as batches:
            yield from batches

    def batch(self, number: int) -> dict[str, Tensor]:
        """Returns a batch; its draws depend on seed and number only."""
        generator = np.random.default_rng([self._seed, number])
        chosen = self._chosen(number)
        return stack(
            [self._network.example(self._images[int(index)], generator) for index in chosen]
        )

    def describe(self, step: int, process: int = 0, processes: int = 1) -> list[str]:
        """Returns the names of the images of a batch."""
        return [f"image {index}" for index in self._chosen(step * processes + process).tolist()]

    def _chosen(self, number: int) -> NDArray[np.int64]:
        return self._indices[self._sampler.batch(number)]


def image_augmentation(
    config: Mapping[str, Any] | None, network: PerceptionNetwork
) -> Prepare | None:
    """Returns the callback that augments training batches; None without transforms.

    All frames of a clip change alike, so that motions stay; noise is the same in all of them.

    Args:
        config: Configuration of an `Augmentation`; if None, no augmentation.
        network: The network that is trained.

    Raises:
        ValueError: A transform needs segments, which training batches lack; or pixels move, and
            boxes or captions would no longer hold.
    """
    augmentation = build_augmentation(config)
    if augmentation is None:
        return None
    if augmentation.reads_segments:
        raise ValueError(
            "The augmentation needs segments, which networks of perception do not read. Allowed: "
            "an augmentation without TextureOverlay, such as augmentation=classify."
        )
    if augmentation.moves_pixels and "labels" not in network.needs:
        raise ValueError(
            f"The augmentation crops images, and the boxes or captions that "
            f"{type(network).__name__} learns from need not hold in a crop. Allowed: an "
            "augmentation without CropAndResize, such as augmentation=light."
        )
    images = augment_batches(augmentation, [network.contract.camera])
    return images if network.contract.frames == 1 else _of_clips(images)


def _of_clips(images: Prepare) -> Prepare:
    """Returns the augmentation of clips: all frames of a clip get the same random numbers."""

    def prepare(batch: Mapping[str, Tensor], generator: torch.Generator) -> Mapping[str, Tensor]:
        seen = {key: value for key, value in batch.items() if key.endswith(f"/{CAMERA}")}
        frames = next(iter(seen.values())).shape[1]
        state = generator.get_state()
        changed: list[Mapping[str, Tensor]] = []
        for frame in range(frames):
            generator.set_state(state)
            changed.append(images({key: value[:, frame] for key, value in seen.items()}, generator))
        together = {key: torch.stack([each[key] for each in changed], dim=1) for key in seen}
        return {**batch, **together}

    return prepare
