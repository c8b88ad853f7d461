"""The files of docs/my-robot.md are written and its commands are run, with smaller numbers."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, Reader

from stringline import EpisodeStore, make_expert
from stringline.sim.tasks.task_registry import make_task

SMALLER: Mapping[str, Sequence[str]] = {
    "stringline-collect": ["episodes=1", "workers=1", "task.image_size=32", "task.frame_hz=5"],
    "stringline-train": [
        "trainer.steps=2",
        "trainer.batch_size=4",
        "trainer.compile=false",
        "validation_windows=0",
    ],
    "stringline-eval": ["seeds=1", "workers=1", "videos=false", "task.time_limit_s=0.6"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder on the path of Python and of the commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_files_and_commands_of_the_page_lead_to_an_evaluated_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(tmp_path, monkeypatch, SMALLER, {"SEEDS = 20": "SEEDS = 1"})
    reader.run(ROOT / "docs" / "my-robot.md")
    [episode] = EpisodeStore.open(tmp_path / "runs/demonstrations").episodes()
    assert (episode.attributes.task, episode.attributes.success) == ("my_task:BlockToTheLeft", True)
    assert episode.attributes.contract.embodiment == "bench_arm"
    assert (tmp_path / "runs/eval/report.html").exists()


TASK = (
    "from stringline.sim.tasks.hand_over_tasks import HandOverBanana\nclass "
    "Mine(HandOverBanana):\n    "
)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", "no_module_of_mine:Task", "There is no module 'no_module_of_mine' on Python's path"),
        ("", "no_package.of_mine:Task", "There is no module 'no_package.of_mine' on Python's path"),
        ("", "my words:Task", "'my words:Task' is not the name of a task"),
        (f"{TASK}pass\n", "mine:Mien", "There is no task in mine 'Mien'. Did you mean 'Mine'"),
        (
            f"{TASK}pass\n",
            "mine:Mine",
            "The class mine:Mine has the name 'hand_over_banana'; set name = 'mine:Mine'",
        ),
    ],
)
def test_errors_of_tasks_that_cannot_be_imported(
    folder: Path, text: str, name: str, message: str
) -> None:
    (folder / "mine.py").write_text(text)
    try:
        with pytest.raises(ValueError, match=message):
            make_task(name)
    finally:
        sys.modules.pop("mine", None)


def test_a_class_derived_from_a_built_in_task_has_its_expert(folder: Path) -> None:
    (folder / "mine.py").write_text(f"{TASK}name = 'mine:Mine'\n")
    try:
        assert type(make_expert("mine:Mine")) is type(make_expert("hand_over_banana"))
    finally:
        sys.modules.pop("mine", None)


def test_the_error_of_a_task_without_an_expert_names_the_remedy(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "from stringline.sim.tasks.tabletop import TabletopTask\n"
        "class Mine(TabletopTask):\n    name = 'mine:Mine'\n"
    )
    try:
        with pytest.raises(
            ValueError,
            match=r"mine:Mine has no expert. .* make_expert\(\).*, or record .* stringline-teleop",
        ):
            make_expert("mine:Mine")
    finally:
        sys.modules.pop("mine", None)
