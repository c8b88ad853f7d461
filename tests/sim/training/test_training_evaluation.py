"""Success is measured during training and selects the best checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.policies.demonstrations import make_store
from tests.sim.in_process import InProcess
from tests.sim.points import MODEL

from stringline import LocalCluster, Rate, TaskSettings, Trainer, load_policy, train_policy
from stringline.policies.checkpoints.load import checkpoint_digest
from stringline.sim.evaluation.suites import chosen_suite
from stringline.sim.training.training_evaluation import (
    SELECTION_SEED,
    TrainingEvaluation,
    success_of,
    training_evaluation,
)
from stringline.sim.training.training_settings import TrainingSettings

TASK: dict[str, Any] = {
    "name": "hand_over_banana",
    "time_limit_s": 0.4,
    "frame_hz": 12.5,
    "options": {},
}
SMALL: dict[str, Any] = {
    **MODEL,
    "chunk": 8,
    "observation_encoder": {**MODEL["observation_encoder"], "cameras": ["overhead"]},
}


@pytest.mark.slow
def test_success_is_in_the_history_and_its_model_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of other weights are replaced; existing results are not measured again."""
    worlds = InProcess()
    monkeypatch.setattr(LocalCluster, "open", worlds.open)
    caplog.set_level("INFO", "stringline")
    store, run, threads = (
        make_store(tmp_path / "store", 6),
        tmp_path / "run",
        torch.get_num_threads(),
    )
    file = run / "evaluations" / "step_00000002" / "results.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"about": {"checkpoint": "another"}}) + "\n")
    evaluate = TrainingEvaluation(
        run / "latest",
        run / "evaluations",
        TaskSettings.of(TASK),
        seeds=2,
        execute_steps=8,
        workers=1,
    )
    trainer = Trainer(steps=2, batch_size=4, warmup_steps=1, precision="no")
    history = train_policy(SMALL, store, trainer, run, TrainingSettings(evaluate=evaluate))
    assert torch.get_num_threads() == threads
    # Once, when the training begins.
    assert [each for each in caplog.messages if "recorded" in each] == [
        f"The training of {run} recorded task=move; this command has task=hand_over_banana."
    ]
    (step, found), *others = history.evaluations()
    assert (step, others) == (1, [])
    assert found == {
        "success": 0.0,
        "successes": 0,
        "trials": 2,
        "low": 0.0,
        "high": pytest.approx(0.6576, abs=1e-3),
    }
    assert "After step 2: success 0/2 = 0 % [0, 66] on hand_over_banana" in caplog.text
    about, *results = map(json.loads, file.read_text().splitlines())
    assert about["about"]["checkpoint"] == checkpoint_digest(run / "latest")
    assert [result["seed"] for result in results] == [SELECTION_SEED, SELECTION_SEED + 1]
    before = file.stat().st_mtime_ns
    assert (
        train_policy(SMALL, store, trainer, run, TrainingSettings(evaluate=evaluate)).evaluations()
        == history.evaluations()
    )
    assert file.stat().st_mtime_ns == before
    weights = [load_policy(run / name).state_dict() for name in ("latest", "best", "checkpoint")]
    assert all(
        torch.equal(value, other[name])
        for other in weights[1:]
        for name, value in weights[0].items()
    )
    entries = [{"task": task, "time_limit_s": 0.4} for task in ("hand_over_banana", "fmb_1")]
    suite = chosen_suite({"suite": {"entries": entries}, "seeds": 1, "first_seed": 5})
    small = {"execute_steps": 8, "workers": 1}
    several = training_evaluation(run, run / "latest", None, small, suite=suite)
    assert several is not None
    assert [each["task"] for each in several.options()] == ["hand_over_banana", "fmb_1"]
    assert (several(4)["trials"], several(4)["success/fmb_1"]) == (2, 0.0)
    for task in ("hand_over_banana", "fmb_1"):
        assert (run / "evaluations" / "step_00000004" / task / "results.jsonl").is_file()
    worlds.close()


def test_success_on_several_tasks_is_the_mean_of_their_rates() -> None:
    found = success_of({"fmb_1": Rate(1, 2), "hand_over_pen": Rate(4, 4)})
    assert (found["success"], found["successes"], found["trials"]) == (0.75, 5, 6)
    assert (found["success/fmb_1"], found["success/hand_over_pen"]) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("task", "settings", "model", "message"),
    [
        (TASK, {"seed": 3}, "primitives", r"no setting of evaluation 'seed'. Did you mean 'seeds'"),
        (
            TASK,
            {"seeds": 0},
            "primitives",
            r"evaluation.seeds must be an integer of at least 1 \(got 0\)",
        ),
        (
            TASK,
            {"execute_steps": 1.5},
            "primitives",
            r"evaluation.execute_steps must be an integer of at least 1 \(got 1.5\)",
        ),
        (
            TASK,
            {"first_seed": -1},
            "primitives",
            r"evaluation.first_seed must be an integer of at least 0 \(got -1\)",
        ),
        (
            TASK,
            {"workers": -1},
            "primitives",
            r"evaluation.workers must be an integer of at least 0 \(got -1\)",
        ),
        (
            TASK | {"option": {}},
            {},
            "primitives",
            r"There is no setting of a task 'option'. Did you mean 'options'",
        ),
        (TASK, {}, "menagery", r"There is no robot.model 'menagery'. Did you mean 'menagerie'"),
    ],
)
def test_wrong_settings_are_refused_before_the_training(
    task: dict[str, Any], settings: dict[str, Any], model: Any, message: str, tmp_path: Path
) -> None:
    assert training_evaluation(tmp_path, tmp_path / "latest", None, {"seeds": 3}) is None
    assert (
        training_evaluation(
            tmp_path, tmp_path / "latest", TASK, {"seeds": 3, "execute_steps": None}
        )
        is not None
    )
    with pytest.raises(ValueError, match=message):
        training_evaluation(tmp_path, tmp_path / "latest", task, settings, robot_model=model)
