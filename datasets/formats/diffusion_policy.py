"""Reading diffusion_policy's replay buffers: zarr format 2, in a folder or a zip file."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from stringline.datasets.contract import DepthSource
from stringline.datasets.formats.body import Body, joint_arrays
from stringline.datasets.formats.checks import numbers
from stringline.datasets.formats.depth import checked_source
from stringline.datasets.formats.foreign import ForeignDataError, ForeignEpisode, Reference, camera_times
from stringline.datasets.formats.replay_buffer import ReplayBuffer
from stringline.datasets.formats.replay_cameras import ReplayCamera, replay_cameras, replay_pictures
from stringline.datasets.names import unknown_name


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
        depth_source: str = "measured",
    ) -> None:
        """Sets how the series are to be understood.

        Args:
            body: What the numbers of state and action mean.
            control_hz: Steps per second; the files do not say it.
            state: The series of joint positions; None where there is none.
            action: The series of actions.
            cameras: Series to take as cameras, each with the camera's name; None takes all that hold pictures. The depth of
                `<series>` is `<series>_depth`, where that is there.
            depth_source: Where depth comes from: `measured`, `simulated` or `estimated`.

        Raises:
            ValueError: The rate is not named, or there is no such source of depth.
        """
        self._hz = named_rate(control_hz)
        self._body, self._state, self._action, self._cameras = body, state, action, cameras
        self._source: DepthSource = checked_source(depth_source)

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists a replay buffer.

        Raises:
            ValueError: It is none, or a series does not exist.
        """
        buffer = ReplayBuffer(path)
        for key in (*(self._cameras or ()), self._action, *([self._state] if self._state else [])):
            if key not in buffer.shapes:
                raise ValueError(f"{unknown_name('series', key, buffer.shapes)} With their shapes: {buffer.offered()}.")
        cameras = replay_cameras(buffer, self._cameras, self._source)
        for number, bounds in enumerate(buffer.bounds):
            yield Reference(path.name, number, partial(self._read, buffer, cameras, bounds))

    def _read(self, buffer: ReplayBuffer, cameras: Sequence[ReplayCamera], bounds: tuple[int, int]) -> ForeignEpisode:
        names = [_columns(buffer, key) if key else [] for key in (self._state, self._action)]
        meaning = self._body.meaning(*names)
        state = numbers(self._state, buffer.rows(self._state, *bounds)) if self._state else None
        action = numbers(self._action, buffer.rows(self._action, *bounds))
        time = np.arange(len(action)) / self._hz
        contract = meaning.contract([entry.camera for entry in cameras], self._hz)
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


def _columns(buffer: ReplayBuffer, key: str) -> Sequence[str]:
    shape = buffer.shapes[key]
    if len(shape) != 2:
        raise ForeignDataError(f"data/{key} has shape {shape}; allowed: (N, D).")
    return [f"{key}_{column}" for column in range(shape[1])]
