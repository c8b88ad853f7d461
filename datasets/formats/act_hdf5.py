"""Reader and writer of ACT's HDF5: one file per episode, with raw or JPEG images.

Layout (Zhao et al., 2023, and its successors): `observations/qpos`, `observations/qvel`,
`action` (T, 14), and for each camera `observations/images/<camera>`, either (T, H, W, 3) uint8
or JPEG, one padded row (T, N) uint8 or one string of bytes per frame. Recorders of RGB-D
cameras, such as that of Cobot Magic, add `observations/images_depth/<camera>` (T, H, W).
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.command.installation import optional_library
from stringline.datasets.contract.contract import SERIES, Array, Camera
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.formats import exporting, hdf5
from stringline.datasets.formats.checks import (
    equal_lengths,
    image,
    inside,
    joined,
    numbers,
    visible_files,
)
from stringline.datasets.formats.foreign import (
    UNUSED_IMAGES,
    ForeignDataError,
    Frames,
    ImportedEpisode,
    Reference,
    SkippedFields,
    camera_times,
    chosen_cameras,
    keys_of,
    last_number,
    named_rate,
)
from stringline.datasets.formats.image_codecs import (
    UNIT_M,
    DepthOptions,
    check_pixels,
    decoded,
    depth_counts,
    jpeg,
    stored_unit,
)
from stringline.datasets.formats.vector_layout import AlohaLayout, VectorLayout, joint_arrays
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore

IMAGES = "observations/images"
DEPTHS = "observations/images_depth"
COLOURS = 3


@dataclass(frozen=True)
class ActCamera:
    """A camera of the contract and its data sets; `depth` is None without depth.

    `unit_m` are the metres per stored number of depth.
    """

    camera: Camera
    colour: str
    depth: str | None = None
    unit_m: float = UNIT_M

    @property
    def keys(self) -> list[str]:
        """The data sets."""
        return [self.colour, *([self.depth] if self.depth else [])]


def act_cameras(
    file: Any, chosen: Mapping[str, str] | None, options: DepthOptions
) -> list[ActCamera]:
    """Returns the cameras of an open file: all, or the `chosen` ones with their new names.

    Raises:
        ForeignDataError: A data set has no images, or depth belongs to no camera.
        ValueError: The unit of the depth is not given.
    """
    colours, depths = (hdf5.members(file, group) for group in (IMAGES, DEPTHS))
    try:
        paired = options.paired(colours, depths)
    except ValueError as error:  # Of this file; the next one may have all cameras.
        raise ForeignDataError(str(error)) from None
    return [
        _camera(file, name, new, paired.get(name), options)
        for name, new in chosen_cameras(chosen, colours).items()
    ]


def act_images(path: Path, cameras: Sequence[ActCamera], *, swap: bool) -> dict[str, Frames]:
    """Returns functions that yield the frames of each camera by key; `swap` red and blue."""
    found: dict[str, Frames] = {}
    for entry in cameras:
        found[f"rgb/{entry.camera.name}"] = partial(_colours, path, entry, swap=swap)
        if entry.depth is not None:
            found[f"depth/{entry.camera.name}"] = partial(_depths, path, entry, entry.depth)
    return found


def _camera(file: Any, name: str, new: str, depth: str | None, options: DepthOptions) -> ActCamera:
    colour = f"{IMAGES}/{name}"
    first = _first(file, colour)
    if first.ndim != 3 or first.shape[2] != COLOURS:
        raise ForeignDataError(
            f"{colour} has frames of shape {first.shape}; allowed: (H, W, 3), or JPEG."
        )
    height, width = first.shape[:2]
    check_pixels(colour, width, height)
    if depth is None:
        return ActCamera(Camera(new, height, width, has_geometry=False), colour)
    key = f"{DEPTHS}/{depth}"
    behind = _first(file, key)
    if behind.shape[:2] != (height, width):
        raise ForeignDataError(
            f"{key} has frames of shape {behind.shape}, {colour} of {first.shape}; allowed: depth "
            "that is aligned with the colours."
        )
    unit = options.unit_of(key, None)
    stored = stored_unit(behind.dtype, unit)
    camera = Camera(new, height, width, options.checked_source, stored, has_geometry=False)
    return ActCamera(camera, colour, key, unit)


def _first(file: Any, key: str) -> Array:
    """Returns the first frame of a data set."""
    rows = hdf5.rows(hdf5.dataset(file, key), key, 0, 1)
    if not len(rows):
        raise ForeignDataError(f"{key} has no frames.")
    return _decoded(key, 0, rows[0])


def _colours(path: Path, entry: ActCamera, *, swap: bool) -> Iterator[Array]:
    camera = entry.camera
    for frame, row in hdf5.each_row(path, entry.colour):
        found = _decoded(entry.colour, frame, row)
        found = image(entry.colour, frame, found, camera.height, camera.width)
        yield found[..., ::-1] if swap else found


def _depths(path: Path, entry: ActCamera, key: str) -> Iterator[Array]:
    camera = entry.camera
    size = camera.height, camera.width
    for frame, row in hdf5.each_row(path, key):
        found = _decoded(key, frame, row)
        yield depth_counts((key, frame), found, size, entry.unit_m, camera.depth_unit_m)


def _decoded(key: str, frame: int, row: Any) -> Array:
    """Returns the image of a raw or encoded row."""
    found = np.frombuffer(row, np.uint8) if isinstance(row, bytes) else np.asarray(row)
    return decoded(key, frame, found.tobytes()) if found.ndim == 1 else found


QPOS = "observations/qpos"
QVEL = "observations/qvel"
RATE = "control_hz"
"""Attribute of our exports."""
_USUAL_RATES = ": 50 for recordings of ALOHA and ACT, 30 for those of Cobot Magic"
LENGTHS = "compress_len"  # Lengths of padded JPEG images, which have no meaning after decoding.
INSTRUCTION_KEYS = ("instruction", "language_instruction", "language_raw")


class ActHdf5Reader:
    """Reads ACT's HDF5.

    Efforts become `series/observations/effort`, since recordings have them in the servos' units of
    current, not in Nm. The wheels of a mobile base are such a series as well.
    """

    def __init__(
        self,
        layout: VectorLayout,
        *,
        control_hz: float | None = None,
        state: str | Sequence[str] | None = QPOS,
        action: str | Sequence[str] = "action",
        cameras: Mapping[str, str] | None = None,
        swap_colours: bool = False,
        depth: Mapping[str, str] | None = None,
        depth_unit_m: float | None = None,
        depth_source: str = "measured",
    ) -> None:
        """Sets the interpretation of the numbers.

        Args:
            layout: Meaning of the numbers.
            control_hz: Steps per second, 50 for ALOHA, 30 for Cobot Magic; required, except for our
                own exports.
            state: The data set of joint positions, a list [NAME, NAME] of several, or None.
            action: The data set of actions, or a list of several.
            cameras: {cam_high: overhead, ...} selects and renames these cameras; None: all; {}:
                none.
            swap_colours: Whether red and blue are swapped in JPEG images, as in RGB images encoded
                by OpenCV.
            depth: {cam_high: front, ...} pairs names in images with names in images_depth; None:
                equal names; {}: no depth.
            depth_unit_m: Metres per stored number of depth, 0.001 for mm, 1 for m; required with
                depth.
            depth_source: Origin of the depth: measured, simulated or estimated.
        """
        self._layout = layout
        self._hz = None if control_hz is None else named_rate(control_hz, "")
        self._state = keys_of("format.state", state)
        self._action = keys_of("format.action", action, needed=True)
        self._cameras = cameras
        self._swap = swap_colours
        self._depth = DepthOptions(depth, depth_unit_m, depth_source)

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists the files of a folder in the order of their numbers, or a single file."""
        files = (
            [path]
            if path.is_file()
            else sorted(visible_files(path, "*.hdf5", "*.h5"), key=_by_numbers)
        )
        if not files:
            raise ValueError(f"There are no .hdf5 files in {path}.")
        for number, file in enumerate(files):
            yield Reference(
                file.name, last_number(file.stem, number), partial(self._read, path, file)
            )

    def _read(self, root: Path, path: Path) -> ImportedEpisode:
        inside(root, path)
        with hdf5.opened(path) as file:
            state_names, state = _vector(file, self._state)
            action_names, action = _vector(file, self._action)
            cameras = act_cameras(file, self._cameras, self._depth)
            images = [key for entry in cameras for key in entry.keys]
            speed = self._speed(file)
            vectors = {**dict.fromkeys(self._action, len(action))}
            vectors |= dict.fromkeys(self._state, len(state))
            vectors |= {} if speed is None else {QVEL: len(speed)}
            frames = {key: len(hdf5.dataset(file, key)) for key in images}
            steps = equal_lengths({**vectors, **frames})
            extra, skipped_fields = self._others(file, {*vectors, *images}, steps)
            instruction = _instruction(file, skipped_fields)
            simulated = bool(hdf5.attribute(file, "sim"))
            stated = hdf5.attribute(file, RATE) if self._hz is None else self._hz
        hz = named_rate(stated, "ACT's HDF5", _USUAL_RATES)
        meaning = self._layout.meaning(state_names, action_names)
        contract = meaning.contract([entry.camera for entry in cameras], hz)
        time = np.arange(steps) / hz
        arrays = {
            "time": time,
            **joint_arrays(
                meaning,
                (" + ".join(self._state), state if self._state else None),
                (" + ".join(self._action), action),
            ),
            **camera_times(contract, time),
            **extra,
        }
        if speed is not None:
            arrays["joints/velocity"] = meaning.state.imported_rates(state, speed)
        return ImportedEpisode(
            contract,
            arrays,
            act_images(path, cameras, swap=self._swap),
            instruction=instruction,
            extra={"simulated": simulated},
            skipped_fields=skipped_fields,
        )

    def _speed(self, file: Any) -> Array | None:
        """Returns the velocities (T, D) of the usual state, if they were recorded."""
        if self._state != (QPOS,) or hdf5.item_at(file, QVEL) is None:
            return None
        return numbers(QVEL, hdf5.rows(hdf5.dataset(file, QVEL), QVEL))

    @staticmethod
    def _others(
        file: Any, read: Collection[str], steps: int
    ) -> tuple[dict[str, Array], dict[str, str]]:
        """Returns further series, and what is left out, images of other cameras among it."""
        used = {*INSTRUCTION_KEYS, *read}
        known = [key for key in hdf5.keys(file) if key.startswith(LENGTHS)]
        others = {
            key: UNUSED_IMAGES
            for key in hdf5.keys(file)
            if key.startswith((f"{IMAGES}/", f"{DEPTHS}/")) and key not in used
        }
        extra, skipped_fields = hdf5.others(file, {*used, *known, *others}, steps)
        return extra, skipped_fields | others


def _vector(file: Any, keys: Sequence[str]) -> tuple[list[str], Array]:
    """Returns the names and values (T, D) of the numbers of some data sets."""
    names, values = joined({key: hdf5.rows(hdf5.dataset(file, key), key) for key in keys})
    return [name.removeprefix("observations/") for name in names], values


def _instruction(file: Any, skipped_fields: dict[str, str]) -> str:
    """Returns the first instruction of a file and adds others to `skipped_fields`."""
    for key in INSTRUCTION_KEYS:
        if found := hdf5.texts(file, key):
            if len(set(found)) > 1:
                skipped_fields[key] = "instructions after the first one"
            return found[0]
    return ""


def _by_numbers(path: Path) -> tuple[list[int], str]:
    return [int(digits) for digits in re.findall(r"\d+", path.stem)], path.name


RESERVED = ("action", "observations/qpos", "observations/qvel", "observations/images", "compress")
# An import computes the poses of the grippers from the joints.
HELD = ("rgb", "action", "joints/position", "joints/velocity", "T_base_gripper", "instruction")


class ActHdf5Writer:
    """Writes ACT's HDF5 of ALOHA, without depth, geometry and times.

    Velocities that are not in the store are differences of positions. Further series get the names
    that they had, and `instruction` is an attribute of the file.
    """

    def __init__(
        self,
        *,
        state_gripper: str | Mapping[str, float] | None = None,
        action_gripper: str | Mapping[str, float] | None = None,
        cameras: Mapping[str, str] | None = None,
        jpeg_quality: int | None = None,
    ) -> None:
        """Sets the options of the export.

        Args:
            state_gripper: Gripper convention of the states: opening, aloha1_follower_share, ... of
                `GRIPPER_CONVENTIONS`, or its ends; required.
            action_gripper: Gripper convention of the actions; required.
            cameras: {overhead: cam_high, ...} selects and renames these cameras; if None, all.
            jpeg_quality: Quality of JPEG images, 1 to 95; if None, raw images.
        """
        if jpeg_quality is not None and not 1 <= jpeg_quality <= 95:
            raise ValueError(
                f"target.jpeg_quality is {jpeg_quality}; allowed: 1 to 95, or null for raw images."
            )
        names = [joint.name for joint in ALOHA.joints]
        self._meaning = AlohaLayout(state_gripper, action_gripper, options="target").meaning(
            names, names
        )
        self._cameras = cameras
        self._quality = jpeg_quality

    def write(self, store: EpisodeStore, path: Path) -> SkippedFields:
        """Writes `episode_0.hdf5` and so on into a new folder; returns what the format lacks.

        Raises:
            ValueError: The episodes do not have the 14 joints and absolute targets of ALOHA.
            NoSpaceError: The disk is full; no folder is left.
        """
        episodes = exporting.episodes_of(store)
        contract = episodes[0].attributes.contract
        expected = ALOHA.contract([], contract.control_hz)
        if (contract.joints, contract.action) != (expected.joints, expected.action):
            raise ValueError(
                f"ACT's HDF5 is for the 14 joints and absolute targets of ALOHA; {store.path} has "
                f"{contract.embodiment}."
            )
        cameras = exporting.chosen_cameras(contract, self._cameras)
        with exporting.complete(
            path, exporting.size_of_images(episodes, cameras, depth=False)
        ) as folder:
            folder.mkdir()
            for number, episode in exporting.with_progress(episodes):
                self._write(folder / f"episode_{number}.hdf5", episode, cameras)
        series = [key for each in episodes for key in _further(each)]
        return exporting.skipped_fields(episodes, {*HELD, *series}, cameras)

    def _write(self, path: Path, episode: StoredEpisode, cameras: Mapping[str, str]) -> None:
        arrays = episode.arrays
        position = np.asarray(arrays["joints/position"], np.float64)
        state = self._meaning.state.exported(position)
        if "joints/velocity" in arrays:
            speed = self._meaning.state.exported_rates(
                position, np.asarray(arrays["joints/velocity"], np.float64)
            )
        else:
            speed = (
                np.gradient(state, arrays["time"], axis=0)
                if len(state) > 1
                else np.zeros_like(state)
            )
        with optional_library("h5py").File(path, "w") as file:
            # In ACT, `sim` means that action[t] belongs to observation[t]; it shifts the actions of
            # all other files by a step.
            file.attrs["sim"] = True
            file.attrs[RATE] = episode.attributes.contract.control_hz
            file.attrs["compress"] = self._quality is not None
            file["action"] = self._meaning.action.exported(np.asarray(arrays["action"], np.float64))
            file["observations/qpos"] = state
            file["observations/qvel"] = np.ascontiguousarray(speed, np.float32)
            if episode.attributes.instruction:
                file.attrs["instruction"] = episode.attributes.instruction
            for key in _further(episode):
                file[key.removeprefix(SERIES)] = np.asarray(arrays[key])
            lengths = [self._images(file, episode, name, new) for name, new in cameras.items()]
            if self._quality is not None:
                file["compress_len"] = np.array(lengths, np.float32)

    def _images(self, file: Any, episode: StoredEpisode, name: str, new: str) -> list[int]:
        """Writes the images of a camera and returns their compressed lengths."""
        images = exporting.images_of(episode, "rgb", name)
        key = f"observations/images/{new}"
        if self._quality is None:
            camera = episode.attributes.contract.camera(name)
            shape = (camera.height, camera.width, 3)
            data = file.create_dataset(key, (episode.steps, *shape), np.uint8, chunks=(1, *shape))
            for step, image in enumerate(images):
                data[step] = image
            return []
        encoded = [np.frombuffer(jpeg(image, self._quality), np.uint8) for image in images]
        longest = max(map(len, encoded))
        file.create_dataset(
            key, data=np.stack([_padded(row, longest) for row in encoded]), chunks=(1, longest)
        )
        return [len(row) for row in encoded]


def _further(episode: StoredEpisode) -> list[str]:
    """Returns the keys of the further series whose names are free in the file."""
    keys = [key for key in episode.entries if key.startswith(SERIES)]
    return [
        key
        for key in keys
        if not key.removeprefix(SERIES).startswith(RESERVED)
        # A name is that of a data set or of a group.
        and not any(other.startswith(f"{key}/") for other in keys)
    ]


def _padded(row: Array, length: int) -> Array:
    return np.pad(row, (0, length - len(row)))
