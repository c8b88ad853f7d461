"""Reader and writer of diffusion_policy's replay buffers, and reader of UMI's.

Both are zarr format 2, a folder or a zip file. UMI's data are of hand-held grippers with a
camera, poses from SLAM, no joints. Layout of UMI (Chi et al., 2024, arXiv 2402.10329):
`camera<i>_rgb`, `robot<i>_eef_pos` (N, 3) m, `robot<i>_eef_rot_axis_angle` (N, 3) rad,
`robot<i>_gripper_width` (N, 1) m, but no actions: as in UMI's own training, the action of a
step is the pose at the next step.
"""

import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.command.installation import optional_library
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import SERIES, Array
from stringline.datasets.formats import exporting
from stringline.datasets.formats.checks import joined, numbered, numbers
from stringline.datasets.formats.conversions import (
    NumberVector,
    linear,
    pose_dimensions,
    pose_of_vectors,
)
from stringline.datasets.formats.foreign import (
    ImportedEpisode,
    Reference,
    SkippedFields,
    camera_times,
    is_cloud,
    keys_of,
    named_rate,
)
from stringline.datasets.formats.image_codecs import DepthOptions
from stringline.datasets.formats.replay_buffer import (
    UNIT_ATTRIBUTE,
    ReplayBuffer,
    ReplayCamera,
    other_series,
    recorded_buffer,
    recorded_videos,
    replay_cameras,
    replay_images,
    video_cameras,
)
from stringline.datasets.formats.vector_layout import VectorLayout, VectorSpec, joint_arrays
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore

REPLAY_BUFFER = "A replay buffer"


class DiffusionPolicyReader:
    """Reads replay buffers, and raw recordings with `videos/<episode>/<camera>.mp4` beside them."""

    def __init__(
        self,
        layout: VectorLayout,
        *,
        control_hz: float | None = None,
        state: str | Sequence[str] | None = "state",
        action: str | Sequence[str] = "action",
        cameras: Mapping[str, str] | None = None,
        depth: Mapping[str, str] | None = None,
        depth_unit_m: float | None = None,
        depth_source: str = "measured",
    ) -> None:
        """Sets the interpretation of the series.

        Args:
            layout: Meaning of the numbers.
            control_hz: Steps per second; required.
            state: The series of joint positions, a list [NAME, NAME] of several, or None.
            action: The series of actions, or a list of several.
            cameras: {img: overhead, ...} selects and renames these series, of a raw recording the
                videos; None: all with images; {}: none.
            depth: {img: range, ...} pairs series of colours and depth; None: img with img_depth,
                camera_0 with depth_0; {}: no depth.
            depth_unit_m: Metres per stored number of depth, 0.001 for mm, 1 for m; required, except
                for our own exports.
            depth_source: Origin of the depth: measured, simulated or estimated.
        """
        self._hz = named_rate(control_hz, REPLAY_BUFFER)
        self._layout = layout
        self._state = keys_of("format.state", state)
        self._action = keys_of("format.action", action, needed=True)
        self._cameras = cameras
        self._depth = DepthOptions(depth, depth_unit_m, depth_source)

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists a replay buffer.

        Raises:
            ValueError: It is not a replay buffer, or a series does not exist.
        """
        buffer = ReplayBuffer(recorded_buffer(path))
        videos = recorded_videos(buffer.path)
        beside = {}
        if videos and replay_cameras(buffer, None, self._depth):
            beside = {"videos": "the replay buffer contains images"}
            videos = None
        chosen = () if videos else self._cameras or ()
        for key in (*chosen, *self._action, *self._state):
            if key not in buffer.shapes:
                raise ValueError(
                    f"{unknown_name('series', key, buffer.shapes)} With their shapes: "
                    f"{buffer.offered()}."
                )
        cameras = [] if videos else replay_cameras(buffer, self._cameras, self._depth)
        if not (videos or cameras):
            _check_no_clouds(path, buffer)
        for number, bounds in enumerate(buffer.bounds):
            read = partial(self._read, buffer, cameras, bounds, beside)
            read = partial(self._with_videos, read, videos, number) if videos else read
            yield Reference(path.name, number, read)

    def _with_videos(
        self, read: Callable[[], ImportedEpisode], folder: Path, number: int
    ) -> ImportedEpisode:
        """Returns an episode with the videos beside the buffer as its images."""
        episode = read()
        time = episode.arrays["time"]
        found = video_cameras(folder, number, self._cameras, time)
        contract = episode.contract.with_cameras(*(camera for camera, _ in found.values()))
        return replace(
            episode,
            contract=contract,
            arrays={**episode.arrays, **camera_times(contract, time)},
            images={f"rgb/{camera.name}": frames for camera, frames in found.values()},
        )

    def _read(
        self,
        buffer: ReplayBuffer,
        cameras: Sequence[ReplayCamera],
        bounds: tuple[int, int],
        beside: Mapping[str, str],
    ) -> ImportedEpisode:
        state_names, state = _vector(buffer, self._state, bounds)
        action_names, action = _vector(buffer, self._action, bounds)
        meaning = self._layout.meaning(state_names, action_names)
        time = np.arange(len(action)) / self._hz
        contract = meaning.contract([entry.camera for entry in cameras], self._hz)
        arrays = {
            "time": time,
            **joint_arrays(
                meaning,
                (" + ".join(self._state), state if self._state else None),
                (" + ".join(self._action), action),
            ),
        }
        used = [*self._state, *self._action]
        further, skipped_fields = other_series(buffer, used, cameras, bounds)
        return ImportedEpisode(
            contract,
            arrays | camera_times(contract, time) | further,
            replay_images(buffer, cameras, bounds),
            skipped_fields={**skipped_fields, **beside},
        )


def _vector(
    buffer: ReplayBuffer, keys: Sequence[str], bounds: tuple[int, int]
) -> tuple[list[str], Array]:
    """Returns the names and values (T, D) of the numbers of some series of an episode."""
    for key in keys:
        numbered(key, prod(buffer.shapes[key][1:]))  # Too many are refused before they are read.
    return joined({key: buffer.rows(key, *bounds) for key in keys})


def _check_no_clouds(path: Path, buffer: ReplayBuffer) -> None:
    """Refuses a buffer with point clouds and no images, of which no policy would see anything."""
    for key, shape in buffer.shapes.items():
        if is_cloud(key, shape):
            raise ValueError(
                f"{path} has point clouds, data/{key} {shape[1:]}, and the chosen cameras are "
                "none; an import does not read clouds: policy/observation_encoder=points makes "
                "them of images with depth. Import those, such as img and depth (N, H, W), "
                "format.depth_unit_m=NUMBER cameras=FILE, or write them with the data. "
                f"It has: {buffer.offered()}."
            )


CHUNK_BYTES = 2 * 2**20
RESERVED = ("state", "action", "timestamp")
HELD = ("rgb", "depth", "action", "joints/position", "time")


class DiffusionPolicyWriter:
    """Writes `data/state`, `data/action` and `data/timestamp` in the units of the contract.

    Images are `data/<camera>`, depth is `data/<camera>_depth`, further series `data/<name>`.
    """

    def __init__(self, *, cameras: Mapping[str, str] | None = None) -> None:
        """Sets the exported cameras.

        Args:
            cameras: {overhead: img, ...} selects and renames these cameras; if None, all.
        """
        self._cameras = cameras

    def write(self, store: EpisodeStore, path: Path) -> SkippedFields:
        """Writes a folder, or a zip file if the name ends in `.zip`; returns what it lacks.

        Raises:
            ValueError: The episodes have different contracts, or `path` exists.
            NoSpaceError: The disk is full; nothing is left at `path`.
        """
        episodes = exporting.episodes_of(store)
        contract = episodes[0].attributes.contract
        cameras = exporting.chosen_cameras(contract, self._cameras)
        taken = {*RESERVED, *cameras.values()}
        if twice := {*RESERVED} & {*cameras.values()}:
            raise ValueError(
                f"The series {sorted(twice)[0]!r} is reserved; give the camera another name, "
                "target.cameras={...}."
            )
        named = {name: key for name, key in _further(episodes).items() if name not in taken}
        size = exporting.size_of_images(episodes, cameras, depth=True)
        zipped = path.suffix == ".zip"
        with exporting.complete(path, (1 + zipped) * size) as result:
            folder = result.with_name("buffer") if zipped else result
            _fill(folder, episodes, cameras, named)
            if zipped:
                _zip(folder, result)
        return exporting.skipped_fields(episodes, {*HELD, *named.values()}, cameras)


def _further(episodes: list[StoredEpisode]) -> dict[str, str]:
    """Returns the keys of the further series that all episodes have, by their exported names."""
    keys = [key for key in exporting.common_keys(episodes) if key.startswith(SERIES)]
    return {key.removeprefix(SERIES).replace("/", "."): key for key in keys}


def _fill(
    root: Path,
    episodes: list[StoredEpisode],
    cameras: Mapping[str, str],
    further: Mapping[str, str],
) -> None:
    """Writes the groups and every series, one after the other."""
    group = optional_library("zarr").open_group(root, mode="w", zarr_format=2)
    ends = np.cumsum([episode.steps for episode in episodes]).astype(np.int64)
    total = int(ends[-1])
    contract = episodes[0].attributes.contract
    numbers = {
        "timestamp": "time",
        "action": "action",
        **({"state": "joints/position"} if contract.joints else {}),
        **further,
    }
    for key, source in numbers.items():
        _write(group, f"data/{key}", total, (episode.arrays[source] for episode in episodes))
    for name, new in cameras.items():
        _write(group, f"data/{new}", total, _shown(episodes, "rgb", name))
        if contract.camera(name).depth is not None:
            _write(group, f"data/{new}_depth", total, _shown(episodes, "depth", name))
            group[f"data/{new}_depth"].attrs[UNIT_ATTRIBUTE] = contract.camera(name).depth_unit_m
    _write(group, "meta/episode_ends", len(ends), [ends])


def _shown(episodes: list[StoredEpisode], kind: str, camera: str) -> Iterator[Array]:
    for _, episode in exporting.with_progress(episodes):
        for image in exporting.images_of(episode, kind, camera):
            yield image[None]


def _write(group: Any, key: str, rows: int, parts: Iterable[Array]) -> None:
    """Writes an array chunk by chunk from parts (n, ...) of any lengths."""
    array = None
    waiting = []
    written = 0
    for part in parts:
        if array is None:
            array = _created(group, key, (rows, *part.shape[1:]), part.dtype)
        waiting.append(part)
        block = array.chunks[0]
        while sum(map(len, waiting)) >= block:
            joined = np.concatenate(waiting)
            array[written : written + block] = joined[:block]
            waiting = [joined[block:]]
            written += block
    rest = np.concatenate(waiting)
    if array is not None and len(rest):
        array[written:] = rest


def _created(group: Any, key: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    row = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
    codecs = optional_library("numcodecs")
    return group.create_array(
        key,
        shape=shape,
        dtype=dtype,
        chunks=(max(1, min(shape[0], CHUNK_BYTES // row)), *shape[1:]),
        compressors=codecs.Blosc(cname="zstd", clevel=5, shuffle=codecs.Blosc.BITSHUFFLE),
        # Otherwise a chunk of zeros is omitted, like a lost one.
        config={"write_empty_chunks": True},
    )


def _zip(folder: Path, path: Path) -> None:
    """Packs a folder without compression, since its chunks are compressed."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(folder).as_posix())


FRAME = "map"


class UmiReader:
    """Reads UMI's data: states are openings of grippers, actions their next poses and openings."""

    def __init__(
        self,
        *,
        gripper_open_m: float | None = None,
        gripper_closed_m: float = 0.0,
        control_hz: float | None = None,
        cameras: Mapping[str, str] | None = None,
        depth: Mapping[str, str] | None = None,
        depth_unit_m: float | None = None,
    ) -> None:
        """Sets the options that the files do not contain.

        Args:
            gripper_open_m: Width of an open gripper, m, about 0.08; required.
            gripper_closed_m: Width of a closed gripper, m.
            control_hz: Steps per second, 60 or 59.94, the rate of the camera; required.
            cameras: {camera0_rgb: hand, ...} selects and renames these series; None: all series
                with images; {}: none.
            depth: {camera0_rgb: range, ...} pairs series of colours and depth; None: camera0_rgb
                with camera0_depth; {}: no depth.
            depth_unit_m: Metres per stored number of depth, 0.001 for mm, 1 for m; required with
                depth.
        """
        if gripper_open_m is None:
            raise ValueError(
                "UMI stores the width of the gripper in m; set the width of an open gripper, "
                "format.gripper_open_m=NUMBER."
            )
        self._gripper = linear("width_m", "width in m", gripper_closed_m, gripper_open_m)
        self._hz = named_rate(control_hz, REPLAY_BUFFER)
        self._cameras = cameras
        self._depth = DepthOptions(depth, depth_unit_m)

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists a replay buffer.

        Raises:
            ValueError: It is not a replay buffer, or has no grippers.
        """
        buffer = ReplayBuffer(path)
        arms = [key.removesuffix("_eef_pos") for key in buffer.shapes if key.endswith("_eef_pos")]
        if not arms:
            raise ValueError(
                f"{path} is not a buffer of UMI: it has no robot0_eef_pos. It has: "
                f"{buffer.offered()}."
            )
        cameras = replay_cameras(buffer, self._cameras, self._depth)
        for number, bounds in enumerate(buffer.bounds):
            yield Reference(path.name, number, partial(self._read, buffer, cameras, arms, bounds))

    def _read(
        self,
        buffer: ReplayBuffer,
        cameras: Sequence[ReplayCamera],
        arms: list[str],
        bounds: tuple[int, int],
    ) -> ImportedEpisode:
        series = np.concatenate([_series(buffer, arm, bounds) for arm in arms], axis=1)
        motion = NumberVector(
            tuple(d for arm in arms for d in pose_dimensions(arm, FRAME, self._gripper))
        )
        state = motion.imported("robot<i>_eef_pos, _eef_rot_axis_angle, _gripper_width", series)
        grippers = NumberVector(motion.dimensions[6::7])
        meaning = VectorSpec(
            grippers, motion, "umi", "the map of UMI's SLAM; z up where it was aligned with a tag"
        )
        time = np.arange(len(state)) / self._hz
        contract = meaning.contract([entry.camera for entry in cameras], self._hz, arms)
        arrays = {
            "time": time,
            "joints/position": state[:, 6::7],
            "action": np.concatenate([state[1:], state[-1:]]),
            **{
                f"T_base_gripper/{arm}": pose_of_vectors(
                    series[:, 7 * i : 7 * i + 3], series[:, 7 * i + 3 : 7 * i + 6]
                )
                for i, arm in enumerate(arms)
            },
        }
        further, skipped_fields = other_series(buffer, _series_of(arms), cameras, bounds)
        return ImportedEpisode(
            contract,
            arrays | camera_times(contract, time) | further,
            replay_images(buffer, cameras, bounds),
            skipped_fields=skipped_fields,
        )


def _series(buffer: ReplayBuffer, arm: str, bounds: tuple[int, int]) -> Array:
    """Returns position, rotation vector and width (T, 7) of one gripper."""
    return np.concatenate(
        [
            numbers(key, buffer.rows(key, *bounds), width)
            for key, width in _series_of([arm]).items()
        ],
        axis=1,
    )


def _series_of(arms: Sequence[str]) -> dict[str, int]:
    """Returns the series of grippers and their widths."""
    widths = {"eef_pos": 3, "eef_rot_axis_angle": 3, "gripper_width": 1}
    return {f"{arm}_{part}": width for arm in arms for part, width in widths.items()}
