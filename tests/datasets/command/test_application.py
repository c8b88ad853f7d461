"""Command lines survive a shell and Hydra; the next command is logged ready for a shell.

A command reports user errors in one line, prints its help, and leaves no files.
"""

import concurrent.futures
import errno
import logging
import multiprocessing
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import instantiate
from omegaconf import DictConfig

from stringline.datasets.command.application import STOPPED, Task, command_line, report_next, run
from stringline.datasets.contract.argument_checks import COUNT
from stringline.datasets.contract.contract import Camera


def test_a_command_line_for_a_shell() -> None:
    line = command_line("stringline-train", {"dataset.path": "runs/my runs/a", "output": None})
    assert shlex.split(line) == ["stringline-train", "dataset.path='runs/my runs/a'", "output=null"]


def test_ranges_and_lists_are_written_as_hydra_reads_them() -> None:
    options = {"dim_light": [0.0, 1.0], "looks": {"one_of": ["plain", "textured"]}}
    line = command_line("stringline-eval", {f"++{name}": value for name, value in options.items()})
    parser = OverridesParser.create()
    found = [parser.parse_override(word) for word in shlex.split(line)[1:]]
    assert {each.key_or_group: each.value() for each in found} == options


def test_the_next_command_is_logged_by_the_package(caplog: pytest.LogCaptureFixture) -> None:
    """`application.run` sends the log of this package to the terminal from INFO on."""
    with caplog.at_level(logging.INFO, logger="stringline"):
        report_next("stringline-eval", {"checkpoint": "runs/train/checkpoint"})
    (record,) = caplog.records
    assert record.getMessage() == "Next: stringline-eval checkpoint=runs/train/checkpoint"
    assert record.name.startswith("stringline.")


PRIMARY = """\
# Bakes bread.
# Example: stringline-bake flour=rye oven.minutes=50
defaults: [{flour: wheat}, {oven: stone}, {yeast: fresh}, _self_]
loaves: 2
seeds: [poppy, flax]
toppings: {}
name: ???
"""

Attempt = Callable[..., tuple[int, str, str]]


@pytest.fixture
def attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Attempt:
    """Runs a small command; returns its exit code, its output and its standard error."""
    folder = tmp_path / "configs"
    files = {
        "flour/wheat": "dark: false",
        "flour/rye": "dark: true",
        "oven/stone": "minutes: 40\ndegrees: 230",
        "yeast/fresh": "# @package dough\ngrams: 20",
        "drink/tea": "hot: true",
    }
    for name, text in {"bake": PRIMARY, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.yaml").write_text(text)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)

    def attempt(
        task: Task, *arguments: str, complete: Callable[[Sequence[str]], list[str]] = list
    ) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["/usr/bin/stringline-bake", *arguments])
        code = 0
        try:
            run("bake", task, folder=folder, complete=complete)
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return attempt


def nothing(settings: DictConfig) -> None:
    """A task that succeeds."""


def test_the_task_receives_the_options_of_the_command_line(attempt: Attempt) -> None:
    seen: list[DictConfig] = []
    code, _, _ = attempt(seen.append, "flour=rye", "oven.minutes=50", "name=dinner")
    assert code == 0
    assert seen[0].flour.dark is True
    assert seen[0].oven.minutes == 50
    assert seen[0].loaves == 2
    assert seen[0].name == "dinner"


def test_a_command_leaves_no_files(attempt: Attempt) -> None:
    folders: list[Path] = []
    attempt(lambda _: folders.append(Path.cwd()), "name=x")
    assert folders == [Path.cwd()]
    assert list(Path.cwd().iterdir()) == []


def test_a_command_completes_its_arguments(attempt: Attempt) -> None:
    seen: list[DictConfig] = []

    def complete(arguments: Sequence[str]) -> list[str]:
        COUNT.check(loaves=0 if "loaves=3" in arguments else 1)
        return [*arguments, "flour=rye"]

    assert attempt(seen.append, "name=x", complete=complete)[0] == 0
    assert (seen[0].name, seen[0].flour.dark) == ("x", True)
    code, _, error = attempt(seen.append, "name=x", "loaves=3", complete=complete)
    assert (code, len(seen)) == (2, 1)
    assert error == "stringline-bake: loaves must be an integer of at least 1 (got 0).\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("toppings.salt=2",),
        ("+toppings.salt=2",),
        ("toppings={salt: 2}",),
        ("toppings.salt=1", "toppings.salt=2"),
    ],
)
def test_an_empty_mapping_takes_entries(attempt: Attempt, arguments: tuple[str, ...]) -> None:
    seen: list[DictConfig] = []
    code, _, error = attempt(seen.append, "name=x", *arguments)
    assert code == 0, error
    assert seen[0].toppings == {"salt": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("--multirun", "loaves=1,3", "name=x"), ("loaves=1,3", "-m", "name=x")]
)
def test_each_run_of_a_multirun_has_one_value_and_hydra_stores_the_configuration(
    attempt: Attempt, arguments: tuple[str, ...]
) -> None:
    seen: list[DictConfig] = []
    code, _, error = attempt(seen.append, *arguments)
    assert code == 0, error
    assert [(settings.loaves, settings.name) for settings in seen] == [(1, "x"), (3, "x")]
    assert [path.name for path in Path.cwd().rglob("*") if path.is_file()] == ["multirun.yaml"]


@pytest.mark.parametrize(
    ("argument", "answers"),
    [
        (
            "flour=wheet",
            ["There is no flour 'wheet'. Did you mean 'wheat'", "Allowed: rye, wheat."],
        ),
        (
            "oven.minuets=3",
            [
                "There is no option 'oven.minuets'. Did you mean 'oven.minutes'",
                "oven.minutes, oven.degrees",
            ],
        ),
        ("minuets=3", ["There is no option 'minuets'. Did you mean 'oven.minutes'"]),
        ("loafs=3", ["There is no option 'loafs'. Did you mean 'loaves'"]),
        ("flower=rye", ["There is no option 'flower'. Did you mean 'flour'"]),
        ("drink=tea", ["There is no option 'drink'."]),
        ("--minutes=3", ["There is no flag '--minutes=3'", "Did you mean 'oven.minutes=3'?"]),
        ("--oven-minutes=3", ["Did you mean 'oven.minutes=3'?"]),
        ("--loafs", ["There is no flag '--loafs'", "Did you mean 'loaves=VALUE'?"]),
        ("+loaves=3", ["The option 'loaves' exists already; omit the +: loaves=..."]),
        (
            "yeast.grams=3",
            [
                "no options below 'yeast'. Did you mean 'dough.grams'? 'yeast' is a choice, "
                "yeast=NAME: fresh."
            ],
        ),
        ("loaves=[", ["Cannot parse 'loaves=['", "key=value"]),
        ("loaves=3", ["The option 'name' needs a value", "stringline-bake name="]),
        (
            "seeds=sesame",
            [
                "The option 'seeds' is 'sesame'; allowed: lists, such as [sesame]. The default is "
                "[poppy,flax]."
            ],
        ),
        ("loaves=many", ["The option 'loaves' is 'many'; allowed: numbers. The default is 2."]),
        ("loaves=nan", ["The option 'loaves' is nan; allowed: numbers."]),
        (
            "oven.minutes=true",
            ["The option 'oven.minutes' is true; allowed: numbers. The default is 40."],
        ),
        (
            "flour.dark=perhaps",
            [
                "The option 'flour.dark' is 'perhaps'; allowed: true and false. The default is "
                "false."
            ],
        ),
    ],
)
def test_unknown_choices_and_options_are_answered_with_the_nearest_names(
    attempt: Attempt, argument: str, answers: list[str]
) -> None:
    code, _, error = attempt(lambda settings: settings.name, argument)
    assert code == 2
    assert error.startswith("stringline-bake: ")
    assert error.count("\n") == 1
    assert all(answer in error for answer in answers), error


def test_valid_values_of_other_types_are_accepted(attempt: Attempt) -> None:
    """null, lists, new options, interpolations, and numbers or true in place of a word."""
    seen: list[DictConfig] = []
    arguments = (
        "loaves=null",
        "oven.minutes=[1,2]",
        "oven.degrees=${oven.minutes}",
        "+oven.door=open",
        "name=true",
    )
    assert attempt(seen.append, *arguments)[0] == 0
    assert seen[0].loaves is None
    assert seen[0].oven.degrees == [1, 2]
    assert seen[0].oven.door == "open"
    assert seen[0].name is True
    assert attempt(seen.append, "flour=rye", "flour.dark=false", "loaves=1e2", "name='7'")[0] == 0
    assert (seen[1].flour.dark, seen[1].loaves, seen[1].name) == (False, 100.0, "7")


def test_an_error_of_this_package_is_one_line_without_a_traceback(attempt: Attempt) -> None:
    code, _, error = attempt(lambda _: Camera("a", 0, 1), "name=x")
    assert code == 2
    assert error == "stringline-bake: Camera 'a' has size 0x1; both must be positive.\n"


def test_an_error_during_instantiation_by_hydra_is_one_line(attempt: Attempt) -> None:
    camera = {"_target_": "stringline.Camera", "name": "a", "height": 0, "width": 1}
    code, _, error = attempt(lambda _: instantiate(camera), "name=x")
    assert code == 2
    assert error == "stringline-bake: Camera 'a' has size 0x1; both must be positive.\n"


def test_an_error_in_a_worker_is_one_line(attempt: Attempt) -> None:
    def task(settings: DictConfig) -> None:
        with concurrent.futures.ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn")
        ) as pool:
            pool.submit(Camera, "a", 0, 1).result()

    code, _, error = attempt(task, "name=x")
    assert (code, error.count("\n")) == (2, 1), error


@pytest.mark.parametrize(
    "bug", [lambda: np.zeros(3) + np.zeros(4), lambda: float("three"), lambda: {}["key"]]
)
def test_a_program_error_shows_its_traceback(attempt: Attempt, bug: Callable[[], object]) -> None:
    code, _, error = attempt(lambda _: bug(), "name=x")
    assert code == 1
    assert "Traceback" in error


def test_debug_shows_the_traceback_of_a_user_error(attempt: Attempt) -> None:
    code, _, error = attempt(lambda settings: settings.name, "--debug")
    assert code == 2
    assert "Traceback" in error
    assert "The option 'name' needs a value" in error


def test_a_full_disk_names_the_file(attempt: Attempt) -> None:
    def task(settings: DictConfig) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/episode")

    code, _, error = attempt(task, "name=x")
    assert code == 2
    assert error.startswith("stringline-bake: The disk is full: runs/episode.")


def test_a_missing_file_is_named(attempt: Attempt) -> None:
    code, _, error = attempt(lambda _: Path("flour.bin").read_bytes(), "name=x")
    assert (code, error) == (2, "stringline-bake: No such file or directory: flour.bin.\n")


def test_out_of_memory_is_one_line(attempt: Attempt) -> None:
    def task(settings: DictConfig) -> None:
        raise MemoryError

    code, _, error = attempt(task, "name=x")
    assert code == 2
    assert "Out of memory" in error


def test_an_interruption_prints_how_to_continue(attempt: Attempt) -> None:
    def task(settings: DictConfig) -> None:
        raise KeyboardInterrupt

    code, _, error = attempt(task, "name=x")
    assert code == 130
    assert error.strip() == STOPPED


def test_help_is_the_opening_comment_the_choices_and_the_options(attempt: Attempt) -> None:
    code, text, _ = attempt(nothing, "--help", "flour=rye")
    assert code == 0
    for part in (
        "Bakes bread.\nExample: stringline-bake flour=rye",
        "[rye], wheat",
        "dark: true",
        "minutes: 40",
        "--debug",
    ):
        assert part in text


def test_a_command_keeps_the_environment_of_the_user(attempt: Attempt) -> None:
    seen: list[str | None] = []
    attempt(lambda _: seen.append(os.environ.get("HYDRA_FULL_ERROR")), "name=x")
    assert seen == [None]


@pytest.mark.parametrize(
    ("target", "nearest"),
    [
        ("stringline.DifusionPolicy", "stringline.DiffusionPolicy"),
        ("stringline.policies.diffusion.DiffusionPolicy", "stringline.DiffusionPolicy"),
        ("stringline.datasets.contract.contract.Camara", "stringline.Camera"),
    ],
)
def test_an_unknown_class_of_this_package_is_answered_with_the_nearest_public_name(
    attempt: Attempt, target: str, nearest: str
) -> None:
    code, _, error = attempt(lambda _: instantiate({"_target_": target}), "name=x")
    assert (code, error.count("\n")) == (2, 1), error
    assert f"There is no public name {target!r}. Did you mean {nearest!r}?" in error


def test_an_unknown_class_of_another_package_is_named(attempt: Attempt) -> None:
    code, _, error = attempt(lambda _: instantiate({"_target_": "my_robot.Policy"}), "name=x")
    assert (code, error.count("\n")) == (2, 1), error
    assert "my_robot.Policy" in error
    assert "No module named 'my_robot'" in error
