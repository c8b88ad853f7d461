"""`mode=calibrate`: measures where cameras are mounted, and writes the calibration file."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime

from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.pointclouds.clouds import open3d
from stringline.real_robot.calibration.calibration_settings import (
    CalibrationSettings,
    Method,
    write_poses,
)
from stringline.real_robot.calibration.capture_set import CaptureSet
from stringline.real_robot.calibration.opencv_library import opencv, optimisation
from stringline.real_robot.calibration.outcome import (
    merged,
    outcome_of,
    report_camera,
    write_summary,
)
from stringline.real_robot.calibration.visit import (
    REPLAN_S,
    ByHand,
    PoseVisit,
    check_first_motion,
    check_reachable,
)
from stringline.real_robot.cameras.calibration_file import Calibration
from stringline.real_robot.cameras.camera import Identity
from stringline.real_robot.cameras.cameras import CameraReport, Cameras
from stringline.real_robot.cameras.emulated_camera import emulated_serial
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.deployment.supervised_run import SupervisedRun, Supervision
from stringline.real_robot.device.device_process import HoldWatch
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.execution.lock_step import LockStepRobot
from stringline.real_robot.execution.real_time import RealTimeRobot, reset_environment
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.operator.live_status import LiveStatus, print_line, report_fault
from stringline.real_robot.operator.operator_keys import TerminalKeys
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_session import ArmedRobot, RobotSession, approach_home


class CalibrationSession:
    """Measures cameras of a robot.

    Raises:
        ValueError: Emulated arms have no list of poses.
    """

    def __init__(self, settings: DeploymentSettings, plan: CalibrationSettings) -> None:
        self._settings = settings
        self._plan = plan
        self._factory = RobotFactory(settings.robot)
        self._folder = settings.output / "calibration"
        if plan.poses is None and settings.robot.emulated:
            raise ValueError(
                "Emulated arms cannot be moved by hand: calibration.poses, a list of joints for "
                "each pose."
            )

    def run(self) -> bool:
        """Checks, visits the poses, solves and writes; returns whether all cameras succeeded."""
        plan = self._plan
        by_hand = plan.poses is None
        moved = ", moved by hand" if by_hand else ""
        print_line(f"Calibrating {', '.join(plan.cameras)} of {self._factory.name}{moved}")
        checklist = Checklist()
        session = RobotSession(
            self._factory,
            checklist,
            log=self._settings.log,
            read_only=by_hand,
            still_grippers=True,
        )
        session.check()
        known, wanted = self._check(checklist)
        with session, ExitStack() as stack:
            robot = session.start(wanted, recalibrated=plan.cameras)
            embodiment = self._factory.embodiment
            contract = embodiment.contract(wanted, self._settings.robot.control_hz)
            captures = CaptureSet(plan, embodiment, contract, self._folder, print_line)
            identities = self._identities(robot.cameras, wanted)
            fault = self._capture(captures, contract, robot, stack)
        if fault:
            report_fault(fault)
            print_line("After a fault no result is written.")
            return False
        return self._conclude(captures, identities, known)

    def _check(self, checklist: Checklist) -> tuple[Calibration | None, list[Camera]]:
        """Runs the checks before a port is opened; returns the old calibration and the cameras."""
        plan = self._plan
        poses = plan.poses
        embodiment = self._factory.embodiment
        checklist.result("libraries", lambda: _import_libraries(plan.method))
        wanted = checklist.result("cameras of the calibration", self._wanted_cameras)
        known = checklist.result("file of the result", self._known, self._describe_file)
        if poses is not None:
            with checklist.check("poses") as note:
                note(check_reachable(poses, embodiment, self._factory.limits()))
        checklist.check_passed()
        return known.value, wanted.value

    def _known(self) -> Calibration | None:
        """Returns the old calibration; one that cannot be read is an error, as it would be lost."""
        file = self._plan.file
        return Calibration.read(file, self._factory.embodiment) if file.exists() else None

    def _describe_file(self, known: Calibration | None) -> str:
        cameras = "" if known is None else f", which has {', '.join(known.cameras)}"
        return f"{self._plan.file}{cameras}"

    def _wanted_cameras(self) -> list[Camera]:
        """Returns the cameras that take part, with images in their own size."""
        offered = self._factory.contract()
        clouds = self._plan.method is Method.CLOUDS
        wanted = []
        for name in self._plan.needed:
            camera = offered.camera(name)
            if not camera.has_geometry:
                raise ValueError(
                    f"The camera {name!r} has no intrinsics: robot.cameras.{name}.intrinsics."
                )
            if clouds and camera.depth is None:
                raise ValueError(f"The camera {name!r} has no depth, which method=clouds needs.")
            size = (camera.height, camera.width)
            if self._settings.robot.emulated:
                size = (self._plan.image_px, self._plan.image_px)
            wanted.append(Camera(name, *size, depth=camera.depth if clouds else None))
        return wanted

    def _identities(self, cameras: Cameras | None, wanted: Sequence[Camera]) -> dict[str, Identity]:
        if cameras is None:  # In lock-step the emulator renders the images.
            return {
                camera.name: Identity(
                    emulated_serial(camera.name), camera.height, camera.width, 0.0
                )
                for camera in wanted
            }
        found = {handle.settings.name: handle.identity for handle in cameras.handles}
        return {name: identity for name, identity in found.items() if identity is not None}

    def _capture(
        self, captures: CaptureSet, contract: Contract, robot: ArmedRobot, stack: ExitStack
    ) -> Sequence[str]:
        """Takes all images; returns the reasons of a fault that has stopped the arms."""
        embodiment = self._factory.embodiment
        poses = self._plan.poses
        if poses is None:
            ByHand(
                robot.device,
                robot.frames,
                contract,
                embodiment,
                self._plan,
                keys=stack.enter_context(TerminalKeys()),
                report=print_line,
            ).run(captures.take)
            return ()
        control_hz = self._settings.robot.control_hz
        visit = PoseVisit(
            embodiment,
            control_hz,
            self._plan,
            take=captures.take,
            report=print_line,
            holds=HoldWatch(robot.device).reasons,
            command=lambda: robot.device.latest().command,
        )
        steps = max(round(REPLAN_S * control_hz), 1)
        if self._settings.robot.lock_step and robot.emulator is not None:
            fault = self._visit_in_lock_step(visit, steps, contract, robot, robot.emulator)
        else:
            self._prepare(robot)
            fault = self._visit_in_real_time(visit, steps, contract, robot, stack)
        print_line(f"{visit.reached} of {len(poses)} poses were reached.")
        return fault

    def _visit_in_lock_step(
        self,
        visit: PoseVisit,
        steps: int,
        contract: Contract,
        robot: ArmedRobot,
        emulator: Emulator,
    ) -> Sequence[str]:
        lock_step = LockStepRobot(
            emulator,
            robot.device,
            contract,
            self._factory.embodiment,
            device_hz=self._settings.robot.device_hz,
        )
        with LiveStatus(visit.longest_s) as status:
            episode = lock_step.run(
                visit,
                self._settings.seed,
                execute_steps=steps,
                options=self._settings.options,
                report=status.show,
                done=lambda: visit.done,
            )
        return episode.fault

    def _prepare(self, robot: ArmedRobot) -> None:
        """Resets the environment or moves the arms home, and checks the way to the first pose."""
        settings = self._settings
        device = robot.device
        if robot.emulator is not None:
            reset_environment(robot.emulator, device, settings.seed, settings.options)
        else:
            approach_home(robot, self._factory)
        if self._plan.poses is not None:
            prepared = robot.emulator is not None or bool(settings.robot.approach_s)
            check_first_motion(
                device.latest().arms.position,
                self._plan.poses[0],
                self._factory.embodiment,
                device.limits,
                near=not prepared,
            )

    def _visit_in_real_time(
        self,
        visit: PoseVisit,
        steps: int,
        contract: Contract,
        robot: ArmedRobot,
        stack: ExitStack,
    ) -> Sequence[str]:
        device = robot.device
        embodiment = self._factory.embodiment
        keys = stack.enter_context(TerminalKeys(held=robot.held))
        supervision = Supervision(
            device,
            embodiment,
            keys,
            home_s=self._settings.robot.home_s,
            held_key=robot.held is not None,
            watchers=(CameraReport(device.cameras, print_line).note,),
        )
        supervision.report_keys(available=keys.available)
        real_time = RealTimeRobot(device, robot.frames, contract, embodiment)
        supervised = SupervisedRun(real_time, visit.again, steps, supervision)
        with LiveStatus(visit.longest_s) as status:
            episode = supervised.run(
                math.inf, done=lambda: visit.is_over(status.shown_s), report=status.show
            )
        return episode.fault

    def _conclude(
        self,
        captures: CaptureSet,
        identities: Mapping[str, Identity],
        known: Calibration | None,
    ) -> bool:
        """Solves, writes the valid results and reports all; returns whether all are valid."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        embodiment = self._factory.embodiment
        file = self._plan.file
        began = time.monotonic()
        outcomes = {
            name: outcome_of(captures, name, identities[name], date) for name in self._plan.cameras
        }
        for outcome in outcomes.values():
            report_camera(outcome, print_line)
        good = {
            name: outcome.camera for name, outcome in outcomes.items() if outcome.camera is not None
        }
        if good:
            merged(known, good).write(file, embodiment)
            print_line(f"{', '.join(good)}: written to {file}.")
            print_line(f"Deployments read it with robot.calibration_file={file}")
        facts = [
            ("robot", f"{self._factory.name}, {embodiment.name}"),
            ("method", self._plan.method.value),
            ("date", date),
            ("file", str(file)),
            ("solved in", f"{time.monotonic() - began:.1f} s"),
        ]
        page = self._folder / "summary.html"
        summaries = [outcome.summary for outcome in outcomes.values()]
        write_summary(page, f"Calibration of {', '.join(outcomes)}", facts, summaries)
        if visited := captures.visited:
            text = write_poses([visited[number] for number in sorted(visited)])
            (self._folder / "poses.yaml").write_text(text)
        print_line(f"Images and residuals: {page}")
        return len(good) == len(outcomes)


def _import_libraries(method: Method) -> None:
    opencv()
    optimisation()
    if method is Method.CLOUDS:
        open3d()
