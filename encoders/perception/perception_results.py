"""The results of a run of `stringline-perceive`: measures, intervals, and values of each image."""

import io
import json
import logging
import math
import zipfile
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.files.atomic import write_file
from stringline.encoders.perception.matched_detections import MatchedDetections
from stringline.encoders.perception.operation_count import count_operations
from stringline.encoders.perception.perception_data import PerceptionData
from stringline.encoders.perception.perception_network import (
    Examples,
    Measurement,
    PerceptionNetwork,
    Row,
    Statistic,
)
from stringline.encoders.perception.share_interval import share_interval
from stringline.encoders.training.trainer import Trainer

logger = logging.getLogger(__name__)

RESULTS = "results.json"
DETECTIONS = "detections.npz"
_DRAWS = 200


def results_of(
    found: Measurement,
    data: PerceptionData,
    network: PerceptionNetwork,
    trainer: Trainer,
    examples: Examples,
    minutes: float | None = None,
) -> dict[str, Any]:
    """Returns the results as plain data.

    `intervals` are those of 95 % over rooms, or over images without rooms; see `share_interval`.
    So are those of the mean IoU of subsets.
    `operations` are multiply-accumulate operations of the image encoder for one image.
    """
    groups = data.groups(data.split.test)
    return {
        "task": type(network).__name__,
        "measures": dict(found.values),
        "intervals": intervals(found.statistics, groups),
        "subsets": with_intervals(found, groups),
        "images": {"train": len(data.train), "test": len(data.split.test)},
        "groups": len(set(groups)),
        "unit": "rooms" if isinstance(groups[0], str) else "images",
        "test_groups": groups,
        "store": data.images.digest(),
        "split": data.described(),
        "steps": trainer.steps,
        "seed": trainer.seed,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "operations": operations(network, examples),
        "minutes": minutes,
        "each": {"index": list(data.split.test), **{k: list(v) for k, v in found.each.items()}},
    }


def intervals(
    statistics: Mapping[str, Statistic], groups: Sequence[Hashable]
) -> dict[str, tuple[float, float]]:
    """Returns the interval of each statistic, which is between 0 and 1, over groups of images.

    Without two groups, or if a draw of images has no object, a statistic has no interval.
    """
    found = {}
    for name, statistic in statistics.items():
        try:
            found[name] = share_interval(statistic, groups, draws=_DRAWS)
        except ValueError as error:
            logger.warning("%s has no interval. %s", name, error)
    return found


def with_intervals(found: Measurement, groups: Sequence[Hashable]) -> list[Row]:
    """Returns the subsets with the interval of their mean IoU, if there is one."""
    if len(set(groups)) < 2:
        return list(found.subsets)
    of_subsets = intervals(found.of_subsets, groups)
    rows: list[Row] = []
    for row in found.subsets:
        low_high = of_subsets.get(str(row["subset"]))
        ends = (
            {} if low_high is None else {"mean_iou_low": low_high[0], "mean_iou_high": low_high[1]}
        )
        rows.append({**row, **ends})
    return rows


def operations(network: PerceptionNetwork, examples: Examples) -> dict[str, int]:
    """Returns the operations of the image encoder for the first image, see `OperationCount`."""
    one = Examples(examples.images, examples.indices[:1], examples.contract, 1)
    _, batch = next(one.batches(network.device))
    counted = count_operations(network.image_encoder, batch)
    return {"products": counted.products, "rotations": counted.rotations}


def write_results(directory: Path, results: Mapping[str, Any]) -> None:
    """Writes the results; numbers that are not known become null."""
    write_file(directory / RESULTS, json.dumps(_known(results), indent=1).encode())


def write_detections(directory: Path, detections: MatchedDetections) -> None:
    """Writes the matches of detections, from which average precisions of runs are compared."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **detections.to_arrays())
    write_file(directory / DETECTIONS, buffer.getvalue())


def read_detections(directory: Path) -> MatchedDetections:
    """Reads the matches of a run, see `write_detections`.

    Raises:
        ValueError: The file is missing or broken.
    """
    file = directory / DETECTIONS
    if not file.is_file():
        raise ValueError(
            f"{directory} lacks {DETECTIONS}, which its command writes: run it again, and it "
            f"measures the trained network."
        )
    try:
        # NumPy leaves a broken file open that it opened by itself.
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            return MatchedDetections.from_arrays(arrays)
    except (OSError, ValueError, KeyError, IndexError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} holds no detections: {error}") from error


def earlier_studies(directory: Path, results: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the rows of earlier studies of the same network, by name."""
    file = directory / RESULTS
    if not file.is_file():
        return {}
    stored = json.loads(file.read_text())
    return dict(stored.get("studies", {})) if stored["each"] == results["each"] else {}


def _known(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _known(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_known(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
