"""Checks of observations, actions and episodes against their contract."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import (
    SERIES,
    Array,
    Camera,
    Contract,
    EpisodeArrays,
    Observation,
)

OPTIONAL_STEP_KEYS = ("reward", "stage", "sim/state")


@dataclass(frozen=True)
class _Expected:
    """Shape and type of one array."""

    key: str
    shape: tuple[int, ...]
    dtype: str
    required: bool = True


def _camera_arrays(camera: Camera) -> Iterator[_Expected]:
    size = (camera.height, camera.width)
    yield _Expected(f"rgb/{camera.name}", (*size, 3), "uint8")
    yield _Expected(f"depth/{camera.name}", size, "uint16", required=camera.depth is not None)
    yield _Expected(f"time/{camera.name}", (), "float64")
    yield _Expected(f"intrinsics/{camera.name}", (3, 3), "float32", required=camera.has_geometry)
    yield _Expected(f"T_base_camera/{camera.name}", (4, 4), "float32", required=camera.has_geometry)


def _state_arrays(contract: Contract) -> Iterator[_Expected]:
    joints = (len(contract.joints),)
    yield _Expected("time", (), "float64")
    yield _Expected("joints/position", joints, "float32", required=bool(contract.joints))
    yield _Expected("joints/velocity", joints, "float32", required=False)
    yield _Expected("joints/effort", joints, "float32", required=False)
    for arm in contract.arms:
        yield _Expected(f"T_base_gripper/{arm}", (4, 4), "float32")


def check_observation(
    observation: Observation, contract: Contract, *, cameras: bool = True
) -> None:
    """Checks keys, shapes, types and finiteness of one observation, arrays without a time axis.

    Without `cameras` only the state is checked. Errors name the key and the allowed value.
    """
    expected = list(_state_arrays(contract))
    if cameras:
        expected += [entry for camera in contract.cameras for entry in _camera_arrays(camera)]
    for entry in expected:
        if entry.key in observation:
            _check(entry.key, observation[entry.key], entry.shape, entry.dtype)
        elif entry.required:
            raise unknown_name("observation key", entry.key, observation)


def observation_bytes(contract: Contract) -> int:
    """Returns the bytes of the arrays of a complete observation, with all optional ones."""
    arrays = list(_state_arrays(contract))
    arrays += [entry for camera in contract.cameras for entry in _camera_arrays(camera)]
    return sum(math.prod(entry.shape) * np.dtype(entry.dtype).itemsize for entry in arrays)


def check_action(action: Array, contract: Contract) -> None:
    """Checks that actions (..., A) have the dimensions of the contract and are finite."""
    if action.ndim < 1 or action.shape[-1] != len(contract.action):
        raise ValueError(
            f"An action has {len(contract.action)} dimensions (last axis); got shape "
            f"{action.shape}."
        )
    if not np.isfinite(action).all():
        bad = contract.action[int(np.argwhere(~np.isfinite(action))[0][-1])].name
        raise ValueError(f"The action is not finite at {bad!r}.")


def check_episode(arrays: EpisodeArrays, contract: Contract) -> None:
    """Checks a whole episode against the contract; errors name the key and the allowed value."""
    if "time" not in arrays or arrays["time"].ndim != 1 or not len(arrays["time"]):
        raise ValueError("An episode needs `time` of shape (T,) with at least one step.")
    steps = len(arrays["time"])
    for entry in _state_arrays(contract):
        _check_series(arrays, entry, (steps,))
    _check_series(arrays, _Expected("action", (len(contract.action),), "float32"), (steps,))
    for camera in contract.cameras:
        _check_camera_series(arrays, camera, steps)
    for key in OPTIONAL_STEP_KEYS:
        if key in arrays and len(arrays[key]) != steps:
            raise ValueError(f"{key} has {len(arrays[key])} steps, time has {steps}.")
    for key in arrays:
        if key.startswith(SERIES):
            _check_further(key, arrays[key], steps)
    if (np.diff(arrays["time"]) <= 0).any():
        raise ValueError(
            f"time does not increase at step {int(np.argmax(np.diff(arrays['time']) <= 0)) + 1}."
        )


def _check_camera_series(arrays: EpisodeArrays, camera: Camera, steps: int) -> None:
    frames = len(arrays.get(f"rgb/{camera.name}", ()))
    if not frames:
        raise unknown_name("episode key", f"rgb/{camera.name}", arrays)
    for entry in _camera_arrays(camera):
        fixed = entry.key.startswith("intrinsics/") or (
            entry.key.startswith("T_base_camera/")
            and entry.key in arrays
            and arrays[entry.key].ndim == 2
        )
        _check_series(arrays, entry, () if fixed else (frames,))
    size = (camera.height, camera.width)
    segments = _Expected(f"segmentation/{camera.name}", size, "uint8", required=False)
    _check_series(arrays, segments, (frames,))
    key = f"frame/{camera.name}"
    _check_series(arrays, _Expected(key, (), "int32"), (steps,))
    if arrays[key].min() < 0 or arrays[key].max() >= frames:
        raise ValueError(
            f"{key} points at frames {arrays[key].min()} to {arrays[key].max()}; there are "
            f"{frames}."
        )


def _check_further(key: str, array: Array, steps: int) -> None:
    """Checks a further series: floats with one row per step."""
    if array.dtype not in (np.float32, np.float64):
        raise ValueError(f"{key} has type {array.dtype}; allowed: float32 and float64.")
    _check(key, array, (steps, *array.shape[1:]), array.dtype.name)


def _check_series(arrays: EpisodeArrays, entry: _Expected, leading: tuple[int, ...]) -> None:
    if entry.key in arrays:
        _check(entry.key, arrays[entry.key], (*leading, *entry.shape), entry.dtype)
    elif entry.required:
        raise unknown_name("episode key", entry.key, arrays)


def _check(key: str, array: Array, shape: tuple[int, ...], dtype: str) -> None:
    if array.dtype != np.dtype(dtype):
        raise ValueError(f"{key} has type {array.dtype}; allowed: {dtype}.")
    if array.shape != shape:
        raise ValueError(f"{key} has shape {array.shape}; allowed: {shape}.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = tuple(int(index) for index in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{key} is not finite at index {where}.")
