"""What a client answers: joint positions, or nothing but a sign of life."""

from dataclasses import dataclass
from typing import Self

from stringline.real_robot.drivers.fri.io_value import IoValue
from stringline.real_robot.drivers.fri.monitoring import LONGEST_MESSAGE, Joints
from stringline.real_robot.drivers.fri.versions import FriVersion
from stringline.real_robot.drivers.fri.wire import FriDecodeError

COMMAND_ID = 0x34001


@dataclass(frozen=True)
class Command:
    """One command message.

    Attributes:
        sequence: Counts the answers of a client.
        reflected: Sequence number of the message that is answered.
        position: Seven joints, rad; none in a mere sign of life.
        outputs: Of the controller, from 1.14 on.
    """

    sequence: int
    reflected: int
    position: Joints = ()
    outputs: tuple[IoValue, ...] = ()

    @classmethod
    def of(cls, version: FriVersion, data: bytes) -> Self:
        """Reads a datagram.

        Raises:
            FriDecodeError: It is no command of that version.
        """
        if len(data) > LONGEST_MESSAGE:
            raise FriDecodeError(f"A message of {len(data)} bytes; allowed: {LONGEST_MESSAGE}.")
        found = version.command.decode(data)
        header = found["header"]
        content = found.get("commandData") or {}
        if header["messageIdentifier"] != COMMAND_ID:
            raise FriDecodeError(
                f"Message {header['messageIdentifier']:#x} is no command ({COMMAND_ID:#x})."
            )
        outputs = tuple(IoValue.of(value) for value in content.get("writeIORequest", ()))
        return cls(
            header["sequenceCounter"],
            header["reflectedSequenceCounter"],
            content.get("jointPosition", ()),
            outputs,
        )

    def to_bytes(self, version: FriVersion) -> bytes:
        """Returns the datagram, as a client of that version sends it."""
        header = {
            "messageIdentifier": COMMAND_ID,
            "sequenceCounter": self.sequence,
            "reflectedSequenceCounter": self.reflected,
        }
        content: dict[str, object] = {"jointPosition": self.position or None}
        content["writeIORequest"] = [value.to_values() for value in self.outputs]
        return version.command.encode(
            {"header": header, "commandData": content if any(content.values()) else None}
        )
