"""The interface of networks of perception, an image encoder and a head, and their checkpoints."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from stringline.datasets.contract.contract import Array
from stringline.datasets.extensions.trust import Trust
from stringline.encoders.perception.average_precision import MatchedDetections
from stringline.encoders.perception.image_contract import ImageArrays, ImageContract, Labelled
from stringline.encoders.perception.image_encoder import ImageEncoderFactory
from stringline.encoders.perception.text_tower import TextNetwork
from stringline.encoders.pretrained.initial_weights import without_files
from stringline.encoders.pretrained.transformers_models import StoredText
from stringline.encoders.training.checkpoint import (
    ASKED_FOR,
    WEIGHTS,
    bounded_by,
    build,
    load_description,
    load_weights,
    save_checkpoint,
)
from stringline.encoders.training.partial_loading import IMAGE_CONTRACT


class LabelledImages(Protocol):
    """Labelled images or clips by number, such as an `ImageStore`."""

    def __len__(self) -> int:
        """Returns their number."""
        ...

    def __getitem__(self, index: int, /) -> Labelled:
        """Returns one of them."""
        ...


@dataclass(frozen=True)
class Drawing:
    """The truth and the prediction of one image, for a page.

    Attributes:
        example: Number of the image among those that were measured.
        truth: In words.
        prediction: In words.
        comment: A sentence on what is wrong.
        true_lines: Polylines (P, 2) in pixels of the contract.
        predicted_lines: The same.
    """

    example: int
    truth: str
    prediction: str
    comment: str
    true_lines: Sequence[Array] = ()
    predicted_lines: Sequence[Array] = ()


Row = dict[str, float | str]
"""Measures by name, and what they are measures of."""

Statistic = Callable[[NDArray[np.intp]], float]
"""A measure of drawn images, of which repeated ones count again."""

Details = tuple[Mapping[str, float], Sequence[Row], Mapping[str, Statistic]]
"""Further measures, those of subsets, and the `mean_iou` of subsets by name."""


@dataclass(frozen=True)
class Measurement:
    """What was measured on images.

    Attributes:
        values: Measures by name.
        each: Values of each image by name, for paired comparisons.
        drawings: Some of the images, with their predictions.
        statistics: Those of the measures that have intervals, as functions of drawn images.
        subsets: Measures of subsets of the objects; `subset` names them.
        of_subsets: Their `mean_iou` as functions of drawn images, by the name of the subset.
        detections: Of detectors: the predictions that are matched to objects.
        details: Returns `Details`, which take long; if None, there are none.
    """

    values: Mapping[str, float]
    each: Mapping[str, Sequence[float]] = field(default_factory=dict)
    drawings: Sequence[Drawing] = ()
    statistics: Mapping[str, Statistic] = field(default_factory=dict)
    subsets: Sequence[Row] = ()
    of_subsets: Mapping[str, Statistic] = field(default_factory=dict)
    detections: MatchedDetections | None = None
    details: Callable[[], Details] | None = None

    def detailed(self) -> "Measurement":
        """Returns the measurement with its details."""
        if self.details is None:
            return self
        further, subsets, functions = self.details()
        return replace(
            self,
            values={**self.values, **further},
            subsets=subsets,
            of_subsets=functions,
            details=None,
        )


def mean_over_images(sums: ArrayLike, counts: ArrayLike | None = None) -> Statistic:
    """Returns the mean over drawn images as a statistic.

    Args:
        sums: (N,) a value of each image, or the sum over its objects.
        counts: (N,) numbers of objects; if None, one per image.
    """
    of_images = np.asarray(sums, np.float64)
    counted = np.ones(len(of_images)) if counts is None else np.asarray(counts, np.float64)

    def mean(images: NDArray[np.intp]) -> float:
        total = counted[images].sum()
        return float(of_images[images].sum() / total) if total else float("nan")

    return mean


@dataclass(frozen=True)
class Examples:
    """Chosen images of a store, read in batches.

    Attributes:
        images: The store.
        indices: The chosen images.
        contract: Size and frame of the arrays.
        batch_size: Images per batch.
        prepare: Changes each batch, as studies do; if None, as it is.
    """

    images: LabelledImages
    indices: Sequence[int]
    contract: ImageContract
    batch_size: int = 32
    prepare: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None

    def __len__(self) -> int:
        """Returns the number of images."""
        return len(self.indices)

    def __iter__(self) -> Iterator[Labelled]:
        """Yields the images."""
        return (self.images[index] for index in self.indices)

    def batches(self, device: torch.device) -> Iterator[tuple[list[Labelled], dict[str, Tensor]]]:
        """Yields the images of each batch with their tensors."""
        arrays = ImageArrays(self.contract)
        for first in range(0, len(self.indices), self.batch_size):
            chosen = [self.images[one] for one in self.indices[first : first + self.batch_size]]
            batch = stack([arrays.observation(one) for one in chosen])
            batch = {key: value.to(device) for key, value in batch.items()}
            yield chosen, batch if self.prepare is None else self.prepare(batch)


def stack(rows: Sequence[Mapping[str, Array]]) -> dict[str, Tensor]:
    """Returns tensors (B, ...) of the arrays of B examples."""
    return {key: torch.from_numpy(np.stack([row[key] for row in rows])) for key in rows[0]}


class PerceptionNetwork(nn.Module, ABC):
    """An image encoder with a head.

    Attributes:
        needs: Parts of the contract that come from the training data: of `labels` (classes of
            images), `names` (of objects) and `texts` (a tokeniser).
        contract: What it reads.
        image_encoder: The part that a policy can take over.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, image_encoder: ImageEncoderFactory, contract: ImageContract) -> None:
        super().__init__()
        self.contract = contract
        self.arrays = ImageArrays(contract)
        self.image_encoder = image_encoder(contract=contract)

    def example(self, labelled: Labelled, generator: np.random.Generator) -> dict[str, Array]:
        """Returns the arrays of one training example, equal shapes for all."""
        return self.arrays.observation(labelled) | self.targets(labelled, generator)

    def check(self, labelled: Labelled) -> None:
        """Checks that an image can be an example; its pixels are not read.

        Raises:
            ValueError: It lacks an input, or a text does not fit.
        """
        self.arrays.check(labelled)

    def has_targets(self, labelled: Labelled) -> bool:
        """Returns whether an image has targets of the loss and of the measures."""
        return True

    @property
    def target(self) -> str:
        """Description of a target, for messages."""
        return "a label"

    @abstractmethod
    def targets(self, labelled: Labelled, generator: np.random.Generator) -> dict[str, Array]:
        """Returns the arrays of one example that only the loss reads, drawn by a generator."""

    @abstractmethod
    def loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Returns the loss of a batch of examples, a scalar."""

    @abstractmethod
    def measure(self, examples: Examples) -> Measurement:
        """Returns the measures on held-out images, in evaluation mode."""

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device


PerceptionFactory = partial[PerceptionNetwork]
"""Makes a network, given its `contract`; `func` is its class."""


TEXT = "text"
"""The text tower of a network, and the folder of its files in a checkpoint."""

_FILES = "text_files"


def build_network(
    model: Mapping[str, Any], contract: ImageContract, trust: Trust = ASKED_FOR
) -> PerceptionNetwork:
    """Builds a network with random weights of a resolved configuration with `_target_`.

    Raises:
        ValueError: A setting is not valid, or the images lack what the network needs.
    """
    network = build(dict(model), nn.Module, trust, contract=contract)
    if not isinstance(network, PerceptionNetwork):
        raise ValueError(
            f"{model.get('_target_')!r} is not a network of perception; allowed: the heads of "
            f"stringline-perceive."
        )
    return network


def save_network(
    directory: Path,
    network: PerceptionNetwork,
    model: Mapping[str, Any],
    training: Mapping[str, Any],
) -> None:
    """Writes a self-contained checkpoint for `load_perception`.

    `model` is the configuration of the network, `training` the record of its training, plain data.
    """
    tower = getattr(network, TEXT, None)
    own = tower.files() if isinstance(tower, TextNetwork) else {}
    files = {f"{TEXT}/{name}": content for name, content in own.items()}
    description = {
        "model": dict(model),
        IMAGE_CONTRACT: network.contract.to_dict(),
        "training": dict(training),
        **({_FILES: sorted(files)} if files else {}),
    }
    save_checkpoint(directory, network, description, files)


def load_perception(where: str | Path, trust: Sequence[str] = ()) -> PerceptionNetwork:
    """Loads the network of a checkpoint of `stringline-perceive`, in evaluation mode.

    Args:
        where: Its folder.
        trust: Top-level packages whose classes the checkpoint may name, which runs their code.

    Raises:
        ValueError: The checkpoint is missing, broken, newer than this code, of a policy, or names
            a class of a package that is not trusted.
    """
    directory = Path(where)
    description = load_description(directory)
    try:
        model = _with_own_text(directory, description, without_files(description["model"]))
        contract = ImageContract.from_dict(description[IMAGE_CONTRACT])
    except KeyError as error:
        raise ValueError(
            f"{directory} contains no network of perception: {error} is missing."
        ) from error
    consent = Trust(f"The checkpoint {where}", frozenset(trust))
    with bounded_by(directory / WEIGHTS, description):
        network = build_network(model, contract, consent)
    load_weights(directory, network)
    return network.eval()


def _with_own_text(
    directory: Path, description: Mapping[str, Any], model: dict[str, Any]
) -> dict[str, Any]:
    """Returns the configuration of a network whose text tower reads the files of its checkpoint.

    Raises:
        ValueError: A file is missing.
    """
    names = description.get(_FILES, [])
    if missing := [name for name in names if not (directory / name).is_file()]:
        raise ValueError(
            f"The checkpoint {directory} lacks {', '.join(missing)} of its text tower. Copy the "
            f"whole folder."
        )
    own = {**model[TEXT], "model": StoredText(directory / TEXT)} if names else None
    return {**model, TEXT: own} if own else model
