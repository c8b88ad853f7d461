"""A time budget: counts from speeds, the same ones in a continued run, and budgets too short."""

import json
import math
from pathlib import Path

import pytest
from tests.real_robot.chains import chain

from stringline.datasets.store.store import EpisodeStore
from stringline.real_robot.showcase.budget import BEFORE_TRIALS, Budget
from stringline.sim.rollout.jobs import Speed, measure

USUAL = {"expert_trials": 100, "episodes": 100, "steps": 1550, "trials": 50, "emulated_trials": 10}
SPEEDS = {
    "expert_trials": Speed(3.0, 0.2),
    "episodes": Speed(3.0, 0.5),
    "steps": Speed(5.0, 0.4),
    "trials": Speed(3.0, 0.7),
    "emulated_trials": Speed(4.0, 2.7),
}
NONE: dict[str, int] = {}


def budget(folder: Path, minutes: float, usual: dict[str, int] | None = None) -> Budget:
    made = Budget(folder / "budget.json", minutes, usual or USUAL)
    for name, speed in SPEEDS.items():
        made.speed(name, lambda speed=speed: speed)
    return made


def seconds(counts: dict[str, int], names: tuple[str, ...]) -> float:
    return sum(SPEEDS[name].start_s + SPEEDS[name].each_s * counts[name] for name in names)


@pytest.mark.parametrize("minutes", [3.0, 14.0, 120.0])
def test_counts_fill_the_time_in_the_proportions_of_the_configuration(
    minutes: float, tmp_path: Path
) -> None:
    made = budget(tmp_path, minutes)
    made.plan_training(20.0, NONE)
    first = seconds(made.counts, ("expert_trials", "episodes", "steps"))
    assert first <= 60 * minutes * BEFORE_TRIALS - 20.0
    assert first >= 0.97 * (60 * minutes * BEFORE_TRIALS - 20.0)
    assert made.counts["steps"] == pytest.approx(15.5 * made.counts["episodes"], rel=0.05)
    made.plan_trials(20.0 + first, NONE)
    last = seconds(made.counts, ("trials", "emulated_trials"))
    assert 20.0 + first + last <= 60 * minutes
    assert made.counts["trials"] >= made.counts["emulated_trials"] >= 2
    stored = json.loads((tmp_path / "budget.json").read_text())
    assert stored["counts"] == made.counts
    assert stored["minutes"] == minutes


def test_a_continued_run_has_the_same_counts(tmp_path: Path) -> None:
    first = budget(tmp_path, 10.0)
    first.plan_training(20.0, NONE)
    again = budget(tmp_path, 10.0)
    again.plan_training(300.0, NONE)
    assert again.counts == first.counts
    with pytest.raises(ValueError, match=r"holds a run with minutes=10 and the proportions"):
        budget(tmp_path, 11.0)
    with pytest.raises(ValueError, match=r"Choose another output"):
        budget(tmp_path, 10.0, USUAL | {"episodes": 50})


def test_finished_work_costs_no_time(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    fresh = budget(tmp_path, 10.0)
    begun = budget(tmp_path / "other", 10.0)
    fresh.plan_training(20.0, NONE)
    begun.plan_training(20.0, {"expert_trials": 40, "episodes": 40})
    assert begun.counts["steps"] > fresh.counts["steps"]


def test_a_budget_that_is_too_short_says_how_long_it_must_be(tmp_path: Path) -> None:
    made = budget(tmp_path, 0.5)
    with pytest.raises(ValueError, match=r"minutes is 0.5; the smallest useful run \(4 ") as error:
        made.plan_training(12.0, NONE)
    assert "4 trials of the expert, 10 demonstrations, 50 steps" in str(error.value)
    needed = float(str(error.value).partition("needs ")[2].partition(" ")[0])
    smallest = seconds({"expert_trials": 4, "episodes": 10, "steps": 50}, tuple(SPEEDS)[:3])
    assert needed == math.ceil((12.0 + smallest) / BEFORE_TRIALS / 6) / 10
    # The speeds are known, so the same time is enough now.
    longer = Budget(tmp_path / "budget.json", needed, USUAL)
    longer.plan_training(12.0, NONE)
    assert longer.counts["episodes"] >= 10


def test_an_impossible_budget_is_refused_before_any_measurement(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"minutes is 0.1; .* needs more than 0.2 minutes"):
        Budget(tmp_path / "budget.json", 0.1, USUAL).check(0.0, NONE)
    made = Budget(tmp_path / "budget.json", 1.0, USUAL)
    made.check(0.0, NONE)
    made.speed("steps", lambda: Speed(5.0, 1.0))
    with pytest.raises(ValueError, match=r"minutes is 1; .* needs more than 1.3 minutes"):
        made.check(0.0, NONE)


def test_speeds_are_measured_once_by_work_that_counts(tmp_path: Path) -> None:
    targets: list[int] = []
    speed = measure(targets.append, lambda: targets[-1] if targets else 0, 2)
    assert targets == [2, 6]
    assert speed.each_s >= 0
    made = budget(tmp_path, 10.0)
    made.speed("episodes", lambda: pytest.fail("It was measured before."))
    assert made.speeds["episodes"] == SPEEDS["episodes"]


@pytest.mark.slow
def test_a_chain_with_too_few_minutes_can_go_on_without_a_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chain of one KUKA arm, on a machine whose trainings take a minute to start."""
    monkeypatch.setattr(Speed, "of_training", lambda seconds, ends: Speed(60.0, 1.0))
    output = tmp_path / "demo"
    changes = ("task=kuka_pick", "task.time_limit_s=6", "task.frame_hz=5", "lost_grasps=0")
    with pytest.raises(
        ValueError, match=r"useful run \(1 trials of the expert, 2 demo.* more than"
    ):
        chain(output, *changes, "minutes=0.01").run()
    assert not (output / "demonstrations").exists()
    with pytest.raises(ValueError, match=r"useful run \(1 trials of the expert, 2 demo"):
        chain(output, *changes, "minutes=0.2").run()
    measured = json.loads((output / "budget.json").read_text())
    assert set(measured["speeds"]) == {"steps"}
    assert measured["counts"] == {}
    assert len(EpisodeStore.open(output / "demonstrations")) == 1
    assert not (output / "training").exists()
    chain(output, *changes).run()
    summary = json.loads((output / "summary.json").read_text())
    assert summary["seeds"]["demonstrations"] == [10_000, 10_001]
    page = (output / "report.html").read_text()
    assert "an emulated KUKA arm over FRI" in page
    assert "stringline-deploy checkpoint=" in page
    assert "robot=kuka_emulated" in page


@pytest.mark.stress
def test_a_chain_takes_its_minutes_and_continues_with_its_counts(tmp_path: Path) -> None:
    output = tmp_path / "demo"
    changes = ("task=kuka_pick", "task.time_limit_s=6", "minutes=3")
    chain(output, *changes).run()
    spent = json.loads((output / "seconds.json").read_text())
    assert sum(spent.values()) < 3 * 60 * 1.25
    stored = json.loads((output / "budget.json").read_text())
    summary = json.loads((output / "summary.json").read_text())
    assert summary["trainer"]["steps"] == stored["counts"]["steps"] > 3
    assert summary["direct"]["trials"] == stored["counts"]["trials"]
    assert summary["emulated"]["trials"] == stored["counts"]["emulated_trials"]
    kept = {name: (output / name).read_bytes() for name in ("budget.json", "direct.jsonl")}
    chain(output, *changes).run()
    assert {name: (output / name).read_bytes() for name in kept} == kept
    with pytest.raises(ValueError, match="holds a run with minutes=3 and the proportions"):
        chain(output, *changes, "trials=2").run()
