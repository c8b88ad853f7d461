"""Commands take task, frame rate and execution from a checkpoint's record."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.policies.checkpoints.records import described

from stringline.sim.evaluation.trained_settings import with_trained_settings

ENSEMBLING = {"name": "temporal_ensembling", "delay_s": 0.0, "decay": 0.05, "execute_steps": 1}


def test_a_command_without_a_task_takes_that_of_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "stacking.py").write_text(
        "from stringline.sim.tasks.mug_task import MugOnPlate\n"
        "class Stack(MugOnPlate):\n    name = 'stacking:Stack'\n"
    )
    mug = described(tmp_path / "mug", tasks={"mug_on_plate": "put the mug on the plate"})
    own = described(tmp_path / "own", tasks={"stacking:Stack": ""})
    line = [f"checkpoint={mug}", "seeds=2"]
    assert with_trained_settings(line) == [*line, "task=mug_on_plate"]
    line_of_own = [f"checkpoint={own}", "trust=[other,stacking]"]
    assert with_trained_settings(line_of_own) == [*line_of_own, "task.name=stacking:Stack"]
    for choice in ("task=fmb_1", "suite=quick", "suite_file=mine.yaml", "task.name=a:B"):
        assert with_trained_settings([*line, choice]) == [*line, choice]


@pytest.mark.parametrize("given", ["seeds=1", "trust=robot", "trust=[robots_tasks]"])
def test_a_task_of_a_package_that_is_not_trusted_ends_the_command(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    own = described(tmp_path / "own", tasks={"robots.tasks:Stack": ""})
    with pytest.raises(ValueError, match=r"own needs robots.tasks:Stack .* add trust=robots to"):
        with_trained_settings([f"checkpoint={own}", given])
    named = [f"checkpoint={own}", given, "task=robots.tasks:Stack"]
    assert with_trained_settings(named) == named


def test_the_arm_is_that_of_the_record(tmp_path: Path) -> None:
    arms = {"one": ["menagerie:ur5e"], "usual": [None], "both": [None, "menagerie:ur5e"]}
    for name, chosen in arms.items():
        worlds = [{"task": "kuka_pick", "embodiment": arm} for arm in chosen]
        where = described(tmp_path / name, tasks={"kuka_pick": ""}, worlds=worlds)
        line = [f"checkpoint={where}"]
        added = ["++task.embodiment=menagerie:ur5e"] if name == "one" else []
        assert with_trained_settings(line) == [*line, "task=kuka_pick", *added]
        # A robot has its arms.
        assert with_trained_settings(line, contract=True) == [*line, "task=kuka_pick"]
        for given in ("task.embodiment=iiwa14", "suite=quick", "task=kuka_place"):
            assert added == [] or added[0] not in with_trained_settings([*line, given])


def test_frame_rate_and_execution_are_those_of_the_record(tmp_path: Path) -> None:
    worlds = [{"task": "fmb_1", "frame_hz": 25.0, "options": {}}]
    where = described(tmp_path / "c", tasks={"fmb_1": ""}, worlds=worlds, execution=ENSEMBLING)
    steps = "execute_steps=1"
    name = "execution=temporal_ensembling"
    details = ["execution.delay_s=0.0", "execution.decay=0.05"]

    def added(*options: str) -> list[str]:
        line = [f"checkpoint={where}", *options]
        completed = with_trained_settings(line)
        assert completed[: len(line)] == line
        return completed[len(line) :]

    assert added() == ["task=fmb_1", "task.frame_hz=25.0", name, *details, steps]
    assert added("suite=quick") == [name, *details, steps]
    assert added("task=fmb_2", "+task.frame_hz=10", "execute_steps=4") == [name, *details]
    assert added("task=fmb_1", "execution=stop_and_go") == ["task.frame_hz=25.0", steps]
    assert added("task=fmb_1", "execution.decay=0.1")[1:] == [name, details[0], steps]
    whole = {"name": "receding_horizon", "delay_s": "measured", "execute_steps": None}
    other = described(tmp_path / "d", execution=whole)
    assert with_trained_settings([f"checkpoint={other}"])[1:] == [
        "execution=receding_horizon",
        "execution.delay_s=measured",
        "execute_steps=null",
    ]


def test_the_rule_of_the_task_is_that_of_the_training(tmp_path: Path) -> None:
    """The usual rule is not added."""
    pick = {"task": "kuka_pick", "versions": {"start_spread": 1.0, "strict": False}}
    home = {"task": "kuka_pick", "versions": {"start_spread": 0.0, "strict": False}}
    banana = {"task": "hand_over_banana", "versions": {"start_spread": [0.0, 1.0], "strict": True}}

    def added(name: str, worlds: Sequence[Mapping[str, object]], *options: str) -> list[str]:
        tasks = {str(world["task"]): "" for world in worlds}
        where = described(tmp_path / name, tasks=tasks, worlds=worlds)
        line = [f"checkpoint={where}", *options]
        return with_trained_settings(line)[len(line) :]

    assert added("a", [home]) == ["task=kuka_pick", "++task.options.start_spread=0.0"]
    assert added("b", [pick]) == ["task=kuka_pick"]
    assert added("c", [home, pick]) == ["task=kuka_pick"]
    assert added("d", [banana]) == [
        "task=hand_over_banana",
        "++task.options.start_spread=[0.0, 1.0]",
        "++task.options.strict=true",
    ]
    assert added("e", [home], "+task.options.start_spread=1.0") == ["task=kuka_pick"]
    assert added("f", [home], "task=kuka_place") == []
    assert added("g", [home], "suite=kuka_shifts") == []


def test_cameras_and_rate_are_those_of_the_contract_on_request() -> None:
    line = ["checkpoint=hand_over_banana"]
    cameras = "task.cameras=[overhead,wrist_left,wrist_right]"
    assert with_trained_settings(line, contract=True)[1:] == [cameras, "task.control_hz=50.0"]
    line += ["task.cameras=[overhead]", "task.control_hz=25"]
    assert with_trained_settings(line, contract=True) == line


def test_a_checkpoint_without_a_readable_record_leaves_the_command_line(tmp_path: Path) -> None:
    older = described(tmp_path / "older", steps=3)
    for where in (older, tmp_path / "missing", "ws://127.0.0.1:1", "hand_over_banana"):
        line = [f"checkpoint={where}"]
        assert with_trained_settings(line) == line
    assert with_trained_settings(["seeds=2"]) == ["seeds=2"]


def test_a_task_that_is_not_installed_is_named_with_the_way_out(tmp_path: Path) -> None:
    imported = described(tmp_path / "imported", tasks={"stacked_dishes": ""})
    own = described(tmp_path / "own", tasks={"robots.tasks:Stack": ""})
    for where, task, reason in (
        (imported, "stacked_dishes", "There is no task 'stacked_dishes'."),
        (
            own,
            "robots.tasks:Stack",
            r"There is no module 'robots.tasks' on Python's path. .* PYTHONPATH=\.",
        ),
    ):
        with pytest.raises(
            ValueError, match=f"{where} was trained on .*, which has no simulation here. {reason}"
        ) as caught:
            with_trained_settings([f"checkpoint={where}", "trust=robots"])
        assert "\n" not in str(caught.value)
        assert str(caught.value).endswith(
            "Install it, or choose another task: task=NAME. stringline-deploy with arms needs no "
            f"simulation: task.name={task}. stringline-eval "
            f"checkpoint={where} dataset=STORE measures it on recordings."
        )
        assert with_trained_settings([f"checkpoint={where}", "task=fmb_1"])[2:] == []


def test_one_of_several_tasks_has_to_be_chosen(tmp_path: Path) -> None:
    where = described(tmp_path / "two", tasks={"fmb_1": "", "fmb_2": ""})
    with pytest.raises(ValueError, match=r"trained on fmb_1, fmb_2. Choose one: task=fmb_1\."):
        with_trained_settings([f"checkpoint={where}"])
    for choice in ("task=fmb_2", "suite=quick"):
        assert with_trained_settings([f"checkpoint={where}", choice])[2:] == []
