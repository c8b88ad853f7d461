"""Reader of RLDS, the form of Open X-Embodiment: TFDS whose examples are episodes, read directly.

A record is its length (uint64), the masked CRC-32C of the length, its bytes, and their masked
CRC-32C, all little-endian (https://www.tensorflow.org/tutorials/load_data/tfrecord). Its bytes
are a `tf.train.Example`.

The layout is in `features.json` and `dataset_info.json`. TFDS flattens nested features to names
with slashes; the features of an RLDS step, a nested data set, become `steps/<name>` with the
values of all steps one behind the other.

A step has `observation`, `action`, `reward`, `is_first`, `is_last` and `is_terminal` (Ramos et al.,
2021, arXiv 2111.02767); names and meaning of the numbers differ between data sets.
"""

import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.command.installation import optional_library
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera, DepthSource
from stringline.datasets.files.limits import MOST_TABLE_BYTES
from stringline.datasets.formats.checks import (
    STAMPS,
    check_rate,
    image,
    inside,
    joined,
    read_inside,
    visible_files,
)
from stringline.datasets.formats.droid import RLDS_POSES, DroidCalibrations, rlds_poses
from stringline.datasets.formats.foreign import (
    NOT_CHOSEN,
    UNUSED_IMAGES,
    ForeignDataError,
    Frames,
    ImportedEpisode,
    Reference,
    camera_times,
    keys_of,
    named_rate,
)
from stringline.datasets.formats.image_codecs import (
    UNIT_M,
    DepthOptions,
    checked_source,
    counts,
    decoded,
    depth_counts,
    stored_unit,
)
from stringline.datasets.formats.vector_layout import VectorLayout, joint_arrays
from stringline.datasets.store.zarr_layout import DTYPES

EXTRA = "rlds"
_HEAD = struct.Struct("<QI")
_FOOT = struct.Struct("<I")
_PART_BYTES = 2**24

Feature = Array | list[bytes]
"""The values of a feature: numbers (N,) int64 or float32, or byte strings."""


@dataclass(frozen=True)
class Record:
    """The place of a record in its file."""

    path: Path
    number: int
    offset: int
    length: int

    def read(self) -> bytes:
        """Reads the bytes; their checksum is compared before they are in memory at once."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            crc = 0
            for start in range(0, self.length, _PART_BYTES):
                crc = _extended(crc, file.read(min(_PART_BYTES, self.length - start)))
            _check(f"Record {self.number} of {self.path.name}", crc, file.read(_FOOT.size))
            file.seek(self.offset)
            return file.read(self.length)


def records(path: Path) -> Iterator[Record]:
    """Yields the records of a file without reading their bytes.

    Damage of the framing raises `ForeignDataError` behind the records before it.
    """
    size = path.stat().st_size
    number = 0
    with path.open("rb") as file:
        while file.tell() < size:
            offset = file.tell() + _HEAD.size
            head = file.read(_HEAD.size)
            what = f"The length of record {number} of {path.name}"
            _check(what, _extended(0, head[:8]), head[8:])
            length = _HEAD.unpack(head)[0]
            end = offset + length + _FOOT.size
            if end > size:
                raise ForeignDataError(
                    f"{path.name} is truncated: record {number} ends at byte {end}, the file has "
                    f"{size}."
                )
            yield Record(path, number, offset, length)
            file.seek(end)
            number += 1


def example(data: bytes) -> dict[str, Feature]:
    """Returns the features of a `tf.train.Example` by name."""
    errors = optional_library("google.protobuf.message", package="protobuf", extra=EXTRA)
    try:
        message = _example_class().FromString(data)
    except errors.DecodeError as error:
        raise ForeignDataError(f"The record is not a tf.train.Example: {error}.") from error
    return {entry.key: _values(entry.value) for entry in message.features.feature}


def masked_crc32c(data: bytes) -> int:
    """Returns the masked CRC-32C, which TFRecord stores in place of the CRC itself."""
    return _masked(_extended(0, data))


def _extended(crc: int, data: bytes) -> int:
    """Returns the CRC-32C of bytes with the CRC `crc` and of those behind them."""
    library = optional_library("google_crc32c", package="google-crc32c", extra=EXTRA)
    return int(library.extend(crc, data))


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _check(what: str, crc: int, stored: bytes) -> None:
    if len(stored) != _FOOT.size:
        raise ForeignDataError(f"{what} is cut off: the file is truncated.")
    if _FOOT.unpack(stored)[0] != _masked(crc):
        raise ForeignDataError(f"{what} has another checksum: the file is damaged or no TFRecord.")


def _values(feature: Any) -> Feature:
    kind = feature.WhichOneof("kind")
    if kind == "bytes_list":
        return list(feature.bytes_list.value)
    if kind == "float_list":
        return np.array(feature.float_list.value, np.float32)
    return np.array(feature.int64_list.value, np.int64)


@cache
def _example_class() -> Any:
    """Builds the class of `tf.train.Example` from its schema (tensorflow/core/example)."""
    descriptors = optional_library(
        "google.protobuf.descriptor_pb2", package="protobuf", extra=EXTRA
    )
    pools = optional_library("google.protobuf.descriptor_pool", package="protobuf", extra=EXTRA)
    factory = optional_library("google.protobuf.message_factory", package="protobuf", extra=EXTRA)
    kinds = descriptors.FieldDescriptorProto
    file = descriptors.FileDescriptorProto(name="example.proto", package="tf", syntax="proto3")
    # A map in the schema is a repeated pair in the bytes.
    schema: Mapping[str, list[tuple[str, int, str]]] = {
        "BytesList": [("value", kinds.TYPE_BYTES, "")],
        "FloatList": [("value", kinds.TYPE_FLOAT, "")],
        "Int64List": [("value", kinds.TYPE_INT64, "")],
        "Feature": [
            (f"{name}_list", kinds.TYPE_MESSAGE, f"{name.title()}List")
            for name in ("bytes", "float", "int64")
        ],
        "Pair": [("key", kinds.TYPE_STRING, ""), ("value", kinds.TYPE_MESSAGE, "Feature")],
        "Features": [("feature", kinds.TYPE_MESSAGE, "Pair")],
        "Example": [("features", kinds.TYPE_MESSAGE, "Features")],
    }
    for name, fields in schema.items():
        message = file.message_type.add(name=name)
        if name == "Feature":
            message.oneof_decl.add(name="kind")
        repeated = name.endswith(("List", "Features"))
        label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
        for number, (field, kind, other) in enumerate(fields, 1):
            added = message.field.add(name=field, number=number, type=kind, label=label)
            if other:
                added.type_name = f".tf.{other}"
            if name == "Feature":
                added.oneof_index = 0
    pool = pools.DescriptorPool()
    pool.Add(file)
    return factory.GetMessageClassesForFiles(["example.proto"], pool)["tf.Example"]


STEPS = "steps"
FEATURES = "features.json"
_SHARD = re.compile(r".+-(?P<split>[^-]+)\.tfrecord-(?P<shard>\d+)-of-(?P<shards>\d+)")


@dataclass(frozen=True)
class StepFeature:
    """A feature of each step.

    Attributes:
        kind: `tensor`, `image`, `text`, or `other` for what cannot be read.
        shape: Shape of its value; None in place of an open length.
        dtype: Type of its numbers.
        encoding: `none`, `bytes` or `zlib` of a tensor.
    """

    kind: str
    shape: tuple[int | None, ...] = ()
    dtype: str = "float32"
    encoding: str = "none"

    def size(self) -> int | None:
        """Returns how many numbers a value has; None if its length is open."""
        lengths = [length for length in self.shape if length is not None]
        return prod(lengths) if len(lengths) == len(self.shape) else None

    def type_of_numbers(self, key: str) -> np.dtype[Any]:
        """Returns the type of a tensor; errors contain `key`."""
        if self.dtype not in DTYPES:
            raise ForeignDataError(str(unknown_name(f"type of {key}", self.dtype, DTYPES)))
        return np.dtype(self.dtype)

    def rows(self, key: str, values: Feature, steps: int) -> Array:
        """Returns the values (steps, ...) of a tensor; errors contain `key`."""
        size = self.size()
        if self.kind != "tensor" or size is None:
            raise ForeignDataError(f"{key} is {self.kind} of shape {self.shape}; allowed: tensors.")
        if isinstance(values, list):
            dtype = self.type_of_numbers(key)
            if len(values) * size * dtype.itemsize > MOST_TABLE_BYTES:
                raise ForeignDataError(
                    f"{key} has {len(values)} values of {size * dtype.itemsize} bytes; allowed: "
                    f"{MOST_TABLE_BYTES} bytes."
                )
            parts = [_unpacked(part, self.encoding, size * dtype.itemsize) for part in values]
            if any(len(part) != size * dtype.itemsize for part in parts):
                raise ForeignDataError(f"{key} has values of another size than {self.shape}.")
            values = np.frombuffer(b"".join(parts), dtype)
        if len(values) != steps * size:
            raise ForeignDataError(
                f"{key} has {len(values)} numbers for {steps} steps; allowed: {size} for each."
            )
        return values.reshape(steps, *(length or 0 for length in self.shape))


def _unpacked(data: bytes, encoding: str, size: int) -> bytes:
    if encoding != "zlib":
        return data
    try:
        return zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise ForeignDataError(f"A tensor cannot be decompressed: {error}.") from error


@dataclass(frozen=True)
class TfdsLayout:
    """A data set: its path, its files by split, and the features of its steps by name."""

    root: Path
    files: tuple[tuple[str, Path], ...]
    features: Mapping[str, StepFeature]

    def feature(self, name: str) -> StepFeature:
        """Returns a feature; ValueError names the nearest one."""
        if name not in self.features:
            raise unknown_name("feature", name, self.features)
        return self.features[name]

    def described(self) -> str:
        """Returns the features with their shapes, in words."""
        return ", ".join(
            f"{name} {feature.shape if feature.kind == 'tensor' else feature.kind}"
            for name, feature in self.features.items()
        )


def read_layout(path: Path, split: str | None) -> TfdsLayout:
    """Reads the layout of a data set: the folder of a version, or one above it.

    Raises:
        ValueError: It is not a data set of TFDS in RLDS's form, or files are missing.
    """
    folder = _version(path)
    root = _json(path, folder / FEATURES)
    try:
        steps = root["featuresDict"]["features"][STEPS]["sequence"]["feature"]
        features = dict(_flattened("", steps))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{folder / FEATURES} does not describe episodes with steps, as RLDS does ({error!r})."
        ) from error
    info = folder / "dataset_info.json"
    plain = _json(path, info) if info.exists() else {}
    written = plain.get("fileFormat", "tfrecord") if isinstance(plain, dict) else None
    if written != "tfrecord":
        raise ValueError(f"{folder} has files of the format {written!r}; allowed: tfrecord.")
    return TfdsLayout(path, tuple(_files(folder, split)), features)


def _version(path: Path) -> Path:
    if (path / FEATURES).exists():
        return path
    found = [file.parent for file in visible_files(path, f"*/{FEATURES}")]
    if len(found) == 1:
        return found[0]
    names = ", ".join(folder.name for folder in found)
    raise ValueError(
        f"{path} has several versions: {names}; name the folder of one."
        if found
        else f"{path} is not a data set of TFDS: it has no {FEATURES}."
    )


def _json(root: Path, path: Path) -> Any:
    try:
        return json.loads(read_inside(root, path))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}.") from error


def _flattened(prefix: str, feature: Mapping[str, Any]) -> Iterator[tuple[str, StepFeature]]:
    """Yields the features below one with their names."""
    if "featuresDict" in feature:
        for name, part in feature["featuresDict"]["features"].items():
            yield from _flattened(f"{prefix}/{name}" if prefix else name, part)
    elif "tensor" in feature or "image" in feature:
        kind = "tensor" if "tensor" in feature else "image"
        inner = feature[kind]
        lengths = [int(length) for length in inner.get("shape", {}).get("dimensions", ())]
        shape = tuple(None if length < 0 else length for length in lengths)
        dtype = inner.get("dtype", "float32")
        yield prefix, StepFeature(kind, shape, dtype, inner.get("encoding", "none"))
    else:
        yield prefix, StepFeature("text" if "text" in feature else "other")


def _files(folder: Path, split: str | None) -> list[tuple[str, Path]]:
    """Returns the files of a split, or of all, with the split of each."""
    found = [
        (match, path)
        for path in visible_files(folder, "*.tfrecord-*")
        if (match := _SHARD.fullmatch(path.name))
    ]
    if not found:
        raise ValueError(f"{folder} has no files NAME-SPLIT.tfrecord-00000-of-00001.")
    splits = {match["split"] for match, _ in found}
    if split is not None and split not in splits:
        raise unknown_name("split", split, splits)
    chosen = [(match, path) for match, path in found if split in (None, match["split"])]
    for name in {match["split"] for match, _ in chosen}:
        shards = {int(match["shard"]) for match, _ in chosen if match["split"] == name}
        total = max(int(match["shards"]) for match, _ in chosen if match["split"] == name)
        if missing := sorted({*range(min(total, len(chosen) + 1))} - shards):
            raise ValueError(
                f"{folder} lacks {total - len(shards)} of the {total} files of the split {name!r}, "
                f"such as {missing[0]:05d}-of-{total:05d}. Is the copy incomplete?"
            )
    return [(match["split"], path) for match, path in chosen]


INSTRUCTIONS = ("language_instruction", "observation/natural_language_instruction")
REWARD = "reward"
FILE_PATH = "episode_metadata/file_path"
_ENDS = ("is_first", "is_last")  # Each episode of a store has them by its length.
_OBSERVATION = "observation/"


class RldsReader:
    """Reads RLDS and Open X-Embodiment without TensorFlow."""

    def __init__(
        self,
        layout: VectorLayout,
        *,
        control_hz: float | None = None,
        state: str | Sequence[str] | None = None,
        action: str | Sequence[str] = ("action",),
        cameras: Mapping[str, str] | None = None,
        depth: Mapping[str, str] | None = None,
        depth_unit_m: float | None = None,
        depth_source: str = "measured",
        instruction: str | None = None,
        split: str | None = None,
        drop_last: bool = False,
        droid: str | None = None,
    ) -> None:
        """Sets the meaning of the features of a step.

        Args:
            layout: Meaning of the numbers of state and action.
            control_hz: Steps per second; required.
            state: The feature with the joint state, a list [NAME, NAME] of several, or None.
            action: The feature with the action, or a list of several.
            cameras: {observation/image: front, ...} selects and renames these features; None: all
                colour images; {}: none.
            depth: {observation/image: observation/depth, ...} pairs features of colours and depth;
                None: no depth.
            depth_unit_m: Metres per stored number of depth, 0.0001 for 0.1 mm; None: 0.001 for
                integers, 1 for floats.
            depth_source: Origin of the depth: measured, simulated or estimated.
            instruction: The feature with the instruction; None: language_instruction and similar
                names, if there.
            split: Split to import, such as train; None: all.
            drop_last: Whether to leave out the last step, whose action has no meaning in RLDS's
                definition; many data sets have one.
            droid: Folder with the annotations of DROID, such as intrinsics.json, which calibrate
                its fixed cameras: each of them that `cameras` chooses must be in them; None: none.

        Raises:
            ValueError: The rate is missing or invalid.
        """
        self._layout = layout
        self._hz = named_rate(control_hz, "RLDS")
        self._state = keys_of("format.state", state)
        self._action = keys_of("format.action", action, needed=True)
        self._cameras = cameras
        self._depth = depth or {}
        self._unit_m = DepthOptions(unit_m=depth_unit_m).unit_m
        self._source: DepthSource = checked_source(depth_source)
        self._instruction = instruction
        self._split = split
        self._drop_last = drop_last
        self._droid = None if droid is None else Path(droid)

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists the episodes of a data set: the folder of a version, or one above it.

        Raises:
            ValueError: It is not a data set of TFDS in RLDS's form, or a feature does not exist.
        """
        layout = read_layout(path, self._split)
        named = [*self._state, *self._action, *(self._cameras or ()), *self._depth]
        named += [*self._depth.values(), *([self._instruction] if self._instruction else [])]
        for name in named:
            try:
                layout.feature(name)
            except ValueError as error:
                raise ValueError(f"{error} With their shapes: {layout.described()}.") from error
        droid = None if self._droid is None else DroidCalibrations.read(self._droid)
        for split, file in layout.files:
            number = 0
            try:
                for record in records(inside(layout.root, file)):
                    yield Reference(
                        file.name,
                        record.number,
                        partial(self._read, layout, split, record, droid),
                    )
                    number = record.number + 1
            except ForeignDataError as error:  # The records before the damage are valid.
                yield Reference(file.name, number, partial(_fail, str(error)))

    def _read(
        self, layout: TfdsLayout, split: str, record: Record, droid: DroidCalibrations | None
    ) -> ImportedEpisode:
        episode = _Steps(layout, example(record.read()))
        state_names, state = episode.vector(self._state)
        action_names, action = episode.vector(self._action)
        steps = len(action) - self._drop_last
        if steps < 1:
            raise ForeignDataError("It has no steps.")
        meaning = self._layout.meaning(state_names, action_names)
        cameras = self._chosen(layout)
        known = {old: self._camera(episode, old, new) for old, new in cameras.items()}
        found, geometry, extra = episode.calibrated(known, droid)
        contract = meaning.contract(list(found.values()), self._hz)
        time = np.arange(steps) / self._hz
        arrays = {
            "time": time,
            **joint_arrays(
                meaning,
                (" + ".join(self._state), state[:steps] if self._state else None),
                (" + ".join(self._action), action[:steps]),
            ),
            **camera_times(contract, time),
            **geometry,
        }
        for name, feature in layout.features.items():
            stamps = name.rpartition("/")[2] in STAMPS and feature.kind == "tensor"
            if stamps and episode.has(name):
                check_rate(name, episode.rows(name), self._hz)
        if REWARD in layout.features:
            arrays["reward"] = episode.rows(REWARD)[:steps].astype(np.float32)
        poses, invalid_poses = episode.poses(cameras)
        return ImportedEpisode(
            contract,
            arrays,
            self._images(episode, found, steps),
            instruction=self._text(episode, layout),
            extra={"split": split, **extra},
            skipped_fields=self._skipped_fields(layout, episode) | invalid_poses,
            camera_poses=poses,
        )

    def _images(
        self, episode: "_Steps", cameras: Mapping[str, Camera], steps: int
    ) -> dict[str, Frames]:
        images: dict[str, Frames] = {}
        for old, camera in cameras.items():
            images[f"rgb/{camera.name}"] = partial(episode.images, old, steps, camera, image)
            if camera.depth:
                images[f"depth/{camera.name}"] = partial(
                    episode.images, self._depth[old], steps, camera, self._depth_check(camera)
                )
        return images

    def _depth_check(self, camera: Camera) -> Callable[[str, int, Array, int, int], Array]:
        """Returns the function that makes stored depth of an image."""
        unit = self._unit_m
        if unit is None:
            return counts
        stored = camera.depth_unit_m
        return lambda key, step, found, *size: depth_counts(
            (key, step), found, (size[0], size[1]), unit, stored
        )

    def _skipped_fields(self, layout: TfdsLayout, episode: "_Steps") -> dict[str, str]:
        """Returns the features that the episode lacks, with the reason."""
        cameras = self._chosen(layout)
        depth = [self._depth[name] for name in cameras if name in self._depth]
        instruction = self._instruction_feature(layout)
        used = {*self._state, *self._action, *cameras, *depth, instruction, REWARD, *_ENDS}
        skipped_fields = {
            name: UNUSED_IMAGES if feature.kind == "image" else NOT_CHOSEN
            for name, feature in layout.features.items()
            if name not in used
        }
        poses = {RLDS_POSES.get(name) for name in cameras}
        others = [key for key in episode.others() if key not in poses]
        return skipped_fields | dict.fromkeys(others, "not a feature of the steps")

    def _chosen(self, layout: TfdsLayout) -> Mapping[str, str]:
        """Returns the names of the cameras by feature; a default name lacks `observation/`."""
        if self._cameras is not None:
            return self._cameras
        return {
            name: name.removeprefix(_OBSERVATION).replace("/", "_")
            for name, feature in layout.features.items()
            if feature.kind == "image" and feature.shape[-1:] != (1,)
        }

    def _camera(self, episode: "_Steps", old: str, new: str) -> Camera:
        height, width = episode.image(old, 0).shape[:2]
        if old not in self._depth:
            return Camera(new, height, width, has_geometry=False)
        dtype = episode.image(self._depth[old], 0).dtype
        unit = UNIT_M if self._unit_m is None else stored_unit(dtype, self._unit_m)
        return Camera(new, height, width, self._source, unit, has_geometry=False)

    def _text(self, episode: "_Steps", layout: TfdsLayout) -> str:
        """Returns the instructions of the steps without repetitions, joined."""
        name = self._instruction_feature(layout)
        if name is None:
            return ""
        values = episode.values(name)
        if not isinstance(values, list):
            raise ForeignDataError(f"{name} has numbers; an instruction is text.")
        return "; ".join(dict.fromkeys(value.decode(errors="replace") for value in values))

    def _instruction_feature(self, layout: TfdsLayout) -> str | None:
        usual = [name for name in INSTRUCTIONS if name in layout.features]
        return self._instruction or next(iter(usual), None)


def _fail(message: str) -> ImportedEpisode:
    raise ForeignDataError(message)


class _Steps:
    """The steps of an episode."""

    def __init__(self, layout: TfdsLayout, values: Mapping[str, Feature]) -> None:
        self._layout = layout
        self._values = values

    def values(self, name: str) -> Feature:
        """Returns the values of a feature, those of all steps one behind the other."""
        key = f"{STEPS}/{name}"
        if key not in self._values:
            raise ForeignDataError(f"The record lacks the feature {key}.")
        return self._values[key]

    def has(self, name: str) -> bool:
        """Returns whether the record has a feature of the steps."""
        return f"{STEPS}/{name}" in self._values

    def others(self) -> list[str]:
        """Returns the names of the features of the whole episode."""
        return [key for key in self._values if not key.startswith(f"{STEPS}/")]

    def poses(self, cameras: Mapping[str, str]) -> tuple[dict[str, Array], dict[str, str]]:
        """Returns DROID's poses by the name of the camera, and why others are left out."""
        return rlds_poses(self._values, cameras)

    def calibrated(
        self, cameras: Mapping[str, Camera], droid: DroidCalibrations | None
    ) -> tuple[Mapping[str, Camera], dict[str, Array], dict[str, Any]]:
        """Returns the cameras, the arrays of calibrated ones, and the identifier of the episode."""
        if droid is None:
            return cameras, {}, {}
        path = self._values.get(FILE_PATH)
        if not isinstance(path, list) or not path:
            raise ForeignDataError(f"The record has no {FILE_PATH}, by which DROID is calibrated.")
        name = droid.episode(path[0].decode(errors="replace"))
        arrays = droid.arrays(name, cameras)
        found = {
            old: replace(camera, has_geometry=f"intrinsics/{camera.name}" in arrays)
            for old, camera in cameras.items()
        }
        return found, arrays, {"droid_episode": name}

    def rows(self, name: str, steps: int | None = None) -> Array:
        """Returns the values (T, ...) of a tensor, of a known number of steps if it is given."""
        feature = self._layout.feature(name)
        values = self.values(name)
        size = 1 if isinstance(values, list) else feature.size() or 1
        return feature.rows(name, values, len(values) // size if steps is None else steps)

    def vector(self, names: Sequence[str]) -> tuple[list[str], Array]:
        """Returns the names of the numbers of several features, and their values (T, D)."""
        series: dict[str, Array] = {}
        for name in names:
            steps = len(next(iter(series.values()))) if series else None
            series[name] = self.rows(name, steps)
        return joined(series, flat=True)

    def image(self, name: str, step: int) -> Array:
        """Returns an image (H, W, 3), or depth (H, W) or (H, W, 1)."""
        values = self.values(name)
        if self._layout.feature(name).kind == "tensor":
            shown: Array = self.rows(name)[step]
            return shown.astype(self._layout.feature(name).type_of_numbers(name))
        if not isinstance(values, list) or step >= len(values):
            raise ForeignDataError(f"{name} has {len(values)} images.")
        return decoded(name, step, values[step])

    def images(self, name: str, steps: int, camera: Camera, check: Any) -> Iterator[Array]:
        """Yields the images of the steps after a check."""
        for step in range(steps):
            yield check(name, step, self.image(name, step), camera.height, camera.width)
