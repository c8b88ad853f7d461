"""The face of every driver: what it measures, and the only kind of command that it accepts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.driver_interface.safe_command import SafeCommand

Vector = NDArray[np.float64]

# Bits of `ArmState.servo_error` beyond those of the servo's own hardware error register; the last
# three are of grippers.
TORQUE_LOST = 0x02
WATCHDOG_EXPIRED = 0x40
NOT_FOLLOWING = 0x80
STARTED_ANEW = 0x100
NOT_ALONE = 0x200

Errors = NDArray[np.unsignedinteger[Any]]


class RobotNotReadyError(ValueError):
    """The robot is not what the driver was told, or not in a state to move.

    Args:
        problems: One sentence for each thing that is wrong.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__(
            "The robot is not ready." + "".join(f"\n  - {problem}" for problem in problems)
        )
        self.problems = problems


@dataclass(frozen=True, eq=False)
class ArmState:
    """What the arms were last known to do. Joints that did not answer keep their last values.

    Attributes:
        time: When the last answer arrived, seconds on the clock of the device process.
        position: (J,) rad, and opening of the grippers.
        velocity: (J,) rad/s and openings/s.
        effort: (J,) Nm, and N of the grippers; from the motor current.
        servo_error: (S,) at most 16 bits per servo: its hardware error register, `TORQUE_LOST`,
            `WATCHDOG_EXPIRED`, `NOT_FOLLOWING`, `STARTED_ANEW`, `NOT_ALONE`.
        servo_misses: (S,) int32 reads in a row that this servo left unanswered; one that tells its
            state by itself, and more rarely, left out so many turns.
        lost: (A,) bool per arm: its port is gone.
        temperature: (S,) degrees Celsius per servo, or nothing where nobody measures it.
        barred: (A,) uint8 per arm with a controller of its own: why that takes no commands, see
            `bars.Bar`; or nothing.
        commanded: (J,) where commands go on from if that is not where the arms are measured to be,
            or nothing.
        asked: (A,) bool per arm: whether it can be sent a command in this cycle, or nothing where
            that is always so. A command that cannot be sent is as if it had never been made.
    """

    time: float
    position: Vector
    velocity: Vector
    effort: Vector
    servo_error: Errors
    servo_misses: NDArray[np.int32]
    lost: NDArray[np.bool_]
    temperature: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    barred: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    commanded: Vector = field(default_factory=lambda: np.zeros(0))
    asked: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    @property
    def anchor(self) -> Vector:
        """(J,) where commands begin that do not continue others."""
        return self.commanded if len(self.commanded) else self.position


class Tap(Protocol):
    """Who listens to every byte on a bus."""

    def sent(self, data: bytes) -> None:
        """Gets bytes that went out."""
        ...

    def received(self, data: bytes) -> None:
        """Gets bytes that came in."""
        ...


class ArmDriver(Protocol):
    """All arms that one device process moves.

    Constructing does nothing; `connect` opens the ports.
    """

    @property
    def servos(self) -> tuple[str, ...]:
        """Names of all S servos, such as `left/elbow (id 4)`, in the order of the state's arrays."""
        ...

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the A arms."""
        ...

    @property
    def writes(self) -> NDArray[np.int64]:
        """(A,) commands sent to each arm so far."""
        ...

    @property
    def paced(self) -> bool:
        """Whether the robot gives the beat, for which `read` then waits."""
        ...

    def tap(self, taps: Sequence[Tap]) -> None:
        """Lets somebody listen to the bus of each arm, from now on."""
        ...

    def connect(self) -> None:
        """Opens the ports and checks that the expected robot is there, motionless or not.

        Raises:
            RobotNotReadyError: With everything that is wrong.
            ValueError: A port cannot be opened.
        """
        ...

    def arm(self) -> None:
        """Turns torque on where the robot stands.

        Raises:
            RobotNotReadyError: A servo refuses.
        """
        ...

    @property
    def notes(self) -> list[str]:
        """What is worth knowing before the arms move, or are only read: a sentence each, once they are armed."""
        ...

    def read(self, clock: Callable[[], float]) -> ArmState:
        """Measures; `clock` stamps the answers.

        Never raises for what the robot does: the state says what is missing.
        """
        ...

    def write(self, command: SafeCommand) -> None:
        """Sends targets.

        Raises:
            TypeError: It is not a command that the safety filter made.
        """
        ...

    def disarm(self) -> None:
        """Turns torque off; the arms fall unless something holds them."""
        ...

    def close(self) -> None:
        """Closes the ports. Arms with torque keep their last target."""
        ...
