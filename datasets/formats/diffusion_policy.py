"""Reading diffusion_policy's replay buffers: zarr format 2, in a folder or a zip file."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from stringline.datasets.contract import Array, Camera
from stringline.datasets.formats.body import Body, joint_arrays
from stringline.datasets.formats.checks import numbers, picture
from stringline.datasets.formats.foreign import ForeignDataError, ForeignEpisode, Frames, Reference, camera_times
from stringline.datasets.formats.replay_buffer import ReplayBuffer
from stringline.datasets.names import unknown_name

COLOURS = 3


class DiffusionPolicy:
    """Reads replay buffers."""

    def __init__(
        self,
        body: Body,
        *,
        control_hz: float | None = None,
        state: str | None = "state",
        action: str = "action",
        cameras: Mapping[str, str] | None = None,
    ) -> None:
        """Sets how the series are to be understood.

        Args:
            body: What the numbers of state and action mean.
            control_hz: Steps per second; the files do not say it.
            state: The series of joint positions; None where there is none.
            action: The series of actions.
            cameras: Series to take as cameras, each with the camera's name; None takes all that hold pictures.

        Raises:
            ValueError: The rate is not named.
        """
        self._hz = named_rate(control_hz)
        self._body, self._state, self._action, self._cameras = body, state, action, cameras

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists a replay buffer.

        Raises:
            ValueError: It is none, or a series does not exist.
        """
        buffer = ReplayBuffer(path)
        for key in (*(self._cameras or ()), self._action, *([self._state] if self._state else [])):
            if key not in buffer.shapes:
                raise ValueError(f"{unknown_name('series', key, buffer.shapes)} With their shapes: {buffer.offered()}.")
        cameras = replay_cameras(buffer, self._cameras)
        for number, bounds in enumerate(buffer.bounds):
            yield Reference(path.name, number, partial(self._read, buffer, cameras, bounds))

    def _read(self, buffer: ReplayBuffer, cameras: Mapping[str, Camera], bounds: tuple[int, int]) -> ForeignEpisode:
        names = [_columns(buffer, key) if key else [] for key in (self._state, self._action)]
        meaning = self._body.meaning(*names)
        state = numbers(self._state, buffer.rows(self._state, *bounds)) if self._state else None
        action = numbers(self._action, buffer.rows(self._action, *bounds))
        time = np.arange(len(action)) / self._hz
        contract = meaning.contract(list(cameras.values()), self._hz)
        arrays = {"time": time, **joint_arrays(meaning, (self._state or "", state), (self._action, action))}
        return ForeignEpisode(contract, arrays | camera_times(contract, time), replay_pictures(buffer, cameras, bounds))


def named_rate(control_hz: float | None) -> float:
    """Returns the rate.

    Raises:
        ValueError: It was not named.
    """
    if control_hz is None:
        raise ValueError("A replay buffer does not say how many steps make a second; name it, format.control_hz=NUMBER.")
    return control_hz


def replay_cameras(buffer: ReplayBuffer, chosen: Mapping[str, str] | None) -> dict[str, Camera]:
    """Returns the camera of each series that holds pictures (N, H, W, 3), or of the chosen ones."""
    pictures = [key for key, shape in buffer.shapes.items() if len(shape) == 4 and shape[3] == COLOURS]
    wanted = chosen or {key: key for key in pictures}
    for key in wanted:
        if key not in pictures:
            raise unknown_name("series with pictures", key, pictures)
    sizes = {key: buffer.shapes[key][1:3] for key in wanted}
    return {key: Camera(name, sizes[key][0], sizes[key][1], has_geometry=False) for key, name in wanted.items()}


def replay_pictures(buffer: ReplayBuffer, cameras: Mapping[str, Camera], bounds: tuple[int, int]) -> dict[str, Frames]:
    """Returns what starts a pass over the frames of each camera in an episode."""
    return {f"rgb/{camera.name}": partial(_pictures, buffer, key, camera, bounds) for key, camera in cameras.items()}


def _pictures(buffer: ReplayBuffer, key: str, camera: Camera, bounds: tuple[int, int]) -> Iterator[Array]:
    for frame, row in enumerate(buffer.each_row(key, *bounds)):
        yield picture(f"data/{key}", frame, _bytes(key, frame, row), camera.height, camera.width)


def _bytes(key: str, frame: int, row: Array) -> Array:
    """Returns a picture as uint8; diffusion_policy's PushT has floats from 0 to 255."""
    if row.dtype.kind != "f":
        return row
    if not (row.min() >= 0 and row.max() <= 255):
        raise ForeignDataError(f"data/{key} at frame {frame} has values from {row.min()} to {row.max()}; allowed: 0 to 255.")
    if 0 < row.max() <= 1:
        raise ForeignDataError(f"data/{key} at frame {frame} has values up to {row.max()}; allowed: 0 to 255. Is white 1?")
    return np.rint(row).astype(np.uint8)


def _columns(buffer: ReplayBuffer, key: str) -> Sequence[str]:
    shape = buffer.shapes[key]
    if len(shape) != 2:
        raise ForeignDataError(f"data/{key} has shape {shape}; allowed: (N, D).")
    return [f"{key}_{column}" for column in range(shape[1])]
