"""LBR arms behind drake-iiwa-driver, over LCM: the face that the device process uses.

The first program's first arm gives the beat: a read waits for its step, and the command leaves as
soon as the filter has looked at it. The program takes the newest command at its next step, and for
want of another holds it for ever.
"""

import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.arguments import unknown_name
from stringline.real_robot.driver_interface.driver import ArmState, RobotNotReadyError, Tap
from stringline.real_robot.driver_interface.gripper import Gripper, GripperSettings, NoGripper
from stringline.real_robot.driver_interface.interlocks import (
    GLANCE_S,
    Bar,
    describe_bar,
    would_be_refused,
)
from stringline.real_robot.driver_interface.safe_command import SafeCommand, checked
from stringline.real_robot.drivers.lcm.channels import Channels, program_groups
from stringline.real_robot.drivers.lcm.driver_messages import DrakeProgram
from stringline.real_robot.drivers.lcm.lcm_arm import LcmArm
from stringline.real_robot.drivers.lcm.lcm_link import LOOPBACK, LcmLink
from stringline.real_robot.drivers.lcm.status import JOINTS

Vector = NDArray[np.float64]

_PATIENCE_PERIODS = 1.5
# What a command and a status may take on their way and in the program, together.
_TRANSIT_PERIODS = 0.5


@dataclass(frozen=True, eq=False)
class _Cell:
    """An arm with what is beside it."""

    program: DrakeProgram
    arm: LcmArm
    gripper: Gripper


class LcmDriver:
    """Reads and moves one arm or several: for each seven joints, and an opening that only a gripper of its own makes real.

    Args:
        ports: `group:port` of LCM by arm, in the order of the body's arms.
        channels: Names by arm, as `Channels`; those of an arm that is not there are as usual. Arms
            with the same group and channels are the robots of one program, in this order.
        interface: Address of this computer on LCM's network.
        ttl: Of what is sent; see `LcmLink`.
        period_s: Between two commands; must be that of the controllers' messages.
        grippers: Beside the arms, by arm.
        answer_timeout_s: Longest wait for a step; None: one and a half periods.
        connect_timeout_s: Longest wait until all programs speak.
        arm_timeout_s: Longest wait until all arms take commands.
        together: Whether all programs share a beat, as emulated ones in lock-step.
        read_only: Whether commands are thrown away.

    Raises:
        ValueError: The arguments do not fit together.
    """

    paced = True

    def __init__(
        self,
        ports: Mapping[str, str],
        *,
        channels: Mapping[str, Mapping[str, Any]] | None = None,
        interface: str = LOOPBACK,
        ttl: int = 0,
        period_s: float = 0.005,
        grippers: Mapping[str, GripperSettings] | None = None,
        answer_timeout_s: float | None = None,
        connect_timeout_s: float = 5.0,
        arm_timeout_s: float = 20.0,
        together: bool = False,
        read_only: bool = False,
    ) -> None:
        if not ports or not 1e-3 <= period_s <= 0.1:
            raise ValueError(
                f"LCM needs at least one arm and a period from 1 to 100 ms; got {len(ports)} and "
                f"{period_s} s."
            )
        for names in (channels or {}, grippers or {}):
            for name in names:
                if name not in ports:
                    raise unknown_name("arm", str(name), ports)
        self._ports = dict(ports)
        self._together = together
        self._read_only = read_only
        groups = program_groups(
            ports, {name: Channels.of((channels or {}).get(name)) for name in ports}
        )
        heard = {
            address: frozenset(name for at, one in groups if at == address for name in one.names)
            for address, _ in groups
        }
        self._links = {
            address: LcmLink(address, interface, ttl, names) for address, names in heard.items()
        }
        self._programs = [
            DrakeProgram(
                arms,
                self._links[address],
                one,
                period_s=period_s,
                transit_s=0.0 if together else _TRANSIT_PERIODS * period_s,
                read_only=read_only,
            )
            for (address, one), arms in groups.items()
        ]
        beside = dict(grippers or {})
        found = {arm.name: (program, arm) for program in self._programs for arm in program.arms}
        self._cells = [
            _Cell(
                *found[name],
                beside[name].gripper(name, period_s=period_s, read_only=read_only)
                if name in beside
                else NoGripper(),
            )
            for name in ports
        ]
        self._timeout_s = (
            _PATIENCE_PERIODS * period_s if answer_timeout_s is None else answer_timeout_s
        )
        self._connect_timeout_s = connect_timeout_s
        self._arm_timeout_s = arm_timeout_s
        self._time = 0.0

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return tuple(self._ports)

    @property
    def servos(self) -> tuple[str, ...]:
        """Names of the driver programs, once for each arm, and of those grippers that tell something."""
        programs = [
            (
                f"{cell.arm.name}/drake-iiwa-driver ({cell.program.link.address} "
                f"{cell.program.channels.status})"
            )
            for cell in self._cells
        ]
        return (*programs, *(gripper.servo for gripper in self._telling))

    @property
    def writes(self) -> NDArray[np.int64]:
        """(A,) commands sent to each arm so far."""
        return np.array([cell.arm.sent for cell in self._cells], dtype=np.int64)

    @property
    def _telling(self) -> list[Gripper]:
        return [cell.gripper for cell in self._cells if cell.gripper.servo]

    def tap(self, taps: Sequence[Tap]) -> None:
        """Lets somebody listen to the bus of each arm, from now on; what several arms share, the first one's tap hears."""
        for address, tap in reversed(list(zip(self._ports.values(), taps, strict=True))):
            self._links[address].tap = tap

    def connect(self) -> None:
        """Joins LCM's groups and waits until every program has spoken. Nothing is sent.

        Raises:
            RobotNotReadyError: With everything that is wrong.
        """
        problems = []
        for link in self._links.values():
            try:
                link.open()
            except ValueError as error:
                problems.append(str(error))
        if not problems:
            deadline = time.monotonic() + self._connect_timeout_s
            while any(
                program.status is None or not program.inbox.period_us for program in self._programs
            ):
                if not self._wait(deadline):
                    break
            problems = [problem for program in self._programs if (problem := program.problem())]
            problems += [
                one for cell in self._cells for one in cell.gripper.connect(self._connect_timeout_s)
            ]
        if problems:
            self.close()
            raise RobotNotReadyError(problems)

    def arm(self) -> None:
        """Listens until every arm takes commands, for longer than the programs' own guard.

        Nothing is sent.

        Who only reads goes on without that, after a few seconds; `notes` then says what is in the
        way.

        Raises:
            RobotNotReadyError: One does not, in time; says why.
        """
        deadline = time.monotonic() + (
            min(GLANCE_S, self._arm_timeout_s) if self._read_only else self._arm_timeout_s
        )
        self._collect()
        for program in self._programs:
            program.fresh = False  # What was known before may be long past.
        while any((bars := self._refusals() or self._bars()).values()) or not all(
            program.fresh for program in self._programs
        ):
            if not self._wait(deadline):
                if self._read_only and all(program.fresh for program in self._programs):
                    return
                raise RobotNotReadyError(
                    [
                        f"{name} takes no commands: {self._explain(name, bar)}."
                        for name, bar in bars.items()
                    ]
                )
        for gripper in self._telling:
            # So what it noticed before is no fault: it is sent from where it stands now.
            gripper.read()

    def _bars(self) -> dict[str, Bar]:
        found = {
            name: bar for program in self._programs for name, bar in program.take_bars().items()
        }
        return {cell.arm.name: found[cell.arm.name] for cell in self._cells}

    def _refusals(self) -> dict[str, Bar]:
        """Returns what keeps commands from arms that are only read, nothing of those that are moved."""
        return (
            {name: bar for one in self._programs for name, bar in one.refusals().items()}
            if self._read_only
            else {}
        )

    @property
    def notes(self) -> list[str]:
        """What keeps commands from arms that are only read, and which arms have no common beat, a sentence each."""
        refused = [would_be_refused(name, bar) for name, bar in self._refusals().items() if bar]
        late = [
            arm.name for program in self._programs[1:] for arm in program.arms if not self._together
        ]
        return [
            *refused,
            *(
                f"{name} is told in the beat of another program and may stutter; use one for all."
                for name in late
            ),
        ]

    def _explain(self, name: str, bar: Bar) -> str:
        if bar is Bar.NONE:
            return "nothing has come from its driver program lately"
        known = next(cell.program.foreigner for cell in self._cells if cell.arm.name == name)
        return describe_bar(bar) + (
            f" ({known[0]}, port {known[1]})" if bar is Bar.FOREIGN and known is not None else ""
        )

    def read(self, clock: Callable[[], float]) -> ArmState:
        """Waits for the beat, or in vain, and returns what is known.

        Args:
            clock: Stamps the end of the read, in seconds.
        """
        beat = self._programs if self._together else self._programs[:1]
        deadline = time.monotonic() + self._timeout_s
        self._collect()
        while not all(program.pending for program in beat) and self._wait(deadline):
            pass
        if any(program.fresh or program.pending for program in self._programs):
            self._time = clock()
        for program in self._programs:
            program.misses = 0 if program.fresh or program.pending else program.misses + 1
            program.fresh = False
        for cell in self._cells:
            cell.gripper.read()
        return self._state()

    def _state(self) -> ArmState:
        rows: list[tuple[Vector, ...]] = []
        for cell in self._cells:
            report = cell.arm.report
            beside = cell.gripper.state
            of_arm = (
                (np.zeros(JOINTS),) * 3
                if report is None
                else (report.measured, report.velocity, report.external)
            )
            told = zip(
                (*of_arm, cell.arm.anchor),
                (beside.opening, beside.speed, beside.force, cell.gripper.wanted),
                strict=True,
            )
            rows.append(tuple(np.append(row, value) for row, value in told))
        position, velocity, effort, commanded = (
            np.concatenate(parts) for parts in zip(*rows, strict=True)
        )
        programs = [cell.program for cell in self._cells]
        telling = [gripper.state for gripper in self._telling]
        return ArmState(
            time=self._time,
            position=position,
            velocity=velocity,
            effort=effort,
            servo_error=np.array(
                [0] * len(programs) + [one.error for one in telling], dtype=np.uint16
            ),
            servo_misses=np.array(
                [one.misses for one in programs] + [one.misses for one in telling], dtype=np.int32
            ),
            lost=np.array([program.link.lost or program.lost for program in programs]),
            barred=np.array(list(self._bars().values()), dtype=np.uint8),
            commanded=commanded,
            asked=np.array([program.pending for program in programs]),
        )

    def write(self, command: SafeCommand) -> None:
        """Sends targets; a gripper is told its own when its arm was.

        Raises:
            TypeError: It is not a command that the safety filter made.
        """
        rows = np.split(checked(command).position, len(self._cells))
        targets = {cell.arm.name: row for cell, row in zip(self._cells, rows, strict=True)}
        told = [
            name
            for program in self._asking()
            for name in program.command({n: row[:JOINTS] for n, row in targets.items()})
        ]
        for cell in self._cells:
            if cell.arm.name in told:
                cell.gripper.command(float(targets[cell.arm.name][JOINTS]))

    def _asking(self) -> list[DrakeProgram]:
        """Returns the programs that have made a step of which the filter knew.

        Steps that were made while it worked are answered by the same command: of two that come
        between two steps a program takes the second only, and the arm would have to make up for
        both.
        """
        asking = [program for program in self._programs if program.pending]
        self._collect()
        return asking

    def disarm(self) -> None:
        """Sends nothing more by itself: programs hold the last command."""

    def close(self) -> None:
        """Leaves the groups. Programs hold the last command."""
        for link in self._links.values():
            link.close()
        for cell in self._cells:
            cell.gripper.close()

    def _collect(self) -> None:
        for link in self._links.values():
            programs = [program for program in self._programs if program.link is link]
            for message in link.receive():
                for program in programs:
                    program.take(message)

    def _wait(self, deadline: float) -> bool:
        """Waits for something to come in and takes it; says whether there is time left."""
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        select.select(list(self._links.values()), [], [], left)
        self._collect()
        return True
