"""Success is measured in another process while the training goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tests.policies.demonstrations import make_store
from tests.sim.training.test_training_evaluation import SMALL, TASK

from stringline import TaskSettings, Trainer, load_policy, train_policy
from stringline.sim.training.training_evaluation import ProcessEvaluation, TrainingEvaluation
from stringline.sim.training.training_settings import TrainingSettings


def evaluation(run: Path, *, background: bool) -> TrainingEvaluation:
    return TrainingEvaluation(
        run / "latest",
        run / "evaluations",
        TaskSettings.of(TASK),
        seeds=2,
        execute_steps=8,
        workers=1,
        background=background,
    )


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A run of one step."""
    store = make_store(tmp_path / "store", 6)
    trainer = Trainer(steps=1, batch_size=4, warmup_steps=1, precision="no")
    train_policy(SMALL, store, trainer, tmp_path / "run")
    return tmp_path / "run"


def in_process(run: Path) -> ProcessEvaluation:
    return ProcessEvaluation(evaluation(run, background=True), run / "latest", run / "best")


@pytest.mark.slow
def test_it_is_the_evaluation_of_a_training_that_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(tmp_path / "store", 6)
    trainer = Trainer(steps=3, batch_size=4, warmup_steps=1, precision="no", evaluate_every=2)
    histories = []
    for background in (True, False):
        run = tmp_path / ("background" if background else "waits")
        settings = TrainingSettings(evaluate=evaluation(run, background=background))
        histories.append(train_policy(SMALL, store, trainer, run, settings))
    first, second = histories
    assert first.evaluations() == second.evaluations()
    assert [step for step, _ in first.evaluations()] == [1, 2]
    assert first.losses() == second.losses()
    best, other = (
        load_policy(tmp_path / run / "best").state_dict() for run in ("background", "waits")
    )
    assert all(torch.equal(value, other[name]) for name, value in best.items())
    names = sorted(path.name for path in (tmp_path / "background/evaluations").iterdir())
    assert names == [
        "checkpoint_00000002.txt",
        "checkpoint_00000003.txt",
        "step_00000002",
        "step_00000003",
    ]
    assert "has failed" not in caplog.text


@pytest.mark.slow
def test_a_process_that_fails_is_reported_and_replaced(
    trained: Path, caplog: pytest.LogCaptureFixture
) -> None:
    background = in_process(trained)
    background.start(5)
    background.close()
    assert background.begun() == [5]
    copy = trained / "evaluations" / "checkpoint_00000005"
    weights = (copy / "weights.safetensors").read_bytes()
    (copy / "weights.safetensors").write_bytes(weights[:100])
    background.start(5)
    background._processes[5][0].wait()
    assert not background.has_ended(5)
    assert caplog.text.count("after step 5 has failed, see ") == 1
    assert "ValueError" in copy.with_suffix(".txt").read_text()
    (copy / "weights.safetensors").write_bytes(weights)
    assert background.metrics(5)["trials"] == 2
    assert caplog.text.count("after step 5 has failed, see ") == 1
    background.keep_best(5)
    assert (trained / "best" / "weights.safetensors").read_bytes() == weights
    background.discard(5)
    assert not background.begun()


@pytest.mark.slow
def test_metrics_of_an_ended_process_survive_the_run(trained: Path) -> None:
    """The metrics are read, and nothing is evaluated again."""
    first = in_process(trained)
    first.start(5)
    first._processes[5][0].wait()
    first.close()
    again = in_process(trained)
    again.start(5)
    assert not again._processes
    assert again.has_ended(5)
    assert again.metrics(5)["trials"] == 2
    left = trained / "evaluations" / ".checkpoint_00000004.old"
    left.mkdir()
    unfinished = trained / "evaluations" / ".checkpoint_00000006.json.1"
    unfinished.touch()
    again.start(6)
    assert not left.exists(), "what a killed run has left is removed"
    assert not unfinished.exists()
    again.close()


@pytest.mark.slow
def test_the_process_ends_with_a_killed_training(trained: Path) -> None:
    code = f"""
import time
from pathlib import Path
from tests.sim.training.test_background_evaluation import in_process
background = in_process(Path({str(trained)!r}))
background.start(5)
print(background._processes[5][0].pid, flush=True)
time.sleep(60)
"""
    training = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert training.stdout
    with training.stdout as output:
        pid = int(output.readline())
        os.kill(training.pid, signal.SIGKILL)
    training.wait()
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline, "it outlives the training"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Returns whether a process runs; one that has ended may wait for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_choice_that_is_neither_true_nor_false_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"evaluation\.background is 'yes'; allowed: true or false\."
    ):
        evaluation(tmp_path, background="yes")  # type: ignore[arg-type]
