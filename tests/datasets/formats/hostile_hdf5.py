"""Hostile HDF5 files, of ACT and robomimic."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image
from tests.datasets.formats.hostile_corpus import Edit, case, cases, linked, piped, secret_of
from tests.datasets.formats.small_sets import SIZE, STEPS, act, robomimic

TOP = "observations/images/top"
QPOS = "observations/qpos"
IMAGES_SHAPE = (STEPS, *SIZE)
ONE_VALUE = "action is empty or a single value; allowed: one row per step."
OUT = "is a link to another file, to"
Change = Callable[[h5py.File, Path], object]


def opened(change: Change) -> Edit:
    """Changes an open file of HDF5; the change gets it and the folder of the data set."""

    def edit(path: Path, folder: Path) -> None:
        with h5py.File(path, "r+") as file:
            change(file, folder)

    return edit


def replaced(file: h5py.File, key: str, value: Any) -> None:
    del file[key]
    file[key] = value


def valued(key: str, value: Any) -> Edit:
    """Puts a value in the place of a data set or a group."""
    return opened(lambda file, _: replaced(file, key, value))


def created(key: str, shape: tuple[int, ...], dtype: Any = np.uint8, **options: Any) -> Edit:
    """Puts an empty data set in the place of one."""

    def change(file: h5py.File, _: Path) -> None:
        del file[key]
        file.create_dataset(key, shape, dtype, **options)

    return opened(change)


def stored_outside(key: str, shape: tuple[int, ...]) -> Edit:
    """Puts a data set in the place of one whose bytes are those of the secret file."""

    def change(file: h5py.File, folder: Path) -> None:
        del file[key]
        outside = [(str(secret_of(folder)), 0, int(np.prod(shape)))]
        file.create_dataset(key, shape, np.uint8, external=outside)

    return opened(change)


def outside_file(folder: Path) -> Path:
    """Returns a file of HDF5 beside the data set, with the secret as images."""
    path = folder.parent / f"{folder.name}-outside.h5"
    size = STEPS * int(np.prod(SIZE))
    secret = np.frombuffer(secret_of(folder).read_bytes()[:size], np.uint8)
    with h5py.File(path, "w") as file:
        file["top"] = secret.reshape(STEPS, *SIZE)
        file["qpos"] = np.zeros((STEPS, 14))
    return path


def external(key: str, target: str) -> Edit:
    """Puts a link into another file in the place of a data set or a group."""

    def change(file: h5py.File, folder: Path) -> None:
        replaced(file, key, h5py.ExternalLink(str(outside_file(folder)), target))

    return opened(change)


def soft_through_external(file: h5py.File, folder: Path) -> None:
    file["else"] = h5py.ExternalLink(str(outside_file(folder)), "/")
    replaced(file, TOP, h5py.SoftLink("/else/top"))


def virtual(key: str, source: str, shape: tuple[int, ...]) -> Edit:
    """Puts a view (...) of a data set in another file in the place of one."""

    def change(file: h5py.File, folder: Path) -> None:
        with h5py.File(outside_file(folder)) as other:
            full = other[source].shape
        layout = h5py.VirtualLayout(shape, np.uint8 if source == "top" else np.float64)
        layout[:] = h5py.VirtualSource(str(outside_file(folder)), source, full)[
            tuple(slice(size) for size in shape)
        ]
        del file[key]
        file.create_virtual_dataset(key, layout)

    return opened(change)


def filtered(add: Callable[[Any], object]) -> Edit:
    def change(file: h5py.File, _: Path) -> None:
        del file[TOP]
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((1, *SIZE))
        add(plist)
        space = h5py.h5s.create_simple((STEPS, *SIZE))
        h5py.h5d.create(file.id, TOP.encode(), h5py.h5t.NATIVE_UINT8, space, plist)

    return opened(change)


def referring(file: h5py.File, _: Path) -> None:
    reference = file[QPOS].ref
    del file["action"]
    data = file.create_dataset("action", (STEPS,), h5py.ref_dtype)
    data[0] = reference


GZIP: dict[str, Any] = {"compression": "gzip"}
HUGE = created(TOP, (STEPS, 60000, 60000, 3), chunks=(1, 1, 60000, 3), **GZIP)
LONG = created(TOP, (1000, *SIZE), maxshape=(None, *SIZE), chunks=(933120, *SIZE), **GZIP)
UNWRITTEN = created(TOP, (STEPS * 10**4, 48, 64, 3), chunks=(1, 48, 64, 3))
BILLION = created("action", (10**9, 14), chunks=(1000, 14), **GZIP)
ROWS = created("observations/images", (10**6, 100), chunks=(1, 100))
TWICE = filtered(lambda plist: [plist.set_deflate(9) for _ in range(2)])
LOADED = filtered(lambda plist: plist.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, (0,) * 7))
RECORDS = np.zeros((STEPS, 14), [("a", "<f8")])
STORED_TOP, STORED_QPOS = stored_outside(TOP, IMAGES_SHAPE), stored_outside(QPOS, (STEPS, 14))
VIEW = virtual(TOP, "top", IMAGES_SHAPE)
ELSEWHERE = "has its data in another file; it is not read."
cases(
    "act_hdf5",
    "hdf5",
    act,
    "episode_1.hdf5",
    [
        ("images stored in another file", STORED_TOP, f"top {ELSEWHERE}", 2),
        ("states stored in another file", STORED_QPOS, f"qpos {ELSEWHERE}", 2),
        ("external link to images", external(TOP, "/top"), OUT, 2),
        ("external link to states", external(QPOS, "/qpos"), OUT, 2),
        ("external link to a group", external("observations", "/"), OUT, 2),
        ("soft link through an external one", opened(soft_through_external), OUT, 2),
        ("soft links in a circle", valued(TOP, h5py.SoftLink(f"/{TOP}")), "a link, 8 times.", 2),
        ("virtual data set", VIEW, "top is a virtual data set, made of other ones", 2),
        ("gzip images of 60000 x 60000", HUGE, "10800000000 bytes in chunks of 180000;", 2),
        ("a chunk of 1 GB", LONG, "in chunks of 1074954240; allowed: 268435456.", 2),
        ("images that were never written", UNWRITTEN, "Was it written to the end?", 2),
        ("a billion steps", BILLION, "action has 1000000000 rows; allowed: 1048576.", 2),
        ("deflate twice", TWICE, "top has filter 1; allowed, each once: deflate, shuffle", 2),
        ("a filter of a library to load", LOADED, "top has filter 32001; allowed, each once", 2),
        ("references in place of numbers", opened(referring), "action has type object; allowed", 2),
        ("records in place of numbers", valued("action", RECORDS), "has type [('a', '<f8')]", 2),
        ("a single number as action", valued("action", 3.0), ONE_VALUE, 2),
        ("no number as action", valued("action", h5py.Empty("f4")), ONE_VALUE, 2),
        ("values in place of cameras", ROWS, "not fit the other episodes. There is no camera", 2),
        ("a pipe", piped, "is neither a file nor a folder; it is not read.", 2),
        ("a link out", linked, "leads out of the data set, to", 2),
    ],
)


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
    ("PostScript", POSTSCRIPT, "does not decode: its 75 bytes begin with 25 21"),
    ("QOI", b"qoif" + struct.pack(">II", 60000, 60000) + bytes(90), "no image of JPEG, PNG, TIFF"),
]


def _encoded(data: bytes) -> Callable[[Path], Path]:
    rows = np.tile(np.frombuffer(data, np.uint8), (STEPS, 1))
    return lambda folder: act(folder, rows)


for _name, _data, _says in IMAGES:
    case(f"image, {_name}", "act_hdf5", _says, 2)(_encoded(_data))


def described(value: Any) -> Edit:
    def change(file: h5py.File, _: Path) -> None:
        file["data"].attrs["env_args"] = value

    return opened(change)


def shaped(key: str, *shape: int) -> Edit:
    """Gives a series of the second demonstration another shape."""

    def change(file: h5py.File, _: Path) -> None:
        if f"data/demo_1/{key}" in file:
            del file[f"data/demo_1/{key}"]
        file[f"data/demo_1/{key}"] = np.zeros(shape)

    return opened(change)


NO_ENVIRONMENT = "is not a description of an environment."
QUATERNION, FINGERS = "obs/robot0_eef_quat", "obs/robot0_gripper_qpos"
ONE = shaped("obs/robot0_eef_pos", STEPS, 1)
cases(
    "robomimic",
    "robomimic",
    robomimic,
    "",
    [
        ("nested description", described("[" * 50_000), "['env_args'] is not JSON: maximum", 0),
        ("description that is a list", described("[1]"), NO_ENVIRONMENT, 0),
        ("description that is a number", described(3), "is a int64; allowed: JSON with at most", 0),
        ("environment that is a text", described('{"env_kwargs": "x"}'), "is not a description", 0),
        ("demonstration in another file", external("data/demo_1", "/"), OUT, 2),
        ("mask in another file", external("mask/train", "/qpos"), f"mask/train {OUT}", 0),
        ("positions of one number", ONE, "robot0_eef_pos has shape (5, ", 2),
        ("quaternions of zero numbers", shaped(QUATERNION, STEPS, 0), "quat has shape (5, 0)", 2),
        ("fingers of zero numbers", shaped(FINGERS, STEPS, 0), "gripper_qpos has shape (5, 0", 2),
        ("actions without an axis", shaped("actions", STEPS), "actions has shape (5,); allowed", 2),
    ],
)
