"""Messages of drake-iiwa-driver and drake-schunk-driver: types, channels, checks, and their order.

Units are rad, Nm, mm, N and microseconds. An inbox takes the status messages of one
drake-iiwa-driver in order; unusable, old and foreign ones are counted.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.driver_interface.interlocks import Interlock
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS
from stringline.real_robot.drivers.lcm.lcm_link import (
    LcmDecodeError,
    LcmMessage,
    LcmType,
    Member,
    Source,
)

_TIME = Member("utime", "int64_t")


def _joints(*names: str) -> tuple[Member, ...]:
    return tuple(Member(name, "double", "num_joints") for name in names)


IIWA_COMMAND = LcmType(
    "lcmt_iiwa_command",
    (
        _TIME,
        Member("num_joints", "int32_t"),
        *_joints("joint_position"),
        Member("num_torques", "int32_t"),
        Member("joint_torque", "double", "num_torques"),
    ),
)
IIWA_STATUS = LcmType(
    "lcmt_iiwa_status",
    (
        _TIME,
        Member("num_joints", "int32_t"),
        *_joints(
            "joint_position_measured",
            "joint_velocity_estimated",
            "joint_position_commanded",
            "joint_position_ipo",
            "joint_torque_measured",
            "joint_torque_commanded",
            "joint_torque_external",
        ),
    ),
)
IIWA_STATUS_TELEMETRY = LcmType(
    "lcmt_iiwa_status_telemetry",
    (
        Member("host_utime", "int64_t"),
        Member("iiwa_utime", "int64_t"),
        Member("estimated_dt_host_minus_iiwa", "int64_t"),
    ),
)
SCHUNK_COMMAND = LcmType(
    "lcmt_schunk_wsg_command",
    (_TIME, Member("target_position_mm", "double"), Member("force", "double")),
)
SCHUNK_STATUS = LcmType(
    "lcmt_schunk_wsg_status",
    (
        _TIME,
        Member("actual_position_mm", "double"),
        Member("actual_force", "double"),
        Member("actual_speed_mm_per_s", "double"),
    ),
)


@dataclass(frozen=True)
class Channels:
    """Channels of one program, whose arms share its messages.

    Attributes:
        command: Its commands: `--lcm_command_channel`.
        status: States of the arms: `--lcm_status_channel`.
        telemetry: States of clocks: `--lcm_status_telemetry_channel`.
    """

    command: str = "IIWA_COMMAND"
    status: str = "IIWA_STATUS"
    telemetry: str = "IIWA_STATUS_TELEMETRY"

    def __post_init__(self) -> None:
        """Checks that the names differ."""
        if len({self.command, self.status, self.telemetry}) != 3 or not all(
            (self.command, self.status, self.telemetry)
        ):
            raise ValueError(f"The channels of a driver program must have three names; got {self}.")

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None) -> Self:
        """Returns the channels of settings; those that are not given have their usual names.

        Raises:
            ValueError: A setting is unknown.
        """
        known = [field.name for field in fields(cls)]
        for name in settings or {}:
            if name not in known:
                raise unknown_name("channel of a driver program", str(name), known)
        return cls(**{name: str(value) for name, value in (settings or {}).items()})

    @property
    def names(self) -> tuple[str, str, str]:
        """All of them."""
        return self.command, self.status, self.telemetry


def program_groups(
    ports: Mapping[str, str], channels: Mapping[str, Channels]
) -> dict[tuple[str, Channels], list[str]]:
    """Returns the arms of each program by its address and channels, all in the order of the arms.

    Raises:
        ValueError: Two programs of one group share a channel.
    """
    found: dict[tuple[str, Channels], list[str]] = {}
    for name, address in ports.items():
        found.setdefault((address, channels[name]), []).append(name)
    for address in dict.fromkeys(ports.values()):
        names = [name for at, one in found if at == address for name in one.names]
        if shared := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"Two driver programs on {address} share the channels {', '.join(shared)}; arms "
                f"of one program have all channels in common, those of two have none."
            )
    return found


UNKNOWN_TIME = -1
# A position so far outside the stroke has another unit, or is of another gripper.
_BEYOND_MM = 5.0
# Rows of an arm, in this order.
_ROWS = (
    "joint_position_measured",
    "joint_velocity_estimated",
    "joint_position_commanded",
    "joint_position_ipo",
    "joint_torque_measured",
    "joint_torque_external",
)
_MAY_BE_NAN = ("joint_position_ipo",)


@dataclass(frozen=True, eq=False)
class ArmReport:
    """The part of a message about one arm.

    Attributes:
        measured: (7,) rad.
        velocity: (7,) rad/s, low-pass filtered.
        commanded: (7,) rad, the last command to the controller.
        ipo: (7,) rad, commanded by the controller itself; NaN while it accepts no commands.
        torque: (7,) Nm, measured.
        external: (7,) Nm that the arm's model does not explain.
    """

    measured: Vector
    velocity: Vector
    commanded: Vector
    ipo: Vector
    torque: Vector
    external: Vector

    @property
    def spoken(self) -> bool:
        """Whether the program has received a message of the arm's controller; zeros before that."""
        return bool(self.measured.any() or self.torque.any() or self.ipo.any())

    @property
    def in_motion(self) -> bool:
        """Whether the controller is in a motion that accepts commands, and reports its command."""
        return bool(self.spoken and self.tells_command and np.isfinite(self.ipo).all())

    @property
    def tells_command(self) -> bool:
        """Whether its command is known: zeros count only if the arm is at zero."""
        return bool(self.commanded.any() or not self.measured.any())


@dataclass(frozen=True, eq=False)
class IiwaStatus:
    """One status message.

    Attributes:
        utime: Time of the first arm's controller by the program's clock, microseconds; -1 until it
            is known.
        arms: In the program's order.
    """

    utime: int
    arms: tuple[ArmReport, ...]

    @classmethod
    def of(cls, payload: bytes, arms: int) -> Self:
        """Decodes a message about that many arms.

        Raises:
            LcmDecodeError: It is not a status, has another number of joints, or a value is NaN.
        """
        values = IIWA_STATUS.decode(payload)
        utime = values["utime"]
        joints = values["num_joints"]
        if joints != JOINTS * arms:
            raise LcmDecodeError(f"A status of {joints} joints; expected are {JOINTS * arms}.")
        rows = {
            name: np.array(values[name], dtype=np.float64).reshape(arms, JOINTS) for name in _ROWS
        }
        for name, row in rows.items():
            if name not in _MAY_BE_NAN and not np.isfinite(row).all():
                raise LcmDecodeError(f"{name} is {row.tolist()}; expected are finite numbers.")
        assert isinstance(utime, int)
        return cls(
            utime, tuple(ArmReport(*(rows[name][arm] for name in _ROWS)) for arm in range(arms))
        )


def gripper_status(payload: bytes, longest_mm: float) -> dict[str, float]:
    """Decodes a status of drake-schunk-driver.

    `longest_mm` is the largest position by the settings of the gripper.

    Raises:
        LcmDecodeError: It is not a status, or a value is not finite or out of range.
    """
    found = SCHUNK_STATUS.decode(payload)
    status = {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
    if not all(map(math.isfinite, status.values())):
        raise LcmDecodeError(f"Its state is {status}; expected are finite numbers.")
    position_mm = status["actual_position_mm"]
    if not -_BEYOND_MM <= position_mm <= longest_mm + _BEYOND_MM:
        raise LcmDecodeError(
            f"It is open by {position_mm:g} mm; by its settings (stroke_mm, opened_mm) that is at "
            f"most {longest_mm:g} mm."
        )
    return status


_PERIODS_KEPT = 8
_REGULAR = 1.2  # Largest ratio of two differences.


class Times:
    """The newest times of a clock, and its period."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._periods: list[int] = []

    def note(self, time: int, *, skipped: bool) -> None:
        """Takes a time, microseconds; a repeated one does not count.

        If others before it may be missing (`skipped`), the time since the last one counts only if
        it is not longer than usual.
        """
        if time == self._last:
            return
        passed = None if self._last is None else time - self._last
        self._last = time
        usual = self.period_us
        if passed is None or passed <= 0:
            return
        if not (skipped and usual and passed > 1.5 * usual):
            self._periods = [*self._periods[-_PERIODS_KEPT + 1 :], passed]

    @property
    def period_us(self) -> int:
        """Shortest difference but one of two times, microseconds; 0 until there are enough.

        On a busy computer a program misses steps, so that many differences are longer; a clock that
        is set makes one of them shorter.
        """
        return sorted(self._periods)[1] if len(self._periods) == _PERIODS_KEPT else 0

    @property
    def regular(self) -> bool:
        """Whether the last differences agree; those of a busy computer do not."""
        return max(self._periods, default=0) <= _REGULAR * min(self._periods, default=0)


class StatusInbox:
    """Decodes, checks and orders the messages of one program, by LCM's counter and its time.

    Args:
        arms: Number of arms of the program.

    Attributes:
        broken: Number of unusable messages.
        stale: Number of messages that were older than one before, or duplicates.
        frozen: Number of new messages with the time of the one before.
        complaint: Error of the last unusable one.
        event: The gravest event of the program; the caller resets it.
        ready_at: First known time of its clock, microseconds, or None.
        shift_us: Clock of its host minus that of its first controller, as the program estimates it,
            microseconds; None until it is known.
        step_us: Time of the last step by the clock of the first controller, microseconds; None
            until it is known. Unlike the time of a status, it does not follow the host's clock.
        skipped: Whether messages of the program may be missing before the last status.
    """

    def __init__(self, arms: int) -> None:
        self._arms = arms
        self.broken = 0
        self.stale = 0
        self.frozen = 0
        self.complaint = ""
        self.event = Interlock.NONE
        self._source: Source | None = None
        self._sequence = 0
        self._forget()

    def _forget(self) -> None:
        self.ready_at: int | None = None
        self.shift_us: int | None = None
        self.step_us: int | None = None
        self.skipped = self._gap = self._gap_of_clocks = True
        self._newest: int | None = None
        self._utime = UNKNOWN_TIME
        self._published = Times()
        self._stepped = Times()

    @property
    def period_us(self) -> int:
        """Period of the first arm's controller, microseconds, by its clock if known; 0: unknown."""
        return self._times.period_us

    @property
    def regular(self) -> bool:
        """Whether its steps come in even periods."""
        return self._times.regular

    @property
    def _times(self) -> Times:
        return self._stepped if self._stepped.period_us else self._published

    def take_telemetry(self, message: LcmMessage) -> None:
        """Takes a message about clocks."""
        if message.source != self._source:
            return
        self._note_order(message.sequence)
        skipped = self._gap_of_clocks
        self._gap_of_clocks = False
        try:
            found = IIWA_STATUS_TELEMETRY.decode(message.payload)
        except LcmDecodeError as error:
            self.broken += 1
            self.complaint = str(error)
            return
        time, shift_us = found["iiwa_utime"], found["estimated_dt_host_minus_iiwa"]
        assert isinstance(time, int)
        assert isinstance(shift_us, int)
        self._stepped.note(time, skipped=skipped)
        self.step_us = time
        self.shift_us = shift_us

    def _note_order(self, sequence: int) -> None:
        """Notes the number of a message, to see whether others before it are missing."""
        follows = self._newest is not None and (sequence - self._newest) % (1 << 32) == 1
        self._gap |= not follows
        self._gap_of_clocks |= not follows
        self._newest = sequence

    def take(self, message: LcmMessage, *, lost: bool) -> IiwaStatus | None:
        """Returns the status in a message, or None if it is not usable.

        If the program was `lost`, silent for so long that it may have been restarted, another
        source is accepted.
        """
        try:
            status = IiwaStatus.of(message.payload, self._arms)
        except LcmDecodeError as error:
            self.broken += 1
            self.complaint = str(error)
            return None
        if message.source != self._source:
            if self._source is not None and not lost:
                self._notice(Interlock.TWO_PROGRAMS)
                return None
            self._begin(message.source)
        elif not lost and self._is_old(message):
            self.stale += 1
            return None
        elif not lost and self._is_back(status):
            self._notice(Interlock.CLOCK)
            return None
        elif self._is_back(status):
            self._forget()  # The clock was set back, and counts from here.
        return self._accept(status, message.sequence)

    def _is_old(self, message: LcmMessage) -> bool:
        return not 0 < (message.sequence - self._sequence) % (1 << 32) < 1 << 31

    def _is_back(self, status: IiwaStatus) -> bool:
        return status.utime < self._utime

    def _begin(self, source: Source) -> None:
        if self._source is not None:
            self._notice(Interlock.RESTARTED)
        self._source = source
        self._forget()

    def _accept(self, status: IiwaStatus, sequence: int) -> IiwaStatus | None:
        self._note_order(sequence)
        self.skipped = self._gap
        self._gap = False
        self._sequence = sequence
        if status.utime == self._utime != UNKNOWN_TIME:
            self.frozen += 1
            # With several arms each one's step is published, with the time of the first.
            if self._arms > 1:
                return status
            self._gap = True  # For its caller it is missing.
            return None
        self._utime = status.utime
        if status.utime != UNKNOWN_TIME:
            self._published.note(status.utime, skipped=self.skipped)
            self.ready_at = status.utime if self.ready_at is None else self.ready_at
        return status

    def _notice(self, event: Interlock) -> None:
        self.event = max(self.event, event)
