"""Both ALOHA leader arms over two serial lines: only read, and moved by hand."""

from collections.abc import Callable, Mapping

from stringline.datasets.embodiments.aloha import ALOHA, GRIPPER_SERVOS, GripperServo
from stringline.real_robot.driver_interface.driver import ArmState, RobotNotReadyError
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.arm_pair import ArmPair, check_ports
from stringline.real_robot.drivers.dynamixel.bus import LinkLostError
from stringline.real_robot.drivers.dynamixel.read_only import ReadOnlyBus
from stringline.real_robot.drivers.dynamixel.servo_arm import DynamixelArm
from stringline.real_robot.drivers.dynamixel.widowx import WIDOWX


class AlohaLeaders:
    """Reads all eighteen servos of the leaders.

    Joint angles have the same meaning as on the followers, and grippers are openings.

    Args:
        ports: Serial port by arm.
        gripper: Relation between the gripper's servo angle and its opening.
        answer_timeout_s: Longest wait for the answers of one cycle.
    """

    def __init__(
        self,
        ports: Mapping[str, str],
        *,
        baud_rate: int = 1_000_000,
        gripper: GripperServo = GRIPPER_SERVOS["interbotix_leader"],
        answer_timeout_s: float = 0.006,
    ) -> None:
        check_ports(ports)
        arms = [_leader(arm, ReadOnlyBus(ports[arm], baud_rate), gripper) for arm in ALOHA.arms]
        self._pair = ArmPair(arms, answer_timeout_s)

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return ALOHA.arms

    @property
    def servos(self) -> tuple[str, ...]:
        """Names of all eighteen servos, in the order of the state."""
        return self._pair.servos

    def connect(self) -> None:
        """Opens both ports, and checks all servos and that they have no torque.

        Raises:
            RobotNotReadyError: An arm has problems; it lists those of both.
        """
        self._pair.connect()
        problems = [problem for arm in self._pair.arms for problem in _stiff(arm)]
        if problems:
            self.close()
            raise RobotNotReadyError(problems)

    def restore(self) -> None:
        """Sets servos up again that have restarted, or whose port was lost.

        Raises:
            RobotNotReadyError: An arm has problems, or a servo has torque; the states go on to
                report the error.
        """
        if not self._pair.incomplete:
            return
        try:
            self._pair.bring_up(led=False, passive=True)
        except (ValueError, LinkLostError) as error:
            raise RobotNotReadyError(getattr(error, "problems", [str(error)])) from error
        if problems := [problem for arm in self._pair.arms for problem in _stiff(arm)]:
            raise RobotNotReadyError(problems)

    def read(self, clock: Callable[[], float]) -> ArmState:
        """Reads both arms at once and returns the last known state."""
        return self._pair.read(clock, torque_expected=False)

    def close(self) -> None:
        """Closes both ports."""
        self._pair.close()


def _leader(name: str, bus: ReadOnlyBus, gripper: GripperServo) -> DynamixelArm:
    joints = [index for index, joint in enumerate(ALOHA.joints) if joint.arm == name]
    # The relation between its gripper's motor current and a force is unknown, hence 0.
    return DynamixelArm(
        name,
        bus,
        WIDOWX,
        gripper,
        lower=ALOHA.lower[joints],
        upper=ALOHA.upper[joints],
        gripper_newton_per_ampere=0.0,
        passive=True,
    )


def _stiff(arm: DynamixelArm) -> list[str]:
    """Returns a sentence for each servo with torque."""
    try:
        return [
            f"{arm.label(servo)} on {arm.bus.port} has torque, so it cannot be moved by hand. Hold "
            f"the arm, then switch its power off and on."
            for servo in arm.servos
            if arm.bus.read_register(servo.ident, table.TORQUE_ENABLE)
        ]
    except LinkLostError as error:
        return [str(error)]
