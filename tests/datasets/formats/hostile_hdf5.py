"""Hostile HDF5 files, of ACT and robomimic."""

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image
from tests.datasets.formats.hostile_corpus import case, secret_of
from tests.datasets.formats.small_sets import SIZE, STEPS, act, robomimic

ACT = "act_hdf5"
TOP = "observations/images/top"
QPOS = "observations/qpos"
ONE_VALUE = "action is empty or a single value; allowed: one row per step."
Edit = Callable[[h5py.File, Path], object]


def second(name: str, says: str, others: int = 2) -> Callable[[Edit], Edit]:
    """Adds a set of ACT whose second file is edited by the decorated function."""

    def add(edit: Edit) -> Edit:
        def build(folder: Path) -> Path:
            root = act(folder)
            with h5py.File(root / "episode_1.hdf5", "r+") as file:
                edit(file, folder)
            return root

        case(f"hdf5, {name}", ACT, says, others)(build)
        return edit

    return add


def replaced(file: h5py.File, key: str, value: Any) -> None:
    del file[key]
    file[key] = value


@second("images stored in another file", "top has its data in another file; it is not read.")
def _(file: h5py.File, folder: Path) -> None:
    del file[TOP]
    size = int(np.prod(SIZE))
    outside = [(str(secret_of(folder)), 0, STEPS * size)]
    file.create_dataset(TOP, (STEPS, *SIZE), np.uint8, external=outside)


@second("states stored in another file", "qpos has its data in another file; it is not read.")
def _(file: h5py.File, folder: Path) -> None:
    del file[QPOS]
    outside = [(str(secret_of(folder)), 0, STEPS * 14)]
    file.create_dataset(QPOS, (STEPS, 14), np.uint8, external=outside)


def outside_file(folder: Path) -> Path:
    """Returns a file of HDF5 beside the data set, with the secret as images."""
    path = folder.parent / f"{folder.name}-outside.h5"
    size = STEPS * int(np.prod(SIZE))
    secret = np.frombuffer(secret_of(folder).read_bytes()[:size], np.uint8)
    with h5py.File(path, "w") as file:
        file["top"] = secret.reshape(STEPS, *SIZE)
        file["qpos"] = np.zeros((STEPS, 14))
    return path


@second("external link to images", "is a link to another file, to")
def _(file: h5py.File, folder: Path) -> None:
    replaced(file, TOP, h5py.ExternalLink(str(outside_file(folder)), "/top"))


@second("external link to states", "is a link to another file, to")
def _(file: h5py.File, folder: Path) -> None:
    replaced(file, QPOS, h5py.ExternalLink(str(outside_file(folder)), "/qpos"))


@second("external link to a group", "is a link to another file, to")
def _(file: h5py.File, folder: Path) -> None:
    replaced(file, "observations", h5py.ExternalLink(str(outside_file(folder)), "/"))


@second("soft link through an external one", "is a link to another file, to")
def _(file: h5py.File, folder: Path) -> None:
    file["else"] = h5py.ExternalLink(str(outside_file(folder)), "/")
    replaced(file, TOP, h5py.SoftLink("/else/top"))


@second("soft links in a circle", "is a link to a link, 8 times.")
def _(file: h5py.File, folder: Path) -> None:
    replaced(file, TOP, h5py.SoftLink(f"/{TOP}"))


@second("virtual data set", "top is a virtual data set, made of other ones; it is not read.")
def _(file: h5py.File, folder: Path) -> None:
    shape = (STEPS, *SIZE)
    layout = h5py.VirtualLayout(shape, np.uint8)
    layout[:] = h5py.VirtualSource(str(outside_file(folder)), "top", shape)
    del file[TOP]
    file.create_virtual_dataset(TOP, layout)


@second("gzip images of 60000 x 60000", "has rows of 10800000000 bytes in chunks of 180000;")
def _(file: h5py.File, folder: Path) -> None:
    del file[TOP]
    shape = (STEPS, 60000, 60000, 3)
    file.create_dataset(TOP, shape, np.uint8, chunks=(1, 1, 60000, 3), compression="gzip")


@second("a chunk of 1 GB", "in chunks of 1074954240; allowed: 268435456.")
def _(file: h5py.File, folder: Path) -> None:
    del file[TOP]
    shape = (1000, *SIZE)
    options: dict[str, Any] = {"maxshape": (None, *SIZE), "compression": "gzip"}
    file.create_dataset(TOP, shape, np.uint8, chunks=(933120, *SIZE), **options)


@second("images that were never written", "Was it written to the end?")
def _(file: h5py.File, folder: Path) -> None:
    del file[TOP]
    shape = (STEPS * 10**4, *SIZE)
    file.create_dataset(TOP, (shape[0], 48, 64, 3), np.uint8, chunks=(1, 48, 64, 3))


@second("a billion steps", "action has 1000000000 rows; allowed: 1048576.")
def _(file: h5py.File, folder: Path) -> None:
    del file["action"]
    file.create_dataset("action", (10**9, 14), np.uint8, chunks=(1000, 14), compression="gzip")


def _filtered(file: h5py.File, add: Callable[[Any], object]) -> None:
    del file[TOP]
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((1, *SIZE))
    add(plist)
    space = h5py.h5s.create_simple((STEPS, *SIZE))
    h5py.h5d.create(file.id, TOP.encode(), h5py.h5t.NATIVE_UINT8, space, plist)


@second("deflate twice", "top has filter 1; allowed, each once: deflate, shuffle")
def _(file: h5py.File, folder: Path) -> None:
    def twice(plist: Any) -> None:
        plist.set_deflate(9)
        plist.set_deflate(9)

    _filtered(file, twice)


@second("a filter of a library to load", "top has filter 32001; allowed, each once")
def _(file: h5py.File, folder: Path) -> None:
    _filtered(file, lambda plist: plist.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, (0,) * 7))


@second("references in place of numbers", "action has type object; allowed: numbers and bytes.")
def _(file: h5py.File, folder: Path) -> None:
    reference = file[QPOS].ref
    del file["action"]
    data = file.create_dataset("action", (STEPS,), h5py.ref_dtype)
    data[0] = reference


@second("records in place of numbers", "action has type [('a', '<f8')]; allowed: numbers")
def _(file: h5py.File, folder: Path) -> None:
    replaced(file, "action", np.zeros((STEPS, 14), [("a", "<f8")]))


@second("a single number as action", ONE_VALUE)
def _(file: h5py.File, folder: Path) -> None:
    replaced(file, "action", 3.0)


@second("no number as action", ONE_VALUE)
def _(file: h5py.File, folder: Path) -> None:
    replaced(file, "action", h5py.Empty("f4"))


@second("values in place of cameras", "It does not fit the other episodes. There is no camera")
def _(file: h5py.File, folder: Path) -> None:
    del file["observations/images"]
    file.create_dataset("observations/images", (10**6, 100), np.uint8, chunks=(1, 100))


@case("hdf5, a pipe", ACT, "is neither a file nor a folder; it is not read.", 2)
def _(folder: Path) -> Path:
    root = act(folder)
    (root / "episode_1.hdf5").unlink()
    os.mkfifo(root / "episode_1.hdf5")
    return root


@case("hdf5, a link out", ACT, "leads out of the data set, to", 2)
def _(folder: Path) -> Path:
    root = act(folder)
    (root / "episode_1.hdf5").rename(folder.parent / f"{folder.name}.hdf5")
    (root / "episode_1.hdf5").symlink_to(folder.parent / f"{folder.name}.hdf5")
    return root


def jpeg_of(width: int, height: int) -> bytes:
    """Returns a small JPEG whose header claims another size."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "JPEG")
    data = bytearray(buffer.getvalue())
    place = data.index(b"\xff\xc0") + 5
    data[place : place + 4] = struct.pack(">HH", height, width)
    return bytes(data)


def png_of(width: int, height: int) -> bytes:
    """Returns a small PNG whose header claims a size."""

    def part(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (part(b"IHDR", header), part(b"IDAT", zlib.compress(bytes(10**5))), part(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def tiff_of(width: int, height: int) -> bytes:
    """Returns a small TIFF whose header claims a size."""
    buffer = io.BytesIO()
    Image.new("I;16", (8, 8)).save(buffer, "TIFF")
    data = buffer.getvalue()
    for tag, old, new in ((256, 8, width), (257, 8, height)):
        data = data.replace(
            struct.pack("<HHII", tag, 4, 1, old), struct.pack("<HHII", tag, 4, 1, new)
        ).replace(struct.pack("<HHIHH", tag, 3, 1, old, 0), struct.pack("<HHII", tag, 4, 1, new))
    return data


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 24 16\n%%EndComments\n/a (w) file\n"

IMAGES: list[tuple[str, bytes, str]] = [
    ("JPEG", jpeg_of(60000, 60000), "does not decode: Image size (3600000000 pixels) exceeds"),
    ("JPEG of 40 million", jpeg_of(8000, 5000), "has 8000 x 5000 pixels; allowed: 33554432"),
    ("PNG", png_of(60000, 60000), "does not decode: Image size (3600000000 pixels) exceeds"),
    ("PNG of 10 GB wide", png_of(2**31 - 1, 1), "does not decode"),
    ("PNG of 100 million", png_of(10000, 10000), "does not decode: Image size (100000000"),
    ("TIFF", tiff_of(60000, 60000), "does not decode: Image size (3600000000 pixels) exceeds"),
    ("PostScript", POSTSCRIPT, "does not decode: cannot identify image file"),
    ("QOI", b"qoif" + struct.pack(">II", 60000, 60000) + bytes(90), "cannot identify image file"),
]


def _encoded(data: bytes) -> Callable[[Path], Path]:
    rows = np.tile(np.frombuffer(data, np.uint8), (STEPS, 1))
    return lambda folder: act(folder, rows)


for _name, _data, _says in IMAGES:
    case(f"image, {_name}", ACT, _says, 2)(_encoded(_data))


def attributes(name: str, value: Any, says: str) -> None:
    def build(folder: Path) -> Path:
        path = robomimic(folder)
        with h5py.File(path, "r+") as file:
            file["data"].attrs["env_args"] = value
        return path

    case(f"robomimic, {name}", "robomimic", says)(build)


attributes("nested description", "[" * 50_000, "data.attrs['env_args'] is not JSON: maximum")
attributes("description that is a list", "[1]", "is not a description of an environment.")
attributes("description that is a number", 3, "is a int64; allowed: JSON with at most")
attributes("environment that is a text", '{"env_kwargs": "x"}', "is not a description")


@case("robomimic, demonstration in another file", "robomimic", "is a link to another file, to", 2)
def _(folder: Path) -> Path:
    path = robomimic(folder)
    with h5py.File(path, "r+") as file:
        replaced(file, "data/demo_1", h5py.ExternalLink(str(outside_file(folder)), "/"))
    return path


@case("robomimic, mask in another file", "robomimic", "mask/train is a link to another file, to")
def _(folder: Path) -> Path:
    path = robomimic(folder)
    with h5py.File(path, "r+") as file:
        replaced(file, "mask/train", h5py.ExternalLink(str(outside_file(folder)), "/qpos"))
    return path


def shaped(name: str, key: str, shape: tuple[int, ...], says: str) -> None:
    """Adds a file of robomimic with a series of another shape in its second demonstration."""

    def build(folder: Path) -> Path:
        path = robomimic(folder)
        with h5py.File(path, "r+") as file:
            if f"data/demo_1/{key}" in file:
                del file[f"data/demo_1/{key}"]
            file[f"data/demo_1/{key}"] = np.zeros(shape)
        return path

    case(f"robomimic, {name}", "robomimic", says, 2)(build)


shaped("positions of one number", "obs/robot0_eef_pos", (STEPS, 1), "robot0_eef_pos has shape (5, ")
shaped(
    "quaternions of zero numbers", "obs/robot0_eef_quat", (STEPS, 0), "eef_quat has shape (5, 0);"
)
shaped(
    "fingers of zero numbers", "obs/robot0_gripper_qpos", (STEPS, 0), "gripper_qpos has shape (5, 0"
)
shaped("actions without an axis", "actions", (STEPS,), "actions has shape (5,); allowed: (T, D).")
