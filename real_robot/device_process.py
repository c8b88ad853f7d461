"""The process that alone talks to the arms, and its owner's handle on it.

It runs one thread and one loop. Chunks and states pass through shared memory; the pipe carries a few bytes at the beginning and
the end of an episode and, in lock-step, the clock. If its owner disappears, it brakes, leaves the arms where they are and ends.
"""

import contextlib
import gc
import json
import logging
import multiprocessing
import os
import signal
import struct
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.policies.chunk import ActionChunk
from stringline.real_robot.device_loop import DeviceLoop
from stringline.real_robot.device_state import DeviceState, chunk_layout, chunk_record, state_layout
from stringline.real_robot.drivers.driver import ArmDriver, RobotNotReadyError
from stringline.real_robot.limits import SafetyLimits
from stringline.real_robot.mailbox import Mailbox, Memory, shared_memory

log = logging.getLogger(__name__)

_CHUNK_SLOTS, _STATE_SLOTS = 8, 128
_ANSWER_TIMEOUT_S = 60.0
_BRAKING_CYCLES = 30
_OK = b"ok"
_TIME, _SESSION = struct.Struct("<d"), struct.Struct("<q")
# Modules whose threads or size have no place beside a loop of milliseconds.
_FOREIGN = ("torch", "mujoco")


class DeviceError(RuntimeError):
    """The device process failed or is gone."""


@dataclass(frozen=True, eq=False)
class _Setup:
    """What the spawned process is given."""

    driver: ArmDriver
    embodiment: Embodiment
    limits: SafetyLimits
    period_s: float
    lock_step: bool
    chunks: Memory
    states: Memory
    state_layout: np.dtype[np.void]


class DeviceProcess:
    """A handle on the device process of one group of arms; a context manager that ends it.

    Args:
        driver: Not connected. The process gets a copy; this one is never used.
        embodiment: The body.
        limits: What the safety filter holds it to.
        period_s: Of a cycle.
        lock_step: Whether a cycle runs when it is asked for instead of by the clock.
    """

    def __init__(
        self,
        driver: ArmDriver,
        embodiment: Embodiment,
        limits: SafetyLimits,
        *,
        period_s: float = 0.01,
        lock_step: bool = False,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.servos, self.arms = driver.servos, driver.arms
        self._joints = len(embodiment.joints)
        chunks, states = chunk_layout(self._joints), state_layout(self._joints, len(self.servos), len(self.arms))
        setup = _Setup(
            driver,
            embodiment,
            limits,
            period_s,
            lock_step,
            shared_memory(context, chunks, _CHUNK_SLOTS),
            shared_memory(context, states, _STATE_SLOTS),
            states,
        )
        self._chunks, self._states = Mailbox(setup.chunks, chunks), Mailbox(setup.states, states)
        self._connection, self._far_end = context.Pipe()
        self._process = context.Process(
            target=_main, args=(setup, self._far_end), name="stringline device process", daemon=True
        )
        self._session = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def connect(self) -> None:
        """Starts the process, which opens the ports and checks the robot.

        Raises:
            RobotNotReadyError: With everything that is wrong.
        """
        self._process.start()
        self._far_end.close()
        self._wait()

    def arm(self) -> None:
        """Turns torque on where the arms stand and begins the first episode.

        Raises:
            RobotNotReadyError: A servo refuses.
        """
        self._ask(b"arm")

    def begin(self) -> None:
        """Begins a new episode: brakes, and starts where the arms are, with a soft start, without old chunks and faults."""
        self._session += 1
        self._ask(b"begin" + _SESSION.pack(self._session))

    def send(self, chunk: ActionChunk) -> None:
        """Puts a chunk into the mailbox, where the newest counts.

        Raises:
            ValueError: It does not fit the body.
        """
        self._chunks.put(chunk_record(chunk, self._session, self._joints))

    def latest(self) -> DeviceState:
        """Returns the newest state.

        Raises:
            DeviceError: There is none.
        """
        record = self._states.newest()
        if record is None:
            raise DeviceError("The device process has not told anything yet.")
        return DeviceState.of(record)

    def recent(self) -> list[DeviceState]:
        """Returns the states of about the last second, oldest first."""
        return [DeviceState.of(record) for record in self._states.recent()]

    def observe(self, now: float) -> DeviceState:
        """In lock-step: runs the first half of a cycle at time `now` and returns what was measured."""
        self._ask(b"observe" + _TIME.pack(now))
        return self.latest()

    def act(self) -> DeviceState:
        """In lock-step: runs the second half of the cycle."""
        self._ask(b"act")
        return self.latest()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_alive()

    def disarm(self) -> None:
        """Turns torque off: the arms fall unless something holds them."""
        self._ask(b"disarm")

    def close(self) -> None:
        """Ends the process; arms with torque brake and stay where they are."""
        if self._process.pid is not None:
            with contextlib.suppress(OSError, DeviceError, ValueError):
                self._ask(b"stop")
            self._process.join(10.0)
            if self._process.is_alive():
                log.error("The device process does not end by itself and is killed.")
                self._process.kill()
                self._process.join()
        self._connection.close()

    def _ask(self, request: bytes) -> None:
        try:
            self._connection.send_bytes(request)
        except OSError as error:
            raise DeviceError("The device process is gone.") from error
        self._wait()

    def _wait(self) -> None:
        if not self._connection.poll(_ANSWER_TIMEOUT_S):
            raise DeviceError(f"The device process has not answered for {_ANSWER_TIMEOUT_S} s.")
        try:
            answer = self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise DeviceError("The device process died; its last words are on standard error.") from error
        if answer != _OK:
            raise RobotNotReadyError(json.loads(answer))


def _main(setup: _Setup, connection: Connection) -> None:
    """Runs in the spawned process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The owner is told to stop and stops this process in good order.
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)-7s device process: %(message)s", datefmt="%H:%M:%S"
    )
    if foreign := [name for name in _FOREIGN if name in sys.modules]:
        log.warning("%s got into the device process and may disturb its timing.", ", ".join(foreign))
    try:
        setup.driver.connect()
    except ValueError as error:
        connection.send_bytes(json.dumps(getattr(error, "problems", [str(error)])).encode())
        return
    try:
        connection.send_bytes(_OK)
        _Worker(setup, connection).run()
    finally:
        setup.driver.close()


class _Worker:
    """Runs the loop and obeys the owner."""

    def __init__(self, setup: _Setup, connection: Connection) -> None:
        self._setup, self._connection = setup, connection
        self._loop = DeviceLoop(
            setup.driver,
            setup.embodiment,
            setup.limits,
            setup.period_s,
            chunks=Mailbox(setup.chunks, chunk_layout(len(setup.embodiment.joints))),
            states=Mailbox(setup.states, setup.state_layout),
            state_layout=setup.state_layout,
        )
        self._now = 0.0
        self._armed = self._stopped = False

    def run(self) -> None:
        """Runs until the owner says stop or is gone."""
        gc.collect()
        gc.freeze()
        gc.disable()
        if not self._setup.lock_step:
            _ask_for_priority()
        due = time.monotonic()
        while not self._stopped:
            timeout_s = None
            if self._armed and not self._setup.lock_step:
                due = self._tick(due)
                timeout_s = max(0.0, due - time.monotonic())
            if self._connection.poll(timeout_s):
                self._serve()
        if self._armed and not self._setup.lock_step:
            self._come_to_rest()
        with contextlib.suppress(OSError):
            self._connection.send_bytes(_OK)

    def _clock(self) -> float:
        return self._now if self._setup.lock_step else time.monotonic()

    def _tick(self, due: float) -> float:
        """Runs a cycle if it is due and returns when the next one is. After a delay cycles are skipped, not made up for."""
        now, period = time.monotonic(), self._setup.period_s
        if now < due:
            return due
        self._loop.observe(self._clock)
        self._loop.act(self._clock())
        self._loop.late += int((now - due) / period)
        return max(due + period, now + period / 2)

    def _come_to_rest(self) -> None:
        self._loop.brake()
        for _ in range(_BRAKING_CYCLES):
            self._loop.observe(self._clock)
            self._loop.act(self._clock())
            time.sleep(self._setup.period_s)

    def _serve(self) -> None:
        try:
            request = self._connection.recv_bytes()
        except (EOFError, OSError):
            log.warning("The owner is gone; the arms brake and stay where they are.")
            self._stopped = True
            return
        try:
            self._obey(request)
        except RobotNotReadyError as error:
            self._connection.send_bytes(json.dumps(error.problems).encode())
            return
        if not self._stopped:
            self._connection.send_bytes(_OK)

    def _obey(self, request: bytes) -> None:
        if request.startswith(b"observe"):
            (self._now,) = _TIME.unpack(request[len(b"observe") :])
            self._loop.observe(self._clock)
        elif request == b"act":
            self._loop.act(self._now)
        elif request.startswith(b"begin"):
            (session,) = _SESSION.unpack(request[len(b"begin") :])
            if self._armed and not self._setup.lock_step:
                self._come_to_rest()
            self._loop.begin(session, self._clock)
        elif request == b"arm":
            self._setup.driver.arm()
            self._loop.begin(0, self._clock)
            self._armed = True
        elif request == b"disarm":
            self._armed = False
            self._setup.driver.disarm()
        elif request == b"stop":
            self._stopped = True


def _ask_for_priority() -> None:
    """Asks the system to let this process go first; without permission it runs like any other."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except OSError as error:
        log.info("No real-time priority (%s): cycles may come late on a busy machine.", error.strerror)
