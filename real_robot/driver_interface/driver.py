"""The interface of all drivers: the state that they measure, and the commands that they accept.

A driver sends only a `SafeCommand`, and only the safety filter can make one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

# The permission to make commands. Only the safety filter imports it, which a test asserts.
SEAL: Final = object()


class SafeCommand:
    """Joint targets that passed every stage of the safety filter.

    Args:
        position: (J,) rad, and opening of the grippers.
        sequence: Number of the command, counted by its filter.
        seal: `SEAL`.

    Raises:
        TypeError: The seal is another object.
    """

    __slots__ = ("_position", "_seal", "_sequence")
    _position: NDArray[np.float64]
    _sequence: int

    def __init__(self, position: NDArray[np.float64], sequence: int, seal: object) -> None:
        if seal is not SEAL:
            raise TypeError(
                "A SafeCommand is made by the SafetyFilter only; hand your targets to the filter."
            )
        kept = np.array(position, dtype=np.float64)
        kept.setflags(write=False)
        object.__setattr__(self, "_position", kept)
        object.__setattr__(self, "_sequence", sequence)
        object.__setattr__(self, "_seal", seal)

    def __init_subclass__(cls) -> NoReturn:
        """Refuses subclasses, which could skip the check."""
        raise TypeError("SafeCommand cannot be derived from.")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuses changes after the filter's last check."""
        raise AttributeError(f"A SafeCommand does not change; {name!r} was to be set to {value!r}.")

    def __reduce__(self) -> NoReturn:
        """Refuses copies and transfer: commands are made in the process that writes them."""
        raise TypeError("A SafeCommand stays in the process of the filter that made it.")

    @property
    def position(self) -> NDArray[np.float64]:
        """(J,), read-only."""
        return self._position

    @property
    def sequence(self) -> int:
        """Number of the command."""
        return self._sequence


def checked(command: object) -> SafeCommand:
    """Returns a command of the safety filter unchanged.

    Raises:
        TypeError: The object is anything else.
    """
    if type(command) is not SafeCommand or getattr(command, "_seal", None) is not SEAL:
        raise TypeError(
            f"Only a SafeCommand made by the SafetyFilter can be written to the robot; got "
            f"{type(command).__name__}."
        )
    return command


Vector = NDArray[np.float64]

# Bits of `ArmState.servo_error` beyond those of the servo's own hardware error register. The
# three after `WATCHDOG_EXPIRED` are those of grippers.
TORQUE_LOST = 0x02
WATCHDOG_EXPIRED = 0x40
NOT_FOLLOWING = 0x80
STARTED_ANEW = 0x100
NOT_ALONE = 0x200
RESTARTED = 0x400

Errors = NDArray[np.unsignedinteger[Any]]


class RobotNotReadyError(ValueError):
    """The robot differs from its configuration, or cannot move.

    Args:
        problems: One sentence per problem.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__(
            "The robot is not ready." + "".join(f"\n  - {problem}" for problem in problems)
        )
        self.problems = problems


@dataclass(frozen=True, eq=False)
class ArmState:
    """The last known state of the arms. Joints that did not answer keep their last values.

    Attributes:
        time: Arrival of the last answer, seconds on the clock of the device process.
        position: (J,) rad, and opening of the grippers.
        velocity: (J,) rad/s and openings/s.
        effort: (J,) Nm, and N of the grippers; from the motor current.
        servo_error: (S,) at most 16 bits per servo: its hardware error register, `TORQUE_LOST`,
            `WATCHDOG_EXPIRED`, `NOT_FOLLOWING`, `STARTED_ANEW`, `NOT_ALONE`, `RESTARTED`.
        servo_misses: (S,) int32 consecutive reads without an answer of this servo; for a servo that
            publishes its state by itself, consecutive states that are overdue.
        lost: (A,) bool per arm: its port is gone.
        temperature: (S,) degrees Celsius per servo; (0,) if it is not measured.
        interlock: (A,) uint8 per arm: the `Interlock` of its controller; (0,) for arms without a
            controller of their own.
        commanded: (J,) position that the next command must continue; (0,) if that is the measured
            one.
        accepts: (A,) bool per arm: whether a command can be sent in this cycle; (0,) if it always
            can. A command that cannot be sent is treated as if it had never been made.
        gripper_goals: (G,) opening of the goal of each gripper, in the order of the joints; the
            next command continues it, also while an object keeps the gripper wider. (0,) if
            `commanded` contains them, or if the driver does not know.
        kept_goals: (J,) position that a joint is still commanded, because its last command has not
            arrived; the next command continues it from rest. NaN for joints whose last command has
            arrived, or of which the driver does not know; (0,) if it never knows.
        stands: (A,) bool per arm: whether it has come to rest at the last command, since no further
            command reached it in time; (0,) if the driver does not know, so that the time between
            the commands decides.
    """

    time: float
    position: Vector
    velocity: Vector
    effort: Vector
    servo_error: Errors
    servo_misses: NDArray[np.int32]
    lost: NDArray[np.bool_]
    temperature: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    interlock: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    commanded: Vector = field(default_factory=lambda: np.zeros(0))
    accepts: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    stands: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    gripper_goals: Vector = field(default_factory=lambda: np.zeros(0))
    kept_goals: Vector = field(default_factory=lambda: np.zeros(0))

    @property
    def anchor(self) -> Vector:
        """(J,) position at which commands begin that do not continue others."""
        return self.commanded if len(self.commanded) else self.position


class BusListener(Protocol):
    """Receives a copy of every byte on a bus."""

    def sent(self, data: bytes) -> None:
        """Receives bytes that were sent."""
        ...

    def received(self, data: bytes) -> None:
        """Receives bytes that were received."""
        ...


class ArmDriver(Protocol):
    """All arms that one device process moves.

    The constructor opens nothing; `connect` opens the ports.
    """

    @property
    def servos(self) -> tuple[str, ...]:
        """Names of all S servos, such as `left/elbow (id 4)`, in the order of the state."""
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
    def clocked_by_robot(self) -> bool:
        """Whether the robot clocks the cycles; `read` then waits for its message."""
        ...

    def listen(self, listeners: Sequence[BusListener]) -> None:
        """Attaches a listener to the bus of each arm."""
        ...

    def connect(self) -> None:
        """Opens the ports and checks that the expected robot answers. The robot may move.

        Raises:
            RobotNotReadyError: The robot has problems; it lists all of them.
            ValueError: A port cannot be opened.
        """
        ...

    def arm(self) -> None:
        """Turns torque on at the measured position.

        Raises:
            RobotNotReadyError: A servo refuses.
        """
        ...

    @property
    def notes(self) -> list[str]:
        """Remarks for the operator about armed arms, a sentence each."""
        ...

    def read(self, clock: Callable[[], float]) -> ArmState:
        """Measures the state; `clock` stamps the answers.

        Faults of the robot never raise: the state reports them.
        """
        ...

    def write(self, command: SafeCommand) -> NDArray[np.bool_]:
        """Sends targets.

        Returns:
            (A,) whether each arm was sent its command; True for a driver that only reads. An arm
            that was not holds its last command, and the filter continues there from rest.

        Raises:
            TypeError: The command was not made by the safety filter.
        """
        ...

    def disarm(self) -> None:
        """Turns torque off; the arms fall unless they are supported."""
        ...

    def close(self) -> None:
        """Closes the ports. Arms with torque keep their last target."""
        ...


@runtime_checkable
class RestoringDriver(Protocol):
    """A driver that brings its arms up again in a run, after the operator's reset of a fault."""

    def restore(self) -> None:
        """Brings up what has restarted or lost its torque or its port, as `arm` does.

        Arms that need nothing keep their goals.

        Raises:
            RobotNotReadyError: Something refuses; the fault remains.
        """
        ...
