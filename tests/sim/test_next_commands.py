"""The command that an evaluation suggests exists and takes its options, for each kind of robot."""

import logging
import shlex
from pathlib import Path

import pytest

import stringline
from stringline.datasets.command.configuration import Configuration
from stringline.sim.evaluate import EMULATED_ROBOTS, report_deployment
from stringline.sim.tasks.task_registry import TASKS, make_task


@pytest.mark.parametrize("task", ["hand_over_banana", "kuka_pick", "kuka_bimanual_pick"])
def test_the_suggested_deployment_can_be_composed(
    task: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It has the number of arms, the checkpoint and the task of the evaluation."""
    embodiment = make_task(task).embodiment
    with caplog.at_level(logging.INFO, logger="stringline"):
        report_deployment("runs/my run/checkpoint", task, embodiment.name)
    words = shlex.split(caplog.messages[0].removeprefix("Next: "))
    assert words[0] == "stringline-deploy"
    folder = Path(stringline.__file__).parent / "configs"
    composed = Configuration(folder, "deploy", words[0]).composed(words[1:])
    assert composed.checkpoint == "runs/my run/checkpoint"
    assert composed.task.name == task
    arms = {"one": 1, "two": 2}[composed.robot.get("arms", "two")]
    assert arms == len(embodiment.arms)


@pytest.mark.slow
def test_every_embodiment_of_a_task_has_an_emulated_robot() -> None:
    assert {make_task(task).embodiment.name for task in TASKS} == set(EMULATED_ROBOTS)


@pytest.mark.parametrize("task", ["gym_aloha_transfer_cube", "aloha_sim_hand_over_pen"])
def test_tasks_of_other_packages_suggest_nothing(
    task: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="stringline"):
        report_deployment("checkpoint", task, "aloha")
    assert caplog.messages == []
