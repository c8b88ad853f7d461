"""The code of the device process: one thread, one loop, and a pipe to the owner.

Requests are `arm`, `begin` with a session and the acknowledged fault reasons, `observe` with a
time, `act`, `disarm` and `stop`. The answer is `ok`, followed by the remarks as JSON if there are
any, or a JSON list of problems. If the owner disappears, the arms brake and keep their position,
and the process ends.
"""

import contextlib
import gc
import json
import logging
import math
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from ctypes import c_bool, c_double
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.device.device_loop import DeviceLoop
from stringline.real_robot.device.device_state import chunk_layout
from stringline.real_robot.device.scheduling import (
    Priority,
    busy_machine,
    check_priority,
    prefer_priority,
)
from stringline.real_robot.driver_interface.driver import (
    ArmDriver,
    RestoringDriver,
    RobotNotReadyError,
)
from stringline.real_robot.incidents.incident_log import IncidentLog
from stringline.real_robot.ipc.child_process import leave_to_owner
from stringline.real_robot.ipc.heartbeat import (
    NEVER_SILENT,
    NO_INPUTS,
    CameraLiveness,
    MotionInputs,
    beating,
    heartbeat_memory,
    hold_memory,
    silence_s,
)
from stringline.real_robot.ipc.mailbox import Mailbox, Memory
from stringline.real_robot.safety.clearance import Clearance
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Reason

log = logging.getLogger(__name__)

OK = b"ok"
TIME = struct.Struct("<d")
EPISODE = struct.Struct("<qq?")
_PUNCTUAL = 0.1  # Share of a period.
_IDLE_S = 0.05  # Time between two beats of the pulse without torque.
_BRAKING_CYCLES = 12  # Lower bound; slow limits take more.
_BRAKING_PATIENCE = 3  # Factor for arms that do not accept a command in every cycle.
# Modules whose threads and memory would disturb a loop of milliseconds. MuJoCo itself computes in
# the thread of its caller.
_FOREIGN = ("torch", "dm_control")
# Faults after whose reset the driver brings the arms up again.
_RESTORED = Reason.SERVO_ERROR | Reason.LINK_LOST


@dataclass(frozen=True, eq=False)
class DeviceSetup:
    """Arguments of the spawned process; see `DeviceProcess`.

    Attributes:
        driver: Not connected yet.
        log: Memory of the ring of the incident log, or None.
        heartbeat: Heartbeat of the owner; ignored in lock-step.
        pulse: Heartbeat of this process from its connection on; none in lock-step.
        hold: Whether the owner requests a hold, which ends with the next `begin`.
        cameras: Capture times of the monitored cameras; ignored in lock-step.
        priority: Need of real-time priority; ignored in lock-step.
        inputs: Inputs that permit motion; ignored in lock-step.
    """

    driver: ArmDriver
    embodiment: Embodiment
    limits: SafetyLimits
    period_s: float
    lock_step: bool
    chunks: Memory
    states: Memory
    state_layout: np.dtype[np.void]
    log: Memory | None = None
    heartbeat: c_double = field(default_factory=heartbeat_memory)
    pulse: c_double = field(default_factory=lambda: heartbeat_memory(NEVER_SILENT))
    hold: c_bool = field(default_factory=hold_memory)
    cameras: CameraLiveness | None = None
    priority: Priority = Priority.REQUIRED
    inputs: MotionInputs = NO_INPUTS

    def beating(self) -> AbstractContextManager[None]:
        """Renews the pulse during a block that takes long and runs no cycles."""
        return contextlib.nullcontext() if self.lock_step else beating(self.pulse)


def run_device(setup: DeviceSetup, connection: Connection) -> None:
    """Runs in the spawned process until the owner requests the end or disappears."""
    leave_to_owner()
    logging.basicConfig(
        level=logging.WARNING,
        format="%(asctime)s %(levelname)-7s device process: %(message)s",
        datefmt="%H:%M:%S",
    )
    if foreign := [name for name in _FOREIGN if name in sys.modules]:
        log.warning(
            "The device process has imported %s, which may disturb its timing.", ", ".join(foreign)
        )
    incidents = None
    if setup.log is not None:
        incidents = IncidentLog(setup.log, setup.state_layout, len(setup.embodiment.joints))
        setup.driver.listen([incidents.tap(source) for source in range(len(setup.driver.arms))])
    try:
        if setup.priority is Priority.REQUIRED and not setup.lock_step:
            check_priority(setup.period_s)
        with setup.beating():
            # Its models take seconds on a busy computer, in which no controller is answered.
            worker = _Worker(setup, connection, incidents)
            setup.driver.connect()
    except ValueError as error:
        if incidents is not None:
            incidents.end()
        connection.send_bytes(_refusal(setup, getattr(error, "problems", [str(error)])))
        return
    try:
        connection.send_bytes(OK)
        worker.run()
    finally:
        setup.driver.close()
    if incidents is not None:
        incidents.end()


class _Worker:
    """Runs the loop and serves the requests of the owner."""

    def __init__(
        self, setup: DeviceSetup, connection: Connection, incidents: IncidentLog | None
    ) -> None:
        self._setup = setup
        self._connection = connection
        self._loop = DeviceLoop(
            setup.driver,
            setup.embodiment,
            setup.limits,
            setup.period_s,
            chunks=Mailbox(setup.chunks, chunk_layout(len(setup.embodiment.joints))),
            states=Mailbox(setup.states, setup.state_layout),
            state_layout=setup.state_layout,
            log=incidents,
            silence_s=None if setup.lock_step else partial(silence_s, setup.heartbeat),
            image_ages_s=None
            if setup.lock_step or setup.cameras is None
            else partial(_image_ages_s, setup.cameras),
            input_ages_s=None if setup.lock_step else setup.inputs.ages_s,
            wait=None if setup.lock_step or setup.driver.clocked_by_robot else time.sleep,
        )
        self._now = 0.0
        self._armed = self._stopped = False

    def run(self) -> None:
        """Runs until the owner requests the end or disappears."""
        gc.collect()
        gc.freeze()
        gc.disable()
        if self._setup.priority is not Priority.NONE and not self._setup.lock_step:
            prefer_priority(self._setup.period_s)
        try:
            self._run()
        except Exception:
            if self._armed and not self._setup.lock_step:
                log.exception("The arms brake, and the process ends, because of an error.")
                self._brake_blindly()
            raise

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped:
            timeout_s = None
            if self._armed and not self._setup.lock_step:
                due = self._tick(due)
                timeout_s = max(0.0, due - time.monotonic())
            elif not self._setup.lock_step:
                self._setup.pulse.value = time.monotonic()
                timeout_s = _IDLE_S
            if self._connection.poll(timeout_s):
                self._serve()
        if self._armed and not self._setup.lock_step:
            self._come_to_rest()
        with contextlib.suppress(OSError):
            self._connection.send_bytes(OK)

    def _clock(self) -> float:
        return self._now if self._setup.lock_step else time.monotonic()

    def _tick(self, due: float) -> float:
        """Runs a cycle if it is due and returns the time of the next one.

        After a delay cycles are skipped, not made up for.
        """
        now = time.monotonic()
        period = self._setup.period_s
        if now < due:
            return due
        self._cycle()
        if self._setup.driver.clocked_by_robot:
            self._loop.late += max(0, round((now - due) / period) - 1)
            return now  # The next read waits for the message of the robot.
        self._loop.late += int((now - due) / period)
        # Two commands in less than a period would exceed the limit of velocity.
        return due + period if now - due <= _PUNCTUAL * period else now + period

    def _cycle(self) -> None:
        """Runs a cycle by the clock; a requested hold acts before the command is made."""
        self._loop.observe(self._clock)
        if self._setup.hold.value:
            self._loop.brake()
        self._loop.act(self._clock)
        self._setup.pulse.value = time.monotonic()

    @property
    def _braking_cycles(self) -> int:
        """Cycles in which the fastest joint comes to rest."""
        limits = self._setup.limits
        longest = float((limits.velocity / (limits.acceleration * self._setup.period_s)).max())
        return max(_BRAKING_CYCLES, math.ceil(longest) + 1)

    def _come_to_rest(self) -> None:
        self._loop.brake()
        least = self._braking_cycles
        for cycle in range(_BRAKING_PATIENCE * least):
            if cycle >= least and self._loop.at_rest:
                return
            self._cycle()
            if not self._setup.driver.clocked_by_robot:
                time.sleep(self._setup.period_s)

    def _brake_blindly(self) -> None:
        """Brakes within the limits after an error, whatever of driver and filter still works."""
        driver = self._setup.driver
        least = self._braking_cycles
        for cycle in range(_BRAKING_PATIENCE * least):
            if cycle >= least and self._loop.at_rest:
                return
            due = time.monotonic() + self._setup.period_s
            with contextlib.suppress(Exception):
                if driver.clocked_by_robot:
                    driver.read(self._clock)  # The robot expects an answer to its message.
            with contextlib.suppress(Exception):
                self._loop.brake_blindly()
            self._setup.pulse.value = time.monotonic()
            if not driver.clocked_by_robot or time.monotonic() < due - 0.9 * self._setup.period_s:
                time.sleep(max(0.0, due - time.monotonic()))

    def _serve(self) -> None:
        try:
            request = self._connection.recv_bytes()
        except (EOFError, OSError):
            log.warning("The owner has ended; the arms brake and keep their position.")
            self._stopped = True
            return
        try:
            notes = self._handle(request)
        except RobotNotReadyError as error:
            self._connection.send_bytes(_refusal(self._setup, error.problems))
            return
        if not self._stopped:
            self._connection.send_bytes(OK + (json.dumps(notes).encode() if notes else b""))

    def _restore(self, acknowledged: Reason) -> tuple[Reason, Sequence[str]]:
        """Brings up what has restarted or lost torque or its port, once that fault is reset.

        Returns the faults that are reset, without those of arms that refuse, and why they do.
        """
        driver = self._setup.driver
        if not acknowledged & _RESTORED or not isinstance(driver, RestoringDriver):
            return acknowledged, ()
        try:
            with self._setup.beating():
                driver.restore()
        except RobotNotReadyError as error:
            return acknowledged & ~_RESTORED, error.problems
        return acknowledged, ()

    def _begin(self, session: int, acknowledged: Reason, *, new_world: bool = False) -> None:
        """Begins an episode; in another world, as always in lock-step, all faults are reset."""
        new_world = new_world or self._setup.lock_step
        self._loop.begin(session, self._clock, None if new_world else acknowledged)

    def _check_cell(self) -> None:
        """Checks, before torque, that no arm stands in an obstacle of its cell."""
        limits = self._setup.limits
        if limits.cell.obstacles:
            measured = self._setup.driver.read(self._clock).position
            if problems := Clearance.of(self._setup.embodiment, limits).overlaps(measured):
                raise RobotNotReadyError(problems)

    def _handle(self, request: bytes) -> Sequence[str]:
        """Executes a request and returns remarks for the operator."""
        if request.startswith(b"observe"):
            (self._now,) = TIME.unpack(request[len(b"observe") :])
            self._loop.observe(self._clock)
        elif request == b"act":
            self._loop.act(self._clock)
        elif request.startswith(b"begin"):
            session, acknowledged, new_world = EPISODE.unpack(request[len(b"begin") :])
            if self._armed and not self._setup.lock_step:
                self._come_to_rest()
            self._setup.hold.value = False
            reset, problems = self._restore(Reason(acknowledged))
            self._begin(session, reset, new_world=new_world)
            return problems
        elif request == b"arm":
            with self._setup.beating():
                self._check_cell()
                self._setup.driver.arm()
                self._begin(0, ~Reason(0))
            self._armed = True
            return self._setup.driver.notes
        elif request == b"disarm":
            self._armed = False
            with self._setup.beating():
                self._setup.driver.disarm()
        elif request == b"stop":
            self._stopped = True
        return ()


def _refusal(setup: DeviceSetup, problems: Sequence[str]) -> bytes:
    """Returns the answer that lists problems.

    Robots that clock the cycles expect answers in time, so a busy computer may be the cause.
    """
    busy = busy_machine() if setup.driver.clocked_by_robot else ""
    return json.dumps([*problems, busy] if busy else [*problems]).encode()


def _image_ages_s(cameras: CameraLiveness) -> tuple[float, ...]:
    return cameras.ages_s(time.monotonic())
