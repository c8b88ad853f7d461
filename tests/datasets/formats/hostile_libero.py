"""Hostile files of LIBERO, in a folder of one file per task."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from tests.datasets.formats.hostile_corpus import case, secret_of
from tests.datasets.formats.hostile_hdf5 import outside_file, replaced
from tests.datasets.formats.small_sets import SIZE, STEPS, libero

LIBERO = "libero"
DEMO = "data/demo_1"
IMAGES = f"{DEMO}/obs/agentview_rgb"
Edit = Callable[[h5py.File, Path], object]


def edited(name: str, says: str, others: int = 2) -> Callable[[Edit], Edit]:
    """Adds a file that the decorated function edits, by default in its second demonstration."""

    def add(edit: Edit) -> Edit:
        def build(folder: Path) -> Path:
            path = libero(folder)
            with h5py.File(path, "r+") as file:
                edit(file, folder)
            return path

        case(f"libero, {name}", LIBERO, says, others)(build)
        return edit

    return add


def attribute(name: str, key: str, value: Any, says: str, others: int = 0) -> None:
    """Adds a file with another attribute of `data`."""

    def edit(file: h5py.File, _: Path) -> None:
        file["data"].attrs[key] = value

    edited(name, says, others)(edit)


@edited("demonstration in another file", "is a link to another file, to")
def _(file: h5py.File, folder: Path) -> None:
    replaced(file, DEMO, h5py.ExternalLink(str(outside_file(folder)), "/"))


@edited("images in another file", "is a link to another file, to")
def _(file: h5py.File, folder: Path) -> None:
    replaced(file, IMAGES, h5py.ExternalLink(str(outside_file(folder)), "/top"))


@edited("images stored in another file", "agentview_rgb has its data in another file; it is not")
def _(file: h5py.File, folder: Path) -> None:
    del file[IMAGES]
    outside = [(str(secret_of(folder)), 0, STEPS * int(np.prod(SIZE)))]
    file.create_dataset(IMAGES, (STEPS, *SIZE), np.uint8, external=outside)


@edited("positions that are a virtual data set", "is a virtual data set, made of other ones")
def _(file: h5py.File, folder: Path) -> None:
    layout = h5py.VirtualLayout((STEPS, 3), np.float64)
    layout[:] = h5py.VirtualSource(str(outside_file(folder)), "qpos", (STEPS, 14))[:, :3]
    del file[f"{DEMO}/obs/ee_pos"]
    file.create_virtual_dataset(f"{DEMO}/obs/ee_pos", layout)


@edited("images of 60000 x 60000", "has rows of 10800000000 bytes in chunks of 180000;")
def _(file: h5py.File, _: Path) -> None:
    del file[IMAGES]
    shape = (STEPS, 60000, 60000, 3)
    file.create_dataset(IMAGES, shape, np.uint8, chunks=(1, 1, 60000, 3), compression="gzip")


@edited("images without colours", "agentview_rgb has shape (5, 16, 24); allowed: (T, H, W, 3).")
def _(file: h5py.File, _: Path) -> None:
    replaced(file, IMAGES, np.zeros((STEPS, 16, 24), np.uint8))


@edited("images that are floats", "agentview_rgb at frame 0 is float64 (16, 24, 3); allowed")
def _(file: h5py.File, _: Path) -> None:
    replaced(file, IMAGES, np.zeros((STEPS, *SIZE)))


@edited("a billion actions", "actions has 1000000000 rows; allowed: 1048576.")
def _(file: h5py.File, _: Path) -> None:
    del file[f"{DEMO}/actions"]
    options = {"chunks": (1000, 7), "compression": "gzip"}
    file.create_dataset(f"{DEMO}/actions", (10**9, 7), np.uint8, **options)


@edited("one action", "actions is empty or a single value; allowed: one row per step.")
def _(file: h5py.File, _: Path) -> None:
    replaced(file, f"{DEMO}/actions", 3.0)


@edited("actions of a gigabyte each", "actions")
def _(file: h5py.File, _: Path) -> None:
    del file[f"{DEMO}/actions"]
    options = {"chunks": (1, 10**6), "compression": "gzip"}
    file.create_dataset(f"{DEMO}/actions", (STEPS, 2**27), np.float64, **options)


@edited("positions that are not finite", "obs/ee_pos at frame 2")
def _(file: h5py.File, _: Path) -> None:
    file[f"{DEMO}/obs/ee_pos"][2, 1] = np.inf


@edited("rotations of two numbers", "obs/ee_ori has shape (5, 2); allowed: (T, 3).")
def _(file: h5py.File, _: Path) -> None:
    replaced(file, f"{DEMO}/obs/ee_ori", np.zeros((STEPS, 2)))


@edited("fingers of zero numbers", "obs/gripper_states has shape (5, 0); allowed: (T, 2).")
def _(file: h5py.File, _: Path) -> None:
    replaced(file, f"{DEMO}/obs/gripper_states", np.zeros((STEPS, 0)))


@edited("positions of one number", "obs/ee_pos has shape (5, 1); allowed: (T, 3).")
def _(file: h5py.File, _: Path) -> None:
    replaced(file, f"{DEMO}/obs/ee_pos", np.zeros((STEPS, 1)))


@edited("joints without a number", "obs/joint_states has shape (5,); allowed: (T, D).")
def _(file: h5py.File, _: Path) -> None:
    replaced(file, f"{DEMO}/obs/joint_states", np.zeros(STEPS))


@edited("rotations that are records", "ee_ori has type [('a', '<f8')]; allowed: numbers and")
def _(file: h5py.File, _: Path) -> None:
    replaced(file, f"{DEMO}/obs/ee_ori", np.zeros((STEPS, 3), [("a", "<f8")]))


@edited("fingers that are missing", "There is no data set 'obs/gripper_states'.")
def _(file: h5py.File, _: Path) -> None:
    del file[f"{DEMO}/obs/gripper_states"]


@edited("soft links in a circle", "is a link to a link, 8 times.")
def _(file: h5py.File, _: Path) -> None:
    replaced(file, IMAGES, h5py.SoftLink(f"/{IMAGES}"))


WORDS = "the language_instruction in data.attrs['problem_info'] is "
attribute("nested instruction", "problem_info", "[" * 50_000, "data.attrs['problem_info'] is not")
attribute("instruction of numbers", "problem_info", json.dumps({"language_instruction": 3}), WORDS)
attribute(
    "instruction of lists", "problem_info", json.dumps({"language_instruction": [[1]]}), WORDS
)
attribute("nested environment", "env_args", "[" * 50_000, "data.attrs['env_args'] is not JSON: max")
attribute("image convention", "macros_image_convention", "up", "There is no image convention 'up'")
attribute(
    "image convention of numbers", "macros_image_convention", [1, 2], "There is no image convention"
)


def in_folder(name: str, says: str, others: int) -> Callable[[Edit], Edit]:
    """Adds a folder with an intact file and, in a subfolder, one that is edited as a path."""

    def add(edit: Any) -> Any:
        def build(folder: Path) -> Path:
            root = folder / "libero_90"
            (root / "more").mkdir(parents=True)
            first = libero(folder)
            shutil.copyfile(first, root / "more" / "b.hdf5")
            first.rename(root / "a.hdf5")
            edit(root / "more" / "b.hdf5", folder)
            return root

        case(f"libero, {name}", LIBERO, says, others)(build)
        return edit

    return add


@in_folder("file that is a link out", "leads out of the data set, to", 0)
def _(file: Path, folder: Path) -> None:
    outside = folder.parent / f"{folder.name}.hdf5"
    file.rename(outside)
    file.symlink_to(outside)


@in_folder("file that is a pipe", "is neither a file nor a folder; it is not read.", 0)
def _(file: Path, _: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@in_folder("file that is a text", "b.hdf5 cannot be read as HDF5", 0)
def _(file: Path, _: Path) -> None:
    file.write_text("no HDF5")


@in_folder("file that is truncated", "b.hdf5 cannot be read as HDF5; it is truncated", 0)
def _(file: Path, _: Path) -> None:
    file.write_bytes(file.read_bytes()[:3000])
