"""The console scripts: help and version without torch, and Ctrl-C during imports."""

import json
import os
import subprocess
import sys
from importlib.metadata import distribution, version
from pathlib import Path

import pytest

from stringline.datasets.command.entry_points import COMMANDS, INTERRUPTED, start

SCRIPTS = Path(sys.executable).parent


def run(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a new process."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=120,
        check=False,
    )


def test_each_command_has_a_console_script() -> None:
    scripts = {
        entry.name: entry.load()
        for entry in distribution("stringline").entry_points
        if entry.group == "console_scripts"
    }
    assert sorted(scripts) == [f"stringline-{name}" for name in sorted(COMMANDS)]
    assert {name: script.args for name, script in scripts.items()} == {
        f"stringline-{name}": (name,) for name in COMMANDS
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_each_script_prints_the_version_of_stringline(command: str) -> None:
    printed = subprocess.run(
        [SCRIPTS / f"stringline-{command}", "--version"], capture_output=True, text=True, check=True
    )
    assert (printed.stdout, printed.stderr) == (f"stringline {version('stringline')}\n", "")


HELP = """
import contextlib, io, json, sys
from stringline.datasets.command.entry_points import COMMANDS, start
texts = {}
for command in [*COMMANDS, "data summary"]:
    script, *verb = command.split()
    sys.argv = [f"stringline-{script}", *verb, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        start(script)
    texts[command] = printed.getvalue()
heavy = {"torch", "mujoco", "zarr", "diffusers", "open3d", "gymnasium", "matplotlib"}
print(json.dumps([texts, sorted(heavy & set(sys.modules))]))
"""


@pytest.mark.slow
def test_the_help_of_all_commands_loads_neither_torch_nor_the_simulation() -> None:
    printed = run(HELP, COLUMNS="100")
    assert printed.returncode == 0, printed.stderr
    texts, heavy = json.loads(printed.stdout)
    assert heavy == []
    for command in COMMANDS:
        assert texts[command].startswith(f"stringline-{command} ")
        assert "--help" in texts[command]
    line = next(line for line in texts["eval"].splitlines() if line.startswith("  checkpoint:"))
    assert line.partition("# ")[2].startswith("Folder, name")
    assert texts["data summary"].startswith("stringline-data summary [key=value ...]\n\nWrites an")


def test_the_help_of_a_command_line_with_the_users_own_suite_is_printed() -> None:
    printed = run(
        "import sys; from stringline.datasets.command.entry_points import evaluate; evaluate()",
        "suite=mine.yaml",
        "--help",
    )
    assert (printed.returncode, printed.stderr) == (0, "")
    assert "\nFlags:" in printed.stdout


INTERRUPT = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = ["stringline-train", "dataset.path=nowhere"]
from stringline.datasets.command.entry_points import train
train()
"""


def test_ctrl_c_during_the_imports_ends_in_one_line() -> None:
    printed = run(INTERRUPT)
    assert (printed.returncode, printed.stdout) == (INTERRUPTED, "")
    assert printed.stderr.strip() == "Stopped."


POLICY = """
import os, sys
from stringline.datasets.command.entry_points import data
sys.argv = ["stringline-data", "--version"]
data()
print(os.environ.get("OMP_WAIT_POLICY"), os.environ.get("GOMP_SPINCOUNT"))
"""


def test_threads_wait_briefly_unless_the_user_chooses_otherwise() -> None:
    assert run(POLICY).stdout.split()[-2:] == ["PASSIVE", "1000"]
    assert run(POLICY, OMP_WAIT_POLICY="ACTIVE").stdout.split()[-2:] == ["ACTIVE", "None"]
    assert run(POLICY, GOMP_SPINCOUNT="7").stdout.split()[-2:] == ["None", "7"]


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ("dataset=nowhere", "no episode store at nowhere"),
        ("dataset.windows=3", "dataset.windows needs the store of the recordings"),
    ],
)
def test_an_evaluation_is_on_recordings_if_a_store_is_given(
    option: str, error: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["stringline-eval", option])
    with pytest.raises(SystemExit) as caught:
        start("eval")
    assert caught.value.code == 2
    assert error in capsys.readouterr().err
