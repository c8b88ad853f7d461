"""Recordings of rosbag2: several files of an episode, and databases of SQLite."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.datasets.formats import mcap_recordings as recordings
from tests.datasets.formats.conftest import Import
from tests.datasets.formats.small_sets import MAKERS

from stringline.datasets.contract.contract import EpisodeArrays
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.importing import import_data
from stringline.datasets.formats.recording_files import SqliteRecording, takes
from stringline.datasets.store.store import EpisodeStore

READER = MAKERS["mcap"]()


def only(imported: Import, path: Path, **options: Any) -> EpisodeArrays:
    """Returns the arrays of the only episode of a data set."""
    store, outcome = imported(MAKERS["mcap"](**options), path)
    assert (len(outcome.imported), outcome.refused) == (1, {})
    return store.episodes()[0].arrays


def whole(folder: Path) -> EpisodeArrays:
    """Returns the arrays of the recording in one file."""
    folder.mkdir()
    recordings.write_ros2(folder / "arm.mcap", recordings.ros2_entries())
    store = EpisodeStore.create(folder / "store")
    import_data(READER, folder / "arm.mcap", store)
    return store.episodes()[0].arrays


def assert_equal(found: EpisodeArrays, expected: EpisodeArrays) -> None:
    assert set(found) == set(expected)
    for key in expected:
        np.testing.assert_array_equal(found[key], expected[key], err_msg=key)


@pytest.mark.parametrize("at", [0.35, 0.5])
@pytest.mark.parametrize("below", ["", "rec"])
def test_a_recording_that_rosbag2_split_is_one_episode(
    tmp_path: Path, imported: Import, at: float, below: str
) -> None:
    folder = tmp_path / "bags" / below
    recordings.write_split(folder, recordings.ros2_entries(), at)
    assert_equal(only(imported, tmp_path / "bags"), whole(tmp_path / "whole"))
    with pytest.raises(ValueError, match=f"is one of 2 files of a recording; path={folder} "):
        takes(folder / "rec_1.mcap")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "rec_1.mcap").unlink(), "lists rec_1.mcap, which is missing. `ros2 bag re"),
        (
            lambda f: (f / "rec_2.mcap").write_bytes((f / "rec_1.mcap").read_bytes()),
            "does not list rec_2.mcap, which has the name of a part. `ros2 bag reindex rec`",
        ),
        (
            lambda f: (f / "metadata.yaml").write_text(
                (f / "metadata.yaml").read_text() + "  compression_mode: FILE\n"
            ),
            "says `compression_mode: file`; allowed: recordings that rosbag2 has not",
        ),
    ],
    ids=["missing", "not listed", "compressed"],
)
def test_an_incomplete_recording_is_left_out(
    tmp_path: Path, imported: Import, spoil: Any, message: str
) -> None:
    folder = recordings.write_split(tmp_path / "rec", recordings.ros2_entries(), 0.5)
    spoil(folder)
    _, outcome = imported(READER, folder)
    (reason,) = outcome.refused.values()
    assert message in reason


def test_parts_without_their_list_are_no_episodes(tmp_path: Path, imported: Import) -> None:
    entries = recordings.ros2_entries()
    folder = recordings.write_split(tmp_path / "rec", entries, 0.5, listed=False)
    _, outcome = imported(READER, folder)
    assert len(outcome.refused) == 2
    assert all("`ros2 bag reindex FOLDER` writes it" in why for why in outcome.refused.values())
    (folder / "rec_1.mcap").rename(folder / "other_1.mcap")
    assert len(imported(READER, folder)[1].imported) == 2


@pytest.mark.parametrize("description", ["robot: ur5e\n", "[", "rosbag2_bagfile_information: 1\n"])
def test_a_description_that_is_not_that_of_rosbag2(
    tmp_path: Path, imported: Import, description: str
) -> None:
    folder = tmp_path / "bags"
    folder.mkdir()
    recordings.write_ros2(folder / "arm.mcap", recordings.ros2_entries(0.2))
    (folder / "metadata.yaml").write_text(description)
    _, outcome = imported(READER, folder)
    if description == "robot: ur5e\n":
        assert (len(outcome.imported), outcome.refused) == (1, {})
    else:
        (reason,) = outcome.refused.values()
        assert reason.startswith("metadata.yaml does not describe a recording: ")


@pytest.mark.parametrize("definitions", [True, False])
def test_a_database_has_the_same_episode(
    tmp_path: Path, imported: Import, definitions: bool
) -> None:
    folder = recordings.write_database(
        tmp_path / "rec", recordings.ros2_entries(), definitions=definitions
    )
    assert_equal(only(imported, folder), whole(tmp_path / "whole"))


def test_a_missing_library_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = recordings.write_database(tmp_path / "rec", recordings.ros2_entries(0.2))
    monkeypatch.setitem(sys.modules, "rosbags.rosbag2", None)
    why = r'needs rosbags, which is not installed. Run: pip install "stringline\[rosbag2\]"'
    with pytest.raises(ValueError, match=why):
        next(iter(READER.episodes(folder))).read()


def test_damaged_databases_are_refused(tmp_path: Path) -> None:
    file = recordings.write_database(tmp_path / "rec", recordings.ros2_entries(0.2)) / "rec.db3"
    with closing(sqlite3.connect(file)) as database:
        database.execute("UPDATE topics SET type = 'my_msgs/msg/Own' WHERE name = '/command'")
        database.commit()
    with pytest.raises(ForeignDataError, match="'my_msgs/msg/Own', whose definition as ros2msg"):
        SqliteRecording(file).check_topics(["/command"])
    file.with_name("rec.db3-wal").write_bytes(b"messages")
    with pytest.raises(ForeignDataError, match="was not closed: rec.db3-wal holds messages of it"):
        SqliteRecording(file)
    file.with_name("rec.db3-wal").unlink()
    for data in (file.read_bytes()[:3000], b"", b"no database" * 1000):
        file.write_bytes(data)
        with pytest.raises(ForeignDataError, match="cannot be read as a database of rosbag2"):
            list(SqliteRecording(file).messages(["/command"]))
