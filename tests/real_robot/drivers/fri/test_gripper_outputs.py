"""A gripper at the outputs of an emulated controller, through the bytes of real messages."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.real_robot.drivers.fri.controller_io import IoGripper, IoValue, OutputGripper
from stringline.real_robot.drivers.fri.enums import IoDirection, IoType, SessionState
from stringline.real_robot.drivers.fri.messages import Command, Monitoring
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulators.fri.controller import (
    GRIPPER_CLOSE,
    GRIPPER_INPUT,
    GRIPPER_IS_OPEN,
    GRIPPER_OPEN,
    GRIPPER_OUTPUT,
)
from stringline.real_robot.emulators.fri.kuka_server import EmulatedCell
from stringline.real_robot.emulators.plants.plant import FirstOrderPlant

VERSION = version_of("1.15")
ANALOG = IoGripper(GRIPPER_OUTPUT, feedback=GRIPPER_INPUT)
PAIR = IoGripper(GRIPPER_OPEN, IoType.BOOLEAN, GRIPPER_IS_OPEN, GRIPPER_CLOSE)
BIT = IoGripper(GRIPPER_OPEN, IoType.BOOLEAN)


class Cell:
    """An emulated controller with its arm, in command mode, and a gripper with commands."""

    def __init__(self, chosen: IoGripper, *, read_only: bool = False) -> None:
        self._cell = EmulatedCell(IIWA14, FirstOrderPlant(IIWA14), VERSION)
        self.gripper = OutputGripper(chosen, "arm", read_only=read_only)
        self._count, self.sent = 0, list[tuple[IoValue, ...]]()
        while self.go(None).session is not SessionState.COMMANDING_ACTIVE:
            assert self._count < 60

    def go(self, opening: float | None, periods: int = 1) -> Monitoring:
        controller, message = self._cell.controllers["arm"], Monitoring()
        for _ in range(periods):
            self._cell.advance()
            (data,) = controller.tick()
            message = Monitoring.of(VERSION, data)
            self.gripper.hear(message.inputs)
            if opening is not None:
                self.gripper.command(opening)
            active = message.session is SessionState.COMMANDING_ACTIVE
            self.sent.append(self.gripper.outputs() if active else ())
            command = Command(self._count, message.sequence, message.ipo, self.sent[-1])
            controller.receive(command.to_bytes(VERSION))
            self._count += 1
        return message

    @property
    def fingers(self) -> float:
        return float(self._cell.plant.measure()[0][7])


def written(name: str, kind: IoType, value: float) -> IoValue:
    return IoValue(name, kind, IoDirection.OUTPUT, value)


def test_an_opening_is_sent_as_a_number_and_measured() -> None:
    cell = Cell(ANALOG)
    assert not cell.sent[-1]  # Nothing is written before the first command.
    assert (cell.gripper.servo, cell.gripper.wanted) == (
        "arm/gripper (Gripper.MeasuredOpening)",
        1.0,
    )
    cell.go(0.25, 150)
    assert cell.sent[-1] == (written(GRIPPER_OUTPUT, IoType.ANALOG, 0.25),)
    assert cell.fingers == pytest.approx(0.25, abs=1e-3)
    assert cell.gripper.read().opening == pytest.approx(0.25, abs=1e-3)
    assert cell.gripper.wanted == 0.25


@pytest.mark.parametrize("chosen", [PAIR, BIT])
def test_a_valve_opens_and_closes_and_does_not_chatter(chosen: IoGripper) -> None:
    cell = Cell(chosen)
    for opening in (0.59, 0.41, 0.5, 0.59):  # It stays as it is: open.
        cell.go(opening)
        assert cell.sent[-1][0] == written(GRIPPER_OPEN, chosen.kind, 1.0)
    cell.go(0.4, 150)
    closed = (written(GRIPPER_OPEN, chosen.kind, 0.0), written(GRIPPER_CLOSE, chosen.kind, 1.0))
    assert cell.sent[-1] == closed[: 1 + (chosen is PAIR)]
    assert cell.fingers == pytest.approx(0.0, abs=1e-3)
    for opening in (0.41, 0.59, 0.5):
        cell.go(opening)
        assert cell.sent[-1] == closed[: 1 + (chosen is PAIR)]
        assert cell.gripper.read().opening == 0.0
        assert cell.gripper.wanted == opening  # The filter continues its own command, bit or not.
    cell.go(0.6, 150)
    assert cell.fingers == pytest.approx(1.0, abs=1e-3)
    assert cell.gripper.read().opening == 1.0


def test_a_bit_may_mean_closed_and_an_output_may_have_any_scale() -> None:
    closes = OutputGripper(
        IoGripper("Close", IoType.BOOLEAN, "Closed", closed=1, opened=0), "arm", read_only=False
    )
    closes.command(0.0)
    assert closes.outputs() == (written("Close", IoType.BOOLEAN, 1.0),)
    closes.hear((IoValue("Closed", IoType.BOOLEAN, IoDirection.INPUT, 0.0),))
    assert closes.read().opening == 1.0
    scaled = OutputGripper(
        IoGripper("mm", feedback="is mm", closed=4.0, opened=84.0), "arm", read_only=False
    )
    scaled.command(0.5)
    assert scaled.outputs() == (written("mm", IoType.ANALOG, 44.0),)
    for value, opening in ((24.0, 0.25), (0.0, 0.0), (90.0, 1.0)):
        scaled.hear((IoValue("is mm", IoType.ANALOG, IoDirection.INPUT, value),))
        assert scaled.read().opening == opening


def test_a_gripper_that_holds_an_object_keeps_it_at_the_start() -> None:
    closed = written("Open", IoType.BOOLEAN, 0.0)
    valve = OutputGripper(IoGripper("Open", IoType.BOOLEAN), "arm", read_only=False)
    valve.hear((closed,))
    assert (valve.outputs(), valve.wanted, valve.read().opening) == ((), 0.0, 0.0)
    valve.command(0.5)  # As near to closed as to open: it stays.
    assert valve.outputs() == (closed,)
    fingers = OutputGripper(ANALOG, "arm", read_only=False)
    fingers.hear(
        (
            IoValue(GRIPPER_INPUT, IoType.ANALOG, IoDirection.INPUT, 0.3),
            written(GRIPPER_OUTPUT, IoType.ANALOG, 0.1),
        )
    )
    assert (fingers.wanted, fingers.read().opening) == (0.1, 0.3)  # They press on what they hold.
    fingers.command(0.8)
    fingers.enter()  # The motion begins again,
    assert fingers.outputs() == ()
    for reported in (0.8, 0.5):  # and so do commands, at the output that the controller reports.
        fingers.hear((written(GRIPPER_OUTPUT, IoType.ANALOG, reported),))
        assert fingers.wanted == reported


def test_a_neutral_valve_begins_at_its_measured_opening_or_is_refused() -> None:
    cell = Cell(PAIR)
    cell._cell.controllers["arm"].fault("neutral")
    cell.gripper.enter()
    values = cell.go(None).inputs
    assert [one.value for one in values if one.name in (GRIPPER_OPEN, GRIPPER_CLOSE)] == [0.0, 0.0]
    assert (cell.gripper.outputs(), cell.gripper.wanted) == ((), 1.0)
    cell.go(0.5, 60)  # As near to closed as to open: they stay.
    assert cell.sent[-1] == (
        written(GRIPPER_OPEN, IoType.BOOLEAN, 1.0),
        written(GRIPPER_CLOSE, IoType.BOOLEAN, 0.0),
    )
    assert cell.fingers == 1.0
    assert OutputGripper(PAIR, "arm", read_only=False).problems(values) == []
    (problem,) = OutputGripper(
        dataclasses.replace(PAIR, feedback=None), "arm", read_only=False
    ).problems(values)
    assert problem.startswith(
        "arm/gripper: Gripper.Open and Gripper.Close are equal, so the opening is unknown"
    )


def test_an_unusable_input_counts_as_missed_and_its_last_value_stays() -> None:
    gripper = OutputGripper(ANALOG, "arm", read_only=False)
    good = (IoValue(GRIPPER_INPUT, IoType.ANALOG, IoDirection.INPUT, 0.3),)
    gripper.hear(good)
    for count, inputs in enumerate(((), (dataclasses.replace(good[0], value=float("nan")),)), 1):
        gripper.hear(inputs)
        assert (gripper.read().opening, gripper.read().misses) == (0.3, count)
    gripper.hear(good)
    assert gripper.read().misses == 0


def test_outputs_that_the_controller_does_not_report_are_refused() -> None:
    values = Cell(ANALOG).go(None).inputs
    for chosen in (ANALOG, PAIR, BIT):
        assert OutputGripper(chosen, "arm", read_only=False).problems(values) == []
    for chosen, words in (
        (
            IoGripper("Gripper.Openin"),
            "There is no output of the controller 'Gripper.Openin'. Did you mean 'Gripper.Opening'",
        ),
        (
            dataclasses.replace(PAIR, close_output="Lid"),
            "There is no output of the controller 'Lid'.",
        ),
        (dataclasses.replace(ANALOG, feedback="Lid"), "There is no input of the controller 'Lid'."),
        (
            IoGripper(GRIPPER_OPEN),
            "The output Gripper.Open is BOOLEAN; in the settings it is ANALOG: kind.",
        ),
        (
            IoGripper(GRIPPER_INPUT),
            (
                "Gripper.MeasuredOpening is an input of the controller, so it cannot move a "
                "gripper: "
                "output."
            ),
        ),
    ):
        (problem,) = OutputGripper(chosen, "right", read_only=False).problems(values)
        assert problem.startswith(f"right/gripper: {words}")
    (problem,) = OutputGripper(BIT, "arm", read_only=False).problems(())
    assert problem.endswith("Allowed: none. Is it registered for FRI?")


def test_a_read_only_gripper_writes_nothing() -> None:
    cell = Cell(ANALOG, read_only=True)
    cell.go(0.0, 30)
    assert set(cell.sent) == {()}
    assert cell.fingers == 1.0


@pytest.mark.parametrize("chosen", [ANALOG, PAIR, BIT])
def test_any_command_becomes_a_number_in_the_range(chosen: IoGripper) -> None:
    gripper = OutputGripper(chosen, "arm", read_only=False)

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(st.floats())
    def check(opening: float) -> None:
        gripper.command(opening)
        values = [one.value for one in gripper.outputs()]
        assert all(np.isfinite(value) and 0.0 <= value <= 1.0 for value in values)
        if chosen is PAIR and values:
            assert sorted(values) == [0.0, 1.0]

    check()
    assert gripper.outputs()


def test_an_emulated_valve_with_both_bits_or_neither_stays() -> None:
    cell = Cell(BIT)
    controller = cell._cell.controllers["arm"]
    for bits in ((1.0, 1.0), (0.0, 0.0)):
        outputs = tuple(
            written(name, IoType.BOOLEAN, bit)
            for name, bit in zip((GRIPPER_OPEN, GRIPPER_CLOSE), bits, strict=True)
        )
        (data,) = controller.tick()
        message = Monitoring.of(VERSION, data)
        controller.receive(
            Command(1000 + message.sequence, message.sequence, message.ipo, outputs).to_bytes(
                VERSION
            )
        )
        assert controller.opening == 1.0
