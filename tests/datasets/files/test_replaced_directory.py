"""A replaced directory is complete at every moment at which a writer can be killed."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stringline.datasets.files import atomic as module
from stringline.datasets.files.atomic import exchange, replaced_directory, standing
from stringline.policies.checkpoints.load import find_checkpoint

FILES = ("checkpoint.yaml", "weights.safetensors")


def write(folder: Path, text: str, between: Callable[[], None] = lambda: None) -> None:
    with replaced_directory(folder) as fresh:
        for file in FILES:
            (fresh / file).write_text(text)
            between()


def contents(folder: Path) -> set[str]:
    """Returns the distinct texts of the files: one if they belong together."""
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    return {(folder / file).read_text() for file in FILES}


@contextmanager
def watched(folder: Path, shots: Path) -> Iterator[Callable[[], None]]:
    """Copies a folder before and after every change of its files, as states after a kill."""

    def shoot() -> None:
        shutil.copytree(folder, shots / f"{len(list(shots.iterdir())):03d}")

    def watching(original: Callable[..., Any]) -> Callable[..., Any]:
        def watch(*arguments: Any, **named: Any) -> Any:
            shoot()
            done = original(*arguments, **named)
            shoot()
            return done

        return watch

    shots.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "fsync", "unlink", "rmdir"):
            patch.setattr(os, name, watching(getattr(os, name)))
        patch.setattr(module, "exchange", watching(module.exchange))
        yield shoot


@pytest.mark.parametrize("at_once", [True, False])
def test_after_any_kill_a_complete_directory_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """The old one or the new one, under its name; if two steps are needed, once under another.

    The next writer succeeds.
    """
    if not at_once:
        monkeypatch.setattr(module, "exchange", lambda one, other: False)
    folder = tmp_path / "run"
    write(folder / "best", "old")
    with watched(folder, tmp_path / "shots") as shoot:
        write(folder / "best", "new", between=shoot)
    found, elsewhere = [], 0
    for shot in sorted((tmp_path / "shots").iterdir()):
        standing_one = find_checkpoint(shot / "best")
        found.append(*contents(standing_one))
        elsewhere += standing_one.name != "best"
        write(shot / "best", "newer")
        assert contents(shot / "best") == {"newer"}
        assert [path.name for path in shot.iterdir()] == ["best"]
    assert found == sorted(found, reverse=True), "first the old one, then the new one"
    assert set(found) == {"old", "new"}
    assert elsewhere == (0 if at_once else 2), "after the first of two steps, and before the second"


def test_the_first_directory_appears_complete(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with watched(tmp_path / "run", tmp_path / "shots") as shoot:
        write(tmp_path / "run" / "best", "new", between=shoot)
    there = [
        shot / "best" for shot in sorted((tmp_path / "shots").iterdir()) if (shot / "best").exists()
    ]
    assert there
    assert all(contents(each) == {"new"} for each in there)


def test_folders_are_exchanged_or_unchanged(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write(tmp_path / name, name)
    assert exchange(tmp_path / "one", tmp_path / "other")
    assert (contents(tmp_path / "one"), contents(tmp_path / "other")) == ({"other"}, {"one"})
    assert not exchange(tmp_path / "one", tmp_path / "neither")
    assert contents(tmp_path / "one") == {"other"}


def test_a_c_library_without_an_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stringline.datasets.files.atomic.ctypes.CDLL", lambda name: object())
    write(tmp_path / "best", "old")
    assert not exchange(tmp_path / "best", tmp_path / "best")
    write(tmp_path / "best", "new")
    assert contents(tmp_path / "best") == {"new"}


def test_a_missing_directory_keeps_its_path(tmp_path: Path) -> None:
    assert standing(tmp_path / "best") == tmp_path / "best"
    assert standing(Path()) == Path()
    with pytest.raises(ValueError, match=r"no checkpoint folder or shipped checkpoint"):
        find_checkpoint(tmp_path / "best")
