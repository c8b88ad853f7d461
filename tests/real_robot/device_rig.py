"""A device loop in the process of the test, in lock-step with emulated arms."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stringline import ActionChunk, ArmDriver, Embodiment, SafetyLimits
from stringline.real_robot.device.device_loop import DeviceLoop
from stringline.real_robot.device.device_state import (
    DeviceState,
    chunk_layout,
    chunk_record,
    state_layout,
)
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.incidents.incident_log import IncidentLog
from stringline.real_robot.ipc.mailbox import Mailbox, shared_memory
from stringline.real_robot.safety.reasons import describe

Vector = NDArray[np.float64]

PERIOD = 0.01


class DeviceRig:
    """What is the same for arms of every kind.

    Args:
        emulator: Of the arms, in lock-step.
        driver: Not connected yet.
        body: What is moved.
        limits: Of the safety filter.
        log: Takes down what happens, or None.
    """

    def __init__(
        self,
        emulator: Emulator,
        driver: ArmDriver,
        body: Embodiment,
        limits: SafetyLimits,
        log: IncidentLog | None = None,
    ) -> None:
        self.emulator, self.body, self.limits = emulator, body, limits
        self._driver, self._joints = driver, len(body.joints)
        layouts = (
            chunk_layout(self._joints),
            state_layout(self._joints, len(driver.servos), len(driver.arms)),
        )
        memories = [shared_memory(layout, 8) for layout in layouts]
        self._chunks, self._states = (
            Mailbox(memory, layout) for memory, layout in zip(memories, layouts, strict=True)
        )
        ends = [Mailbox(memory, layout) for memory, layout in zip(memories, layouts, strict=True)]
        self.loop = DeviceLoop(
            driver,
            body,
            limits,
            PERIOD,
            chunks=ends[0],
            states=ends[1],
            state_layout=layouts[1],
            log=log,
        )
        self.now, self.session = 0.0, 0
        driver.connect()
        driver.arm()
        emulator.begin(0)
        self.begin()

    def begin(self) -> None:
        """Begins an episode."""
        self.session += 1
        self.loop.begin(self.session, self.clock)

    def clock(self) -> float:
        """Simulated seconds."""
        return self.now

    def send(
        self, chunk: ActionChunk, *, session: int | None = None, image_age_s: float = 0.0
    ) -> None:
        """Puts a chunk into the mailbox."""
        self._chunks.put(
            chunk_record(
                chunk, self.session if session is None else session, self._joints, image_age_s
            )
        )

    def want(self, target: Vector, count: int = 50) -> None:
        """Puts a plan into the mailbox that wants the same all the time."""
        self.send(plan(target, self.now, count))

    def writes(self) -> dict[str, int]:
        """Returns the number of commands by arm that the emulator needs before it advances."""
        return dict(zip(self._driver.arms, self._driver.writes.tolist(), strict=True))

    def cycle(self, count: int = 1) -> DeviceState:
        """Advances by so many periods and returns the state of the device process."""
        for _ in range(count):
            self.loop.observe(self.clock)
            self.loop.act(self.clock)
            self.emulator.advance(self.writes())
            self.now += PERIOD
        return self.state

    @property
    def state(self) -> DeviceState:
        """The newest state."""
        record = self._states.newest()
        assert record is not None
        return DeviceState.of(record)

    def until(self, wanted: Callable[[DeviceState], bool], cycles: int) -> int:
        """Runs cycles until a state satisfies `wanted`, and returns their number."""
        for cycle in range(1, cycles + 1):
            if wanted(self.cycle()):
                return cycle
        raise AssertionError(
            f"Not within {cycles} cycles: {self.state.mode!r} {self.state.reasons!r} {self.words()}"
        )

    def words(self) -> str:
        """Returns the reasons of the filter's reaction."""
        state = self.state
        return " ".join(
            describe(
                state.reasons | state.fault_reasons,
                servos=self._driver.servos,
                arms=self._driver.arms,
                servo_error=state.arms.servo_error,
                servo_misses=state.arms.servo_misses,
                lost=state.arms.lost,
                interlock=state.arms.interlock,
            )
        )

    def close(self) -> None:
        """Closes the ports."""
        self._driver.close()


def plan(target: Vector, start: float, count: int = 50) -> ActionChunk:
    """Returns a plan of 50 Hz that wants the same all the time."""
    return ActionChunk(
        start + 0.02 * np.arange(count, dtype=np.float64),
        np.tile(target, (count, 1)).astype(np.float32),
    )
