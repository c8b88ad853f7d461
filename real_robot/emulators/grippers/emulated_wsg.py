"""drake-schunk-driver and its WSG, emulated, with faults; and the grippers of all arms of a cell.

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
from collections.abc import Mapping

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.drivers.grippers.gripper_choice import WSG_LCM, gripper_settings
from stringline.real_robot.drivers.lcm.drake_messages import SCHUNK_COMMAND, SCHUNK_STATUS
from stringline.real_robot.drivers.lcm.lcm_link import LcmDecodeError, LcmLink
from stringline.real_robot.drivers.lcm.wsg import DEAD_BAND_N, WsgGripper
from stringline.real_robot.emulators.program.emulator_settings import KukaSettings
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


class GripperRig:
    """Grippers in one multicast group, beside emulated arms.

    Args:
        settings: Addresses and channels, as the drivers at the other end have them.
    """

    def __init__(self, arms: tuple[str, ...], settings: WsgGripper, *, period_s: float) -> None:
        self._settings = settings
        self._period_s = period_s
        self._arms = arms
        self._channels = {settings.channels(arm)[0]: arm for arm in arms}
        self._link = self._open(frozenset(self._channels))
        self._publishers = {arm: self._open(frozenset()) for arm in arms}
        self.reboot()

    def _open(self, channels: frozenset[str]) -> LcmLink:
        settings = self._settings
        link = LcmLink(settings.address, settings.interface, settings.ttl, channels)
        link.open()
        return link

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self._link.fileno()

    def serve(self) -> None:
        """Receives the commands that have arrived."""
        for message in self._link.receive():
            self.grippers[self._channels[message.channel]].receive(message.payload)

    def reboot(self) -> None:
        """Switches all grippers off and on."""
        self.grippers = {arm: EmulatedWsg(period_s=self._period_s) for arm in self._arms}

    def begin(self) -> None:
        """Starts all grippers again in a new world."""
        for gripper in self.grippers.values():
            gripper.begin()

    def tick(self) -> None:
        """Advances by a period, and publishes the states that are due."""
        for arm, gripper in self.grippers.items():
            self._publish(arm, gripper.tick())

    def publish(self) -> None:
        """Publishes the state of all, whether or not it is due."""
        for arm, gripper in self.grippers.items():
            self._publish(arm, gripper.publish())

    def _publish(self, arm: str, payloads: list[bytes]) -> None:
        for payload in payloads:
            self._publishers[arm].publish(self._settings.channels(arm)[1], payload)

    def fault(self, arm: str, kind: str, count: int) -> None:
        """Begins or ends a fault of one gripper; see `EmulatedWsg.fault`."""
        if arm not in self.grippers:
            raise unknown_name("arm with a gripper", arm, self.grippers)
        self.grippers[arm].fault(kind, count)
        if kind == "restart":
            # A driver that is started again publishes from another port.
            old = self._publishers[arm]
            self._publishers[arm] = self._open(frozenset())
            old.close()

    def report(self) -> Mapping[str, Json]:
        """Returns the report of each gripper, by arm."""
        return {arm: gripper.report() for arm, gripper in self.grippers.items()}

    def close(self) -> None:
        """Leaves the group."""
        for link in (self._link, *self._publishers.values()):
            link.close()


def gripper_rig_of(
    settings: KukaSettings, arms: tuple[str, ...], period_s: float
) -> GripperRig | None:
    """Returns the grippers of an emulator, connected; None if they belong to the controllers."""
    if settings.gripper != WSG_LCM:
        return None
    wsg = {
        "address": settings.gripper_address,
        "interface": settings.gripper_interface,
        "command_channel": settings.gripper_commands,
        "status_channel": settings.gripper_states,
    }
    gripper = gripper_settings({"transport": WSG_LCM, WSG_LCM: wsg}, arms)
    return GripperRig(arms, gripper, period_s=period_s) if isinstance(gripper, WsgGripper) else None
