"""The messages of FRI: those of a controller, the answers of a client, and the order of both.

A controller sends a message in every period. Missing sections are decoded as states in which
nothing may be commanded. The answer has joint positions, or is only a sign of life. An inbox takes
the messages of one controller in order; unusable, old and duplicate ones are only counted.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from stringline.real_robot.drivers.fri.controller_io import IoValue
from stringline.real_robot.drivers.fri.enums import (
    CommandMode,
    ControlMode,
    DriveState,
    OperationMode,
    Overlay,
    Quality,
    SafetyState,
    SessionState,
)
from stringline.real_robot.drivers.fri.protobuf import FriDecodeError
from stringline.real_robot.drivers.fri.versions import VERSIONS, FriVersion
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS

MONITORING_ID = 0x245142
LONGEST_MESSAGE = 1500

Joints = tuple[float, ...]


@dataclass(frozen=True)
class Monitoring:
    """One monitoring message.

    Rows of joints have seven values in rad or Nm, or none if the controller omits them. Values that
    may be None are omitted then.

    Attributes:
        sequence: Number of the message in its session.
        reflected: Sequence number of the last command that reached the controller.
        receive_multiplier: Messages for each answer.
        commanded: Positions that the controller follows; until 1.16.
        commanded_torque: Torques of the client's overlay.
        external_torque: Torques without those of the arm's own weight and motion.
        inputs: Inputs and outputs of the controller, from 1.14 on.
        time: Seconds and nanoseconds since 1970, by the controller's clock.
        ipo: Positions of the controller's own interpolator, to which the overlay is added; none
            while monitoring.
        command_mode: Quantity that may be commanded.
        overlay: Space of the overlay.
        tracking: Tracking performance, 1 best; 0 outside COMMANDING_ACTIVE.
    """

    sequence: int = 0
    reflected: int = 0
    session: SessionState = SessionState.IDLE
    quality: Quality = Quality.POOR
    send_period_ms: int = 0
    receive_multiplier: int = 1
    joints: int = JOINTS
    safety: SafetyState | None = None
    drives: tuple[DriveState, ...] = ()
    operation: OperationMode | None = None
    control: ControlMode | None = None
    measured: Joints = ()
    torque: Joints = ()
    commanded: Joints = ()
    commanded_torque: Joints = ()
    external_torque: Joints = ()
    inputs: tuple[IoValue, ...] = ()
    time: tuple[int, int] | None = None
    ipo: Joints = ()
    command_mode: CommandMode = CommandMode.NONE
    overlay: Overlay = Overlay.NONE
    tracking: float = 0.0

    @property
    def answer_period_s(self) -> float:
        """Seconds between two expected answers; 0: unknown."""
        return 1e-3 * self.send_period_ms * self.receive_multiplier

    @classmethod
    def of(cls, version: FriVersion, data: bytes) -> Self:
        """Decodes a datagram.

        Raises:
            FriDecodeError: It is not a monitoring message of that version.
        """
        if len(data) > LONGEST_MESSAGE:
            raise FriDecodeError(f"A message of {len(data)} bytes; allowed: {LONGEST_MESSAGE}.")
        found = version.monitoring.decode(version.message(data))
        header = found["header"]
        if header["messageIdentifier"] != MONITORING_ID:
            raise FriDecodeError(
                f"Message {header['messageIdentifier']:#x} is not a monitoring message "
                f"({MONITORING_ID:#x})."
            )
        connection = found.get("connectionInfo") or {}
        return cls(
            sequence=header["sequenceCounter"],
            reflected=header["reflectedSequenceCounter"],
            session=connection.get("sessionState", SessionState.IDLE),
            quality=connection.get("quality", Quality.POOR),
            send_period_ms=connection.get("sendPeriod", 0),
            receive_multiplier=connection.get("receiveMultiplier", 1),
            **_robot(found.get("robotInfo") or {}),
            **_monitored(found.get("monitorData") or {}),
            **_interpolated(found.get("ipoData") or {}),
        )

    def to_bytes(self, version: FriVersion) -> bytes:
        """Returns the datagram that a controller of that version sends."""
        header = {
            "messageIdentifier": MONITORING_ID,
            "sequenceCounter": self.sequence,
            "reflectedSequenceCounter": self.reflected,
        }
        connection = {
            "sessionState": self.session,
            "quality": self.quality,
            "sendPeriod": self.send_period_ms,
            "receiveMultiplier": self.receive_multiplier,
        }
        robot = {
            "numberOfJoints": self.joints,
            "safetyState": self.safety,
            "driveState": self.drives,
            "operationMode": self.operation,
            "controlMode": self.control,
        }
        interpolated = {
            "jointPosition": self.ipo or None,
            "clientCommandMode": self.command_mode,
            "overlayType": self.overlay,
            "trackingPerformance": self.tracking,
        }
        return version.datagram(
            version.monitoring.encode(
                {
                    "header": header,
                    "robotInfo": robot,
                    "monitorData": self._monitored_values(),
                    "connectionInfo": connection,
                    "ipoData": interpolated,
                }
            )
        )

    def _monitored_values(self) -> dict[str, Any]:
        time = None if self.time is None else {"sec": self.time[0], "nanosec": self.time[1]}
        return {
            "measuredJointPosition": self.measured or None,
            "measuredTorque": self.torque or None,
            "commandedJointPosition": self.commanded or None,
            "commandedTorque": self.commanded_torque or None,
            "externalTorque": self.external_torque or None,
            "readIORequest": [value.to_values() for value in self.inputs],
            "timestamp": time,
        }


def _robot(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "joints": found.get("numberOfJoints", 0),
        "safety": found.get("safetyState"),
        "drives": tuple(found.get("driveState", ())),
        "operation": found.get("operationMode"),
        "control": found.get("controlMode"),
    }


def _monitored(found: dict[str, Any]) -> dict[str, Any]:
    time = found.get("timestamp")
    return {
        "measured": found.get("measuredJointPosition", ()),
        "torque": found.get("measuredTorque", ()),
        "commanded": found.get("commandedJointPosition", ()),
        "commanded_torque": found.get("commandedTorque", ()),
        "external_torque": found.get("externalTorque", ()),
        "inputs": tuple(IoValue.of(value) for value in found.get("readIORequest", ())),
        "time": None if time is None else (time["sec"], time["nanosec"]),
    }


def _interpolated(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "ipo": found.get("jointPosition", ()),
        "command_mode": found.get("clientCommandMode", CommandMode.NONE),
        "overlay": found.get("overlayType", Overlay.NONE),
        "tracking": found.get("trackingPerformance", 0.0),
    }


COMMAND_ID = 0x34001


@dataclass(frozen=True)
class Command:
    """One command message.

    Attributes:
        sequence: Number of the answer.
        reflected: Sequence number of the message that is answered.
        position: Seven joints, rad; () in a sign of life.
        outputs: Outputs of the controller to write, from 1.14 on.
    """

    sequence: int
    reflected: int
    position: Joints = ()
    outputs: tuple[IoValue, ...] = ()

    @classmethod
    def of(cls, version: FriVersion, data: bytes) -> Self:
        """Decodes a datagram.

        Raises:
            FriDecodeError: It is not a command of that version.
        """
        if len(data) > LONGEST_MESSAGE:
            raise FriDecodeError(f"A message of {len(data)} bytes; allowed: {LONGEST_MESSAGE}.")
        found = version.command.decode(version.message(data))
        header = found["header"]
        content = found.get("commandData") or {}
        if header["messageIdentifier"] != COMMAND_ID:
            raise FriDecodeError(
                f"Message {header['messageIdentifier']:#x} is not a command ({COMMAND_ID:#x})."
            )
        outputs = tuple(IoValue.of(value) for value in content.get("writeIORequest", ()))
        return cls(
            header["sequenceCounter"],
            header["reflectedSequenceCounter"],
            content.get("jointPosition", ()),
            outputs,
        )

    def to_bytes(self, version: FriVersion) -> bytes:
        """Returns the datagram that a client of that version sends."""
        header = {
            "messageIdentifier": COMMAND_ID,
            "sequenceCounter": self.sequence,
            "reflectedSequenceCounter": self.reflected,
        }
        content: dict[str, object] = {"jointPosition": self.position or None}
        content["writeIORequest"] = [value.to_values() for value in self.outputs]
        return version.datagram(
            version.command.encode(
                {"header": header, "commandData": content if any(content.values()) else None}
            )
        )


_COMMANDING = (SessionState.COMMANDING_WAIT, SessionState.COMMANDING_ACTIVE)
# After such a silence any message is new: counter and clock of the controller may have been reset.
_FORGET_S = 0.5


class Inbox:
    """Decodes, checks and orders messages.

    Attributes:
        stale: Number of messages that were older than one before, or duplicates.
        complaint: Error of the last unusable one.
        unusable: Its datagram.
    """

    def __init__(self, version: FriVersion) -> None:
        self._version = version
        self.broken = 0
        self.stale = 0
        self.complaint = ""
        self.unusable = b""
        self._last: Monitoring | None = None
        self._last_at = -math.inf

    def take(self, data: bytes, now: float) -> Monitoring | None:
        """Returns the message of a datagram that arrived at `now` seconds, or None."""
        try:
            message = Monitoring.of(self._version, data)
            _check(message)
        except FriDecodeError as error:
            self.broken += 1
            self.complaint = str(error)
            self.unusable = data
            return None
        if (
            self._last is not None
            and now - self._last_at < _FORGET_S
            and not _newer(message, self._last)
        ):
            self.stale += 1
            return None
        self._last = message
        self._last_at = now
        return message


def _newer(message: Monitoring, last: Monitoring) -> bool:
    """Returns whether a message is later: by its counter, or, if that was reset, by its clock."""
    ahead = (message.sequence - last.sequence) % (1 << 32)
    later = message.time is not None and last.time is not None and message.time > last.time
    return 0 < ahead < 1 << 31 or later


def versions_of(data: bytes) -> list[str]:
    """Returns the names of the versions of which a datagram is a usable message."""
    return [name for name, version in VERSIONS.items() if _is_of(version, data)]


def _is_of(version: FriVersion, data: bytes) -> bool:
    try:
        _check(Monitoring.of(version, data))
    except FriDecodeError:
        return False
    return True


def seven_joints(message: Monitoring) -> str:
    """The arm is an LBR."""
    if message.joints == JOINTS:
        return ""
    return f"The arm has {message.joints} joints; expected are {JOINTS}."


def finite_numbers(message: Monitoring) -> str:
    """The values on which commands are based are finite."""
    rows = {"measured position": message.measured, "external torque": message.external_torque}
    if message.session in _COMMANDING:
        rows["position of the interpolator"] = message.ipo
    wrong = (
        f"The {name} is {row}; expected are {JOINTS} finite numbers."
        for name, row in rows.items()
        if not usable(row)
    )
    return next(wrong, "")


def wants_answers(message: Monitoring) -> str:
    """It expects answers."""
    return "" if message.receive_multiplier >= 1 else "A receive multiplier of 0."


CHECKS: tuple[Callable[[Monitoring], str], ...] = (seven_joints, finite_numbers, wants_answers)


def _check(message: Monitoring) -> None:
    for check in CHECKS:
        if complaint := check(message):
            raise FriDecodeError(complaint)


def usable(values: Joints) -> bool:
    """Returns whether these are finite numbers for all joints."""
    return len(values) == JOINTS and all(map(math.isfinite, values))
