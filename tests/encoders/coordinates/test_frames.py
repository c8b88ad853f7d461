"""Frames: coordinates in grippers' frames move with the gripper, and errors name the frames."""

import pytest
import torch
from tests.encoders.conftest import Draw
from torch import Tensor

from stringline import CylindricalPlaces, Frames, GridPlaces, MetricPlaces, PatchDepthPlaces
from stringline.encoders.coordinates.coordinates import (
    are_metric,
    directions_in_frames,
    in_frames,
    vectors_in_frames,
)

ARMS = ("left", "right")


def rigid(draw: Draw, count: int) -> Tensor:
    """Draws poses (count, 4, 4)."""
    rotation = torch.linalg.qr(draw(count, 3, 3))[0]
    T = torch.eye(4, dtype=torch.float64).repeat(count, 1, 1)
    T[:, :3, :3] = rotation * torch.linalg.det(rotation).sign()[:, None, None]
    T[:, :3, 3] = draw(count, 3)
    return T


def test_coordinates_are_those_of_the_inverse_pose(draw: Draw) -> None:
    points, T = draw(2, 5, 3), rigid(draw, 2)
    placed = in_frames(points, [None, T])
    homogeneous = torch.nn.functional.pad(points, (0, 1), value=1.0)
    expected = (torch.linalg.inv(T)[:, None] @ homogeneous[..., None])[..., :3, 0]
    torch.testing.assert_close(placed, torch.cat((points, expected), dim=-1))


def test_a_common_rigid_motion_changes_the_base_frame_only(draw: Draw) -> None:
    points, T, motion = draw(2, 5, 3), rigid(draw, 2), rigid(draw, 1)[0]
    moved = points @ motion[:3, :3].T + motion[:3, 3]
    here, there = in_frames(points, [None, T]), in_frames(moved, [None, motion @ T])
    assert (here - there)[..., 3:].abs().max() < 1e-12
    assert (here - there)[..., :3].abs().max() > 0.1


def test_vectors_are_differences_of_points(draw: Draw) -> None:
    """So the spread of a place turns with its frame, and a shift does not change it."""
    points, vectors, poses = draw(2, 5, 3), draw(2, 5, 3), [None, rigid(draw, 2)]
    differences = in_frames(points + vectors, poses) - in_frames(points, poses)
    torch.testing.assert_close(vectors_in_frames(vectors, poses), differences)


def test_directions_are_derivatives_along_the_gripper(draw: Draw) -> None:
    T, other, ahead = rigid(draw, 2), rigid(draw, 2), draw(2, 3)
    frames = [None, T, other]

    def at(offset: Tensor) -> Tensor:
        return in_frames(
            (T[:, :3, 3] + (T[:, :3, :3] @ offset[..., None])[..., 0])[:, None], frames
        )

    directions = directions_in_frames(T[:, None, :3, :3], frames)
    torch.testing.assert_close(
        at(ahead), at(0 * ahead) + (directions @ ahead[:, None, :, None])[..., 0]
    )


def test_frames_are_resolved_in_their_order() -> None:
    assert Frames(names=["base", "grippers"]).arms(ARMS) == (None, "left", "right")
    assert Frames(names=["gripper/right", "base"]).arms(ARMS) == ("right", None)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["gripper/rigth"], r"no frame 'gripper/rigth'. Did you mean 'gripper/right'"),
        (["grippers", "gripper/left"], r"repeat one; allowed: each once"),
        ([], r"names of frames are \[\]; allowed: a list"),
        ("base", r"names of frames are 'base'; allowed: a list"),
    ],
)
def test_wrong_frames_are_reported_in_a_line(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        Frames(names=names).arms(ARMS)
    assert "\n" not in str(raised.value)


def test_an_unknown_division_is_reported() -> None:
    with pytest.raises(ValueError, match=r"no division of frames 'head'. Did you mean 'heads'"):
        Frames(by="head")  # type: ignore[arg-type]


def test_only_metres_in_the_base_frame_are_metric() -> None:
    assert are_metric(MetricPlaces())
    for other in (GridPlaces(), PatchDepthPlaces(), CylindricalPlaces()):
        assert not are_metric(other)
