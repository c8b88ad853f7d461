"""Displaced cameras are found in the rendered KUKA workcell."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.real_robot.calibration.displaced_cameras import (
    KNOCK,
    PX,
    assert_found,
    captured,
    plan,
    plan_poses,
)

from stringline import IIWA14, Camera
from stringline.real_robot.calibration.board_world import (
    KukaBoardInHand,
    KukaBoardOnTable,
    SimulatedCell,
)
from stringline.real_robot.calibration.calibration_session import outcome_of
from stringline.real_robot.calibration.cloud_alignment import CloudPair, DepthMean, solve_clouds
from stringline.real_robot.cameras.camera import Identity
from stringline.sim.rendering.rendering import intrinsics


@pytest.fixture(scope="module")
def on_table() -> Iterator[SimulatedCell]:
    cell = SimulatedCell(KukaBoardOnTable.name, ["overhead", "wrist"], (PX, PX))
    yield cell
    cell.close()


@pytest.fixture(scope="module")
def in_hand() -> Iterator[SimulatedCell]:
    cell = SimulatedCell(KukaBoardInHand.name, ["overhead"], (PX, PX))
    yield cell
    cell.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "name"), [("kuka_wrist", "wrist"), ("kuka_overhead", "overhead")]
)
def test_a_knocked_camera_is_found_by_a_board(
    choice: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    cell: SimulatedCell = request.getfixturevalue("on_table" if name == "wrist" else "in_hand")
    chosen = plan(choice)
    cell.begin(1, {name: KNOCK})
    captures = captured(cell, chosen, tmp_path)
    (mount,) = (mount for mount in IIWA14.cameras if mount.name == name)
    outcome = outcome_of(captures, name, Identity("7", PX, PX, 30.0), "today")
    camera = assert_found(outcome, cell.truth(name, IIWA14.home), mount.T_parent_camera)
    assert camera.residual_px is not None
    assert camera.residual_px < 0.5
    assert (camera.serial, camera.parent, camera.size) == ("7", mount.parent, (PX, PX))
    assert camera.poses == len(captures.detections[name]) >= 10
    assert len(list(tmp_path.glob(f"{name}_*.png"))) == len(
        chosen.poses if chosen.poses is not None else ()
    )


@pytest.mark.slow
def test_a_board_of_another_size_is_noticed(on_table: SimulatedCell, tmp_path: Path) -> None:
    on_table.begin(3, {})
    chosen = plan(
        "kuka_wrist",
        board={"square_mm": 25.0, "marker_mm": 18.3},
        poses=plan_poses("kuka_wrist")[:7],
    )
    refused = outcome_of(
        captured(on_table, chosen, tmp_path), "wrist", Identity("7", PX, PX, 30.0), "today"
    )
    assert refused.camera is None
    assert "a square of the board is 30.0 mm wide; configured: 25" in refused.summary.problem


@pytest.mark.slow
def test_a_knocked_camera_is_found_by_the_cloud_of_another(
    on_table: SimulatedCell, tmp_path: Path
) -> None:
    on_table.begin(2, {"overhead": KNOCK})
    chosen = plan("kuka_clouds", looks=3, poses=plan_poses("kuka_clouds")[:3])
    captures = captured(on_table, chosen, tmp_path)
    (mount,) = (mount for mount in IIWA14.cameras if mount.name == "overhead")
    outcome = outcome_of(captures, "overhead", Identity("7", PX, PX, 30.0), "today")
    camera = assert_found(outcome, on_table.truth("overhead", IIWA14.home), mount.T_parent_camera)
    assert camera.residual_px is None
    assert camera.method == "clouds"
    assert camera.residual_mm < 1.5


@pytest.mark.slow
def test_an_empty_table_does_not_determine_the_pose_of_a_camera() -> None:
    px = 48
    camera, K = Camera("overhead", px, px, "simulated"), intrinsics(px, px, 42.0).astype(np.float64)
    mean, seen = DepthMean(camera, K), DepthMean(camera, K)
    with pytest.raises(ValueError, match="The camera 'overhead' has taken no depth image"):
        mean.surface()
    mean.add(np.full((px, px), 600, np.uint16))
    table = mean.surface()
    flat = [CloudPair(number, table, np.eye(4), table, np.eye(4)) for number in (1, 2)]
    with pytest.raises(
        ValueError,
        match="at no pose. pose 1: the common view is too flat .*Put objects on the table",
    ):
        solve_clouds(flat, np.eye(4))
    v, u = np.mgrid[:px, :px]
    pyramid = (600 + 4 * np.abs(u - 24) + 6 * np.abs(v - 21)).astype(np.uint16)
    seen.add(pyramid)
    alone = [
        CloudPair(number, seen.surface(), np.eye(4), seen.surface(), np.eye(4)) for number in (1, 2)
    ]
    with pytest.raises(
        ValueError,
        match=(
            "both cameras see enough of the same at 2 of 2 poses; needed: 3, with 300 points each"
        ),
    ):
        solve_clouds(alone, np.eye(4))
    with pytest.raises(ValueError, match="at no pose. no pose was reached"):
        solve_clouds([], np.eye(4))


def test_images_without_a_board_are_refused(on_table: SimulatedCell, tmp_path: Path) -> None:
    on_table.begin(3, {})
    chosen = plan(
        "kuka_wrist", board={"dictionary": "DICT_7X7_50"}, poses=[IIWA14.home.tolist()] * 2
    )
    captures = captured(on_table, chosen, tmp_path)
    outcome = outcome_of(captures, "wrist", Identity("7", PX, PX, 30.0), "today")
    assert outcome.camera is None
    assert (
        "The camera 'wrist': the board was seen from no pose: no marker of DICT_7X7_50 is seen"
        in outcome.summary.problem
    )
    assert not any(image.used for image in captures.images)
