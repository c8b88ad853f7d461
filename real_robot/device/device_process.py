"""The owner's handle on the process that alone talks to the arms.

Chunks and states pass through shared memory; a pipe carries a few bytes at the beginning and the
end of an episode and, in lock-step, the clock.
"""

import contextlib
import json
import logging
import multiprocessing
import weakref
from types import TracebackType
from typing import Self

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.device.device_state import (
    DeviceState,
    chunk_layout,
    chunk_record,
    state_layout,
)
from stringline.real_robot.device.device_worker import EPISODE, OK, TIME, DeviceSetup, run_device
from stringline.real_robot.driver_interface.driver import ArmDriver, RobotNotReadyError
from stringline.real_robot.incidents.incident_log import describe_log
from stringline.real_robot.incidents.incident_recorder import IncidentRecorder, LogPlan
from stringline.real_robot.ipc.camera_liveness import Liveliness
from stringline.real_robot.ipc.heartbeat import Heartbeat, heartbeat_memory
from stringline.real_robot.ipc.mailbox import Mailbox, shared_memory
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Reason

log = logging.getLogger(__name__)

_CHUNK_SLOTS = 8
_STATE_SLOTS = 128
_ANSWERTIMEOUT_S = 60.0
_DIED = "The device process died; its last words are on standard error."


class DeviceError(RuntimeError):
    """The device process failed or is gone."""


class DeviceProcess:
    """A handle on the device process of one group of arms; a context manager that ends it.

    Args:
        driver: Not connected. The process gets a copy; this one is never used.
        embodiment: The body.
        limits: What the safety filter holds it to.
        period_s: Of a cycle.
        lock_step: Whether a cycle runs when it is asked for instead of by the clock.
        log: What of the wire and the loop is kept where; None keeps nothing.
        cameras: Those without whose fresh images the arms hold.

    Attributes:
        incidents: Handle on what is kept, if anything is.
        limits: As given.
        cameras: Names of those that are watched.
        told: Reasons of a fault that somebody was told; the next `begin` clears no others.
    """

    def __init__(
        self,
        driver: ArmDriver,
        embodiment: Embodiment,
        limits: SafetyLimits,
        *,
        period_s: float = 0.01,
        lock_step: bool = False,
        log: LogPlan | None = None,
        cameras: Liveliness | None = None,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.servos = driver.servos
        self.arms = driver.arms
        self.limits = limits
        self.cameras: tuple[str, ...] = () if cameras is None else cameras.names
        self._joints = len(embodiment.joints)
        chunks = chunk_layout(self._joints)
        states = state_layout(self._joints, len(self.servos), len(self.arms))
        self.incidents: IncidentRecorder | None = None
        if log is not None:
            about = describe_log(states, embodiment, limits, driver, self.cameras)
            self.incidents = IncidentRecorder(log, context, period_s, about)
        heartbeat = heartbeat_memory(context)
        self._heartbeat = Heartbeat(heartbeat)
        setup = DeviceSetup(
            driver,
            embodiment,
            limits,
            period_s,
            lock_step,
            shared_memory(context, chunks, _CHUNK_SLOTS),
            shared_memory(context, states, _STATE_SLOTS),
            states,
            None if self.incidents is None else self.incidents.memory,
            heartbeat,
            cameras,
        )
        self._chunks = Mailbox(setup.chunks, chunks)
        self._states = Mailbox(setup.states, states)
        self._connection, self._far_end = context.Pipe()
        weakref.finalize(
            self, self._connection.close
        )  # At the owner's exit the process learns that it is gone.
        self._process = context.Process(
            target=run_device,
            args=(setup, self._far_end),
            name="stringline device process",
            daemon=True,
        )
        self._session = 0
        self.told = Reason(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def connect(self) -> None:
        """Starts the process, which opens the ports and checks the robot.

        Raises:
            RobotNotReadyError: With everything that is wrong.
        """
        if self.incidents is not None:
            self.incidents.start()
        self._heartbeat.start()
        self._process.start()
        self._far_end.close()
        self._wait()

    def arm(self) -> list[str]:
        """Turns torque on where the arms stand and begins the first episode.

        Returns:
            What is worth knowing, a sentence each.

        Raises:
            RobotNotReadyError: A servo refuses.
        """
        return self._ask(b"arm")

    def begin(self) -> None:
        """Begins a new episode: brakes, and starts where the arms are, with a soft start, without old chunks.

        By the clock a fault stays one, but for the reasons that somebody was told: such as one that
        comes up while they brake.
        """
        self._session += 1
        told = self.told
        self.told = Reason(0)
        self._ask(b"begin" + EPISODE.pack(self._session, told))

    def send(
        self, chunk: ActionChunk, image_age_s: float = 0.0, observed_s: float | None = None
    ) -> None:
        """Puts a chunk into the mailbox, where the newest counts.

        Args:
            chunk: To be followed.
            image_age_s: How old the oldest image was that it was planned from, when its observation
                was made.
            observed_s: When that was, on the clock of the states; None: when its first action is
                due.

        Raises:
            ValueError: It does not fit the body.
        """
        self._chunks.put(chunk_record(chunk, self._session, self._joints, image_age_s, observed_s))

    def latest(self) -> DeviceState:
        """Returns the newest state.

        Raises:
            DeviceError: There is none, or nothing new will come, because the process is gone.
        """
        record = self._states.newest()
        if record is None:
            raise DeviceError("The device process has not told anything yet.")
        if not self.alive:
            raise DeviceError(_DIED)
        return DeviceState.of(record)

    def recent(self) -> list[DeviceState]:
        """Returns the states of about the last second, oldest first."""
        return [DeviceState.of(record) for record in self._states.recent()]

    def observe(self, now: float) -> DeviceState:
        """In lock-step: runs the first half of a cycle at time `now` and returns what was measured."""
        self._ask(b"observe" + TIME.pack(now))
        return self.latest()

    def act(self) -> DeviceState:
        """In lock-step: runs the second half of the cycle."""
        self._ask(b"act")
        return self.latest()

    @property
    def pid(self) -> int | None:
        """Number of the process, once it is started."""
        return self._process.pid

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
        self._heartbeat.stop()
        self._connection.close()
        if self.incidents is not None:
            self.incidents.close()

    def _ask(self, request: bytes) -> list[str]:
        try:
            self._connection.send_bytes(request)
        except OSError as error:
            raise DeviceError("The device process is gone.") from error
        return self._wait()

    def _wait(self) -> list[str]:
        if not self._connection.poll(_ANSWERTIMEOUT_S):
            raise DeviceError(f"The device process has not answered for {_ANSWERTIMEOUT_S} s.")
        try:
            answer = self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise DeviceError(_DIED) from error
        if not answer.startswith(OK):
            raise RobotNotReadyError(json.loads(answer))
        notes: list[str] = json.loads(answer[len(OK) :] or b"[]")
        return notes
