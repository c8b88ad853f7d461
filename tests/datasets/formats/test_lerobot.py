"""The instruction of a LeRobot episode is the task of its frames, as in lerobot.

Imports of LeRobotDatasets, written by pyarrow and PyAV in the documented layout.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.datasets.formats.conftest import OPENINGS, Import
from tests.datasets.formats.lerobot_recordings import (
    CAMERA,
    DEPTH,
    FPS,
    LENGTHS,
    depth_metres,
    described,
    parquet,
    recorded,
    with_columns,
)

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.importing import Outcome, import_data
from stringline.datasets.formats.lerobot import LeRobotReader
from stringline.datasets.formats.lerobot_tables import names_of
from stringline.datasets.formats.lerobot_writer import LeRobotWriter
from stringline.datasets.formats.vector_layout import AlohaLayout, NamedLayout
from stringline.datasets.store.store import EpisodeStore

CONTRADICTED = "they contradict task_index, which counts, as in lerobot"
Case = tuple[list[str], list[str], str, dict[str, str]]
UNNAMED = "neither its frames nor the list of episodes name it"


Write = Callable[[str, list[str], list[str]], Path]


@pytest.fixture
def write(tmp_path: Path, samples: Any) -> Write:
    def run(version: str, tasks: list[str], listed: list[str]) -> Path:
        root = recorded(samples, tmp_path / "set", version, "image")
        told(root, version, tasks, listed)
        return root

    return run


def told(root: Path, version: str, tasks: list[str], listed: list[str]) -> None:
    """Gives all frames the task 1; empty tasks stand for no table of tasks."""
    with_columns(root, lambda table: {"task_index": pa.array([1] * len(table))})
    if version == "v3.0":
        (path,) = root.glob("meta/episodes/*/*.parquet")
        table = pa.parquet.read_table(path).drop_columns(["tasks"])
        column = pa.array([listed] * len(table), pa.list_(pa.string()))
        parquet(path, table.append_column("tasks", column))
        if tasks:
            plain = {"task_index": [*range(len(tasks))], "__index_level_0__": tasks}
            parquet(root / "meta/tasks.parquet", pa.table(plain))
        return
    path = root / "meta/episodes.jsonl"
    entries = [json.loads(line) | {"tasks": listed} for line in path.read_text().splitlines()]
    path.write_text("\n".join(map(json.dumps, entries)))
    if tasks:
        lines = [json.dumps({"task_index": i, "task": task}) for i, task in enumerate(tasks)]
        (root / "meta/tasks.jsonl").write_text("\n".join(lines))


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
@pytest.mark.parametrize(
    "case",
    [
        (["stack", "wave"], ["wave"], "wave", {}),
        (["stack", "wave"], [], "wave", {}),
        (["stack", "wave"], ["stack"], "wave", {"tasks of the list of episodes": CONTRADICTED}),
        (["stack", ""], [], "", {"instruction": "its task is an empty text"}),
        ([], ["stack"], "stack", {}),
        ([], [], "", {"instruction": UNNAMED}),
    ],
)
def test_the_task_of_the_frames_counts(
    write: Write, imported: Import, version: str, case: Case
) -> None:
    tasks, listed, expected, skipped_fields = case
    store, outcome = imported(LeRobotReader(OPENINGS), write(version, tasks, listed))
    assert outcome.refused == {}
    assert [episode.attributes.instruction for episode in store.episodes()] == [expected] * 3
    assert outcome.skipped_fields == {entry: 3 for entry in skipped_fields.items()}


@pytest.mark.parametrize(
    ("tasks", "listed", "message"),
    [
        (["stack"], ["stack"], "There is no task 1 in the table of tasks."),
        ([], ["stack", "wave"], "there is no table of tasks, meta/tasks.jsonl or meta/tasks.parq"),
    ],
)
def test_a_task_without_a_name_is_an_error(
    write: Write, imported: Import, tasks: list[str], listed: list[str], message: str
) -> None:
    store, outcome = imported(LeRobotReader(OPENINGS), write("v2.1", tasks, listed))
    assert len(store) == 0
    assert all(message in reason for reason in outcome.refused.values())


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
    np.testing.assert_array_equal(first(stated, depth_unit_m=0.0001), tenths)
    np.testing.assert_array_equal(first({"is_depth_map": True}, depth_unit_m=0.0001), tenths)
    with pytest.raises(ForeignDataError, match="m at 1 m per number; allowed: at most 60"):
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
    (message, *_) = dataset.imported(state="observation.stat")[1].refused.values()
    assert "There is no feature 'observation.stat'. Did you mean 'observation.state'" in message


def test_columns_of_language_are_left_out(dataset: Recorded) -> None:
    """LeRobot 0.6 adds two columns of messages; NumPy does not know their type."""
    root = dataset.write("v3.0")
    message = {"role": "user", "content": "stack", "style": "subtask", "timestamp": 0.0}
    columns = ("language_persistent", "language_events")
    language = {"dtype": "language", "shape": [1], "names": None}
    half = {"dtype": "bfloat16", "shape": [1], "names": None}
    described(root, features=dict.fromkeys(columns, language) | {"half": half})
    with_columns(root, lambda table: dict.fromkeys(columns, pa.array([[message]] * len(table))))
    outcome = dataset.imported()[1]
    assert outcome.refused == {}
    assert outcome.skipped_fields == {(name, "no numbers"): 3 for name in (*columns, "half")}


def test_a_column_without_the_numbers_of_its_description_is_left_out(dataset: Recorded) -> None:
    root = dataset.write()
    described(root, features={"force": {"dtype": "float32", "shape": [1], "names": None}})
    with_columns(root, lambda table: {"force": pa.array([{"x": 1.0}] * len(table))})
    outcome = dataset.imported()[1]
    assert (outcome.refused, outcome.skipped_fields) == ({}, {("force", "no numbers"): 3})


@pytest.mark.parametrize("shape", [[1], []])
def test_a_state_and_an_action_of_one_number_are_scalars(
    dataset: Recorded, tmp_path: Path, shape: list[int]
) -> None:
    """LeRobot writes them as such, and so do our exports."""
    root = dataset.write()
    one = {"dtype": "float32", "shape": shape, "names": ["slider"]}
    described(root, features={"action": one, "observation.state": one})
    with_columns(root, lambda t: dict.fromkeys(("action", "observation.state"), t["timestamp"]))
    layout = NamedLayout({}, angle_unit="rad")
    store, outcome = dataset.imported(layout)
    assert outcome.refused == {}
    LeRobotWriter(images="image").write(store, tmp_path / "export")
    again = EpisodeStore.create(tmp_path / "again")
    assert import_data(LeRobotReader(layout), tmp_path / "export", again).refused == {}
    for episode in (*store.episodes(), *again.episodes()):
        expected = (np.arange(episode.steps) / FPS).astype(np.float32)[:, None]
        np.testing.assert_allclose(episode.arrays["action"], expected, atol=1e-6)
        np.testing.assert_allclose(episode.arrays["joints/position"], expected, atol=1e-6)
        assert episode.attributes.contract.joints == ("slider",)


def test_interventions_come_in_and_go_out(dataset: Recorded, tmp_path: Path) -> None:
    """As `lerobot-rollout` marks the frames in which a person leads; usually there are no marks."""
    root = dataset.write()
    described(root, features={"intervention": {"dtype": "bool", "shape": [1], "names": None}})
    with_columns(
        root,
        lambda t: {"intervention": pa.array(np.isin(t["frame_index"].to_numpy(), (1, 2, 4)))},
    )
    store, outcome = dataset.imported()
    assert (outcome.refused, outcome.skipped_fields) == ({}, {})
    expected = [[(1, 3), (4, 5)], [(1, 3), (4, 5)], [(1, 3)]]
    assert [each.attributes.interventions for each in store.episodes()] == expected
    skipped_fields = LeRobotWriter(images="image").write(store, tmp_path / "export")
    assert "attribute interventions" not in {name for name, _ in skipped_fields}
    info = json.loads((tmp_path / "export/meta/info.json").read_text())
    assert info["features"]["intervention"] == {"dtype": "bool", "shape": [1], "names": None}
    again = EpisodeStore.create(tmp_path / "again")
    import_data(LeRobotReader(OPENINGS), tmp_path / "export", again)
    assert [each.attributes.interventions for each in again.episodes()] == expected


ARM = [f"joint_{place}" for place in range(6)]
NAMES: list[tuple[Any, list[str]]] = [
    ([*ARM, "gripper"], [*ARM, "gripper"]),
    ({"motors": [*ARM, "gripper"]}, [*ARM, "gripper"]),
    ({"arm": ARM, "hand": {"fingers": ["gripper"]}}, [*ARM, "gripper"]),
    ({"a": ARM[:3], "b": ARM[:4]}, [*(f"a/{n}" for n in ARM[:3]), *(f"b/{n}" for n in ARM[:4])]),
    ({"gripper": 6} | {name: place for place, name in enumerate(ARM)}, [*ARM, "gripper"]),
    (["motors"], [f"x_{place}" for place in range(7)]),
    ({"gripper": 7, "arm": 0}, [f"x_{place}" for place in range(7)]),
    (None, [f"x_{place}" for place in range(7)]),
]


@pytest.mark.parametrize(("names", "expected"), NAMES)
def test_names_of_numbers_have_several_forms(names: Any, expected: list[str]) -> None:
    assert names_of({"x": {"dtype": "float32", "shape": [7], "names": names}}, "x") == expected


def test_state_and_action_may_be_in_several_features(dataset: Recorded, samples: Any) -> None:
    """As in AgiBot World: joints and grippers apart, also with an axis per arm."""
    root = dataset.write()
    parts = {"joint": [f"joint_{i}" for i in range(12)], "effector": ["position", "speed"]}
    features: dict[str, Any] = {}
    for of in ("observation.states", "actions"):
        for name, names in parts.items():
            shape = [2, 6] if name == "joint" else [2]
            of_joint = {"dtype": "float32", "shape": shape, "names": {"motors": names}}
            features[f"{of}.{name}.position"] = of_joint
    described(root, features=features)

    def apart(table: pa.Table) -> dict[str, Any]:
        found = {}
        for of, source in (("observation.states", "observation.state"), ("actions", "action")):
            rows = np.stack(table[source].to_numpy())
            found[f"{of}.joint.position"] = pa.array(rows[:, :12].reshape(-1, 2, 6).tolist())
            found[f"{of}.effector.position"] = pa.array(list(rows[:, 12:]))
        return found

    with_columns(root, apart)
    chosen = {
        "state": [f"observation.states.{name}.position" for name in parts],
        "action": [f"actions.{name}.position" for name in parts],
    }
    store, outcome = dataset.imported(NamedLayout({"position": "opening"}, None, "rad"), **chosen)
    assert outcome.refused == {}
    episode = store.episodes()[0]
    assert episode.attributes.contract.joints == (*parts["joint"], *parts["effector"])
    np.testing.assert_allclose(episode.arrays["action"], samples.joints(5, 100), atol=1e-6)
    np.testing.assert_allclose(episode.arrays["joints/position"], samples.joints(5, 0), atol=1e-6)
    both = ["observation.state", "observation.states.effector.position"]
    with pytest.raises(ValueError, match="The state has: left/waist, .*, position, speed. The act"):
        dataset.imported(NamedLayout({}), state=both, action=both)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"depth_source": "guessed"}, "There is no source of depth 'guessed'"),
        ({"control_hz": -1}, "control_hz must be a number above 0"),
        ({"action": []}, r"format.action is \[\]; allowed: a feature, or"),
    ],
)
def test_invalid_options_are_named(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LeRobotReader(OPENINGS, **option)


def test_names_that_two_features_have_name_the_feature() -> None:
    features = {
        key: {"dtype": "float32", "shape": [2], "names": ["left", "right"]} for key in ("a", "b")
    }
    assert names_of(features, "a", "b") == ["a/left", "a/right", "b/left", "b/right"]
