"""LBR arms behind drake-iiwa-driver, over LCM, as the device process uses them.

The first arm of the first program clocks the cycles: a read waits for its step, and the command is
sent as soon as the filter has made it. The program takes the newest command at its next step, and
without another one holds it for ever.
"""

import select
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.driver_interface.driver import BusListener, SafeCommand
from stringline.real_robot.driver_interface.gripper import NoGripper
from stringline.real_robot.driver_interface.interlocks import Interlock, describe_interlock
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS, ArmUnit
from stringline.real_robot.drivers.kuka.kuka_driver import KukaDriver, KukaOptions
from stringline.real_robot.drivers.lcm.drake_messages import Channels, program_groups
from stringline.real_robot.drivers.lcm.drake_program import DrakeProgram
from stringline.real_robot.drivers.lcm.lcm_link import LOOPBACK, LcmLink

# Longest time that a command and a status need on their way and in the program, together.
_TRANSIT_PERIODS = 0.5
# A command that has not come back from the group after that many periods, sent that many times, is
# late.
_ECHO_PERIODS = 0.2
_MOST_SENT = 6


class LcmDriver(KukaDriver):
    """Reads and moves one arm or several over LCM.

    Args:
        interface: Address of this computer on LCM's network: loopback if drake-iiwa-driver runs
            here.
        ttl: 0: drake-iiwa-driver runs on this computer; 1: on another one.
        channels: Fields of `Channels` by arm, where they are not the default, arm: {command:
            IIWA_COMMAND, status: IIWA_STATUS, telemetry: IIWA_STATUS_TELEMETRY}. Arms with the same
            group and channels are the robots of one program, in this order.

    Other Args:
        ports: `group:port` of LCM by arm, in the order of the embodiment's arms.
        **options: Arguments of `KukaDriver`. `period_s` must be that of the controllers' messages;
            default: 0.005.
    """

    def __init__(
        self,
        ports: Mapping[str, str],
        *,
        channels: Mapping[str, Mapping[str, Any]] | None = None,
        interface: str = LOOPBACK,
        ttl: int = 0,
        **options: Unpack[KukaOptions],
    ) -> None:
        super().__init__("LCM", ports, channels, 0.005, **options)
        given = channels or {}
        groups = program_groups(ports, {name: Channels.of(given.get(name)) for name in ports})
        heard: dict[str, set[str]] = {}
        for address, one in groups:
            heard.setdefault(address, set()).update(one.names)
        self._links = {
            address: LcmLink(address, interface, ttl, frozenset(names))
            for address, names in heard.items()
        }
        self._programs = [
            DrakeProgram(
                arms,
                self._links[address],
                one,
                period_s=self._period_s,
                transit_s=0.0 if self._together else _TRANSIT_PERIODS * self._period_s,
                by_clock=not self._together,
                read_only=self._read_only,
            )
            for (address, one), arms in groups.items()
        ]
        found = {arm.name: (program, arm) for program in self._programs for arm in program.arms}
        self._arm_units = [
            ArmUnit(*found[name], self._grippers.get(name) or NoGripper()) for name in ports
        ]

    @property
    def _all_links(self) -> Sequence[LcmLink]:
        return list(self._links.values())

    @property
    def _controllers(self) -> Sequence[DrakeProgram]:
        return self._programs

    @property
    def _units(self) -> Sequence[ArmUnit]:
        return self._arm_units

    def _program(self, name: str) -> DrakeProgram:
        return next(one for one in self._programs if any(arm.name == name for arm in one.arms))

    @property
    def _controller_names(self) -> Sequence[str]:
        found = {name: self._program(name) for name in self._ports}
        return [
            f"{name}/drake-iiwa-driver ({one.link.address} {one.channels.status})"
            for name, one in found.items()
        ]

    def listen(self, listeners: Sequence[BusListener]) -> None:
        """Attaches a listener to the bus of each arm; on a shared bus, that of its first arm."""
        for address, one in reversed(list(zip(self._ports.values(), listeners, strict=True))):
            self._links[address].listener = one

    def _begin_session(self) -> None:
        """Does nothing: programs keep what is known of them."""

    def _all_heard(self) -> bool:
        return all(one.status is not None and one.inbox.period_us for one in self._programs)

    def _answer(self, *, clocking: bool) -> None:
        """Does nothing: programs expect no answers."""

    def _begin_arming(self) -> None:
        for program in self._programs:
            program.fresh = False

    def _all_fresh(self) -> bool:
        return all(program.fresh for program in self._programs)

    def _end_arming(self) -> None:
        for gripper in self._measuring:
            # Events before the first command are not a fault: it begins at the measured opening.
            gripper.read()

    def _take_interlocks(self) -> Mapping[str, Interlock]:
        return self._in_order(program.take_interlocks() for program in self._programs)

    def _refusals(self) -> Mapping[str, Interlock]:
        return self._in_order(program.refusals() for program in self._programs)

    def _in_order(self, parts: Iterable[Mapping[str, Interlock]]) -> Mapping[str, Interlock]:
        found = {name: one for part in parts for name, one in part.items()}
        return {name: found[name] for name in self._ports}

    def _obstacles(self, interlocks: Mapping[str, Interlock]) -> Mapping[str, str]:
        if not any(interlocks.values()) and self._all_fresh():
            return {}
        return {name: self._explain(name, one) for name, one in interlocks.items()}

    def _explain(self, name: str, interlock: Interlock) -> str:
        if interlock is Interlock.NONE:
            return "no status of its driver program has arrived lately"
        known = self._program(name).foreigner
        if interlock is Interlock.FOREIGN and known is not None:
            return f"{describe_interlock(interlock)} ({known[0]}, port {known[1]})"
        return describe_interlock(interlock)

    @property
    def _remarks(self) -> Sequence[str]:
        late = [] if self._together else [arm for one in self._programs[1:] for arm in one.arms]
        return [
            f"{arm.name} is commanded in the cycle of another program and may stutter; use one "
            f"program for all arms."
            for arm in late
        ]

    def write(self, command: SafeCommand) -> NDArray[np.bool_]:
        """Sends targets; a gripper gets its own if its arm did."""
        targets = dict(zip(self._ports, self._targets(command), strict=True))
        rows = {name: row[:JOINTS] for name, row in targets.items()}
        sent = [name for program in self._awaiting() for name in self._command(program, rows)]
        for unit in self._arm_units:
            if unit.arm.name in sent:
                unit.gripper.command(float(targets[unit.arm.name][JOINTS]))
        return np.array([name in sent or self._read_only for name in self._ports])

    def _command(self, program: DrakeProgram, rows: Mapping[str, Vector]) -> list[str]:
        """Sends a program its command; returns the names of the arms that were sent theirs.

        A member of the group receives its own datagrams as all others do. One that does not come
        back at once is lost or late, and is sent again; of equal ones the program needs only one.
        """
        names = program.command(rows)
        wait_s = _ECHO_PERIODS * self._period_s / _MOST_SENT
        for attempt in range(_MOST_SENT):
            if attempt:
                program.send_again()
            self._collect()
            deadline = time.monotonic() + wait_s
            while not program.heard and (left := deadline - time.monotonic()) > 0:
                select.select([program.link], [], [], left)
                self._collect()
            if program.heard:
                return names
        program.give_up()
        return []

    def _awaiting(self) -> list[DrakeProgram]:
        """Returns the programs that have made a step which the filter has seen.

        Steps made while it worked are answered by the same command: of two commands between two
        steps a program takes the second only, and the arm would have to make up for both. If the
        arms had no command for one of these steps, they stand, and a command that continues their
        motion would be a jump: it is not sent, and the next cycle starts from rest.
        """
        awaiting = [(program, program.stands) for program in self._programs if program.pending]
        self._collect()
        return [program for program, stood in awaiting if stood or not program.stands]

    def disarm(self) -> None:
        """Does nothing: programs hold the last command."""

    def _collect(self) -> None:
        for link in self._links.values():
            programs = [program for program in self._programs if program.link is link]
            for message in link.receive():
                for program in programs:
                    program.take(message)
