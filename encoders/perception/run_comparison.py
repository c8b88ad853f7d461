"""Comparison of runs of `stringline-perceive` on the same test images, by one of their measures."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.encoders.perception.detection_results import AT
from stringline.encoders.perception.paired_resampling import (
    Resampled,
    paired_difference,
    statistic_difference,
)
from stringline.encoders.perception.perception_network import Statistic
from stringline.encoders.perception.perception_results import DETECTIONS, RESULTS, read_detections
from stringline.encoders.training.settings import stored_fingerprint

Array = NDArray[np.float64]

MEANS = {
    "mean_iou": ("iou_sum", "objects"),
    "i2t_recall_at_1": ("i2t_rank", None),
    "t2i_recall_at_1": ("t2i_first", "texts"),
    "within_pair": ("within_pair", None),
    "top1": ("correct", None),
}
"""Means over images, with the names of their values and numbers of each image."""

PRECISIONS = {
    name: at
    for space, thresholds in AT.items()
    for name, at in (
        (f"ap{space}", None),
        *((f"ap{space}_{100 * at:.0f}", at) for at in thresholds),
    )
}
"""Average precisions with the threshold of the IoU; if None, the mean over all thresholds."""


def measures_of(results: Mapping[str, Any]) -> list[str]:
    """Returns the names of the measures by which a run can be compared.

    Args:
        results: See `results_of`.
    """
    means = [name for name, (key, _) in MEANS.items() if key in results["each"]]
    known = results.get("measures", {})
    return means + [name for name in PRECISIONS if known.get(name) is not None]


def checked_measure(results: Mapping[str, Any], measure: str | None) -> str:
    """Returns a measure of a run; None stands for the first of `measures_of`.

    Raises:
        ValueError: The run does not have the measure.
    """
    found = measures_of(results)
    if measure is None:
        return found[0]
    if measure not in found:
        raise unknown_name("measure", measure, found)
    return measure


def image_values(results: Mapping[str, Any], measure: str) -> tuple[Array, Array | None]:
    """Returns the values of a mean (N,), and the numbers of objects or texts (N,).

    Values of detectors are sums over the objects of an image, those of `t2i_recall_at_1` over its
    texts; others have no numbers.

    Args:
        results: See `results_of`.
        measure: One of `MEANS`.

    Raises:
        ValueError: The run does not have the measure.
    """
    key, counts = MEANS[checked_measure(results, measure)]
    each = results["each"]
    values = np.array(each[key], float)
    if measure == "i2t_recall_at_1":
        values = (values == 0).astype(float)
    return values, None if counts is None else np.array(each[counts], float)


def precision(path: Path, results: Mapping[str, Any], measure: str) -> Statistic:
    """Returns an average precision of a run as a function of drawn images.

    Args:
        path: Folder of the run.
        results: See `results_of`.
        measure: One of `PRECISIONS`.

    Raises:
        ValueError: The run does not have the measure, or its detections are missing or of another
            measurement.
    """
    at = PRECISIONS[checked_measure(results, measure)]
    detections = read_detections(path)
    found: Statistic = detections.value if at is None else partial(detections.at, at)
    value = found(np.arange(detections.images))
    stored = results["measures"][measure]
    images = len(results["each"]["index"])
    if detections.images != images or not math.isclose(value, stored, abs_tol=1e-9):
        raise ValueError(
            f"{path / DETECTIONS} has {measure} {value:.4f} on {detections.images} images, the "
            f"results {stored:.4f} on {images}: run the command of the run again, and it measures "
            f"the trained network."
        )
    return found


logger = logging.getLogger(__name__)

_OF_TRAININGS = {
    "trainer": ("seed", "steps"),
    "image_contract": ("tokeniser",),
    "initial": ("checkpoint",),
}
"""Settings that the trainings of a recipe may have different; steps by `minutes=` only."""


@dataclass(frozen=True)
class PerceptionRun:
    """A run with its results, named after its recipe.

    Attributes:
        name: Name of the recipe; trainings of one recipe have the same.
        path: Folder of the run.
        results: See `results_of`.
    """

    name: str
    path: Path
    results: Mapping[str, Any]

    @classmethod
    def read(cls, name: str, path: Path) -> "PerceptionRun":
        """Reads a run.

        Raises:
            ValueError: The path is not a completed run, or its results are broken or of an
                older version.
        """
        _check_path(path)
        file = path / RESULTS
        try:
            results = json.loads(file.read_text())
            missing = {"each", "task", "store", "test_groups", "training"} - set(results)
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"{file} holds no results of stringline-perceive: {error}") from error
        if missing:
            raise ValueError(
                f"{file} lacks {', '.join(sorted(missing))}: it is of an earlier version. Train "
                f"the network again."
            )
        return cls(name, path, results)

    @property
    def recipe(self) -> dict[str, Any]:
        """The settings that trainings of one recipe share."""
        stored = stored_fingerprint(self.path)
        return {
            key: {k: v for k, v in value.items() if k not in _OF_TRAININGS.get(key, ())}
            if isinstance(value, dict)
            else value
            for key, value in (stored or {}).items()
        }

    @property
    def steps(self) -> int:
        """Number of steps of the training."""
        return int(self.results["steps"])

    @property
    def minutes(self) -> float | None:
        """The duration that decided the number of steps; None if the steps were given."""
        return self.results.get("minutes")


@dataclass(frozen=True)
class RecipeDifference:
    """The difference of two recipes: `first` less `second`.

    Attributes:
        first: Name of a recipe.
        second: Name of another one.
        measure: The compared measure.
        values: The measure of each recipe, the mean over its trainings.
        trainings: Number of trainings of each.
        found: The difference with its interval, over rooms or images, and over trainings.
    """

    first: str
    second: str
    measure: str
    values: tuple[float, float]
    trainings: tuple[int, int]
    found: Resampled

    def to_dict(self) -> dict[str, Any]:
        """Returns the difference as plain data."""
        return asdict(self)


def is_of_perception(path: Path) -> bool:
    """Returns whether a path is a run of `stringline-perceive`, or a part of one."""
    return (path / RESULTS).is_file() or (path.parent / RESULTS).is_file()


def compare_runs(
    runs: Sequence[PerceptionRun], baseline: str | None = None, measure: str | None = None
) -> list[RecipeDifference]:
    """Compares recipes on the same test images, see `paired_difference`.

    Args:
        runs: Two recipes or more; runs of the same name are trainings of one recipe.
        baseline: The recipe that all others are compared with; if None, all pairs.
        measure: One of `measures_of`; if None, the first that the runs have.

    Raises:
        ValueError: Test images or tasks differ, runs of one name have different recipes, there are
            fewer than two recipes, or a run does not have the measure.
    """
    recipes: dict[str, list[PerceptionRun]] = {}
    for run in runs:
        recipes.setdefault(run.name, []).append(run)
    if len(recipes) < 2:
        raise ValueError(f"Got the recipes {list(recipes)}; allowed: two or more.")
    if baseline is not None and baseline not in recipes:
        raise ValueError(f"baseline is {baseline!r}; allowed: one of {', '.join(recipes)}.")
    _check_images(runs)
    for trainings in recipes.values():
        _check_recipe(trainings)
    pairs = (
        combinations(recipes, 2)
        if baseline is None
        else ((name, baseline) for name in recipes if name != baseline)
    )
    return [_difference(recipes[first], recipes[second], measure) for first, second in pairs]


def _check_path(path: Path) -> None:
    """Checks that a path is a completed run."""
    if (path / RESULTS).is_file():
        return
    if (path.parent / RESULTS).is_file():
        raise ValueError(f"{path} is a part of a run; allowed: the run itself, {path.parent}.")
    if stored_fingerprint(path) is not None:
        raise ValueError(
            f"{path} holds a run without {RESULTS}; allowed: a completed run of "
            f"stringline-perceive. The command of a stopped run continues it."
        )
    raise ValueError(
        f"{path} is not a run of stringline-perceive; allowed: runs of it, or evaluations and "
        f"checkpoints of policies, not both."
    )


def _difference(
    first: Sequence[PerceptionRun], second: Sequence[PerceptionRun], measure: str | None
) -> RecipeDifference:
    measure = checked_measure(first[0].results, measure)
    compared = _precisions if measure in PRECISIONS else _means
    values, found = compared(first, second, measure)
    names = first[0].name, second[0].name
    return RecipeDifference(*names, measure, values, (len(first), len(second)), found)


def _means(
    first: Sequence[PerceptionRun], second: Sequence[PerceptionRun], measure: str
) -> tuple[tuple[float, float], Resampled]:
    """Returns the mean of each recipe over images or objects, and the difference."""
    _, counts = image_values(first[0].results, measure)
    tables = [
        np.array([image_values(run.results, measure)[0] for run in one]) for one in (first, second)
    ]
    found = paired_difference(tables[1], tables[0], first[0].results["test_groups"], counts=counts)
    total = tables[0].shape[1] if counts is None else counts.sum()
    means = [float(table.sum(axis=1).mean() / total) for table in tables]
    return (means[0], means[1]), found


def _precisions(
    first: Sequence[PerceptionRun], second: Sequence[PerceptionRun], measure: str
) -> tuple[tuple[float, float], Resampled]:
    """Returns the average precision of each recipe, and the difference."""
    statistics = [
        [precision(run.path, run.results, measure) for run in one] for one in (first, second)
    ]
    found = statistic_difference(statistics[1], statistics[0], first[0].results["test_groups"])
    values = [fmean(run.results["measures"][measure] for run in one) for one in (first, second)]
    return (values[0], values[1]), found


def _check_images(runs: Sequence[PerceptionRun]) -> None:
    first = runs[0]
    for run in runs[1:]:
        for key, what in (("task", "task"), ("store", "store of images")):
            if run.results[key] != first.results[key]:
                raise ValueError(
                    f"{run.path} has the {what} {run.results[key]}, {first.path} "
                    f"{first.results[key]}; allowed: the same."
                )
        if run.results["each"]["index"] != first.results["each"]["index"]:
            raise ValueError(
                f"{run.path} and {first.path} have other test images; allowed: the same split, "
                f"held_out and split_seed."
            )
        counts = [one.results["each"].get("objects") for one in (run, first)]
        if counts[0] != counts[1]:
            raise ValueError(
                f"{run.path} and {first.path} count other objects; allowed: the same "
                f"head.least_pixels."
            )


def _changed(run: PerceptionRun, first: PerceptionRun) -> list[str]:
    """Returns the settings in which the recipes of two runs differ."""
    own = run.recipe
    other = first.recipe
    changed = [key for key in {**other, **own} if own.get(key) != other.get(key)]
    if run.minutes != first.minutes:
        changed.append(f"minutes {run.minutes} and {first.minutes}")
    elif run.steps != first.steps and run.minutes is None:
        changed.append(f"{run.steps} and {first.steps} steps")
    return changed


def _check_recipe(trainings: Sequence[PerceptionRun]) -> None:
    """Checks that runs of one name differ in their seeds only."""
    seeds: dict[int, PerceptionRun] = {}
    first = trainings[0]
    for run in trainings:
        if changed := _changed(run, first):
            raise ValueError(
                f"{run.path} and {first.path} have the name {run.name!r} and different recipes "
                f"({', '.join(changed)}); allowed: recipes that differ in trainer.seed."
            )
        seed = int(run.results["seed"])
        if seed in seeds:
            raise ValueError(
                f"{run.path} and {seeds[seed].path} have the name {run.name!r} and the same seed "
                f"{seed}; allowed: another trainer.seed for each training."
            )
        seeds[seed] = run
    if len({run.steps for run in trainings}) > 1:
        logger.warning(
            "The trainings of %r have %s steps, since minutes= decided their numbers.",
            first.name,
            ", ".join(str(run.steps) for run in trainings),
        )
