"""A device loop in the process of a test, in lock-step with an emulated drake-iiwa-driver: from mailbox to wire all is real."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.real_robot.device_rig import PERIOD, DeviceRig

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.policies.chunk import ActionChunk
from stringline.real_robot.device_state import DeviceState
from stringline.real_robot.drivers.lcm.driver import LcmDriver
from stringline.real_robot.emulators.lcm.client import LcmEmulator
from stringline.real_robot.emulators.lcm.line import commands_in
from stringline.real_robot.emulators.lcm.names import USUAL
from stringline.real_robot.limits import SafetyLimits
from stringline.real_robot.reasons import Mode, describe

Vector = NDArray[np.float64]


def emulated(folder: Path, *arguments: str) -> LcmEmulator:
    """Returns an emulator in lock-step, not started, that has no gripper and comes up soon."""
    settled = ["--lock-step", "--time-limit", "1e9", "--clock-samples", "20", "--gripper", "of_the_arms"]
    return LcmEmulator([*settled, "--capture", str(folder), *arguments])


class LcmRig(DeviceRig):
    """The loop and its far end, just switched on."""

    emulator: LcmEmulator

    def __init__(self, emulator: LcmEmulator, folder: Path, body: Embodiment, **settings: object) -> None:
        self._folder = folder
        emulator.begin(0)
        emulator.reboot()
        self.driver = LcmDriver(
            emulator.ports,
            period_s=PERIOD,
            together=True,
            answer_timeout_s=0.002,  # Whatever is told was told before the emulator said that it went on.
            **settings,  # type: ignore[arg-type]
        )
        self._before = self.driver.writes
        # As in configs/robot: commands that are lost must not make the next one too large for the controller.
        limits = SafetyLimits.of(body, soft_start_s=0.0, acceleration=30.0, margin_rad=0.02, speed_share=0.25)
        try:
            super().__init__(emulator, self.driver, body, limits)
            assert not any(file.stat().st_size for file in folder.glob("*.bin"))  # Nothing is said before it is time.
        except BaseException:
            self.driver.close()
            raise

    def begin_world(self) -> None:
        """Begins an episode of the world as well."""
        self.emulator.begin(0)
        self._before = self.driver.writes
        self.begin()

    def writes(self) -> dict[str, int]:
        """Returns how many commands of this episode of the world the emulator has to have got."""
        return dict(zip(self.driver.arms, (self.driver.writes - self._before).tolist(), strict=True))

    def want(self, target: Vector, count: int = 50) -> None:
        """Puts a plan of 50 Hz that wants the same all the time into the mailbox."""
        due = self.now + 0.02 * np.arange(count, dtype=np.float64)
        self.send(ActionChunk(due, np.tile(target, (count, 1)).astype(np.float32)))

    def until(self, wanted: Callable[[DeviceState], bool], cycles: int) -> int:
        """As for every rig; says why not."""
        try:
            return super().until(wanted, cycles)
        except AssertionError as error:
            raise AssertionError(f"{error} {self.words()}") from error

    def moving(self, joint: int = 0, by: float = 0.8) -> float:
        """Begins a motion of one joint, waits until it is under way, and returns where it goes."""
        goal = self.state.arms.position.copy()
        goal[joint] += by
        self.want(goal)
        self.until(lambda state: state.mode is Mode.RUN, 3)
        self.cycle(8)
        return float(goal[joint])

    def words(self) -> str:
        """Why the filter does what it does."""
        state = self.state
        return " ".join(
            describe(
                state.reasons | state.fault_reasons,
                servos=self.driver.servos,
                arms=self.driver.arms,
                servo_error=state.arms.servo_error,
                servo_misses=state.arms.servo_misses,
                lost=state.arms.lost,
                barred=state.arms.barred,
            )
        )

    def sent(self, prefix: str = USUAL) -> list[tuple[int, bool, Vector]]:
        """Returns period, whether the program passes it on, and positions of all commands that arrived at a program."""
        data = (self._folder / f"{prefix}.bin").read_bytes()
        # Some are damaged by script.
        return [(one.period, one.passed_on, np.array(one.row())) for one in commands_in(data) if one.row()]

    def assert_within_limits(self, prefix: str = USUAL) -> None:
        """Holds all commands that moved the first arm of a program against the limits: positions, and steps between them."""
        hinges = np.arange(7)
        lower, upper, velocity = (values[hinges] for values in (self.limits.lower, self.limits.upper, self.limits.velocity))
        found = [one for one in self.sent(prefix) if one[1]]
        path = np.array([row[:7] for _, _, row in found])
        assert np.isfinite(path).all()
        assert (path >= lower - 1e-9).all()
        assert (path <= upper + 1e-9).all()
        periods = np.array([period for period, _, _ in found])
        follows = np.diff(periods) == 1
        assert (np.diff(periods) >= 0).all()
        assert (np.abs(np.diff(path, axis=0))[follows] <= velocity * PERIOD + 1e-9).all()
