"""TFRecord files and the `tf.train.Example` messages in them, read without TensorFlow.

A record is its length (uint64), the masked CRC-32C of the length, its bytes, and their masked
CRC-32C, all little-endian (https://www.tensorflow.org/tutorials/load_data/tfrecord).
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.libraries import optional_library

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
