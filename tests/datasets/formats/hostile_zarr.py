"""Hostile replay buffers, of diffusion_policy and UMI."""

import bz2
import json
import lzma
import os
import pickle
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
from imagecodecs.numcodecs import Jpegxl
from tests.datasets.formats.hostile_corpus import canary_of, case, secret_of
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


@case("pickle filter of the ends", BUFFER, "its type is '|O'; allowed: booleans")
def _(folder: Path) -> Path:
    root = diffusion_policy(folder)
    filters = [{"id": "vlen-utf8"}, {"id": "pickle"}]
    ends = described(root, "meta/episode_ends", **OBJECTS, filters=filters)
    (ends / "0").write_bytes(code(folder))
    return root


@case("pickle filter of the actions", BUFFER, "There is no series 'action'")
def _(folder: Path) -> Path:
    root = diffusion_policy(folder)
    filters = [{"id": "vlen-utf8"}, {"id": "pickle"}]
    action = described(root, "data/action", **OBJECTS, filters=filters)
    for chunk in action.glob("?.0"):
        chunk.write_bytes(code(folder))
    return root


@case("pickle filter of numbers", BUFFER, "it has filters, [{'id': 'pickle'}]; allowed: none.")
def _(folder: Path) -> Path:
    root = diffusion_policy(folder)
    described(root, "data/action", filters=[{"id": "pickle"}])
    return root


@case("pickle as the compressor", BUFFER, "There is no codec 'pickle'.")
def _(folder: Path) -> Path:
    root = diffusion_policy(folder)
    action = described(root, "data/action", compressor={"id": "pickle"})
    for chunk in action.glob("?.0"):
        chunk.write_bytes(code(folder))
    return root


METADATA: list[tuple[str, str, dict[str, Any], str]] = [
    ("records", "meta/episode_ends", {"dtype": [["a", "|O"]]}, "its type is [['a', '|O']]"),
    ("texts", "meta/episode_ends", {"dtype": "<U2000000000"}, "its type is '<U2000000000'"),
    ("codec that is no name", "data/img", {"compressor": {"id": ["x"]}}, "There is no codec"),
    (
        "chunk of 56 GB",
        "data/state",
        {"chunks": [10**9, 14]},
        "a chunk has 56000000000 bytes; allowed: 268435456.",
    ),
    ("chunks of no rows", "data/state", {"chunks": [0, 14]}, "its chunks are [0, 14]"),
    ("chunks of fewer axes", "data/state", {"chunks": [3]}, "its chunks are [3], its shape is"),
    ("negative shape", "data/state", {"shape": [-17, 14]}, "its shape is [-17, 14]; allowed"),
    ("shape of texts", "data/state", {"shape": ["17", 14]}, "its shape is ['17', 14]; allowed"),
    ("shape beyond 64 bits", "data/state", {"shape": [10**30, 14]}, "its shape is [1000000"),
    (
        "separator that leads out",
        "data/state",
        {"dimension_separator": "/../../"},
        "There is no dimension_separator '/../../'.",
    ),
    ("image of 60000 x 60000", "data/img", {"shape": [17, 60000, 60000, 3]}, "60000 x 60000"),
    ("another format", "data/img", {"zarr_format": 3}, "its zarr_format is 3; allowed: 2."),
]


def _changed(array: str, changes: dict[str, Any]) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        root = diffusion_policy(folder)
        described(root, array, **changes)
        return root

    return build


for _name, _array, _changes, _says in METADATA:
    case(f"zarr, {_name}", BUFFER, _says)(_changed(_array, _changes))


@case("zarr, episode of two million steps", BUFFER, "2097152 rows have 117440512 bytes; allowed")
def _(folder: Path) -> Path:
    root = diffusion_policy(folder)
    ends = described(root, "meta/episode_ends", shape=[1], chunks=[1])
    (ends / "0").write_bytes(np.array([2**21]).tobytes())
    for key in ("state", "action"):
        described(root, f"data/{key}", shape=[2**21, 14], chunks=[2**21, 14])
    return root


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
    (
        "zlib bomb",
        {"id": "zlib"},
        zlib.compress(ZEROS[: 2**23]),
        "decodes to more than the allowed 168",
    ),
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


def _chunked(codec: Any, data: bytes) -> Callable[[Path], Path]:
    """The second episode begins in the chunk with rows 3 to 5, which the first one ends in."""

    def build(folder: Path) -> Path:
        root = diffusion_policy(folder)
        action = described(root, "data/action", compressor=codec)
        for number in range(6):
            (action / f"{number}.0").write_bytes(data)
        return root

    return build


for _name, _codec, _data, _says in CHUNKS:
    case(f"zarr, {_name}", BUFFER, _says)(_chunked(_codec, _data))


@case("zarr, chunk that is a link out", BUFFER, "leads out of the data set, to", 2)
def _(folder: Path) -> Path:
    root = diffusion_policy(folder)
    described(root, "data/img", compressor=None)
    shape = json.loads((root / "data/img/.zarray").read_text())["chunks"]
    for chunk in (root / "data/img").glob("*.0"):
        chunk.write_bytes(bytes(int(np.prod(shape))))
    (root / "data/img/5.0.0.0").unlink()
    (root / "data/img/5.0.0.0").symlink_to(secret_of(folder))
    return root


@case("zarr, array that is a link out", BUFFER, "leads out of the data set, to")
def _(folder: Path) -> Path:
    root = diffusion_policy(folder)
    (root / "data/action").rename(folder.parent / f"{folder.name}-action")
    (root / "data/action").symlink_to(folder.parent / f"{folder.name}-action")
    return root


@case("zarr, metadata without an end", BUFFER, "leads out of the data set, to /dev/zero")
def _(folder: Path) -> Path:
    root = diffusion_policy(folder)
    (root / "data/action/.zarray").unlink()
    (root / "data/action/.zarray").symlink_to("/dev/zero")
    return root


@case("zarr, links in a circle", BUFFER, "There is no series 'action'.")
def _(folder: Path) -> Path:
    root = diffusion_policy(folder)
    (root / "data/action/.zarray").unlink()
    (root / "data/action/.zarray").symlink_to(root / "data/action/.zarray")
    return root


@case("zarr, chunk that is a pipe", BUFFER, "is neither a file nor a folder; it is not read.", 2)
def _(folder: Path) -> Path:
    root = diffusion_policy(folder)
    (root / "data/action/5.0").unlink()
    os.mkfifo(root / "data/action/5.0")
    return root


@case("zarr, metadata of 17 MiB", BUFFER, ".zarray has 16777217 bytes or more; allowed: 16777216.")
def _(folder: Path) -> Path:
    root = diffusion_policy(folder)
    (root / "data/action/.zarray").write_bytes(b" " * (17 * 2**20))
    return root


@case("zarr, nested metadata", BUFFER, "data/action/.zarray is not JSON: maximum recursion depth")
def _(folder: Path) -> Path:
    root = diffusion_policy(folder)
    (root / "data/action/.zarray").write_text("[" * 200_000)
    return root


def unwritten(name: str, says: str, others: int, **changes: Any) -> None:
    """Adds a buffer whose images have no stored chunk, which stands for the fill value."""

    def build(folder: Path) -> Path:
        root = diffusion_policy(folder)
        for chunk in described(root, "data/img", fill_value=0, **changes).glob("*.0.0.0"):
            chunk.unlink()
        return root

    case(f"zarr, {name}", BUFFER, f"data/img lacks {says} or more; allowed: 65536 ", others)(build)


UNPADDED = {"shape": [17, 128, 128, 3], "chunks": [1, 1, 1, 1]}
unwritten("65537 chunks of no bytes", "65537 chunks of 1 bytes", 0, **UNPADDED)
# Those of 4 and 5 steps have at most 15 of these chunks, 3.75 GiB, and are black.
PADDED = {"chunks": [1, 2**14, 2**14, 1]}
unwritten("5 GiB in chunks of no bytes", "17 chunks of 268435456 bytes", 2, **PADDED)


@case("zarr, states of 2**28 numbers", BUFFER, "state has 268435456 numbers per step")
def _(folder: Path) -> Path:
    root = diffusion_policy(folder)
    described(root, "data/state", shape=[17, 2**28], chunks=[1, 2**26])
    return root


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


@case("zip, bomb", BUFFER, "data/action/5.0 has more than the allowed 65725 bytes.", 2)
def _(folder: Path) -> Path:
    path = diffusion_policy(folder, name="set.zarr.zip")
    return _rewritten(path, "data/action/5.0", ZEROS, zipfile.ZIP_DEFLATED)


@case("zip, bomb of metadata", BUFFER, ".zarray has more than the allowed 16777216 bytes.")
def _(folder: Path) -> Path:
    path = diffusion_policy(folder, name="set.zarr.zip")
    return _rewritten(path, "data/action/.zarray", ZEROS, zipfile.ZIP_DEFLATED)


@case("zip, bomb of bzip2", BUFFER, "is compressed by method 12; allowed: none or deflate.", 2)
def _(folder: Path) -> Path:
    path = diffusion_policy(folder, name="set.zarr.zip")
    return _rewritten(path, "data/action/5.0", ZEROS[: 2**22], zipfile.ZIP_BZIP2)


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
