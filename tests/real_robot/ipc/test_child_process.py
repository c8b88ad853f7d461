"""Child processes: each ends in time, by itself or by force, and with its owner."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import stringline
from stringline.real_robot.ipc.child_process import ChildProcess

STOP = b"stop"
BOUND_S = 20.0

# An owner that starts a child, prints the child's number and sleeps.
OWNER = """
import sys, time
sys.path[:0] = {paths!r}
from tests.real_robot.ipc.test_child_process import child_of
if __name__ == "__main__":
    child = child_of()
    child.start()
    child.channel.recv_bytes()
    print(child.pid, flush=True)
    time.sleep(60)
"""


def obedient(answer: bytes, pipe: Connection) -> None:
    pipe.send_bytes(answer)
    try:
        while pipe.recv_bytes() != STOP:
            pass
    except EOFError:
        return


def deaf(pipe: Connection) -> None:
    pipe.send_bytes(b"up")
    time.sleep(60)


def failing(pipe: Connection) -> None:
    os._exit(3)


def until_closed(other: socket.socket) -> None:
    other.sendall(b"up")
    assert other.recv(1) == b""


def child_of(stop: bytes | None = STOP) -> ChildProcess[Connection]:
    return ChildProcess(
        obedient,
        (b"up",),
        Pipe(),
        name="obedient",
        end_timeout_s=BOUND_S,
        stop=None if stop is None else lambda pipe: pipe.send_bytes(stop),
    )


@pytest.mark.parametrize("stop", [STOP, None])
def test_a_child_ends_at_the_message_or_where_there_is_none_at_the_closed_channel(
    stop: bytes | None,
) -> None:
    child = child_of(stop)
    assert child.pid is None
    assert not child.alive
    child.start()
    assert child.channel.recv_bytes() == b"up"
    assert child.alive
    began = time.monotonic()
    assert child.end()
    assert time.monotonic() - began < BOUND_S
    assert not child.alive
    assert child.exit_code(0.0) == 0
    assert child.channel.closed
    assert child.end()  # Once more is harmless.


def test_a_child_that_was_never_started_ends_too() -> None:
    child = child_of()
    assert child.end()
    assert child.channel.closed


def test_a_child_that_ignores_the_message_is_killed_within_its_bound() -> None:
    child = ChildProcess(
        deaf,
        (),
        Pipe(),
        name="deaf",
        end_timeout_s=0.3,
        stop=lambda pipe: pipe.send_bytes(STOP),
    )
    child.start()
    assert child.channel.recv_bytes() == b"up"
    began = time.monotonic()
    assert not child.end()
    assert 0.3 <= time.monotonic() - began < 10.0
    assert child.exit_code(0.0) == -signal.SIGKILL


def test_the_end_of_a_child_is_noticed() -> None:
    child = ChildProcess(failing, (), Pipe(), name="failing", end_timeout_s=BOUND_S)
    child.start()
    with pytest.raises(EOFError):
        child.channel.recv_bytes()
    assert child.exit_code(BOUND_S) == 3
    assert not child.alive
    assert child.end()


def test_a_socket_serves_as_well_as_a_pipe() -> None:
    child = ChildProcess(
        until_closed, (), socket.socketpair(), name="socket", end_timeout_s=BOUND_S
    )
    child.start()
    assert child.channel.recv(2) == b"up"
    assert child.end()
    assert child.exit_code(0.0) == 0


def test_a_handle_that_is_dropped_ends_its_child() -> None:
    child = child_of()
    child.start()
    child.channel.recv_bytes()
    assert child.pid is not None
    gone = os.pidfd_open(child.pid)
    del child
    assert select.select([gone], [], [], BOUND_S)[0]
    os.close(gone)


def test_a_child_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "owner.py"
    packages = Path(stringline.__file__).parents[1]
    paths = [str(packages), str(Path(__file__).parents[3])]
    program.write_text(OWNER.format(paths=paths))
    owner = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        gone = os.pidfd_open(int(owner.stdout.readline()))
        assert not select.select([gone], [], [], 0.2)[0]
        owner.kill()
        assert select.select([gone], [], [], BOUND_S)[0]
        os.close(gone)
