"""The goals in the bytes that emulated servos capture, and their limits.

Goals on the wire are whole ticks. So a position may be half a tick beyond its limit, a step one
tick longer than velocity allows, and the change of steps two ticks larger than acceleration allows.
"""

from pathlib import Path

import numpy as np

from stringline.datasets.embodiments.aloha import ALOHA, FOLLOWER
from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Packet, Parser
from stringline.real_robot.emulators.program.arm_check import ArmCheck
from stringline.real_robot.emulators.program.capture_file import arrivals_in
from stringline.real_robot.safety.limits import SafetyLimits

JOINTS = 7  # Joints of an arm, the gripper last.
_OPENING_PER_RAD = 0.9  # The linkage of the gripper opens by at most that.
_HEAD = table.GOAL_POSITION.address.to_bytes(2, "little") + table.GOAL_POSITION.size.to_bytes(
    2, "little"
)
_ENTRY = 1 + table.GOAL_POSITION.size


def goals_of(packets: list[Packet]) -> Vector:
    """Returns the goals (T, 7) in packets to an arm: rad, and the opening of the gripper."""
    written = []
    for packet in packets:
        if packet.instruction == Instruction.SYNC_WRITE and packet.parameters[:4] == _HEAD:
            entries = packet.parameters[4:]
            ticks = [
                int.from_bytes(entries[at + 1 : at + _ENTRY], "little", signed=True)
                for at in range(0, _ENTRY * JOINTS, _ENTRY)
            ]
            written.append([table.angle_of_ticks(tick) for tick in ticks])
    angles = np.array(written, dtype=np.float64).reshape(-1, JOINTS)
    angles[:, -1] = FOLLOWER.opening(angles[:, -1])
    return angles


class CapturedGoals:
    """The goals of an arm in a file that grows.

    Args:
        file: File that the emulator captures; see its `--capture`.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._at = 0
        self._parser = Parser()

    def fresh(self) -> tuple[Vector, Vector]:
        """Returns the goals (T, 7) since the last call, and their times of arrival (T,).

        Times are in seconds; NaN where the emulator recorded none, as in lock-step.
        """
        with self._file.open("rb") as stream:
            stream.seek(self._at)
            data = stream.read()
        start = self._at
        self._at += len(data)
        ends = [(end, when) for end, when in arrivals_in(self._file) if start < end < self._at]
        goals: list[Vector] = []
        times: list[float] = []
        for end, when in [*ends, (self._at, self._time_of(self._at))]:
            found = goals_of(self._parser.feed(data[: end - start]))
            data = data[end - start :]
            start = end
            goals.append(found)
            times += [when] * len(found)
        return np.concatenate(goals), np.array(times)

    def _time_of(self, count: int) -> float:
        return next((when for end, when in arrivals_in(self._file) if end >= count), np.nan)


def servo_check(arm: str, limits: SafetyLimits, period_s: float) -> ArmCheck:
    """Returns the check of an arm's goals by the limits of both arms."""
    own = [index for index, joint in enumerate(ALOHA.joints) if joint.arm == arm]
    tick = np.full(JOINTS, table.TICK_RAD)
    tick[-1] *= _OPENING_PER_RAD
    return ArmCheck(
        limits.lower[own] - tick / 2,
        limits.upper[own] + tick / 2,
        limits.velocity[own] * period_s + tick,
        limits.acceleration[own] * period_s**2 + 2 * tick,
    )
