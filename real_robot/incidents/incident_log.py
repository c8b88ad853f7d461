"""What the device process notes, always: every byte on the wire, every cycle, every chunk, and what the safety filter did.

It goes into a ring in shared memory, see `incident_ring`; no file is touched here, nothing grows
and nobody is waited for. The recorder, a process of its own, brings the ring into a file when there
is a reason to.
"""

import hashlib
import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.driver_interface.driver import ArmDriver
from stringline.real_robot.incidents.incident_format import Kind
from stringline.real_robot.incidents.incident_reader import plain_layout
from stringline.real_robot.incidents.incident_ring import Mark, Ring
from stringline.real_robot.ipc.mailbox import Memory, Record
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import REASONS, Mode, Reason

Vector = NDArray[np.float64]

_CHUNK = struct.Struct("<qq?3xii")
_PLACES = {reason: place for place, reason in enumerate(REASONS)}


def cycle_layout(state: np.dtype[np.void], joints: int) -> np.dtype[np.void]:
    """Layout of the record of a cycle.

    The state as it is told; `now`, the time that targets were sampled for; `chunk`, the number of
    the chunk in force, 0 for none; `target` (J,), the input of the filter, not a number where none
    was due; `amounts` (R,), by how much each reason acted. The output of the filter is the state's
    `command`.
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
    """Listens to a bus.

    Attributes:
        ring: Where the bytes go.
        source: Number of the bus.
    """

    ring: Ring
    source: int

    def sent(self, data: bytes) -> None:
        """Notes bytes that went out."""
        self.ring.put(Kind.SENT, data, self.source)

    def received(self, data: bytes) -> None:
        """Notes bytes that came in."""
        self.ring.put(Kind.RECEIVED, data, self.source)


class IncidentLog:
    """The device process's pen.

    Args:
        memory: Of the ring.
        state_layout: Of the states that the loop tells.
        joints: How many the body has.
    """

    def __init__(self, memory: Memory, state_layout: np.dtype[np.void], joints: int) -> None:
        self._ring = Ring(memory)
        layout = cycle_layout(state_layout, joints)
        self._cycle_bytes = bytearray(layout.itemsize)
        self._cycle: Record = np.frombuffer(self._cycle_bytes, dtype=layout).reshape(())
        self._amounts = self._cycle["amounts"]
        self._fault = False
        self._ring.marks[Mark.PROCESS] = os.getpid()

    def tap(self, source: int) -> BusTap:
        """Returns who listens to the bus of that number."""
        return BusTap(self._ring, source)

    def event(self, what: str, **about: int | str) -> None:
        """Notes that something happened."""
        self._ring.put(Kind.EVENT, json.dumps({"what": what, **about}).encode())

    def chunk(self, chunk: ActionChunk, session: int, number: int) -> None:
        """Notes a chunk that came in.

        Args:
            chunk: Whatever it holds.
            session: That it bears.
            number: Counted from 1 if the filter admitted it, else 0.
        """
        self._ring.put(Kind.CHUNK, pack_chunk(chunk, session, number))

    def cycle(
        self,
        state: Record,
        now: float,
        chunk: int,
        target: Vector | None,
        amounts: Mapping[Reason, float],
    ) -> None:
        """Notes a cycle, and a fault if it has just begun.

        Args:
            state: As it was told.
            now: Time that the target was sampled for.
            chunk: Number of the chunk in force, 0 for none.
            target: (J,) input of the filter.
            amounts: By how much each reason acted.
        """
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
        """Notes that the process ends in good order."""
        self.event("end")
        self._ring.marks[Mark.ENDED] = 1


def describe_log(
    state: np.dtype[np.void],
    embodiment: Embodiment,
    limits: SafetyLimits,
    driver: ArmDriver,
    cameras: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns what the reader of a log has to know, as plain JSON."""
    held = {
        field.name: np.asarray(getattr(limits, field.name)).tolist() for field in fields(limits)
    }
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


def pack_chunk(chunk: ActionChunk, session: int, number: int) -> bytes:
    """Returns a chunk as bytes: session, number, shape, times as float64, actions as float32."""
    head = _CHUNK.pack(session, number, number > 0, *chunk.action.shape)
    return head + chunk.time.astype("<f8").tobytes() + chunk.action.astype("<f4").tobytes()


def unpack_chunk(payload: bytes) -> tuple[ActionChunk, int, int]:
    """Returns a chunk, its session and its number, which is 0 if it was refused.

    Raises:
        ValueError: These bytes are no chunk.
    """
    try:
        session, number, _, length, dims = _CHUNK.unpack_from(payload)
        times = np.frombuffer(payload, "<f8", length, _CHUNK.size)
        action = np.frombuffer(payload, "<f4", length * dims, _CHUNK.size + times.nbytes).reshape(
            length, dims
        )
        return ActionChunk(times, action), session, number
    except (struct.error, ValueError) as error:
        raise ValueError(f"These {len(payload)} bytes are no chunk ({error}).") from error
