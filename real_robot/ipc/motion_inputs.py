"""Inputs that permit motion: each renews a time in shared memory for as long as it does."""

from ctypes import c_double
from dataclasses import dataclass

from stringline.real_robot.ipc.heartbeat import heartbeat_memory, silence_s


@dataclass(frozen=True, eq=False)
class MotionInputs:
    """Times at which inputs last permitted motion; None: the input is not used.

    Attributes:
        permission: Of the hold-to-run input; without its permission the arms hold.
        stop_line: Of the external stop; without its permission there is a fault.
    """

    permission: c_double | None = None
    stop_line: c_double | None = None

    def ages_s(self) -> tuple[float, float]:
        """Returns the times since the permissions, seconds; 0 without an input."""
        return _age_s(self.permission), _age_s(self.stop_line)


NO_INPUTS = MotionInputs()


def input_memory() -> c_double:
    """Returns memory for the time of an input that has not permitted motion yet."""
    return heartbeat_memory(0.0)


def _age_s(memory: c_double | None) -> float:
    return 0.0 if memory is None else silence_s(memory)
