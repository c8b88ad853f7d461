"""Accuracy of camera calibration in the rendered KUKA cell, with cameras moved off their pose.

    MUJOCO_GL=egl python benchmarks/calibration.py --seeds 10 --json calibration.json

Each seed displaces the camera by 10 to 30 mm and 1 to 3 degrees in a random direction, moves each
pose of `configs/calibration` by up to 0.03 rad per joint, and draws all noise anew: of images (2 of
255 per colour), of encoders (0.0001 rad), and of depth (the model of a stereo camera,
`sim/rendering/depth_sensor.py`). The table has the error of the result: of the worst seed, the
median, and the residual that the calibration itself reports.

Names in the JSON:
    <eye_in_hand|eye_to_hand|clouds>/<mm|deg>
        The worst seed; peer `closed_form`, for clouds `none`.
    closed_form/<eye_in_hand|eye_to_hand>/<mm|deg>
        The same of the best of OpenCV's closed forms alone, before the refinement; peer `none`.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from measurement import Row, parser_of, row, write_rows

from stringline.datasets.command.choices import CONFIGS, completed
from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.datasets.pointclouds.camera_check import size_of
from stringline.real_robot.calibration.board_world import (
    KukaBoardInHand,
    KukaBoardOnTable,
    SimulatedCell,
)
from stringline.real_robot.calibration.calibration_session import outcome_of
from stringline.real_robot.calibration.calibration_settings import CalibrationSettings
from stringline.real_robot.calibration.capture_set import CaptureSet
from stringline.real_robot.calibration.hand_eye import closed_form
from stringline.real_robot.cameras.camera import Identity

JOINT_NOISE_RAD, JITTER_RAD = 1e-4, 0.03
ROWS = {
    "eye_in_hand": ("kuka_wrist", KukaBoardOnTable.name, ("wrist",)),
    "eye_to_hand": ("kuka_overhead", KukaBoardInHand.name, ("overhead",)),
    "clouds": ("kuka_clouds", KukaBoardOnTable.name, ("overhead", "wrist")),
}


@dataclass(frozen=True)
class Trial:
    """Errors of one seed, positions in mm and angles in degrees.

    Attributes:
        mm: Error of the result.
        degrees: Error of the result.
        residual_mm: Residual at held-out poses.
        residual_deg: Residual at held-out poses.
        start_mm: Error of the best closed form; NaN without one.
        start_deg: Error of the best closed form; NaN without one.
        moved_mm: Displacement of the camera.
    """

    mm: float
    degrees: float
    residual_mm: float
    residual_deg: float
    start_mm: float
    start_deg: float
    moved_mm: float


def displacement(rng: np.random.Generator) -> Matrix:
    """Draws the displacement (4, 4) of a camera in its own frame."""
    way, axis = (vector / np.linalg.norm(vector) for vector in rng.standard_normal((2, 3)))
    return pose(
        rng.uniform(0.01, 0.03) * way, rotation_about(axis, np.radians(rng.uniform(1.0, 3.0)))
    )


def trial(cell: SimulatedCell, choice: str, seed: int, px: int, folder: Path) -> Trial:
    """Calibrates once."""
    rng = np.random.default_rng([seed, 17])
    plain = completed(CONFIGS, f"calibration/{choice}")
    settings = CalibrationSettings.of(plain, IIWA14)
    assert settings.poses is not None
    (name,) = settings.cameras
    moved_camera = displacement(rng)
    cell.begin(seed, {name: moved_camera})
    captures = CaptureSet(settings, cell.embodiment, cell.contract, folder, lambda _: None)
    for number, q in enumerate(settings.poses, 1):
        moved = q + JITTER_RAD * rng.uniform(-1, 1, len(q))
        moved[-1] = q[-1]
        for _ in range(settings.looks):
            captures.take(number, cell.observe(moved))
    outcome = outcome_of(captures, name, Identity("1", px, px, 30.0), "")
    if outcome.camera is None:
        raise SystemExit(f"{choice}, seed {seed}: {outcome.summary.problem}")
    truth, camera = cell.truth(name, IIWA14.home), outcome.camera
    start = (
        size_of(inverse(truth) @ closed_form(captures.detections[name])[0])
        if name in captures.detections
        else (np.nan, np.nan)
    )
    found = size_of(inverse(truth) @ camera.T_parent_camera)
    return Trial(*found, camera.residual_mm, camera.residual_deg, *start, size_of(moved_camera)[0])


def rows_of(name: str, trials: Sequence[Trial]) -> list[Row]:
    """Returns the lines of results of one kind of calibration."""
    rows = []
    for unit, ours, theirs in (("mm", "mm", "start_mm"), ("deg", "degrees", "start_deg")):
        worst, start = (max(getattr(each, field) for each in trials) for field in (ours, theirs))
        if np.isfinite(start):
            rows.append(row(f"{name}/{unit}", worst, unit, "closed_form", worst / start))
            rows.append(row(f"closed_form/{name}/{unit}", start, unit))
        else:
            rows.append(row(f"{name}/{unit}", worst, unit))
    return rows


def main() -> None:
    """Runs the benchmark."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--px", type=int, default=480, help="rows and columns of the images")
    parser.add_argument("--only", choices=tuple(ROWS), help="one kind only")
    arguments = parser.parse_args()
    found: list[Row] = []
    sys.stdout.write(
        f"{'':<12} {'moved':>8} {'error, worst':>22} {'median':>22} {'residual, median':>22} "
        f"{'closed form, worst':>22}\n"
    )
    for name in [arguments.only] if arguments.only else list(ROWS):
        choice, task, cameras = ROWS[name]
        cell = SimulatedCell(task, cameras, (arguments.px,) * 2, joint_noise_rad=JOINT_NOISE_RAD)
        with tempfile.TemporaryDirectory() as folder:
            trials = [
                trial(cell, choice, seed, arguments.px, Path(folder))
                for seed in range(arguments.seeds)
            ]
        cell.close()
        pairs = [
            ("mm", "degrees", np.max),
            ("mm", "degrees", np.median),
            ("residual_mm", "residual_deg", np.median),
            ("start_mm", "start_deg", np.max),
        ]
        values = {
            field: np.array([getattr(each, field) for each in trials]) for field in vars(trials[0])
        }
        known = [(mm, deg, combine) for mm, deg, combine in pairs if np.isfinite(values[mm]).all()]
        columns = [
            f"{combine(values[mm]):8.2f} mm {combine(values[deg]):6.3f} deg"
            for mm, deg, combine in known
        ]
        moved = max(each.moved_mm for each in trials)
        sys.stdout.write(
            f"{name:<12} {moved:5.0f} mm {' '.join(f'{column:>22}' for column in columns)}\n"
        )
        sys.stdout.flush()
        found += rows_of(name, trials)
    write_rows(found, arguments.json)


if __name__ == "__main__":
    main()
