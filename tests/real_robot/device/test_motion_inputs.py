"""Inputs that permit motion, by the clock: hold-to-run and the line of an external stop."""

import dataclasses
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from tests.real_robot.operator_hand import until

from stringline import ALOHA, ActionChunk, SafetyLimits
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.ipc.heartbeat import MotionInputs, input_memory
from stringline.real_robot.operator.input_line import InputLine, LineSettings
from stringline.real_robot.safety.reasons import Mode, Reason


class Sender:
    """A safety relay that sends its permission through a pseudo-terminal until it is stopped."""

    def __init__(self) -> None:
        self.far, near = os.openpty()
        self.port = os.ttyname(near)
        self.permits = threading.Event()
        self.permits.set()
        self._ended = False
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        while not self._ended:
            if self.permits.is_set():
                os.write(self.far, b"1")
            time.sleep(0.01)

    def end(self) -> None:
        self._ended = True
        self._thread.join()


@pytest.fixture
def sender() -> Iterator[Sender]:
    made = Sender()
    yield made
    made.end()


def plan() -> ActionChunk:
    """Returns a plan of five seconds in which the left waist swings."""
    seconds = 0.04 * np.arange(125.0)
    way = np.tile(ALOHA.home, (len(seconds), 1)).astype(np.float32)
    way[:, 0] += 0.4 * np.sin(2.0 * seconds).astype(np.float32)
    return ActionChunk(time.monotonic() + seconds, way)


@pytest.mark.slow
def test_arms_hold_without_permission_and_an_external_stop_is_a_fault(
    emulator: Emulator, sender: Sender
) -> None:
    permission = input_memory()
    with ExitStack() as stack:
        line = stack.enter_context(InputLine(LineSettings(sender.port, "bytes")))
        line.check_readable()
        line.check_permits()
        driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)
        inputs = MotionInputs(permission, line.permission)
        # A busy machine may stop the device process for a while.
        limits = dataclasses.replace(
            SafetyLimits.of(ALOHA, soft_start_s=0.0), longest_gap_s=9.0, oldest_heartbeat_s=9.0
        )
        device = stack.enter_context(DeviceProcess(driver, ALOHA, limits, inputs=inputs))
        device.connect()
        device.arm()
        device.begin()
        device.send(plan())
        until(lambda: Reason.RELEASED in device.latest().reasons)

        def held(reason: Mode) -> bool:
            permission.value = time.monotonic()
            return device.latest().mode is reason

        until(lambda: held(Mode.RUN))
        until(lambda: held(Mode.RUN) and abs(device.latest().command[0]) > 0.05)
        last = permission.value
        until(lambda: Reason.RELEASED in device.latest().reasons)
        assert device.latest().mode is Mode.HOLD
        # The hold begins a fifth of a second after the last permission; cycles may be late here.
        assert 0.2 < time.monotonic() - last < 1.0
        device.send(plan())
        until(lambda: held(Mode.RUN))
        sender.permits.clear()
        until(lambda: held(Mode.FAULT))
        assert device.latest().fault_reasons == Reason.EXTERNAL_STOP
        sender.permits.set()
        time.sleep(0.3)
        assert held(Mode.FAULT)
