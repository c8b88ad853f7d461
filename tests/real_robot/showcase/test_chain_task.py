"""The tasks of the chain: all of them run it, small; others are refused before anything runs."""

import json
import re
from pathlib import Path

import pytest
from tests.real_robot.chains import chain, settings

from stringline.datasets.command.choices import CONFIGS, completed
from stringline.real_robot.showcase.demo_chain import commands
from stringline.sim.tasks.task_registry import TASKS

KUKA = [name for name in TASKS if name.startswith("kuka_")]
TWO_ARMS = [name for name in KUKA if "bimanual" in name or "hand_over" in name]


def run_small(task: str, output: Path, *changes: str) -> None:
    chain(output, f"task={task}", *changes).run()
    summary = json.loads((output / "summary.json").read_text())
    assert summary["demonstrations"] == 2
    assert [summary[acted]["trials"] for acted in ("expert", "direct", "emulated")] == [1, 1, 1]
    page = (output / "report.html").read_text()
    arms = settings(output, f"task={task}").chain_task.arms
    assert arms is not None
    assert arms.words in page
    assert f"stringline-demo task={task} " in page


@pytest.mark.slow
def test_a_task_runs_the_chain(tmp_path: Path) -> None:
    """A task of the ALOHA arms; `test_budget` has one of a KUKA arm, `stress` all."""
    run_small("mug_on_plate", tmp_path / "demo", "task.time_limit_s=6", "task.frame_hz=5")


@pytest.mark.stress
@pytest.mark.parametrize("task", TASKS)
def test_every_task_runs_the_chain(task: str, tmp_path: Path) -> None:
    limit_s = completed(CONFIGS, f"task/{task}")["time_limit_s"]
    run_small(task, tmp_path / "demo", f"task.time_limit_s={limit_s}")


@pytest.mark.parametrize("task", ["bowl_on_rack", "kuka_pick", "kuka_bimanual_place"])
def test_cameras_and_arms_are_those_of_the_task(task: str, tmp_path: Path) -> None:
    found = settings(tmp_path / "demo", f"task={task}")
    cameras = found.policy["observation_encoder"]["cameras"]
    deployment = commands(found)[2]
    if task not in KUKA:
        assert cameras == ["overhead", "wrist_left", "wrist_right"]
        assert "robot=aloha_emulated" in deployment
    elif task in TWO_ARMS:
        assert cameras == ["overhead", "wrist_left", "wrist_right"]
        assert "robot=kuka_emulated robot.arms=two" in deployment
    else:
        assert cameras == ["overhead", "wrist"]
        assert "robot=kuka_emulated" in deployment
        assert "robot.arms" not in deployment
    assert set(cameras) <= set(found.task.cameras or ())
    stages = found.chain_task.success()
    assert stages.endswith("success. docs/tasks.md has the criterion.")


def test_named_cameras_are_kept(tmp_path: Path) -> None:
    found = settings(tmp_path, "task=kuka_pick", "policy.observation_encoder.cameras=[wrist]")
    assert found.policy["observation_encoder"]["cameras"] == ["wrist"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["task=gym_aloha_transfer_cube"],
            "gym_aloha_transfer_cube cannot run the whole chain, which needs a scripted expert and "
            "emulated arms. Allowed: bowl_on_rack, double_insertion, ",
        ),
        (["task=aloha_sim_hand_over_pen"], "aloha_sim_hand_over_pen cannot run the whole chain"),
        (["task=kuka_board_in_hand"], "KukaBoardInHand cannot run the whole chain"),
        (
            ["task=metaworld:reach-v3", "task.python=no/python"],
            "There is no Python interpreter 'no/python'; python=PATH is the program",
        ),
        (["task.name=kuka_pik"], "There is no task 'kuka_pik'. Did you mean 'kuka_pick'"),
    ],
)
def test_a_task_without_a_chain_is_refused_at_once(
    changes: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        chain(tmp_path / "demo", *changes)
    assert not (tmp_path / "demo").exists()
