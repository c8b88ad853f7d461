"""The files of docs/my-robot.md are written and its commands are run, with smaller numbers."""

import re
import runpy
import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest

from stringline.datasets.store.store import EpisodeStore
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.tasks.task_registry import make_task

PAGE = Path(__file__).parents[2] / "docs" / "my-robot.md"
BLOCK = re.compile(r"```(python|yaml|sh)\n(.*?)```", re.DOTALL)
MODULES = {
    "stringline-collect": "stringline.sim.collect",
    "stringline-data": "stringline.datasets.data",
    "stringline-train": "stringline.sim.train",
    "stringline-eval": "stringline.sim.evaluate",
}
SMALLER: Mapping[str, list[str]] = {
    "stringline-collect": ["episodes=1", "workers=1", "task.image_size=32", "task.frame_hz=5"],
    "stringline-train": [
        "trainer.steps=2",
        "trainer.batch_size=4",
        "trainer.compile=false",
        "validation_windows=0",
    ],
    "stringline-eval": ["seeds=1", "workers=1", "videos=false", "task.time_limit_s=0.6"],
}


def blocks() -> Iterator[tuple[str, str]]:
    """Yields each block of the page: a file's name and its text, or `sh` and the commands."""
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        first = text.partition("\n")[0]
        yield ("sh", text) if kind == "sh" else (first.removeprefix("# "), text)


def run(line: str) -> None:
    """Runs a command of the page in this process."""
    words = [word for word in shlex.split(line) if word != "PYTHONPATH=."]
    if words[0] == "python":
        sys.argv = words[1:]
        runpy.run_path(words[1], run_name="__main__")
        return
    sys.argv = [words[0], *words[1:], *SMALLER.get(words[0], [])]
    import_module(MODULES[words[0]]).main()


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
    for name, text in blocks():
        if name == "sh":
            for line in text.splitlines():
                run(line)
        else:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text.replace("SEEDS = 20", "SEEDS = 1"))
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
