"""A device loop in the process of a test, in lock-step with an emulated drake-iiwa-driver."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.real_robot.device_rig import PERIOD
from tests.real_robot.kuka_rig import ANSWER_TIMEOUT_S, KukaRig

from stringline import Embodiment, SafetyLimits
from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
from stringline.real_robot.emulators.program.arm_check import command_row
from stringline.real_robot.emulators.program.capture_file import captured_in
from stringline.real_robot.emulators.program.emulator_client import LcmEmulator
from stringline.real_robot.emulators.program.emulator_settings import USUAL_PREFIX

Vector = NDArray[np.float64]


def emulated(folder: Path, **settings: Any) -> LcmEmulator:
    """Returns an emulator in lock-step, not started, without grippers, that comes up soon."""
    return LcmEmulator(
        lock_step=True,
        time_limit_s=1e9,
        clock_samples=20,
        capture=folder,
        t1_unlimited=True,
        **settings,
    )


class LcmRig(KukaRig):
    """Arms over LCM; `folder` is that of the capture, and `settings` are the driver's."""

    emulator: LcmEmulator

    def __init__(
        self, emulator: LcmEmulator, folder: Path, body: Embodiment, **settings: object
    ) -> None:
        self._folder = folder
        self._worlds: list[int] = []
        self.driver = LcmDriver(
            emulator.ports,
            period_s=PERIOD,
            together=True,
            answer_timeout_s=ANSWER_TIMEOUT_S,
            **settings,  # type: ignore[arg-type]
        )
        # As in configs/robot: commands that are lost must not make the next one too large for the
        # controller.
        limits = SafetyLimits.of(
            body,
            cartesian_speed=None,
            soft_start_s=0.0,
            acceleration=30.0,
            margin_rad=0.02,
            speed_share=0.25,
        )
        super().__init__(emulator, self.driver, body, limits)
        if any(file.stat().st_size for file in folder.glob("*.bin")):
            self.close()
            raise AssertionError("Something was said before it was time.")

    def new_world(self, seed: int = 0) -> None:
        """Begins an episode of the world, in which the arm stands elsewhere."""
        super().new_world(seed)
        self._worlds.append(len(self.sent()))

    def sent(self, prefix: str = USUAL_PREFIX) -> list[tuple[int, bool, Vector]]:
        """Returns period, whether it was passed on, and positions of each command to a program."""
        data = (self._folder / f"{prefix}.bin").read_bytes()
        # Some are damaged by script.
        return [
            (one.period, one.active, np.array(row))
            for one in captured_in(data)
            if (row := command_row(one.data))
        ]

    def assert_within_limits(self, prefix: str = USUAL_PREFIX) -> None:
        """Checks positions, steps and their changes of all commands to the first arm of a program.

        Where commands are missing, speeds and their changes are those by the clock of the program.
        """
        revolute = np.arange(7)
        lower, upper, velocity = (
            values[revolute]
            for values in (self.limits.lower, self.limits.upper, self.limits.velocity)
        )
        sent = self.sent(prefix)
        bounds = [0, *(self._worlds if prefix == USUAL_PREFIX else ()), len(sent)]
        paths = [path for first, end in pairwise(bounds) for path in _paths(sent[first:end])]
        assert paths
        for periods, path in paths:
            assert np.isfinite(path).all()
            assert (path >= lower - 1e-9).all()
            assert (path <= upper + 1e-9).all()
            seconds = PERIOD * np.diff(periods)
            assert (seconds >= 0).all()
            steps = np.diff(path, axis=0)
            assert (np.abs(steps) <= velocity * np.maximum(seconds, PERIOD)[:, None] + 1e-9).all()
            self._assert_gentle(steps, seconds)
        assert max(len(path) for _, path in paths) > 2

    def assert_gentle(self, since: int) -> None:
        """Checks changes of steps of all commands since one."""
        paths = _paths(self.sent()[since:], released=True)
        assert max(len(path) for _, path in paths) > 2
        for periods, path in paths:
            self._assert_gentle(np.diff(path, axis=0), PERIOD * np.diff(periods))

    def _assert_gentle(self, steps: Vector, seconds: Vector) -> None:
        """Checks changes of speeds between steps (T, 7) that took some seconds (T,)."""
        seconds = np.maximum(seconds, PERIOD)
        speeds = steps / seconds[:, None]
        between = (seconds[1:] + seconds[:-1]) / 2
        changes = np.abs(np.diff(speeds, axis=0)) / between[:, None]
        assert (changes <= self.limits.acceleration[:7] + 1e-5).all()


def _paths(
    sent: list[tuple[int, bool, Vector]], *, released: bool = False
) -> list[tuple[NDArray[np.int64], Vector]]:
    """Returns periods (T,) and positions (T, 7) of each path; a release of the arm ends one.

    Commands that the network duplicated count once. `released`: a release ends no path.
    """
    paths: list[list[tuple[int, Vector]]] = [[]]
    for period, active, row in sent:
        if not active and not released:
            paths.append([])
            continue
        path = paths[-1]
        if not path or path[-1][0] != period or not np.array_equal(path[-1][1], row[:7]):
            path.append((period, row[:7]))
    return [
        (np.array([period for period, _ in path]), np.array([row for _, row in path]))
        for path in paths
        if path
    ]
