"""Comparison with lerobot: we import the data sets that it writes, and it loads our exports.

Run by `make interop` with lerobot 0.4.4 and, where Python 3.12 is found, with the newest one. The
Python of lerobot's environment is the only argument. The decoders of lerobot 0.4.4 do not run
there: torchcodec needs FFmpeg from the system, and torchvision has removed its decoder. So PyAV
replaces its function that decodes frames, with its tolerance for their times; everything else is
lerobot's code. Newer ones decode with PyAV themselves.
"""

import importlib
import importlib.util
import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from interop import (
    HZ,
    LENGTHS,
    SHAPE,
    depth,
    elsewhere,
    expect,
    image,
    images,
    imported_store,
    original_store,
    run_role,
    vectors,
)

VIDEO, IMAGE = "observation.images.top", "observation.images.wrist"
DEPTH_MODULE = "lerobot.datasets.depth_utils"  # Of the versions with depth, 0.6 and newer.
ANNOTATIONS = "lerobot.annotations.steerable_pipeline"  # Of lerobot-annotate, 0.6 and newer.
DEPTH_LOSS_MM = 5  # Of the 4095 steps in a video of depth.
LOSS = 8.0  # Largest mean difference of an image before and after the video codec.


def main() -> None:
    """Both directions, or one role of them in lerobot's environment."""
    if run_role(ROLES):
        return
    with tempfile.TemporaryDirectory() as folder:
        check_import(Path(folder), sys.argv[1])
        for stored in ("video", "image"):
            check_export(Path(folder), sys.argv[1], stored)


def check_import(folder: Path, python: str) -> None:
    from stringline.datasets.formats.lerobot import LeRobotReader
    from stringline.datasets.formats.vector_layout import AlohaLayout

    in_lerobot(python, "write", folder / "theirs", folder / "theirs.npz")
    theirs = np.load(folder / "theirs.npz")
    reader = LeRobotReader(AlohaLayout("opening", "opening"))
    store = imported_store(reader, folder / "theirs", folder / "imported")
    for number, episode in enumerate(store.episodes()):
        arrays = episode.arrays
        expect(episode.steps == LENGTHS[number], f"episode {number} has its length")
        expect(
            np.array_equal(arrays["joints/position"], vectors(LENGTHS[number], number)),
            "its states are exact",
        )
        expect(
            np.array_equal(arrays["action"], vectors(LENGTHS[number], number + 50)),
            "its actions are exact",
        )
        expect(episode.attributes.instruction == f"task {number}", "it has its task")
        for step in range(episode.steps):
            expect(
                np.array_equal(arrays["rgb/wrist"][step], image(step, number)),
                "its single images are exact",
                show=step == 0,
            )
            loss = np.abs(arrays["rgb/top"][step].astype(int) - image(step, number)).mean()
            expect(loss < LOSS, "its video shows the right images", show=step == 0)
        check_depth(
            episode, {name: theirs[name] for name in theirs if name.startswith(f"{number} ")}
        )
    expect(bool(len(theirs.files)) == has(python, DEPTH_MODULE), "depth was compared if it has it")
    features = json.loads((folder / "theirs/meta/info.json").read_text())["features"]
    expect(
        ("language_events" in features) == has(python, ANNOTATIONS.rpartition(".")[0]),
        "its columns of language were among them if it has such",
    )


def check_depth(episode: Any, theirs: dict[str, Any]) -> None:
    """Compares depth in mm with what was written, and with what lerobot itself reads."""
    for name, read in theirs.items():
        camera = name.split()[1]
        found = episode.arrays[f"depth/{camera}"]
        written = np.stack([depth(step) for step in range(episode.steps)])
        expect(
            episode.attributes.contract.camera(camera).depth_unit_m == 0.001,
            f"the depth of {camera} is in mm",
        )
        if camera == "wrist":
            expect(np.array_equal(found, written), "its depth in single images is exact")
        off = np.abs(found.astype(float) - read.reshape(found.shape))
        # lerobot computes with 32 bits, so that few values are rounded to the next number.
        same = off.max() <= 1 and (off > 0).mean() < 0.01
        expect(same, f"the depth of {camera} is that of lerobot ({(off > 0).mean():.2%} 1 mm off)")
        off = np.abs(found.astype(float) - written).max()
        expect(off <= DEPTH_LOSS_MM, f"the depth of {camera} is the written one ({off:.0f} mm off)")


def has(python: str, module: str) -> bool:
    """Returns whether a version of lerobot has a module, so knows depth or language."""
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    return not subprocess.run([python, "-c", code, module], check=False).returncode


def check_export(folder: Path, python: str, stored: str) -> None:
    from stringline.datasets.formats.lerobot_writer import LeRobotWriter

    store = original_store(folder / f"ours {stored}")
    LeRobotWriter(images=stored).write(store, folder / stored)  # type: ignore[arg-type]
    in_lerobot(python, "read", folder / stored, folder / f"{stored}.npz")
    found = np.load(folder / f"{stored}.npz")
    expect(len(found["action"]) == sum(LENGTHS), f"lerobot loads every row of our {stored} export")
    for key, first in (("observation.state", 0), ("action", 50)):
        expected = np.concatenate(
            [vectors(steps, first + episode) for episode, steps in enumerate(LENGTHS)]
        )
        expect(np.array_equal(found[key], expected), f"its {key} is exact")
        expect(
            np.allclose(found[f"mean {key}"], expected.mean(0), atol=1e-5),
            f"its statistics of {key} are right",
        )
    shown = np.concatenate([images(episode) for episode in range(len(LENGTHS))])
    loss = np.abs(255 * np.moveaxis(found["rgb"], 1, -1) - shown).mean((1, 2, 3)).max()
    expect(
        loss < (LOSS if stored == "video" else 1e-3),
        f"it shows the right images ({loss:.3f} of 255 off)",
    )
    depths = np.concatenate([np.stack([depth(step) for step in range(n)]) for n in LENGTHS])
    expect(np.array_equal(np.squeeze(found["depth"]), depths), "its depth is exact")
    expect(
        found["task"].tolist() == [f"task {e}" for e, n in enumerate(LENGTHS) for _ in range(n)],
        "it has the tasks",
    )


def write(path: Path, result: Path) -> None:
    """In lerobot's environment: writes a data set with its own writer, and reads its depth."""
    dataset_class = lerobot()
    names = [f"joint_{place}" for place in range(14)]
    numbers = {"dtype": "float32", "shape": (14,), "names": names}
    shown = {"shape": SHAPE, "names": ["height", "width", "channels"]}
    features = {
        "observation.state": numbers,
        "action": numbers,
        VIDEO: {"dtype": "video", **shown},
        IMAGE: {"dtype": "image", **shown},
    }
    deep = [VIDEO, IMAGE] if importlib.util.find_spec(DEPTH_MODULE) else []
    for key in deep:
        shape = {"shape": (*SHAPE[:2], 1), "names": ["height", "width", "channels"]}
        kind = features[key]["dtype"]
        features[f"{key}_depth"] = {"dtype": kind, **shape, "info": {"is_depth_map": True}}
    dataset = dataset_class.create(
        "here/theirs", fps=HZ, features=features, root=path, robot_type="aloha"
    )
    for episode, steps in enumerate(LENGTHS):
        states, actions = vectors(steps, episode), vectors(steps, episode + 50)
        for step in range(steps):
            shot = image(step, episode)
            row = {
                "observation.state": states[step],
                "action": actions[step],
                VIDEO: shot,
                IMAGE: shot,
            }
            row |= {f"{key}_depth": depth(step)[..., None] for key in deep}
            dataset.add_frame({**row, "task": f"task {episode}"})
        dataset.save_episode()
    dataset.finalize()
    if importlib.util.find_spec("lerobot.annotations"):
        annotate(path)
    np.savez(result, **_depth_of(dataset_class("here/theirs", root=path), deep))


def annotate(path: Path) -> None:
    """Adds the columns of language as lerobot-annotate does, with texts of ours."""
    reader, staging, writer, executor = (
        importlib.import_module(f"{ANNOTATIONS}.{name}")
        for name in ("reader", "staging", "writer", "executor")
    )
    records = list(reader.iter_episodes(path))
    staged = path.with_name("staged")
    for record in records:
        episode = staging.EpisodeStaging(staged, record.episode_index)
        row = {"role": "assistant", "timestamp": record.frame_timestamps[2]}
        episode.write("plan", [row | {"style": "subtask", "content": "grasp"}])
        episode.write("vqa", [row | {"style": "vqa", "content": "[3, 4]", "camera": VIDEO}])
    writer.LanguageColumnsWriter().write_all(records, staged, path)
    executor.Executor._ensure_annotation_metadata_in_info(path)


def _depth_of(dataset: Any, keys: list[str]) -> dict[str, Any]:
    """Returns depth (T, ...) in mm by "<episode> <camera>", as lerobot reads it."""
    items = [dataset[row] for row in range(len(dataset))] if keys else []
    starts = np.cumsum([0, *LENGTHS])
    found = {}
    for key in keys:
        for number, steps in enumerate(LENGTHS):
            mine = items[starts[number] : starts[number] + steps]
            rows = [np.asarray(item[f"{key}_depth"], np.float64) for item in mine]
            found[f"{number} {key.rpartition('.')[2]}"] = np.stack(rows)
    return found


def read(path: Path, result: Path) -> None:
    """In lerobot's environment: loads a data set with its own reader and saves the result."""
    dataset_class = lerobot()
    dataset = dataset_class("here/ours", root=path)
    items = [dataset[row] for row in range(len(dataset))]
    key = "observation.images.overhead"
    columns = {
        name: np.stack([item[name].numpy() for item in items])
        for name in ("observation.state", "action")
    }
    means = {f"mean {name}": np.asarray(dataset.meta.stats[name]["mean"]) for name in columns}
    shown = {"rgb": key, "depth": f"{key}_depth"}
    frames_shown = {
        kind: np.stack([np.asarray(item[name]) for item in items]) for kind, name in shown.items()
    }
    saved: dict[str, Any] = {
        "task": np.array([item["task"] for item in items]),
        **columns,
        **means,
        **frames_shown,
    }
    np.savez(result, **saved)


def lerobot() -> Any:
    """Imports lerobot and replaces its decoder."""
    from stringline.encoders.pretrained.initial_weights import declare_torchvision_operators

    declare_torchvision_operators()
    module: Any = importlib.import_module("lerobot.datasets.lerobot_dataset")
    if hasattr(module, "decode_video_frames"):
        module.decode_video_frames = decode
    return module.LeRobotDataset


def decode(
    path: Path, timestamps: list[float], tolerance_s: float, backend: str | None = None
) -> Any:
    """Returns frames (T, 3, H, W) from 0 to 1 at times in s, as lerobot's own function does."""
    import av
    import torch

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = {
            float((frame.pts or 0) * (stream.time_base or 1)): frame.to_ndarray(format="rgb24")
            for frame in container.decode(stream)
        }
    times = np.array(list(frames))
    nearest = [float(times[np.argmin(np.abs(times - wanted))]) for wanted in timestamps]
    if np.abs(np.array(nearest) - timestamps).max() >= tolerance_s:
        raise ValueError(f"{path} has no frame at {timestamps}; the nearest are {nearest}.")
    return (
        torch.from_numpy(np.stack([frames[time] for time in nearest])).permute(0, 3, 1, 2).float()
        / 255
    )


in_lerobot = partial(elsewhere, "check_lerobot")
ROLES = {"write": write, "read": read}

if __name__ == "__main__":
    main()
