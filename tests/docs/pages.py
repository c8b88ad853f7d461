"""Pages of the documentation as programs: their files are written and their commands are run.

A page has three kinds of fenced blocks. A `python` or `yaml` block whose first line is a comment
with a path is a file; other `python` blocks form one program. An `sh` block is a list of commands.
"""

import os
import re
import runpy
import shlex
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```(python|yaml|sh)\n(.*?)```", re.DOTALL)
FILE = re.compile(r"# ([\w/.-]+\.(?:py|yaml))\n")
LOCAL_PATH = "PYTHONPATH=."

SMALLER: Mapping[str, Sequence[str]] = {
    "stringline-collect": ["episodes=1", "workers=1", "task.image_size=32", "task.frame_hz=5"],
    "stringline-train": [
        "trainer.steps=2",
        "trainer.batch_size=4",
        "trainer.compile=false",
        "validation_windows=0",
    ],
    "stringline-eval": ["seeds=1", "workers=1", "videos=false", "task.time_limit_s=0.6"],
    "stringline-deploy": ["task.time_limit_s=0.4"],
}
"""Arguments by command that make it fast."""

NOT_DONE = 3


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Yields each block of `docs/<page>`: the path of a file and its text, or kind and text."""
    for kind, text in BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        file = FILE.match(text) if kind != "sh" else None
        yield (kind if file is None else file[1], text)


def commands(page: str) -> list[str]:
    """Returns the lines of all `sh` blocks."""
    return [line for kind, text in blocks(page) if kind == "sh" for line in text.splitlines()]


def write_files(page: str, folder: Path) -> None:
    """Writes the files of a page."""
    for name, text in blocks(page):
        if name not in ("sh", "python"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)


def run(line: str, smaller: Mapping[str, Sequence[str]] = SMALLER) -> None:
    """Runs a command of a page in this process, with smaller numbers."""
    words = [word for word in shlex.split(line) if word != LOCAL_PATH]
    if words[0] == "python":
        sys.argv = words[1:]
        runpy.run_path(words[1], run_name="__main__")
        return
    sys.argv = [*words, *smaller.get(words[0], [])]
    import_module(module_of(words[0])).main()


def start(line: str, folder: Path, *more: str) -> subprocess.Popen[str]:
    """Starts a command of a page in a process of its own, with smaller numbers."""
    words = [word for word in shlex.split(line) if word != LOCAL_PATH]
    path = [str(folder)] if LOCAL_PATH in line else []
    code = f"import {module_of(words[0])} as command; command.main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words[1:], *SMALLER.get(words[0], []), *more],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*path, str(ROOT / ".src")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_apart(line: str, folder: Path) -> str:
    """Runs a command of a page in a process of its own and returns its output."""
    with start(line, folder) as process:
        output, _ = process.communicate(timeout=300)
    # The small numbers suffice for no success on emulated arms.
    allowed = (0, NOT_DONE) if "stringline-deploy" in line else (0,)
    assert process.returncode in allowed, output
    return output


def free_port() -> int:
    """Returns a free port of this machine."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[str], seconds: float = 120.0) -> None:
    """Waits until a process listens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(f"No process listens on port {port}.")


def module_of(command: str) -> str:
    """Returns the module of a console script."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    return str(scripts[command].partition(":")[0])
