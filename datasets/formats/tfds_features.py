"""The layout of a TensorFlow data set (TFDS): `features.json`, `dataset_info.json` and its files.

TFDS flattens nested features to names with slashes; the features of an RLDS step, a nested data
set, become `steps/<name>` with the values of all steps one behind the other.
"""

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.files.limits import MOST_TABLE_BYTES
from stringline.datasets.formats.confinement import read_inside
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.tfrecord import Feature
from stringline.datasets.store.zarr_layout import DTYPES

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
    found = sorted(file.parent for file in path.glob(f"*/{FEATURES}"))
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
        for path in sorted(folder.glob("*.tfrecord-*"))
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
