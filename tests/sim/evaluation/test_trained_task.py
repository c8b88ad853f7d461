"""Commands take the task of a checkpoint, and warn of another one."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from stringline.sim.evaluation.trained_task import (
    trained_tasks,
    warn_of_other_task,
    with_trained_task,
)


def described(folder: Path, **training: Any) -> Path:
    """Writes the description of a checkpoint."""
    folder.mkdir()
    (folder / "checkpoint.yaml").write_text(yaml.safe_dump({"format": 1, "training": training}))
    return folder


def test_a_command_without_a_task_takes_that_of_the_checkpoint(tmp_path: Path) -> None:
    mug = described(tmp_path / "mug", tasks={"mug_on_plate": "put the mug on the plate"})
    own = described(tmp_path / "own", tasks={"robots.tasks:Stack": ""})
    line = ["stringline-eval", f"checkpoint={mug}", "seeds=2"]
    assert with_trained_task(line) == [*line, "task=mug_on_plate"]
    line_of_own = [f"checkpoint={own}", "trust=[other,robots]"]
    assert with_trained_task(line_of_own) == [*line_of_own, "task.name=robots.tasks:Stack"]
    for choice in ("task=fmb_1", "suite=quick", "suite_file=mine.yaml", "task.name=a:B"):
        assert with_trained_task([*line, choice]) == [*line, choice]


@pytest.mark.parametrize("given", ["seeds=1", "trust=robot", "trust=[robots_tasks]"])
def test_a_task_of_a_package_that_is_not_trusted_ends_the_command(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    own = described(tmp_path / "own", tasks={"robots.tasks:Stack": ""})
    with pytest.raises(ValueError, match=r"own needs robots.tasks:Stack .* add trust=robots to"):
        with_trained_task([f"checkpoint={own}", given])
    named = [f"checkpoint={own}", given, "task=robots.tasks:Stack"]
    assert with_trained_task(named) == named


def test_a_checkpoint_without_one_known_task_leaves_the_command_line(tmp_path: Path) -> None:
    several = described(tmp_path / "two", tasks={"fmb_1": "", "fmb_2": ""})
    imported = described(tmp_path / "imported", tasks={"somebodys_recordings": ""})
    older = described(tmp_path / "older", steps=3)
    unreachable = f"http://127.0.0.1:1/x@sha256:{'0' * 64}"
    for where in (several, imported, older, tmp_path / "missing", "ws://127.0.0.1:1", unreachable):
        line = ["stringline-eval", f"checkpoint={where}"]
        assert with_trained_task(line) == line
    assert with_trained_task(["stringline-eval"]) == ["stringline-eval"]
    assert trained_tasks(several) == ("fmb_1", "fmb_2")
    assert trained_tasks(older) == trained_tasks("ws://127.0.0.1:1") == ()


def test_another_task_than_that_of_the_checkpoint_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = described(tmp_path / "banana", tasks={"hand_over_banana": "", "hand_over_pen": ""})
    warn_of_other_task(where, "hand_over_pen")
    warn_of_other_task(described(tmp_path / "older", steps=3), "fmb_1")
    assert not caplog.messages
    warn_of_other_task(where, "mug_on_plate")
    assert caplog.messages == [
        f"{where} was trained on hand_over_banana and hand_over_pen; the chosen task is "
        "mug_on_plate."
    ]
