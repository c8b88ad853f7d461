"""Imports of LeRobotDatasets, written by pyarrow and PyAV in the documented layout."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
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
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore

OPENINGS = AlohaLayout("opening", "opening")
VIDEO_TOLERANCE = 12
Import = Callable[[LeRobotReader, Path], tuple[EpisodeStore, Outcome]]
Record = Callable[..., Path]


@pytest.fixture
def record(samples: Any) -> Record:
    return partial(recorded, samples)


@pytest.mark.parametrize(
    ("version", "images"),
    [("v2.1", "libx264"), ("v3.0", "libx264"), ("v3.0", "libsvtav1"), ("v2.1", "image")],
)
def test_recorded_data_is_imported(
    tmp_path: Path, imported: Import, record: Record, samples: Any, version: str, images: str
) -> None:
    root = record(tmp_path / "set", version, images)
    assert samples.size_of(root) < 100_000
    store, outcome = imported(LeRobotReader(OPENINGS), root)
    assert outcome.refused == {}
    assert [episode.steps for episode in store.episodes()] == list(LENGTHS)
    for number, episode in enumerate(store.episodes()):
        steps, arrays = LENGTHS[number], episode.arrays
        np.testing.assert_array_equal(arrays["joints/position"], samples.joints(steps, number))
        np.testing.assert_array_equal(arrays["action"], samples.joints(steps, number + 100))
        np.testing.assert_allclose(arrays["time"], np.arange(steps) / FPS, atol=1e-6)
        shown = np.stack([samples.image(frame, number) for frame in range(steps)])
        off = np.abs(arrays["rgb/cam_high"].astype(int) - shown).max()
        assert off == 0 if images == "image" else off <= VIDEO_TOLERANCE
        if images == "image":
            np.testing.assert_array_equal(
                arrays["depth/cam_high"], np.rint(1000 * depth_metres(steps))
            )
        assert (episode.attributes.instruction, episode.attributes.seed) == ("stack", number)
        assert episode.attributes.contract.control_hz == FPS
    assert len(Windows(store)) == sum(LENGTHS)
    again = imported(LeRobotReader(OPENINGS), root)[1]
    assert (len(again.imported), again.present) == (0, 3)


def test_depth_from_video_is_metric(tmp_path: Path, imported: Import, record: Record) -> None:
    store, outcome = imported(
        LeRobotReader(OPENINGS, cameras={"cam_high": "overhead"}),
        record(tmp_path / "set", "v3.0", "depth"),
    )
    assert outcome.refused == {}
    episode = store.episodes()[1]
    np.testing.assert_allclose(episode.arrays["depth/overhead"], 1000 * depth_metres(8), atol=4)
    camera = episode.attributes.contract.camera("overhead")
    assert (camera.depth, camera.depth_unit_m) == ("measured", 0.001)


def test_depth_can_be_paired_by_name(tmp_path: Path, imported: Import, record: Record) -> None:
    root = record(tmp_path / "set", "v2.1", "image")
    text = (root / "meta/info.json").read_text()
    (root / "meta/info.json").write_text(text.replace(DEPTH, "observation.images.range"))
    for path in root.glob("data/*/*.parquet"):
        table = pq.read_table(path)
        pq.write_table(
            table.rename_columns(
                [name.replace(DEPTH, "observation.images.range") for name in table.column_names]
            ),
            path,
        )
    with pytest.raises(
        ValueError,
        match=(
            "The depth feature 'observation.images.range' belongs to no camera; set format.depth="
        ),
    ):
        imported(LeRobotReader(OPENINGS), root)
    store, _ = imported(
        LeRobotReader(OPENINGS, cameras={CAMERA: "top"}, depth={"cam_high": "range"}), root
    )
    np.testing.assert_array_equal(
        store.episodes()[0].arrays["depth/top"], np.rint(1000 * depth_metres(5))
    )


def test_the_unit_of_depth_is_that_of_the_feature(
    tmp_path: Path, imported: Import, record: Record
) -> None:
    """LeRobot 0.6.1 writes `depth_unit` behind `is_depth_map`; other writers state neither."""
    root = record(tmp_path / "set", "v2.1", "image")
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


def test_another_robot_is_described_by_its_names(
    tmp_path: Path, imported: Import, record: Record, samples: Any
) -> None:
    arms = {arm: [joint.name for joint in ALOHA.joints if joint.arm == arm] for arm in ALOHA.arms}
    layout = NamedLayout(
        {"left/gripper": "opening", "right/gripper": {"closed": 1, "opened": 0}},
        arms,
        "rad",
        "twins",
        "a table",
    )
    store, _ = imported(LeRobotReader(layout), record(tmp_path / "set", "v2.1", "image"))
    episode = store.episodes()[0]
    contract = episode.attributes.contract
    assert (contract.embodiment, contract.base_frame, contract.arms) == ("twins", "a table", ())
    assert contract.joints == tuple(joint.name for joint in ALOHA.joints)
    assert contract.action == ALOHA.contract([], 50.0).action
    np.testing.assert_allclose(
        episode.arrays["action"][:, 13], 1 - samples.joints(5, 100)[:, 13], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (
            NamedLayout(angle_unit="rad"),
            (
                r"Set the grippers, .* The state has: left/waist, .* The action has: "
                r"left/waist"
            ),
        ),
        (
            NamedLayout({}),
            (
                r"Set the unit of the joints, layout.angle_unit=rad or deg. The state has: "
                r"left/waist"
            ),
        ),
        (
            NamedLayout({"grip": "opening"}, angle_unit="rad"),
            "There is no joint 'grip'. Did you mean .*left/gripper",
        ),
        (
            NamedLayout({}, {"left": ["left/waist"]}, "rad"),
            "'left/shoulder' belongs to 0 arms in layout.arms",
        ),
    ],
)
def test_missing_options_are_reported(
    tmp_path: Path, imported: Import, record: Record, layout: NamedLayout, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        imported(LeRobotReader(layout), record(tmp_path / "set", "v2.1", "image"))
    assert len(EpisodeStore.open(tmp_path / "imported")) == 0


def test_unknown_features_are_answered_with_the_nearest_names(
    tmp_path: Path, imported: Import, record: Record
) -> None:
    root = record(tmp_path / "set", "v2.1", "image")
    with pytest.raises(
        ValueError, match="There is no feature with images 'cam_hgih'. Did you mean"
    ):
        imported(LeRobotReader(OPENINGS, cameras={"cam_hgih": "a"}), root)
    with pytest.raises(ValueError, match="There is no source of depth 'guessed'"):
        LeRobotReader(OPENINGS, depth_source="guessed")
    outcome = imported(LeRobotReader(OPENINGS, state="observation.stat"), root)[1]
    assert (
        "There is no feature 'observation.stat'. Did you mean 'observation.state'"
        in outcome.refused[next(iter(outcome.refused))]
    )
