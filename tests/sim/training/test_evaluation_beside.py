"""Success is measured in another process while the training goes on."""

import time
from pathlib import Path

import pytest
import torch
from tests.policies.demonstrations import make_store
from tests.sim.training.test_training_evaluation import SMALL, TASK

from stringline.encoders.training.trainer import Trainer
from stringline.policies.checkpoints.load import load_policy
from stringline.sim.train import train_policy
from stringline.sim.training.evaluation_beside import ProcessEvaluation
from stringline.sim.training.training_evaluation import TrainingEvaluation
from stringline.sim.training.training_settings import TrainingSettings
from stringline.sim.worlds.task_settings import TaskSettings


def evaluation(run: Path, *, beside: bool) -> TrainingEvaluation:
    return TrainingEvaluation(
        run / "latest",
        run / "evaluations",
        TaskSettings.of(TASK),
        seeds=2,
        execute_steps=8,
        workers=1,
        beside=beside,
    )


def test_it_is_the_evaluation_of_a_training_that_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path / "store", 6)
    trainer = Trainer(steps=3, batch_size=4, warmup_steps=1, precision="no", evaluate_every=2)
    histories = []
    for beside in (True, False):
        run = tmp_path / ("beside" if beside else "waits")
        settings = TrainingSettings(evaluate=evaluation(run, beside=beside))
        histories.append(train_policy(SMALL, store, trainer, run, settings))
    first, second = histories
    assert first.evaluations() == second.evaluations()
    assert [step for step, _ in first.evaluations()] == [1, 2]
    assert first.losses() == second.losses()
    best, other = (load_policy(tmp_path / run / "best").state_dict() for run in ("beside", "waits"))
    assert all(torch.equal(value, other[name]) for name, value in best.items())
    names = sorted(path.name for path in (tmp_path / "beside/evaluations").iterdir())
    assert names == [
        "checkpoint_00000002.txt",
        "checkpoint_00000003.txt",
        "step_00000002",
        "step_00000003",
    ]
    assert "has failed" not in caplog.text


def test_a_process_is_interrupted_and_one_that_fails_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path / "store", 6)
    run = tmp_path / "run"
    trainer = Trainer(steps=1, batch_size=4, warmup_steps=1, precision="no")
    train_policy(SMALL, store, trainer, run)
    beside = ProcessEvaluation(evaluation(run, beside=True), run / "latest", run / "best")
    beside.start(5)
    assert not beside.has_ended(5)
    begun = time.monotonic()
    beside.close()
    assert time.monotonic() - begun < 25
    assert beside.begun() == [5]
    copy = run / "evaluations" / "checkpoint_00000005"
    weights = (copy / "weights.safetensors").read_bytes()
    (copy / "weights.safetensors").write_bytes(weights[:100])
    beside.start(5)
    beside._processes[5].join()
    assert not beside.has_ended(5), "it failed"
    (copy / "weights.safetensors").write_bytes(weights)
    assert beside.figures(5)["trials"] == 2
    assert "after step 5 has failed, see " in caplog.text
    assert "ValueError" in copy.with_suffix(".txt").read_text()
    beside.keep_best(5)
    assert (run / "best" / "weights.safetensors").read_bytes() == weights
    beside.discard(5)
    assert not beside.begun()
