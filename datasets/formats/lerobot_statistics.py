"""The statistics that a LeRobotDataset carries, of each episode and of all."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from stringline.datasets.contract import Array
from stringline.datasets.statistics import KeyStatistics, statistics_of

LARGEST_SAMPLE = 100  # Pictures of an episode that are looked at.
LONGEST_SIDE = 64  # Rows and columns of a picture that are looked at.
QUANTILE_NAMES = ("q01", "q10", "q50", "q90", "q99")


def of_numbers(parts: list[Array]) -> dict[str, Any]:
    """Returns the statistics of series (T, D) or (T,), over all parts, as lists of D numbers."""
    found = statistics_of(lambda: (part.reshape(len(part), -1) for part in parts))
    return _plain(found, found.count, lambda values: values.tolist())


def of_pictures(parts: list[Array], scale: float) -> dict[str, Any]:
    """Returns the statistics of pictures (T, H, W) or (T, H, W, C) over a sample of their pixels.

    Args:
        parts: Of each episode; they may be mapped.
        scale: What values are multiplied by: 1/255 for colours, as LeRobot has it.

    Returns:
        Lists of C lists of one list of one number, as LeRobot shapes them; the count is that of the pictures looked at.
    """
    channels = parts[0].shape[3] if parts[0].ndim == 4 else 1
    found = statistics_of(partial(_pixels, parts, channels, scale))
    looked = sum(len(part[:: _every(len(part), LARGEST_SAMPLE)]) for part in parts)
    return _plain(found, looked, lambda values: values.reshape(-1, 1, 1).tolist())


def _pixels(parts: list[Array], channels: int, scale: float) -> Iterator[Array]:
    for part in parts:
        rows, columns = (_every(length, LONGEST_SIDE) for length in part.shape[1:3])
        for picture in part[:: _every(len(part), LARGEST_SAMPLE)]:
            yield picture[::rows, ::columns].reshape(-1, channels) * scale


def _every(length: int, most: int) -> int:
    return -(-length // most)


def _plain(found: KeyStatistics, count: int, shaped: Any) -> dict[str, Any]:
    values: Mapping[str, Array] = {"min": found.min, "max": found.max, "mean": found.mean, "std": found.std}
    values = {**values, **dict(zip(QUANTILE_NAMES, found.quantiles, strict=True))}
    return {**{name: shaped(np.asarray(value)) for name, value in values.items()}, "count": [count]}
