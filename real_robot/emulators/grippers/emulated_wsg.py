"""drake-schunk-driver and its WSG, emulated, with faults.

After RobotLocomotion/drake-schunk-driver, d07fcfc (2024): `schunk_driver.cc` and
`position_force_control.cc`. Every 50 ms it takes the newest command and publishes a status. The
commanded force is its absolute value. A command is passed on to the gripper only if its force
differs by more than 5 N from the measured one, or if it reverses the motion. A target is limited
from above only, and NaN is passed on. The last command holds for ever; before the first, nothing
moves. A command that is passed on limits the force of the fingers, which is the sum of both; the
gripper's own command to grasp is not used by that program.
"""

import math
from collections import Counter

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.drivers.lcm.drake_types import SCHUNK_COMMAND, SCHUNK_STATUS
from stringline.real_robot.drivers.lcm.lcm_schema import LcmDecodeError
from stringline.real_robot.drivers.lcm.wsg import DEAD_BAND_N
from stringline.real_robot.emulators.program.faulty_channel import KINDS, FaultyChannel
from stringline.real_robot.ipc.array_messages import Json

EVENTS = ("cut", "mend", "jam", "free", "nan", "restart")
FAULTS = (*KINDS, *EVENTS)

_TASK_S = 0.05
_STROKE_MM = 110.0  # From closed to open.
_STRONGEST_N = 120.0
_MOVING_MM_S = 5.0
_EPOCH_US = 1_700_000_000_000_000
# The clock goes back by that with each new world: to listeners the program was restarted.
_WORLD_US = 10_000_000_000


class EmulatedWsg:
    """One gripper with its driver.

    Attributes:
        out: Channel of its status.
        wrong: Number of impossible commands by their error.
        largest_force: Limit of the fingers' force, N.
    """

    def __init__(self, *, period_s: float) -> None:
        self._period_s = period_s
        self._ticks_per_task = max(1, round(_TASK_S / period_s))
        self.out = FaultyChannel()
        self.wrong = Counter[str]()
        self._heard = 0
        self._nans = 0
        self._jammed = False
        self._worlds = 0
        self.begin()

    def begin(self) -> None:
        """Restarts: a new world has moved the fingers."""
        self._worlds += 1
        self._ticks = 0  # So that the times of its actions do not depend on earlier worlds.
        self._command: tuple[float, float] | None = None
        self._executing_mm = 0.0
        self._target_mm = math.nan
        self._homing = 0
        self.largest_force = _STRONGEST_N
        self.sense(1.0, 0.0, 0.0)

    @property
    def opening(self) -> float:
        """Target of the fingers; before the first command, their position."""
        target_mm = (
            self._position_mm if self._jammed or math.isnan(self._target_mm) else self._target_mm
        )
        return min(max(target_mm / _STROKE_MM, 0.0), 1.0)

    def sense(self, opening: float, speed: float, force: float) -> None:
        """Measures the fingers: opening, openings/s and N."""
        # Unlike the stops of a gripper, those of the world yield to the weight of an arm.
        self._position_mm = min(max(opening, 0.0), 1.0) * _STROKE_MM
        self._speed_mm_s = speed * _STROKE_MM
        # The gripper estimates it from a current, which is small while the fingers move.
        self._force = 0.0 if abs(self._speed_mm_s) > _MOVING_MM_S else min(abs(force), _STRONGEST_N)

    def receive(self, payload: bytes) -> None:
        """Takes a message on the channel of commands; the newest counts."""
        if self._homing:
            return  # The driver is restarting.
        self._heard += 1
        try:
            found = SCHUNK_COMMAND.decode(payload)
        except LcmDecodeError:
            self.wrong["not a command"] += 1
            return
        self._command = (float(str(found["target_position_mm"])), abs(float(str(found["force"]))))
        position_mm, force = self._command
        self.wrong["a position out of range"] += not 0 <= position_mm <= _STROKE_MM
        self.wrong["a force out of range"] += not force <= _STRONGEST_N

    def tick(self) -> list[bytes]:
        """Advances by a period and returns the published messages."""
        self._ticks += 1
        if self._homing:
            self._homing -= 1
            self._target_mm = _STROKE_MM if self._homing else math.nan
            return []
        if self._ticks % self._ticks_per_task:
            return []
        if self._command is not None:
            self._execute(*self._command)
        return [*self.out.pass_period(), *self.publish()]

    def publish(self) -> list[bytes]:
        """Returns the messages that arrive when it publishes its status."""
        return self.out.carry(self._status())

    def _execute(self, position_mm: float, force: float) -> None:
        # NaN passes, as in C++'s `std::min`.
        position_mm = _STROKE_MM if position_mm > _STROKE_MM else position_mm
        force = _STRONGEST_N if force > _STRONGEST_N else force
        turned = (
            position_mm > self._position_mm > self._executing_mm
            or position_mm < self._position_mm < self._executing_mm
        )
        if abs(force - self._force) > DEAD_BAND_N or turned:
            self._executing_mm = self._target_mm = position_mm
            self.largest_force = self.largest_force if math.isnan(force) else force

    def _status(self) -> bytes:
        self._nans -= self._nans > 0
        position_mm = math.nan if self._nans else self._position_mm
        force = self._force if self._speed_mm_s > 0 else -self._force
        utime = _EPOCH_US - self._worlds * _WORLD_US + round(self._ticks * self._period_s * 1e6)
        values = {
            "actual_position_mm": position_mm,
            "actual_force": force,
            "actual_speed_mm_per_s": self._speed_mm_s,
        }
        return SCHUNK_STATUS.encode({"utime": utime, **values})

    def fault(self, kind: str, count: int = 0) -> None:
        """Begins or ends a fault.

        `drop`, `late`, `duplicate`, `reorder`, `corrupt` and `nan` apply to the next `count`
        statuses. `cut` and `mend`: the connection; `jam` and `free`: the fingers; `restart`: its
        driver, which is silent for `count` periods, until it has opened the fingers, and then
        publishes from another port.

        Raises:
            ValueError: The fault is unknown.
        """
        match kind:
            case "cut" | "mend":
                self.out.cut = kind == "cut"
            case "jam" | "free":
                self._jammed = kind == "jam"
            case "restart":
                self._homing = max(count, 1)
                self._command = None
                self._executing_mm = 0.0
            case "nan":
                self._nans = max(count, 1) + 1
            case _ if kind in KINDS:
                self.out.plan(kind, count)
            case _:
                raise unknown_name("fault of a gripper", kind, FAULTS)

    def report(self) -> dict[str, Json]:
        """Returns the number of commands that reached it, and the errors in some of them."""
        wrong: list[Json] = [f"{what} ({count})" for what, count in self.wrong.items() if count]
        return {"heard": self._heard, "wrong": wrong}
