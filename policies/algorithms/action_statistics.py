"""Checks of the statistics of actions."""

import numpy as np

from stringline.datasets.loading.statistics import KeyStatistics


def check_actions(key: str, statistics: KeyStatistics, dim: int) -> None:
    """Raises a ValueError for statistics that define no range of actions.

    A single constant channel is valid: one arm may rest in a whole data set, and its normaliser has
    a floor.
    """
    if len(statistics.min) != dim:
        raise ValueError(
            f"The statistics of {key!r} have {len(statistics.min)} dimensions; actions have {dim}."
        )
    if not all(
        np.isfinite(values).all()
        for values in (statistics.min, statistics.max, statistics.mean, statistics.std)
    ):
        raise ValueError(
            f"The statistics of {key!r} are not finite: an action in the data is NaN or infinite."
        )
    if not (statistics.max > statistics.min).any():
        always = np.round(statistics.min, 4).tolist()
        raise ValueError(
            f"The statistics of {key!r} have zero range in each of the {dim} dimensions (always "
            f"{always}): no action in the data moves the robot."
        )
