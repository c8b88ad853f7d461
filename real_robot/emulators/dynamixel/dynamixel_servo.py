"""A servo as its registers tell it: what may be written when, what is refused, and what a fault does."""

import copy
import struct
from collections.abc import Mapping

from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.control_table import (
    HardwareError,
    OperatingMode,
    Register,
)
from stringline.real_robot.drivers.dynamixel.protocol import StatusError
from stringline.real_robot.drivers.dynamixel.viperx import REVERSED, Servo

_MEMORY = 252
_MODES = frozenset(int(mode) for mode in OperatingMode)
_WATCHDOG_EXPIRED = -1
# Values that each register takes; whatever is not listed here is read-only.
_WRITABLE: Mapping[Register, tuple[int, int]] = {
    table.ID: (0, 252),
    table.BAUD_RATE: (0, 7),
    table.RETURN_DELAY: (0, 254),
    table.DRIVE_MODE: (0, 15),
    table.OPERATING_MODE: (0, 16),
    table.SECONDARY_ID: (0, 255),
    table.HOMING_OFFSET: (-1044479, 1044479),
    table.CURRENT_LIMIT: (0, 2047),
    table.VELOCITY_LIMIT: (0, 1023),
    table.MAX_POSITION: (0, 4095),
    table.MIN_POSITION: (0, 4095),
    table.SHUTDOWN: (0, 63),
    table.TORQUE_ENABLE: (0, 1),
    table.STATUS_RETURN_LEVEL: (0, 2),
    table.BUS_WATCHDOG: (0, 127),
    table.GOAL_CURRENT: (-2047, 2047),
    table.PROFILE_ACCELERATION: (0, 32767),
    table.PROFILE_VELOCITY: (0, 32767),
    table.GOAL_POSITION: (-1048575, 1048575),
}
_GOALS = (table.GOAL_CURRENT, table.GOAL_POSITION)
_INDIRECT_END = table.INDIRECT_ADDRESS.address + 2 * table.INDIRECT_COUNT


class EmulatedServo:
    """One servo with its registers, as configured for its place in an arm.

    Args:
        kind: What it is and how it is set.
        angle: Of its joint when it is switched on, rad.
    """

    def __init__(self, kind: Servo, angle: float = 0.0) -> None:
        self._mounting = -1 if kind.drive_mode & REVERSED else 1
        self._memory = bytearray(_MEMORY)
        self._silence_s = 0.0
        for register, value in {
            table.MODEL_NUMBER: kind.model.number,
            table.FIRMWARE: 45,
            table.ID: kind.ident,
            table.BAUD_RATE: 3,
            table.DRIVE_MODE: kind.drive_mode,
            table.OPERATING_MODE: kind.operating_mode,
            table.SECONDARY_ID: kind.secondary_id,
            table.CURRENT_LIMIT: kind.current_limit or 2047,
            table.VELOCITY_LIMIT: 131,
            table.MAX_POSITION: kind.upper_tick,
            table.MIN_POSITION: kind.lower_tick,
            table.SHUTDOWN: 52,
            table.STATUS_RETURN_LEVEL: 2,
            table.INPUT_VOLTAGE: 120,
            table.TEMPERATURE: 35,
        }.items():
            self.set(register, value)
        self.sense(angle, 0.0, 0.0)
        # Someone moved the arm since its last goal: a driver that turns torque on first makes it
        # jump.
        self.set(table.GOAL_POSITION, self._ticks(angle + 0.3))

    def twin(self) -> "EmulatedServo":
        """Returns another servo that is set alike and stands a tenth of a radian elsewhere."""
        other = copy.deepcopy(self)
        other.set(table.PRESENT_POSITION, self.get(table.PRESENT_POSITION) + 65)
        return other

    def get(self, register: Register) -> int:
        """Returns a register's value."""
        return register.unpack(
            bytes(self._memory[register.address : register.address + register.size])
        )

    def set(self, register: Register, value: int) -> None:
        """Gives a register a value, as the firmware itself does: nothing is checked."""
        self._memory[register.address : register.address + register.size] = register.pack(value)

    @property
    def alert(self) -> bool:
        """Whether a hardware error is latched."""
        return self.get(table.HARDWARE_ERROR) != 0

    @property
    def torque(self) -> bool:
        """Whether it holds or moves its joint."""
        return self.get(table.TORQUE_ENABLE) == 1

    def _direction(self) -> int:
        """Sign of what the registers say against the joint's angle: mounting and drive mode cancel in a well configured arm."""
        return self._mounting * (-1 if self.get(table.DRIVE_MODE) & REVERSED else 1)

    def _ticks(self, angle: float) -> int:
        return table.ticks_of_angle(self._direction() * angle) + self.get(table.HOMING_OFFSET)

    def sense(self, angle: float, velocity: float, current: float) -> None:
        """Takes over what the joint does.

        Args:
            angle: rad.
            velocity: rad/s.
            current: A; what the register cannot show is cut off.
        """
        sign = self._direction()
        self.set(table.PRESENT_POSITION, self._ticks(angle))
        self.set(table.PRESENT_VELOCITY, round(sign * velocity / table.VELOCITY_UNIT_RAD_S))
        self.set(
            table.PRESENT_CURRENT,
            max(-32768, min(32767, round(sign * current / table.CURRENT_UNIT_A))),
        )

    def goal_angle(self) -> float | None:
        """Returns the angle in rad that the joint is driven to, or None without torque."""
        if not self.torque:
            return None
        ticks = self.get(table.GOAL_POSITION) - self.get(table.HOMING_OFFSET)
        return self._direction() * table.angle_of_ticks(ticks)

    def stay(self) -> None:
        """Makes its present position its goal: the world was set up anew."""
        self.set(table.GOAL_POSITION, self.get(table.PRESENT_POSITION))

    def fail(self, error: HardwareError) -> None:
        """Latches a hardware error; torque goes off if the shutdown mask says so."""
        self.set(table.HARDWARE_ERROR, self.get(table.HARDWARE_ERROR) | error)
        if error & self.get(table.SHUTDOWN):
            self.set(table.TORQUE_ENABLE, 0)

    def reboot(self) -> None:
        """Clears what is latched, and torque."""
        for register in (table.HARDWARE_ERROR, table.TORQUE_ENABLE, table.BUS_WATCHDOG):
            self.set(register, 0)
        self._silence_s = 0.0

    def heard_something(self) -> None:
        """Feeds the bus watchdog: any instruction on the line counts."""
        self._silence_s = 0.0

    def pass_time(self, seconds: float) -> None:
        """Lets the bus watchdog run; once it expires, goals are refused until it is cleared."""
        self._silence_s += seconds
        limit = self.get(table.BUS_WATCHDOG)
        if limit > 0 and self.torque and self._silence_s > limit * table.WATCHDOG_UNIT_S:
            self.set(table.BUS_WATCHDOG, _WATCHDOG_EXPIRED)
            self.stay()

    def read(self, address: int, size: int) -> bytes | None:
        """Returns registers, also through the indirect addresses, or None where there are none."""
        if address + size > _MEMORY or size < 1:
            return None
        return bytes(self._memory[self._behind(address + offset)] for offset in range(size))

    def _behind(self, address: int) -> int:
        if address < table.INDIRECT_DATA.address:
            return address
        place = table.INDIRECT_ADDRESS.address + 2 * (address - table.INDIRECT_DATA.address)
        (target,) = struct.unpack_from("<H", self._memory, place)
        return int(target) if target < table.INDIRECT_DATA.address else address

    def write(self, address: int, data: bytes) -> StatusError:
        """Writes registers if all of them may be written now, else none; returns what is wrong."""
        if address < table.EEPROM_END and self.torque:
            return StatusError.ACCESS
        if table.INDIRECT_ADDRESS.address <= address and address + len(data) <= _INDIRECT_END:
            self._memory[address : address + len(data)] = data
            return StatusError.NONE
        changes: dict[Register, int] = {}
        while data:
            register = next((known for known in _WRITABLE if known.address == address), None)
            if register is None:
                return StatusError.ACCESS
            if len(data) < register.size:
                return StatusError.DATA_LENGTH
            changes[register] = register.unpack(data)
            address = address + register.size
            data = data[register.size :]
        wrong = next(
            (
                error
                for register, value in changes.items()
                if (error := self._refusal(register, value))
            ),
            StatusError.NONE,
        )
        if not wrong:
            for register, value in changes.items():
                self.set(register, value)
        return wrong

    def _refusal(self, register: Register, value: int) -> StatusError:
        low, high = _WRITABLE[register]
        if not low <= value <= high or (register is table.OPERATING_MODE and value not in _MODES):
            return StatusError.DATA_RANGE
        if register in _GOALS and self.get(table.BUS_WATCHDOG) == _WATCHDOG_EXPIRED:
            return StatusError.DATA_RANGE
        if register is table.TORQUE_ENABLE and value and self.alert:
            return StatusError.RESULT_FAIL
        if register is table.GOAL_CURRENT and abs(value) > self.get(table.CURRENT_LIMIT):
            return StatusError.DATA_LIMIT
        bounded = (
            register is table.GOAL_POSITION
            and self.get(table.OPERATING_MODE) == OperatingMode.POSITION
        )
        if bounded and not self.get(table.MIN_POSITION) <= value <= self.get(table.MAX_POSITION):
            return StatusError.DATA_LIMIT
        return StatusError.NONE
