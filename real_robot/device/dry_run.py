"""The log of a dry run: the commands that the safety filter would have sent.

A dry run sends none of them: its driver is read-only, so it drops the commands of the filter, and
its ports reject all bytes that are not part of a read request.
"""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.safety.reasons import Mode, Reason

_NAMED = 4


class CommandLog:
    """The commands of a run, in memory and in a CSV file.

    Args:
        file: CSV file with a row per cycle; if None, no file.

    Attributes:
        missed: Cycles that were overwritten before they were logged.
    """

    def __init__(self, embodiment: Embodiment, file: Path | None = None) -> None:
        self._joints = [joint.name for joint in embodiment.joints]
        self.cycles = 0
        self.missed = 0
        self._last = -1
        self._commands: list[Vector] = []
        self._distance: Vector = np.zeros(len(self._joints))
        self._file = None
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._file = file.open("w", newline="")
            self._rows = csv.writer(self._file)
            named = [
                f"{kind}/{joint}" for kind in ("command", "measured") for joint in self._joints
            ]
            self._rows.writerow(["tick", "time_s", "mode", "reasons", *named])

    def note(self, states: Iterable[DeviceState]) -> None:
        """Logs states, oldest first, that are not logged yet."""
        for state in states:
            if state.tick <= self._last or state.tick == 0:
                continue
            self.missed += state.tick - self._last - 1 if self._last >= 0 else 0
            self._last = state.tick
            self.cycles = self.cycles + 1
            self._commands.append(state.command)
            self._distance = np.maximum(self._distance, np.abs(state.command - state.arms.position))
            if self._file is not None:
                reasons = " ".join(reason.name or "" for reason in Reason if reason & state.reasons)
                head = [state.tick, f"{state.arms.time:.4f}", Mode(state.mode).name, reasons]
                self._rows.writerow(
                    [*head, *(f"{value:.5f}" for value in (*state.command, *state.arms.position))]
                )

    def summary(self) -> list[str]:
        """Returns lines with the range of commands of each joint."""
        if not self._commands:
            return ["No command was computed."]
        commands = np.stack(self._commands)
        lines = [
            f"{self.cycles} commands were computed and none was sent; {self.missed} more were not "
            f"seen."
        ]
        for index, joint in enumerate(self._joints):
            low = commands[:, index].min()
            high = commands[:, index].max()
            lines.append(
                f"  {joint:<20} {low:+.3f} to {high:+.3f}, at most {self._distance[index]:.3f} "
                f"from where the arm was measured"
            )
        return lines

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def furthest(joints: Sequence[str], values: Vector) -> str:
    """Returns the names and values of the joints with the largest values, in descending order."""
    order = np.argsort(-values)[:_NAMED]
    return ", ".join(f"{joints[index]} {values[index]:.3f}" for index in order)
