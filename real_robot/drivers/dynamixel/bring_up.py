"""Bringing up the servos of an arm: all that they forget without power is set and read back.

A servo whose power fails for a moment answers again within a second, with the initial values of its
RAM: no list of watched registers, no watchdog, other gains, no torque, and a goal that nobody has
set. So nothing in RAM is trusted because it was set before. The order is:

1. `prepare` sets the list, the profiles and the values that the servo had when it was connected,
   and measures by the registers themselves instead of by the list.
2. `set_goals` makes the measured position the goal of each joint without torque, and of hinges to
   which another program gave theirs. The others keep their goals: grippers with torque hold on.
3. `differences` compares everything with what the servos now answer.
4. `turn_on` turns the torque on *through the list*. A servo that has lost it since then keeps its
   torque off, since the same write then changes nothing but a byte of data.
"""

from collections.abc import Mapping

from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.bus import read_all
from stringline.real_robot.drivers.dynamixel.control_table import Register
from stringline.real_robot.drivers.dynamixel.servo_arm import EXPIRED, WATCHED, DynamixelArm
from stringline.real_robot.drivers.dynamixel.viperx import Servo

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
