"""The owner's handle on the device process, which alone communicates with the arms.

Chunks and states pass through shared memory; a pipe carries the few bytes of requests and, in
lock-step, the clock. Context managers brake the arms at the end of a block, however it ends, and
`HoldWatch` tells whether, and why, the arms have held.
"""

import functools
import json
import logging
import operator
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import c_double
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
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
from stringline.real_robot.device.scheduling import Priority, busy_machine
from stringline.real_robot.driver_interface.driver import ArmDriver, RobotNotReadyError
from stringline.real_robot.incidents.incident_log import describe_log
from stringline.real_robot.incidents.incident_recorder import IncidentRecorder, LogPlan
from stringline.real_robot.ipc.child_process import ChildProcess
from stringline.real_robot.ipc.heartbeat import (
    NO_INPUTS,
    CameraLiveness,
    Heartbeat,
    MotionInputs,
    silence_s,
)
from stringline.real_robot.ipc.mailbox import Mailbox, shared_memory
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Mode, Reason

log = logging.getLogger(__name__)

_CHUNK_SLOTS = 8
_STATE_SLOTS = 128
# A process that beats answers later only if a call hangs: controllers are armed within 20 s.
_ANSWER_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 10.0
# Longest time to the first beat: a busy machine imports the package in some seconds.
_START_S = 20.0
_POLL_S = 0.1
# Without a beat for that long the device process counts as silent, which is a fault;
_SILENT_S = 0.15
# and for that long, its answers are not waited for.
_UNRESPONSIVE_S = 2.0
_DIED = "The device process died; standard error has its last messages."


class DeviceError(RuntimeError):
    """The device process failed or has ended."""


class DeviceProcess:
    """The device process of one group of arms; a context manager that ends it.

    Args:
        driver: Not connected. The process gets a copy; this one is never used.
        lock_step: Whether cycles run on request instead of by the clock.
        log: Where incident logs are written; if None, no ring and no logs.
        cameras: Monitored cameras; the arms hold without fresh images of all of them.
        priority: Need of real-time priority; if None, that of real arms, see `Priority.of`.
        inputs: Inputs that permit motion.

    Attributes:
        incidents: Handle on the incident recorder, None without a log.
        acknowledged: Fault reasons known to the operator; the next `begin` resets no others.
        new_world: Whether the next `begin` is that of another simulated world, in which no fault
            and no goal of a gripper of the world before matters.
    """

    _session = 0

    def __init__(
        self,
        driver: ArmDriver,
        embodiment: Embodiment,
        limits: SafetyLimits,
        *,
        period_s: float = 0.01,
        lock_step: bool = False,
        log: LogPlan | None = None,
        cameras: CameraLiveness | None = None,
        priority: Priority | None = None,
        inputs: MotionInputs = NO_INPUTS,
    ) -> None:
        self.servos = driver.servos
        self.arms = driver.arms
        self.limits = limits
        self.cameras = () if cameras is None else cameras.names
        chunks = chunk_layout(len(embodiment.joints))
        states = state_layout(len(embodiment.joints), len(self.servos), len(self.arms))
        about = describe_log(states, embodiment, limits, driver, self.cameras)
        self.incidents = None if log is None else IncidentRecorder(log, period_s, about)
        self._setup = DeviceSetup(
            driver,
            embodiment,
            limits,
            period_s,
            lock_step,
            chunks=shared_memory(chunks, _CHUNK_SLOTS),
            states=shared_memory(states, _STATE_SLOTS),
            state_layout=states,
            log=None if self.incidents is None else self.incidents.memory,
            cameras=cameras,
            priority=priority or Priority.of(period_s),
            inputs=inputs,
        )
        self._heartbeat = Heartbeat(self._setup.heartbeat)
        self._chunks = Mailbox(self._setup.chunks, chunks)
        self._states = Mailbox(self._setup.states, states)
        self._child = _child(self._setup)
        self.acknowledged = Reason(0)
        self.new_world = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def connect(self) -> None:
        """Starts the process, which opens the ports and checks the robot."""
        if self.incidents is not None:
            self.incidents.start()
        self._heartbeat.start()
        if not self._setup.lock_step:
            self._setup.pulse.value = time.monotonic() + _START_S - _UNRESPONSIVE_S
        self._child.start()
        self._wait()

    def arm(self) -> list[str]:
        """Turns torque on at the measured position and begins the first episode.

        Returns remarks for the operator, a sentence each.
        """
        return self._request(b"arm")

    def begin(self) -> None:
        """Begins an episode: brakes, drops all chunks, and starts softly from the measured pose.

        By the clock it resets only acknowledged fault reasons, so a fault that occurs during
        braking stays one. After the reset of an error of a servo, or of a lost port, the driver
        brings the arms up again; what refuses is logged and stays a fault.
        """
        self._session += 1
        acknowledged = self.acknowledged
        new_world = self.new_world
        self.acknowledged = Reason(0)
        self.new_world = False
        request = b"begin" + EPISODE.pack(self._session, acknowledged, new_world)
        for problem in self._request(request):
            log.error("Not brought up again: %s", problem)

    def send(
        self, chunk: ActionChunk, image_age_s: float = 0.0, observed_s: float | None = None
    ) -> None:
        """Puts a chunk into the mailbox; the newest one is followed.

        `image_age_s` is the age of the oldest image at the time of the observation. `observed_s` is
        that time on the clock of the states; if None, the time of the first action.
        """
        joints = len(self._setup.embodiment.joints)
        self._chunks.put(chunk_record(chunk, self._session, joints, image_age_s, observed_s))

    def latest(self) -> DeviceState:
        """Returns the newest state; it is a fault if the process has run no cycle lately.

        Raises:
            DeviceError: The process has published no state yet, or has ended.
        """
        record = self._states.newest()
        if record is None:
            raise DeviceError("The device process has published no state yet.")
        if not self.alive:
            raise DeviceError(_DIED)
        state = DeviceState.of(record)
        return state.silent() if self.silence_s > _SILENT_S else state

    @property
    def silence_s(self) -> float:
        """Time since the last beat, seconds; 0 before it is due and in lock-step."""
        return silence_s(self._setup.pulse)

    def hold(self) -> None:
        """Requests a hold until the next `begin`; it acts in the next cycle, without an answer."""
        self._setup.hold.value = True

    def recent(self) -> list[DeviceState]:
        """Returns the states of about the last second, oldest first."""
        return [DeviceState.of(record) for record in self._states.recent()]

    def observe(self, now: float) -> DeviceState:
        """Runs the first half of a cycle at time `now` in lock-step; returns the measured state."""
        self._request(b"observe" + TIME.pack(now))
        return self.latest()

    def act(self) -> DeviceState:
        """Runs the second half of the cycle in lock-step; returns the state."""
        self._request(b"act")
        return self.latest()

    @property
    def pid(self) -> int | None:
        """Number of the process; None before the start."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._child.alive

    def disarm(self) -> None:
        """Turns torque off; the arms fall unless they are supported."""
        self._request(b"disarm")

    def close(self) -> None:
        """Ends the process; arms with torque brake and keep their position."""
        if self.alive and self.silence_s > _UNRESPONSIVE_S:
            log.error("The device process does not respond and is killed.")
            self._child.kill()
        if not self._child.end():
            log.error("The device process did not end by itself and was killed.")
        self._heartbeat.stop()
        if self.incidents is not None:
            self.incidents.close()

    def _request(self, message: bytes) -> list[str]:
        try:
            self._child.channel.send_bytes(message)
        except OSError as error:
            raise DeviceError("The device process has ended.") from error
        return self._wait()

    def _wait(self) -> list[str]:
        deadline = time.monotonic() + _ANSWER_TIMEOUT_S
        while not self._child.channel.poll(_POLL_S):
            if self.silence_s > _UNRESPONSIVE_S or time.monotonic() > deadline:
                raise DeviceError(
                    "The device process does not answer. The arms hold their last targets; use the "
                    f"emergency stop if they move. {busy_machine()}".rstrip()
                )
        try:
            answer = self._child.channel.recv_bytes()
        except (EOFError, OSError) as error:
            raise DeviceError(_DIED) from error
        if not answer.startswith(OK):
            raise RobotNotReadyError(json.loads(answer))
        notes: list[str] = json.loads(answer[len(OK) :] or b"[]")
        return notes


def _child(setup: DeviceSetup) -> ChildProcess[Connection]:
    return ChildProcess(
        run_device,
        (setup,),
        Pipe(),
        name="stringline device process",
        end_timeout_s=_END_TIMEOUT_S,
        stop=partial(_stop, setup.pulse),
    )


def _stop(pulse: c_double, pipe: Connection) -> None:
    """Requests the end and waits until the arms are at rest, or the process does not respond."""
    pipe.send_bytes(b"stop")
    deadline = time.monotonic() + _END_TIMEOUT_S
    while silence_s(pulse) <= _UNRESPONSIVE_S and time.monotonic() < deadline:
        if pipe.poll(_POLL_S):
            pipe.recv_bytes()
            return


@contextmanager
def braked_after(device: DeviceProcess) -> Iterator[None]:
    """Brakes the arms at the end of the block, also after an error or Ctrl-C."""
    with braked_on_error(device):
        yield
    brake(device)


@contextmanager
def braked_on_error(device: DeviceProcess) -> Iterator[None]:
    """Brakes the arms if the block ends by an error or Ctrl-C."""
    try:
        yield
    except BaseException:
        with suppress(DeviceError, RobotNotReadyError):
            brake(device)
        raise


def brake(device: DeviceProcess) -> None:
    """Drops the plan in force. A fault stays: the arms hold, and only an operator resets it."""
    device.hold()
    if device.latest().mode is not Mode.FAULT:
        device.begin()


NO_HOLD = Reason(0)


def hold_reasons(state: DeviceState) -> Reason:
    """Returns the reasons of a hold that is not due to a missing target; without one, none."""
    waits = state.mode is not Mode.HOLD or state.reasons & Reason.STARVED
    return NO_HOLD if waits else state.reasons


class HoldWatch:
    """Reports the holds since its last report, also short ones.

    Args:
        device: Its states of about the last second are seen.
    """

    def __init__(self, device: DeviceProcess) -> None:
        self._device = device
        self._seen = -1

    def reasons(self) -> Reason:
        """Returns the reasons of all holds since the last call."""
        fresh = [state for state in self._device.recent() if state.tick > self._seen]
        self._seen = max([self._seen, *(state.tick for state in fresh)])
        return functools.reduce(operator.or_, map(hold_reasons, fresh), NO_HOLD)
