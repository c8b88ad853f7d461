"""The record of a training, from checkpoints and servers, and the warnings of commands."""

from pathlib import Path

import pytest
from tests.policies.checkpoints.records import described
from tests.policies.remote.served import CONTRACT, Drift, Running

from stringline.policies.checkpoints.training_record import RecordedExecution, TrainingRecord
from stringline.policies.execution.execution import Execution

PLAIN = {
    "tasks": {"hand_over_banana": "hand it over", "hand_over_pen": "the pen"},
    "instructions": ["a pen", "hand it over", "the pen"],
    "robot_models": ["primitives"],
    "worlds": [{"task": "hand_over_banana", "frame_hz": 12.5, "options": {"table_height": 0.02}}],
    "execution": {"name": "stop_and_go", "delay_s": 0.1, "execute_steps": None},
}


def test_a_record_is_read_from_a_checkpoint_and_from_its_server(tmp_path: Path) -> None:
    local = TrainingRecord.read(described(tmp_path / "c", steps=3, **PLAIN))
    assert local.tasks == PLAIN["tasks"]
    assert local.execution == RecordedExecution(Execution("stop_and_go", 0.1), None)
    assert local.frame_rates == (12.5,)
    assert local.to_dict() == PLAIN
    for training in (PLAIN, {}):
        server = Running(Drift(), training=training)
        try:
            found = TrainingRecord.read(server.address)
        finally:
            server.stop()
        assert found == TrainingRecord.of(server.address, training, CONTRACT)


def test_older_and_shipped_checkpoints_have_an_empty_record(tmp_path: Path) -> None:
    older = described(tmp_path / "older", steps=3, tasks=["fmb_1"])
    for where in (older, "hand_over_banana"):
        assert TrainingRecord.read(where).to_dict() == {}
    assert TrainingRecord.read(older) == TrainingRecord(str(older))


def test_one_warning_names_all_options_that_differ_from_the_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    record = TrainingRecord.of("runs/c", PLAIN)
    same = RecordedExecution(Execution("stop_and_go", 0.1), None).options()
    record.warn({"task": "hand_over_pen", "prompt": "the pen", "robot.model": "primitives", **same})
    TrainingRecord("older").warn({"task": "fmb_1", **same})
    assert not caplog.messages
    record.warn({"task": "hand_over_banana", "prompt": "take it", "task.frame_hz": 25.0})
    other = RecordedExecution(Execution("stop_and_go", 0.0), 4).options()
    record.warn({"task": "mug_on_plate", "prompt": "a pen", **other})
    assert caplog.messages == [
        "The training of runs/c recorded prompt=a pen or hand it over or the pen, "
        "task.frame_hz=12.5; this command has prompt=take it, task.frame_hz=25.0.",
        "The training of runs/c recorded task=hand_over_banana or hand_over_pen, "
        "execution.delay_s=0.1, execute_steps=null; this command has task=mug_on_plate, "
        "execution.delay_s=0.0, execute_steps=4.",
    ]
