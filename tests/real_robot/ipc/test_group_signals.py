"""Signals of a terminal to the whole foreground group: the owner gets them, its children do not."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.real_robot.operator_hand import until

import stringline

# An owner, which reports Ctrl-C, and a child that leaves signals to it and answers SIGUSR1.
OWNER = """
import multiprocessing, os, signal, sys, time
sys.path[:0] = {paths!r}
from stringline.real_robot.ipc.child_process import end_as_by_ctrl_c, leave_to_owner

def child():
    leave_to_owner()
    # A signal may come while a line is printed, so all lines are written without a buffer.
    signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"alive\\n"))
    os.write(1, f"{{os.getpid()}}\\n".encode())
    time.sleep(60)

if __name__ == "__main__":
    end_as_by_ctrl_c()
    multiprocessing.get_context("spawn").Process(target=child, daemon=True).start()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        os.write(1, b"Ctrl-C\\n")
        time.sleep(60)
"""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """An owner in a process group as that of a shell's job, and the number of its child."""
    program = tmp_path / "owner.py"
    program.write_text(OWNER.format(paths=[str(Path(stringline.__file__).parents[1])]))
    with subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, text=True, process_group=0
    ) as owner:
        try:
            yield owner, int(line_of(owner))
        finally:
            os.killpg(owner.pid, signal.SIGKILL)


def line_of(owner: subprocess.Popen[str]) -> str:
    """Returns the next line of the owner or of its child."""
    assert owner.stdout is not None
    assert select.select([owner.stdout], [], [], 20.0)[0], "The owner has printed nothing."
    return owner.stdout.readline().strip()


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name
)
def test_signals_that_end_a_group_are_ctrl_c_to_the_owner_and_nothing_to_its_child(
    group: tuple[subprocess.Popen[str], int], number: signal.Signals
) -> None:
    """A terminal sends SIGQUIT at Ctrl-Backslash."""
    owner, child = group
    os.killpg(owner.pid, number)
    assert line_of(owner) == "Ctrl-C"
    os.kill(child, signal.SIGUSR1)
    assert line_of(owner) == "alive"


@pytest.mark.parametrize(
    "number", [signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU], ids=lambda n: n.name
)
def test_signals_that_stop_a_group_stop_only_the_owner(
    group: tuple[subprocess.Popen[str], int], number: signal.Signals
) -> None:
    """A terminal sends SIGTSTP at Ctrl-Z, and the others to groups in the background."""
    owner, child = group
    os.killpg(owner.pid, number)
    until(lambda: is_stopped(owner.pid))
    os.kill(child, signal.SIGUSR1)
    assert line_of(owner) == "alive"
