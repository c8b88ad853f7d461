"""The records of chunks, which enter the device process, and of states, which leave it.

A state keeps the cause of a fault at the time of the fault, since much of it is reported in a
single cycle only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.driver_interface.driver import ArmState, Vector
from stringline.real_robot.ipc.mailbox import Record
from stringline.real_robot.safety.reasons import (
    NO_FOLLOWING_ERROR,
    REASONS,
    FollowingError,
    Mode,
    Reason,
)

_FIELDS = ("servo_error", "servo_misses", "lost", "interlock")


def cause_layout(servos: int, arms: int) -> np.dtype[np.void]:
    """Layout of a cause."""
    return np.dtype(
        [
            ("servo_error", "<u2", (servos,)),
            ("servo_misses", "<i4", (servos,)),
            ("lost", "?", (arms,)),
            ("interlock", "u1", (arms,)),
            ("old_cameras", "<i8"),
        ]
    )


@dataclass(frozen=True, eq=False)
class Cause:
    """The worst of each quantity over the cycles in which a reason of the fault was new.

    Quantities are those of `ArmState` and `DeviceState`.
    """

    servo_error: NDArray[Any]
    servo_misses: NDArray[np.int32]
    lost: NDArray[np.bool_]
    interlock: NDArray[np.uint8]
    old_cameras: int = 0

    @classmethod
    def of(cls, arms: ArmState, old_cameras: int) -> Self:
        """Returns the problems of one cycle."""
        return cls(arms.servo_error, arms.servo_misses, arms.lost, arms.interlock, old_cameras)

    @classmethod
    def read(cls, record: Record) -> Self:
        """Reads a record."""
        return cls(
            **{field: record[field].copy() for field in _FIELDS},
            old_cameras=int(record["old_cameras"]),
        )

    def write(self, record: Record) -> None:
        """Writes a record."""
        for field in _FIELDS:
            if len(values := getattr(self, field)):
                record[field] = values
        record["old_cameras"] = self.old_cameras

    def joined(self, other: Self) -> Self:
        """Returns the problems of both causes."""
        return type(self)(
            self.servo_error | other.servo_error,
            np.maximum(self.servo_misses, other.servo_misses),
            self.lost | other.lost,
            np.maximum(self.interlock, other.interlock),
            self.old_cameras | other.old_cameras,
        )


LONGEST_CHUNK = 256
_STATE_FIELDS = (
    *("session", "tick", "late", "mode", "reasons", "fault_reasons"),
    *("command", "writes", "old_cameras"),
)
_ARM_FIELDS = (
    *("time", "position", "velocity", "effort"),
    *("servo_error", "servo_misses", "lost", "interlock"),
)


def chunk_layout(joints: int) -> np.dtype[np.void]:
    """Returns the layout of a chunk."""
    return np.dtype(
        [
            ("session", "<i8"),
            ("length", "<i8"),
            ("image_age", "<f8"),
            ("observed", "<f8"),
            ("time", "<f8", (LONGEST_CHUNK,)),
            ("action", "<f4", (LONGEST_CHUNK, joints)),
        ]
    )


def chunk_record(
    chunk: ActionChunk,
    session: int,
    joints: int,
    image_age_s: float = 0.0,
    observed_s: float | None = None,
) -> Record:
    """Returns a chunk of up to 256 actions (T, joints) as a record; see `DeviceProcess.send`.

    The receiver checks its values.

    Raises:
        ValueError: The chunk is too long, or for another number of joints.
    """
    length = len(chunk.time)
    if length > LONGEST_CHUNK or chunk.action.shape[1] != joints:
        raise ValueError(
            f"A chunk has shape {chunk.action.shape}; allowed: up to {LONGEST_CHUNK} actions of "
            f"{joints} dimensions."
        )
    record: Record = np.zeros((), dtype=chunk_layout(joints))
    record["session"] = session
    record["length"] = length
    record["image_age"] = image_age_s
    record["observed"] = chunk.time[0] if observed_s is None else observed_s
    record["time"][:length] = chunk.time
    record["action"][:length] = chunk.action
    return record


def chunk_of(record: Record) -> tuple[ActionChunk | None, int]:
    """Returns the chunk of a record, None if its length is invalid, and its session."""
    length = int(record["length"])
    session = int(record["session"])
    if not 1 <= length <= LONGEST_CHUNK:
        return None, session
    chunk = ActionChunk(record["time"][:length].copy(), record["action"][:length].copy())
    return chunk, session


def state_layout(joints: int, servos: int, arms: int) -> np.dtype[np.void]:
    """Returns the layout of a state."""
    return np.dtype(
        [
            ("session", "<i8"),
            ("tick", "<i8"),
            ("late", "<i8"),
            ("mode", "<i4"),
            ("reasons", "<i4"),
            ("fault_reasons", "<i4"),
            ("counts", "<i8", (len(REASONS),)),
            ("following", "<f8", (2,)),
            ("time", "<f8"),
            ("position", "<f8", (joints,)),
            ("velocity", "<f8", (joints,)),
            ("effort", "<f8", (joints,)),
            ("command", "<f8", (joints,)),
            ("servo_error", "<u2", (servos,)),
            ("servo_misses", "<i4", (servos,)),
            ("lost", "?", (arms,)),
            ("interlock", "u1", (arms,)),
            ("writes", "<i8", (arms,)),
            ("old_cameras", "<i8"),
            ("cause", cause_layout(servos, arms)),
        ]
    )


@dataclass(frozen=True, eq=False)
class DeviceState:
    """The published state of one cycle.

    Attributes:
        tick: Cycles since the start of the loop.
        late: Cycles that were skipped because the loop was late.
        reasons: Reasons that acted in the last cycle.
        counts: Cycles in which each reason acted in this episode.
        following: Distance of commands to faster targets in this episode.
        command: (J,) last command.
        writes: (A,) commands sent to each arm so far.
        old_cameras: A bit for each monitored camera, in their order: it delivers no new images.
    """

    session: int
    tick: int
    late: int
    mode: Mode
    reasons: Reason
    fault_reasons: Reason
    counts: Mapping[Reason, int]
    arms: ArmState
    command: Vector
    writes: NDArray[np.int64]
    old_cameras: int = 0
    cause: Cause | None = None
    following: FollowingError = NO_FOLLOWING_ERROR

    @classmethod
    def of(cls, record: Record) -> Self:
        """Reads a record."""
        return cls(
            session=int(record["session"]),
            tick=int(record["tick"]),
            late=int(record["late"]),
            mode=Mode(int(record["mode"])),
            reasons=Reason(int(record["reasons"])),
            fault_reasons=Reason(int(record["fault_reasons"])),
            counts={
                reason: int(count) for reason, count in zip(REASONS, record["counts"], strict=True)
            },
            arms=ArmState(
                float(record["time"]), **{field: record[field].copy() for field in _ARM_FIELDS[1:]}
            ),
            command=record["command"].copy(),
            writes=record["writes"].copy(),
            old_cameras=int(record["old_cameras"]),
            cause=Cause.read(record["cause"]) if record["fault_reasons"] else None,
            following=FollowingError(*record["following"].tolist()),
        )

    def silent(self) -> Self:
        """Returns this state as a fault, for an owner that gets no newer one."""
        return replace(
            self,
            mode=Mode.FAULT,
            reasons=self.reasons | Reason.DEVICE_SILENT,
            fault_reasons=self.fault_reasons | Reason.DEVICE_SILENT,
        )

    def to_record(self, layout: np.dtype[np.void]) -> Record:
        """Writes a record."""
        record: Record = np.zeros((), dtype=layout)
        record["counts"] = [self.counts.get(reason, 0) for reason in REASONS]
        record["following"] = (self.following.total_rad, self.following.largest_rad)
        for field in _STATE_FIELDS:
            record[field] = getattr(self, field)
        for field in _ARM_FIELDS:
            # The record has an interlock for each arm, also of drivers that report none.
            if field != "interlock" or len(self.arms.interlock):
                record[field] = getattr(self.arms, field)
        if self.cause is not None:
            self.cause.write(record["cause"])
        return record
