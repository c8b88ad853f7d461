"""Exports are equal after import, readable by other libraries, and appear atomically."""

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import zarr
from tests.datasets.formats.conftest import OPENINGS, Import

from stringline.datasets.embodiments.aloha import GRIPPER_SERVOS
from stringline.datasets.files.atomic import NoSpaceError
from stringline.datasets.formats import exporting
from stringline.datasets.formats.act_hdf5 import ActHdf5Reader, ActHdf5Writer
from stringline.datasets.formats.diffusion_policy import (
    DiffusionPolicyReader,
    DiffusionPolicyWriter,
)
from stringline.datasets.formats.foreign import Reader, Writer
from stringline.datasets.formats.lerobot import LeRobotReader
from stringline.datasets.formats.lerobot_writer import LeRobotWriter
from stringline.datasets.formats.vector_layout import AlohaLayout
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore

WAYS: list[tuple[str, Writer, Reader, int]] = [
    (
        "act",
        ActHdf5Writer(state_gripper="opening", action_gripper="opening"),
        ActHdf5Reader(OPENINGS),
        0,
    ),
    (
        "act",
        ActHdf5Writer(state_gripper="opening", action_gripper="opening", jpeg_quality=95),
        ActHdf5Reader(OPENINGS),
        6,
    ),
    ("set.zarr", DiffusionPolicyWriter(), DiffusionPolicyReader(OPENINGS, control_hz=50), 0),
    ("set.zarr.zip", DiffusionPolicyWriter(), DiffusionPolicyReader(OPENINGS, control_hz=50), 0),
    ("set", LeRobotWriter(images="image"), LeRobotReader(OPENINGS), 0),
    (
        "set",
        LeRobotWriter(codec="libx264", encoder={"g": "2", "crf": "5"}),
        LeRobotReader(OPENINGS),
        12,
    ),
]


@pytest.mark.parametrize("way", WAYS)
def test_an_export_is_equal_after_import(
    tmp_path: Path, original: EpisodeStore, imported: Import, way: tuple[str, Writer, Reader, int]
) -> None:
    name, writer, reader, tolerance = way
    writer.write(original, tmp_path / name)
    store, outcome = imported(reader, tmp_path / name)
    assert outcome.refused == {}
    for before, after in zip(original.episodes(), store.episodes(), strict=True):
        assert after.attributes.contract == before.attributes.contract
        for key, array in before.arrays.items():
            exact = not key.startswith(("rgb/", "T_base", "time"))
            allowed = {"rtol": 0, "atol": 0 if exact else max(tolerance, 1e-6)}
            np.testing.assert_allclose(
                after.arrays[key].astype(float), array.astype(float), **allowed, err_msg=key
            )
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(
        ["original", "imported", name]
    )


@pytest.mark.parametrize(
    ("writer", "reader", "unit_m"),
    [
        (LeRobotWriter(images="image"), LeRobotReader(OPENINGS, depth_source="simulated"), 0.001),
        (
            DiffusionPolicyWriter(),
            DiffusionPolicyReader(OPENINGS, control_hz=50, depth_source="simulated"),
            0.001,
        ),
        (
            DiffusionPolicyWriter(),
            DiffusionPolicyReader(OPENINGS, control_hz=50, depth_source="simulated"),
            0.00025,
        ),
    ],
)
def test_depth_round_trip(
    tmp_path: Path, imported: Import, samples: Any, writer: Writer, reader: Reader, unit_m: float
) -> None:
    source = with_depth(tmp_path / "source", samples, unit_m).episodes()[0]
    writer.write(EpisodeStore.open(tmp_path / "source"), tmp_path / "set")
    store, outcome = imported(reader, tmp_path / "set")
    assert outcome.refused == {}
    found = store.episodes()[0]
    np.testing.assert_array_equal(found.arrays["depth/overhead"], source.arrays["depth/overhead"])
    assert found.attributes.contract == source.attributes.contract


def with_depth(path: Path, samples: Any, unit_m: float) -> EpisodeStore:
    """Writes a store of one episode whose depth is in a unit."""
    arrays, attributes = samples.episode(6, depth=True)
    overhead, wrist = attributes.contract.cameras
    cameras = replace(overhead, depth_unit_m=unit_m), wrist
    store = EpisodeStore.create(path)
    contract = attributes.contract.with_cameras(*cameras)
    store.write(arrays, replace(attributes, contract=contract))
    return store


def test_finer_depth_is_exported_in_millimetres(
    tmp_path: Path, imported: Import, samples: Any
) -> None:
    source = with_depth(tmp_path / "source", samples, 0.00025)
    LeRobotWriter(images="image").write(source, tmp_path / "set")
    (found,) = imported(LeRobotReader(OPENINGS), tmp_path / "set")[0].episodes()
    expected = source.episodes()[0].arrays["depth/overhead"] / 4
    np.testing.assert_allclose(found.arrays["depth/overhead"], expected, atol=0.5)


def test_grippers_are_exported_in_the_chosen_convention(
    tmp_path: Path, original: EpisodeStore, imported: Import
) -> None:
    ActHdf5Writer(state_gripper="closing", action_gripper="aloha1_follower_share").write(
        original, tmp_path / "act"
    )
    episode = original.episodes()[0].arrays
    with h5py.File(tmp_path / "act/episode_0.hdf5") as file:
        np.testing.assert_allclose(
            file["observations/qpos"][:, 6], 1 - episode["joints/position"][:, 6], atol=1e-6
        )
        servo = GRIPPER_SERVOS["aloha1_follower"]
        angle = servo.closed + (servo.opened - servo.closed) * file["action"][:, 13].astype(float)
        np.testing.assert_allclose(servo.opening(angle), episode["action"][:, 13], atol=1e-5)
        np.testing.assert_allclose(
            file["observations/qvel"][:, 6],
            -np.gradient(episode["joints/position"][:, 6], 0.02),
            rtol=1e-3,
            atol=1e-4,
        )
    store, _ = imported(
        ActHdf5Reader(AlohaLayout("closing", "aloha1_follower_share")), tmp_path / "act"
    )
    np.testing.assert_allclose(store.episodes()[0].arrays["action"], episode["action"], atol=1e-5)


def test_velocities_round_trip(tmp_path: Path, samples: Any, imported: Import) -> None:
    arrays, attributes = samples.episode(5)
    arrays["joints/velocity"] = samples.joints(5, 9)
    source = EpisodeStore.create(tmp_path / "source")
    source.write(arrays, attributes)
    ActHdf5Writer(state_gripper="follower_rad", action_gripper="opening").write(
        source, tmp_path / "act"
    )
    store, _ = imported(ActHdf5Reader(AlohaLayout("follower_rad", "opening")), tmp_path / "act")
    np.testing.assert_allclose(
        store.episodes()[0].arrays["joints/velocity"],
        arrays["joints/velocity"],
        rtol=1e-3,
        atol=1e-4,
    )
    np.testing.assert_allclose(
        store.episodes()[0].arrays["joints/position"], arrays["joints/position"], atol=1e-5
    )


def test_images_of_a_slow_camera_are_repeated(tmp_path: Path, samples: Any) -> None:
    arrays, attributes = samples.episode(6)
    for key in ("rgb/overhead", "time/overhead"):
        arrays[key] = arrays[key][::3]
    arrays["frame/overhead"] = np.array([0, 0, 0, 1, 1, 1], np.int32)
    source = EpisodeStore.create(tmp_path / "source")
    source.write(arrays, attributes)
    DiffusionPolicyWriter(cameras={"overhead": "img"}).write(source, tmp_path / "set.zarr")
    group: Any = zarr.open_group(tmp_path / "set.zarr", mode="r", zarr_format=2)
    np.testing.assert_array_equal(group["data/img"][:], arrays["rgb/overhead"][[0, 0, 0, 1, 1, 1]])
    np.testing.assert_array_equal(group["meta/episode_ends"][:], [6])
    assert sorted(group["data"]) == ["action", "img", "state", "timestamp"]


def test_the_lerobot_export_follows_its_format(tmp_path: Path, original: EpisodeStore) -> None:
    LeRobotWriter(images="image", cameras={"overhead": "top"}).write(original, tmp_path / "set")
    info = json.loads((tmp_path / "set/meta/info.json").read_text())
    assert (info["codebase_version"], info["fps"], info["robot_type"]) == ("v3.0", 50, "aloha")
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (2, 13, 1)
    assert info["features"]["observation.images.top"] == {
        "dtype": "image",
        "shape": [16, 24, 3],
        "names": ["height", "width", "channels"],
    }
    tasks = pd.read_parquet(tmp_path / "set/meta/tasks.parquet")
    assert tasks.loc["stack the cups", "task_index"] == 0
    entries = pq.read_table(tmp_path / "set/meta/episodes/chunk-000/file-000.parquet").to_pylist()
    assert [(e["dataset_from_index"], e["dataset_to_index"], e["length"]) for e in entries] == [
        (0, 5, 5),
        (5, 13, 8),
    ]
    rows = pq.read_table(tmp_path / "set/data/chunk-000/file-001.parquet")
    assert rows["index"].to_pylist() == list(range(5, 13))
    statistics = json.loads((tmp_path / "set/meta/stats.json").read_text())
    actions = np.concatenate([episode.arrays["action"] for episode in original.episodes()]).astype(
        float
    )
    np.testing.assert_allclose(statistics["action"]["mean"], actions.mean(0))
    np.testing.assert_allclose(statistics["action"]["std"], actions.std(0))
    np.testing.assert_allclose(entries[0]["stats/action/max"], actions[:5].max(0))
    images = (
        np.concatenate([episode.arrays["rgb/overhead"] for episode in original.episodes()]) / 255
    )
    np.testing.assert_allclose(
        np.squeeze(statistics["observation.images.top"]["mean"]), images.mean((0, 1, 2))
    )
    assert statistics["observation.images.top"]["count"] == [13]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ActHdf5Writer(state_gripper="opening"), "target.action_gripper is missing"),
        (
            lambda: ActHdf5Writer(
                state_gripper="opening", action_gripper="opening", jpeg_quality=99
            ),
            "jpeg_quality is 99; allowed",
        ),
        (
            lambda: LeRobotWriter(images="movie"),  # type: ignore[arg-type]
            "There is no kind of images 'movie'. .*Allowed: image, video.",
        ),
        (lambda: LeRobotWriter(codec="libx999"), "There is no video encoder 'libx999'"),
    ],
)
def test_options_are_checked(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_episodes_that_do_not_fit_a_format_are_refused(
    tmp_path: Path, original: EpisodeStore, contract: Any, make_episode: Any
) -> None:
    writer = ActHdf5Writer(state_gripper="opening", action_gripper="opening")
    (tmp_path / "there").mkdir()
    with pytest.raises(
        ValueError,
        match="there exists; an export creates a new data set. Remove it or choose another name.",
    ):
        writer.write(original, tmp_path / "there")
    with pytest.raises(ValueError, match="There is no camera 'top'"):
        LeRobotWriter(cameras={"top": "a"}).write(original, tmp_path / "set")
    with pytest.raises(
        ValueError, match="The series 'action' is reserved; give the camera another name"
    ):
        DiffusionPolicyWriter(cameras={"overhead": "action"}).write(original, tmp_path / "set.zarr")
    with pytest.raises(ValueError, match="There are no episodes in"):
        writer.write(EpisodeStore.create(tmp_path / "empty"), tmp_path / "act")
    other = EpisodeStore.create(tmp_path / "other")
    other.write(make_episode(), EpisodeAttributes(contract, "small", 0))
    with pytest.raises(
        ValueError,
        match="ACT's HDF5 is for the 14 joints and absolute targets of ALOHA; .* has small.",
    ):
        writer.write(other, tmp_path / "act")
    original.write(make_episode(), EpisodeAttributes(contract, "small", 0))
    with pytest.raises(ValueError, match="a data set has a single contract. embodiment: "):
        writer.write(original, tmp_path / "act")
    assert not (tmp_path / "act").exists()


def full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("place", range(len(WAYS)))
def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, original: EpisodeStore, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    name, writer, _, _ = WAYS[place]
    (tmp_path / f".{name}.partial").mkdir()  # Left by an export that was killed.
    monkeypatch.setattr(exporting, "sync_tree", full_disk)
    with pytest.raises(NoSpaceError, match="No space left"):
        writer.write(original, tmp_path / name)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["original"]
    monkeypatch.undo()
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("", (), {"free": 0}))
    with pytest.raises(NoSpaceError, match="are needed, 0 MiB are free"):
        writer.write(original, tmp_path / name)
