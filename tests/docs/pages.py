"""The code blocks and commands of the documentation, read from its pages and run as a reader would.

A fenced `sh` block contains commands, one a line. A fenced block with `title="FILE"` is a file that
the reader writes. Other fenced `python` blocks are run in order, with the names of those before.
Blocks of other languages are not run, and neither are indented commands.
"""

import re
import runpy
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Self

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS: Mapping[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "scripts"
]
TASK_NOT_DONE = 3  # The exit code of stringline-deploy after an episode without success.
READY = b"ws://"  # A server prints its address when it answers.
READY_S = 120.0
INSTALLS = ("pip",)  # Tests have no network; what the pages install is installed.

FENCE = re.compile(r"```(\w*)(.*)")
TITLE = re.compile(r'title="([^"]+)"')
INDENTED = re.compile(r" {4,}((?:[A-Z_]+=\S+ )*stringline-\w+(?: .*)?)")
ASSIGNMENT = re.compile(r"([A-Z_]+)=(.*)")

Lines = Iterator[tuple[int, str]]


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        language: The word behind the fence, or `indented` for an indented command.
        title: The file that the block contains; empty: no file.
        line: The number of its first line in the page.
    """

    language: str
    title: str
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """A command: its words, behind assignments of environment variables."""

    environment: Mapping[str, str]
    words: tuple[str, ...]
    background: bool
    line: int

    @classmethod
    def of(cls, text: str, line: int) -> Self:
        """Reads a command."""
        words = shlex.split(text, comments=True)
        background = words[-1:] == ["&"]
        words = words[:-1] if background else words
        environment = {}
        while words and (match := ASSIGNMENT.fullmatch(words[0])):
            environment[match[1]] = match[2]
            words = words[1:]
        return cls(environment, tuple(words), background, line)


def blocks(page: Path) -> list[Block]:
    """Returns the code blocks of a page in their order."""
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), start=1))
    return list(_blocks(lines))


def _blocks(lines: Lines) -> Iterator[Block]:
    for number, line in lines:
        if match := FENCE.fullmatch(line):
            title = TITLE.search(match[2])
            text = "".join(f"{inner}\n" for inner in _until_fence(lines))
            yield Block(match[1], title[1] if title else "", text, number + 1)
        elif match := INDENTED.fullmatch(line):
            yield Block("indented", "", _with_continuation(match[1], lines), number)


def _until_fence(lines: Lines) -> Iterator[str]:
    for _, line in lines:
        if line.startswith("```"):
            return
        yield line


def _with_continuation(text: str, lines: Lines) -> str:
    while text.endswith("\\"):
        text = f"{text[:-1]} {next(lines)[1]}"
    return text


def commands(block: Block) -> list[Command]:
    """Returns the commands of a block."""
    lines = iter(enumerate(block.text.splitlines(), start=block.line))
    texts = [(number, _with_continuation(line, lines)) for number, line in lines]
    read = [Command.of(text, number) for number, text in texts]
    return [command for command in read if command.words]


class Reader:
    """Follows a page in an empty folder, with overrides that make its commands small.

    Args:
        folder: The folder in which files are written and commands are run.
        smaller: By console script: overrides behind the words of the page.
        replaced: Text in files and snippets that is replaced, such as numbers of episodes.
    """

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        smaller: Mapping[str, Sequence[str]],
        replaced: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._smaller = smaller
        self._replaced = replaced or {}
        self._monkeypatch = monkeypatch
        self._servers: list[subprocess.Popen[bytes]] = []
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setattr(sys, "argv", sys.argv)

    def run(self, page: Path) -> None:
        """Writes the files of a page, and runs its commands and snippets, in order."""
        names: dict[str, Any] = {}
        try:
            for block in blocks(page):
                if block.title:
                    self.write(block)
                elif block.language == "python":
                    exec(compile(self._small(block.text), f"{page}:{block.line}", "exec"), names)
                elif block.language == "sh":
                    for command in commands(block):
                        self.execute(command)
        finally:
            for server in self._servers:
                server.terminate()
                server.wait()
            self._forget_modules()

    def write(self, block: Block) -> None:
        """Writes the file of a block."""
        path = self._folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._small(block.text), encoding="utf-8")

    def _small(self, text: str) -> str:
        for found, replacement in self._replaced.items():
            text = text.replace(found, replacement)
        return text

    def execute(self, command: Command) -> None:
        """Runs a command."""
        program = command.words[0]
        words = [*command.words, *self._smaller.get(program, ())]
        with self._monkeypatch.context() as patch:
            for name, value in command.environment.items():
                patch.setenv(name, value)
            if command.background:
                self._servers.append(self._served(words))
            elif program in SCRIPTS:
                patch.setattr(sys, "argv", words)
                _call(program)
            elif program == "python" and words[1].endswith(".py"):
                patch.setattr(sys, "argv", words[1:])
                runpy.run_path(words[1], run_name="__main__")
            elif program not in INSTALLS:
                subprocess.run(words, check=True)

    def _served(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts a server in the background and waits for its address."""
        module, _, function = SCRIPTS[words[0]].partition(":")
        code = f"import sys; from {module} import {function}; sys.argv[0] = {words[0]!r}; "
        log = self._folder / f"{words[0]}.log"
        with log.open("wb") as output:
            server = subprocess.Popen(
                [sys.executable, "-c", f"{code}{function}()", *words[1:]],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        end = time.monotonic() + READY_S
        while READY not in log.read_bytes():
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        return server

    def _forget_modules(self) -> None:
        """Removes the modules of this folder, whose names the next page may use."""
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file and Path(file).is_relative_to(self._folder):
                del sys.modules[name]


def _call(script: str) -> None:
    """Runs a console script in this process."""
    try:
        resolve_name(SCRIPTS[script])()
    except SystemExit as end:
        if end.code not in (None, 0, TASK_NOT_DONE):
            raise
