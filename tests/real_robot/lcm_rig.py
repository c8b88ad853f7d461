"""A device loop in the process of a test, in lock-step with an emulated drake-iiwa-driver."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.real_robot.device_rig import PERIOD
from tests.real_robot.kuka_rig import ANSWER_TIMEOUT_S, KukaRig

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
from stringline.real_robot.emulators.lcm.command_check import command_row
from stringline.real_robot.emulators.lcm.lcm_client import LcmEmulator
from stringline.real_robot.emulators.program.capture_file import captured_in
from stringline.real_robot.emulators.program.emulator_settings import USUAL_PREFIX
from stringline.real_robot.safety.limits import SafetyLimits

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

        Where commands are missing only the position counts: these tests lose commands on their way,
        let the arm go and restart its program. `LcmLine` checks gaps of the driver itself.
        """
        hinges = np.arange(7)
        lower, upper, velocity = (
            values[hinges]
            for values in (self.limits.lower, self.limits.upper, self.limits.velocity)
        )
        found = [one for one in self.sent(prefix) if one[1]]
        path = np.array([row[:7] for _, _, row in found])
        assert np.isfinite(path).all()
        assert (path >= lower - 1e-9).all()
        assert (path <= upper + 1e-9).all()
        periods = np.diff([period for period, _, _ in found])
        assert (periods >= 0).all()
        steps = np.diff(path, axis=0)
        follows = periods == 1
        assert (np.abs(steps)[follows] <= velocity * PERIOD + 1e-9).all()
        self._assert_gentle(steps, follows)

    def assert_gentle(self, since: int) -> None:
        """Checks changes of steps of all commands since one."""
        sent = self.sent()[since:]
        steps = np.diff(np.array([row[:7] for _, _, row in sent]), axis=0)
        self._assert_gentle(steps, np.diff([period for period, _, _ in sent]) <= 1)

    def _assert_gentle(self, steps: Vector, follows: NDArray[np.bool_]) -> None:
        """Checks changes of steps (T, 7), where both follow their predecessors (T,)."""
        changes = np.abs(np.diff(steps, axis=0))[follows[1:] & follows[:-1]]
        assert len(changes)
        assert (changes <= self.limits.acceleration[:7] * PERIOD**2 + 1e-9).all()
