"""The table of tasks names existing classes, and errors contain the nearest names."""

from pathlib import Path

import pytest

from stringline import ScriptedExpert, make_expert
from stringline.sim.tasks.task_registry import TASKS, make_task, task_class


@pytest.mark.parametrize("name", TASKS)
def test_every_entry_names_its_task_and_its_experts(name: str) -> None:
    assert task_class(name).name == name
    expert = make_expert(name)
    assert isinstance(expert, ScriptedExpert)
    assert expert.task_class is task_class(name)
    if TASKS[name].plain_expert is not None:
        assert type(make_expert(name, varied=False)) is not type(expert)


def test_errors_of_unknown_names_contain_the_nearest_names() -> None:
    with pytest.raises(ValueError, match="There is no task 'kuka_pik'. Did you mean 'kuka_pick'"):
        make_task("kuka_pik")
    with pytest.raises(ValueError, match="no expert for the task 'fmb_3'. Did you mean 'fmb_"):
        make_expert("fmb_3")
    with pytest.raises(ValueError, match="no expert for the task 'fmb_3'. Did you mean 'fmb_"):
        make_expert("fmb_3", varied=False)


def test_a_task_in_a_package_that_lacks_a_library_is_not_reported_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kitchen").mkdir()
    (tmp_path / "kitchen" / "__init__.py").write_text("import kneading_machine\n")
    (tmp_path / "kitchen" / "tasks.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="it needs a module that is not installed: kneading_mach"):
        task_class("kitchen.tasks:Bake")
