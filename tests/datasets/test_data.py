"""The command `stringline-data`: verbs have help texts, and user errors are one line."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.datasets.conftest import DataCommand

from stringline.datasets.data import TASKS, overview
from stringline.datasets.store.store import EpisodeStore


def test_the_overview_has_a_line_for_each_verb() -> None:
    lines = [line.split() for line in overview().splitlines() if line.startswith("  ")]
    assert [line[0] for line in lines] == list(TASKS)
    assert all(len(line) > 3 and line[-1].endswith(".") for line in lines)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_is_the_overview(arguments: list[str], data_command: DataCommand) -> None:
    assert data_command(*arguments)[:2] == (0, overview())


@pytest.mark.parametrize("verb", TASKS)
def test_each_verb_has_a_function_and_a_help_text(verb: str, data_command: DataCommand) -> None:
    assert callable(pkgutil.resolve_name(TASKS[verb]))
    status, text, _ = data_command(verb, "--help")
    assert status == 0
    assert text.startswith(f"stringline-data {verb} [")
    assert f"  stringline-data {verb} " in text


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["verifi", "store=x"], "There is no verb 'verifi'. Did you mean 'verify'"),
        (["verify", "sotre=x"], "There is no option 'sotre'. Did you mean 'store'"),
        (["verify"], "stringline-data verify store="),
        (["verify", "store=nowhere"], "There is no episode store at nowhere"),
    ],
)
def test_a_mistake_is_answered_in_one_line(
    arguments: list[str], answer: str, data_command: DataCommand
) -> None:
    status, _, error = data_command(*arguments)
    assert status == 2
    assert answer in error
    assert error.count("\n") == 1


def test_the_command_needs_no_torch(tmp_path: Path) -> None:
    EpisodeStore.create(tmp_path / "store")
    code = (
        "import sys, stringline.datasets.data as data; data.main(); "
        "heavy = {'torch', 'mujoco', 'zarr', 'matplotlib', 'h5py', 'pyarrow'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    command = [sys.executable, "-c", code, "verify", f"store={tmp_path / 'store'}"]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(root / ".src")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("All 0 episodes in ")
