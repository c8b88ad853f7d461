"""LBR arms over FRI, one controller and one UDP port each: the face that the device process uses.

The first arm gives the beat: a read waits for its message, and its answer leaves as soon as the
filter has looked at it. The others answer in the beat of their own controllers, at once, and go
along the path of the filter's commands a little behind it.
"""

import select
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.arguments import unknown_name
from stringline.real_robot.driver_interface.driver import ArmState, RobotNotReadyError, Tap
from stringline.real_robot.driver_interface.gripper import Gripper, GripperSettings
from stringline.real_robot.driver_interface.interlocks import (
    GLANCE_S,
    Bar,
    describe_bar,
    would_be_refused,
)
from stringline.real_robot.driver_interface.safe_command import SafeCommand, checked
from stringline.real_robot.drivers.fri.enums import OperationMode
from stringline.real_robot.drivers.fri.fri_arm import FriArm
from stringline.real_robot.drivers.fri.fri_link import FriLink
from stringline.real_robot.drivers.fri.joint_values import JOINTS
from stringline.real_robot.drivers.fri.output_gripper import IoGripper, OutputGripper
from stringline.real_robot.drivers.fri.versions import DEFAULT_VERSION, version_of

_PATIENCE_PERIODS = 1.5
# A controller that has been silent for that many periods is gone: its session has ended by then,
# whatever was the cause.
_LOST_AFTER = 10


class FriDriver:
    """Reads and moves one arm or several: for each seven joints, and an opening that only a gripper of its own makes real.

    Args:
        ports: `address:number` of this computer by arm, in the order of the body's arms.
        version: Of FRI.
        period_s: Between two answers; must be the controllers' send period times their receive
            multiplier.
        controllers: Their addresses by arm; without one, whoever speaks first.
        operation_modes: Names of those in which the arms may be moved.
        grippers: Beside the arms, by arm.
        answer_timeout_s: Longest wait for a message; None: one and a half periods.
        connect_timeout_s: Longest wait for the first messages.
        arm_timeout_s: Longest wait until all sessions take commands.
        together: Whether all arms share a beat, as emulated ones in lock-step.
        read_only: Whether commands are thrown away; sessions are kept alive all the same.
    """

    paced = True

    def __init__(
        self,
        ports: Mapping[str, str],
        *,
        version: str = DEFAULT_VERSION,
        period_s: float = 0.01,
        controllers: Mapping[str, str] | None = None,
        operation_modes: Sequence[str] = ("T1",),
        grippers: Mapping[str, GripperSettings] | None = None,
        answer_timeout_s: float | None = None,
        connect_timeout_s: float = 5.0,
        arm_timeout_s: float = 20.0,
        together: bool = False,
        read_only: bool = False,
    ) -> None:
        if not ports or not 1e-3 <= period_s <= 0.1:
            raise ValueError(
                f"FRI needs at least one port and a period from 1 to 100 ms; got {len(ports)} and "
                f"{period_s} s."
            )
        known = version_of(version)
        beside = dict(grippers or {})
        if not known.has_io and any(isinstance(one, IoGripper) for one in beside.values()):
            raise ValueError(
                f"FRI {version} has no inputs and outputs for a gripper; allowed: 1.14 and later."
            )
        for names in (controllers or {}, beside):
            for name in names:
                if name not in ports:
                    raise unknown_name("arm", name, ports)
        modes = frozenset(_mode(name) for name in operation_modes)
        self._ports = dict(ports)
        self._version = version
        self._period_s = period_s
        self._controllers = dict(controllers or {})
        self._modes = modes
        self._grippers: dict[str, Gripper] = {
            name: beside[name].gripper(name, period_s=period_s, read_only=read_only)
            for name in ports
            if name in beside
        }
        self._timeout_s = (
            _PATIENCE_PERIODS * period_s if answer_timeout_s is None else answer_timeout_s
        )
        self._connect_timeout_s = connect_timeout_s
        self._arm_timeout_s = arm_timeout_s
        self._together = together
        self._read_only = read_only
        self._taps: Sequence[Tap] = ()
        self._links = [
            FriLink(port, self._controllers.get(name)) for name, port in self._ports.items()
        ]
        self._arms: list[FriArm] = []
        self._time = self._deadline = 0.0

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return tuple(self._ports)

    @property
    def servos(self) -> tuple[str, ...]:
        """Names of the controllers, and of those grippers that tell something."""
        controllers = [f"{name}/controller ({port})" for name, port in self._ports.items()]
        return (*controllers, *(gripper.servo for gripper in self._telling))

    @property
    def _telling(self) -> list[Gripper]:
        return [gripper for gripper in self._grippers.values() if gripper.servo]

    @property
    def writes(self) -> NDArray[np.int64]:
        """(A,) answers sent to each controller so far."""
        return np.array([arm.sent for arm in self._arms] or [0] * len(self._links), dtype=np.int64)

    def tap(self, taps: Sequence[Tap]) -> None:
        """Lets somebody listen to each port, from now on."""
        for link, tap in zip(self._links, taps, strict=True):
            link.tap = tap

    def connect(self) -> None:
        """Opens the ports and waits until every controller has spoken.

        Raises:
            RobotNotReadyError: With everything that is wrong.
        """
        problems = []
        for link in self._links:
            try:
                link.open()
            except ValueError as error:
                problems.append(str(error))
        if not problems:
            self._arms = [
                self._make(name, link, place)
                for place, (name, link) in enumerate(zip(self._ports, self._links, strict=True))
            ]
            deadline = time.monotonic() + self._connect_timeout_s
            while any(arm.message is None for arm in self._arms) and self._wait(deadline):
                pass
            problems = [problem for arm in self._arms if (problem := arm.problem())]
            problems += [problem for arm in self._arms for problem in self._gripper_problems(arm)]
        if problems:
            self.close()
            raise RobotNotReadyError(problems)

    def _make(self, name: str, link: FriLink, place: int) -> FriArm:
        return FriArm(
            name,
            link,
            version_of(self._version),
            period_s=self._period_s,
            operation_modes=self._modes,
            gripper=self._grippers.get(name),
            read_only=self._read_only,
            own_beat=place > 0 and not self._together,
        )

    def _gripper_problems(self, arm: FriArm) -> list[str]:
        """Says what is wrong with the gripper of an arm, by what its controller tells, or by its own silence."""
        if isinstance(arm.gripper, OutputGripper):
            return [] if arm.message is None else arm.gripper.problems(arm.message.inputs)
        return arm.gripper.connect(self._connect_timeout_s)

    def arm(self) -> None:
        """Answers until every controller takes commands, repeating what it says itself: nothing moves.

        Who only reads goes on without that, after a few seconds; `notes` then says what is in the
        way.

        Raises:
            RobotNotReadyError: One does not, in time; says why.
        """
        patience_s = min(GLANCE_S, self._arm_timeout_s) if self._read_only else self._arm_timeout_s
        deadline = time.monotonic() + patience_s
        self._collect()  # What was known before may be long past.
        while bars := self._bars():
            if not self._wait(deadline):
                if self._read_only:
                    return
                raise RobotNotReadyError(
                    [
                        f"{name} takes no commands: {describe_bar(bar)}."
                        for name, bar in bars.items()
                    ]
                )
            for arm in self._arms:
                arm.answer()

    def _bars(self) -> dict[str, Bar]:
        told = {arm.name: arm.refusal if self._read_only else arm.take_bar() for arm in self._arms}
        return {name: bar for name, bar in told.items() if bar is not Bar.NONE}

    @property
    def notes(self) -> list[str]:
        """What keeps commands from arms that are only read, and which arms give way, a sentence each."""
        refused = (
            [would_be_refused(name, bar) for name, bar in self._bars().items()]
            if self._read_only
            else []
        )
        return [*refused, *(note for arm in self._arms if (note := arm.note))]

    def read(self, clock: Callable[[], float]) -> ArmState:
        """Waits for the beat, or in vain, and returns what is known.

        Args:
            clock: Stamps the end of the read, in seconds.
        """
        beat = self._arms if self._together else self._arms[:1]
        self._deadline = self._patience(beat, time.monotonic())
        self._collect()
        while not all(arm.pending for arm in beat) and self._wait(self._deadline):
            self._answer_others()
        if any(arm.fresh or arm.pending for arm in self._arms):
            self._time = clock()
        for arm in self._arms:
            arm.misses = 0 if arm.fresh or arm.pending else arm.misses + 1
            arm.fresh = False
            arm.gripper.read()
        return self._state()

    def _patience(self, beat: Sequence[FriArm], now: float) -> float:
        """Returns until when to wait for the beat; where it is missing, a period at a time: the others go on in their own."""
        if not any(arm.misses for arm in beat):
            return now + self._timeout_s
        next_s = max(self._deadline + self._period_s, now + self._period_s / 2)
        return min(next_s, now + self._timeout_s)

    def _state(self) -> ArmState:
        rows = []
        efforts = []
        anchors = []
        for arm in self._arms:
            told = arm.message
            gripper = arm.gripper.state
            measured = told.measured if told else np.zeros(JOINTS)
            rows.append(
                (np.append(measured, gripper.opening), np.append(arm.velocity, gripper.speed))
            )
            efforts.append(
                np.append((told.external_torque if told else ()) or np.zeros(JOINTS), gripper.force)
            )
            anchors.append(np.append(arm.anchor, arm.gripper.wanted))
        telling = [gripper.state for gripper in self._telling]
        position, velocity = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        return ArmState(
            time=self._time,
            position=position,
            velocity=velocity,
            effort=np.concatenate(efforts),
            servo_error=np.array(
                [0] * len(self._arms) + [one.error for one in telling], dtype=np.uint16
            ),
            servo_misses=np.array(
                [arm.misses for arm in self._arms] + [one.misses for one in telling], dtype=np.int32
            ),
            lost=np.array([arm.link.lost or arm.misses >= _LOST_AFTER for arm in self._arms]),
            barred=np.array([arm.take_bar() for arm in self._arms], dtype=np.uint8),
            commanded=np.concatenate(anchors),
            asked=np.array([arm.asked for arm in self._arms]),
        )

    def write(self, command: SafeCommand) -> None:
        """Answers the arms that share the beat, and keeps the targets of the others until they ask for them.

        Raises:
            TypeError: It is not a command that the safety filter made.
        """
        for arm, target in zip(
            self._arms, np.split(checked(command).position, len(self._arms)), strict=True
        ):
            arm.offer(target[:JOINTS], float(target[JOINTS]))
        for arm in self._arms if self._together else self._arms[:1]:
            arm.answer()

    def disarm(self) -> None:
        """Stops answering: controllers then end the motion and hold their arms by themselves."""

    def close(self) -> None:
        """Closes the ports. Controllers that get no answers stop their arms."""
        for link in self._links:
            link.close()
        for gripper in self._grippers.values():
            gripper.close()

    def _collect(self) -> None:
        now = time.monotonic()
        for arm in self._arms:
            arm.collect(now)
        self._answer_others()

    def _answer_others(self) -> None:
        """Answers the arms with a beat of their own."""
        if not self._together:
            for arm in self._arms[1:]:
                arm.answer()

    def _wait(self, deadline: float) -> bool:
        """Waits for something to come in and takes it; says whether there is time left."""
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        select.select(self._links, [], [], left)
        now = time.monotonic()
        for arm in self._arms:
            arm.collect(now)
        return True


def _mode(name: str) -> OperationMode:
    if name not in OperationMode.__members__:
        raise unknown_name("operation mode", name, OperationMode.__members__)
    return OperationMode[name]
