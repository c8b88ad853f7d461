"""The files of docs/my-robot.md are written and its commands are run, with smaller numbers."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import commands, run, write_files

from stringline.datasets.store.store import EpisodeStore
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.tasks.task_registry import make_task

PAGE = "my-robot.md"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder on the path of Python and of the commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    yield tmp_path
    for name in ("my_robot", "my_task"):
        sys.modules.pop(name, None)


def test_files_and_commands_of_the_page_lead_to_an_evaluated_policy(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(PAGE, folder)
    trial = folder / "try_expert.py"
    trial.write_text(trial.read_text().replace("SEEDS = 20", "SEEDS = 1"))
    for line in commands(PAGE):
        run(line)
    assert "1 of 1" in capsys.readouterr().out
    [episode] = EpisodeStore.open(folder / "runs/demonstrations").episodes()
    assert (episode.attributes.task, episode.attributes.success) == ("my_task:BlockOnMat", True)
    assert episode.attributes.contract.embodiment == "bench_arm"
    assert (folder / "runs/eval/report.html").exists()


TASK = (
    "from stringline.sim.tasks.hand_over_tasks import HandOverBanana\nclass "
    "Mine(HandOverBanana):\n    "
)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", "no_module_of_mine:Task", "There is no module 'no_module_of_mine' on Python's path"),
        ("", "no_package.of_mine:Task", "There is no module 'no_package.of_mine' on Python's path"),
        (
            "",
            "my words:Task",
            "'my words:Task' is not the name of a task; allowed: .* module:Class",
        ),
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


def test_the_error_of_a_task_without_an_expert_names_the_remedy(folder: Path) -> None:
    (folder / "mine.py").write_text(f"{TASK}name = 'mine:Mine'\n")
    try:
        with pytest.raises(
            ValueError,
            match=r"mine:Mine has no expert. .* make_expert\(\).*, or record .* stringline-teleop",
        ):
            make_expert("mine:Mine")
    finally:
        sys.modules.pop("mine", None)
