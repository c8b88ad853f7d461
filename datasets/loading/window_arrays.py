"""What a window reads besides images and actions: the small arrays of episodes at chosen steps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.store.episode import StoredEpisode

Array = NDArray[Any]


def window_starts(episode: StoredEpisode, cameras: Sequence[Camera], every_step: bool) -> Array:
    """Returns the steps at which windows begin, (S,): those that brought an image, the first one, or all."""
    new = np.full(episode.steps, every_step or not cameras)
    new[:1] = True
    for camera in cameras:
        new[1:] |= np.diff(episode.arrays[f"frame/{camera.name}"]) != 0
    return np.flatnonzero(new)


def small_arrays(
    episodes: Sequence[StoredEpisode], steps: Sequence[Array], contract: Contract
) -> dict[str, Array]:
    """Returns all arrays but images and actions at the given steps of each episode, one after the other.

    Args:
        episodes: To read.
        steps: (S,) of each of them.
        contract: With the cameras that are read.

    Returns:
        (sum of S, ...) by key, keys that every episode has; `frame/<camera>` included.
    """
    parts = [
        _at(episode, chosen, contract) for episode, chosen in zip(episodes, steps, strict=True)
    ]
    shared = [key for key in parts[0] if all(key in part for part in parts)]
    return {key: np.concatenate([part[key] for part in parts]) for key in shared}


def _at(episode: StoredEpisode, steps: Array, contract: Contract) -> dict[str, Array]:
    arrays = episode.arrays
    state = (
        "time",
        "joints/position",
        "joints/velocity",
        "joints/effort",
        *(f"T_base_gripper/{arm}" for arm in contract.arms),
    )
    small = {key: arrays[key][steps] for key in state if key in arrays}
    for camera in contract.cameras:
        frames = small[f"frame/{camera.name}"] = arrays[f"frame/{camera.name}"][steps]
        small[f"time/{camera.name}"] = arrays[f"time/{camera.name}"][frames]
        for key, fixed_axes in (
            (f"intrinsics/{camera.name}", 2),
            (f"T_base_camera/{camera.name}", 2),
        ):
            if key in arrays:
                stored = arrays[key]
                fixed = stored.ndim == fixed_axes
                small[key] = (
                    np.broadcast_to(stored, (len(steps), *stored.shape))
                    if fixed
                    else stored[frames]
                )
    return small
