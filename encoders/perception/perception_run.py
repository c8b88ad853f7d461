"""A run of `stringline-perceive`: training, measurement on held-out images, and its files.

Before the training, which may take hours, a run checks its images and tries its measurements. Its
network may begin with the weights of another one. Its page of predictions has the measures, and
images with truth (green) and prediction (blue).
"""

import copy
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

from stringline.datasets.cameras.resampling import Fit, checked_image_size
from stringline.datasets.contract.argument_checks import POSITIVE, WHOLE
from stringline.datasets.contract.contract import Array
from stringline.datasets.files.atomic import exclusive, standing
from stringline.datasets.files.pages import (
    Card,
    Column,
    Content,
    Figure,
    Grid,
    Image,
    Page,
    Section,
    Span,
    Svg,
    Table,
    Text,
)
from stringline.datasets.images.labelled_image import LabelledClip
from stringline.datasets.viewing.page_drawings import jpeg_url
from stringline.encoders.perception.image_contract import (
    CAMERA,
    Frame,
    ImageArrays,
    ImageContract,
    Labelled,
)
from stringline.encoders.perception.perception_data import (
    ImageBatches,
    PerceptionData,
    drawn_places,
    image_augmentation,
)
from stringline.encoders.perception.perception_network import (
    TEXT,
    Drawing,
    Examples,
    Measurement,
    PerceptionNetwork,
    build_network,
    save_network,
)
from stringline.encoders.perception.perception_results import (
    earlier_studies,
    results_of,
    write_detections,
    write_results,
)
from stringline.encoders.perception.studies import Study
from stringline.encoders.perception.text_tower import TextNetwork
from stringline.encoders.training.checkpoint import load_description, sha256_of
from stringline.encoders.training.interfaces import Callbacks, LoggerFactory, Probe
from stringline.encoders.training.monitor import History
from stringline.encoders.training.partial_loading import (
    IMAGE_CONTRACT,
    IMAGE_ENCODER,
    InitialParts,
    LoadedParts,
    is_perception,
    load_partial_weights,
)
from stringline.encoders.training.settings import (
    EARLIER_STEPS,
    END,
    check_run_directory,
    record_steps,
    stored_fingerprint,
)
from stringline.encoders.training.trainer import Trainer, ValidationLoss

_TRIED = 2


def check_images(network: PerceptionNetwork, data: PerceptionData) -> None:
    """Checks all images of a run; see `PerceptionNetwork.check` and `has_targets`.

    Raises:
        ValueError: Images do not fit the network, or no image of a side has targets.
    """
    for side, indices in (("training", data.train), ("test", data.split.test)):
        reasons = {}
        for index in indices:
            try:
                network.check(data.images[index])
            except ValueError as error:
                reasons[index] = str(error)
        if reasons:
            first = min(reasons)
            raise ValueError(
                f"{len(reasons)} of {len(indices)} {side} images do not fit the network. Image "
                f"{first}: {reasons[first]}"
            )
        if not any(network.has_targets(data.images[index]) for index in indices):
            raise ValueError(
                f"None of the {len(indices)} {side} images has {network.target}; allowed: at "
                f"least one."
            )


def try_measurement(network: PerceptionNetwork, examples: Examples, study: Study | None) -> None:
    """Measures a few images, so that an impossible measurement fails before the training.

    Raises:
        ValueError: The images do not fit the measurement or the study.
    """
    few = replace(examples, indices=examples.indices[:_TRIED])
    with torch.random.fork_rng(devices=[]):
        network.measure(few)
        if study is not None:
            study.measure(network, few)


logger = logging.getLogger(__name__)


class InitialNetwork(InitialParts):
    """A checkpoint of `stringline-perceive`, and the parts of it that initialise a new run.

    By default these are the image encoder, and the text tower where both networks have one.
    """

    def contract(self, contract: ImageContract) -> ImageContract:
        """Returns the contract with the tokeniser of the checkpoint, if its text tower is loaded.

        Raises:
            ValueError: The checkpoint is missing, broken, or of a policy.
        """
        tokeniser = self._description()[IMAGE_CONTRACT]["tokeniser"]
        both = bool(tokeniser and contract.tokeniser)
        return replace(contract, tokeniser=tokeniser) if both and self._has_text else contract

    def load(self, network: PerceptionNetwork) -> LoadedParts:
        """Loads the parts into a network and logs them.

        Raises:
            ValueError: A part is unknown or does not fit.
        """
        both = bool(network.contract.tokeniser and self._description()[IMAGE_CONTRACT]["tokeniser"])
        tower = getattr(network, TEXT, None)
        if both and self._has_text and isinstance(tower, TextNetwork):
            tower.check_tokenizer(self._folder / TEXT)
        include = self.include or ([IMAGE_ENCODER, TEXT] if both else [IMAGE_ENCODER])
        loaded = load_partial_weights(self._folder, network, include=include, exclude=self.exclude)
        network.image_encoder.reset_frequencies()
        logger.info("From %s, %s.", self.checkpoint, loaded)
        return loaded

    def describe(self) -> dict[str, Any]:
        """Returns the settings that decide the initial weights, as plain data."""
        return self.described(sha256_of(self._folder)[:16])

    @property
    def _has_text(self) -> bool:
        """Whether the text tower is among the chosen parts."""
        chosen = not self.include or any(part.split(".")[0] == TEXT for part in self.include)
        return chosen and TEXT not in self.exclude

    @property
    def _folder(self) -> Path:
        return standing(Path(self.checkpoint))

    def _description(self) -> Mapping[str, Any]:
        description = load_description(self._folder)
        if not is_perception(description):
            raise ValueError(
                f"{self.checkpoint} contains no network of perception; allowed: a checkpoint of "
                f"stringline-perceive."
            )
        return description


SHOWN = 48


def write_page(
    path: Path,
    examples: Examples,
    found: Measurement,
    intervals: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Writes a self-contained page with the measures and some of the drawings.

    Args:
        path: The file.
        examples: The images.
        found: What was measured on them.
        intervals: Those of measures, by name.
    """
    drawings = found.drawings
    shown = [drawings[place] for place in drawn_places(len(drawings), SHOWN)]
    ranges = {name: f"{low:.4g} to {high:.4g}" for name, (low, high) in (intervals or {}).items()}
    measures = [(name, value, ranges.get(name, "")) for name, value in found.values.items()]
    heads = [
        Column("measure"),
        Column("value", kind="number", form=".4g"),
        Column("interval", "95 %", "number"),
    ]
    names = list(dict.fromkeys(name for row in found.subsets for name in row))
    columns = [Column(name, form=".4g") for name in names]
    subsets = Table(columns, [[row.get(name, "") for name in names] for row in found.subsets])
    legend: list[Content] = ["The truth is ", Span("green", "good"), ", the prediction "]
    legend += [Span("blue", "accent"), "."]
    sections = [
        Section("measures", "Measures", [Card(Table(heads, measures))]),
        Section("subsets", "By size, distance and visibility", [Card(subsets)] if names else []),
        Section(
            "images",
            "Images",
            [Text(legend), Grid([_picture(examples, drawing) for drawing in shown], 13)],
        ),
    ]
    Page("Predictions", [Text(f"Held-out images: {len(examples)}.", "headline")], sections).write(
        path
    )


def _picture(examples: Examples, drawing: Drawing) -> Figure:
    """Returns an image with truth and prediction; the frames of a clip lie side by side."""
    labelled: Labelled = examples.images[examples.indices[drawing.example]]
    rgb = ImageArrays(examples.contract).observation(labelled)[f"rgb/{CAMERA}"]
    if isinstance(labelled, LabelledClip):
        rgb = np.concatenate(list(rgb), axis=1)
    lines = "".join(
        f'<polyline stroke="var(--{colour})" points="{_points(line)}"/>'
        for colour, found in (("good", drawing.true_lines), ("accent", drawing.predicted_lines))
        for line in found
    )
    over = Svg(f'<svg viewBox="0 0 {rgb.shape[1]} {rgb.shape[0]}">{lines}</svg>')
    caption = [
        Text(drawing.truth, "good"),
        Text(drawing.prediction, "accent"),
        Text(drawing.comment),
    ]
    return Figure(Image(jpeg_url(rgb), drawing.truth, over, pixelated=True), caption)


def _points(line: Array) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in line)


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
        minutes: Duration of the training, from which the number of steps is estimated; if None, the
            steps of the trainer.
        validation_images: Held-out images of the validation loss; 0: no validation.
        probe_images: Held-out images that are measured while training, every `probe_every` steps,
            for a curve; 0: none.
        augmentation: Configuration of the `Augmentation` of training batches; if None, none.
        study: A further measurement of the trained network; if None, no study.
        initial: Weights of another network to begin with; if None, random weights.
        log: Makes a logger besides the history.
    """

    image_size: int | Sequence[int]
    image_fit: Fit = "pad"
    frame: Frame = "camera"
    minutes: float | None = None
    validation_images: int = 128
    probe_images: int = 0
    augmentation: Mapping[str, Any] | None = None
    study: Study | None = None
    initial: InitialNetwork | None = None
    log: LoggerFactory | None = None

    def __post_init__(self) -> None:
        WHOLE.check(validation_images=self.validation_images, probe_images=self.probe_images)
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
    batches = partial(ImageBatches, data.images, data.train, network, seed=trainer.seed)
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
    record = {"steps": trainer.steps, "train": len(data.train), **dict(recipe or {})}
    with exclusive(directory):
        if earlier := record_steps(directory, fingerprint):
            record[EARLIER_STEPS] = earlier
        history = _train(network, data, trainer, directory, (model, record), callbacks)
        if settings.probe_images and not history.probes():
            logger.warning("The run was trained without probe_images, so it has no curve.")
        found = {"training": record, "curve": _curve(history)}
        return _measure(network, data, trainer, directory, settings, found)


def _measure(
    network: PerceptionNetwork,
    data: PerceptionData,
    trainer: Trainer,
    directory: Path,
    settings: PerceptionSettings,
    trained: Mapping[str, Any],
) -> dict[str, Any]:
    """Measures a trained network, writes the results and the page, and returns the results."""
    examples = _examples(data, network, trainer)
    study = settings.study
    found = network.measure(examples).detailed()
    results = results_of(found, data, network, trainer, examples, settings.minutes) | dict(trained)
    results["studies"] = earlier_studies(directory, results)
    if found.detections is not None:
        write_detections(directory, found.detections)
    write_results(directory, results)
    if study is not None:
        results["studies"][type(study).__name__] = study.measure(network, examples)
        write_results(directory, results)
    shown = replace(found, subsets=results["subsets"])
    write_page(directory / PAGE, examples, shown, results["intervals"])
    return results


def _train(
    network: PerceptionNetwork,
    data: PerceptionData,
    trainer: Trainer,
    directory: Path,
    described: tuple[Mapping[str, Any], Mapping[str, Any]],
    callbacks: Callbacks,
) -> History:
    """Trains to the last step, and writes the checkpoint; `described` are model and record."""
    batches = ImageBatches(
        data.images,
        data.train,
        network,
        trainer.batch_size,
        seed=trainer.seed,
        num_workers=trainer.num_workers,
        pin_memory=trainer.pin_memory,
    )
    model, record = described

    def save(trained: nn.Module) -> None:
        # A study of a completed run leaves its checkpoint as it is: other runs may begin with it.
        if not _has_checkpoint(directory, trainer.steps):
            save_network(directory / END, network, model, record)

    callbacks = replace(callbacks, describe=batches.describe)
    return trainer.fit(network, batches, directory, save_model=save, callbacks=callbacks)


def _has_checkpoint(directory: Path, steps: int) -> bool:
    """Returns whether a run has the checkpoint of its last step."""
    if not (directory / END).is_dir():
        return False
    training: Mapping[str, Any] = load_description(directory / END).get("training", {})
    return bool(training.get("steps", steps) == steps)


def _callbacks(
    network: PerceptionNetwork,
    data: PerceptionData,
    trainer: Trainer,
    settings: PerceptionSettings,
) -> Callbacks:
    return Callbacks(
        probe=_probe(data, trainer, settings.probe_images),
        validate=_validation(network, data, trainer, settings.validation_images),
        prepare=image_augmentation(settings.augmentation, network),
        logger=settings.log,
    )


def _validation(
    network: PerceptionNetwork, data: PerceptionData, trainer: Trainer, count: int
) -> ValidationLoss | None:
    """Returns the loss on some held-out images; None without any."""
    held_out = [data.split.test[n] for n in drawn_places(len(data.split.test), count)]
    if not held_out:
        return None
    size = min(trainer.batch_size, len(held_out))
    batches = ImageBatches(data.images, held_out, network, size, seed=trainer.seed)

    def read() -> Any:
        return (batches.batch(number) for number in range(len(held_out) // size))

    return ValidationLoss(read)


def _probe(data: PerceptionData, trainer: Trainer, count: int) -> Probe | None:
    """Returns the measures with intervals, on some held-out images; None without any."""
    held_out = [data.split.test[n] for n in drawn_places(len(data.split.test), count)]
    if not held_out:
        return None

    def probe(model: nn.Module) -> dict[str, float]:
        assert isinstance(model, PerceptionNetwork)
        examples = Examples(data.images, held_out, model.contract, trainer.batch_size)
        found = model.measure(examples)
        return {name: found.values[name] for name in found.statistics}

    return probe


def _curve(history: History) -> list[dict[str, float]]:
    """Returns the measures of each probe, with the number of completed steps."""
    return [{"steps": step + 1, **values} for step, values in history.probes()]


def _examples(data: PerceptionData, network: PerceptionNetwork, trainer: Trainer) -> Examples:
    return Examples(data.images, data.split.test, network.contract, trainer.batch_size)


def _planned_steps(directory: Path) -> int | None:
    """Returns the number of steps of the run in a directory; None means no run."""
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
