"""Damaged answers of one arm: a single loss changes nothing, several make the arms hold."""

import os
import select
import threading
import tty
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.safety.reasons import Mode

if TYPE_CHECKING:
    from tests.real_robot.conftest import Rig

    MakeRig = Callable[..., Rig]

Damage = Callable[[bytes], bytes]


class Tampered:
    """A damaged line: a pseudo-terminal in front of the emulator's.

    Attributes:
        name: Of the port.
        damage: What becomes of each answer of the servos.
    """

    def __init__(self, port: str) -> None:
        self._near, self._far_end = os.openpty()
        tty.setraw(self._far_end)
        self.name = os.ttyname(self._far_end)
        self._far = os.open(port, os.O_RDWR | os.O_NOCTTY)
        self.damage: Damage | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()

    def _carry(self) -> None:
        while not self._done.is_set():
            for fd in select.select([self._near, self._far], [], [], 0.02)[0]:
                data = os.read(fd, 4096)
                if fd == self._near:
                    os.write(self._far, data)
                elif answer := data if self.damage is None else self.damage(data):
                    os.write(self._near, answer)

    def close(self) -> None:
        self._done.set()
        self._thread.join()
        for fd in (self._near, self._far_end, self._far):
            os.close(fd)


@pytest.fixture
def tampered(waiting_emulator: Emulator) -> Iterator[Tampered]:
    line = Tampered(waiting_emulator.ports["left"])
    yield line
    line.close()


def flip(data: bytes) -> bytes:
    """Flips a bit of the fourth servo's answer; each has 25 bytes, or some more with stuffing."""
    if len(data) <= 90:
        return data
    return data[:90] + bytes([data[90] ^ 0x10]) + data[91:]


DAMAGES: dict[str, Damage] = {
    "a flipped bit": flip,
    "noise before it": lambda data: b"\xff\xff\xfd\x00\x04\x00\x80" + bytes(range(256)) + data,
    "noise within it": lambda data: data[:60] + b"\xff\x00\xfd\xff\xff" + data[60:],
    "cut short": lambda data: data[:-40],
    "doubled": lambda data: data + data,
    "lost": lambda data: b"",
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_one_damaged_answer_keeps_the_last_state_and_several_are_a_hold(
    make_rig: "MakeRig", waiting_emulator: Emulator, tampered: Tampered, damage: Damage
) -> None:
    rig = make_rig(ports={**waiting_emulator.ports, "left": tampered.name}, answer_timeout_s=0.1)
    rig.moving(0, 0.3)
    known = rig.state.arms
    tampered.damage = damage
    state = rig.cycle()
    assert state.mode is Mode.RUN
    assert state.arms.servo_misses.max() <= 1
    assert (
        np.abs(state.arms.position - known.position).max() < 0.05
    )  # Neither zero nor -pi: at home a joint is at 1.16.
    harmless = not state.arms.servo_misses.any()
    tampered.damage = None
    assert not rig.cycle().arms.servo_misses.any()
    tampered.damage = damage
    for _ in range(4):
        rig.cycle()
    assert rig.state.mode is (Mode.RUN if harmless else Mode.HOLD)
    assert np.abs(rig.state.arms.position - ALOHA.home)[1:].max() < 0.02
    tampered.damage = None
    assert rig.until(lambda state: state.mode is Mode.RUN, 2) <= 2
    rig.assert_within_limits()


def test_an_answer_of_the_cycle_before_is_harmless(
    make_rig: "MakeRig", waiting_emulator: Emulator, tampered: Tampered
) -> None:
    rig = make_rig(ports={**waiting_emulator.ports, "left": tampered.name})
    kept: list[bytes] = []

    def delay(data: bytes) -> bytes:
        kept.append(data)
        return kept[max(len(kept) - 2, 0)]

    rig.moving(0, 0.3)
    tampered.damage = delay
    for _ in range(20):
        assert rig.cycle().mode is Mode.RUN
    rig.assert_within_limits()
