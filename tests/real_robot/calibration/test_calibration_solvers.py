"""Solvers of the camera calibration on computed pixels, and the refusal of invalid input."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose
from stringline.datasets.pointclouds.camera_check import size_of
from stringline.real_robot.calibration.board import (
    Board,
    BoardPose,
    carrier_pose,
    locate,
    locate_board,
    projected,
)
from stringline.real_robot.calibration.hand_eye import solve
from stringline.real_robot.calibration.opencv_library import opencv

K = np.array([[520.0, 0.0, 241.3], [0.0, 523.0, 238.6], [0.0, 0.0, 1.0]])
SIZE = (480, 480)
BOARD = Board()
SAMPLES, SQUARE_PX, MARGIN_PX = 4, 64, 32


def turned(rng: np.random.Generator, spread_deg: float) -> NDArray[np.float64]:
    return Rotation.from_rotvec(np.radians(spread_deg) * rng.uniform(-1, 1, 3)).as_matrix()


def image_of(
    board: Board, T_camera_board: Matrix, rng: np.random.Generator, noise: float = 2.0
) -> NDArray[np.uint8]:
    """Draws a board by its homography, 4 x 4 samples to a pixel, with noise."""
    cv2 = opencv()
    metres = board.square_mm / 1e3 / SQUARE_PX
    # From the drawing, whose pixel (0, 0) has its centre at the origin in OpenCV, to the board, to
    # the image, and back to centres.
    to_board = np.array(
        [
            [metres, 0, (0.5 - MARGIN_PX) * metres],
            [0, metres, (0.5 - MARGIN_PX) * metres],
            [0, 0, 1],
        ]
    )
    fine = np.diag([SAMPLES, SAMPLES, 1.0]) @ K
    H = (
        np.array([[1, 0, -0.5], [0, 1, -0.5], [0, 0, 1]])
        @ fine
        @ T_camera_board[:3, [0, 1, 3]]
        @ to_board
    )
    drawn = 30 + board.drawn(SQUARE_PX, MARGIN_PX).astype(np.float32) * 0.7
    warped = cv2.warpPerspective(
        drawn, H, (SIZE[1] * SAMPLES, SIZE[0] * SAMPLES), flags=cv2.INTER_LINEAR, borderValue=60.0
    )
    mean = warped.reshape(SIZE[0], SAMPLES, SIZE[1], SAMPLES).mean(axis=(1, 3))
    noisy = mean[..., None] + noise * rng.standard_normal((*SIZE, 3))
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)


def before_camera(
    rng: np.random.Generator, distance_m: float = 0.45, spread_deg: float = 30.0
) -> Matrix:
    """Returns a board that roughly faces the camera."""
    middle = np.array([-BOARD.size_m[0] / 2, -BOARD.size_m[1] / 2, 0.0])
    R = turned(rng, spread_deg)
    return pose(R @ middle + (0.03 * rng.uniform(-1, 1), 0.03 * rng.uniform(-1, 1), distance_m), R)


def looks(
    X: Matrix,
    Y: Matrix,
    count: int,
    rng: np.random.Generator,
    noise_px: float = 0.1,
    scale: float = 1.0,
) -> list[BoardPose]:
    """Returns images of a board from poses of the arms that bring it in front of the camera."""
    shots = []
    for number in range(count):
        T_camera_board = before_camera(rng)
        A = X @ T_camera_board @ inverse(Y)
        pixels = projected(
            T_camera_board, scale * BOARD.corners, K
        ) + noise_px * rng.standard_normal((len(BOARD.corners), 2))
        T, rms_px = locate(BOARD.corners, pixels, K)
        shots.append(BoardPose(number + 1, A, BOARD.corners, pixels, K, T, rms_px))
    return shots


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.fixture
def X(rng: np.random.Generator) -> Matrix:
    return pose((0.08, -0.03, 0.11), turned(rng, 90.0))


@pytest.fixture
def Y(rng: np.random.Generator) -> Matrix:
    return pose((0.5, 0.1, 0.02), turned(rng, 90.0))


@pytest.mark.parametrize("dictionary", ["DICT_4X4_50", "DICT_APRILTAG_36h11"])
def test_corners_are_found_to_a_tenth_of_a_pixel_in_the_convention_of_the_contract(
    rng: np.random.Generator, dictionary: str
) -> None:
    board, away = Board(dictionary=dictionary), []
    for _ in range(4):
        T = before_camera(rng)
        sighting = board.find(image_of(board, T, rng))
        assert not sighting.problem
        assert len(sighting.numbers) >= 20
        away.append(sighting.pixels - projected(T, board.corners[sighting.numbers], K))
        shot = locate_board(1, np.eye(4), board, sighting, K)
        mm, degrees = size_of(inverse(T) @ shot.T_camera_board)
        assert mm < 2.0
        assert degrees < 0.5
    errors = np.concatenate(away)
    assert np.abs(errors.mean(axis=0)).max() < 0.03  # With the other convention: half a pixel.
    assert np.sqrt((errors**2).sum(axis=1).mean()) < 0.15


def test_a_camera_pose_is_found_in_any_frame(
    X: Matrix, Y: Matrix, rng: np.random.Generator
) -> None:
    shots = looks(X, Y, 14, rng)
    fit = solve(shots)
    mm, degrees = size_of(inverse(X) @ fit.T_parent_camera)
    assert mm < 0.5
    assert degrees < 0.05
    assert mm < 4 * fit.std_mm
    assert fit.rms_px == pytest.approx(0.1 * np.sqrt(2), rel=0.1)
    assert fit.held_mm < 1.0
    assert fit.held_deg < 0.3
    assert fit.scale == pytest.approx(1.0, abs=0.002)
    np.testing.assert_allclose(fit.T_carrier_board, Y, atol=2e-3)
    # The same camera in the frame of another parent.
    G = pose((0.3, -0.2, 0.1), turned(rng, 60.0))
    moved = solve(
        [
            BoardPose(
                s.pose,
                G @ s.T_parent_carrier,
                s.points,
                s.pixels,
                s.intrinsics,
                s.T_camera_board,
                s.rms_px,
            )
            for s in shots
        ]
    )
    np.testing.assert_allclose(moved.T_parent_camera, G @ fit.T_parent_camera, atol=1e-4)
    assert moved.rms_px == pytest.approx(fit.rms_px, rel=1e-3)


def test_one_bad_image_has_little_effect_and_is_reported(
    X: Matrix, Y: Matrix, rng: np.random.Generator
) -> None:
    shots = looks(X, Y, 14, rng)
    bad = shots[5]
    wrong = bad.T_parent_carrier @ pose((0.02, 0.0, 0.0))
    shots[5] = BoardPose(
        6, wrong, bad.points, bad.pixels, bad.intrinsics, bad.T_camera_board, bad.rms_px
    )
    fit = solve(shots)
    mm, degrees = size_of(inverse(X) @ fit.T_parent_camera)
    assert mm < 4.0  # Of 20.
    assert degrees < 0.5
    assert int(np.argmax(fit.each_px)) == 5
    assert fit.held_mm > 4.0  # 20 mm at one of 14 images.


def test_the_size_of_the_board_follows_from_the_motions_of_the_arm(
    X: Matrix, Y: Matrix, rng: np.random.Generator
) -> None:
    assert solve(looks(X, Y, 12, rng, scale=1.2)).scale == pytest.approx(1.2, abs=0.01)


def test_unusable_images_are_reported_with_a_reason(rng: np.random.Generator) -> None:
    empty = np.full((*SIZE, 3), 90, np.uint8)
    with pytest.raises(ValueError, match="no marker of DICT_4X4_50 is seen"):
        locate_board(1, np.eye(4), BOARD, BOARD.find(empty), K)
    larger = Board(columns=9, rows=7, square_mm=25.0, marker_mm=19.0)
    image = image_of(larger, before_camera(rng, spread_deg=0.0), rng)
    with pytest.raises(ValueError, match="is it another board"):
        locate_board(1, np.eye(4), BOARD, BOARD.find(image), K)
    fifth_row = projected(before_camera(rng, spread_deg=0.0), np.array([[0.0, 0.1, 0.0]]), K)[0, 1]
    image[: round(fifth_row) + 20] = 90
    with pytest.raises(
        ValueError,
        match=r"markers 2\d, .* are seen, and this board has 0 to 16: is it another board\?",
    ):
        locate_board(1, np.eye(4), BOARD, BOARD.find(image), K)
    far = image_of(BOARD, before_camera(rng, distance_m=6.0), rng)
    assert BOARD.find(far).problem
    line = BOARD.find(image_of(BOARD, before_camera(rng), rng))
    row = line.numbers < BOARD.columns - 1
    with pytest.raises(ValueError, match="corners in a single line are seen"):
        locate_board(1, np.eye(4), BOARD, type(line)(line.numbers[row], line.pixels[row]), K)
    with pytest.raises(
        ValueError,
        match=r"corners are .* pixels from where they would be on a board of 7x5 squares",
    ):
        locate_board(1, np.eye(4), BOARD, type(line)(np.roll(line.numbers, 1), line.pixels), K)


def test_carriers_of_camera_and_board() -> None:
    q, hands = ALOHA.home, ALOHA.forward_kinematics(ALOHA.home)
    np.testing.assert_allclose(carrier_pose(ALOHA, "world", "left", q), hands["left"])
    np.testing.assert_allclose(
        carrier_pose(ALOHA, "left", None, q) @ hands["left"], np.eye(4), atol=1e-12
    )
    np.testing.assert_allclose(
        hands["left"] @ carrier_pose(ALOHA, "left", "right", q), hands["right"], atol=1e-12
    )
