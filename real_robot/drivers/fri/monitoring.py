"""What a controller tells in every period.

Sections that are missing are read so that nothing may be commanded.
"""

from dataclasses import dataclass
from typing import Any, Self

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
from stringline.real_robot.drivers.fri.io_value import IoValue
from stringline.real_robot.drivers.fri.joint_values import JOINTS
from stringline.real_robot.drivers.fri.versions import FriVersion
from stringline.real_robot.drivers.fri.wire import FriDecodeError

MONITORING_ID = 0x245142
LONGEST_MESSAGE = 1500

Joints = tuple[float, ...]


@dataclass(frozen=True)
class Monitoring:
    """One monitoring message.

    Joints are seven, or none where the controller says nothing; rad and Nm.

    Attributes:
        sequence: Counts the messages of a session.
        reflected: Sequence number of the last command that reached the controller.
        session: State of the session.
        quality: Of the connection.
        send_period_ms: Between two messages.
        receive_multiplier: Messages for each answer.
        joints: How many the arm has.
        safety: None: not told, as for all that may be None.
        drives: Of each joint.
        operation: Chosen mode.
        control: How positions are followed.
        measured: Joint positions.
        torque: Measured.
        commanded: The joint positions that are being followed; until 1.16.
        commanded_torque: Of the client's torque overlay.
        external_torque: What is left of the torques when the arm's own weight and motion are taken
            off.
        inputs: Of the controller, from 1.14 on.
        time: Seconds and nanoseconds since 1970, by the controller's clock.
        ipo: Joint positions that the controller commands itself, to which an overlay is added; none
            while monitoring.
        command_mode: What may be commanded.
        overlay: What commands are laid over.
        tracking: Performance, 1 best; 0 outside of COMMANDING_ACTIVE.
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
        """Seconds between two answers that it wants; 0: it does not say."""
        return 1e-3 * self.send_period_ms * self.receive_multiplier

    @classmethod
    def of(cls, version: FriVersion, data: bytes) -> Self:
        """Reads a datagram.

        Raises:
            FriDecodeError: It is no monitoring message of that version.
        """
        if len(data) > LONGEST_MESSAGE:
            raise FriDecodeError(f"A message of {len(data)} bytes; allowed: {LONGEST_MESSAGE}.")
        found = version.monitoring.decode(data)
        header = found["header"]
        if header["messageIdentifier"] != MONITORING_ID:
            raise FriDecodeError(
                f"Message {header['messageIdentifier']:#x} is no monitoring message "
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
        """Returns the datagram, as a controller of that version sends it."""
        time = None if self.time is None else {"sec": self.time[0], "nanosec": self.time[1]}
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
        monitored = {
            "measuredJointPosition": self.measured or None,
            "measuredTorque": self.torque or None,
            "commandedJointPosition": self.commanded or None,
            "commandedTorque": self.commanded_torque or None,
            "externalTorque": self.external_torque or None,
            "readIORequest": [value.to_values() for value in self.inputs],
            "timestamp": time,
        }
        interpolated = {
            "jointPosition": self.ipo or None,
            "clientCommandMode": self.command_mode,
            "overlayType": self.overlay,
            "trackingPerformance": self.tracking,
        }
        header = {
            "messageIdentifier": MONITORING_ID,
            "sequenceCounter": self.sequence,
            "reflectedSequenceCounter": self.reflected,
        }
        return version.monitoring.encode(
            {
                "header": header,
                "robotInfo": robot,
                "monitorData": monitored,
                "connectionInfo": connection,
            }
            | {"ipoData": interpolated}
        )


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
