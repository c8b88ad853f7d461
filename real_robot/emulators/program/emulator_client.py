"""An emulator as its users see it: start it, look through its cameras, drive its clock, cause its faults, end it."""

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import stringline
from stringline.datasets.contract.contract import Array, Camera
from stringline.real_robot.ipc.array_messages import Header, Json, receive, send

_START_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 10.0


class EmulatorError(RuntimeError):
    """The emulator could not do what it was asked, or is gone."""


class Emulator:
    """An emulator in a process of its own; a context manager that ends it.

    Args:
        arguments: Of the program, without its name.

    Attributes:
        PROGRAM: The module that runs.
        ports: Serial port by arm, once it is started.
        images: Address where camera processes find their images, once it is started; empty if it
            has none.
    """

    PROGRAM: ClassVar[str] = "stringline.real_robot.emulators.dynamixel.aloha"

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = list(arguments)
        self.ports: dict[str, str] = {}
        self.images = ""
        self._process: subprocess.Popen[str] | None = None
        self._socket: socket.socket | None = None

    @classmethod
    def of_task(
        cls,
        task: str,
        *,
        lock_step: bool,
        cameras: Sequence[str] = (),
        image_size: int = 128,
        device_hz: float = 100.0,
        frame_hz: float = 12.5,
        time_limit_s: float = 15.0,
        robot_model: str = "primitives",
        capture: Path | None = None,
    ) -> Self:
        """Returns the emulator of a MuJoCo world, not started yet; see the program's `--help` for the arguments."""
        arguments = [
            "--task",
            task,
            "--cameras",
            ",".join(cameras),
            "--image-size",
            str(image_size),
            "--device-hz",
            str(device_hz),
        ]
        arguments += [
            "--frame-hz",
            str(frame_hz),
            "--time-limit",
            str(time_limit_s),
            "--robot-model",
            robot_model,
        ]
        arguments += ["--lock-step"] * lock_step + (["--capture", str(capture)] if capture else [])
        return cls(arguments)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts the program and connects to it.

        Raises:
            EmulatorError: It does not come up.
        """
        command = [sys.executable, "-m", self.PROGRAM, *self._arguments]
        # The package may run from a checkout that is not installed.
        where = os.pathsep.join(
            [str(Path(stringline.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        )
        # In a session of its own, so that a Ctrl-C reaches only the program that knows what to do
        # with it. Nothing is written to its input; its end tells the program that this process is
        # gone.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": where.rstrip(os.pathsep)},
        )
        assert self._process.stdout is not None
        ready = select.select([self._process.stdout], [], [], _START_TIMEOUT_S)[0]
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self.close()
            raise EmulatorError(f"The emulator did not start: {' '.join(command)}")
        found = json.loads(line)
        self.ports = found["ports"]
        self.images = found.get("images", "")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_ANSWER_TIMEOUT_S)
        self._socket.connect(found["socket"])

    def close(self) -> None:
        """Ends the program."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                self._process.wait(_END_TIMEOUT_S if self.ports else 0.1)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    @property
    def pid(self) -> int | None:
        """Number of the process, once it is started."""
        return None if self._process is None else self._process.pid

    def begin(self, seed: int, options: Mapping[str, float] | None = None) -> None:
        """Begins the episode of that seed."""
        self._ask({"operation": "begin", "seed": seed, "options": dict(options or {})})

    def advance(self, writes: Mapping[str, int]) -> Header:
        """In lock-step: goes on by one period once so many goals of this episode have reached each arm; returns the outcome."""
        counts: dict[str, Json] = dict(writes)
        return self._ask({"operation": "advance", "writes": counts})[0]

    def outcome(self) -> Header:
        """Returns `success`, `stage`, `stage_name`, `time` and `expired` of the episode."""
        return self._ask({"operation": "outcome"})[0]

    def frames(self) -> dict[str, Array]:
        """In lock-step: returns the latest images with intrinsics and capture times, by the keys of the contract."""
        return self._ask({"operation": "frames"})[1]

    def fault(self, arm: str, kind: str, servo: int = 0) -> None:
        """Begins or ends a fault; see `EmulatedLine.fault`."""
        self._ask({"operation": "fault", "arm": arm, "kind": kind, "servo": servo})

    def _ask(self, header: Header) -> tuple[Header, dict[str, Array]]:
        if self._socket is None:
            raise EmulatorError("The emulator is not running.")
        try:
            send(self._socket, header)
            answer, arrays = receive(self._socket)
        except OSError as error:
            raise EmulatorError(f"The emulator is gone: {error}.") from error
        if "error" in answer:
            raise EmulatorError(str(answer["error"]))
        return answer, arrays


def square_size(cameras: Sequence[Camera]) -> int:
    """Returns the rows and columns that emulated images need for cameras as a policy wants them.

    Raises:
        ValueError: They are not square, or of several sizes.
    """
    sizes = {(camera.height, camera.width) for camera in cameras} or {(128, 128)}
    height, width = next(iter(sizes))
    if len(sizes) > 1 or height != width:
        raise ValueError(
            f"The policy sees images of {sorted(sizes)} pixels; emulated cameras draw square ones "
            f"of one size."
        )
    return height
