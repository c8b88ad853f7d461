"""The command that measures a checkpoint, from its command line to its report."""

import errno
import html
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tests.policies.remote.served import Running
from tests.sim.in_process import InProcess
from tests.sim.menagerie_files import write_aloha

import stringline.sim.evaluation.results
from stringline import ALOHA, Camera, LocalCluster, TaskSettings, load_policy
from stringline.datasets.command.application import USER_ERROR
from stringline.datasets.loading.statistics import Statistics, statistics_of
from stringline.policies.checkpoints.load import build_policy, checkpoint_digest, save_policy
from stringline.policies.checkpoints.training_record import TrainingRecord
from stringline.sim import compare, evaluate
from stringline.sim.evaluate import evaluate_checkpoint, evaluation_settings
from stringline.sim.evaluation.checkpoint_evaluation import (
    CheckpointEvaluation,
    EvaluationSettings,
    RunSettings,
)
from stringline.sim.worlds.world_versions import result_versions

ROOT = Path(__file__).parents[2]
SMALL = [
    "policy.dim=32",
    "policy.depth=1",
    "policy.observation_encoder.dim=32",
    "policy.observation_encoder.depth=1",
    "policy.chunk=8",
    "policy.noise_samples=1",
]
QUICK = ["seeds=2", "task.time_limit_s=0.4", "execute_steps=8", "workers=1"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained policy with small images."""
    with initialize_config_module("stringline.configs", version_base="1.3"):
        chosen = ["+policy=diffusion", "+encoder=cayley", "+coordinates=metric", "+depth=colours"]
        chosen += ["policy.observation_encoder.cameras=[overhead]"]
        model = OmegaConf.to_container(compose(overrides=[*chosen, *SMALL]).policy, resolve=True)
    assert isinstance(model, dict)
    torch.manual_seed(0)
    contract = ALOHA.contract([Camera("overhead", 32, 32, "simulated")], 50.0)
    near_home = np.stack([ALOHA.home - 0.1, ALOHA.home + 0.1])
    statistics = Statistics(
        {key: statistics_of(lambda: iter([near_home])) for key in ("action", "joints/position")}
    )
    plain = {str(key): value for key, value in model.items()}
    path = tmp_path_factory.mktemp("run") / "checkpoint"
    policy = build_policy(plain, contract, statistics)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(
                0.05 * torch.randn_like(weight)
            )  # A new policy says the same to everything.
    save_policy(path, policy, plain, {"steps": 0})
    return path


@pytest.fixture(scope="module")
def worlds() -> Iterator[InProcess]:
    with closing(InProcess()) as worlds:
        yield worlds


@pytest.fixture(autouse=True)
def here(worlds: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations of this process have their worlds in it; commands as processes have workers."""
    monkeypatch.setattr(LocalCluster, "open", worlds.open)


OVERRIDES = OmegaConf.create({"overrides": {"task": []}})
TASK: dict[str, object] = {
    "name": "hand_over_banana",
    "time_limit_s": 0.4,
    "frame_hz": 12.5,
    "options": {},
}


def settings(
    checkpoint: Path, task: dict[str, object], output: Path, **changes: object
) -> EvaluationSettings:
    """The settings of a quick evaluation."""
    quick = {"execute_steps": 8, "workers": 1, "seeds": 1, "first_seed": 5, "videos": False}
    plain = {"checkpoint": str(checkpoint), "task": task, "output": str(output), **quick}
    return evaluation_settings(plain | changes)


def command(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Runs `stringline-eval`."""
    code = "from stringline.sim.evaluate import main; main()"
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".src")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_command_takes_task_rates_and_execution_from_the_checkpoint(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from a server; a task that is not installed ends in one line."""
    trained = recorded(
        checkpoint,
        tmp_path / "trained",
        tasks={"mug_on_plate": "put the mug there"},
        worlds=[{"task": "mug_on_plate", "frame_hz": 25.0}],
        execution={"name": "stop_and_go", "delay_s": 0.1, "execute_steps": 3},
    )
    monkeypatch.chdir(tmp_path)

    def started(where: Path | str) -> dict[str, object]:
        line = ["seeds=1", "workers=1", "task.time_limit_s=0.2", "videos=false", "output=out"]
        monkeypatch.setattr(sys, "argv", ["stringline-eval", f"checkpoint={where}", *line])
        evaluate.main()
        about = json.loads((tmp_path / "out" / "results.jsonl").read_text().splitlines()[0])
        shutil.rmtree(tmp_path / "out")
        found: dict[str, object] = about["about"]
        return found

    expected = {
        "task": "mug_on_plate",
        "frame_hz": 25.0,
        "execute_steps": 3,
        "execution": {"name": "stop_and_go", "delay_s": 0.1},
    }
    server = Running(load_policy(trained), training=TrainingRecord.read(trained).to_dict())
    try:
        for where in (trained, server.address):
            about = started(where)
            assert {name: about[name] for name in expected} == expected
    finally:
        server.stop()
    other = recorded(trained, tmp_path / "other", tasks={"stacks:Stack": ""})
    shown_text = command(f"checkpoint={other}", folder=tmp_path)
    assert (shown_text.returncode, shown_text.stderr.count("\n")) == (USER_ERROR, 1)
    assert "needs stacks:Stack of the package 'stacks', which is not trusted" in shown_text.stderr
    shown_text = command(f"checkpoint={other}", "trust=stacks", folder=tmp_path)
    assert (shown_text.returncode, shown_text.stderr.count("\n")) == (USER_ERROR, 1)
    assert "There is no module 'stacks' on Python's path." in shown_text.stderr
    assert not (tmp_path / "runs").exists()


def test_the_instruction_of_the_training_is_sent_to_the_policy(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = {"hand_over_banana": "give the banana away"}
    texts = []
    for where in (checkpoint, recorded(checkpoint, tmp_path / "trained", tasks=tasks)):
        evaluation = CheckpointEvaluation(RunSettings(checkpoint=where, execute_steps=8, workers=1))
        monkeypatch.setattr(evaluation.policy, "check_instruction", texts.append)
        evaluation.run(TaskSettings.of(TASK), [], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert texts == ["hand over the banana and put it into the bowl", "give the banana away"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        {"robot": {"model": "menagery"}},
        {"task": TASK | {"options": {"tabel": 1.0}}},
        {"task": {"name": "kuka_pick"}},
        {"execute_steps": 0},
    ],
)
def test_a_failed_evaluation_leaves_no_folder(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, object]
) -> None:
    monkeypatch.setattr(evaluate.HydraConfig, "get", lambda: OVERRIDES)
    plain = {"checkpoint": str(checkpoint), "task": TASK, "output": str(tmp_path / "runs" / "out")}
    plain |= {"dataset": {"path": None}}
    quick = {"execute_steps": 8, "workers": 1, "seeds": 1, "first_seed": 5, "videos": False}
    with pytest.raises(ValueError, match="There is no|does not fit|execute_steps must be"):
        evaluate._evaluate(OmegaConf.create({**plain, **quick, **wrong}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_from_the_command_line(
    checkpoint: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results, videos, report and rate exist, nothing is run twice, and meshes can be chosen."""
    menagerie = tmp_path_factory.mktemp("menagerie")
    write_aloha(menagerie / "aloha")
    monkeypatch.setenv("MENAGERIE_ROOT", str(menagerie))
    arguments = [f"checkpoint={checkpoint}", "output=out", "robot.model=menagerie", *QUICK]
    first = command(*arguments, folder=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "Success 0/2 = 0 % [0, 66]" in first.stderr
    assert first.stderr.endswith(
        f"Next: stringline-deploy robot=aloha_emulated checkpoint={checkpoint} "
        "task=hand_over_banana\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    names = ["report.html", "results.jsonl", "summary.json", "videos"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    assert len(list((tmp_path / "out" / "videos").glob("*.mp4"))) == 2
    assert len(list((tmp_path / "out" / "videos" / "films").glob("*.mp4"))) == 2
    lines = (tmp_path / "out" / "results.jsonl").read_text()
    assert [json.loads(line).get("seed") for line in lines.splitlines()] == [
        None,
        1_000_000,
        1_000_001,
    ]
    assert (
        json.loads((tmp_path / "out" / "summary.json").read_text())["summary"]["rate"]["trials"]
        == 2
    )
    report = (tmp_path / "out" / "report.html").read_text()
    assert (
        f"<pre>stringline-eval checkpoint={checkpoint} task=hand_over_banana task.time_limit_s=0.4"
        in report
    )
    assert (
        "execute_steps=8 robot.model=menagerie seeds=2 first_seed=1000000 output=out</pre>"
        in report
    )
    chosen = {"seeds": 2, "first_seed": 1_000_000, "robot": {"model": "menagerie"}}
    again = evaluate_checkpoint(settings(checkpoint, TASK, tmp_path / "out", **chosen))
    assert [{"drawn": {}} | json.loads(line) for line in lines.splitlines()[1:]] == [
        asdict(result) for result in again
    ]
    assert (tmp_path / "out" / "results.jsonl").read_text() == lines
    assert json.loads(lines.splitlines()[0])["about"]["robot_model"] == "menagerie"
    with pytest.raises(
        ValueError, match=r"another evaluation \(robot_model: 'menagerie' there, None here\)"
    ):
        evaluate_checkpoint(settings(checkpoint, TASK, tmp_path / "out"))


def recorded(checkpoint: Path, folder: Path, **training: object) -> Path:
    """Copies a checkpoint and adds entries to the record of its training."""
    copy = shutil.copytree(checkpoint, folder)
    description = yaml.safe_load((copy / "checkpoint.yaml").read_text())
    description["training"] |= training
    (copy / "checkpoint.yaml").write_text(yaml.safe_dump(description))
    return copy


def test_a_warning_names_arms_and_execution_that_differ_from_the_training(
    checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    execution = {"name": "receding_horizon", "delay_s": 0.0, "execute_steps": 8}
    trained = recorded(
        checkpoint, tmp_path / "trained", robot_models=["menagerie"], execution=execution
    )
    for known in (trained, checkpoint):  # The latter does not name the arms of its training.
        CheckpointEvaluation(
            RunSettings(checkpoint=known, execute_steps=8, robot_model="menagerie")
        )
    assert not caplog.records
    CheckpointEvaluation(RunSettings(checkpoint=trained, execute_steps=4))
    assert caplog.messages == [
        f"The training of {trained} recorded robot.model=menagerie, execute_steps=8; this command "
        f"has robot.model=primitives, execute_steps=4."
    ]
    with pytest.raises(
        ValueError, match=r"There is no robot.model 'menagery'. Did you mean 'menagerie'"
    ):
        evaluate_checkpoint(
            settings(checkpoint, TASK, tmp_path / "wrong", robot={"model": "menagery"})
        )
    with pytest.raises(
        ValueError, match=r"There is no robot.model 3. Allowed: menagerie, primitives"
    ):
        evaluate_checkpoint(settings(checkpoint, TASK, tmp_path / "wrong", robot={"model": 3}))


def test_an_evaluation_warns_of_another_rule_than_that_of_the_training(
    checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In one line; the results carry the rule, and another one does not continue them."""
    caplog.set_level("INFO", logger="stringline.sim.evaluation")
    rule = {"start_spread": 0.0, "strict": False}
    worlds = [{"task": "hand_over_banana", "options": {}, "versions": rule}]
    trained = recorded(checkpoint, tmp_path / "trained", worlds=worlds)
    second = TASK | {"options": {"strict": True}}
    evaluate_checkpoint(settings(trained, second, tmp_path / "out"))
    shown_text = [text for text in caplog.messages if "recorded" in text]
    assert shown_text == [
        f"The training of {trained} recorded task.options.strict=false; this command has "
        f"task.options.strict=true."
    ]
    about = json.loads((tmp_path / "out" / "results.jsonl").read_text().splitlines()[0])["about"]
    assert about.items() >= result_versions("hand_over_banana", {"strict": True}).items()
    with pytest.raises(ValueError, match="strict: True there, False here") as error:
        evaluate_checkpoint(settings(trained, TASK, tmp_path / "out"))
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_options_change_the_world(checkpoint: Path, tmp_path: Path) -> None:
    """The policy sees a raised table and acts differently; unknown options raise errors."""
    plain = evaluate_checkpoint(settings(checkpoint, TASK, tmp_path / "plain"))
    raised = evaluate_checkpoint(
        settings(checkpoint, TASK | {"options": {"table_height": 0.05}}, tmp_path / "raised")
    )
    assert plain[0].seed == raised[0].seed == 5
    assert plain[0].acceleration != raised[0].acceleration
    with pytest.raises(
        ValueError, match=r"There is no task option 'table_hight'\. Did you mean 'table_height'"
    ):
        evaluate_checkpoint(
            settings(checkpoint, TASK | {"options": {"table_hight": 0.05}}, tmp_path / "wrong")
        )
    with pytest.raises(ValueError, match="nowhere"):
        evaluate_checkpoint(settings(Path("nowhere"), TASK, tmp_path / "wrong"))


SUITE = """\
entries:
  - {task: hand_over_banana, seeds: 2, time_limit_s: 0.4}
  - {task: kuka_pick, seeds: 2}
  - task: hand_over_banana
    variation: raised
    options: {table_height: 0.05}
    seeds: [7]
    time_limit_s: 0.4
"""

Attempt = Callable[..., tuple[int, str, str]]


@pytest.fixture
def attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Attempt:
    """Runs a command within this process; returns its exit code, output and error output."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(SUITE)

    def attempt(main: Callable[[], None], *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["stringline-it", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return attempt


def test_a_misspelt_task_in_a_suite_is_found_before_anything_runs(
    checkpoint: Path, tmp_path: Path, attempt: Attempt
) -> None:
    (tmp_path / "mine.yaml").write_text(SUITE.replace("kuka_pick", "kuka_pik"))
    code, _, errors = attempt(evaluate.main, "suite=mine.yaml", f"checkpoint={checkpoint}")
    assert code == USER_ERROR
    assert "There is no task 'kuka_pik'. Did you mean 'kuka_pick'" in errors
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_suite(
    checkpoint: Path, tmp_path: Path, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk loses nothing, a failed entry stops no other, and results are not run again."""
    arguments = [
        "suite=mine.yaml",
        f"checkpoint={checkpoint}",
        "output=out",
        "execute_steps=8",
        "workers=1",
        "videos=false",
    ]
    written: list[int] = []

    def write_once(descriptor: int, data: memoryview) -> None:
        written.append(os.write(descriptor, data))
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(stringline.sim.evaluation.results, "write_all", write_once)
        code, _, errors = attempt(evaluate.main, *arguments)
    assert code == USER_ERROR
    assert "The disk is full" in errors
    plain = tmp_path / "out" / "hand_over_banana" / "results.jsonl"
    first = plain.read_text().splitlines()
    assert [json.loads(line).get("seed") for line in first] == [None, 1_000_000]

    code, table, errors = attempt(evaluate.main, *arguments)
    assert code == evaluate.INCOMPLETE
    assert "kuka_pick                FAILED: " in table
    assert table.count("0/2 = 0 % [0, 66]") == table.count("0/1 = 0 % [0, 79]") == 1
    assert "1 of 3 entries could not be evaluated: kuka_pick" in errors
    assert plain.read_text().splitlines()[:2] == first
    raised = tmp_path / "out" / "hand_over_banana.raised" / "results.jsonl"
    assert json.loads(raised.read_text().splitlines()[0])["about"]["options"] == {
        "table_height": 0.05
    }
    entries = json.loads((tmp_path / "out" / "summary.json").read_text())["entries"]
    assert [entry["name"] for entry in entries] == [
        "hand_over_banana",
        "kuka_pick",
        "hand_over_banana.raised",
    ]
    assert ["failure" in entry for entry in entries] == [False, True, False]
    report = (tmp_path / "out" / "report.html").read_text()
    assert "kuka pick</td><td" in report
    assert "could not be evaluated: " in report

    before = {path: path.read_bytes() for path in (plain, raised)}
    with monkeypatch.context() as patch:
        patch.setattr(
            "stringline.sim.rollout.cluster.LocalCluster.open", None
        )  # No world is wanted.
        again = attempt(evaluate.main, *arguments)[1].splitlines()
    assert len(again) == len(table.splitlines())
    assert {line for line in table.splitlines() if "kuka_pick" not in line} <= set(again)
    assert {path: path.read_bytes() for path in before} == before
    code, _, errors = attempt(evaluate.main, *[*arguments[:3], "execute_steps=4"])
    assert code == USER_ERROR
    assert "execute_steps: 8 there, 4 here" in errors


@pytest.mark.slow
def test_one_episode_again(checkpoint: Path, tmp_path: Path, attempt: Attempt) -> None:
    """The command of an episode in a report repeats it to the last digit."""
    (checkpoint.parent / "history.jsonl").write_text(
        '{"step": 0, "loss": 1.5}\n{"step": 1, "loss": 0.5}\n'
    )
    (tmp_path / "one.yaml").write_text(
        "\n".join(line for line in SUITE.splitlines() if "seeds: 2" not in line)
    )
    chosen = [
        "suite=one.yaml",
        f"checkpoint={checkpoint}",
        "output=out",
        "execute_steps=4",
        "workers=1",
    ]
    assert attempt(evaluate.main, *chosen)[0] == 0
    report = (tmp_path / "out" / "report.html").read_text()
    for known in (
        "attention of the left arm",
        '<section id="training">',
        checkpoint_digest(checkpoint),
        "stages, grippers",
    ):
        assert known in report
    commands = re.findall(r"<pre>(stringline-eval .*first_seed=7 .*)</pre>", report)
    assert len(commands) == 2
    assert len(set(commands)) == 1
    whole = (
        f"<pre>stringline-eval suite=one.yaml checkpoint={checkpoint} execute_steps=4 "
        f"output=out</pre>"
    )
    assert whole in report
    assert attempt(evaluate.main, *shlex.split(html.unescape(commands[0]))[1:])[0] == 0
    first = tmp_path / "out" / "hand_over_banana.raised"
    timed = {"inference_ms": 0, "inference_p95_ms": 0}
    files = [folder / "results.jsonl" for folder in (first, first / "replays" / "7")]
    outcomes = [
        [json.loads(line) | timed for line in file.read_text().splitlines()] for file in files
    ]
    assert outcomes[0] == outcomes[1]


@pytest.mark.slow
def test_a_list_of_tasks_is_a_suite(checkpoint: Path, tmp_path: Path, attempt: Attempt) -> None:
    """Each task has its folder, and the report names the same command."""
    chosen = ["task=[hand_over_banana,mug_on_plate]", f"checkpoint={checkpoint}", "output=out"]
    quick = ["seeds=1", "execute_steps=8", "workers=1", "videos=false", "execution=stop_and_go"]
    code, table, errors = attempt(evaluate.main, *chosen, *quick)
    assert code == 0, errors
    rows = [line.split()[0] for line in table.splitlines() if "0/1" in line]
    assert rows == ["hand_over_banana", "mug_on_plate"]
    for task in rows:
        assert (tmp_path / "out" / task / "results.jsonl").is_file()
    report = html.unescape((tmp_path / "out" / "report.html").read_text())
    assert "<pre>stringline-eval 'task=[hand_over_banana,mug_on_plate]' seeds=1" in report


@pytest.mark.slow
def test_errors_of_a_suite_appear_at_once(
    checkpoint: Path, tmp_path: Path, attempt: Attempt
) -> None:
    """Before the first file is read or written."""
    for arguments, answer in (
        (["suite=aloah12"], "There is no suite 'aloah12'. Did you mean 'aloha12'"),
        (["suite=nothing.yaml"], "There is no suite file 'nothing.yaml'."),
        (["suite=mine.yaml", "task.time_limit_s=3"], "task.time_limit_s=3 is for a single task"),
        (["suite=mine.yaml", "seeds=2"], "hand_over_banana.raised has a list of 1 seeds"),
        (["task=[mug_on_plate,fmb_3]"], "There is no task 'fmb_3'. Did you mean 'fmb_"),
        (["task=[fmb_1]", "suite=quick"], "Both suite and tasks are given; allowed: one of them"),
        (["tasks=fmb_1"], "tasks is 'fmb_1'"),
        (
            ["execution=[receding_horizon,stop_and_go]"],
            "execution=[receding_horizon,stop_and_go] is a list; allowed: one choice of execution",
        ),
        (["seeds=0"], "seeds must be an integer of at least 1 (got 0)"),
        (["first_seed=0.5"], "first_seed must be an integer of at least 0 (got 0.5)"),
        (
            ["task.cameras=[table]"],
            "task.cameras=[table] has no effect here: a checkpoint is evaluated with the cameras",
        ),
        (
            ["+task.option.table_height=0.02"],
            "There is no setting of a task 'option'. Did you mean 'options'",
        ),
        (
            ["task.options=high"],
            "task.options is 'high'; allowed: a mapping, such as {table_height: 0.02}",
        ),
        (["checkpoint=hand_over_bananna"], "Did you mean 'hand_over_banana'?"),
    ):
        code, _, errors = attempt(evaluate.main, f"checkpoint={checkpoint}", *arguments)
        assert (code, answer in errors) == (USER_ERROR, True), errors
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.slow
def test_compares_an_evaluation_and_a_checkpoint(
    checkpoint: Path, tmp_path: Path, attempt: Attempt
) -> None:
    """A checkpoint is evaluated first; it never differs from itself; the files are valid."""
    quick = ["task.time_limit_s=0.4", "execute_steps=8", "workers=1", "videos=false", "seeds=2"]
    assert attempt(evaluate.main, f"checkpoint={checkpoint}", "output=a", *quick)[0] == 0
    code, _, errors = attempt(
        evaluate.main, "suite=mine.yaml", f"checkpoint={checkpoint}", "output=a", *quick[1:-1]
    )
    assert (code, "a holds the evaluation of a single task" in errors) == (USER_ERROR, True)
    code, table, errors = attempt(
        compare.main, "a", f"{checkpoint}", "names=[before,after]", *quick
    )
    assert code == 0, errors
    assert "first: before, second: after" in table
    assert "they never differ" in table
    rows = json.loads((tmp_path / "runs" / "compare" / "compare.json").read_text())["rows"]
    assert [(row["seeds"], row["both"], row["neither"], row["p"]) for row in rows] == [
        (2, 0, 2, 1.0)
    ]
    page = (tmp_path / "runs" / "compare" / "compare.html").read_text()
    for part in ("Content-Security-Policy", "<h1>before, after: comparison", "they never differ"):
        assert part in page
    (tmp_path / "empty").mkdir()
    for arguments, answer in (
        (["a"], "Got 1 paths and 1 names; allowed: two or more"),
        (["a", "b"], "b is not an evaluation"),
        (["a", "empty"], "empty is neither an evaluation (results.jsonl) nor a checkpoint"),
        (["a", "a"], "between two or more different evaluations"),
        (["a", "a", "checkpoint=x"], "List the checkpoints"),
        (["a", "a", "task.image_size=64"], "task.image_size=64 has no effect here"),
    ):
        code, _, errors = attempt(compare.main, *arguments)
        assert (code, answer in errors) == (USER_ERROR, True), errors


@pytest.mark.slow
def test_a_comparison_stops_when_it_is_decided(
    checkpoint: Path, tmp_path: Path, attempt: Attempt
) -> None:
    """A checkpoint never differs from itself, so all seeds are used.

    A larger number of seeds continues the comparison without running an episode twice.
    """
    other = tmp_path / "other"
    shutil.copytree(checkpoint, other)
    quick = ["task.time_limit_s=0.2", "execute_steps=8", "workers=1", "videos=false"]
    sequential = [f"{checkpoint}", "other", "names=[a,b]", "stop_when=decided", "round_seeds=2"]
    for seeds in (2, 3):
        code, table, errors = attempt(compare.main, *sequential, *quick, f"seeds={seeds}")
        assert code == 0, errors
        assert "they never differ" in table
        (row,) = json.loads((tmp_path / "runs/compare/compare.json").read_text())["rows"]
        assert (row["seeds"], row["p"], row["test"]) == (seeds, 1.0, "sequential")
    lines = (tmp_path / "runs/compare/other/results.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 3
    page = (tmp_path / "runs" / "compare" / "compare.html").read_text()
    assert "is at most 5 %" in page
    (tmp_path / "a").mkdir()
    shutil.copy(tmp_path / "runs/compare/other/results.jsonl", tmp_path / "a")
    for arguments, answer in (
        (["a", "other", "stop_when=decided"], "but a is a finished evaluation"),
        (["other", "other", "stop_when=decide"], "Did you mean 'decided'?"),
        (
            ["other", "other", "stop_when=decided", "round_seeds=0"],
            "round_seeds must be an integer of at least 1",
        ),
    ):
        code, _, errors = attempt(compare.main, *arguments)
        assert (code, answer in errors) == (USER_ERROR, True), errors


@pytest.mark.slow
def test_results_of_an_earlier_comparison_are_not_compared(
    checkpoint: Path, tmp_path: Path, attempt: Attempt
) -> None:
    """Those in the same folder, of other tasks, other seeds, or an entry that failed."""
    shutil.copytree(checkpoint, tmp_path / "other")
    plain = {"task": "hand_over_banana", "time_limit_s": 0.2, "seeds": [5]}
    dim = {**plain, "variation": "dim", "options": {"dim_light": 1.0}}
    quick = ["execute_steps=8", "workers=1", "videos=false", "suite=mine.yaml"]
    paths = [f"{checkpoint}", "other", "names=[a,b]"]
    for entries, rows in (
        ([plain, dim], {"hand_over_banana": 1, "hand_over_banana dim_light=1.0": 1}),
        ([{**plain, "seeds": [7, 6]}], {"hand_over_banana": 2}),
    ):
        (tmp_path / "mine.yaml").write_text(yaml.dump({"entries": entries}))
        code, _, errors = attempt(compare.main, *paths, *quick)
        assert code == 0, errors
        found = json.loads((tmp_path / "runs/compare/compare.json").read_text())["rows"]
        names = {row["task"]: row["seeds"] for row in found}
        names.pop("all tasks", None)
        assert names == rows


def test_names_of_compared_paths() -> None:
    """The different parts of paths; arguments of flags are not paths."""
    assert compare.short_names(["runs/a/checkpoint", "./runs/b/checkpoint/"]) == ["a", "b"]
    assert compare.short_names(["runs/a", "runs/a/again"]) == ["a", "a/again"]
    assert compare.short_names(["hand_over_banana", "runs/x"]) == ["hand_over_banana", "runs/x"]
    arguments = ["stringline-compare", "it's", "--cfg", "job", "b", "seeds=2"]
    assert compare.with_compared(arguments) == [
        "stringline-compare",
        r"runs=['it\'s','b']",
        "--cfg",
        "job",
        "seeds=2",
    ]
    assert compare.with_compared(["stringline-compare", "--help"]) == [
        "stringline-compare",
        "--help",
    ]


@pytest.mark.slow
def test_a_policy_on_a_server_acts_as_its_checkpoint(
    checkpoint: Path, tmp_path: Path, attempt: Attempt
) -> None:
    code = "from stringline.policies.serve import main; main()"
    serve = [sys.executable, "-c", code, f"checkpoint={checkpoint}", "port=0"]
    server = subprocess.Popen(serve, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        address = next(
            found.group()
            for line in server.stderr
            if (found := re.search(r"ws://127\.0\.0\.1:\d+", line))
        )
        kept = ("seed", "stage", "plans", "time_s", "acceleration")
        outcomes = []
        for name, asked in (("remote", address), ("direct", str(checkpoint))):
            code, _, errors = attempt(
                evaluate.main, f"checkpoint={asked}", f"output={name}", "videos=false", *QUICK
            )
            assert code == 0, errors
            rows = [
                json.loads(line)
                for line in (tmp_path / name / "results.jsonl").read_text().splitlines()
            ]
            outcomes.append([{key: row[key] for key in kept} for row in rows[1:]])
        assert outcomes[0] == outcomes[1]
        assert len(outcomes[0]) == 2
        assert (
            outcomes[0][0]["acceleration"] != outcomes[0][1]["acceleration"]
        )  # The policy does look.
    finally:
        server.send_signal(2)
        server.wait(20)
        server.stderr.close()
