"""The process that brings the ring of the device process into files: on a fault, when asked to, and when somebody dies.

It alone touches the disk, so a disk that is full or slow costs records, which are counted, and
never a cycle of the arms.
"""

import contextlib
import json
import os
import select
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

from stringline.datasets.contract.arguments import NOT_NEGATIVE, POSITIVE
from stringline.real_robot.incidents.incident_files import LogFile
from stringline.real_robot.incidents.incident_format import LONGEST_PAYLOAD
from stringline.real_robot.incidents.incident_ring import Mark, Ring, capacity_for, ring_memory
from stringline.real_robot.ipc.group_signals import leave_to_owner
from stringline.real_robot.ipc.mailbox import Memory

_LOOK_S = 0.05
_END_TIMEOUT_S = 5.0
_KEEP = b"keep"
_STOP = b"stop"


@dataclass(frozen=True)
class LogPlan:
    """What is kept where.

    Attributes:
        folder: Where files go; it is made when the first one is due.
        about: Plain JSON for the header: configuration, hash of the limits, versions, digest of the
            checkpoint.
        seconds: How far back an incident's file reaches.
        after_s: For how long it goes on after its cause.
        everything: Whether all is kept in a file of its own, incident or not.
    """

    folder: Path
    about: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 30.0
    after_s: float = 2.0
    everything: bool = False

    def __post_init__(self) -> None:
        """Refuses spans that keep nothing."""
        if self.seconds not in POSITIVE or self.after_s not in NOT_NEGATIVE:
            raise ValueError(
                f"seconds={self.seconds}, after_s={self.after_s}; allowed: above 0, and 0 or more."
            )


class IncidentRecorder:
    """The owner's handle on the recorder.

    Args:
        plan: What is kept where.
        context: That spawns processes.
        period_s: Of a cycle of the device process.
        about: What the reader of a log has to know: layout of cycles, names of buses, joints and
            servos.

    Attributes:
        folder: Where files go.
        memory: Of the ring, for the device process.
    """

    def __init__(
        self, plan: LogPlan, context: SpawnContext, period_s: float, about: Mapping[str, Any]
    ) -> None:
        if (size := len(json.dumps({**plan.about, **about}))) > LONGEST_PAYLOAD // 2:
            raise ValueError(
                f"What is to be said about a log takes {size} bytes; allowed: "
                f"{LONGEST_PAYLOAD // 2}."
            )
        self.folder = plan.folder
        self.memory = ring_memory(context, capacity_for(plan.seconds + plan.after_s, period_s))
        self._marks = Ring(self.memory).marks
        self._connection, self._far_end = context.Pipe()
        weakref.finalize(
            self, self._connection.close
        )  # At the owner's exit the process learns that it is gone.
        whole = LogPlan(
            plan.folder, {**plan.about, **about}, plan.seconds, plan.after_s, plan.everything
        )
        self._process = context.Process(
            target=run_recorder,
            args=(self.memory, whole, self._far_end),
            name="stringline incident recorder",
            daemon=True,
        )

    def start(self) -> None:
        """Starts the process."""
        self._process.start()
        self._far_end.close()

    def keep(self, reason: str) -> None:
        """Asks for a file of the last seconds, as an operator's key does; does not wait for it."""
        with contextlib.suppress(OSError):
            self._connection.send_bytes(_KEEP + reason.encode())

    @property
    def pid(self) -> int | None:
        """Number of the process."""
        return self._process.pid

    @property
    def lost(self) -> int:
        """Records that no file took before they were overwritten, or before the end."""
        return self._marks[Mark.LOST]

    @property
    def failures(self) -> int:
        """Attempts to write that failed."""
        return self._marks[Mark.FAILURES]

    @property
    def files(self) -> int:
        """Files begun."""
        return self._marks[Mark.FILES]

    def close(self) -> None:
        """Ends the process once everything is on the disk, but waits no longer than some seconds."""
        if self._process.pid is not None:
            with contextlib.suppress(OSError):
                self._connection.send_bytes(_STOP)
            self._process.join(_END_TIMEOUT_S)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
        self._connection.close()


def run_recorder(memory: Memory, plan: LogPlan, connection: Connection) -> None:
    """Runs in the spawned process until the owner says stop or is gone."""
    leave_to_owner()
    keeper = Keeper(memory, plan)
    while True:
        try:
            request = connection.recv_bytes() if connection.poll(_LOOK_S) else b""
        except (EOFError, OSError):
            keeper.bereaved()
            return
        if request == _STOP:
            keeper.close()
            return
        if request.startswith(_KEEP):
            keeper.begin(request[len(_KEEP) :].decode(errors="replace"))
        keeper.look()


class Keeper:
    """Decides when a file is due, and fills it.

    Args:
        memory: Of the ring.
        plan: What is kept where.
    """

    def __init__(self, memory: Memory, plan: LogPlan) -> None:
        self._plan = plan
        self._ring = Ring(memory)
        self._everything = self._file("session", 0) if plan.everything else None
        self._incident: LogFile | None = None
        self._until = 0.0
        self._faults = self._ring.marks[Mark.FAULTS]
        self._dead = False
        self._device = -1

    def look(self) -> None:
        """Looks for causes and writes what is due."""
        if (faults := self._ring.marks[Mark.FAULTS]) != self._faults:
            self._faults = faults
            self.begin("fault")
        if not self._dead and self._device_died():
            self._dead = True
            self.begin("the device process died")
        if self._everything is not None:
            self._everything.pump()
        if self._incident is not None:
            self._incident.pump()
            if time.monotonic() >= self._until:
                self._end_incident()

    def begin(self, reason: str) -> None:
        """Begins a file with what the ring holds; one that is being written goes on for longer instead."""
        self._until = time.monotonic() + self._plan.after_s
        if self._incident is None:
            self._incident = self._file("incident", 0, reason)
        self._incident.pump()

    def _end_incident(self) -> None:
        if self._incident is not None:
            self._incident.close("the time after the incident is over")
            self._incident = None

    def bereaved(self) -> None:
        """The owner is gone: waits until the arms have come to rest, and keeps what led to it."""
        deadline = time.monotonic() + _END_TIMEOUT_S
        self.begin("the owner of the device process is gone")
        while time.monotonic() < deadline and not self._gone():
            time.sleep(_LOOK_S)
            self.look()
        self.close()

    def close(self) -> None:
        """Completes all files."""
        self.look()
        self._end_incident()
        if self._everything is not None:
            self._everything.close("the end")

    def _file(self, kind: str, start: int, reason: str = "everything") -> LogFile:
        name = f"{kind}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}"
        known = (
            sum(1 for _ in self._plan.folder.glob(f"{name}*")) if self._plan.folder.is_dir() else 0
        )
        clock = {"monotonic_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}
        header = {
            **self._plan.about,
            "reason": reason,
            "clock": clock,
            "device": self._ring.marks[Mark.PROCESS],
        }
        return LogFile(self._plan.folder / f"{name}-{known}.log", self._ring, start, header)

    def _gone(self) -> bool:
        """Says whether the device process has ended, well or not."""
        if self._device < 0 and (number := self._ring.marks[Mark.PROCESS]):
            try:
                self._device = os.pidfd_open(number)
            except ProcessLookupError:
                return True
            except OSError:  # The system cannot tell.
                return bool(self._ring.marks[Mark.ENDED])
        return self._device >= 0 and bool(select.select([self._device], [], [], 0)[0])

    def _device_died(self) -> bool:
        return self._gone() and not self._ring.marks[Mark.ENDED]
