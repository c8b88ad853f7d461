"""The results of a run of `stringline-perceive`: measures, intervals, and values of each image.

They include the multiply-accumulate operations of the network, with the rotations of its
encodings.
"""

import io
import json
import logging
import math
import zipfile
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from stringline.datasets.files.atomic import write_file
from stringline.encoders.perception.average_precision import MatchedDetections
from stringline.encoders.perception.paired_resampling import share_interval
from stringline.encoders.perception.perception_data import PerceptionData
from stringline.encoders.perception.perception_network import (
    Examples,
    Measurement,
    PerceptionNetwork,
    Row,
    Statistic,
)
from stringline.encoders.positions.encoding import MatrixPlaces, Places, RotaryPlaces
from stringline.encoders.training.trainer import Trainer
from stringline.encoders.vision.attention import LinearAttention, PositionalAttention


@dataclass(frozen=True, kw_only=True)
class OperationCount:
    """Multiply-accumulate operations (MAC) of one forward pass; a FLOP count is twice of it.

    Attributes:
        products: Of matrix products and convolutions, without rotations. They include what an
            encoding computes once per forward pass and parameter set, such as folding a basis.
        rotations: Of rotating queries, keys, relative values and their outputs.
    """

    products: int
    rotations: int

    @property
    def total(self) -> int:
        """All operations."""
        return self.products + self.rotations


def count_operations(network: nn.Module, *inputs: object) -> OperationCount:
    """Counts the operations of `network(*inputs)`.

    By `torch.utils.flop_counter` without fused attention, which it does not see on a CPU. It misses
    elementwise products, so the rotations of planes are derived: 2 MAC per channel, as many as a
    product with 2 x 2 matrices takes. Neither counts sines, norms, softmax and matrix exponentials.

    LieRE (Ostmeier et al., 2024), tables 2 and 3, counts by fvcore, which takes the cost of a
    product that is broadcast from its first operand: rotations that heads share appear to cost 1 /
    heads. Here the count does not depend on sharing, as the arithmetic does not.

    Args:
        network: A network with any number of attention layers over places.
        inputs: Its inputs; the count is that of the whole batch.
    """
    counted = [0, 0]  # Rotations of planes, and of matrices, which the counter sees as products.

    def add(attention: nn.Module, arguments: tuple[object, ...], named: dict[str, object]) -> None:
        given = dict(zip(("x", "places", "context", "context_places"), arguments, strict=False))
        given |= named
        queries = given["x"]
        keys = given.get("context")
        places = given["places"]
        key_places = given.get("context_places") or places
        if isinstance(keys, Tensor) or keys is None:
            _add(counted, key_places, keys if isinstance(keys, Tensor) else queries, attention)
        _add(counted, places, queries, attention)

    handles = [
        module.register_forward_pre_hook(add, with_kwargs=True)
        for module in network.modules()
        if isinstance(module, PositionalAttention | LinearAttention)
    ]
    counter = FlopCounterMode(display=False)
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
            network(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    planes, matrices = counted
    return OperationCount(
        products=counter.get_total_flops() // 2 - matrices, rotations=planes + matrices
    )


def rotation_cost(places: Places, vectors: int, heads: int, head_dim: int) -> int:
    """Returns the operations of rotating `vectors` per head, (..., heads, N, head_dim).

    A block of b channels costs b^2, so a channel costs b: 2 for planes. Places without a rotation
    cost nothing.
    """
    if isinstance(places, RotaryPlaces):
        block = 2
    elif isinstance(places, MatrixPlaces):
        block = places.rotations.shape[-1]
    else:
        return 0
    return vectors * heads * head_dim * block


def _add(counted: list[int], places: object, tokens: object, attention: nn.Module) -> None:
    """Adds the rotations of queries and outputs, or those of keys and values, of some tokens."""
    assert isinstance(places, Places)
    assert isinstance(tokens, Tensor)
    assert isinstance(attention, PositionalAttention | LinearAttention)
    vectors = tokens.shape[:-1].numel() * (2 if attention.values else 1)
    heads = attention.heads
    cost = rotation_cost(places, vectors, heads, tokens.shape[-1] // heads)
    counted[isinstance(places, MatrixPlaces)] += cost


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
