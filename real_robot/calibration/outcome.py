"""Solves the calibration of each camera, judges the result and reports it, also as a page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
from stringline.real_robot.calibration.calibration_settings import Method
from stringline.real_robot.calibration.capture_set import CapturedImage, CaptureSet, expected_pixels
from stringline.real_robot.calibration.cloud_alignment import solve_clouds
from stringline.real_robot.calibration.hand_eye import Fit, check_pose_variety, solve
from stringline.real_robot.cameras.calibration_file import CalibratedCamera, Calibration
from stringline.real_robot.cameras.camera import CameraError, Identity

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
