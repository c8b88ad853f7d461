"""An emulated servo: its registers, the writes that it refuses, its trajectories, and its faults.

Between two goals a servo takes its targets from a trapezoid of speed (ROBOTIS e-manual of the X
series, "Profile Velocity(112)"). With a Profile Velocity of 0 the goal is the target at once. With
a Profile Acceleration of 0 the speed is a rectangle. A goal that arrives during the motion
continues at the present speed ("velocity override"). In the time-based profile of Drive Mode,
Profile Velocity is the duration and Profile Acceleration that of each ramp, in ms.
"""

import copy
import math
import struct
from collections.abc import Mapping

from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.control_table import (
    REVERSED,
    HardwareError,
    OperatingMode,
    Register,
    Servo,
)
from stringline.real_robot.drivers.dynamixel.protocol import StatusError

_VELOCITY_TICKS_S = 0.229 * 4096 / 60
_ACCELERATION_TICKS_S2 = 214.577 * 4096 / 60**2
_MS = 1e-3


class PositionProfile:
    """Moves a position to a goal, both in ticks.

    Attributes:
        position: Present target.
        velocity: Its speed, ticks/s.
    """

    def __init__(self, position: float = 0.0) -> None:
        self._acceleration = self._most = math.inf
        self._goal = position
        self.rest(position)

    @property
    def used(self) -> bool:
        """Whether the goal in force has a profile."""
        return self._most < math.inf

    def rest(self, position: float) -> None:
        """Begins again at a position, at rest."""
        self.position = position
        self.velocity = 0.0

    def aim(self, goal: int, velocity: int, acceleration: int, *, timed: bool) -> None:
        """Sets a goal and its profile.

        Args:
            goal: Value of Goal Position.
            velocity: Value of Profile Velocity.
            acceleration: Value of Profile Acceleration.
            timed: Whether the profile is time-based.
        """
        self._goal = goal
        self._most = velocity * _VELOCITY_TICKS_S if velocity else math.inf
        self._acceleration = acceleration * _ACCELERATION_TICKS_S2 if acceleration else math.inf
        if not velocity:
            self.rest(goal)
        elif timed:
            ramp_s = min(acceleration, velocity / 2) * _MS  # The servo limits it to one half.
            self._most = abs(goal - self.position) / (velocity * _MS - ramp_s)
            self._acceleration = self._most / ramp_s if ramp_s else math.inf

    def advance(self, seconds: float) -> None:
        """Advances towards the goal."""
        left = self._goal - self.position
        side = math.copysign(1.0, left)
        before = side * self.velocity
        change = self._acceleration * seconds
        arrives = abs(left) <= (change / 2 if change < math.inf else self._most) * seconds
        if arrives and abs(before) <= change:
            self.rest(self._goal)
            return
        after = min(self._speed(abs(left), before, seconds), self._most)
        after = min(max(after, before - change), before + change)
        mean = after if change == math.inf else (before + after) / 2
        self.position += side * mean * seconds
        self.velocity = side * after

    def _speed(self, left: float, before: float, seconds: float) -> float:
        """Returns the largest speed after a step from which braking ends at the goal.

        The step covers (before + after) / 2 * seconds, and braking after^2 / (2 acceleration).
        """
        if self._acceleration == math.inf:
            return math.inf
        half = self._acceleration * seconds / 2
        square = half**2 + 2 * self._acceleration * (left - before * seconds / 2)
        return math.sqrt(square) - half if square > 0 else -math.inf


_MEMORY = 252
_MODES = frozenset(int(mode) for mode in OperatingMode)
_WATCHDOG_EXPIRED = -1
# Range of each writable register; others are read-only.
_WRITABLE: Mapping[Register, tuple[int, int]] = {
    table.ID: (0, 252),
    table.BAUD_RATE: (0, 7),
    table.RETURN_DELAY: (0, 254),
    table.DRIVE_MODE: (0, 15),
    table.OPERATING_MODE: (0, 16),
    table.SECONDARY_ID: (0, 255),
    table.HOMING_OFFSET: (-1044479, 1044479),
    table.PWM_LIMIT: (0, 885),
    table.CURRENT_LIMIT: (0, 2047),
    table.VELOCITY_LIMIT: (0, 1023),
    table.MAX_POSITION: (0, 4095),
    table.MIN_POSITION: (0, 4095),
    table.STARTUP: (0, 3),
    table.SHUTDOWN: (0, 63),
    table.TORQUE_ENABLE: (0, 1),
    table.STATUS_RETURN_LEVEL: (0, 2),
    table.VELOCITY_I_GAIN: (0, 16383),
    table.VELOCITY_P_GAIN: (0, 16383),
    table.POSITION_D_GAIN: (0, 16383),
    table.POSITION_I_GAIN: (0, 16383),
    table.POSITION_P_GAIN: (0, 16383),
    table.FEEDFORWARD_2ND_GAIN: (0, 16383),
    table.FEEDFORWARD_1ST_GAIN: (0, 16383),
    table.BUS_WATCHDOG: (0, 127),
    table.GOAL_PWM: (-885, 885),
    table.GOAL_CURRENT: (-2047, 2047),
    table.PROFILE_ACCELERATION: (0, 32767),
    table.PROFILE_VELOCITY: (0, 32767),
    table.GOAL_POSITION: (-1048575, 1048575),
}
# Gains that a servo has after each start; XM430 and XM540, and XL430.
_GAINS: Mapping[Register, tuple[int, int]] = {
    table.VELOCITY_I_GAIN: (1920, 1000),
    table.VELOCITY_P_GAIN: (100, 100),
    table.POSITION_D_GAIN: (0, 4000),
    table.POSITION_I_GAIN: (0, 0),
    table.POSITION_P_GAIN: (800, 640),
    table.FEEDFORWARD_2ND_GAIN: (0, 0),
    table.FEEDFORWARD_1ST_GAIN: (0, 0),
}
# What the joint and the supply, instead of the memory, tell a servo that has just started.
_MEASURED = (
    table.PRESENT_CURRENT,
    table.PRESENT_VELOCITY,
    table.PRESENT_POSITION,
    table.INPUT_VOLTAGE,
    table.TEMPERATURE,
)
_TORQUE_AT_START = 1  # Bits of Startup Configuration.
_RESTORES_RAM = 2
_GOALS = (table.GOAL_CURRENT, table.GOAL_POSITION)
_INDIRECT = tuple(
    Register(f"Indirect Address {place + 1}", table.INDIRECT_ADDRESS.address + 2 * place, 2)
    for place in range(table.INDIRECT_COUNT)
)
_INDIRECT_END = table.INDIRECT_ADDRESS.address + 2 * table.INDIRECT_COUNT


class EmulatedServo:
    """One servo with its registers, as configured for its place in an arm.

    Args:
        angle: Angle of its joint when it is switched on, rad.
    """

    def __init__(self, kind: Servo, angle: float = 0.0) -> None:
        self._mounting = -1 if kind.drive_mode & REVERSED else 1
        self._memory = bytearray(_MEMORY)
        self._silence_s = 0.0
        self._profile = PositionProfile()
        for register, value in {
            table.MODEL_NUMBER: kind.model.number,
            table.FIRMWARE: 45,
            table.ID: kind.ident,
            table.BAUD_RATE: 3,
            table.DRIVE_MODE: kind.drive_mode,
            table.OPERATING_MODE: kind.operating_mode,
            table.SECONDARY_ID: kind.secondary_id,
            table.PWM_LIMIT: 885,
            table.CURRENT_LIMIT: kind.current_limit or 2047,
            table.VELOCITY_LIMIT: 131,
            table.MAX_POSITION: kind.upper_tick,
            table.MIN_POSITION: kind.lower_tick,
            table.SHUTDOWN: 52,
        }.items():
            self.set(register, value)
        self._start()
        self.set(table.INPUT_VOLTAGE, 120)
        self.set(table.TEMPERATURE, 35)
        self.sense(angle, 0.0, 0.0)
        # The arm was moved by hand since its last goal: a driver that turns torque on first makes
        # it jump.
        self.set(table.GOAL_POSITION, self._ticks(angle + 0.3))
        self._aim()

    def twin(self) -> "EmulatedServo":
        """Returns a servo with equal settings, a tenth of a radian away."""
        other = copy.deepcopy(self)
        other.set(table.PRESENT_POSITION, self.get(table.PRESENT_POSITION) + 65)
        return other

    def get(self, register: Register) -> int:
        """Returns the value of a register."""
        return register.unpack(
            bytes(self._memory[register.address : register.address + register.size])
        )

    def set(self, register: Register, value: int) -> None:
        """Sets a register without checks, as the firmware itself does."""
        self._memory[register.address : register.address + register.size] = register.pack(value)

    @property
    def alert(self) -> bool:
        """Whether a hardware error is latched."""
        return self.get(table.HARDWARE_ERROR) != 0

    @property
    def torque(self) -> bool:
        """Whether it has torque."""
        return self.get(table.TORQUE_ENABLE) == 1

    def _direction(self) -> int:
        """Sign of the registers relative to the joint's angle; 1 if the drive mode is correct."""
        return self._mounting * (-1 if self.get(table.DRIVE_MODE) & REVERSED else 1)

    def _ticks(self, angle: float) -> int:
        return table.ticks_of_angle(self._direction() * angle) + self.get(table.HOMING_OFFSET)

    def sense(self, angle: float, velocity: float, current: float) -> None:
        """Measures the joint: rad, rad/s, and A, which is clipped to the range of the register."""
        sign = self._direction()
        self.set(table.PRESENT_POSITION, self._ticks(angle))
        self.set(table.PRESENT_VELOCITY, round(sign * velocity / table.VELOCITY_UNIT_RAD_S))
        self.set(
            table.PRESENT_CURRENT,
            max(-32768, min(32767, round(sign * current / table.CURRENT_UNIT_A))),
        )

    def goal_angle(self) -> float | None:
        """Returns the target of the joint in rad, or None without torque."""
        if not self.torque:
            return None
        ticks = self._profile.position - self.get(table.HOMING_OFFSET)
        return self._direction() * table.angle_of_ticks(ticks)

    @property
    def current_share(self) -> float:
        """Largest current as a share of the current limit: below 1 by a goal current in mode 5."""
        limit = self.get(table.CURRENT_LIMIT)
        if self.get(table.OPERATING_MODE) != OperatingMode.CURRENT_BASED_POSITION or not limit:
            return 1.0
        return min(abs(self.get(table.GOAL_CURRENT)) / limit, 1.0)

    def stay(self) -> None:
        """Sets the goal to the present position."""
        self.set(table.GOAL_POSITION, self.get(table.PRESENT_POSITION))
        self._profile.rest(self.get(table.PRESENT_POSITION))
        self._aim()

    def _aim(self) -> None:
        """Begins the motion to the goal; later changes of the profile wait for the next goal."""
        self._profile.aim(
            self.get(table.GOAL_POSITION),
            self.get(table.PROFILE_VELOCITY),
            self.get(table.PROFILE_ACCELERATION),
            timed=bool(self.get(table.DRIVE_MODE) & table.TIME_BASED_PROFILE),
        )
        self._show_profile()

    def follow_profile(self, seconds: float) -> None:
        """Advances the target towards the goal."""
        if not self._profile.used:
            return
        if self.torque:
            self._profile.advance(seconds)
        else:
            self._profile.rest(self.get(table.PRESENT_POSITION))
        self._show_profile()

    def _show_profile(self) -> None:
        speed = self._profile.velocity * table.TICK_RAD / table.VELOCITY_UNIT_RAD_S
        self.set(table.VELOCITY_TRAJECTORY, round(speed))
        self.set(table.POSITION_TRAJECTORY, round(self._profile.position))

    def fail(self, error: HardwareError) -> None:
        """Latches a hardware error, and turns torque off if the shutdown mask contains it."""
        self.set(table.HARDWARE_ERROR, self.get(table.HARDWARE_ERROR) | error)
        if error & self.get(table.SHUTDOWN):
            self.set(table.TORQUE_ENABLE, 0)

    def reboot(self) -> None:
        """Starts again: of RAM only what is measured is left, as after a failure of the power.

        The goal is then 0, of which the manual says nothing; only torque would make it act.
        """
        kept = {register: self.get(register) for register in _MEASURED}
        if self.get(table.STARTUP) & _RESTORES_RAM:
            kept |= {register: self.get(register) for register in _GAINS}
            kept |= {register: self.get(register) for register in _INDIRECT}
        self._start()
        for register, value in kept.items():
            self.set(register, value)
        if self.get(table.STARTUP) & _TORQUE_AT_START:
            self.stay()
            self.set(table.TORQUE_ENABLE, 1)
        self._silence_s = 0.0

    def _start(self) -> None:
        """Sets RAM to its initial values (ROBOTIS e-manual, "Control Table of RAM Area")."""
        self._memory[table.EEPROM_END :] = bytes(_MEMORY - table.EEPROM_END)
        small = self.get(table.MODEL_NUMBER) == table.XL430.number
        for register, values in _GAINS.items():
            self.set(register, values[small])
        self.set(table.STATUS_RETURN_LEVEL, table.ANSWERS_ALL)
        self.set(table.GOAL_PWM, self.get(table.PWM_LIMIT))
        self.set(table.GOAL_CURRENT, 0 if small else self.get(table.CURRENT_LIMIT))
        self.set(table.GOAL_VELOCITY, self.get(table.VELOCITY_LIMIT))
        for place, register in enumerate(_INDIRECT):
            self.set(register, table.INDIRECT_DATA.address + place)
        self._aim()

    def feed_watchdog(self) -> None:
        """Resets the time of the bus watchdog, as any instruction on the line does."""
        self._silence_s = 0.0

    def pass_time(self, seconds: float) -> None:
        """Advances the bus watchdog; once it expires, goals are refused until it is cleared."""
        self._silence_s += seconds
        limit = self.get(table.BUS_WATCHDOG)
        if limit > 0 and self.torque and self._silence_s > limit * table.WATCHDOG_UNIT_S:
            self.set(table.BUS_WATCHDOG, _WATCHDOG_EXPIRED)
            self.stay()

    def read(self, address: int, size: int) -> bytes | None:
        """Returns registers, also through the indirect addresses, or None beyond the memory."""
        if address + size > _MEMORY or size < 1:
            return None
        return bytes(self._memory[self._behind(address + offset)] for offset in range(size))

    def _behind(self, address: int) -> int:
        if address < table.INDIRECT_DATA.address:
            return address
        pointer = table.INDIRECT_ADDRESS.address + 2 * (address - table.INDIRECT_DATA.address)
        (target,) = struct.unpack_from("<H", self._memory, pointer)
        return int(target) if target < table.INDIRECT_DATA.address else address

    def write(self, address: int, data: bytes) -> StatusError:
        """Writes all registers, or none if one is refused; returns the error."""
        if address < table.EEPROM_END and self.torque:
            return StatusError.ACCESS
        if table.INDIRECT_ADDRESS.address <= address and address + len(data) <= _INDIRECT_END:
            self._memory[address : address + len(data)] = data
            return StatusError.NONE
        if address >= table.INDIRECT_DATA.address:
            return self._write_behind(address, data)
        changes, error = _registers(address, data)
        for register, value in changes.items():
            error = error or self._refusal(register, value)
        if error:
            return error
        for register, value in changes.items():
            self.set(register, value)
        if table.GOAL_POSITION in changes:
            self._aim()
        return StatusError.NONE

    def _write_behind(self, address: int, data: bytes) -> StatusError:
        """Writes through the indirect addresses; those as at the start lead to the data itself."""
        if address + len(data) > _MEMORY:
            return StatusError.DATA_RANGE
        while data:
            target = self._behind(address)
            size = 1
            while size < len(data) and self._behind(address + size) == target + size:
                size += 1
            if target >= table.INDIRECT_DATA.address:
                self._memory[target : target + size] = data[:size]
            elif error := self.write(target, data[:size]):
                return error
            address += size
            data = data[size:]
        return StatusError.NONE

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


def _registers(address: int, data: bytes) -> tuple[dict[Register, int], StatusError]:
    """Returns the values of the writable registers that data cover, and what is wrong with them."""
    changes: dict[Register, int] = {}
    while data:
        register = next((known for known in _WRITABLE if known.address == address), None)
        if register is None:
            return changes, StatusError.ACCESS
        if len(data) < register.size:
            return changes, StatusError.DATA_LENGTH
        changes[register] = register.unpack(data)
        address += register.size
        data = data[register.size :]
    return changes, StatusError.NONE
