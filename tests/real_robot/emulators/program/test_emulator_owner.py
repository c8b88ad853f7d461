"""An emulator ends with the process that started it, even before that has connected."""

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import stringline
from stringline.real_robot.emulators import emulate
from stringline.real_robot.emulators.program.emulator_server import (
    ControlSocket,
    is_pipe,
    local_sockets,
)
from stringline.real_robot.ipc.array_messages import receive, send

DIES_BEFORE_IT_CONNECTS = """
import os, signal, socket
from stringline.real_robot.emulators.program.emulator_client import Emulator

emulator = Emulator(plant="first_order", lock_step=True)

def die(*_):
    print(emulator.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

socket.socket.connect = die
emulator.start()
"""


def test_a_program_ends_without_a_trace_if_its_owner_died_before_connecting() -> None:
    with tempfile.TemporaryDirectory() as folder:  # Paths of sockets must be short.
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(stringline.__file__).parents[1]),
            "TMPDIR": folder,
        }
        # Both write their errors to one pipe, so this waits for the emulator too.
        owner = subprocess.run(
            [sys.executable, "-c", DIES_BEFORE_IT_CONNECTS],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
            check=False,
        )
        assert owner.returncode == -signal.SIGKILL, owner.stderr
        assert (
            "The process that started the emulator has ended without connecting to it."
            in owner.stderr
        )
        assert "Traceback" not in owner.stderr
        assert list(Path(folder).iterdir()) == []
    status = Path(f"/proc/{int(owner.stdout)}/stat")
    deadline = time.monotonic() + 20  # The system may take a moment to remove the process.
    while is_running(status) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(status)


def is_running(status: Path) -> bool:
    """Whether the process of a status file runs; one that ended may wait for its parent."""
    try:
        return not status.read_text().rpartition(") ")[2].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with local_sockets("control") as (one,):
        yield one


def is_ready(control: ControlSocket) -> bool:
    return bool(select.select([control], [], [], 0)[0])


def test_the_end_of_the_input_counts_until_the_client_connects(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    reading, writing = os.pipe()
    control = ControlSocket(listener, lambda header: ({"reply": header["text"]}, {}), owner=reading)
    assert not is_ready(control)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as client:
        client.connect(listener.getsockname())
        assert is_ready(control)
        control.serve()
        os.close(writing)
        assert not is_ready(control)
        send(client, {"text": "hello"})
        control.serve()
        assert receive(client)[0] == {"reply": "hello"}
        assert not control.left
    with caplog.at_level(logging.WARNING):
        control.serve()
    assert control.left
    assert caplog.text == ""  # The end of a client that has connected and left does not count.
    os.close(reading)


def test_the_client_comes_first_if_both_happen_at_once(listener: socket.socket) -> None:
    """It may have sent a request before it died."""
    reading, writing = os.pipe()
    control = ControlSocket(listener, lambda header: ({}, {}), owner=reading)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as client:
        client.connect(listener.getsockname())
        os.close(writing)
        control.serve()
        assert not control.left
    control.serve()
    assert control.left
    os.close(reading)


def test_a_task_of_other_arms_is_refused_in_a_line() -> None:
    with pytest.raises(
        SystemExit, match=r"^kuka_pick is for iiwa14; these arms are aloha\. Choose its robot=\.$"
    ):
        emulate.main(["dynamixel", "--task", "kuka_pick", "--cameras", "", "--lock-step"])


def test_inputs_other_than_pipes_are_ignored(listener: socket.socket) -> None:
    with Path(os.devnull).open("rb") as nothing:
        assert not is_pipe(nothing.fileno())
        assert not is_ready(
            ControlSocket(listener, lambda header: ({}, {}), owner=nothing.fileno())
        )
    assert not is_pipe(10**6)
