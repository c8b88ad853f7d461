"""Guards of the driver of Dynamixel servos, for `mutate.py`."""

import contextlib
import dataclasses
import errno
import fcntl
import functools
from collections.abc import Callable, Collection
from typing import Any

from stringline.real_robot.deployment import leader_teleoperation
from stringline.real_robot.driver_interface.driver import ArmState
from stringline.real_robot.drivers.dynamixel import aloha_driver, bus, protocol, servo_arm
from stringline.real_robot.drivers.dynamixel import aloha_driver as leaders
from stringline.real_robot.drivers.dynamixel import bus as read_only
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel import servo_arm as bring_up
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver, ArmPair
from stringline.real_robot.drivers.dynamixel.bus import Bus, LinkLostError
from stringline.real_robot.drivers.dynamixel.control_table import Register, Servo
from stringline.real_robot.drivers.dynamixel.protocol import Packet, Parser
from stringline.real_robot.drivers.dynamixel.servo_arm import BringUp, DynamixelArm

SETTINGS = (
    table.DRIVE_MODE,
    table.SECONDARY_ID,
    table.STATUS_RETURN_LEVEL,
    table.OPERATING_MODE,
    table.SHUTDOWN,
    table.STARTUP,
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


def without_marks() -> None:
    """Takes what restarted servos answer for measurements."""
    take = DynamixelArm.take

    def trusting(self: DynamixelArm, answers: dict[int, Packet], *, torque_expected: bool) -> None:
        mark = bytes(1) + table.RESTART_MARK.pack(table.MARKED)
        marked = {
            ident: dataclasses.replace(answer, parameters=mark + answer.parameters[len(mark) :])
            for ident, answer in answers.items()
        }
        take(self, marked, torque_expected=torque_expected)

    DynamixelArm.take = trusting  # type: ignore[method-assign]


_READ = BringUp._read


def without_lists(self: BringUp, register: Register) -> dict[int, bytes]:
    """Answers the reading back of a list with what was written."""
    if register is not bring_up._LIST:
        return _READ(self, register)
    rest = bytes(register.size - len(bring_up._ADDRESSES) - table.RESTART_MARK.size)
    whole = bring_up._ADDRESSES + rest + table.RESTART_MARK.pack(table.MARKED)
    return dict.fromkeys(self.arm.idents, whole)


def without_kept_goals() -> None:
    """Moves the goals of joints with torque as well."""
    prepare = BringUp.prepare

    def anew(self: BringUp, *, led: bool) -> None:
        prepare(self, led=False)

    BringUp.prepare = anew  # type: ignore[method-assign]


def without_kept_grips() -> None:
    """Moves the goals of grippers to which another program gave torque."""
    prepare = BringUp.prepare

    def measured(self: BringUp, *, led: bool) -> None:
        prepare(self, led=led)
        if not led:
            self._goals[self.arm.masters[-1].ident] = int(self.arm.ticks[-1])

    BringUp.prepare = measured  # type: ignore[method-assign]


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
        "goals before torque": (BringUp, "set_goals", lambda _: None),
        "goals that were taken": (BringUp, "differences", lambda _: []),
        "list of registers": (BringUp, "_read", without_lists),
        "joints at rest": (bring_up, "_STILL_TICKS", 1 << 30),
        "torque through the list": (bring_up, "_TORQUE", table.TORQUE_ENABLE),
        "values in RAM": (bring_up, "KEPT", ()),
        "profiles": (bring_up, "ALWAYS", {}),
        "settings before torque": (DynamixelArm, "settings_problems", lambda _: []),
        "measurement before torque": (DynamixelArm, "measure", lambda *_: []),
        "where restarted joints stand": (DynamixelArm, "moved", lambda *_: []),
        "restarts": (servo_arm, "RESTARTED", 0),
        "restarts before torque": (ArmPair, "_unreported", lambda *_: []),
        "opening lost ports": (ArmPair, "_reopen", lambda _: []),
        "cause of homing offsets": (servo_arm, "_LARGEST_OFFSET", 1 << 30),
        "watchdogs cleared": (BringUp, "clear_watchdogs", lambda _: None),
        "joints stopped by watchdogs": (bring_up, "EXPIRED", 99),
        "watchdogs after a refusal": (
            AlohaDriver,
            "_watched_again",
            lambda *_, **__: contextlib.nullcontext(),
        ),
        "restoring": (AlohaDriver, "restore", lambda _: None),
        "restoring leaders": (leaders.AlohaLeaders, "restore", lambda _: None),
        "leaders that restart": (
            leader_teleoperation,
            "_restarted",
            lambda leader: leader.servo_error < 0,
        ),
        "faults before torque": (ArmPair, "faults", lambda _: []),
        "lost torque": (servo_arm, "TORQUE_LOST", 0),
        "expired watchdogs": (servo_arm, "WATCHDOG_EXPIRED", 0),
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
    found["marks"] = without_marks
    found["goals of joints with torque"] = without_kept_goals
    found["goals of grippers with torque"] = without_kept_grips
    found["shortest watchdog"] = with_watchdog_rounded_down
    found["reading only"] = without_reading_only
    found["silent servos"] = without_misses
    found["age of what is known"] = without_age
    found["twins"] = functools.partial(without_second_answers, False)
    found["garbled answers"] = functools.partial(without_second_answers, True)
    return found
