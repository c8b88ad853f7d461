"""drake-schunk-driver and the WSG behind it, emulated: what it does with commands, what it tells, and what may go wrong.

Read in RobotLocomotion/drake-schunk-driver, d07fcfc (2024): `schunk_driver.cc` and
`position_force_control.cc`. Every 50 ms it takes the newest command and tells a status. The force
is its absolute value. A command is passed on to the gripper only if the force differs by more than
5 N from the force that is felt, or if it turns the motion round. A target is bounded from above
only, and what is no number goes on to the gripper. The last command holds for ever; before the
first, nothing moves. Here the fingers' own drive pulls as it always does, so the force that is
asked for decides only what is passed on.
"""

import math
from collections import Counter

from stringline.datasets.contract.arguments import unknown_name
from stringline.real_robot.drivers.lcm.drake_types import SCHUNK_COMMAND, SCHUNK_STATUS
from stringline.real_robot.drivers.lcm.lcm_schema import LcmDecodeError
from stringline.real_robot.drivers.lcm.wsg import DEAD_BAND_N
from stringline.real_robot.emulators.program.faulty_network import KINDS, Road
from stringline.real_robot.ipc.array_messages import Json

EVENTS = ("cut", "mend", "jam", "free", "nan", "restart")
FAULTS = (*KINDS, *EVENTS)

_TASK_S = 0.05
_STRONGEST_N = 120.0
_MOVING_MM_S = 5.0
_EPOCH_US = 1_700_000_000_000_000
# By which clocks go back with each new world: for whoever listens the program was started anew.
_WORLD_US = 10_000_000_000


class EmulatedWsg:
    """One gripper with its driver.

    Args:
        period_s: Between two ticks.
        stroke_mm: From closed to open.

    Attributes:
        out: The way of what it tells.
        wrong: What it was told and cannot do, by what is wrong with it.
    """

    def __init__(self, *, period_s: float, stroke_mm: float = 110.0) -> None:
        self._stroke_mm = stroke_mm
        self._period_s = period_s
        self._ticks_per_task = max(1, round(_TASK_S / period_s))
        self.out = Road()
        self.wrong = Counter[str]()
        self._heard = 0
        self._nans = 0
        self._jammed = False
        self._worlds = 0
        self.begin()

    def begin(self) -> None:
        """Is started anew: the world has put the fingers elsewhere."""
        self._worlds += 1
        self._ticks = (
            0  # Or when it acts in a world would depend on how long the worlds before were.
        )
        self._command: tuple[float, float] | None = None
        self._executing_mm = 0.0
        self._target_mm = math.nan
        self._homing = 0
        self.sense(1.0, 0.0, 0.0)

    @property
    def opening(self) -> float:
        """Where the fingers are sent; where they are as long as nobody sends them anywhere."""
        target_mm = (
            self._position_mm if self._jammed or math.isnan(self._target_mm) else self._target_mm
        )
        return min(max(target_mm / self._stroke_mm, 0.0), 1.0)

    def sense(self, opening: float, speed: float, force: float) -> None:
        """Shows it what its fingers do.

        Args:
            opening: Of the fingers.
            speed: Openings/s.
            force: N.
        """
        # The world's stops give way under the weight of an arm; those of a gripper do not.
        self._position_mm = min(max(opening, 0.0), 1.0) * self._stroke_mm
        self._speed_mm_s = speed * self._stroke_mm
        # The gripper estimates it from a current, and tells next to none while the fingers are
        # under way.
        self._force = 0.0 if abs(self._speed_mm_s) > _MOVING_MM_S else min(abs(force), _STRONGEST_N)

    def receive(self, payload: bytes) -> None:
        """Takes a message on the channel of commands; the newest counts."""
        if self._homing:
            return  # Nobody is there.
        self._heard += 1
        try:
            found = SCHUNK_COMMAND.decode(payload)
        except LcmDecodeError:
            self.wrong["no command"] += 1
            return
        self._command = (float(str(found["target_position_mm"])), abs(float(str(found["force"]))))
        position_mm, force = self._command
        self.wrong["a position that it cannot take"] += not 0 <= position_mm <= self._stroke_mm
        self.wrong["a force that it does not have"] += not force <= _STRONGEST_N

    def tick(self) -> list[bytes]:
        """Goes on by a period and returns what is told in it."""
        self._ticks += 1
        if self._homing:
            self._homing -= 1
            self._target_mm = self._stroke_mm if self._homing else math.nan
            return []
        if self._ticks % self._ticks_per_task:
            return []
        if self._command is not None:
            self._obey(*self._command)
        return [*self.out.pass_period(), *self.tell()]

    def tell(self) -> list[bytes]:
        """Returns what is told when it tells its state."""
        return self.out.carry(self._status())

    def _obey(self, position_mm: float, force: float) -> None:
        # As C++'s `std::min` does: what is no number stays.
        position_mm = self._stroke_mm if position_mm > self._stroke_mm else position_mm
        force = _STRONGEST_N if force > _STRONGEST_N else force
        turned = (
            position_mm > self._position_mm > self._executing_mm
            or position_mm < self._position_mm < self._executing_mm
        )
        if abs(force - self._force) > DEAD_BAND_N or turned:
            self._executing_mm = self._target_mm = position_mm

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

        Args:
            kind: What happens to the next things it tells (`drop`, `late`, `duplicate`, `reorder`,
                `corrupt`, `nan`); `cut` and `mend` the way to it; `jam` the fingers where they are,
                and `free` them; `restart` its driver, which is silent until it has opened the
                fingers, and then speaks from another place.
            count: Of things told, or of periods until it speaks again, at least 1.

        Raises:
            ValueError: There is no such fault.
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
        """Returns how many commands it has heard, and what was wrong with which of them."""
        wrong: list[Json] = [f"{what} ({count})" for what, count in self.wrong.items() if count]
        return {"heard": self._heard, "wrong": wrong}
