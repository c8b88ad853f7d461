"""Recorded gripper poses of a foreign data set against the kinematics of its robot.

Recorders often store the pose of the gripper beside the joints. It is no input, but a kinematic
model with another frame, another base or another order of the joints differs from it.
"""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from stringline.datasets.contract.contract import SERIES, Array
from stringline.datasets.embodiments.embodiment_record import embodiment_of
from stringline.datasets.formats.foreign import ImportedEpisode

FAR_MM = 5.0
"""A larger error of recorded poses is shown as one of the kinematics."""
RECORDED = f"{SERIES}T_base_gripper/"
"""Gripper poses of a data set whose kinematics are known, by arm."""
_POSES = re.compile(
    r"(^|[/_.])((ee|eef|tcp|end_?effector|cartesian)_?(pos|pose|position|xyz)|T_base_gripper)"
    r"($|[/_.])",
    re.IGNORECASE,
)
_COMMANDED = re.compile(r"action|command|target|goal|desired", re.IGNORECASE)


def distances_mm(episode: ImportedEpisode) -> dict[str, float]:
    """Returns how far recorded gripper positions are from those of the kinematics.

    Returns:
        The median over the steps in mm, by the key of the series; empty without kinematics or
        recorded positions.
    """
    arrays = episode.arrays
    if embodiment_of(episode.contract) is None:
        return {}
    found = {}
    for key, series in arrays.items():
        arm = _arm(key, episode.contract.arms) if key.startswith(SERIES) else None
        recorded = None if arm is None else _positions(series)
        if recorded is None:
            continue
        computed = np.asarray(arrays[f"T_base_gripper/{arm}"], np.float64)[:, :3, 3]
        apart = np.linalg.norm(recorded - computed, axis=1)
        found[key] = 1e3 * float(np.median(apart))
    return found


def _arm(key: str, arms: Iterable[str]) -> str | None:
    """Returns the arm whose measured gripper poses a series has by its name, or None."""
    if not _POSES.search(key.removeprefix(SERIES)) or _COMMANDED.search(key):
        return None
    known = list(arms)
    if len(known) == 1:
        return known[0]
    named = [arm for arm in known if arm in re.split(r"[/_.]", key)]
    return named[0] if len(named) == 1 else None


def _positions(series: Array) -> Array | None:
    """Returns positions (T, 3) of poses with 3, 6, 7 or 16 numbers, or matrices; else None."""
    shape = series.shape[1:]
    if shape in ((4, 4), (16,)):
        return np.asarray(series, np.float64).reshape(-1, 4, 4)[:, :3, 3]
    return np.asarray(series[:, :3], np.float64) if shape in ((3,), (6,), (7,)) else None


def described(medians: Mapping[str, Iterable[float]], robot: str) -> list[tuple[bool, str]]:
    """Describes the medians of episodes in mm by series: whether they are far, and a sentence."""
    found = []
    for key, values in medians.items():
        largest = max(values)
        name = key.removeprefix(SERIES)
        sentence = f"The kinematics of {robot} and the recorded {name} differ by {largest:.1f} mm"
        if largest > FAR_MM:
            sentence += (
                f"; allowed: {FAR_MM:g} mm. Is the gripper frame (tcp), the base, the unit or the "
                "order of the joints another one? stringline-data embodiment model=FILE "
                f"recordings=STORE poses={name} compares all frames"
            )
        found.append((largest > FAR_MM, f"{sentence}."))
    return found
