"""KUKA arms in lock-step with their emulator: what rigs over FRI and over LCM have in common."""

from tests.real_robot.device_rig import DeviceRig

from stringline import ArmDriver, Embodiment, SafetyLimits
from stringline.real_robot.emulators.program.emulator_client import FriEmulator, LcmEmulator
from stringline.real_robot.incidents.incident_log import IncidentLog
from stringline.real_robot.safety.reasons import Mode

# Messages are sent before the emulator reports that it has advanced, but a busy kernel may deliver
# them some milliseconds later.
ANSWER_TIMEOUT_S = 0.05


class KukaRig(DeviceRig):
    """The loop and its far end, just switched on; arguments are those of `DeviceRig`."""

    def __init__(
        self,
        emulator: FriEmulator | LcmEmulator,
        driver: ArmDriver,
        body: Embodiment,
        limits: SafetyLimits,
        log: IncidentLog | None = None,
    ) -> None:
        emulator.begin(0)
        emulator.reboot()
        try:
            super().__init__(emulator, driver, body, limits, log)
        except BaseException:
            driver.close()
            raise
        self._before = driver.writes

    def new_world(self, seed: int = 0) -> None:
        """Begins an episode of the world; the loop's is begun by `begin`."""
        self.emulator.begin(seed)
        self._before = self._driver.writes

    def writes(self) -> dict[str, int]:
        """Returns how many commands of this episode of the world the emulator has to have got."""
        return dict(
            zip(self._driver.arms, (self._driver.writes - self._before).tolist(), strict=True)
        )

    def rest(self) -> None:
        """Brings the arms to rest, as the device process does before an episode begins."""
        self.loop.brake()
        for _ in range(40):
            self.cycle()
            if self.loop.at_rest:
                return

    def moving(self, joint: int = 0, by: float = 0.8) -> float:
        """Begins a motion of one joint, waits until it moves, and returns its goal."""
        goal = self.state.arms.position.copy()
        goal[joint] += by
        self.want(goal)
        self.until(lambda state: state.mode is Mode.RUN, 3)
        self.cycle(8)
        return float(goal[joint])
