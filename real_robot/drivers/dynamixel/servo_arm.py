"""One arm of Dynamixel servos on its bus: what is asked at connection, and units on the way in and out."""

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.aloha import GripperServo
from stringline.real_robot.driver_interface.driver import TORQUE_LOST, WATCHDOG_EXPIRED, Vector
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.bus import Bus, sync_read
from stringline.real_robot.drivers.dynamixel.control_table import Register
from stringline.real_robot.drivers.dynamixel.viperx import Servo

# Gathered through indirect addresses, so that one sync read tells of faults and motion alike.
_WATCHED = (
    table.TORQUE_ENABLE,
    table.HARDWARE_ERROR,
    table.BUS_WATCHDOG,
    table.PRESENT_CURRENT,
    table.PRESENT_VELOCITY,
    table.PRESENT_POSITION,
    table.TEMPERATURE,
)
_BLOCK = struct.Struct("<BBbhiiB")
_CURRENT = 3
_VELOCITY = 4
_POSITION = 5
_TEMPERATURE = 6
_EXPIRED = -1
_MEASURED_SIZE = 21  # From the current to the temperature.
# A servo's range may be narrower than the joint's by this much, because limits are whole ticks and
# the filter keeps a margin.
_LIMIT_TOLERANCE_RAD = 0.005
# Two servos on one joint that differ by more than play and rounding would work against each other.
_SHADOW_TOLERANCE_RAD = 0.1


class DynamixelArm:
    """The servos of one arm.

    Args:
        name: Of the arm, in the joint names.
        bus: Its line, not open yet.
        servos: In the order of the state's arrays; masters in the order of the joints.
        gripper: The linkage that the last joint turns.
        lower: (K,) joint limits, rad; the gripper's is not looked at.
        upper: (K,) joint limits.
        gripper_newton_per_ampere: Force at the pads by motor current.
        passive: It is only read: how its motors are regulated and limited does not matter.
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
        self.masters = tuple(servo for servo in self.servos if servo.master is None)
        self._gripper = gripper
        self._limits = dict(
            zip(
                (servo.joint for servo in self.masters), zip(lower, upper, strict=True), strict=True
            )
        )
        constants = [
            gripper_newton_per_ampere if servo.joint == "gripper" else servo.model.torque_constant
            for servo in self.servos
        ]
        self._effort_per_count = np.array(constants) * table.CURRENT_UNIT_A
        self._joint_of_servo = np.array(
            [[servo.joint for servo in self.masters].index(servo.joint) for servo in self.servos]
        )
        self._ticks = np.full(len(self.servos), table.CENTRE_TICK, dtype=np.int64)
        self._rates = np.zeros(len(self.servos))
        self._efforts = np.zeros(len(self.servos))
        self.errors: NDArray[np.uint8] = np.zeros(len(self.servos), dtype=np.uint8)
        self.misses: NDArray[np.int32] = np.zeros(len(self.servos), dtype=np.int32)
        self.temperatures: NDArray[np.uint8] = np.zeros(len(self.servos), dtype=np.uint8)

    @property
    def idents(self) -> tuple[int, ...]:
        """Of all servos, in order."""
        return tuple(servo.ident for servo in self.servos)

    def label(self, servo: Servo) -> str:
        """Returns how people call it."""
        shadow = "" if servo.master is None else " shadow"
        return f"{self.name}/{servo.joint}{shadow} (id {servo.ident})"

    def problems(self) -> list[str]:
        """Asks every servo who it is and how it is set; returns one sentence for each thing that is wrong."""
        found = []
        for servo in self.servos:
            found += [
                f"{self.label(servo)} on {self.bus.port}: {problem}"
                for problem in self._problems_of(servo)
            ]
        return found

    def _problems_of(self, servo: Servo) -> list[str]:
        # Two of one kind may answer a ping as one, bit by bit; what they measure differs.
        told = protocol.read(servo.ident, table.PRESENT_CURRENT.address, _MEASURED_SIZE)
        for question in (protocol.ping(servo.ident), told):
            answers, garbled = self.bus.everything(question)
            if len(answers) > 1:
                return [
                    (
                        f"{len(answers)} servos answer to this id. Plug in each alone and give it "
                        f"the "
                        f"id that it should have."
                    )
                ]
            if garbled:
                return [
                    "its answer is garbled. Either two servos have this id, or the line is noisy."
                ]
            if not answers:
                return ["it does not answer. Check its cable and its power."]
        return self._problems_of_one(servo)

    def _problems_of_one(self, servo: Servo) -> list[str]:
        if wrong := self._wrong_model(servo):
            return [wrong]
        expected = {table.DRIVE_MODE: servo.drive_mode, table.SECONDARY_ID: servo.secondary_id}
        expected[table.STATUS_RETURN_LEVEL] = table.ANSWERS_ALL
        if not self._passive:
            # Profiles that another program has left behind would make the joint follow something
            # else than the filter's path.
            expected |= {
                table.OPERATING_MODE: servo.operating_mode,
                table.SHUTDOWN: table.FACTORY_SHUTDOWN,
            }
            expected |= {table.PROFILE_VELOCITY: 0, table.PROFILE_ACCELERATION: 0}
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
            return "it does not tell its model."
        kinds = (servo.model, *servo.alternatives)
        if model in {kind.number for kind in kinds}:
            return ""
        got = table.MODELS[model].name if model in table.MODELS else f"model {model}"
        return f"it is a {got}; expected is a {' or '.join(kind.name for kind in kinds)}."

    def _pace_problems(self, servo: Servo) -> list[str]:
        """Finds a servo that would answer too late for a cycle in which nine do, or has no watchdog."""
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
        """Finds limits in the servo that would make it ignore goals which the safety filter allows."""
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
                (
                    f"its position limits are {low_rad:.3f} to {high_rad:.3f} rad; the joint's are "
                    f"{lower:.3f} to {upper:.3f} rad."
                )
            ]
        return []

    def watch(self) -> None:
        """Sets what the cyclic read brings. Shadows follow their masters, also in this.

        Raises:
            ValueError: A servo refuses.
        """
        addresses = [
            register.address + offset for register in _WATCHED for offset in range(register.size)
        ]
        data = b"".join(address.to_bytes(2, "little") for address in addresses)
        for servo in self.masters:
            answer = self.bus.ask(
                servo.ident, protocol.write(servo.ident, table.INDIRECT_ADDRESS.address, data)
            )
            if answer is None or answer.error & ~protocol.ALERT:
                raise ValueError(
                    f"{self.label(servo)} does not take the list of registers to watch."
                )

    def take(self, answers: dict[int, protocol.Packet], *, torque_expected: bool) -> None:
        """Keeps what a cyclic read brought."""
        self.misses += 1
        for index, servo in enumerate(self.servos):
            if servo.ident not in answers:
                continue
            block = _BLOCK.unpack(answers[servo.ident].data)
            torque, error, watchdog = block[:3]
            if torque_expected:
                error |= (0 if torque else TORQUE_LOST) | (
                    WATCHDOG_EXPIRED if watchdog == _EXPIRED else 0
                )
            self.errors[index] = error
            self.misses[index] = 0
            self.temperatures[index] = block[_TEMPERATURE]
            self._ticks[index] = block[_POSITION]
            self._rates[index] = block[_VELOCITY] * table.VELOCITY_UNIT_RAD_S
            self._efforts[index] = block[_CURRENT] * self._effort_per_count[index]

    def measured(self) -> tuple[Vector, Vector, Vector]:
        """Returns positions, velocities and efforts (K,) of the joints, in the units of the contract."""
        masters = [index for index, servo in enumerate(self.servos) if servo.master is None]
        position = np.asarray(
            (self._ticks[masters] - table.CENTRE_TICK) * table.TICK_RAD, dtype=np.float64
        )
        velocity = self._rates[masters].copy()
        angle = position[-1]
        position[-1] = self._gripper.opening(angle)
        velocity[-1] *= (
            self._gripper.opening(angle + 1e-4) - self._gripper.opening(angle - 1e-4)
        ) / 2e-4
        effort = np.zeros(len(self.masters))
        np.add.at(effort, self._joint_of_servo, self._efforts)
        return position, velocity, effort

    def diverging_shadows(self) -> list[str]:
        """Returns a sentence for each shadow that was last seen elsewhere than its master, which it would then work against."""
        ticks = dict(zip(self.idents, self._ticks.tolist(), strict=True))
        found = []
        for servo in self.servos:
            gap = 0 if servo.master is None else ticks[servo.master] - ticks[servo.ident]
            if abs(gap) * table.TICK_RAD > _SHADOW_TOLERANCE_RAD:
                found.append(
                    f"{self.label(servo)} on {self.bus.port} reads {-gap * table.TICK_RAD:+.3f} "
                    f"rad beside its master (id "
                    f"{servo.master}), and they would work against each other. Its "
                    f"{table.HOMING_OFFSET.name} must grow by "
                    f"{gap}."
                )
        return found

    def goal_packet(self, position: Vector) -> bytes:
        """Returns the sync write of targets (K,) in the units of the contract."""
        angle = position.copy()
        angle[-1] = self._gripper.angle(position[-1])
        return self._goals([table.ticks_of_angle(float(value)) for value in angle])

    def present_as_goal(self) -> bytes:
        """Returns the sync write that makes every servo want to stay where it was last seen."""
        return self._goals(
            [
                int(self._ticks[index])
                for index, servo in enumerate(self.servos)
                if servo.master is None
            ]
        )

    def _goals(self, ticks: Sequence[int]) -> bytes:
        register = table.GOAL_POSITION
        values = {
            servo.ident: register.pack(tick)
            for servo, tick in zip(self.masters, ticks, strict=True)
        }
        return protocol.sync_write(register.address, values)

    def stale_goals(self, timeout_s: float) -> list[str]:
        """Returns a sentence for each servo whose goal is not where it stands."""
        register = table.GOAL_POSITION
        found = []
        asked = {self.bus: [servo.ident for servo in self.masters]}
        answers = sync_read(asked, register.address, register.size, timeout_s)[self.bus]
        for index, servo in enumerate(self.servos):
            if servo.master is not None:
                continue
            goal = register.unpack(answers[servo.ident].data) if servo.ident in answers else None
            if goal != self._ticks[index]:
                where = table.angle_of_ticks(float(self._ticks[index]))
                found.append(
                    f"{self.label(servo)} at {where:.3f} rad does not take that as its goal; move "
                    f"it within its range."
                )
        return found


def watched_size() -> int:
    """Returns how many bytes the cyclic read brings per servo."""
    return _BLOCK.size
