"""Shifts by name: in configurations, in replays and in suites."""

from pathlib import Path

import pytest

from stringline.datasets.command.configuration import Configuration
from stringline.sim.evaluation.suites import Suite, chosen_suite
from stringline.sim.report.report import RerunCommand
from stringline.sim.shifts.shift import NAMES
from stringline.sim.tasks.task_registry import make_task
from stringline.sim.worlds.task_settings import TaskSettings

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.mark.slow
def test_shifts_are_chosen_on_the_command_line_and_named_in_replays() -> None:
    for command in ("eval", "collect"):
        configuration = Configuration(CONFIGS, command, command)
        assert configuration.composed().task.options == {}
        one = configuration.composed(["shift=dim_light", "task.options.dim_light=0.5"])
        assert one.task.options == {"dim_light": 0.5}
    both = configuration.composed(["shift=[side_light,raised_table]", "task=bowl_on_rack"]).task
    assert (both.name, both.options) == ("bowl_on_rack", {"side_light": 1.0, "table_height": 0.05})
    task = TaskSettings("hand_over_banana", time_limit_s=20.0, options=dict(one.task.options))
    assert " ++task.options.dim_light=0.5 " in RerunCommand(
        "x", task, None, Path("runs/x")
    ).command(7)


@pytest.mark.parametrize(
    ("name", "per_task", "left_out"),
    [
        ("aloha_shifts", 11, {"bright_light"}),
        ("kuka_shifts", 10, {"bright_light", "miscalibration"}),
    ],
)
def test_a_suite_goes_through_the_shifts(name: str, per_task: int, left_out: set[str]) -> None:
    suite = Suite.read(CONFIGS / "suite" / f"{name}.yaml")
    tasks = {task: make_task(task) for task in dict.fromkeys(entry.task for entry in suite.entries)}
    for task, made in tasks.items():
        entries = [entry for entry in suite.entries if entry.task == task]
        assert len(entries) == per_task
        assert not entries[0].options, "the first is in distribution"
        assert {key for entry in entries for key in entry.options} == {
            *NAMES,
            "table_height",
        } - left_out
        for entry in entries:
            made.configure(**entry.settings().options)


def test_a_suite_takes_no_shift_beside_its_own() -> None:
    plain = {"entries": [{"task": "hand_over_banana"}]}
    with pytest.raises(ValueError, match=r"shift=dim_light is for a single task"):
        chosen_suite(
            {"suite": plain, "suite_file": None}, ["suite=aloha_shifts", "shift=dim_light"]
        )
