"""The answers of a client: joint positions, or only a sign of life."""

from dataclasses import dataclass
from typing import Self

from stringline.real_robot.drivers.fri.io_value import IoValue
from stringline.real_robot.drivers.fri.monitoring import LONGEST_MESSAGE, Joints
from stringline.real_robot.drivers.fri.protobuf_wire import FriDecodeError
from stringline.real_robot.drivers.fri.versions import FriVersion

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
