"""Guards of the driver of Dynamixel servos, for `mutate.py`."""

import contextlib
import dataclasses
import errno
import fcntl
import functools
from collections.abc import Callable, Collection
from typing import Any

from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.drivers.dynamixel import (
    aloha_driver,
    bus,
    leaders,
    protocol,
    read_only,
    servo_arm,
)
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.dynamixel.arm_pair import ArmPair
from stringline.real_robot.drivers.dynamixel.bus import Bus, LinkLostError
from stringline.real_robot.drivers.dynamixel.control_table import Register
from stringline.real_robot.drivers.dynamixel.protocol import Packet, Parser
from stringline.real_robot.drivers.dynamixel.servo_arm import DynamixelArm
from stringline.real_robot.drivers.dynamixel.viperx import Servo

SETTINGS = (
    table.DRIVE_MODE,
    table.SECONDARY_ID,
    table.STATUS_RETURN_LEVEL,
    table.OPERATING_MODE,
    table.SHUTDOWN,
    table.PROFILE_VELOCITY,
    table.PROFILE_ACCELERATION,
    table.CURRENT_LIMIT,
)


def without_setting(register: Register) -> None:
    """Accepts any value of that register."""
    compare = DynamixelArm._compare

    def lenient(self: DynamixelArm, servo: Servo, asked: Register, expected: int) -> str:
        return "" if asked is register else compare(self, servo, asked, expected)

    DynamixelArm._compare = lenient  # type: ignore[method-assign]


def without_writes(register: Register, wanted: Callable[[int], bool]) -> None:
    """Drops writes of such values to a register of all servos."""
    write = AlohaDriver._write_all

    def partial(self: AlohaDriver, written: Register, value: int) -> None:
        if written is not register or not wanted(value):
            write(self, written, value)

    AlohaDriver._write_all = partial  # type: ignore[method-assign]


def with_watchdog_rounded_down() -> None:
    """Switches a watchdog off that is shorter than its unit."""
    build = AlohaDriver.__init__

    def init(self: AlohaDriver, *given: Any, bus_watchdog_s: float = 0.1, **more: Any) -> None:
        build(self, *given, bus_watchdog_s=bus_watchdog_s, **more)
        self._watchdog = int(bus_watchdog_s / table.WATCHDOG_UNIT_S)

    AlohaDriver.__init__ = init  # type: ignore[assignment]


def without_reading_only() -> None:
    """Moves arms that are read-only."""
    build = AlohaDriver.__init__

    def init(self: AlohaDriver, *given: Any, **more: Any) -> None:
        build(self, *given, **{**more, "read_only": False})

    AlohaDriver.__init__ = init  # type: ignore[assignment]


def without_misses() -> None:
    """Resets the misses of servos."""
    take = DynamixelArm.take

    def forgetful(self: DynamixelArm, answers: dict[int, Packet], *, torque_expected: bool) -> None:
        take(self, answers, torque_expected=torque_expected)
        self.misses[:] = 0

    DynamixelArm.take = forgetful  # type: ignore[method-assign]


def without_age() -> None:
    """Stamps the state of a silent arm as new."""
    read = ArmPair.read

    def always_new(self: ArmPair, clock: Callable[[], float], *, torque_expected: bool) -> ArmState:
        return dataclasses.replace(read(self, clock, torque_expected=torque_expected), time=clock())

    ArmPair.read = always_new  # type: ignore[method-assign]


def without_second_answers(garbled_too: bool) -> None:
    """Returns one answer of two, or treats noise as silence."""
    everything = Bus.everything

    def deaf(self: Bus, packet: bytes, **more: float) -> tuple[list[Packet], bool]:
        answers, garbled = everything(self, packet, **more)
        return (answers, False) if garbled_too else (answers[:1], garbled)

    Bus.everything = deaf  # type: ignore[method-assign, assignment]


def without_next_header(self: Parser) -> int:
    """Returns the end of the packet at the front as if packets were never truncated."""
    end = 7 + int.from_bytes(self._buffer[5:7], "little")
    return end if 10 <= end <= 7 + protocol.LONGEST_LEN else 0


def from_anybody(line: Bus, _: Collection[int], answers: dict[int, Packet]) -> None:
    """Collects the answers of other servos as well."""
    with contextlib.suppress(LinkLostError):
        answers |= {packet.ident: packet for packet in line.receive()}


def with_echoes(self: Bus) -> list[Packet]:
    """Receives any packets."""
    try:
        return self._parser.feed(self._read())
    except BlockingIOError:
        return []


def answers_of_any_size(
    idents: Any, address: int, size: int, timeout_s: float
) -> dict[Bus, dict[int, Packet]]:
    """Reads registers and accepts answers without them."""
    for line, asked in idents.items():
        line.send(protocol.sync_read(address, size, asked))
    return bus.gather(idents, timeout_s)


def servo_mutants() -> dict[str, Callable[[], None]]:
    """Returns the mutants by name."""
    instead: dict[str, tuple[Any, str, Any]] = {
        "seal": (aloha_driver, "checked", lambda command: command),
        "ports by arm": (aloha_driver, "check_ports", lambda _: None),
        "one program per port": (fcntl, "flock", lambda *_: None),
        "claim": (bus, "claim", lambda _: None),
        "lost ports": (
            Bus,
            "_lose",
            lambda self, reason: LinkLostError(
                errno.EIO, f"The port {self.port} is lost: {reason}"
            ),
        ),
        "late answers": (Bus, "_drop_late", lambda _: None),
        "answers of others": (bus, "_collect", from_anybody),
        "echoes": (Bus, "receive", with_echoes),
        "answers of the right size": (bus, "sync_read", answers_of_any_size),
        "checksums": (protocol, "_is_whole", lambda _: True),
        "packets that were cut short": (Parser, "_end", without_next_header),
        "lines that are only read": (read_only, "_changes_nothing", lambda _: True),
        "lines of leaders": (leaders, "ReadOnlyBus", Bus),
        "leaders without torque": (leaders, "_stiff", lambda _: []),
        "models": (DynamixelArm, "_wrong_model", lambda *_: ""),
        "return delay": (table, "LONGEST_RETURN_DELAY", 254),
        "firmware": (table, "FIRST_WITH_WATCHDOG", 0),
        "position limits": (DynamixelArm, "_limit_problems", lambda *_: []),
        "shadows": (DynamixelArm, "diverging_shadows", lambda _: []),
        "goals before torque": (DynamixelArm, "present_as_goal", lambda _: b""),
        "goals that were taken": (DynamixelArm, "stale_goals", lambda *_: []),
        "faults before torque": (ArmPair, "faults", lambda _: []),
        "lost torque": (servo_arm, "TORQUE_LOST", 0),
        "expired watchdogs": (servo_arm, "WATCHDOG_EXPIRED", 0),
        "grip of a gripper with torque": (DynamixelArm, "keep_grip", lambda _: None),
        "end of watchdogs": (AlohaDriver, "close", lambda self: self._pair.close()),
    }
    found: dict[str, Callable[[], None]] = {
        name: functools.partial(setattr, owner, attribute, value)
        for name, (owner, attribute, value) in instead.items()
    }
    for register in SETTINGS:
        found[f"setting {register.name}"] = functools.partial(without_setting, register)
    found["beginning of watchdogs"] = functools.partial(
        without_writes, table.BUS_WATCHDOG, lambda value: value > 0
    )
    found["watchdogs cleared"] = functools.partial(
        without_writes, table.BUS_WATCHDOG, lambda value: value == 0
    )
    found["shortest watchdog"] = with_watchdog_rounded_down
    found["reading only"] = without_reading_only
    found["silent servos"] = without_misses
    found["age of what is known"] = without_age
    found["twins"] = functools.partial(without_second_answers, False)
    found["garbled answers"] = functools.partial(without_second_answers, True)
    return found
