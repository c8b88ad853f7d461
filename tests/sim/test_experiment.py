"""Experiments from the command line: results, refusals, failures, and continuing after a stop."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.sim.points import fill

from stringline import EpisodeStore, Rate
from stringline.datasets.command.application import INTERRUPTED, USER_ERROR
from stringline.datasets.command.configuration import Configuration
from stringline.sim import experiment
from stringline.sim.evaluate import INCOMPLETE, plain_settings
from stringline.sim.evaluation.results import EpisodeResult, ResultsFile
from stringline.sim.experiments.experiment_plan import ExperimentPlan, prepare
from stringline.sim.experiments.recipes import with_recipes
from stringline.sim.rollout.jobs import FINISHED
from stringline.sim.rollout.rollout import Video
from stringline.sim.statistics.trainings import recipe_difference

ROOT = Path(__file__).parents[2]
RECIPES = "recipes={cayley: [encoder=cayley_per_head], rope: [encoder=rope_mixed]}"
FIRST = 1_000_000
Attempt = Callable[..., tuple[int, str, str]]


@pytest.fixture
def attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Attempt:
    """Runs the command within this process; returns its exit code, output and error output."""
    monkeypatch.chdir(tmp_path)

    def attempt(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["stringline-experiment", *arguments])
        code = 0
        try:
            experiment.main()
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return attempt


def plan_of(*arguments: str) -> ExperimentPlan:
    """The plan of a command line."""
    configuration = Configuration(ROOT / "configs", "experiment", "stringline-experiment")
    overrides = with_recipes(["stringline-experiment", *arguments])[1:]
    return ExperimentPlan.of(plain_settings(configuration.composed(overrides)))


def end_cells(plan: ExperimentPlan, successes: dict[str, list[int]]) -> None:
    """Writes what ended cells leave: by recipe, the number of successes of each training."""
    for job in plan.collections():
        job.folder.mkdir(parents=True)
        (job.folder / FINISHED).write_text(json.dumps(job.commands))
    for cell in plan.cells():
        if cell.seed >= len(successes.get(cell.label, ())):
            continue
        count = successes[cell.label][cell.seed]
        results = [
            EpisodeResult(FIRST + start, start < count, 1, "lifted", 3.0, 4, 20, 1)
            for start in range(20)
        ]
        about = {"task": "hand_over_banana", "options": {}, "checkpoint": cell.name}
        stored = ResultsFile(cell.evaluation / "results.jsonl", about)
        for result in results:
            stored.add(result)
        (cell.evaluation / "report.html").write_text("")
        video = Video()
        video.add(0.0, np.zeros((32, 32, 3), np.uint8))
        video.write(cell.evaluation / "videos" / f"{FIRST + 12}.mp4")
        cell.training.mkdir()
        (cell.training / "history.jsonl").write_text('{"step": 0, "loss": 1.5}\n' * 2)
        (cell.folder / FINISHED).write_text(json.dumps(plan.job(cell).commands))


@pytest.mark.slow
def test_ended_cells_are_not_run_again(attempt: Attempt, tmp_path: Path) -> None:
    """Table, summary and page follow from their results, with the intervals over trainings."""
    arguments = (RECIPES, "task=hand_over_banana", "trainings=2", "output=out")
    plan = plan_of(*arguments)
    prepare(plan)
    end_cells(plan, {"cayley": [18, 16], "rope": [4, 6]})
    code, table, errors = attempt(*arguments)
    assert code == 0, errors
    assert re.search(r"cayley +hand_over_banana +85 % +\[\d+, \d+\] +90, 80", table)
    assert "rope - cayley" in table
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    (difference,) = summary["differences"]
    tables = [
        np.array([[start < count for start in range(20)] for count in counts], np.float64)
        for counts in ((18, 16), (4, 6))
    ]
    expected = recipe_difference([tables[0]], [tables[1]])
    assert difference["difference"] == pytest.approx(-0.6)
    assert (difference["low"], difference["high"]) == expected.interval
    assert difference["verdict"] == "cayley is better (of 2 trainings)"
    assert "posterior" in difference
    assert "p" not in difference
    assert summary["recipes"][0]["trainings"]["1"] == Rate(16, 20).to_dict()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Content-Security-Policy" in page
    for part in ('id="curves"', "encoder=rope_mixed", 'href="recipes/rope/1/evaluation/report.ht'):
        assert part in page
    # On this start, one recipe succeeds and the other does not.
    assert f"hand over banana, seed {FIRST + 12}" in page
    assert page.count("data:video/mp4") == 2


@pytest.mark.slow
def test_rounds_have_rows_a_curve_and_can_be_added(attempt: Attempt, tmp_path: Path) -> None:
    arguments = (RECIPES, "task=hand_over_banana", "trainings=2", "output=out")
    prepare(plan_of(*arguments))  # Without rounds.
    plan = plan_of(*arguments, "rounds=1")
    end_cells(
        plan,
        {
            "cayley, round 0": [10, 12],
            "cayley, round 1": [15, 17],
            "rope, round 0": [4, 6],
            "rope, round 1": [5, 7],
        },
    )
    code, table, errors = attempt(*arguments, "rounds=1")
    assert code == 0, errors
    assert re.search(r"cayley, round 1 +hand_over_banana +80 % +\[\d+, \d+\] +75, 85", table)
    page = (tmp_path / "out" / "report.html").read_text()
    assert 'id="rounds"' in page
    assert "round of corrections" in page
    code, _, errors = attempt(*arguments, "rounds=1", "corrections=7")
    assert code == USER_ERROR
    assert "The rounds of " in errors
    assert "corrections=50" in errors


def test_the_commands_of_rounds() -> None:
    """Each round corrects the policy before, and trains on from it with all corrections so far."""
    rounds = (
        "rounds=2",
        "corrections=5",
        "correct=[takeovers.drawn=1]",
        "retrain=[trainer.steps=7]",
    )
    plan = plan_of(RECIPES, "task=hand_over_banana", "trainings=1", "output=out", *rounds)
    last = plan.cells()[2]
    assert (last.recipe, last.round, len(plan.cells())) == ("cayley", 2, 6)
    commands = plan.job(last).commands
    names = ["stringline-train", "stringline-eval"]
    assert [command[0] for command in commands] == names + 2 * ["stringline-collect", *names]
    assert plan.job(last.at(1)).commands == commands[:5]
    collect, train, _ = commands[5:]
    before = last.at(1).training / "checkpoint"
    assert {f"policy={before}", "episodes=5", "takeovers.drawn=1"} <= set(collect)
    wanted = {"encoder=cayley_per_head", f"initialise_from={before}", "keep_normalisation=true"}
    assert {*wanted, "dataset.corrections=0.5", "trainer.steps=7"} <= set(train)
    (stores,) = [part for part in train if part.startswith("dataset.stores=")]
    assert stores.count("path:") == 3
    assert stores.count("corrections/hand_over_banana") == 2


@pytest.mark.slow
def test_one_training_has_no_interval(attempt: Attempt, tmp_path: Path) -> None:
    arguments = (RECIPES, "task=hand_over_banana", "trainings=1", "output=out")
    plan = plan_of(*arguments)
    end_cells(plan, {"cayley": [18], "rope": [4]})
    code, table, errors = attempt(*arguments)
    assert code == 0, errors
    assert re.search(r"cayley +hand_over_banana +90 % +- +90", table)
    assert "a single training shows nothing" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
def test_changes_of_an_experiment(attempt: Attempt) -> None:
    """A changed recipe, other data and another evaluation are refused; recipes can be added."""
    arguments = (RECIPES, "task=hand_over_banana", "trainings=1", "output=out")
    plan = plan_of(*arguments)
    prepare(plan)
    end_cells(plan, {"cayley": [18], "rope": [4]})
    for changed, answer in (
        ([RECIPES.replace("rope_mixed", "rope")], "The recipe 'rope' of .* was .*rope_mixed"),
        (["episodes=7"], "The recipe 'cayley' .* was .*episodes=100.*; now it is .*episodes=7"),
        (["first_seed=5"], "The evaluations of .* were .*; now they are .*first_seed=5.*output"),
    ):
        code, _, errors = attempt(*arguments, *changed)
        assert code == USER_ERROR
        assert re.search(answer, errors), errors
        assert errors.count("\n") == 1
    # The number of workers affects no result.
    assert attempt(*arguments, "workers=1", "parallel=2")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ([], "recipes is None; allowed: a mapping"),
        ([RECIPES], "The evaluation needs a task: task=NAME"),
        (
            [RECIPES.replace("rope_mixed", "rope_mixd"), "task=mug_on_plate"],
            "The recipe 'rope': There is no encoder 'rope_mixd'. Did you mean 'rope_mixed'",
        ),
        ([RECIPES, "task=mug_on_plat"], "There is no task 'mug_on_plat'. Did you mean"),
        ([RECIPES, "task=[fmb_1,fmb_1]"], "each task can be named once"),
        ([RECIPES, "suite=quik"], "There is no suite 'quik'. Did you mean 'quick'"),
        ([RECIPES, "suite=quick"], "The recipe 'cayley' has no data: dataset.path=STORE"),
        ([RECIPES, "task=fmb_1", "dataset.path=none"], "none"),
        ([RECIPES, "task=fmb_1", "trainings=0"], "trainings must be an integer of at least 1"),
        ([RECIPES, "task=fmb_1", "parallel=0"], "parallel must be an integer of at least 1"),
        ([RECIPES, "task=fmb_1", "evaluate=[sedes=3]"], "evaluate: There is no option 'sedes'"),
        ([RECIPES, "task=fmb_1", "clustr=ray"], "There is no option 'clustr'"),
        ([RECIPES, "task=fmb_1", "rounds=-1"], "rounds must be an integer of at least 0"),
        (
            [RECIPES, "suite=quick", "rounds=1", "train=[dataset.path=x]"],
            "rounds needs the task in which the expert corrects: task=NAME",
        ),
        ([RECIPES, "task=fmb_1", "minutes=0"], "minutes must be a number above 0 (got 0)"),
        (
            [RECIPES, "task=fmb_1", "minutes=60", "train=[trainer.steps=300]"],
            "minutes sets trainer.steps, so omit trainer.steps=300 or minutes.",
        ),
        (
            [RECIPES, "task=fmb_1", "minutes=60", "parallel=2"],
            "minutes needs cluster=local and parallel=1",
        ),
        (
            [RECIPES, "task=fmb_1", "suite=quick", "minutes=60"],
            "minutes needs the number of starts of the suite, such as seeds=20.",
        ),
    ],
)
def test_bad_settings_are_found_before_anything_runs(
    attempt: Attempt, tmp_path: Path, arguments: list[str], answer: str
) -> None:
    code, _, errors = attempt(*arguments)
    assert (code, answer in errors, errors.count("\n")) == (USER_ERROR, True, 1), errors
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_failed_training_is_named_and_the_others_count(attempt: Attempt, tmp_path: Path) -> None:
    """Its reason is the message of the command; the exit code is that of an incomplete run."""
    store = EpisodeStore.create(tmp_path / "store")
    fill(store, range(3))
    recipes = "recipes={good: [], bad: ['policy.observation_encoder.cameras=[overheat]']}"
    arguments = (recipes, "dataset.path=store", "task=hand_over_banana", "trainings=1")
    plan = plan_of(*arguments)
    end_cells(plan, {"good": [18]})
    code, table, errors = attempt(*arguments)
    assert code == INCOMPLETE
    assert re.search(r"good +hand_over_banana +90 %", table)
    assert "bad, training 0 FAILED: stringline-train: " in errors
    assert "1 of 2 trainings failed." in errors
    page = (plan.output / "report.html").read_text()
    assert "bad, training 0" in page
    assert "overheat" in page


@pytest.mark.slow
def test_the_commands_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are accepted; the last one continues the one before."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "tutorials" / "compare-encodings.md").read_text()
    blocks = re.findall(r"(?m)^    (\w.*)$", page)
    recipes = [line for line in blocks if re.match(r"\w+: \[", line)]
    (tmp_path / "encodings.yaml").write_text("\n".join(recipes))
    commands = [line for line in blocks if line.startswith("stringline-experiment ")]
    plans = [plan_of(*shlex.split(command)[1:]) for command in commands]
    assert [len(plan.cells()) for plan in plans] == [4, 6, 10]
    for plan in plans:
        prepare(plan)
    cell = plans[1].cells()[0]
    assert plans[1].train_command(cell) == plans[2].train_command(cell)
    assert plans[1].eval_command(cell) != plans[2].eval_command(cell)


@pytest.mark.slow
def test_a_continued_experiment_has_the_steps_of_its_budget(
    attempt: Attempt, tmp_path: Path
) -> None:
    arguments = (RECIPES, "task=hand_over_banana", "trainings=2", "output=out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "budget.json").write_text('{"minutes": 60, "steps": 480}')
    plan = plan_of(*arguments, "train=[trainer.steps=480]")
    end_cells(plan, {"cayley": [18, 16], "rope": [4, 6]})
    code, table, errors = attempt(*arguments, "minutes=60")
    assert code == 0, errors
    assert "rope - cayley" in table
    record = json.loads((tmp_path / "out" / "experiment.json").read_text())
    assert all("trainer.steps=480" in recipe for recipe in record["recipes"].values())
    code, _, errors = attempt(*arguments, "minutes=30")
    assert code == USER_ERROR
    assert "holds an experiment with minutes=60 (now 30). Choose another output." in errors


def test_a_budget_is_refused_for_an_experiment_without_one(attempt: Attempt) -> None:
    arguments = (RECIPES, "task=hand_over_banana", "output=out")
    prepare(plan_of(*arguments))
    code, _, errors = attempt(*arguments, "minutes=60")
    assert code == USER_ERROR
    assert "holds an experiment without minutes. Omit minutes, or choose another" in errors


def small_arguments(*train: str) -> list[str]:
    """An experiment of two small recipes, from the demonstrations on."""
    small = ",".join(
        [
            *("policy.dim=32", "policy.depth=1", "policy.observation_encoder.dim=32"),
            *("policy.chunk=8", "policy.observation_encoder.depth=1"),
            "'policy.observation_encoder.cameras=[overhead]'",
            *("trainer.batch_size=4", "trainer.precision=no", *train),
        ]
    )
    seen = "keep_failures=true,task.time_limit_s=1.0,'task.cameras=[overhead]',task.image_size=32"
    return [
        *(RECIPES, "task=hand_over_banana", "episodes=2", "seeds=2", "trainings=2", "workers=1"),
        *(f"collect=[{seen}]", f"train=[{small}]", "output=out"),
        "evaluate=[task.time_limit_s=0.4,execute_steps=8]",
    ]


@pytest.mark.stress
def test_a_budget_sets_the_steps(attempt: Attempt, tmp_path: Path) -> None:
    """The same number for all trainings; a budget that is too short names one that suffices."""
    arguments = small_arguments()
    code, _, errors = attempt(*arguments, "minutes=0.1")
    assert code == USER_ERROR
    found = re.search(
        r"minutes is 0.1; the smallest useful experiment \(4 trainings of 50 steps, 2 starts "
        r"each\) needs (\d+) minutes on this machine",
        errors,
    )
    assert found is not None, errors
    code, table, errors = attempt(*arguments, f"minutes={int(found[1]) + 1}")
    assert code == 0, errors
    assert "rope - cayley" in table
    steps = json.loads((tmp_path / "out" / "budget.json").read_text())["steps"]
    assert steps >= 50
    lengths = [
        sum('"loss"' in line for line in file.read_text().splitlines())
        for file in (tmp_path / "out" / "recipes").rglob("history.jsonl")
    ]
    assert lengths == [steps] * 4
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("budget.json", "demonstrations", "experiment.json", "recipes"),
        *("report.html", "summary.json"),
    }


@pytest.mark.stress
def test_a_stopped_experiment_continues(tmp_path: Path) -> None:
    """From the demonstrations to the page, with Ctrl-C in the middle."""
    arguments = small_arguments("trainer.steps=2")
    code = "from stringline.sim.experiment import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".src"), "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "out/recipes/cayley/0" / FINISHED).exists() and first.poll() is None:
        time.sleep(0.1)
    first.send_signal(signal.SIGINT)
    shown_text = first.communicate(timeout=120)[1]
    assert first.returncode == INTERRUPTED, shown_text
    assert "Run the same command to continue." in shown_text
    again = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    assert "rope - cayley" in again.stdout
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [len(row["trainings"]) for row in summary["recipes"]] == [2, 2]
    assert len(list((tmp_path / "out").rglob("evaluation/report.html"))) == 4
