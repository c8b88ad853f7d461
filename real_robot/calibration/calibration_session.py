"""`mode=calibrate`: measures where cameras are mounted, judges the result and writes the file."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.embodiments.transforms import Matrix, inverse
from stringline.datasets.files.pages import (
    Card,
    Code,
    Column,
    Content,
    Facts,
    Figure,
    Grid,
    Image,
    Page,
    Section,
    Span,
    Svg,
    Table,
    Text,
)
from stringline.datasets.pointclouds.camera_check import describe_motion
from stringline.datasets.pointclouds.clouds import open3d
from stringline.real_robot.calibration.calibration_settings import (
    CalibrationSettings,
    Method,
    write_poses,
)
from stringline.real_robot.calibration.capture_set import CapturedImage, CaptureSet, expected_pixels
from stringline.real_robot.calibration.cloud_alignment import solve_clouds
from stringline.real_robot.calibration.hand_eye import Fit, check_pose_variety, solve
from stringline.real_robot.calibration.opencv_library import opencv, optimisation
from stringline.real_robot.calibration.visit import (
    REPLAN_S,
    ByHand,
    PoseVisit,
    check_first_motion,
    check_reachable,
)
from stringline.real_robot.cameras.calibration_file import CalibratedCamera, Calibration
from stringline.real_robot.cameras.camera import CameraError, Identity
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

Residual = tuple[int, float]
"""Number of a pose and its residual."""


@dataclass(frozen=True)
class CameraSummary:
    """The result of one camera.

    Attributes:
        good: Whether the result was written.
        problem: Why the result was not written.
        residuals: Those of the poses.
        unit: Their unit.
        legend: Explanation of the marks in the images.
    """

    name: str
    good: bool
    facts: Sequence[tuple[str, str]]
    problem: str
    images: Sequence[CapturedImage]
    residuals: Sequence[Residual] = ()
    unit: str = ""
    legend: str = ""


def write_summary(
    path: Path, title: str, facts: Sequence[tuple[str, str]], cameras: Sequence[CameraSummary]
) -> None:
    """Writes the page; the images lie in the same folder."""
    sections = [Section(camera.name, _title(camera), _contents(camera)) for camera in cameras]
    Page(title, [Card(Facts(dict(facts)))], sections).write(path)


def _title(camera: CameraSummary) -> list[Content]:
    written = Span("written", "good") if camera.good else Span("not written", "bad")
    return [f"{camera.name}: ", written]


def _contents(camera: CameraSummary) -> list[Content]:
    blocks: list[Content] = [Text(camera.problem, "bad")] if camera.problem else []
    if camera.facts:
        blocks.append(Card(Facts({name: Code(value) for name, value in camera.facts})))
    if camera.residuals:
        largest = max(value for _, value in camera.residuals) or 1.0
        columns = [
            Column("pose", kind="number"),
            Column("residual", camera.unit, "number", ".2f"),
            Column(""),
        ]
        rows = [(pose, value, _bar(value / largest)) for pose, value in camera.residuals]
        blocks.append(Card(Table(columns, rows, dense=True)))
    if camera.legend:
        blocks.append(Text(camera.legend, "quiet"))
    figures = [
        Figure(
            Image(image.file, f"{camera.name}, pose {image.pose}"),
            Text(f"Pose {image.pose}: {image.description}", "good" if image.used else "bad"),
        )
        for image in camera.images
    ]
    return [*blocks, Grid(figures, 15)]


def _bar(share: float) -> Svg:
    return Svg(
        '<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none">'
        f'<rect width="{100 * share:.1f}" height="1" fill="var(--accent)"/></svg>'
    )


WORST_SCALE = 0.02  # Largest error of the board's size, as a share.
WORST_STD_MM = 2.0
WORST_STD_DEG = 0.2
_LEGEND = "Green circles: detected corners. Yellow crosses: corners predicted by the result."


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of one camera.

    Attributes:
        camera: Entry of the calibration file; None if the result is not valid.
    """

    camera: CalibratedCamera | None
    summary: CameraSummary


@dataclass(frozen=True, eq=False)
class _Solution:
    """A solved camera pose (4, 4).

    Attributes:
        residuals: By field of `CalibratedCamera`.
        each: Of each pose.
        unit: The unit of those.
    """

    T_parent_camera: Matrix
    residuals: Mapping[str, float]
    facts: list[tuple[str, str]]
    each: list[Residual]
    unit: str


def outcome_of(captures: CaptureSet, name: str, identity: Identity, date: str) -> Outcome:
    """Solves the calibration of one camera."""
    images = [image for image in captures.images if image.camera == name]
    mount = next(mount for mount in captures.embodiment.cameras if mount.name == name)
    board = captures.settings.method is Method.BOARD
    try:
        if board:
            solution = _solve_board(captures, name)
        else:
            solution = _solve_clouds(captures, name, mount.T_parent_camera)
    except ValueError as error:
        problem = f"The camera {name!r}: {error}"
        return Outcome(None, CameraSummary(name, False, (), problem, images))
    T = solution.T_parent_camera
    camera = _entry(captures, name, identity, date, mount.parent, solution)
    problem = ""
    try:
        Calibration({name: camera}).check(name, identity.serial)
    except CameraError as error:
        problem = f"The camera {name!r}: {error}"
    facts = [
        *solution.facts,
        ("distance from the assumed pose", describe_motion(inverse(mount.T_parent_camera) @ T)),
        (f"pose in the frame of {mount.parent}", _text(T)),
    ]
    legend = _LEGEND if board else ""
    summary = CameraSummary(
        name, not problem, facts, problem, images, solution.each, solution.unit, legend
    )
    return Outcome(None if problem else camera, summary)


def _entry(
    captures: CaptureSet,
    name: str,
    identity: Identity,
    date: str,
    parent: str,
    solution: _Solution,
) -> CalibratedCamera:
    K = captures.intrinsics[name]
    described = captures.contract.camera(name)
    return CalibratedCamera(
        serial=identity.serial,
        parent=parent,
        T_parent_camera=solution.T_parent_camera,
        size=(described.height, described.width),
        **solution.residuals,
        intrinsics=tuple(float(value) for value in (K[0, 0], K[1, 1], K[0, 2], K[1, 2])),
        method=captures.settings.method.value,
        poses=len(solution.each),
        date=date,
    )


def _solve_board(captures: CaptureSet, name: str) -> _Solution:
    found = captures.detections.get(name, [])
    board = captures.settings.board
    if not found:
        reasons = sorted({image.description for image in captures.images if image.camera == name})
        raise ValueError(
            f"the board was seen from no pose: {'; '.join(reasons) or 'no image was taken'}."
        )
    variety = check_pose_variety([one.T_parent_carrier for one in found])
    fit = solve(found)
    _check_fit(fit, board.square_mm)
    expected = {
        one.pose: expected_pixels(one, fit.T_parent_camera, fit.T_carrier_board) for one in found
    }
    captures.draw_expected(name, expected)
    facts = [
        ("poses", variety),
        ("reprojection error", f"{fit.rms_px:.3f} px"),
        ("error at held-out poses", f"{fit.held_mm:.2f} mm, {fit.held_deg:.3f} degrees"),
        ("standard deviation of the result", f"{fit.std_mm:.2f} mm, {fit.std_deg:.3f} degrees"),
        (
            "side of a square, estimated",
            f"{board.square_mm * fit.scale:.2f} mm; configured: {board.square_mm:g}",
        ),
    ]
    residuals = {
        "residual_px": fit.rms_px,
        "residual_mm": fit.held_mm,
        "residual_deg": fit.held_deg,
    }
    each = [(one.pose, float(value)) for one, value in zip(found, fit.each_px, strict=True)]
    return _Solution(fit.T_parent_camera, residuals, facts, each, "px")


def _check_fit(fit: Fit, square_mm: float) -> None:
    """Checks the size of the board and the standard deviation."""
    if abs(fit.scale - 1.0) > WORST_SCALE:
        raise ValueError(
            f"by the motions of the arms a square of the board is {square_mm * fit.scale:.1f} mm "
            f"wide; configured: {square_mm:g}. Measure the board (calibration.board.square_mm), "
            "or correct the camera's intrinsics."
        )
    if not (fit.std_mm <= WORST_STD_MM and fit.std_deg <= WORST_STD_DEG):
        raise ValueError(
            f"with these poses its standard deviation is {fit.std_mm:.1f} mm and "
            f"{fit.std_deg:.2f} degrees; allowed: {WORST_STD_MM:g} and {WORST_STD_DEG:g}. Take "
            "more poses, nearer and more different ones."
        )


def _solve_clouds(captures: CaptureSet, name: str, T_parent_camera: Matrix) -> _Solution:
    fit = solve_clouds(captures.cloud_pairs(name), T_parent_camera)
    unused = "; ".join(f"pose {number}: {why}" for number, why in fit.unused.items())
    facts = [
        ("compared with", str(captures.settings.reference)),
        ("poses", f"{len(fit.each_mm)}" + (f"; not used: {unused}" if unused else "")),
        (
            "standard error, leaving out one pose at a time",
            f"{fit.std_mm:.2f} mm, {fit.std_deg:.3f} degrees",
        ),
    ]
    residuals = {"residual_mm": fit.std_mm, "residual_deg": fit.std_deg}
    return _Solution(fit.T_parent_camera, residuals, facts, list(fit.each_mm.items()), "mm")


def _text(T: Matrix) -> str:
    return "\n".join("  ".join(f"{value:9.5f}" for value in row) for row in T[:3])


def merged(known: Calibration | None, measured: Mapping[str, CalibratedCamera]) -> Calibration:
    """Returns a calibration with its cameras replaced by the newly measured ones."""
    return Calibration({**({} if known is None else known.cameras), **measured})


def report_camera(outcome: Outcome, report: Callable[[str], None]) -> None:
    """Reports the result of a camera line by line."""
    summary = outcome.summary
    if summary.problem:
        report(summary.problem)
    for name, value in summary.facts:
        if "\n" not in value:
            report(f"  {summary.name}, {name}: {value}")


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
