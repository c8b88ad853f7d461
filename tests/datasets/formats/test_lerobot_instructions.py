"""The instruction of a LeRobot episode is the task of its frames, as in lerobot."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.datasets.formats.conftest import OPENINGS, Import
from tests.datasets.formats.lerobot_recordings import parquet, recorded, with_columns

from stringline.datasets.formats.lerobot import LeRobotReader

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
