"""Builds the parts of a robot from its settings: emulator, cameras, device, twin and leaders.

It checks FTDI's `latency_timer`: how long a USB serial adapter collects bytes before it passes them
on.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.embodiment_record import record_of
from stringline.real_robot.cameras.calibration_file import UNKNOWN, Calibration
from stringline.real_robot.cameras.camera_settings import RobotCameras
from stringline.real_robot.cameras.cameras import Cameras
from stringline.real_robot.cameras.emulated_camera import emulated_serial
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.scheduling import Priority, check_priority
from stringline.real_robot.device.twin import TwinnedDeviceProcess
from stringline.real_robot.driver_interface.interlocks import ControllerInput
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaLeaders
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.ipc.heartbeat import NO_INPUTS, MotionInputs
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.robots.backends import robot_backend
from stringline.real_robot.robots.robot_settings import RobotSettings
from stringline.real_robot.safety.limits import SafetyLimits, describe_speeds, merged_limits

WANTED_MS = 1


def latency_timer_ms(port: str, system: Path = Path("/sys")) -> int | None:
    """Returns the setting of a port in milliseconds; None for other adapters and missing ports."""
    name = Path(port).resolve().name
    for place in (
        f"bus/usb-serial/devices/{name}/latency_timer",
        f"class/tty/{name}/device/latency_timer",
    ):
        try:
            return int((system / place).read_text())
        except (OSError, ValueError):
            continue
    return None


def check_latency_timer(port: str, system: Path = Path("/sys")) -> str:
    """Checks the setting of a port and describes it.

    Raises:
        ValueError: The adapter delays bytes for too long.
    """
    found = latency_timer_ms(port, system)
    if found is not None and found > WANTED_MS:
        setting = f"/sys/bus/usb-serial/devices/{Path(port).resolve().name}/latency_timer"
        raise ValueError(
            f"{port} delays bytes by {found} ms, too long for 100 cycles per second. Set "
            f"{WANTED_MS} ms with the udev rule in docs/hardware-aloha.md, or until the next "
            f"restart: echo {WANTED_MS} | sudo tee {setting}"
        )
    return f"{port} not known" if found is None else f"{port} {found} ms"


_IMAGE_PX = 128


class RobotFactory:
    """Builds the parts of a robot; the caller starts and ends them.

    Attributes:
        backend: The arms' driver and emulator.
        calibration: Measured camera poses, once `check` has read their file.
    """

    def __init__(self, settings: RobotSettings) -> None:
        self.settings = settings
        emulator = settings.emulator
        emulated_hz = None if emulator is None else float(emulator.get("frame_hz", 12.5))
        self._cameras = RobotCameras(
            settings.cameras, emulated_hz=emulated_hz, file=settings.cameras_file
        )
        self.backend = robot_backend(
            settings.transport, settings.arms, settings.driver, settings.backend
        )
        self.name = settings.name
        self.calibration: Calibration | None = None
        self._period_s = 1.0 / settings.device_hz

    @property
    def embodiment(self) -> Embodiment:
        """The embodiment; its cameras have their measured poses once the calibration is read."""
        if self.calibration is None:
            return self.backend.embodiment
        return self.calibration.applied(self.backend.embodiment)

    def contract(self, wanted: Contract | None = None) -> Contract:
        """Returns the observations and actions of this robot.

        With the contract of a policy, the images have its sizes. If the policy was trained with an
        arm from a file, its contract has kinematics; then this contract has those of the robot.
        """
        embodiment = self.backend.embodiment
        cameras = self._cameras.offered(() if wanted is None else wanted.cameras)
        offered = embodiment.contract(cameras, self.settings.control_hz)
        if wanted is None or wanted.kinematics is None:
            return offered
        return replace(offered, kinematics=record_of(embodiment))

    def cameras(self, emulator: Emulator | None, wanted: Sequence[Camera] | None) -> Cameras | None:
        """Builds the camera processes of a policy, or of all cameras if `wanted` is None.

        Returns None without cameras, and in lock-step, where images come from the emulator.
        """
        if self.settings.lock_step or (emulator is not None and not emulator.images):
            return None
        chosen = self._cameras.chosen(wanted, "" if emulator is None else emulator.images)
        return Cameras(chosen) if chosen else None

    def emulator(self, wanted: Sequence[Camera] = ()) -> Emulator | None:
        """Builds the emulator of emulated arms, with images as large as a policy's cameras."""
        if self.settings.emulator is None:
            return None
        return self.backend.emulator(
            lock_step=self.settings.lock_step,
            cameras=tuple(self.settings.cameras),
            image_size=max((camera.height for camera in wanted), default=_IMAGE_PX),
            **self.settings.emulator,
        )

    def twin_emulator(self) -> Emulator:
        """Builds the emulator of a twin, without cameras.

        Raises:
            ValueError: The settings have no twin.
        """
        if self.settings.twin is None:
            raise ValueError(f"The configuration of {self.name} has no twin: robot.twin.")
        return self.backend.emulator(
            lock_step=False, cameras=(), image_size=_IMAGE_PX, **self.settings.twin
        )

    def limits(self) -> SafetyLimits:
        """Returns the limits of the safety filter."""
        return self.backend.limits(**self._merged_limits())

    def _merged_limits(self) -> dict[str, Any]:
        settings = self.settings
        return merged_limits(
            settings.limits,
            settings.limits_file,
            emulated=settings.emulated,
            defaults=settings.default_limits,
        )

    def device(
        self,
        emulator: Emulator | None,
        *,
        read_only: bool = False,
        log: LogPlan | None = None,
        cameras: Cameras | None = None,
        still_grippers: bool = False,
        inputs: MotionInputs = NO_INPUTS,
    ) -> TwinnedDeviceProcess:
        """Builds the device process of the arms.

        The arms hold without fresh images of `cameras`. With `still_grippers` the process sends no
        command to grippers that are not servos of an arm, so that they keep holding what they hold.
        `inputs` permit motion.
        """
        driver = self.backend.driver(
            self.settings.ports if emulator is None else emulator.ports,
            period_s=self._period_s,
            lock_step=self.settings.lock_step,
            read_only=read_only,
            still_grippers=still_grippers,
        )
        pedal = self.settings.hold_to_run
        if isinstance(pedal, ControllerInput) and inputs.permission is not None:
            assert isinstance(driver, FriDriver)
            driver.permit_by(pedal, inputs.permission)
        return TwinnedDeviceProcess(
            driver,
            self.backend.embodiment,
            self.limits(),
            period_s=self._period_s,
            lock_step=self.settings.lock_step,
            log=log,
            cameras=None if cameras is None else cameras.liveness,
            priority=self._priority(moving=not read_only),
            inputs=inputs,
        )

    def twin(self, emulator: Emulator) -> DeviceProcess:
        """Builds the device process of a twin, with the same limits."""
        driver = self.backend.twin_driver(emulator.ports, period_s=self._period_s)
        return DeviceProcess(
            driver,
            self.backend.embodiment,
            self.limits(),
            period_s=self._period_s,
            priority=Priority.NONE,  # The arms come first.
        )

    def leaders(self, emulator: Emulator | None) -> AlohaLeaders:
        """Builds the reader of the leader arms.

        Raises:
            ValueError: The settings have no leaders.
        """
        leaders = self.settings.leaders
        if leaders is None:
            raise ValueError(f"The configuration of {self.name} has no leaders: robot.leaders.")
        return AlohaLeaders(leaders.ports if emulator is None else emulator.ports, **leaders.driver)

    def check(self, checklist: Checklist, *, moving: bool, with_leaders: bool = False) -> None:
        """Runs the checks that open no port."""
        with checklist.check("limits file") as note:
            note(self._check_limits(moving=moving))
        if self.settings.calibration_file is not None or not self.settings.emulated:
            with checklist.check("calibration file") as note:
                note(self._read_calibration(self.settings.calibration_file))
        if self._priority(moving=moving) is Priority.REQUIRED:
            with checklist.check("real-time priority"):
                check_priority(self._period_s)
        others = (self.settings.transport, self.settings.backend)
        if self.settings.emulated or any(name is not None for name in others):
            return  # Without serial adapters.
        leaders = self.settings.leaders if with_leaders else None
        ports = [*self.settings.ports.values(), *(leaders.ports.values() if leaders else ())]
        with checklist.check("latency timers of the adapters") as note:
            note(_check_latency_timers(ports))

    def _priority(self, *, moving: bool) -> Priority:
        """Returns the need of real-time priority, which only real arms that move have."""
        if self.settings.emulated or not moving:
            return Priority.PREFERRED
        return Priority.of(self._period_s)

    def _check_limits(self, *, moving: bool) -> str:
        file = self.settings.limits_file
        if file is None and moving and not self.settings.emulated:
            page = "hardware-aloha" if self.backend.embodiment is ALOHA else "hardware-kuka"
            page = page if self.settings.backend is None else "my-robot"
            raise ValueError(
                "real arms need one, with the measured height of the table: "
                f"robot.limits_file=limits.yaml. See docs/{page}.md."
            )
        limits = self.limits()
        speeds = describe_speeds(self._merged_limits())
        if file is None:
            return f"none, {speeds}"
        return f"{file}: table at {1e3 * limits.table_height:.0f} mm, {speeds}, {limits.cell}"

    def _read_calibration(self, file: Path | None) -> str:
        """Reads the measured camera poses and describes them."""
        if file is None:
            return "none: camera poses are the nominal ones of the embodiment"
        known = self.calibration = Calibration.read(file, self.backend.embodiment)
        if not self.settings.lock_step:
            return str(file)
        # In lock-step there are no camera processes whose check reports this.
        found = [f"{name}: {known.check(name, emulated_serial(name))}" for name in known.cameras]
        found += [
            f"{camera.name}: {UNKNOWN}"
            for camera in self._cameras.offered()
            if camera.name not in known.cameras
        ]
        return f"{file}; {'; '.join(found)}"


def _check_latency_timers(ports: Sequence[str]) -> str:
    found = []
    slow = []
    for port in ports:
        try:
            found.append(check_latency_timer(port))
        except ValueError as error:
            slow.append(str(error))
    if slow:
        raise ValueError(" ".join(slow))
    return ", ".join(found)


class NoCameras:
    """The frames of a robot without cameras."""

    def frames(self) -> dict[str, Array]:
        """Returns no frames."""
        return {}
