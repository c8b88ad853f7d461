"""A closed terminal, and SIGQUIT: processes end after the arms are at rest, and keep the log."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.moving_arms import wait
from tests.real_robot.owned_arms import owned_arms

from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.incidents.incident_records import Entry, Kind, scan

Vector = NDArray[np.float64]

TICK = table.TICK_RAD


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT], ids=lambda n: n.name)
def test_a_closed_terminal_ends_the_owner_which_brakes_the_arms_and_keeps_the_log(
    tmp_path: Path, number: signal.Signals
) -> None:
    """All processes of the group get the signal and end only after the arms are at rest."""

    def waist() -> Vector:
        return _goals_of_waist((tmp_path / "wire" / "left.bin").read_bytes())

    with owned_arms("aloha", tmp_path) as arms:
        wait(lambda: abs(float(waist()[-1] - waist()[-3])) > TICK)
        assert arms.owner.pid is not None
        os.killpg(arms.owner.pid, number)
        moving = waist()
        arms.owner.join(20)
        assert arms.owner.exitcode is not None
        path = waist()
        assert abs(moving[-1] - moving[-3]) > TICK
        assert np.ptp(path[-5:]) == 0.0
        arms.check()
    (kept,) = arms.logs.glob("session-*.log")
    last = [entry for entry in scan(kept.read_bytes()) if isinstance(entry, Entry)][-1]
    assert last.kind == Kind.END
    assert b"died" not in last.payload


def _goals_of_waist(data: bytes) -> Vector:
    head, found, at = b"\x83\x74\x00\x04\x00\x01", [], 0
    while 0 <= (at := data.find(head, at)) <= len(data) - 10:
        found.append(
            table.angle_of_ticks(int.from_bytes(data[at + 6 : at + 10], "little", signed=True))
        )
        at += len(head)
    return np.array(found)
