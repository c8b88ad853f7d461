"""A run of `stringline-perceive`: training, measurement on held-out images, and its files."""

import copy
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stringline.datasets.cameras.image_size import Fit, checked_image_size
from stringline.datasets.contract.argument_checks import POSITIVE, WHOLE
from stringline.datasets.files.atomic import write_file
from stringline.datasets.files.lock import exclusive
from stringline.encoders.perception.image_augmentation import image_augmentation
from stringline.encoders.perception.image_batches import ImageBatches
from stringline.encoders.perception.image_checks import check_images, try_measurement
from stringline.encoders.perception.image_contract import Frame, ImageContract
from stringline.encoders.perception.initial_network import InitialNetwork
from stringline.encoders.perception.perception_checkpoint import build_network, save_network
from stringline.encoders.perception.perception_data import PerceptionData
from stringline.encoders.perception.perception_network import (
    Examples,
    Measurement,
    PerceptionNetwork,
)
from stringline.encoders.perception.prediction_page import write_page
from stringline.encoders.perception.studies import Study
from stringline.encoders.training.interfaces import Callbacks, LoggerFactory
from stringline.encoders.training.losses import ValidationLoss
from stringline.encoders.training.run_fingerprint import (
    END,
    check_run_directory,
    stored_fingerprint,
)
from stringline.encoders.training.trainer import Trainer

logger = logging.getLogger(__name__)

RESULTS = "results.json"
PAGE = "predictions.html"
_WARM_UP = 2
_TIMED = 5


@dataclass(frozen=True, kw_only=True)
class PerceptionSettings:
    """Data, budget and studies of a run.

    Attributes:
        image_size: Rows and columns of the images, or one number for both.
        image_fit: The way to that size, see `ImageSize`.
        frame: The frame of places and boxes, see `ImageContract`.
        minutes: Duration of the training, from which the number of steps is estimated; None: the
            steps of the trainer.
        validation_images: Held-out images of the validation loss; 0: no validation.
        augmentation: Configuration of the `Augmentation` of training batches; None: none.
        study: A further measurement of the trained network; None: no study.
        initial: Weights of another network to begin with; None: random weights.
        log: Makes a logger besides the history.
    """

    image_size: int | Sequence[int]
    image_fit: Fit = "pad"
    frame: Frame = "camera"
    minutes: float | None = None
    validation_images: int = 128
    augmentation: Mapping[str, Any] | None = None
    study: Study | None = None
    initial: InitialNetwork | None = None
    log: LoggerFactory | None = None

    def __post_init__(self) -> None:
        WHOLE.check(validation_images=self.validation_images)
        if self.minutes is not None:
            POSITIVE.check(minutes=self.minutes)

    def contract(self, data: PerceptionData) -> ImageContract:
        """Returns the contract of images of this size."""
        height, width = checked_image_size(self.image_size)
        found = data.contract(height, width, fit=self.image_fit, frame=self.frame)
        return self.initial.contract(found) if self.initial else found


def run_perception(
    model: Mapping[str, Any],
    data: PerceptionData,
    trainer: Trainer,
    directory: Path,
    settings: PerceptionSettings,
    recipe: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Trains a network, measures it on the held-out images, and returns the results.

    It writes `checkpoint`, `results.json` and `predictions.html`. A stopped run continues; a
    completed one is measured again.

    Raises:
        ValueError: The images do not fit the network, or the directory holds another run.
        Stopped: Ctrl-C or SIGTERM arrived; the state of the last completed step is saved.
    """
    torch.manual_seed(trainer.seed)
    network = build_network(model, settings.contract(data))
    if settings.initial:
        settings.initial.load(network)
    check_images(network, data)
    try_measurement(network, _examples(data, network, trainer), settings.study)
    callbacks = _callbacks(network, data, trainer, settings)
    batches = partial(ImageBatches, data.images, data.split.train, network, seed=trainer.seed)
    if settings.minutes is not None:
        seconds = 60 * settings.minutes
        steps = _planned_steps(directory) or _steps_within(seconds, network, batches, trainer)
        trainer = replace(trainer, steps=steps)
    fingerprint = {
        "model": dict(model),
        "image_contract": network.contract.to_dict(),
        "trainer": trainer.fingerprint(),
        **data.fingerprint(),
        **({"augmentation": dict(settings.augmentation or {})} if callbacks.prepare else {}),
        **({"initial": settings.initial.describe()} if settings.initial else {}),
    }
    check_run_directory(directory, fingerprint)
    record = {"steps": trainer.steps, "train": len(data.split.train), **dict(recipe or {})}
    with exclusive(directory):
        _train(network, data, trainer, directory, (model, record), callbacks)
        return _measure(network, data, trainer, directory, settings.study, record)


def _measure(
    network: PerceptionNetwork,
    data: PerceptionData,
    trainer: Trainer,
    directory: Path,
    study: Study | None,
    record: Mapping[str, Any],
) -> dict[str, Any]:
    """Measures a trained network, writes the results and the page, and returns the results."""
    examples = _examples(data, network, trainer)
    found = network.measure(examples)
    results = _results(found, data, network, trainer) | {"training": record}
    results["studies"] = _studies(directory / RESULTS, results)
    _write(directory, results)
    if study is not None:
        results["studies"][type(study).__name__] = study.measure(network, examples)
        _write(directory, results)
    write_page(directory / PAGE, examples, found)
    return results


def _train(
    network: PerceptionNetwork,
    data: PerceptionData,
    trainer: Trainer,
    directory: Path,
    described: tuple[Mapping[str, Any], Mapping[str, Any]],
    callbacks: Callbacks,
) -> None:
    """Trains to the last step, and writes the checkpoint; `described` are model and record."""
    batches = ImageBatches(
        data.images,
        data.split.train,
        network,
        trainer.batch_size,
        seed=trainer.seed,
        readers=trainer.readers,
        pin_memory=trainer.pin_memory,
    )
    model, record = described

    def save(trained: nn.Module) -> None:
        # A study of a completed run leaves its checkpoint as it is: other runs may begin with it.
        if not (directory / END).is_dir():
            save_network(directory / END, network, model, record)

    callbacks = replace(callbacks, describe=batches.describe)
    trainer.fit(network, batches, directory, save_model=save, callbacks=callbacks)


def _callbacks(
    network: PerceptionNetwork,
    data: PerceptionData,
    trainer: Trainer,
    settings: PerceptionSettings,
) -> Callbacks:
    return Callbacks(
        validate=_validation(network, data, trainer, settings.validation_images),
        prepare=image_augmentation(settings.augmentation, network),
        logger=settings.log,
    )


def _validation(
    network: PerceptionNetwork, data: PerceptionData, trainer: Trainer, count: int
) -> ValidationLoss | None:
    """Returns the loss on evenly spaced held-out images; None without any."""
    held_out = data.split.test[:: max(1, len(data.split.test) // max(1, count))][:count]
    if not count or not held_out:
        return None
    size = min(trainer.batch_size, len(held_out))
    batches = ImageBatches(data.images, held_out, network, size, seed=trainer.seed)

    def read() -> Any:
        return (batches.batch(number) for number in range(len(held_out) // size))

    return ValidationLoss(read)


def _examples(data: PerceptionData, network: PerceptionNetwork, trainer: Trainer) -> Examples:
    return Examples(data.images, data.split.test, network.contract, trainer.batch_size)


def _results(
    found: Measurement, data: PerceptionData, network: PerceptionNetwork, trainer: Trainer
) -> dict[str, Any]:
    """Returns the results as plain data."""
    return {
        "task": type(network).__name__,
        "measures": dict(found.values),
        "images": {"train": len(data.split.train), "test": len(data.split.test)},
        "split": data.described(),
        "steps": trainer.steps,
        "seed": trainer.seed,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "each": {"index": list(data.split.test), **{k: list(v) for k, v in found.each.items()}},
    }


def _write(directory: Path, results: Mapping[str, Any]) -> None:
    write_file(directory / RESULTS, json.dumps(results, indent=1).encode())


def _studies(file: Path, results: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the rows of earlier studies of the same network, by name."""
    if not file.is_file():
        return {}
    stored = json.loads(file.read_text())
    return dict(stored.get("studies", {})) if stored["each"] == results["each"] else {}


def _planned_steps(directory: Path) -> int | None:
    """Returns the number of steps of the run in a directory; None: no run."""
    stored = stored_fingerprint(directory)
    if not isinstance(stored, dict):
        return None
    steps = int(stored["trainer"]["steps"])
    logger.info(
        "%s holds a run of %d steps, which it keeps; minutes= counts for new runs.",
        directory,
        steps,
    )
    return steps


def _steps_within(
    seconds: float,
    network: PerceptionNetwork,
    batches: "partial[ImageBatches]",
    trainer: Trainer,
) -> int:
    """Returns the number of steps that take some seconds, from the median time of a few."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    copied = copy.deepcopy(network).to(device).train()
    optimizer = torch.optim.AdamW(copied.parameters())
    read = batches(batch_size=trainer.batch_size)
    times = []
    for number in range(_WARM_UP + _TIMED):
        begun = time.perf_counter()
        batch = {key: value.to(device) for key, value in read.batch(number).items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=trainer.in_bf16()):
            loss: Tensor = copied.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        times.append(time.perf_counter() - begun)
    steps = max(1, int(seconds / float(np.median(times[_WARM_UP:]))))
    logger.info("%.0f s are about %d steps of %.3f s.", seconds, steps, seconds / steps)
    return steps
