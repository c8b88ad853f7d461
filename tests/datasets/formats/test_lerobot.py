"""Imports of LeRobotDatasets, written by pyarrow and PyAV in the documented layout."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.datasets.formats.conftest import OPENINGS, Import
from tests.datasets.formats.lerobot_recordings import (
    CAMERA,
    DEPTH,
    FPS,
    LENGTHS,
    depth_metres,
    recorded,
)

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.importing import Outcome
from stringline.datasets.formats.lerobot import LeRobotReader
from stringline.datasets.formats.vector_layout import AlohaLayout, NamedLayout
from stringline.datasets.store.store import EpisodeStore

VIDEO_TOLERANCE = 12


@dataclass
class Recorded:
    """A LeRobotDataset, and its import."""

    root: Path
    samples: Any
    run: Import

    def write(self, version: str = "v2.1", images: str = "image") -> Path:
        return recorded(self.samples, self.root, version, images)

    def imported(
        self, layout: AlohaLayout | NamedLayout = OPENINGS, **options: Any
    ) -> tuple[EpisodeStore, Outcome]:
        return self.run(LeRobotReader(layout, **options), self.root)


@pytest.fixture
def dataset(tmp_path: Path, samples: Any, imported: Import) -> Recorded:
    return Recorded(tmp_path / "set", samples, imported)


@pytest.mark.parametrize(
    ("version", "images"),
    [("v2.1", "libx264"), ("v3.0", "libx264"), ("v3.0", "libsvtav1"), ("v2.1", "image")],
)
def test_recorded_data_is_imported(
    dataset: Recorded, samples: Any, version: str, images: str
) -> None:
    assert samples.size_of(dataset.write(version, images)) < 100_000
    store, outcome = dataset.imported()
    assert outcome.refused == {}
    for number, (episode, steps) in enumerate(zip(store.episodes(), LENGTHS, strict=True)):
        arrays = episode.arrays
        np.testing.assert_array_equal(arrays["joints/position"], samples.joints(steps, number))
        np.testing.assert_array_equal(arrays["action"], samples.joints(steps, number + 100))
        np.testing.assert_allclose(arrays["time"], np.arange(steps) / FPS, atol=1e-6)
        shown = np.stack([samples.image(frame, number) for frame in range(steps)])
        off = np.abs(arrays["rgb/cam_high"].astype(int) - shown).max()
        assert off == 0 if images == "image" else off <= VIDEO_TOLERANCE
        if images == "image":
            depth = np.rint(1000 * depth_metres(steps))
            np.testing.assert_array_equal(arrays["depth/cam_high"], depth)
        assert (episode.attributes.instruction, episode.attributes.seed) == ("stack", number)
        assert episode.attributes.contract.control_hz == FPS


def test_depth_from_video_is_metric(dataset: Recorded) -> None:
    dataset.write("v3.0", "depth")
    store, outcome = dataset.imported(cameras={"cam_high": "overhead"})
    assert outcome.refused == {}
    episode = store.episodes()[1]
    np.testing.assert_allclose(episode.arrays["depth/overhead"], 1000 * depth_metres(8), atol=4)
    camera = episode.attributes.contract.camera("overhead")
    assert (camera.depth, camera.depth_unit_m) == ("measured", 0.001)


def test_depth_can_be_paired_by_name(dataset: Recorded) -> None:
    root, renamed = dataset.write(), "observation.images.range"
    text = (root / "meta/info.json").read_text()
    (root / "meta/info.json").write_text(text.replace(DEPTH, renamed))
    for path in root.glob("data/*/*.parquet"):
        table = pq.read_table(path)
        names = [name.replace(DEPTH, renamed) for name in table.column_names]
        pq.write_table(table.rename_columns(names), path)
    with pytest.raises(ValueError, match="'observation.images.range' belongs to no camera; set fo"):
        dataset.imported()
    store, _ = dataset.imported(cameras={CAMERA: "top"}, depth={"cam_high": "range"})
    expected = np.rint(1000 * depth_metres(5))
    np.testing.assert_array_equal(store.episodes()[0].arrays["depth/top"], expected)


def test_the_unit_of_depth_is_that_of_the_feature(dataset: Recorded) -> None:
    """LeRobot 0.6.1 writes `depth_unit` behind `is_depth_map`; other writers state neither."""
    root = dataset.write()
    path = root / "meta/info.json"
    info = json.loads(path.read_text())

    def first(described: dict[str, Any], **options: Any) -> Any:
        info["features"][DEPTH]["info"] = described
        path.write_text(json.dumps(info))
        (reference, *_) = LeRobotReader(OPENINGS, **options).episodes(root)
        return next(reference.read().images["depth/cam_high"]())

    stored = np.rint(1000 * depth_metres(5)[0])
    stated = {"is_depth_map": True, "depth_unit": "mm"}
    np.testing.assert_array_equal(first(stated), stored)
    np.testing.assert_array_equal(first({}, depth_unit_m=0.001), stored)
    tenths = first({}, depth_unit_m=0.0001)
    np.testing.assert_array_equal(tenths, np.rint(stored / 10))
    with pytest.raises(ForeignDataError, match="m at 1 m per number; allowed: at most 60"):
        first({"is_depth_map": True, "depth_unit": "m"})
    with pytest.raises(ValueError, match="does not contain its unit; set format.depth_unit_m"):
        first({})
    info["features"][DEPTH]["info"] = {}
    path.write_text(json.dumps(info))
    (reference, *_) = LeRobotReader(OPENINGS, depth={}).episodes(root)
    assert list(reference.read().images) == ["rgb/cam_high"]
    with pytest.raises(ValueError, match="unit of 0.001 m by itself; .* is 1. Leave the option"):
        first(stated, depth_unit_m=1.0)
    with pytest.raises(ValueError, match="There is no unit of .* 'cm'.* Allowed: m, mm"):
        first({"is_depth_map": True, "depth_unit": "cm"})


def test_another_robot_is_described_by_its_names(dataset: Recorded, samples: Any) -> None:
    arms = {arm: [joint.name for joint in ALOHA.joints if joint.arm == arm] for arm in ALOHA.arms}
    grippers = {"left/gripper": "opening", "right/gripper": {"closed": 1, "opened": 0}}
    dataset.write()
    store, _ = dataset.imported(NamedLayout(grippers, arms, "rad", "twins", "a table"))
    episode = store.episodes()[0]
    contract = episode.attributes.contract
    assert (contract.embodiment, contract.base_frame, contract.arms) == ("twins", "a table", ())
    assert contract.joints == tuple(joint.name for joint in ALOHA.joints)
    assert contract.action == ALOHA.contract([], 50.0).action
    expected = 1 - samples.joints(5, 100)[:, 13]
    np.testing.assert_allclose(episode.arrays["action"][:, 13], expected, rtol=1e-6)


GRIP = {"grip": "opening"}


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (NamedLayout(angle_unit="rad"), "Set the grippers, .* The state has: left/waist, .* The "),
        (NamedLayout({}), "Set the unit of the joints, layout.angle_unit=rad or deg. The"),
        (NamedLayout(GRIP, angle_unit="rad"), "no joint 'grip'. Did you mean .*left/gripper"),
        (NamedLayout({}, {"left": ["left/waist"]}, "rad"), "'left/shoulder' belongs to 0 arms"),
    ],
)
def test_missing_options_are_reported(dataset: Recorded, layout: NamedLayout, message: str) -> None:
    root = dataset.write()
    with pytest.raises(ValueError, match=message):
        dataset.imported(layout)
    assert len(EpisodeStore.open(root.with_name("imported"))) == 0


def test_unknown_features_are_answered_with_the_nearest_names(dataset: Recorded) -> None:
    dataset.write()
    with pytest.raises(ValueError, match="There is no source of depth 'guessed'"):
        LeRobotReader(OPENINGS, depth_source="guessed")
    (message, *_) = dataset.imported(state="observation.stat")[1].refused.values()
    assert "There is no feature 'observation.stat'. Did you mean 'observation.state'" in message
