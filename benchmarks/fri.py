"""Costs of FRI messages, this codec beside protobuf's, and the share answered in time.

    python benchmarks/fri.py --json fri.json

Names:
    decode/fri/<ours|protobuf>
        Microseconds of processor time to decode a monitoring message of version 1.15 and read the
        joint positions and the session's state; peer `protobuf`, ratio of times. Google's codec is
        in C; ours is in Python and checks more.
    encode/fri/<ours|protobuf>
        The same to encode a command of seven joints.
    answered/fri/<one|two>/<10|5>ms
        Share of messages of all arms that the device process answered before the next one, counted
        by the emulator over loopback while the arms move; peer `none`. The emulator is a Python
        process too, and itself late on a busy machine.
    answered/fri/one/5ms/busy/<priority|none>
        The same with a program that keeps the core of the device process busy, with real-time
        priority and without. The emulator has real-time priority on the other cores, since a real
        controller is punctual. Left out without the permission for that (docs/real-time.md).

Rounds of both codecs are interleaved in one run; the median over rounds counts.
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any

from bridge_parts import busy_core, child_priority, measure_answers, run
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from measurement import Row

from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.real_robot.device.scheduling import Priority, check_priority
from stringline.real_robot.drivers.fri import enums
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.drivers.fri.messages import COMMAND_ID, Command, Monitoring
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulators.program.emulator_client import FriEmulator

# The parts of 1.15 that are used here: name, and per field number, name, type (1 double, 13 uint32,
# 14 enum as int32), label.
FIELDS = {
    "JointValues": ((1, "value", 1, 3),),
    "TimeStamp": ((1, "sec", 13, 2), (2, "nanosec", 13, 2)),
    "MessageHeader": tuple(
        (i, name, 13, 2) for i, name in enumerate(("messageIdentifier", "sequence", "reflected"), 1)
    ),
    "ConnectionInfo": tuple(
        (i, name, 13, 1) for i, name in enumerate(("state", "quality", "period", "multiplier"), 1)
    ),
    "RobotInfo": (
        (1, "joints", 5, 1),
        (2, "safety", 5, 1),
        (5, "drives", 5, 3),
        (6, "operation", 5, 1),
        (7, "control", 5, 1),
    ),
    "MonitorData": (
        *((i, f"joints{i}", "JointValues", 1) for i in range(1, 6)),
        (15, "timestamp", "TimeStamp", 1),
    ),
    "IpoData": (
        (1, "joints", "JointValues", 1),
        (10, "mode", 5, 1),
        (11, "overlay", 5, 1),
        (12, "tracking", 1, 1),
    ),
    "CommandData": ((1, "joints", "JointValues", 1),),
    "Monitoring": (
        (1, "header", "MessageHeader", 2),
        (2, "robot", "RobotInfo", 1),
        (3, "monitor", "MonitorData", 1),
        (4, "connection", "ConnectionInfo", 1),
        (5, "ipo", "IpoData", 1),
    ),
    "Command": ((1, "header", "MessageHeader", 2), (2, "data", "CommandData", 1)),
}


def google(name: str) -> Any:
    """Returns Google's class of a message."""
    file = descriptor_pb2.FileDescriptorProto(name="fri.proto", package="fri", syntax="proto2")
    for message, fields in FIELDS.items():
        described = file.message_type.add(name=message)
        for number, field, kind, label in fields:
            one = described.field.add(
                name=field, number=number, label=label, type=kind if isinstance(kind, int) else 11
            )
            if isinstance(kind, str):
                one.type_name = f".fri.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"fri.{name}"))


def example() -> Monitoring:
    """Returns a message as a controller sends it while it follows commands."""
    joints = tuple(0.1 * index for index in range(7))
    return Monitoring(
        sequence=70_000,
        reflected=69_000,
        session=enums.SessionState.COMMANDING_ACTIVE,
        quality=enums.Quality.EXCELLENT,
        send_period_ms=10,
        safety=enums.SafetyState.NORMAL,
        drives=(enums.DriveState.ACTIVE,) * 7,
        operation=enums.OperationMode.T1,
        control=enums.ControlMode.POSITION,
        measured=joints,
        torque=joints,
        commanded=joints,
        commanded_torque=joints,
        external_torque=joints,
        time=(1_700_000_000, 5),
        ipo=joints,
        command_mode=enums.CommandMode.POSITION,
        overlay=enums.Overlay.JOINT,
        tracking=1.0,
    )


def jobs() -> dict[str, Callable[[], object]]:
    """Returns the timed functions by name."""
    version = version_of("1.15")
    data, joints = example().to_bytes(version), example().measured
    monitoring, command = google("Monitoring"), google("Command")

    def decode_ours() -> object:
        message = Monitoring.of(version, data)
        return message.measured, int(message.session)

    def decode_google() -> object:
        message = monitoring.FromString(data)
        return tuple(message.monitor.joints1.value), message.connection.state

    def encode_ours() -> object:
        return Command(69_001, 70_000, joints).to_bytes(version)

    def encode_google() -> object:
        made = command()
        made.header.messageIdentifier = COMMAND_ID
        made.header.sequence = 69_001
        made.header.reflected = 70_000
        made.data.joints.value.extend(joints)
        return made.SerializeToString()

    if decode_ours() != decode_google() or encode_ours() != encode_google():
        raise SystemExit("The codecs give different results.")
    found = {"decode/fri/ours": decode_ours, "decode/fri/protobuf": decode_google}
    return found | {"encode/fri/ours": encode_ours, "encode/fri/protobuf": encode_google}


def answers(
    arms: str,
    period_ms: int,
    seconds: float,
    *,
    priority: Priority = Priority.PREFERRED,
    core: int | None = None,
) -> Row:
    """Returns the share of messages that were answered in time; see `measure_answers`."""
    embodiment = {"one": IIWA14, "two": IIWA14_BIMANUAL}[arms]
    with ExitStack() as stack:
        with nullcontext() if core is None else child_priority():
            emulator = stack.enter_context(
                FriEmulator(
                    arms=arms,
                    device_hz=1000 / period_ms,
                    most_missed=100_000,
                    good=0.0,
                    t1_unlimited=True,
                )
            )
        driver = FriDriver(emulator.ports, period_s=1e-3 * period_ms)
        name = f"answered/fri/{arms}/{period_ms}ms"
        if core is not None:
            name += f"/busy/{'none' if priority is Priority.NONE else 'priority'}"
        return measure_answers(
            name,
            driver,
            embodiment,
            period_ms,
            seconds,
            emulator.report,
            priority=priority,
            core=core,
        )


def answers_beside_busy(seconds: float) -> list[Row]:
    """Returns the shares at 5 ms on a busy core, with and without real-time priority."""
    try:
        check_priority(0.005)
    except ValueError as error:
        print(f"Left out: {error}", file=sys.stderr)
        return []
    with busy_core() as core:
        return [
            answers("one", 5, seconds, priority=priority, core=core)
            for priority in (Priority.REQUIRED, Priority.NONE)
        ]


if __name__ == "__main__":
    run(__doc__ or "", jobs, "protobuf", answers, answers_beside_busy)
