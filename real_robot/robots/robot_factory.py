"""The robot of a configuration: emulator, device process, twin and leaders, made as `configs/robot` says."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stringline.datasets.contract.arguments import NOT_NEGATIVE, POSITIVE
from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.cameras.calibration_file import UNKNOWN, Calibration
from stringline.real_robot.cameras.cameras import Cameras
from stringline.real_robot.cameras.emulated_camera import emulated_serial
from stringline.real_robot.cameras.robot_cameras import RobotCameras
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.twin import ShadowedProcess
from stringline.real_robot.drivers.dynamixel.leaders import AlohaLeaders
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.robots.backends import arm_kind
from stringline.real_robot.robots.latency_timer import demand_quick
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.limits_file import merged_limits

_IMAGE = (128, 128)
_TWIN_SIZE = 128  # Of images that nobody looks at.


class RobotFactory:
    """Makes the parts of a robot; what is made is started and ended by whoever asked for it.

    Args:
        robot: Settings of `configs/robot`, resolved.

    Raises:
        ValueError: There are no such arms, a number is out of range, or real arms are to wait.
    """

    def __init__(self, robot: Mapping[str, Any]) -> None:
        self._robot = robot
        self._cameras = RobotCameras(robot)
        self._kind = arm_kind(robot)
        self.calibration: Calibration | None = None
        self.name = str(robot["name"])
        self.emulated = robot.get("emulator") is not None
        self.lock_step = bool(robot["lock_step"])
        self.device_hz = float(robot["device_hz"])
        self.control_hz = float(robot["control_hz"])
        POSITIVE.check(**{"robot.device_hz": self.device_hz, "robot.control_hz": self.control_hz})
        for name in ("approach_s", "home_s"):
            if robot.get(name) is not None:
                NOT_NEGATIVE.check(**{f"robot.{name}": robot[name]})
        if self.lock_step and not self.emulated:
            raise ValueError("Only an emulated robot can run in lock-step: robot.lock_step=false.")

    def contract(self, asked: Sequence[Camera] = ()) -> Contract:
        """Returns what this robot shows and does.

        Args:
            asked: Cameras of whoever looks, for their image sizes.
        """
        return self._kind.body.contract(self._cameras.offered(asked), self.control_hz)

    @property
    def body(self) -> Embodiment:
        """The body, its cameras where they were measured to be, once the calibration file was looked at."""
        return (
            self._kind.body
            if self.calibration is None
            else self.calibration.applied(self._kind.body)
        )

    def cameras(self, emulator: Emulator | None, asked: Sequence[Camera] | None) -> Cameras | None:
        """Returns the processes of the cameras, not started.

        Args:
            emulator: Started, if the robot is emulated.
            asked: Cameras of whoever looks; None: all.

        Returns:
            None where nobody looks, and in lock-step, where images come from the world when it is
            asked for them.
        """
        if self.lock_step or (emulator is not None and not emulator.images):
            return None
        settings = self._cameras.chosen(asked, "" if emulator is None else emulator.images)
        return Cameras(settings) if settings else None

    def emulator(self, asked: Sequence[Camera] = ()) -> Emulator | None:
        """Returns the emulator of the arms, if they are emulated, with images of the size that is asked for."""
        if not self.emulated:
            return None
        size = max((camera.height for camera in asked), default=_IMAGE[0])
        cameras = self._robot["cameras"]
        settings = self._robot["emulator"]
        return self._kind.emulator(
            lock_step=self.lock_step, cameras=cameras, image_size=size, settings=settings
        )

    def twin_emulator(self) -> Emulator:
        """Returns the emulator of a twin, which is seen by no camera.

        Raises:
            ValueError: The configuration describes none.
        """
        if self._robot.get("twin") is None:
            raise ValueError(f"The configuration of {self.name} describes no twin: robot.twin.")
        return self._kind.emulator(
            lock_step=False, cameras=(), image_size=_TWIN_SIZE, settings=self._robot["twin"]
        )

    def limits(self) -> SafetyLimits:
        """Returns what the safety filter holds the arms to.

        Raises:
            ValueError: The limits file is wrong.
        """
        return self._kind.limits(
            **merged_limits(self._robot["limits"], self._robot.get("limits_file"))
        )

    def device(
        self,
        emulator: Emulator | None,
        *,
        read_only: bool = False,
        log: LogPlan | None = None,
        cameras: Cameras | None = None,
        still_grippers: bool = False,
    ) -> ShadowedProcess:
        """Returns the device process of the arms.

        Args:
            emulator: Started, if the arms are emulated.
            read_only: Whether no command leaves it.
            log: What of the wire and the loop is kept where.
            cameras: Those without whose fresh images the arms hold.
            still_grippers: Whether grippers that are no servos of the arms are told nothing, and go
                on holding what they hold.
        """
        ports = self._robot["ports"] if emulator is None else emulator.ports
        period_s = 1.0 / self.device_hz
        driver = self._kind.driver(
            ports,
            period_s=period_s,
            lock_step=self.lock_step,
            read_only=read_only,
            still_grippers=still_grippers,
        )
        watched = None if cameras is None else cameras.liveliness
        return ShadowedProcess(
            driver,
            self._kind.body,
            self.limits(),
            period_s=period_s,
            lock_step=self.lock_step,
            log=log,
            cameras=watched,
        )

    def twin(self, emulator: Emulator) -> DeviceProcess:
        """Returns the device process of a twin, under the same limits."""
        period_s = 1.0 / self.device_hz
        driver = self._kind.twin_driver(emulator.ports, period_s=period_s)
        return DeviceProcess(driver, self._kind.body, self.limits(), period_s=period_s)

    def leaders(self, emulator: Emulator | None) -> AlohaLeaders:
        """Returns the leaders.

        Args:
            emulator: Of the leaders, started, if they are emulated.

        Raises:
            ValueError: The configuration describes none.
        """
        settings = self._robot.get("leaders")
        if settings is None:
            raise ValueError(
                f"The configuration of {self.name} describes no leaders: robot.leaders."
            )
        return AlohaLeaders(
            settings["ports"] if emulator is None else emulator.ports, **settings["driver"]
        )

    def check(self, checklist: Checklist, *, moving: bool, led: bool = False) -> None:
        """Looks at what can be looked at before a port is opened.

        Args:
            checklist: Shows what was found.
            moving: Whether the arms will move.
            led: Whether leaders take part.
        """
        with checklist.check("limits file") as note:
            file = self._robot.get("limits_file")
            if file is None and moving and not self.emulated:
                page = "hardware-aloha" if self._kind.body is ALOHA else "hardware-kuka"
                raise ValueError(
                    "real arms need one, with the measured height of the table: "
                    "robot.limits_file=limits.yaml. See "
                    f"docs/{page}.md."
                )
            self.limits()
            note("none" if file is None else str(Path(file)))
        measured = self._robot.get("calibration_file")
        if measured is not None or not self.emulated:
            with checklist.check("calibration file") as note:
                note(self._read_calibration(measured))
        if self.emulated:
            return
        if self._robot.get("transport") is not None:
            return  # There are no serial adapters.
        ports = [
            *self._robot["ports"].values(),
            *(self._robot["leaders"]["ports"].values() if led else ()),
        ]
        with checklist.check("latency timers of the adapters") as note:
            found = []
            slow = []
            for port in ports:
                try:
                    found.append(demand_quick(port))
                except ValueError as error:
                    slow.append(str(error))
            if slow:
                raise ValueError(" ".join(slow))
            note(", ".join(found))

    def _read_calibration(self, file: str | None) -> str:
        """Reads where cameras were measured to be, and returns what is worth knowing about that."""
        if file is None:
            return "none: cameras are taken to be where the body's drawing has them"
        known = self.calibration = Calibration.read(Path(file), self._kind.body)
        if not self.lock_step:
            return file
        # There no camera says who it is: images come from the world itself.
        said = [f"{name}: {known.demand(name, emulated_serial(name))}" for name in known.cameras]
        said += [
            f"{camera.name}: {UNKNOWN}"
            for camera in self._cameras.offered()
            if camera.name not in known.cameras
        ]
        return f"{file}; {'; '.join(said)}"


class NoCameras:
    """A robot without cameras."""

    def frames(self) -> dict[str, Array]:
        """Returns nothing."""
        return {}
