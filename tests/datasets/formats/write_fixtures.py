"""Writes the files in `fixtures` with the libraries of the formats, each in its own environment.

    python write_fixtures.py lerobot fixtures/lerobot_v3.zip      (lerobot 0.4.4, `make interop`)
    python write_fixtures.py lerobot fixtures/lerobot_v21.zip             (lerobot 0.3.3)
    python write_fixtures.py replay_buffer fixtures/diffusion_policy.zip
                                                  (zarr 2.18, diffusion_policy at 5ba07ac)
    python write_fixtures.py umi fixtures/umi.zarr.zip            (and UMI's codecs at d095ba9)
    python write_fixtures.py rlds fixtures/rlds.zip
                                          (tensorflow-cpu 2.21.0, tensorflow-datasets 4.9.10)

This file alone defines their contents; `test_fixtures.py` imports its formulas. ACT and robomimic
write their layouts with h5py, so their tests write such files themselves.
"""

import importlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HZ = 20
LENGTHS = (4, 6)
SHAPE = (32, 48, 3)


def image(step: int, episode: int) -> NDArray[np.uint8]:
    """Returns a smooth image (32, 48, 3), another for each step."""
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]]
    return np.stack(
        [3 * rows + 9 * step, 4 * columns, 0 * rows + 60 * episode + 20], axis=-1
    ).astype(np.uint8)


def joints(steps: int, episode: int) -> NDArray[np.float32]:
    """Returns joints or actions (steps, 14), from 0 to below 1."""
    return (np.arange(steps * 14).reshape(steps, 14) * 0.61803 + 0.1 * episode).astype(
        np.float32
    ) % 1


def write_lerobot(target: Path, folder: Path) -> None:
    """Writes a LeRobotDataset with a video and single images."""
    module = importlib.import_module("lerobot.datasets.lerobot_dataset")
    names = [f"joint_{place}" for place in range(14)]
    numbers = {"dtype": "float32", "shape": (14,), "names": names}
    shown = {"shape": SHAPE, "names": ["height", "width", "channels"]}
    features = {"observation.state": numbers, "action": numbers}
    features |= {
        f"observation.images.{name}": {"dtype": kind, **shown}
        for name, kind in (("top", "video"), ("wrist", "image"))
    }
    dataset = module.LeRobotDataset.create(
        "fixture/small", fps=HZ, features=features, root=folder / "set", use_videos=True
    )
    for episode, steps in enumerate(LENGTHS):
        for step in range(steps):
            row = {
                "observation.state": joints(steps, episode)[step],
                "action": joints(steps, episode + 5)[step],
            }
            row |= {f"observation.images.{name}": image(step, episode) for name in ("top", "wrist")}
            if module.CODEBASE_VERSION == "v2.1":
                dataset.add_frame(row, task=f"task {episode}")
            else:
                dataset.add_frame({**row, "task": f"task {episode}"})
        dataset.save_episode()
    if module.CODEBASE_VERSION != "v2.1":
        dataset.finalize()
    shutil.rmtree(folder / "set" / "images", ignore_errors=True)
    shutil.make_archive(str(target.with_suffix("")), "zip", folder / "set")


def write_replay_buffer(target: Path, folder: Path) -> None:
    """Writes a replay buffer of diffusion_policy."""
    buffer = importlib.import_module(
        "diffusion_policy.common.replay_buffer"
    ).ReplayBuffer.create_empty_numpy()
    for episode, steps in enumerate(LENGTHS):
        shown = np.stack([image(step, episode) for step in range(steps)])
        buffer.add_episode(
            {"img": shown, "state": joints(steps, episode), "action": joints(steps, episode + 5)}
        )
    buffer.save_to_path(str(folder / "set.zarr"), chunk_length=3)
    shutil.make_archive(str(target.with_suffix("")), "zip", folder)


def hand(steps: int, episode: int) -> dict[str, Any]:
    """Returns the series of a gripper of UMI."""
    values = joints(steps, episode)
    parts = {
        "eef_pos": values[:, :3],
        "eef_rot_axis_angle": values[:, 3:6],
        "gripper_width": 0.08 * values[:, 6:7],
    }
    parts |= {name: np.zeros((steps, 6)) for name in ("demo_start_pose", "demo_end_pose")}
    return {f"robot0_{name}": part for name, part in parts.items()}


def write_umi(target: Path, _: Path) -> None:
    """Writes a replay buffer like UMI's pipeline: images as JPEG XL, all in a zip file."""
    zarr = importlib.import_module("zarr")
    codecs = importlib.import_module("diffusion_policy.codecs.imagecodecs_numcodecs")
    codecs.register_codecs()
    buffer_class = importlib.import_module("diffusion_policy.common.replay_buffer").ReplayBuffer
    buffer = buffer_class.create_empty_zarr(storage=zarr.MemoryStore())
    for episode, steps in enumerate(LENGTHS):
        buffer.add_episode(data=hand(steps, episode), compressors=None)
    shown = np.concatenate(
        [[image(step, episode) for step in range(n)] for episode, n in enumerate(LENGTHS)]
    )
    array = buffer.data.require_dataset(
        "camera0_rgb",
        shape=shown.shape,
        chunks=(1, *SHAPE),
        compressor=codecs.JpegXl(level=99, numthreads=1),
        dtype=np.uint8,
    )
    for step, frame in enumerate(shown):
        array[step] = frame
    target.unlink(missing_ok=True)
    with zarr.ZipStore(str(target), mode="w") as store:
        buffer.save_to_store(store=store)


def write_rlds(target: Path, folder: Path) -> None:
    """Writes a data set of TFDS in RLDS's form, its splits in one file each."""
    tfds = importlib.import_module("tensorflow_datasets")
    kinds = tfds.features

    class Small(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc, name-defined]
        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(builder=self, features=rlds_features(kinds))

        def _split_generators(self, _: Any) -> Any:
            return {"train": self._generate_examples(0), "val": self._generate_examples(1)}

        def _generate_examples(self, episode: int) -> Any:
            yield (
                "0",
                {
                    "steps": [rlds_step(step, episode) for step in range(LENGTHS[episode])],
                    "episode_metadata": {"file_path": "recording"},
                },
            )

    Small(data_dir=folder / "set").download_and_prepare()
    shutil.make_archive(str(target.with_suffix("")), "zip", folder / "set")


def rlds_features(kinds: Any) -> Any:
    """Returns the features of an episode, one of each kind that Open X-Embodiment has."""
    observation = {
        "image": kinds.Image(shape=SHAPE, dtype=np.uint8, encoding_format="jpeg"),
        "wrist": kinds.Image(shape=SHAPE, dtype=np.uint8, encoding_format="png"),
        "depth": kinds.Image(shape=(*SHAPE[:2], 1), dtype=np.uint16, encoding_format="png"),
        "state": kinds.Tensor(shape=(14,), dtype=np.float32),
        "packed": kinds.Tensor(shape=(14,), dtype=np.float64, encoding=kinds.Encoding.ZLIB),
        "tokens": kinds.Sequence(np.int32),
    }
    step = {
        "observation": kinds.FeaturesDict(observation),
        "action": kinds.FeaturesDict(
            {
                "joints": kinds.Tensor(shape=(13,), dtype=np.float32),
                "gripper": kinds.Scalar(np.float32),
            }
        ),
        "language_instruction": kinds.Text(),
        **{name: kinds.Scalar(np.float32) for name in ("reward", "discount")},
        **{name: kinds.Scalar(np.bool_) for name in ("is_first", "is_last", "is_terminal")},
    }
    metadata = kinds.FeaturesDict({"file_path": kinds.Text()})
    return kinds.FeaturesDict({"steps": kinds.Dataset(step), "episode_metadata": metadata})


def rlds_step(step: int, episode: int) -> dict[str, Any]:
    """Returns a step of an episode."""
    steps = LENGTHS[episode]
    action = joints(steps, episode + 5)[step]
    shown = image(step, episode)
    observation = {
        "image": shown,
        "wrist": shown,
        "depth": np.full((*SHAPE[:2], 1), 700 + step, np.uint16),
        "state": joints(steps, episode)[step],
        "packed": joints(steps, episode)[step].astype(np.float64),
        "tokens": [step] * step,
    }
    last = step == steps - 1
    return {
        "observation": observation,
        "action": {"joints": action[:13], "gripper": action[13]},
        "language_instruction": f"task {episode}",
        "reward": float(last),
        "discount": 1.0,
        "is_first": step == 0,
        "is_last": last,
        "is_terminal": last,
    }


ROLES = {
    "rlds": write_rlds,
    "lerobot": write_lerobot,
    "replay_buffer": write_replay_buffer,
    "umi": write_umi,
}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        ROLES[sys.argv[1]](Path(sys.argv[2]).absolute(), Path(place))
