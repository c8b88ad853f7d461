"""Suites list tasks and seeds; their errors appear before the first episode."""

from pathlib import Path
from typing import Any

import pytest

from stringline.datasets.command.choices import CONFIGS, completed
from stringline.sim.evaluation.suites import Suite, SuiteEntry
from stringline.sim.tasks.task_registry import TASKS, make_task
from stringline.sim.worlds.task_settings import TaskSettings


def parse(*entries: dict[str, Any]) -> Suite:
    """A suite of these entries."""
    return Suite.parse("mine", {"entries": list(entries)})


def test_entries() -> None:
    """Seeds are fixed, defaults are those of the task's file, options make other entries."""
    plain, raised, listed = parse(
        {"task": "hand_over_banana", "seeds": 3},
        {
            "task": "hand_over_banana",
            "options": {"table_height": 0.02},
            "time_limit_s": 5,
            "seeds": 2,
            "first_seed": 7,
        },
        {"task": "hand_over_banana", "variation": "chosen", "seeds": [11, 5]},
    ).entries
    assert plain.seeds == (1_000_000, 1_000_001, 1_000_002)
    assert (raised.seeds, listed.seeds) == ((7, 8), (11, 5))
    names = [entry.name for entry in (plain, raised, listed)]
    assert names == [
        "hand_over_banana",
        "hand_over_banana.table_height=0.02",
        "hand_over_banana.chosen",
    ]
    task = completed(CONFIGS, "task/hand_over_banana")
    assert plain.settings() == TaskSettings.of(task)
    changed = task | {"time_limit_s": 5.0, "options": {"table_height": 0.02}}
    assert raised.settings() == TaskSettings.of(changed)
    assert len(parse({"task": "x"}).entries[0].seeds) == 50


def test_other_seeds() -> None:
    """A number of seeds replaces that of every entry, and takes the first ones of a list."""
    suite = parse({"task": "a", "seeds": 3}, {"task": "b", "seeds": [9, 4, 6]})
    assert [entry.seeds for entry in suite.with_seeds(2, None).entries] == [
        (1_000_000, 1_000_001),
        (9, 4),
    ]
    assert suite.with_seeds(None, None) == suite
    assert parse({"task": "a", "seeds": 2}).with_seeds(None, 5).entries[0].seeds == (5, 6)
    with pytest.raises(ValueError, match=r"b has a list of 3 seeds; allowed"):
        suite.with_seeds(4, None)
    with pytest.raises(ValueError, match=r"no first_seed"):
        suite.with_seeds(None, 3)


@pytest.mark.parametrize(
    ("entry", "answer"),
    [
        ("fmb_1", "entry 1 of the suite mine is 'fmb_1'; allowed: a mapping"),
        ({"seeds": 3}, "lacks its task"),
        (
            {"task": "a", "seads": 3},
            r"There is no setting of a suite's entry .* 'seads'\. Did you mean 'seeds'",
        ),
        ({"task": "a", "seeds": 0}, "seeds is 0, first_seed 1000000; allowed"),
        ({"task": "a", "seeds": [1, 1]}, r"seeds is \[1, 1\]"),
        ({"task": "a", "seeds": "all"}, "seeds is 'all'"),
        ({"task": "a", "seeds": True}, "seeds is True"),
        ({"task": "a", "first_seed": -1}, "first_seed -1"),
        ({"task": "a", "options": 3}, "options is 3; allowed: a mapping"),
        ({"task": "a", "variation": "../b"}, r"variation is '\.\./b'; allowed: letters"),
        ({"task": "a", "time_limit_s": 0}, "time_limit_s is 0; allowed: numbers above 0"),
        ({"task": "a", "frame_hz": float("inf")}, "frame_hz is inf; allowed: numbers above 0"),
    ],
)
def test_errors_name_the_wrong_value(entry: Any, answer: str) -> None:
    with pytest.raises(ValueError, match=answer):
        parse(entry)


def test_rules_are_added_to_entries_without_one() -> None:
    suite = parse(
        {"task": "a", "options": {"dim_light": 1.0}},
        {"task": "b"},
        {"task": "a", "options": {"strict": False}},
    )
    rules: dict[str, dict[str, bool]] = {"a": {"strict": True}, "b": {}}
    found = suite.with_rules(rules.__getitem__)
    assert [entry.options for entry in found.entries] == [
        {"strict": True, "dim_light": 1.0},
        {},
        {"strict": False},
    ]
    assert [entry.name for entry in found.entries] == [entry.name for entry in suite.entries]


# Its aliases stand for more than a hundred million words.
LEVELS = ", ".join(f"&l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9))
BOMB = f"entries: [{{task: [&l0 [a, b, c], {LEVELS}]}}]"


def test_errors_of_a_whole_suite(tmp_path: Path) -> None:
    """Missing, empty, of another shape, or with the same entry twice."""
    with pytest.raises(ValueError, match=r"There is no suite file '.*mine\.yaml'"):
        Suite.read(tmp_path / "mine.yaml")
    for text, answer in (
        ("entries: [", "is not valid YAML"),
        (BOMB, "mine.yaml is not valid YAML: with its aliases it has more than 1000000 entries"),
        ("entries: []", "mine has no entry"),
        ("tasks: []", "is not a mapping of 'entries' to a list"),
        (
            "entries: [{task: a}, {task: a, seeds: 3}]",
            "has a twice; give each its own `variation: NAME`",
        ),
    ):
        (tmp_path / "mine.yaml").write_text(text)
        with pytest.raises(ValueError, match=answer):
            Suite.read(tmp_path / "mine.yaml")
    with pytest.raises(
        ValueError, match=r"There is no task 'hand_over_bananna'\. Did you mean 'hand_over_banana'"
    ):
        SuiteEntry.parse({"task": "hand_over_bananna"}, "it").settings()


@pytest.mark.parametrize(
    "path", sorted((CONFIGS / "suite").glob("*.yaml")), ids=lambda path: path.stem
)
def test_shipped_suites(path: Path) -> None:
    """Their tasks exist, and demonstrations do not use their seeds."""
    for entry in Suite.read(path).entries:
        assert entry.settings().name == entry.task
        assert entry.task in TASKS
        assert min(entry.seeds) >= 1_000_000


@pytest.mark.parametrize(("name", "variation"), [("aloha12", ""), ("aloha12_home", "home")])
def test_suites_of_twelve_have_every_task_once(name: str, variation: str) -> None:
    suite = Suite.read(CONFIGS / "suite" / f"{name}.yaml")
    assert len({entry.task for entry in suite.entries}) == 12
    assert all(len(one.seeds) == 50 and one.variation == variation for one in suite.entries)
    task = make_task(suite.entries[0].task)
    task.configure(**suite.entries[0].settings().options)
    assert task.strict == bool(variation)
    assert task.starts_at_home
