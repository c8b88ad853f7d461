"""The flight recorder of the device process, and the reader of its logs, also of damaged ones.

It notes all bytes on the wire, all cycles and all chunks. It writes into a ring in shared memory,
see `incident_records`, without files, growing memory or waiting. The recorder, another process,
saves the ring to a file after an incident.
"""

import hashlib
import itertools
import json
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.driver_interface.driver import ArmDriver
from stringline.real_robot.incidents.incident_records import Damage, Entry, Kind, Mark, Ring, scan
from stringline.real_robot.ipc.mailbox import Memory, Record
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import REASONS, Mode, Reason

_KNOWN = frozenset(int(kind) for kind in Kind)


@dataclass(frozen=True)
class Incident:
    """The intact records of a log, in order, and its damaged parts."""

    entries: Sequence[Entry]
    damage: Sequence[Damage]

    @classmethod
    def of(cls, data: bytes | mmap.mmap) -> Self:
        """Reads bytes; no content raises an error."""
        found = list(scan(data))
        entries = [part for part in found if isinstance(part, Entry)]
        return cls(entries, [part for part in found if isinstance(part, Damage)])

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Reads a file.

        Raises:
            ValueError: The file does not exist, or has no intact record.
        """
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"The incident log {path} does not exist.")
        with path.open("rb") as file:
            if not path.stat().st_size:
                raise ValueError(f"{path} is empty.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                incident = cls.of(data)
        if not incident.entries:
            raise ValueError(
                f"{path} is not an incident log: its {path.stat().st_size} bytes contain no intact "
                f"record."
            )
        return incident

    @cached_property
    def header(self) -> Mapping[str, Any]:
        """Content of the header; empty if it is damaged."""
        return next(
            (
                header
                for entry in self.entries
                if entry.kind == Kind.HEADER and (header := json_of(entry))
            ),
            {},
        )

    @cached_property
    def layout(self) -> np.dtype[np.void] | None:
        """Layout of the records of cycles; None if the header lacks it."""
        try:
            return layout_of(self.header["layout"])
        except (KeyError, ValueError, TypeError):
            return None

    @cached_property
    def cycles(self) -> list[tuple[Entry, Record]]:
        """The cycles with their decoded records; empty without a layout."""
        layout = self.layout
        if layout is None:
            return []
        whole = [
            entry
            for entry in self.entries
            if entry.kind == Kind.CYCLE and len(entry.payload) == layout.itemsize
        ]
        return [(entry, np.frombuffer(entry.payload, layout).reshape(())) for entry in whole]

    @property
    def missing(self) -> int:
        """Number of missing records between the first and the last."""
        numbers = [entry.number for entry in self.entries if entry.number]
        return sum(max(0, after - before - 1) for before, after in itertools.pairwise(numbers))

    @property
    def ended(self) -> Mapping[str, Any]:
        """Content of the last record; empty if the log is incomplete."""
        return next(
            (json_of(entry) for entry in reversed(self.entries) if entry.kind == Kind.END), {}
        )

    @property
    def unknown(self) -> int:
        """Number of records of unknown kinds."""
        return sum(entry.kind not in _KNOWN for entry in self.entries)


def json_of(entry: Entry) -> dict[str, Any]:
    """Returns the JSON object of a record, empty without one."""
    try:
        content = json.loads(entry.payload)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def plain_layout(layout: np.dtype[np.void]) -> list[Any]:
    """Returns a layout as plain JSON; `layout_of` is the inverse."""
    return [
        [
            field[0],
            plain_layout(layout[field[0]]) if layout[field[0]].names else field[1],
            *map(list, field[2:]),
        ]
        for field in layout.descr
    ]


def layout_of(plain: object) -> np.dtype[np.void]:
    """Returns the layout of a description as by `plain_layout`.

    Raises:
        ValueError: The description is invalid, or has objects.
    """
    try:
        layout = np.dtype(_fields(plain))
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        raise ValueError(f"This is not the layout of a record: {plain!r:.100}") from error
    if layout.hasobject or not layout.names or not layout.itemsize:
        raise ValueError(f"This is not the layout of a record: {plain!r:.100}")
    return layout


def _fields(plain: object) -> list[Any]:
    if not isinstance(plain, list):
        raise TypeError
    fields = []
    for name, kind, *shape in plain:
        fields.append(
            (
                str(name),
                _fields(kind) if isinstance(kind, list) else str(kind),
                *(tuple(s) for s in shape),
            )
        )
    return fields


Vector = NDArray[np.float64]

_CHUNK = struct.Struct("<qq?3xii")
_PLACES = {reason: place for place, reason in enumerate(REASONS)}


def cycle_layout(state: np.dtype[np.void], joints: int) -> np.dtype[np.void]:
    """Returns the layout of the record of a cycle.

    It has the published state; `now`, the time of the target; `chunk`, the number of the chunk in
    force, 0 without one; `target` (J,), the input of the filter, NaN if no action was due;
    `amounts` (R,), by how much each reason acted. The output of the filter is the `command` of the
    state.
    """
    return np.dtype(
        [
            ("state", state),
            ("now", "<f8"),
            ("chunk", "<i8"),
            ("target", "<f8", (joints,)),
            ("amounts", "<f8", (len(REASONS),)),
        ]
    )


@dataclass(frozen=True)
class BusTap:
    """Records the bytes of the bus number `source`."""

    ring: Ring
    source: int

    def sent(self, data: bytes) -> None:
        """Records bytes that were sent."""
        self.ring.put(Kind.SENT, data, self.source)

    def received(self, data: bytes) -> None:
        """Records bytes that were received."""
        self.ring.put(Kind.RECEIVED, data, self.source)


class IncidentLog:
    """Writes the records of the device process."""

    def __init__(self, memory: Memory, state_layout: np.dtype[np.void], joints: int) -> None:
        self._ring = Ring(memory)
        layout = cycle_layout(state_layout, joints)
        self._cycle_bytes = bytearray(layout.itemsize)
        self._cycle: Record = np.frombuffer(self._cycle_bytes, dtype=layout).reshape(())
        self._amounts = self._cycle["amounts"]
        self._fault = False
        self._ring.marks[Mark.PROCESS] = os.getpid()

    def tap(self, source: int) -> BusTap:
        """Returns a listener for the bus of that number."""
        return BusTap(self._ring, source)

    def event(self, what: str, **about: int | str) -> None:
        """Records an event."""
        self._ring.put(Kind.EVENT, json.dumps({"what": what, **about}).encode())

    def chunk(self, chunk: ActionChunk, session: int, number: int) -> None:
        """Records a received chunk; `number` counts admitted ones from 1, others have 0."""
        self._ring.put(Kind.CHUNK, pack_chunk(chunk, session, number))

    def cycle(
        self,
        state: Record,
        now: float,
        chunk: int,
        target: Vector | None,
        amounts: Mapping[Reason, float],
    ) -> None:
        """Records a cycle, and counts a new fault; see `cycle_layout`."""
        cycle = self._cycle
        cycle["state"] = state
        cycle["now"] = now
        cycle["chunk"] = chunk
        cycle["target"] = np.nan if target is None else target
        self._amounts[:] = 0.0
        for reason, amount in amounts.items():
            if (place := _PLACES.get(reason)) is not None:
                self._amounts[place] = amount
        self._ring.put(Kind.CYCLE, self._cycle_bytes)
        fault = int(state["mode"]) == Mode.FAULT
        if fault and not self._fault:
            self._ring.marks[Mark.FAULTS] += 1
        self._fault = fault

    def end(self) -> None:
        """Records the normal end of the process."""
        self.event("end")
        self._ring.marks[Mark.ENDED] = 1


def describe_log(
    state: np.dtype[np.void],
    embodiment: Embodiment,
    limits: SafetyLimits,
    driver: ArmDriver,
    cameras: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns the part of the header that describes the device process, as plain JSON."""
    held = _plain(limits)
    return {
        "layout": plain_layout(cycle_layout(state, len(embodiment.joints))),
        "buses": list(driver.arms),
        "servos": list(driver.servos),
        "joints": [joint.name for joint in embodiment.joints],
        "cameras": list(cameras),
        "reasons": [reason.name for reason in REASONS],
        "limits": held,
        "limits_hash": hashlib.sha256(json.dumps(held).encode()).hexdigest()[:16],
    }


def _plain(value: object) -> Any:
    """Returns a value of limits as plain JSON."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else np.asarray(value).tolist()


def pack_chunk(chunk: ActionChunk, session: int, number: int) -> bytes:
    """Returns a chunk as bytes: session, number, shape, times as float64, actions as float32."""
    head = _CHUNK.pack(session, number, number > 0, *chunk.action.shape)
    return head + chunk.time.astype("<f8").tobytes() + chunk.action.astype("<f4").tobytes()


def unpack_chunk(payload: bytes) -> tuple[ActionChunk, int, int]:
    """Returns a chunk, its session and its number, which is 0 if the filter refused it.

    Raises:
        ValueError: The bytes are not a chunk.
    """
    try:
        session, number, _, length, dims = _CHUNK.unpack_from(payload)
        times = np.frombuffer(payload, "<f8", length, _CHUNK.size)
        action = np.frombuffer(payload, "<f4", length * dims, _CHUNK.size + times.nbytes).reshape(
            length, dims
        )
        return ActionChunk(times, action), session, number
    except (struct.error, ValueError) as error:
        raise ValueError(f"These {len(payload)} bytes are not a chunk ({error}).") from error
