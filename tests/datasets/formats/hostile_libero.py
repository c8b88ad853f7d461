"""Hostile files of LIBERO, in a folder of one file per task."""

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from tests.datasets.formats.hostile_corpus import Edit, cases, cut, linked, piped, written
from tests.datasets.formats.hostile_hdf5 import (
    GZIP,
    IMAGES_SHAPE,
    OUT,
    created,
    external,
    opened,
    stored_outside,
    valued,
    virtual,
)
from tests.datasets.formats.small_sets import SIZE, STEPS, libero

DEMO = "data/demo_1"
IMAGES = f"{DEMO}/obs/agentview_rgb"
ACTIONS = f"{DEMO}/actions"


def infinite(file: h5py.File, _: Path) -> None:
    file[f"{DEMO}/obs/ee_pos"][2, 1] = np.inf


def without_fingers(file: h5py.File, _: Path) -> None:
    del file[f"{DEMO}/obs/gripper_states"]


def shaped(key: str, *shape: int, dtype: Any = np.float64) -> Edit:
    return valued(f"{DEMO}/obs/{key}", np.zeros(shape, dtype))


def attribute(key: str, value: Any) -> Edit:
    """Gives `data` another attribute."""

    def change(file: h5py.File, _: Path) -> None:
        file["data"].attrs[key] = value

    return opened(change)


def instruction(value: Any) -> Edit:
    return attribute("problem_info", json.dumps({"language_instruction": value}))


HUGE = created(IMAGES, (STEPS, 60000, 60000, 3), chunks=(1, 1, 60000, 3), **GZIP)
BILLION = created(ACTIONS, (10**9, 7), chunks=(1000, 7), **GZIP)
GIGABYTES = created(ACTIONS, (STEPS, 2**27), np.float64, chunks=(1, 10**6), **GZIP)
GRAY = shaped("agentview_rgb", STEPS, 16, 24, dtype=np.uint8)
RECORDS = shaped("ee_ori", STEPS, 3, dtype=[("a", "<f8")])
CIRCLE = valued(IMAGES, h5py.SoftLink(f"/{IMAGES}"))
STORED = stored_outside(IMAGES, IMAGES_SHAPE)
VIEW = virtual(f"{DEMO}/obs/ee_pos", "qpos", (STEPS, 3))
WORDS = "the language_instruction in data.attrs['problem_info'] is "
NO_CONVENTION = "There is no image convention"
CONVENTION = "macros_image_convention"
cases(
    "libero",
    "libero",
    libero,
    "",
    [
        ("demonstration in another file", external(DEMO, "/"), OUT, 2),
        ("images in another file", external(IMAGES, "/top"), OUT, 2),
        ("images stored in another file", STORED, "agentview_rgb has its data in another file", 2),
        ("positions that are a virtual data set", VIEW, "is a virtual data set, made of other", 2),
        ("images of 60000 x 60000", HUGE, "10800000000 bytes in chunks of 180000;", 2),
        ("images without colours", GRAY, "shape (5, 16, 24); allowed: (T, H, W, 3).", 2),
        ("images that are floats", shaped("agentview_rgb", STEPS, *SIZE), "float64 (16, 24, 3)", 2),
        ("a billion actions", BILLION, "actions has 1000000000 rows; allowed: 1048576.", 2),
        ("one action", valued(ACTIONS, 3.0), "actions is empty or a single value; allowed", 2),
        ("actions of a gigabyte each", GIGABYTES, "actions", 2),
        ("positions that are not finite", opened(infinite), "obs/ee_pos at frame 2", 2),
        ("rotations of two numbers", shaped("ee_ori", STEPS, 2), "ee_ori has shape (5, 2)", 2),
        ("fingers of zero numbers", shaped("gripper_states", STEPS, 0), "shape (5, 0)", 2),
        ("positions of one number", shaped("ee_pos", STEPS, 1), "ee_pos has shape (5, 1)", 2),
        ("joints without a number", shaped("joint_states", STEPS), "states has shape (5,)", 2),
        ("rotations that are records", RECORDS, "ee_ori has type [('a', '<f8')]; allowed", 2),
        ("fingers that are missing", opened(without_fingers), "data set 'obs/gripper_states'", 2),
        ("soft links in a circle", CIRCLE, "is a link to a link, 8 times.", 2),
        ("nested instruction", attribute("problem_info", "[" * 50_000), "problem_info'] is not", 0),
        ("instruction of numbers", instruction(3), WORDS, 0),
        ("instruction of lists", instruction([[1]]), WORDS, 0),
        ("nested environment", attribute("env_args", "[" * 50_000), "'env_args'] is not JSON", 0),
        ("image convention", attribute(CONVENTION, "up"), f"{NO_CONVENTION} 'up'", 0),
        ("image convention of numbers", attribute(CONVENTION, [1, 2]), NO_CONVENTION, 0),
    ],
)


def libero_90(folder: Path) -> Path:
    """Writes a folder with a file and, in a subfolder, a second one."""
    root = folder / "libero_90"
    (root / "more").mkdir(parents=True)
    first = libero(folder)
    shutil.copyfile(first, root / "more" / "b.hdf5")
    first.rename(root / "a.hdf5")
    return root


cases(
    "libero",
    "libero",
    libero_90,
    "more/b.hdf5",
    [
        ("file that is a link out", linked, "leads out of the data set, to", 0),
        ("file that is a pipe", piped, "is neither a file nor a folder; it is not read.", 0),
        ("file that is a text", written("no HDF5"), "b.hdf5 cannot be read as HDF5", 0),
        ("file that is truncated", cut(3000), "b.hdf5 cannot be read as HDF5; it is truncated", 0),
    ],
)
