"""Hostile replay buffers, of diffusion_policy and UMI."""

import bz2
import json
import lzma
import os
import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
from imagecodecs.numcodecs import Jpegxl
from tests.datasets.formats.hostile_corpus import (
    Build,
    Edit,
    canary_of,
    case,
    cases,
    linked,
    linked_to,
    linked_to_secret,
    piped,
    written,
)
from tests.datasets.formats.small_sets import diffusion_policy, umi

ZEROS = bytes(64 * 2**20)
BUFFER = "diffusion_policy"


def described(root: Path, name: str, **changes: Any) -> Path:
    """Changes the metadata of an array and returns its folder."""
    file = root / name / ".zarray"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return file.parent


class Creates:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def code(folder: Path) -> bytes:
    return pickle.dumps(Creates(canary_of(folder)))


OBJECTS = {"dtype": "|O", "compressor": None, "fill_value": None}


FILTERS = [{"id": "vlen-utf8"}, {"id": "pickle"}]
ACTION = "data/action"


def pickled(array: str, **changes: Any) -> Build:
    """Changes an array of which each chunk is code."""

    def build(folder: Path) -> Path:
        root = diffusion_policy(folder)
        for chunk in described(root, array, **changes).glob("[0-9]*"):
            chunk.write_bytes(code(folder))
        return root

    return build


ENDS = pickled("meta/episode_ends", **OBJECTS, filters=FILTERS)
ACTIONS = pickled(ACTION, **OBJECTS, filters=FILTERS)
NUMBERS, COMPRESSOR = pickled(ACTION, filters=FILTERS[1:]), pickled(ACTION, compressor=FILTERS[1])
case("pickle filter of the ends", BUFFER, "its type is '|O'; allowed: booleans")(ENDS)
case("pickle filter of the actions", BUFFER, "There is no series 'action'")(ACTIONS)
case("pickle filter of numbers", BUFFER, "filters, [{'id': 'pickle'}]; allowed: none.")(NUMBERS)
case("pickle as the compressor", BUFFER, "There is no codec 'pickle'.")(COMPRESSOR)

METADATA: list[tuple[str, str, dict[str, Any], str]] = [
    ("records", "meta/episode_ends", {"dtype": [["a", "|O"]]}, "its type is [['a', '|O']]"),
    ("texts", "meta/episode_ends", {"dtype": "<U2000000000"}, "its type is '<U2000000000'"),
    ("codec that is no name", "data/img", {"compressor": {"id": ["x"]}}, "There is no codec"),
    ("chunk of 56 GB", "data/state", {"chunks": [10**9, 14]}, "a chunk has 56000000000 bytes"),
    ("chunks of no rows", "data/state", {"chunks": [0, 14]}, "its chunks are [0, 14]"),
    ("chunks of fewer axes", "data/state", {"chunks": [3]}, "its chunks are [3], its shape is"),
    ("negative shape", "data/state", {"shape": [-17, 14]}, "its shape is [-17, 14]; allowed"),
    ("shape of texts", "data/state", {"shape": ["17", 14]}, "its shape is ['17', 14]; allowed"),
    ("shape beyond 64 bits", "data/state", {"shape": [10**30, 14]}, "its shape is [1000000"),
    ("separator that leads out", "data/img", {"dimension_separator": "/../.."}, "no dimension_sep"),
    ("image of 60000 x 60000", "data/img", {"shape": [17, 60000, 60000, 3]}, "60000 x 60000"),
    ("another format", "data/img", {"zarr_format": 3}, "its zarr_format is 3; allowed: 2."),
]


def _changed(array: str, changes: dict[str, Any]) -> Edit:
    return lambda root, _: described(root, array, **changes)


WHOLE = [(name, _changed(array, changes), says, 0) for name, array, changes, says in METADATA]


def two_million_steps(root: Path, _: Path) -> None:
    ends = described(root, "meta/episode_ends", shape=[1], chunks=[1])
    (ends / "0").write_bytes(np.array([2**21]).tobytes())
    for key in ("state", "action"):
        described(root, f"data/{key}", shape=[2**21, 14], chunks=[2**21, 14])


CHUNKS: list[tuple[str, Any, bytes, str]] = [
    (
        "blosc header claims 2 GB",
        {"id": "blosc"},
        b"\x02\x01\x21\x04" + (2**31 - 17).to_bytes(4, "little") * 2 + bytes(4),
        "a chunk has 2147483631 bytes; allowed: 168.",
    ),
    (
        "blosc header claims to be longer",
        {"id": "blosc"},
        b"\x02\x01\x21\x04\xa8\0\0\0\xa8\0\0\0" + (10**9).to_bytes(4, "little"),
        "the length in the header of a chunk is not that of the chunk.",
    ),
    (
        "zstd header claims 1 TiB",
        {"id": "zstd"},
        b"\x28\xb5\x2f\xfd\xc0\x58" + (2**40).to_bytes(8, "little") + bytes(20),
        "a chunk has 1099511627776 bytes; allowed: 168.",
    ),
    ("zstd header without a size", {"id": "zstd"}, b"\x28\xb5\x2f\xfd\0\x58" + bytes(9), "header"),
    ("lz4 header claims 2 GB", {"id": "lz4"}, b"\xff\xff\xff\x7f" + bytes(9), "2147483647 bytes"),
    ("zlib bomb", {"id": "zlib"}, zlib.compress(ZEROS[: 2**23]), "decodes to more than the"),
    ("bz2 bomb", {"id": "bz2"}, bz2.compress(ZEROS[: 2**22]), "decodes to more than the allowed"),
    ("xz bomb", {"id": "lzma"}, lzma.compress(ZEROS[: 2**22], preset=0), "decodes to more than"),
    (
        "lzma dictionary of 2 GiB",
        {"id": "lzma", "format": 2},
        b"\x5d\0\0\0\x80" + lzma.compress(bytes(168), lzma.FORMAT_ALONE)[5:],
        "Memory usage limit exceeded",
    ),
    ("chunk of 64 MiB", None, ZEROS, "0.0 has 65726 bytes or more; allowed: 65725."),
]


def _chunked(codec: Any, data: bytes) -> Edit:
    """The second episode begins in the chunk with rows 3 to 5, which the first one ends in."""

    def edit(root: Path, _: Path) -> None:
        action = described(root, ACTION, compressor=codec)
        for number in range(6):
            (action / f"{number}.0").write_bytes(data)

    return edit


WHOLE += [(name, _chunked(codec, data), says, 0) for name, codec, data, says in CHUNKS]


def linked_chunk(root: Path, folder: Path) -> None:
    described(root, "data/img", compressor=None)
    shape = json.loads((root / "data/img/.zarray").read_text())["chunks"]
    for chunk in (root / "data/img").glob("*.0"):
        chunk.write_bytes(bytes(int(np.prod(shape))))
    linked_to_secret(root / "data/img/5.0.0.0", folder)


def unwritten(**changes: Any) -> Edit:
    """Removes the chunks of the images, which then stand for the fill value."""

    def edit(root: Path, _: Path) -> None:
        for chunk in described(root, "data/img", fill_value=0, **changes).glob("*.0.0.0"):
            chunk.unlink()

    return edit


OUT = "leads out of the data set, to"
BYTES_1 = unwritten(shape=[17, 128, 128, 3], chunks=[1, 1, 1, 1])
# The episodes of 4 and 5 steps have at most 15 of these chunks, 3.75 GiB, and are black.
MIB_256 = unwritten(chunks=[1, 2**14, 2**14, 1])
STATES = _changed("data/state", {"shape": [17, 2**28], "chunks": [1, 2**26]})
WHOLE += [
    ("episode of two million steps", two_million_steps, "2097152 rows have 117440512 bytes", 0),
    ("chunk that is a link out", linked_chunk, OUT, 2),
    ("array that is a link out", lambda root, folder: linked(root / ACTION, folder), OUT, 0),
    ("65537 chunks of no bytes", BYTES_1, "data/img lacks 65537 chunks of 1 bytes or more;", 0),
    ("5 GiB in chunks of no bytes", MIB_256, "lacks 17 chunks of 268435456 bytes or more;", 2),
    ("states of 2**28 numbers", STATES, "state has 268435456 numbers per step", 0),
]
cases(BUFFER, "zarr", diffusion_policy, "", WHOLE)


def circle(file: Path, folder: Path) -> None:
    linked_to(str(file))(file, folder)


NESTED = ".zarray is not JSON: maximum recursion depth"
LARGE = written(b" " * (17 * 2**20))
cases(
    BUFFER,
    "zarr",
    diffusion_policy,
    f"{ACTION}/.zarray",
    [
        ("metadata without an end", linked_to("/dev/zero"), f"{OUT} /dev/zero", 0),
        ("links in a circle", circle, "There is no series 'action'.", 0),
        ("metadata of 17 MiB", LARGE, ".zarray has 16777217 bytes or more; allowed: 16777216", 0),
        ("nested metadata", written("[" * 200_000), NESTED, 0),
    ],
)
PIPE = ("chunk that is a pipe", piped, "is neither a file nor a folder; it is not read.", 2)
cases(BUFFER, "zarr", diffusion_policy, f"{ACTION}/5.0", [PIPE])


def _rewritten(path: Path, member: str, data: bytes, method: int) -> Path:
    """Replaces a member of a zip file."""
    target = path.with_name(f"new-{path.name}")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            if name == member:
                new.writestr(name, data, method, 1)
            else:
                new.writestr(name, old.read(name))
    return target


def zipped(member: str, data: bytes, method: int = zipfile.ZIP_DEFLATED) -> Build:
    def build(folder: Path) -> Path:
        return _rewritten(diffusion_policy(folder, name="set.zarr.zip"), member, data, method)

    return build


BOMB, METADATA_BOMB = zipped("data/action/5.0", ZEROS), zipped("data/action/.zarray", ZEROS)
BZIP2 = zipped("data/action/5.0", ZEROS[: 2**22], zipfile.ZIP_BZIP2)
case("zip, bomb", BUFFER, "data/action/5.0 has more than the allowed 65725 bytes.", 2)(BOMB)
case("zip, bomb of metadata", BUFFER, "has more than the allowed 16777216 bytes")(METADATA_BOMB)
case("zip, bomb of bzip2", BUFFER, "is compressed by method 12; allowed: none or", 2)(BZIP2)


@case("umi, image of another size", "umi", "invalid out.shape=", 2)
def _(folder: Path) -> Path:
    path = umi(folder, {"camera0_rgb": Jpegxl(level=99, numthreads=1)})
    large = imagecodecs.jpegxl_encode(np.zeros((900, 1600, 3), np.uint8), numthreads=1)
    return _rewritten(path, "data/camera0_rgb/16.0.0.0", bytes(large), zipfile.ZIP_STORED)


@case("umi, member whose own header has a name of 32 kB", "umi", "File name in directory")
def _(folder: Path) -> Path:
    path = umi(folder)
    data = bytearray(path.read_bytes())
    # A local header has the length of the name at byte 26, and the name at byte 30.
    start = data.index(b"data/robot0_eef_pos/.zarray") - 30
    assert data[start : start + 4] == b"PK\x03\x04"
    data[start + 26 : start + 28] = (2**15 - 1).to_bytes(2, "little")
    path.write_bytes(data)
    return path
