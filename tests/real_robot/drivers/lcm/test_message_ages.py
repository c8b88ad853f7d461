"""The ages of a driver program's messages when its process was delayed."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.real_robot.drivers.lcm import drake_program as driver_messages
from stringline.real_robot.drivers.lcm.drake_messages import (
    IIWA_STATUS,
    IIWA_STATUS_TELEMETRY,
    Channels,
)
from stringline.real_robot.drivers.lcm.drake_program import DrakeProgram
from stringline.real_robot.drivers.lcm.lcm_link import DEFAULT_ADDRESS, LcmLink, LcmMessage
from stringline.real_robot.emulators.fri.controller import _EPOCH_S
from stringline.real_robot.emulators.fri.kuka_server import EmulatedCell
from stringline.real_robot.emulators.lcm.emulated_program import VERSION, EmulatedProgram
from stringline.real_robot.emulators.lcm.lcm_server import MOST_LAG_S
from stringline.real_robot.emulators.plants.plant import FirstOrderPlant
from stringline.real_robot.emulators.program.emulator_client import LcmEmulator
from stringline.real_robot.emulators.program.emulator_server import Metronome
from stringline.real_robot.emulators.program.emulator_settings import LcmSettings

PERIOD = 0.01
CONNECTED = 40  # Periods before the driver receives; the program's clock is synchronised by then.
KNOWN = 200  # Periods before the delay.
CAUGHT_UP = 80
LONGEST_GAP_S = 0.3  # The limit of the safety filter.
SOURCE = ("127.0.0.1", 1)


def late_messages(
    monkeypatch: pytest.MonkeyPatch,
    delay_s: float,
    host_s: float = 100.0,
    most_lag_s: float = 0.25,
) -> list[bool]:
    """Returns for each message whether a command at its arrival would be too late.

    `host_s` is the time of the first message by the host's clock.
    """
    channels = Channels()
    cell = EmulatedCell(IIWA14, FirstOrderPlant(IIWA14, period_s=PERIOD), VERSION)
    controller = cell.controllers["arm"]
    program = EmulatedProgram(cell.controllers, LcmSettings(clock_samples=20))
    driver = DrakeProgram(["arm"], LcmLink(DEFAULT_ADDRESS), channels, period_s=PERIOD)
    metronome = Metronome(["arm"], PERIOD, 0.0, 100.0, most_lag_s)
    now, found = 100.0, []
    monkeypatch.setattr(driver_messages, "time", SimpleNamespace(monotonic=lambda: now))
    for step in range(KNOWN + 300):
        now = metronome.next + (delay_s if step == KNOWN else 0.0)
        metronome.take(now)
        controller.skip(metronome.skipped["arm"])
        for data in controller.tick():
            program.step("arm", data, round(1e6 * (host_s + now - 100.0)))
        if step < CONNECTED:
            found.append(False)
            continue
        status = IIWA_STATUS.encode(program.status())
        driver.take(LcmMessage(channels.status, status, SOURCE, 2 * step + 1))
        driver.take(LcmMessage(channels.telemetry, program.telemetry(), SOURCE, 2 * step + 2))
        found.append(driver._too_late)
    return found


@pytest.mark.parametrize("delay_s", [0.05, 0.1, 0.2, 0.3, 1.0])
def test_messages_are_in_time_again_once_the_program_has_made_up_for_a_delay(
    monkeypatch: pytest.MonkeyPatch, delay_s: float
) -> None:
    late = late_messages(monkeypatch, delay_s)
    assert not any(late[KNOWN - 50 : KNOWN])
    assert late[KNOWN]
    assert not any(late[KNOWN + CAUGHT_UP :])


def test_clocks_of_host_and_controller_that_agree_make_no_message_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first status arrives before the difference of the clocks is known."""
    assert not any(late_messages(monkeypatch, 0.0, _EPOCH_S + PERIOD + 0.009)[CONNECTED + 2 :])


def shift_s(link: LcmLink, messages: int = 40) -> float:
    """Returns the host's clock minus the controller's, by the fastest of the next messages."""
    found: list[float] = []
    deadline = time.monotonic() + 20.0
    while len(found) < messages:
        assert time.monotonic() < deadline
        for message in link.receive():
            stamp = IIWA_STATUS_TELEMETRY.decode(message.payload)["iiwa_utime"]
            assert isinstance(stamp, int)
            found.append(time.monotonic() - 1e-6 * stamp)
        time.sleep(0.001)
    return min(found)


@pytest.mark.slow
def test_the_clocks_of_controllers_run_on_while_the_emulator_stands_still() -> None:
    with LcmEmulator() as emulator:
        (address,) = emulator.ports.values()
        link = LcmLink(address, channels=frozenset({Channels().telemetry}))
        link.open()
        before = shift_s(link)
        assert emulator.pid is not None
        os.kill(emulator.pid, signal.SIGSTOP)
        time.sleep(0.8)
        os.kill(emulator.pid, signal.SIGCONT)
        shift_s(link, CAUGHT_UP)
        after = shift_s(link)
        link.close()
    assert after == pytest.approx(before, abs=0.05)


@pytest.mark.parametrize("delay_s", [0.05, 0.1, 0.2])
def test_an_emulator_that_was_late_is_sent_commands_soon_after(
    monkeypatch: pytest.MonkeyPatch, delay_s: float
) -> None:
    """A busy machine stops it for a moment; then no command is sent until it has made up for that.

    The time without commands, that of the stop included, must not be a fault.
    """
    late = late_messages(monkeypatch, delay_s, most_lag_s=MOST_LAG_S)
    assert any(late)
    # While time is made up for, periods follow at twice the rate.
    assert delay_s + sum(late) * PERIOD / 2 < LONGEST_GAP_S
    assert not any(late[-200:])
