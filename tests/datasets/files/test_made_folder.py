"""A failure leaves no empty folder, and nothing that was there before is removed."""

from pathlib import Path

import pytest

from stringline.datasets.files.atomic import made_folder


def fail(folder: Path, *files: Path) -> None:
    """Writes files within a block that fails."""
    with pytest.raises(KeyError), made_folder(folder):
        raise KeyError([file.touch() for file in files])


def test_empty_folders_of_a_failed_block_are_removed(tmp_path: Path) -> None:
    fail(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_folders_with_files_and_earlier_ones_stay(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    fail(tmp_path / "a" / "b" / "c", tmp_path / "a" / "b" / "file")
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["a", "b", "file"]
    fail(tmp_path / "a")
    with made_folder(tmp_path / "d"):
        pass
    assert (tmp_path / "a").is_dir()
    assert (tmp_path / "d").is_dir()
