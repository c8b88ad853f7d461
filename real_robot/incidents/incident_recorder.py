"""The process that saves the ring of the device process: after faults, deaths and on request.

It alone accesses the disk, so a full or slow disk costs records, which are counted, and never a
cycle of the arms. Log files are append-only and have complete records, also on such a disk.
"""

import contextlib
import json
import os
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from io import FileIO
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from stringline.datasets.contract.argument_checks import NOT_NEGATIVE, POSITIVE
from stringline.datasets.files.atomic import write_all
from stringline.real_robot.incidents.incident_records import (
    HEAD,
    LONGEST_PAYLOAD,
    Entry,
    Kind,
    Mark,
    Ring,
    capacity_for,
    encode,
    record_ends,
    ring_memory,
)
from stringline.real_robot.ipc.child_process import ChildProcess, leave_to_owner
from stringline.real_robot.ipc.mailbox import Memory

_ATTEMPT_EVERY_S = 0.5
_SYNC_EVERY_S = 1.0
_PIECE = 1 << 20


class LogFile:
    """A log file that is being written.

    Records that the disk rejects stay in the ring and are written later; those that are overwritten
    there before are lost, and counted.

    Args:
        path: Path of the file, which must not exist.
        start: Position of the first record in the ring; 0: the oldest one.
    """

    def __init__(self, path: Path, ring: Ring, start: int, header: Mapping[str, Any]) -> None:
        self.path = path
        self.lost = 0
        self._ring = ring
        self._place = start
        self._header = encode(
            Entry(Kind.HEADER, 0, 0, time.monotonic_ns(), json.dumps(header).encode())
        )
        self._file: FileIO | None = None
        self._size = self._number = 0
        self._again = self._synced = 0.0

    def pump(self) -> None:
        """Writes the new records of the ring. After an error it waits for half a second."""
        if time.monotonic() < self._again:
            return
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("ab", buffering=0)
                self._ring.marks[Mark.FILES] += 1
            if self._size or self._append(self._header):
                while self._append_new() and time.monotonic() >= self._again:
                    pass
            if time.monotonic() > self._synced + _SYNC_EVERY_S:
                self._sync()
        except OSError:
            self._failed()

    def _append_new(self) -> bool:
        """Writes a part of the new records, to bound the memory; returns whether it found any."""
        data, end = self._ring.read(self._place, _PIECE)
        if data:
            first = int(HEAD.unpack_from(data)[6])
            if self._number:
                self._lose(first - self._number - 1)
            kept = self._append(data)
            self._place = end - len(data) + kept
            self._number = first - 1 + len(record_ends(data[:kept]))
        return bool(data)

    def _append(self, data: bytes) -> int:
        """Writes records, and returns the size of those that were written completely."""
        assert self._file is not None
        try:
            write_all(self._file.fileno(), memoryview(data))
            kept = len(data)
        except OSError:
            self._failed()
            written = os.fstat(self._file.fileno()).st_size - self._size
            kept = max(record_ends(data[:written]), default=0)
            self._file.truncate(self._size + kept)
        self._size += kept
        return kept

    def _failed(self) -> None:
        self._ring.marks[Mark.FAILURES] += 1
        self._again = time.monotonic() + _ATTEMPT_EVERY_S

    def _lose(self, records: int) -> None:
        self.lost += records
        self._ring.marks[Mark.LOST] += records

    def _sync(self) -> None:
        assert self._file is not None
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def close(self, reason: str) -> None:
        """Writes the remaining records and the reason of the end, and syncs; never raises."""
        self._again = 0.0
        self.pump()
        if self._again:  # The write failed; otherwise new records in the ring came after the end.
            self._lose(len(record_ends(self._ring.read(self._place)[0])))
        if self._file is None:
            return
        end = {"what": reason, "lost": self.lost, "failures": self._ring.marks[Mark.FAILURES]}
        try:
            self._append(
                encode(Entry(Kind.END, 0, 0, time.monotonic_ns(), json.dumps(end).encode()))
            )
            self._sync()
        except OSError:
            self._failed()
        self._file.close()
        self._file = None


_POLL_S = 0.05
_END_TIMEOUT_S = 5.0
_KEEP = b"keep"
_STOP = b"stop"


@dataclass(frozen=True)
class LogPlan:
    """Settings of the incident logs.

    Attributes:
        folder: Folder of the files; the first file creates it.
        about: Plain JSON for the header: configuration, versions, digest of the checkpoint.
        seconds: Time before an incident that its file covers.
        after_s: Time after an incident that its file covers.
        everything: Whether another file holds the whole session.
    """

    folder: Path
    about: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 30.0
    after_s: float = 2.0
    everything: bool = False

    def __post_init__(self) -> None:
        """Checks the durations."""
        if self.seconds not in POSITIVE or self.after_s not in NOT_NEGATIVE:
            raise ValueError(
                f"seconds={self.seconds}, after_s={self.after_s}; allowed: above 0, and 0 or more."
            )


class IncidentRecorder:
    """The owner's handle on the recorder.

    Args:
        about: Description of the device process for the header, see `describe_log`.
    """

    def __init__(self, plan: LogPlan, period_s: float, about: Mapping[str, Any]) -> None:
        header = {**plan.about, **about}
        if (size := len(json.dumps(header))) > LONGEST_PAYLOAD // 2:
            raise ValueError(
                f"The header of the incident log has {size} bytes; allowed: {LONGEST_PAYLOAD // 2}."
            )
        self.folder = plan.folder
        self.memory = ring_memory(capacity_for(plan.seconds + plan.after_s, period_s))
        self._marks = Ring(self.memory).marks
        self._child = ChildProcess(
            run_recorder,
            (self.memory, replace(plan, about=header)),
            Pipe(),
            name="stringline incident recorder",
            end_timeout_s=_END_TIMEOUT_S,
            stop=lambda pipe: pipe.send_bytes(_STOP),
        )

    def start(self) -> None:
        """Starts the process."""
        self._child.start()

    def keep(self, reason: str) -> None:
        """Requests a file of the last seconds, without waiting for it."""
        with contextlib.suppress(OSError):
            self._child.channel.send_bytes(_KEEP + reason.encode())

    @property
    def pid(self) -> int | None:
        """Number of the process; None before the start."""
        return self._child.pid

    @property
    def lost(self) -> int:
        """Number of records that were overwritten, or left at the end, before they were saved."""
        return self._marks[Mark.LOST]

    @property
    def failures(self) -> int:
        """Number of failed attempts to write."""
        return self._marks[Mark.FAILURES]

    @property
    def files(self) -> int:
        """Number of files."""
        return self._marks[Mark.FILES]

    def close(self) -> None:
        """Ends the process after it has saved all records, at most some seconds later."""
        self._child.end()


def run_recorder(memory: Memory, plan: LogPlan, connection: Connection) -> None:
    """Runs in the spawned process until the owner requests the end or disappears."""
    leave_to_owner()
    trigger = IncidentTrigger(memory, plan)
    while True:
        try:
            request = connection.recv_bytes() if connection.poll(_POLL_S) else b""
        except (EOFError, OSError):
            trigger.owner_died()
            return
        if request == _STOP:
            trigger.close()
            return
        if request.startswith(_KEEP):
            trigger.begin(request[len(_KEEP) :].decode(errors="replace"))
        trigger.update()


class IncidentTrigger:
    """Detects incidents and writes their files."""

    def __init__(self, memory: Memory, plan: LogPlan) -> None:
        self._plan = plan
        self._ring = Ring(memory)
        self._everything = self._file("session", 0) if plan.everything else None
        self._incident: LogFile | None = None
        self._until = 0.0
        self._faults = self._ring.marks[Mark.FAULTS]
        self._dead = False
        self._device = -1

    def update(self) -> None:
        """Detects new incidents and writes new records to the open files."""
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
        """Opens a file with the content of the ring, or extends the time of the open one."""
        self._until = time.monotonic() + self._plan.after_s
        if self._incident is None:
            self._incident = self._file("incident", 0, reason)
        self._incident.pump()

    def _end_incident(self) -> None:
        if self._incident is not None:
            self._incident.close("the time after the incident is over")
            self._incident = None

    def owner_died(self) -> None:
        """Saves the last seconds after the owner has died, until the arms are at rest."""
        deadline = time.monotonic() + _END_TIMEOUT_S
        self.begin("the owner of the device process died")
        while time.monotonic() < deadline and not self._device_ended():
            time.sleep(_POLL_S)
            self.update()
        self.close()

    def close(self) -> None:
        """Completes all files."""
        self.update()
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

    def _device_ended(self) -> bool:
        """Returns whether the device process has ended, normally or not."""
        if self._device < 0 and (number := self._ring.marks[Mark.PROCESS]):
            try:
                self._device = os.pidfd_open(number)
            except ProcessLookupError:
                return True
            except OSError:  # The system has no such handles.
                return bool(self._ring.marks[Mark.ENDED])
        return self._device >= 0 and bool(select.select([self._device], [], [], 0)[0])

    def _device_died(self) -> bool:
        return self._device_ended() and not self._ring.marks[Mark.ENDED]
