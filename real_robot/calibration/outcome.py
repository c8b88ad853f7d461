"""From images to entries of the calibration file: solves for each camera, judges the result, and says it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stringline.datasets.embodiments.transforms import Matrix, inverse
from stringline.datasets.pointclouds.camera_check import said
from stringline.real_robot.calibration.calibration_page import CameraSummary, bars_of
from stringline.real_robot.calibration.calibration_settings import Method
from stringline.real_robot.calibration.capture_set import Gallery, expected
from stringline.real_robot.calibration.cloud_alignment import CloudFit, solve_clouds
from stringline.real_robot.calibration.hand_eye import Fit, solve
from stringline.real_robot.calibration.pose_variety import demand_varied
from stringline.real_robot.cameras.calibration_file import CalibratedCamera, Calibration
from stringline.real_robot.cameras.camera import CameraError, Identity

SCALE_OFF = 0.02  # A board that is so much larger or smaller than it is said to be is another one.
UNSURE_MM = 2.0
UNSURE_DEG = 0.2
_LEGEND = (
    "Green circles: corners that were found. Yellow crosses: where they should be by the result."
)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one camera.

    Attributes:
        camera: Entry for the file; None where it cannot be trusted.
        summary: For the page.
    """

    camera: CalibratedCamera | None
    summary: CameraSummary


def outcome_of(gallery: Gallery, name: str, identity: Identity, date: str) -> Outcome:
    """Solves for one camera.

    Args:
        gallery: With its images.
        name: Of the camera.
        identity: What it said about itself.
        date: Of the images.
    """
    mount = next(mount for mount in gallery.body.cameras if mount.name == name)
    photographs = [photograph for photograph in gallery.photographs if photograph.camera == name]
    try:
        if gallery.settings.method is Method.BOARD:
            T, residuals, facts, bars = _by_board(gallery, name)
        else:
            T, residuals, facts, bars = _by_clouds(gallery, name, mount.T_parent_camera)
    except ValueError as error:
        return Outcome(
            None, CameraSummary(name, False, (), f"The camera {name!r}: {error}", (), photographs)
        )
    K = gallery.intrinsics[name]
    described = gallery.contract.camera(name)
    camera = CalibratedCamera(
        serial=identity.serial,
        parent=mount.parent,
        T_parent_camera=T,
        size=(described.height, described.width),
        **residuals,
        intrinsics=tuple(float(value) for value in (K[0, 0], K[1, 1], K[0, 2], K[1, 2])),
        method=gallery.settings.method.value,
        poses=len(bars),
        date=date,
    )
    moved = said(inverse(mount.T_parent_camera) @ T)
    facts = [
        *facts,
        ("from where it was taken to be", moved),
        (f"pose in the frame of {mount.parent}", _shown(T)),
    ]
    trouble = ""
    legend = _LEGEND if gallery.settings.method is Method.BOARD else ""
    try:
        Calibration({name: camera}).demand(name, identity.serial)
    except CameraError as error:
        trouble = f"The camera {name!r}: {error}"
    return Outcome(
        None if trouble else camera,
        CameraSummary(name, not trouble, facts, trouble, bars, photographs, legend),
    )


Found = tuple[Matrix, Mapping[str, float], list[tuple[str, str]], list[tuple[int, str, float]]]


def _by_board(gallery: Gallery, name: str) -> Found:
    shots = gallery.shots.get(name, [])
    board = gallery.settings.board
    if not shots:
        reasons = sorted({each.words for each in gallery.photographs if each.camera == name})
        raise ValueError(
            f"the board was seen from no pose: {'; '.join(reasons) or 'no image was taken'}."
        )
    varied = demand_varied([shot.T_parent_carrier for shot in shots])
    fit = solve(shots)
    _demand_sound(fit, board.square_mm)
    expectations = {
        shot.pose: (shot, expected(shot, fit.T_parent_camera, fit.T_carrier_board))
        for shot in shots
    }
    gallery.redraw(name, expectations)
    facts = [
        ("poses", varied),
        ("reprojection", f"{fit.rms_px:.3f} px"),
        ("poses that were held out", f"{fit.held_mm:.2f} mm, {fit.held_deg:.3f} degrees"),
        (
            "standard deviation of the result",
            f"{fit.unsure_mm:.2f} mm, {fit.unsure_deg:.3f} degrees",
        ),
        (
            "side of a square, as the images have it",
            f"{board.square_mm * fit.scale:.2f} mm; said to be {board.square_mm:g}",
        ),
    ]
    residuals = {
        "residual_px": fit.rms_px,
        "residual_mm": fit.held_mm,
        "residual_deg": fit.held_deg,
    }
    each = [(shot.pose, float(value)) for shot, value in zip(shots, fit.each_px, strict=True)]
    return fit.T_parent_camera, residuals, facts, bars_of(each, "px")


def _demand_sound(fit: Fit, square_mm: float) -> None:
    """Refuses what fits, but to another board or not firmly.

    Raises:
        ValueError: With the reason.
    """
    if abs(fit.scale - 1.0) > SCALE_OFF:
        raise ValueError(
            f"the arms' motions say that a square of the board is {square_mm * fit.scale:.1f} mm "
            f"wide; configured is "
            f"{square_mm:g}. Measure the board (calibration.board.square_mm), or the camera's "
            f"intrinsics are wrong."
        )
    if not (fit.unsure_mm <= UNSURE_MM and fit.unsure_deg <= UNSURE_DEG):
        raise ValueError(
            f"these poses leave its place unsure by {fit.unsure_mm:.1f} mm and "
            f"{fit.unsure_deg:.2f} degrees; allowed: "
            f"{UNSURE_MM:g} and {UNSURE_DEG:g}. Take more poses, nearer and more different ones."
        )


def _by_clouds(gallery: Gallery, name: str, T_parent_camera: Matrix) -> Found:
    fit: CloudFit = solve_clouds(gallery.encounters(name), T_parent_camera)
    refused = "; ".join(f"pose {number}: {why}" for number, why in fit.refused.items())
    facts = [
        ("compared with", str(gallery.settings.reference)),
        ("poses", f"{len(fit.each_mm)}" + (f"; refused: {refused}" if refused else "")),
        (
            "standard error, by leaving out a pose at a time",
            f"{fit.unsure_mm:.2f} mm, {fit.unsure_deg:.3f} degrees",
        ),
    ]
    bars = bars_of(list(fit.each_mm.items()), "mm")
    return (
        fit.T_parent_camera,
        {"residual_mm": fit.unsure_mm, "residual_deg": fit.unsure_deg},
        facts,
        bars,
    )


def _shown(T: Matrix) -> str:
    return "\n".join("  ".join(f"{value:9.5f}" for value in row) for row in T[:3])


def merged(known: Calibration | None, measured: Mapping[str, CalibratedCamera]) -> Calibration:
    """Returns the cameras of a file, those that were measured now in place of what it had of them."""
    return Calibration({**({} if known is None else known.cameras), **measured})


def say_outcome_of(outcome: Outcome, say: Callable[[str], None]) -> None:
    """Says what became of a camera."""
    summary = outcome.summary
    if summary.trouble:
        say(summary.trouble)
    for name, value in summary.facts:
        if "\n" not in value:
            say(f"  {summary.name}, {name}: {value}")
