"""The small arrays of episodes (all except images and actions) at chosen steps."""

from collections.abc import Sequence

import numpy as np

from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.store.episode import StoredEpisode


def window_starts(episode: StoredEpisode, cameras: Sequence[Camera], every_step: bool) -> Array:
    """Returns the first steps (S,) of windows: steps with a new image and step 0, or all steps."""
    new = np.full(episode.steps, every_step or not cameras)
    new[:1] = True
    for camera in cameras:
        new[1:] |= np.diff(episode.arrays[f"frame/{camera.name}"]) != 0
    return np.flatnonzero(new)


def small_arrays(
    episodes: Sequence[StoredEpisode], steps: Sequence[Array], contract: Contract
) -> dict[str, Array]:
    """Returns all arrays except images and actions at steps (S,) of each episode, concatenated.

    The result has arrays (sum of S, ...) for the keys that every episode has, with `frame/<camera>`
    of the cameras of the contract.
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
        for key in (f"intrinsics/{camera.name}", f"T_base_camera/{camera.name}"):
            if key in arrays:
                stored = arrays[key]
                fixed = stored.ndim == 2  # One matrix for the whole episode.
                repeated = np.broadcast_to(stored, (len(steps), *stored.shape)) if fixed else None
                small[key] = stored[frames] if repeated is None else repeated
    return small
