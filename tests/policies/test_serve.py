"""The evaluation that a server suggests has the task of the training."""

from pathlib import Path

import pytest

from stringline.policies.serve import task_setting


@pytest.mark.parametrize(
    ("training", "setting"),
    [
        ("{tasks: {mug_on_plate: 3}}", {"task": "mug_on_plate"}),
        ("{tasks: {'mine:Stack': 3}}", {"task.name": "mine:Stack"}),
        ("{tasks: {mug_on_plate: 3, bowl_on_rack: 2}}", {}),
        ("{steps: 3}", {}),
    ],
)
def test_the_task_of_a_checkpoint(tmp_path: Path, training: str, setting: dict[str, str]) -> None:
    (tmp_path / "checkpoint.yaml").write_text(f"format: 1\ntraining: {training}\n")
    assert task_setting(str(tmp_path)) == setting
