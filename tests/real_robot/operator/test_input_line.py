"""Lines of serial ports that permit motion: read by a process of their own, and lost = stop."""

import fcntl
import os
import re
import struct
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.real_robot.operator_hand import until

from stringline.real_robot.ipc.heartbeat import MotionInputs
from stringline.real_robot.operator.input_line import InputLine, LineSettings


@pytest.fixture
def ends() -> Iterator[tuple[int, str]]:
    """The far end of a pseudo-terminal, and the name of the near one."""
    far, near = os.openpty()
    yield far, os.ttyname(near)
    os.close(near)


@pytest.mark.slow
def test_a_line_permits_motion_while_its_device_sends_and_not_after(ends: tuple[int, str]) -> None:
    far, port = ends
    with InputLine(LineSettings(port, "bytes")) as line:
        inputs = MotionInputs(stop_line=line.permission)
        line.check_readable()
        with pytest.raises(ValueError, match=f"The line bytes of {port} does not permit motion"):
            line.check_permits()
        assert inputs.ages_s()[1] > 1.0
        until(lambda: bool(os.write(far, b"1")) and inputs.ages_s()[1] < 0.1)
        line.check_permits()
        assert inputs.ages_s()[0] == 0.0  # There is no input of hold-to-run.
        before = line.permission.value
        os.write(far, b"101")
        time.sleep(0.2)
        assert line.permission.value == before
        until(lambda: bool(os.write(far, b"1")) and line.permission.value > before)
        os.close(far)
        time.sleep(0.2)
        assert inputs.ages_s()[1] > 0.1


@pytest.mark.parametrize(
    ("port", "signal", "problem"),
    [("/dev/nowhere", "cts", "No such file or directory"), ("", "cts", "ioctl")],
)
def test_a_line_that_cannot_be_read_is_reported(
    ends: tuple[int, str], port: str, signal: str, problem: str
) -> None:
    """A pseudo-terminal has no modem lines."""
    with InputLine(LineSettings(port or ends[1], signal)) as line:
        with pytest.raises(ValueError, match=rf"The line cts of .* cannot be read: .*{problem}"):
            line.check_readable()
        assert line.permission.value == 0.0


def console_port() -> str:
    """Returns a serial port that is a console, so that it is open already, with CTS and no RI."""
    for line in Path("/proc/consoles").read_text().splitlines():
        name = line.split()[0]
        if not re.fullmatch(r"ttyS\d+", name) or not os.access(f"/dev/{name}", os.R_OK):
            continue
        port = os.open(f"/dev/{name}", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            (lines,) = struct.unpack("i", fcntl.ioctl(port, termios.TIOCMGET, bytes(4)))
        except OSError:
            continue
        finally:
            os.close(port)
        if lines & termios.TIOCM_CTS and not lines & termios.TIOCM_RI:
            return f"/dev/{name}"
    return ""


@pytest.mark.slow
@pytest.mark.skipif(not console_port(), reason="No serial console has an active CTS.")
def test_modem_lines_of_a_serial_port_permit_motion_while_they_are_active() -> None:
    """Only ports of the kernel have modem lines; they are read and never changed."""
    port = console_port()
    with InputLine(LineSettings(port, "cts")) as line:
        line.check_readable()
        line.check_permits()
        inputs = MotionInputs(stop_line=line.permission)
        end = time.monotonic() + 0.5
        ages = []
        while time.monotonic() < end:
            ages.append(inputs.ages_s()[1])
            time.sleep(0.01)
        assert sorted(ages)[len(ages) // 2] < 0.05
    with InputLine(LineSettings(port, "ri")) as line:
        line.check_readable()
        with pytest.raises(ValueError, match=f"The line ri of {port} does not permit motion"):
            line.check_permits()
        assert line.permission.value == 0.0


def test_settings_of_lines_are_checked() -> None:
    assert LineSettings.of({"port": "/dev/ttyUSB0"}) == LineSettings("/dev/ttyUSB0", "cts")
    with pytest.raises(ValueError, match=r"no signal of a serial line 'ctr'. Did you mean 'cts'"):
        LineSettings.of({"port": "/dev/ttyUSB0", "signal": "ctr"})
    with pytest.raises(ValueError, match=r"no setting of a serial line 'prt'. Did you mean 'port'"):
        LineSettings.of({"prt": "/dev/ttyUSB0"})
    with pytest.raises(ValueError, match="A serial line needs its port"):
        LineSettings.of({"signal": "cts"})
