"""Comparison with diffusion_policy's ReplayBuffer: we import what it writes, it loads our exports.

Run by `make interop`; the Python of its environment (zarr 2) is the only argument, and the variable
INTEROP_PATH names the folder of its code.
"""

import importlib
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from interop import (
    HZ,
    LENGTHS,
    depth,
    elsewhere,
    expect,
    images,
    imported_store,
    original_store,
    run_role,
    vectors,
)

COMPRESSORS = ("default", "disk")


def main() -> None:
    """Both directions, or one role of them in the environment of diffusion_policy."""
    if run_role(ROLES):
        return
    with tempfile.TemporaryDirectory() as folder:
        check_import(Path(folder), sys.argv[1])
        for name in ("ours.zarr", "ours.zarr.zip"):
            check_export(Path(folder), sys.argv[1], name)


def check_import(folder: Path, python: str) -> None:
    from stringline.datasets.formats.diffusion_policy import DiffusionPolicyReader
    from stringline.datasets.formats.vector_layout import AlohaLayout

    there(python, "write", folder / "theirs", folder)
    for compressor in COMPRESSORS:
        reader = DiffusionPolicyReader(AlohaLayout("opening", "opening"), control_hz=HZ)
        source = folder / "theirs" / f"{compressor}.zarr"
        store = imported_store(reader, source, folder / f"imported {compressor}")
        for number, episode in enumerate(store.episodes()):
            steps = LENGTHS[number]
            arrays = episode.arrays
            expected = {
                "joints/position": vectors(steps, number),
                "action": vectors(steps, number + 50),
                "rgb/img": images(number),
            }
            for key, values in expected.items():
                claim = f"{key} of episode {number} is exact ({compressor})"
                expect(np.array_equal(arrays[key], values), claim)


def check_export(folder: Path, python: str, name: str) -> None:
    from stringline.datasets.formats.diffusion_policy import DiffusionPolicyWriter

    store = original_store(folder / f"store of {name}")
    DiffusionPolicyWriter().write(store, folder / name)
    there(python, "read", folder / name, folder / f"{name}.npz")
    found = np.load(folder / f"{name}.npz")
    ends = np.cumsum(LENGTHS)
    expect(np.array_equal(found["episode_ends"], ends), f"it loads each episode of our {name}")
    joined = partial(np.concatenate, axis=0)
    expected: dict[str, Any] = {
        "state": joined([vectors(steps, n) for n, steps in enumerate(LENGTHS)]),
        "action": joined([vectors(steps, n + 50) for n, steps in enumerate(LENGTHS)]),
        "overhead": joined([images(n) for n in range(len(LENGTHS))]),
        "overhead_depth": joined([[depth(step) for step in range(n)] for n in LENGTHS]),
    }
    for key, values in expected.items():
        expect(np.array_equal(found[key], values), f"its {key} is exact")


def write(path: Path, _: Path) -> None:
    """In the environment of diffusion_policy: writes replay buffers."""
    for compressor in COMPRESSORS:
        buffer = replay_buffer().create_empty_numpy()
        for episode, steps in enumerate(LENGTHS):
            numbers = {"state": vectors(steps, episode), "action": vectors(steps, episode + 50)}
            buffer.add_episode({"img": images(episode), **numbers})
        path.mkdir(exist_ok=True)
        target = str(path / f"{compressor}.zarr")
        buffer.save_to_path(
            target, chunks={"img": (3, *images(0).shape[1:])}, compressors=compressor
        )


def read(path: Path, result: Path) -> None:
    """In the environment of diffusion_policy: loads a replay buffer and saves it."""
    if path.suffix == ".zip":
        store = importlib.import_module("zarr").ZipStore(str(path), mode="r")
        buffer = replay_buffer().copy_from_store(store)
    else:
        buffer = replay_buffer().copy_from_path(str(path))
    series = {key: buffer[key][:] for key in buffer.keys()}  # noqa: SIM118
    np.savez(result, episode_ends=buffer.episode_ends[:], **series)


def replay_buffer() -> Any:
    return importlib.import_module("diffusion_policy.common.replay_buffer").ReplayBuffer


there = partial(elsewhere, "check_replay_buffer")
ROLES = {"write": write, "read": read}

if __name__ == "__main__":
    main()
