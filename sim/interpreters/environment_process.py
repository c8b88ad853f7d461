"""The process of an environment in another interpreter: started, asked, watched and ended.

The process runs `environment_server.py`. It has one end of a pair of sockets and a file in memory
for images, so there is neither a port nor a name that others could use. It does not see the Python
packages of this one. It ends with this process, also while it hangs.
"""

import mmap
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import POSITIVE, printable
from stringline.datasets.contract.contract import Array
from stringline.policies.remote.protocol import unpack
from stringline.sim.interpreters import environment_server
from stringline.sim.interpreters.environment_server import (
    FAILED,
    PROTOCOL,
    REFUSED,
    pack,
)
from stringline.sim.rollout.world_interface import WorldLostError

START_S = 300.0  # To import an environment and to build its first world, without a cache.
TRACE_S = 2.0  # To print where a process hangs, and to end.
LARGEST_MESSAGE = 64 * 2**20


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter with an environment.

    Attributes:
        python: Its program, such as `metaworld/bin/python`; if None, that of this process.
        answer_s: Longest time of an answer, s; then the environment counts as hanging.
    """

    python: str | None = None
    answer_s: float = 60.0

    def __post_init__(self) -> None:
        POSITIVE.check(answer_s=self.answer_s)

    @property
    def program(self) -> str:
        """The path of the program.

        Raises:
            ValueError: There is no such program.
        """
        if self.python is None:
            return sys.executable
        found = shutil.which(self.python)
        if found is None:
            raise ValueError(
                f"There is no Python interpreter {self.python!r}; python=PATH is the program of an "
                "environment, such as metaworld/bin/python (docs/other-environments.md)."
            )
        return str(Path(found).absolute())  # Not resolved: a virtual environment is its link.


class EnvironmentProcess:
    """A running environment.

    Args:
        task: Name of the task, for messages.
        interpreter: Where it runs.

    Attributes:
        images: The arrays of images by key, as the last `look` left them; they are views of memory
            that the next `look` changes.

    Raises:
        ValueError: The interpreter cannot run the server.
    """

    def __init__(self, task: str, interpreter: Interpreter) -> None:
        program = interpreter.program
        self._task = task
        self._interpreter = interpreter
        self.images: dict[str, Array] = {}
        self._memory = _memory_file()
        log, name = tempfile.mkstemp(prefix="stringline-environment-", suffix=".log")
        self.log = Path(name)
        self._socket, theirs = socket.socketpair()
        reading, self._lifeline = os.pipe()
        passed = (theirs.fileno(), self._memory, reading)
        self._process = subprocess.Popen(
            [program, "-u", environment_server.__file__, *map(str, passed)],
            pass_fds=passed,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        os.close(log)
        os.close(reading)
        theirs.close()
        self._closed = False
        try:
            hello = self._receive(START_S)
        except (EOFError, OSError) as error:
            raise self._refusal() from error
        if hello.get("protocol") != PROTOCOL:
            self.close()
            raise ValueError(
                f"{program} answers with the protocol {hello.get('protocol')!r}; this "
                f"version needs {PROTOCOL}."
            )

    @property
    def alive(self) -> bool:
        """Whether requests are possible."""
        return not self._closed

    def open(self, message: dict[str, Any]) -> dict[str, Any]:
        """Opens the environment and maps its images.

        Raises:
            ValueError: The environment refuses a setting, or cannot be built.
        """
        try:
            opened = self._request({**message, "type": "open"}, START_S)
        except WorldLostError as error:
            raise ValueError(str(error)) from error
        memory = mmap.mmap(self._memory, int(opened["bytes"]))
        self.images = {
            key: np.ndarray(tuple(shape), np.dtype(dtype), buffer=memory, offset=offset)
            for key, (offset, dtype, shape) in opened["arrays"].items()
        }
        return opened

    def request(self, message: dict[str, Any]) -> dict[str, Any]:
        """Sends a message and returns its answer.

        Raises:
            WorldLostError: The environment failed, died or hangs; its process has ended.
            ValueError: It refuses the message.
        """
        return self._request(message, self._interpreter.answer_s)

    def lose(self, what: str) -> WorldLostError:
        """Ends the process at once; returns the error, which names the file of its output."""
        self._end()
        return WorldLostError(f"The environment of {self._task} {what}. Its output: {self.log}")

    def close(self) -> None:
        """Ends the process; its output is not kept."""
        if not self._closed:
            self._end()
            self.log.unlink(missing_ok=True)

    def _request(self, message: dict[str, Any], within_s: float) -> dict[str, Any]:
        try:
            data = pack(message)
            self._socket.settimeout(within_s)
            self._socket.sendall(len(data).to_bytes(4, "big") + data)
            answer = self._receive(within_s)
        except TimeoutError as error:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGUSR1)  # It prints where it hangs.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(TRACE_S)
            raise self.lose(f"did not answer within {within_s:g} s") from error
        except (EOFError, OSError) as error:
            raise self.lose(self._death()) from error
        if answer.get("type") != "error":
            return answer
        text = printable(str(answer.get("message")))
        if answer.get("kind") == REFUSED:
            self.close()
            raise ValueError(f"{self._task}: {text}")
        assert answer.get("kind") == FAILED
        raise self.lose(f"failed: {text.rstrip('.')}")

    def _receive(self, within_s: float) -> dict[str, Any]:
        self._socket.settimeout(within_s)
        size = int.from_bytes(self._read(4), "big")
        if size > LARGEST_MESSAGE:
            raise EOFError
        try:
            answer = unpack(self._read(size))
        except ValueError as error:
            raise self.lose(f"sent an invalid message: {error}") from error
        if not isinstance(answer, dict):
            raise self.lose(f"answered with {type(answer).__name__}; expected: a map")
        return answer

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def _death(self) -> str:
        try:
            code = self._process.wait(TRACE_S)
        except subprocess.TimeoutExpired:
            return "ended its connection"
        ended = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        return f"ended with {ended}"

    def _refusal(self) -> ValueError:
        """Returns the error of a process that ended before it could say why."""
        self._end()
        lines = self.log.read_text(errors="replace").strip().splitlines() or ["without a message"]
        self.log.unlink(missing_ok=True)
        program = self._interpreter.program
        missing = re.search(r"No module named '(\w+)'", lines[-1])
        way_out = f" Run: {program} -m pip install {missing[1]}" if missing else ""
        return ValueError(f"{program} cannot run {self._task}: {printable(lines[-1])}.{way_out}")

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._socket.close()
        os.close(self._lifeline)  # The process ends, whatever it does.
        try:
            self._process.wait(TRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._memory)


def _memory_file() -> int:
    """Returns the descriptor of a file in memory without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stringline-images")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _environment() -> dict[str, str]:
    """Returns the variables of the process: without the packages of this interpreter."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {"MUJOCO_GL": "egl", **kept}
