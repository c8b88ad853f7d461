"""An error in a cycle of the device process: the arms brake within the limits before it ends."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from ctypes import c_bool
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.real_robot.moving_arms import (
    PATIENT,
    PERIOD,
    ROBOTS,
    Arms,
    NotingDevice,
    backend_of,
    brisk_limits,
    wait,
)

from stringline.real_robot.driver_interface.driver import ArmDriver, ArmState, SafeCommand
from stringline.real_robot.emulated_evaluation.real_time_runner import wire_lines
from stringline.real_robot.safety.reasons import Mode, Reason


class Failing:
    """A driver with a defect, once a flag is set.

    Args:
        defect: `read` raises for ever; `read once` and `write once` do so once; `state` has a field
            by which the filter raises once; `nan` measures a joint as no number from then on.
    """

    def __init__(self, inner: ArmDriver, defect: str, flag: c_bool) -> None:
        self.inner, self.defect, self.flag = inner, defect, flag

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def _fails(self, *defects: str) -> bool:
        if not self.flag.value or self.defect not in defects:
            return False
        if self.defect not in ("read", "nan"):
            self.flag.value = False
        return True

    def read(self, clock: Callable[[], float]) -> ArmState:
        if self._fails("read", "read once"):
            raise RuntimeError("A defect of a driver.")
        state = self.inner.read(clock)
        if self._fails("state"):
            return dataclasses.replace(state, servo_misses=None)  # type: ignore[arg-type]
        if self._fails("nan"):
            return dataclasses.replace(state, position=np.full_like(state.position, np.nan))
        return state

    def write(self, command: SafeCommand) -> Any:
        if self._fails("write once"):
            raise RuntimeError("A defect of a driver.")
        return self.inner.write(command)


@contextmanager
def failing_arms(robot: str, defect: str, folder: Path) -> Iterator[tuple[Arms, c_bool]]:
    """Moves arms; yields them and the flag that begins the defect."""
    backend = backend_of(robot)
    limits = brisk_limits(backend)
    flag = RawValue(c_bool, False)
    with ExitStack() as stack:
        emulator = stack.enter_context(backend.bare_emulator(capture=folder, **PATIENT[robot]))
        driver = backend.driver(
            emulator.ports, period_s=PERIOD, lock_step=False, read_only=False, still_grippers=True
        )
        failing: Any = Failing(driver, defect, flag)
        device = stack.enter_context(NotingDevice(failing, backend.embodiment, limits))
        device.connect()
        device.arm()
        device.begin()
        arms = Arms(
            device, emulator, wire_lines(backend, folder, limits, PERIOD), backend.embodiment.home
        )
        arms.start_moving()
        yield arms, flag


def at_rest(arms: Arms) -> bool:
    """Returns whether the last step of each arm was that of a standing one, or one from rest."""
    return arms.violations() == 0 and all(line.check.fits_rest for line in arms.lines.values())


def moves(arms: Arms) -> bool:
    """Returns whether the last step of an arm was that of a moving one; all were within limits."""
    assert arms.violations() == 0
    return not all(line.check.fits_rest for line in arms.lines.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("robot", "defect"),
    [
        ("aloha", "read"),
        *((robot, one) for robot in ROBOTS for one in ("read once", "state")),
        ("aloha", "write once"),
        ("lcm", "write once"),
    ],
)
def test_arms_brake_within_the_limits_before_the_process_ends(
    robot: str, defect: str, tmp_path: Path
) -> None:
    with failing_arms(robot, defect, tmp_path) as (arms, flag):
        wait(lambda: moves(arms))
        flag.value = True
        wait(lambda: not arms.device.alive)
        assert at_rest(arms)


@pytest.mark.slow
@pytest.mark.parametrize("robot", ROBOTS)
def test_a_joint_that_is_measured_as_no_number_is_a_fault(robot: str, tmp_path: Path) -> None:
    with failing_arms(robot, "nan", tmp_path) as (arms, flag):
        flag.value = True
        wait(lambda: arms.device.latest().mode is Mode.FAULT)
        state = arms.device.latest()
        assert Reason.BAD_STATE in state.fault_reasons
        assert np.isfinite(state.arms.position).all()
        tick = state.tick
        wait(lambda: arms.device.latest().tick > tick + 40)
        assert at_rest(arms)
