"""One arm of Dynamixel servos on its bus: the checks at connection, the units, and the bring-up.

Bringing up sets, and reads back, all that servos forget without power. A servo whose power fails
for a moment answers again within a second, with the initial values of its RAM: no list of watched
registers, no watchdog, other gains, no torque, and a goal that nobody has set. So nothing in RAM is
trusted because it was set before. The order is:

1. `prepare` sets the list, the profiles and the values that the servo had when it was connected,
   and measures by the registers themselves instead of by the list.
2. `set_goals` makes the measured position the goal of each joint without torque, and of revolute
   joints to which another program gave torque. The others keep their goals: grippers with torque
   hold on.
3. `differences` compares everything with what the servos now answer.
4. `turn_on` turns the torque on *through the list*. A servo that has lost it since then keeps its
   torque off, since the same write then changes nothing but a byte of data.
"""

import struct
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.aloha import GripperServo
from stringline.real_robot.driver_interface.driver import (
    RESTARTED,
    TORQUE_LOST,
    WATCHDOG_EXPIRED,
    Vector,
)
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.bus import Bus, read_all
from stringline.real_robot.drivers.dynamixel.control_table import Register, Servo

# Read through indirect addresses, so that one sync read returns faults and motion. A servo forgets
# them without power and then returns zeros, so the read begins at the mark before its data.
WATCHED = (
    table.TORQUE_ENABLE,
    table.HARDWARE_ERROR,
    table.BUS_WATCHDOG,
    table.PRESENT_CURRENT,
    table.PRESENT_VELOCITY,
    table.PRESENT_POSITION,
    table.TEMPERATURE,
    table.GOAL_POSITION,
)
_BLOCK = struct.Struct("<HBBbhiiBi")
CYCLIC_SIZE = _BLOCK.size  # Bytes per servo in the cyclic read, which begins at the mark.
EXPIRED = -1
_PRESENT = struct.Struct("<hii10xB")  # From the current to the temperature.
PRESENT_SIZE = _PRESENT.size
# A servo's range may be narrower than the joint's by this: limits are whole ticks, and the filter
# keeps a margin.
_LIMIT_TOLERANCE_RAD = 0.005
# Two servos of one joint that differ by more than play and rounding work against each other.
_SHADOW_TOLERANCE_RAD = 0.1
# A servo that has restarted, or whose port was lost, stands that near to its last known position.
_MOVED_RAD = 0.1
# Range in which a servo in position mode applies its homing offset, ticks.
_LARGEST_OFFSET = 1024


class ReportedGoal:
    """Whether the last goal of a servo has arrived, by its answers. Goals are in ticks.

    An answer that comes a cycle late tells the goal before, as one does whose goal was lost. Such
    an answer follows a read without an answer, or repeats that of a moving servo. From then on,
    until an answer tells a goal as soon as it has changed, answers may be late.

    Attributes:
        kept: Goal that the servo still has, because the last one was lost; if None, no loss is
            known.
    """

    def __init__(self) -> None:
        self.kept: int | None = None
        self._sent: tuple[int, int] | None = None  # The goal before the last one, and the last.
        self._in_time = False
        self._answer = b""

    def note(self, goal: int) -> None:
        """Notes a goal that is sent."""
        self._sent = (goal if self._sent is None else self._sent[1]), goal
        self.kept = None

    def take(self, answer: bytes, goal: int, *, moves: bool) -> None:
        """Takes an answer and the goal in it; no bytes: there was no answer.

        `moves`: whether the servo moves, by this answer; one that stands may answer the same again.
        """
        repeated = moves and answer == self._answer
        self._answer = answer
        self.kept = None
        if not answer:
            self._in_time = False
        elif self._sent is not None and goal != self._sent[1]:
            self._in_time &= not repeated
            self.kept = goal if self._in_time else None
        elif self._sent is not None and self._sent[0] != self._sent[1]:
            self._in_time = True


class DynamixelArm:
    """The servos of one arm.

    Args:
        name: Name of the arm, as in joint names.
        bus: Its line, not open yet.
        servos: Servos in the order of the state; masters in the order of the joints.
        gripper: Linkage of the last joint.
        lower: (K,) lower joint limits, rad; that of the gripper is ignored.
        upper: (K,) upper joint limits.
        gripper_newton_per_ampere: Force at the pads per motor current.
        passive: Whether it is only read, so that modes and limits of its motors do not matter.

    Attributes:
        grip: Opening of the last goal of the gripper; None before the first goal.
    """

    def __init__(
        self,
        name: str,
        bus: Bus,
        servos: Sequence[Servo],
        gripper: GripperServo,
        *,
        lower: Vector,
        upper: Vector,
        gripper_newton_per_ampere: float,
        passive: bool = False,
    ) -> None:
        self._passive = passive
        self.name = name
        self.bus = bus
        self.servos = tuple(servos)
        self._masters = [index for index, servo in enumerate(self.servos) if servo.master is None]
        self.masters = tuple(self.servos[index] for index in self._masters)
        self._gripper = gripper
        joints = [servo.joint for servo in self.masters]
        self._limits = dict(zip(joints, zip(lower, upper, strict=True), strict=True))
        constants = [
            gripper_newton_per_ampere if servo.joint == "gripper" else servo.model.torque_constant
            for servo in self.servos
        ]
        self._effort_per_count = np.array(constants) * table.CURRENT_UNIT_A
        self._joint_of_servo = np.array([joints.index(servo.joint) for servo in self.servos])
        self.ticks = np.full(len(self.servos), table.CENTRE_TICK, dtype=np.int64)
        self._rates = np.zeros(len(self.servos))
        self._efforts = np.zeros(len(self.servos))
        self.errors: NDArray[np.uint16] = np.zeros(len(self.servos), dtype=np.uint16)
        self.misses: NDArray[np.int32] = np.zeros(len(self.servos), dtype=np.int32)
        self.temperatures: NDArray[np.uint8] = np.zeros(len(self.servos), dtype=np.uint8)
        self.grip: float | None = None
        self._goals = [ReportedGoal() for _ in self.masters]

    @property
    def idents(self) -> tuple[int, ...]:
        """Ids of all servos, in order."""
        return tuple(servo.ident for servo in self.servos)

    def label(self, servo: Servo) -> str:
        """Returns the name of a servo for messages."""
        shadow = "" if servo.master is None else " shadow"
        return f"{self.name}/{servo.joint}{shadow} (id {servo.ident})"

    def problems(self) -> list[str]:
        """Reads models and settings of all servos; returns a sentence per problem."""
        found = []
        for servo in self.servos:
            found += [
                f"{self.label(servo)} on {self.bus.port}: {problem}"
                for problem in self._problems_of(servo)
            ]
        return found

    def _problems_of(self, servo: Servo) -> list[str]:
        # Two equal servos may answer a ping as one, bit by bit, but their measurements differ.
        measured = protocol.read(servo.ident, table.PRESENT_CURRENT.address, PRESENT_SIZE)
        for request in (protocol.ping(servo.ident), measured):
            answers, garbled = self.bus.everything(request)
            if len(answers) > 1:
                return [
                    f"{len(answers)} servos answer to this id. Plug in each alone and give it the "
                    f"id that it should have."
                ]
            if garbled:
                return [
                    "its answer is garbled. Either two servos have this id, or the line is noisy."
                ]
            if not answers:
                return ["it does not answer. Check its cable and its power."]
        return self._problems_of_one(servo)

    def settings_problems(self) -> list[str]:
        """Reads models and settings again, of servos whose ids are known to differ."""
        return [
            f"{self.label(servo)} on {self.bus.port}: {problem}"
            for servo in self.servos
            for problem in self._problems_of_one(servo)
        ]

    def _problems_of_one(self, servo: Servo) -> list[str]:
        if wrong := self._wrong_model(servo):
            return [wrong]
        expected = {table.DRIVE_MODE: servo.drive_mode, table.SECONDARY_ID: servo.secondary_id}
        expected[table.STATUS_RETURN_LEVEL] = table.ANSWERS_ALL
        # A servo that restores its RAM, or has torque without a command, restarts unnoticed.
        expected[table.STARTUP] = 0
        if not self._passive:
            expected |= {
                table.OPERATING_MODE: servo.operating_mode,
                table.SHUTDOWN: table.FACTORY_SHUTDOWN,
            }
        if servo.current_limit is not None:
            expected[table.CURRENT_LIMIT] = servo.current_limit
        found = [
            problem
            for register, value in expected.items()
            if (problem := self._compare(servo, register, value))
        ]
        return found + self._pace_problems(servo) + self._limit_problems(servo)

    def _wrong_model(self, servo: Servo) -> str:
        model = self.bus.read_register(servo.ident, table.MODEL_NUMBER)
        if model is None:
            return "its model cannot be read."
        kinds = (servo.model, *servo.alternatives)
        if model in {kind.number for kind in kinds}:
            return ""
        got = table.MODELS[model].name if model in table.MODELS else f"model {model}"
        return f"it is a {got}; expected is a {' or '.join(kind.name for kind in kinds)}."

    def _pace_problems(self, servo: Servo) -> list[str]:
        """Checks that it answers fast enough for a cycle of nine servos, and has a watchdog."""
        found = []
        delay = self.bus.read_register(servo.ident, table.RETURN_DELAY)
        if delay is None or delay > table.LONGEST_RETURN_DELAY:
            found.append(
                f"{table.RETURN_DELAY.name} is {delay}; allowed: 0 to "
                f"{table.LONGEST_RETURN_DELAY}, of 2 us each."
            )
        firmware = self.bus.read_register(servo.ident, table.FIRMWARE)
        if not self._passive and (firmware is None or firmware < table.FIRST_WITH_WATCHDOG):
            found.append(
                f"its firmware is {firmware}; the bus watchdog needs {table.FIRST_WITH_WATCHDOG} "
                f"or later."
            )
        return found

    def _compare(self, servo: Servo, register: Register, expected: int) -> str:
        got = self.bus.read_register(servo.ident, register)
        if register is table.SECONDARY_ID and got is not None and got > protocol.LARGEST_ID:
            got = table.NO_SECONDARY_ID
        return "" if got == expected else f"{register.name} is {got}; expected is {int(expected)}."

    def _limit_problems(self, servo: Servo) -> list[str]:
        """Checks that it follows all goals which the safety filter allows."""
        if self._passive or servo.operating_mode != table.OperatingMode.POSITION:
            return []
        lower, upper = self._limits[servo.joint]
        low, high = (
            self.bus.read_register(servo.ident, register)
            for register in (table.MIN_POSITION, table.MAX_POSITION)
        )
        if low is None or high is None:
            return ["its position limits cannot be read."]
        low_rad = table.angle_of_ticks(low)
        high_rad = table.angle_of_ticks(high)
        if low_rad > lower + _LIMIT_TOLERANCE_RAD or high_rad < upper - _LIMIT_TOLERANCE_RAD:
            return [
                f"its position limits are {low_rad:.3f} to {high_rad:.3f} rad; the joint's are "
                f"{lower:.3f} to {upper:.3f} rad."
            ]
        return []

    def take(self, answers: dict[int, protocol.Packet], *, torque_expected: bool) -> None:
        """Takes the answers to a cyclic read; what a restarted servo answers is no measurement."""
        self.misses += 1
        for index, servo in enumerate(self.servos):
            if servo.ident not in answers:
                self._report_goal(index, b"", 0, moves=False)
                continue
            self.misses[index] = 0
            data = answers[servo.ident].data
            mark, torque, error, watchdog, *motion, goal = _BLOCK.unpack(data)
            self._report_goal(index, data, goal, moves=motion[1] != 0)
            if mark != table.MARKED:
                self.errors[index] = RESTARTED
                continue
            if torque_expected:
                error |= 0 if torque else TORQUE_LOST
                error |= WATCHDOG_EXPIRED if watchdog == EXPIRED else 0
            self.errors[index] = error
            self._note(index, *motion)

    def measure(self, timeout_s: float) -> list[str]:
        """Measures by the registers themselves; returns a sentence per servo without an answer.

        A joint that has moved since it was last measured is named by `moved`.
        """
        present = Register("present values", table.PRESENT_CURRENT.address, PRESENT_SIZE)
        answers = read_all(self.bus, self.idents, present, timeout_s)
        for index, servo in enumerate(self.servos):
            if servo.ident in answers:
                self._note(index, *_PRESENT.unpack(answers[servo.ident]))
        return [
            f"{self.label(servo)} on {self.bus.port} does not answer."
            for servo in self.servos
            if servo.ident not in answers
        ]

    def _note(
        self, index: int, current: int, velocity: int, position: int, temperature: int
    ) -> None:
        self.temperatures[index] = temperature
        self.ticks[index] = position
        self._rates[index] = velocity * table.VELOCITY_UNIT_RAD_S
        self._efforts[index] = current * self._effort_per_count[index]

    @property
    def restarted(self) -> list[int]:
        """Ids of servos that have restarted since they were brought up."""
        return [
            servo.ident
            for servo, error in zip(self.servos, self.errors, strict=True)
            if error & RESTARTED
        ]

    def moved(self, before: NDArray[np.int64], idents: Collection[int]) -> list[str]:
        """Returns a sentence for each of these servos that is not where it was measured before."""
        found = []
        for servo, old, new in zip(self.servos, before.tolist(), self.ticks.tolist(), strict=True):
            if servo.ident in idents and abs(new - old) * table.TICK_RAD > _MOVED_RAD:
                found.append(
                    f"{self.label(servo)} on {self.bus.port} measures "
                    f"{table.angle_of_ticks(new):+.3f} rad, {(new - old) * table.TICK_RAD:+.3f} "
                    f"rad from its last position. If the joint really stands there, try again."
                )
        return found

    def measured(self) -> tuple[Vector, Vector, Vector]:
        """Returns positions, velocities and efforts (K,), in units of the contract."""
        ticks = self.ticks[self._masters]
        position = np.asarray((ticks - table.CENTRE_TICK) * table.TICK_RAD, dtype=np.float64)
        velocity = self._rates[self._masters].copy()
        angle = position[-1]
        position[-1] = self._gripper.opening(angle)
        velocity[-1] *= (
            self._gripper.opening(angle + 1e-4) - self._gripper.opening(angle - 1e-4)
        ) / 2e-4
        effort = np.zeros(len(self.masters))
        np.add.at(effort, self._joint_of_servo, self._efforts)
        return position, velocity, effort

    def kept_goals(self) -> Vector:
        """Returns the goals (K,) of joints that have not got their last one; NaN for the others.

        A servo drops a packet that was damaged on its line, and nothing acknowledges goals. But
        each answer to a cyclic read tells the goal that the servo has.
        """
        kept = np.full(len(self.masters), np.nan)
        for joint, (index, servo) in enumerate(zip(self._masters, self.masters, strict=True)):
            ticks = self._goals[joint].kept
            if ticks is not None and not self.errors[index] and not self.bus.lost:
                angle = table.angle_of_ticks(float(ticks))
                kept[joint] = self._gripper.opening(angle) if servo.joint == "gripper" else angle
        return kept

    def _report_goal(self, index: int, answer: bytes, goal: int, *, moves: bool) -> None:
        """Takes the goal in the answer of a servo, if it is no shadow; no bytes: no answer."""
        if index in self._masters:
            self._goals[self._masters.index(index)].take(answer, goal, moves=moves)

    def diverging_shadows(self) -> list[str]:
        """Returns a sentence for each shadow whose position differs from that of its master."""
        ticks = dict(zip(self.idents, self.ticks.tolist(), strict=True))
        found = []
        for servo in self.servos:
            gap = 0 if servo.master is None else ticks[servo.master] - ticks[servo.ident]
            if abs(gap) * table.TICK_RAD > _SHADOW_TOLERANCE_RAD:
                found.append(
                    f"{self.label(servo)} on {self.bus.port} differs by "
                    f"{-gap * table.TICK_RAD:+.3f} rad from its master (id {servo.master}), and "
                    f"they would work against each other. {self._offset_advice(servo, gap)}"
                )
        return found

    def _offset_advice(self, servo: Servo, gap: int) -> str:
        """Returns the homing offset that closes a gap in ticks, if the one in EEPROM allows it.

        A servo that has just restarted needs no other offset: what it forgot is not in EEPROM.
        """
        name = table.HOMING_OFFSET.name
        offset = self.bus.read_register(servo.ident, table.HOMING_OFFSET)
        if self.restarted or offset is None or abs(offset + gap) > _LARGEST_OFFSET:
            return f"Its {name} is {offset} and not the cause: check its horn and its cables."
        return f"Its {name} is {offset}; {offset + gap} would bring it to its master."

    def goal_packet(self, position: Vector) -> bytes:
        """Returns the sync write of targets (K,) in units of the contract."""
        angle = position.copy()
        angle[-1] = self._gripper.angle(position[-1])
        packet = self.goals([table.ticks_of_angle(float(value)) for value in angle])
        self.grip = float(position[-1])  # As commanded, not rounded to ticks.
        return packet

    def goals(self, ticks: Sequence[int]) -> bytes:
        """Returns the sync write of goals (K,) in ticks."""
        self.grip = float(self._gripper.opening(table.angle_of_ticks(ticks[-1])))
        for goal, tick in zip(self._goals, ticks, strict=True):
            goal.note(tick)
        register = table.GOAL_POSITION
        values = {
            servo.ident: register.pack(tick)
            for servo, tick in zip(self.masters, ticks, strict=True)
        }
        return protocol.sync_write(register.address, values)


# Values in RAM that programs tune. Servos keep what they had when they were connected.
KEPT = (
    table.VELOCITY_I_GAIN,
    table.VELOCITY_P_GAIN,
    table.POSITION_D_GAIN,
    table.POSITION_I_GAIN,
    table.POSITION_P_GAIN,
    table.FEEDFORWARD_2ND_GAIN,
    table.FEEDFORWARD_1ST_GAIN,
    table.GOAL_PWM,
    table.GOAL_CURRENT,
)
# With a profile, which another program may have set, a joint would not follow the filter's path.
ALWAYS: Mapping[Register, int] = {table.PROFILE_ACCELERATION: 0, table.PROFILE_VELOCITY: 0}
# All of RAM that is compared, in one read: from the torque to the last measurement.
_RAM = Register("RAM", table.TORQUE_ENABLE.address, 83)
_LIST = Register("list", table.INDIRECT_ADDRESS.address, 2 * table.INDIRECT_COUNT)
_ADDRESSES = b"".join(
    (register.address + offset).to_bytes(2, "little")
    for register in WATCHED
    for offset in range(register.size)
)
_TORQUE = Register("Torque Enable", table.INDIRECT_DATA.address)  # By its place in the list.
assert WATCHED[0] is table.TORQUE_ENABLE
# A joint that moves by more between two measurements is not at rest.
_STILL_TICKS = 10


class BringUp:
    """The bring-up of one arm.

    Args:
        arm: The arm; its port is open.
        patience_s: Longest wait for the answers to a read of all servos.
        chosen: Values by id that replace the kept ones, such as a limit of a gripper's force.
    """

    def __init__(
        self,
        arm: DynamixelArm,
        patience_s: float,
        chosen: Mapping[int, Mapping[Register, int]] | None = None,
    ) -> None:
        self.arm = arm
        self._patience_s = patience_s
        self._chosen = dict(chosen or {})
        self._kept: dict[int, dict[Register, int]] = {}
        self._goals: dict[int, int] = {}
        self._without_torque: set[int] = set()

    def remember(self) -> None:
        """Stores the values that the servos have now and shall have later.

        Raises:
            ValueError: A servo does not answer.
        """
        images = self._images()
        self._kept = {
            servo.ident: {register: _value(images[servo.ident], register) for register in KEPT}
            | dict(self._chosen.get(servo.ident, {}))
            for servo in self.arm.masters
        }

    def watch(self) -> None:
        """Sets and reads back the list of watched registers with its mark.

        Shadows execute what their masters are sent.

        Raises:
            ValueError: A servo refuses, or has another list.
        """
        mark = table.RESTART_MARK
        for servo in self.arm.masters:
            for address, data in (
                (_LIST.address, _ADDRESSES),
                (mark.address, mark.pack(table.MARKED)),
            ):
                self._write(servo, address, data, "the list of registers to read")
        answers = self._read(_LIST)
        for servo in self.arm.servos:
            data = answers[servo.ident]
            if not data.startswith(_ADDRESSES) or mark.unpack(data[-2:]) != table.MARKED:
                raise ValueError(
                    f"{self._named(servo)} has not kept the list of registers to read; it may have "
                    f"restarted. Check its power, and try again."
                )

    def clear_watchdogs(self) -> None:
        """Switches the bus watchdogs off, so that slow steps do not stop joints with torque.

        A joint that its watchdog has stopped stays where it is; a gripper keeps its goal.

        Raises:
            ValueError: A servo refuses, or does not answer.
        """
        images = self._images()
        for servo in self.arm.masters:
            image = images[servo.ident]
            self.arm.bus.write_register(servo.ident, table.BUS_WATCHDOG, 0)
            if _value(image, table.BUS_WATCHDOG) == EXPIRED and servo.joint != "gripper":
                present = _value(image, table.PRESENT_POSITION)
                self.arm.bus.write_register(servo.ident, table.GOAL_POSITION, present)

    def prepare(self, *, led: bool) -> None:
        """Sets everything but goals and torque, and measures.

        Args:
            led: Whether goals of joints with torque are this program's, and are kept. Those of
                grippers with torque are kept in any case: others would drop what they hold.

        Raises:
            ValueError: A servo refuses, or does not answer.
        """
        self.watch()
        for servo in self.arm.masters:
            for register, value in {**ALWAYS, **self._kept[servo.ident]}.items():
                self.arm.bus.write_register(servo.ident, register, value)
        if silent := self.arm.measure(self._patience_s):
            raise ValueError(silent[0])
        images = self._images()
        holds = {
            servo.ident
            for servo in self.arm.servos
            if (led or servo.joint == "gripper")
            and _value(images[servo.ident], table.TORQUE_ENABLE)
        }
        self._without_torque = {
            servo.master or servo.ident for servo in self.arm.servos if servo.ident not in holds
        }
        # A joint of which only the shadow has lost its torque is still held by its master.
        ticks = dict(zip(self.arm.idents, self.arm.ticks.tolist(), strict=True))
        self._goals = {
            servo.ident: _value(images[servo.ident], table.GOAL_POSITION)
            if servo.ident in holds
            else ticks[servo.ident]
            for servo in self.arm.masters
        }

    def set_goals(self) -> None:
        """Sends the goals: the measured position of each joint, or the goal that it keeps."""
        self.arm.bus.send(self.arm.goals(list(self._goals.values())))

    def differences(self) -> list[str]:
        """Returns a sentence for each value that the servos answer and should not have."""
        images = self._images()
        return [
            f"{self._named(servo)} {problem}"
            for servo in self.arm.servos
            for problem in self._differences_of(servo, images[servo.ident])
        ]

    def _differences_of(self, servo: Servo, image: bytes) -> list[str]:
        master = servo.master or servo.ident
        joint_off = master in self._without_torque
        found = []
        goal, present = (
            _value(image, register) for register in (table.GOAL_POSITION, table.PRESENT_POSITION)
        )
        if goal != self._goals[master]:
            where = table.angle_of_ticks(float(self._goals[master]))
            found.append(
                f"refuses its position, {where:.3f} rad, as its goal; move it into its range."
            )
        still = dict(zip(self.arm.idents, self.arm.ticks.tolist(), strict=True))[servo.ident]
        if joint_off and abs(present - still) > _STILL_TICKS:
            found.append(
                f"moves, by {abs(present - still) * table.TICK_RAD:.3f} rad. Hold the arm still."
            )
        expected = {table.BUS_WATCHDOG: 0, table.STATUS_RETURN_LEVEL: table.ANSWERS_ALL}
        expected |= {**ALWAYS, **self._kept[master]}
        for register, value in expected.items():
            if (got := _value(image, register)) != value:
                found.append(
                    f"has not kept {register.name} = {value}, but has {got}; it may have "
                    f"restarted. Check its power, and try again."
                )
        return found

    def turn_on(self) -> None:
        """Turns the torque of all joints on, where the list of registers is in place.

        Raises:
            ValueError: A servo refuses, or does not answer.
        """
        for servo in self.arm.masters:
            self._write(servo, _TORQUE.address, _TORQUE.pack(1), "torque")

    def _images(self) -> dict[int, bytes]:
        return self._read(_RAM)

    def _read(self, register: Register) -> dict[int, bytes]:
        """Reads the same registers of all servos."""
        found = read_all(self.arm.bus, self.arm.idents, register, self._patience_s)
        for servo in self.arm.servos:
            if servo.ident not in found:
                raise ValueError(f"{self._named(servo)} does not answer.")
        return found

    def _write(self, servo: Servo, address: int, data: bytes, what: str) -> None:
        answer = self.arm.bus.ask(servo.ident, protocol.write(servo.ident, address, data))
        if answer is None or answer.error & ~protocol.ALERT:
            raise ValueError(f"{self._named(servo)} refuses {what}.")

    def _named(self, servo: Servo) -> str:
        return f"{self.arm.label(servo)} on {self.arm.bus.port}"


def _value(image: bytes, register: Register) -> int:
    """Returns a register's value in the image of RAM."""
    return register.unpack(image[register.address - _RAM.address :])
