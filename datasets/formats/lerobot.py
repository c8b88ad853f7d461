"""Reader of LeRobotDataset v2.0, v2.1 and v3.0: parquet files, with videos or single images."""

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array, DepthSource
from stringline.datasets.formats import parquet
from stringline.datasets.formats.checks import image, increasing, numbers
from stringline.datasets.formats.foreign import (
    ForeignDataError,
    ForeignEpisode,
    Frames,
    Reference,
    camera_times,
)
from stringline.datasets.formats.image_codecs import (
    checked_source,
    counts,
    decoded,
    metres_of_codes,
)
from stringline.datasets.formats.lerobot_info import read_info
from stringline.datasets.formats.lerobot_tables import (
    FeatureCamera,
    ImageFeature,
    Location,
    cameras_of,
    locations,
    names_of,
)
from stringline.datasets.formats.vector_layout import VectorLayout, joint_arrays
from stringline.datasets.formats.video import frames_at

REWARD = "next.reward"
SUCCESS = "next.success"
BOOKKEEPING = (
    "timestamp",
    "frame_index",
    "episode_index",
    "index",
    "task_index",
    "next.done",
    REWARD,
    SUCCESS,
)
_log = logging.getLogger(__name__)


class LeRobotReader:
    """Reads LeRobotDatasets."""

    def __init__(
        self,
        layout: VectorLayout,
        *,
        state: str | None = "observation.state",
        action: str = "action",
        cameras: Mapping[str, str] | None = None,
        depth: Mapping[str, str] | None = None,
        depth_source: str = "measured",
    ) -> None:
        """Sets the interpretation of the features.

        Args:
            layout: Meaning of the numbers of state and action.
            state: The feature with joint positions, or None.
            action: The feature with absolute joint targets.
            cameras: Name of the camera by feature; None takes all features with their own names.
            depth: Feature of the depth by feature of the colours; None pairs `<name>_depth` with
                `<name>`.
            depth_source: Source of the depth: `measured`, `simulated` or `estimated`.
        """
        self._layout = layout
        self._state = state
        self._action = action
        self._cameras = cameras
        self._depth = depth
        self._source: DepthSource = checked_source(depth_source)
        self._table: tuple[Path, Any] | None = None

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists a data set."""
        info = read_info(path)
        features = info["features"]
        cameras = cameras_of(features, self._cameras, self._depth, self._source)
        used = {
            feature.key for entry in cameras for feature in (entry.colour, entry.depth) if feature
        }
        left = sorted({*features} - used - {*BOOKKEEPING, self._state, self._action})
        if left:
            _log.info("These features are left out: %s.", ", ".join(left))
        number = 0
        try:
            for location in locations(path, info):
                file = location.data.relative_to(path).as_posix()
                yield Reference(file, location.number, partial(self._read, info, cameras, location))
                number = location.number + 1
        except ForeignDataError as error:  # The entries before the damage are valid.
            yield Reference("meta", number, partial(_fail, str(error)))

    def _read(
        self, info: Mapping[str, Any], cameras: list[FeatureCamera], location: Location
    ) -> ForeignEpisode:
        features = info["features"]
        names = [names_of(features, key) if key else [] for key in (self._state, self._action)]
        meaning = self._layout.meaning(*names)
        wanted = [
            key
            for key in (self._state, self._action, "timestamp", REWARD, SUCCESS)
            if key and key in features
        ]
        start, columns = self._rows(location, wanted)
        time = increasing("timestamp", np.asarray(columns["timestamp"], np.float64).reshape(-1))
        contract = meaning.contract([entry.camera for entry in cameras], float(info["fps"]))
        state = (
            None
            if self._state is None
            else numbers(self._state, columns[self._state], len(names[0]), names[0])
        )
        action = numbers(self._action, columns[self._action], len(names[1]), names[1])
        arrays = {
            "time": time,
            **joint_arrays(meaning, (self._state or "", state), (self._action, action)),
        }
        arrays |= camera_times(contract, time)
        if REWARD in columns:
            arrays["reward"] = np.asarray(columns[REWARD], np.float32).reshape(-1)
        return ForeignEpisode(
            contract,
            arrays,
            self._camera_frames(cameras, location, start, time, float(info["fps"])),
            instruction="; ".join(location.tasks),
            success=bool(columns[SUCCESS].any()) if SUCCESS in columns else None,
        )

    def _rows(self, location: Location, columns: list[str]) -> tuple[int, dict[str, Array]]:
        """Returns the first row of an episode in its file, and its columns."""
        # Successive episodes are in the same file.
        if self._table is None or self._table[0] != location.data:
            self._table = (location.data, parquet.table(location.data, ["episode_index", *columns]))
        table = self._table[1]
        mine = np.flatnonzero(
            parquet.numbers("episode_index", table["episode_index"]) == location.number
        )
        if len(mine) != location.length or (len(mine) and mine[-1] - mine[0] + 1 != len(mine)):
            raise ForeignDataError(
                f"The data has {len(mine)} frames of it, the list of episodes has "
                f"{location.length}."
            )
        if not len(mine):
            raise ForeignDataError("It has no frames.")
        part = table.slice(int(mine[0]), len(mine))
        return int(mine[0]), {key: parquet.numbers(key, part[key]) for key in columns}

    def _camera_frames(
        self, cameras: list[FeatureCamera], location: Location, start: int, time: Array, fps: float
    ) -> dict[str, Frames]:
        found: dict[str, Frames] = {}
        for entry in cameras:
            for kind, feature in (("rgb", entry.colour), ("depth", entry.depth)):
                if feature is not None:
                    read = (
                        partial(self._video, fps=fps, time=time)
                        if feature.video
                        else partial(self._images, start=start)
                    )
                    found[f"{kind}/{entry.camera.name}"] = partial(read, feature, location)
        return found

    @staticmethod
    def _video(
        feature: ImageFeature, location: Location, *, time: Array, fps: float
    ) -> Iterator[Array]:
        path, start = location.videos[feature.key]
        frames = frames_at(path, feature.key, start + time, fps=fps, single_plane=feature.depth)
        for frame, found in enumerate(frames):
            yield _shaped(
                feature, frame, metres_of_codes(found, feature.info) if feature.depth else found
            )

    @staticmethod
    def _images(feature: ImageFeature, location: Location, *, start: int) -> Iterator[Array]:
        rows = parquet.rows(location.data, feature.key, start, start + location.length)
        for frame, row in enumerate(rows):
            yield _shaped(
                feature, frame, decoded(feature.key, frame, _encoded(feature.key, frame, row))
            )


def _fail(message: str) -> ForeignEpisode:
    raise ForeignDataError(message)


def _shaped(feature: ImageFeature, frame: int, found: Array) -> Array:
    return (counts if feature.depth else image)(
        feature.key, frame, found, feature.height, feature.width
    )


def _encoded(key: str, frame: int, row: Any) -> bytes:
    if not row or not row.get("bytes"):
        raise ForeignDataError(f"{key} at frame {frame} is empty.")
    return bytes(row["bytes"])
