"""The stereo sensor has the errors and blind spots of triangulation, and repeatable noise."""

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline.sim.rendering.depth_sensor import StereoSensor
from stringline.sim.rendering.rendering import intrinsics

SIZE = 96
K = intrinsics(SIZE, SIZE, 42.0)
EXACT = StereoSensor(spread_px=1e-9)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))


def flat(depth_m: float) -> NDArray[np.uint16]:
    """A wall straight ahead."""
    return np.full((SIZE, SIZE), round(1000 * depth_m), dtype=np.uint16)


def leaning(angle_deg: float, depth_m: float) -> NDArray[np.uint16]:
    """A wall seen at an angle, with more depth to the right: z = z0 + tan(a) x z / f."""
    x = np.arange(SIZE) + 0.5 - K[0, 2]
    row = depth_m / (1 - np.tan(np.radians(angle_deg)) * x / K[0, 0])
    return np.tile(
        np.rint(1000 * np.where(row > 0, np.minimum(row, 60.0), 60.0)), (SIZE, 1)
    ).astype(np.uint16)


@pytest.mark.parametrize("depth_m", [0.4, 0.8, 1.2])
def test_the_error_grows_with_the_square_of_the_depth(depth_m: float) -> None:
    sensor = StereoSensor()
    found = sensor.measure(flat(depth_m), K, rng())
    error = found.astype(np.float64) - 1000 * depth_m
    expected = 1000 * depth_m**2 * sensor.spread_px / (sensor.focal_px * sensor.baseline_m)
    assert found.all(), "nothing of a wall straight ahead is lost"
    assert error.std() == pytest.approx(
        expected, rel=0.06
    )  # Steps and whole millimetres add a little.
    assert abs(error.mean()) < 0.06 * expected
    neighbours = np.corrcoef(error[:, :-1].ravel(), error[:, 1:].ravel())[0, 1]
    assert abs(neighbours) < 0.05


def test_depth_comes_in_steps_that_grow_with_the_square_of_the_depth() -> None:
    steps = []
    for depth_m in (0.7, 1.4):
        near = (
            np.arange(SIZE**2).reshape(SIZE, SIZE) * 0.02 + 1000 * depth_m - 92.0
        )  # From one step to many others.
        values = np.unique(EXACT.measure(np.rint(near).astype(np.uint16), K, rng()))
        steps.append(np.median(np.diff(values[values > 0])))
    assert steps[0] == pytest.approx(1.26, abs=0.3)
    assert steps[1] == pytest.approx(5.05, abs=0.5)


@pytest.mark.parametrize(
    ("depth_m", "seen"), [(0.05, False), (0.08, True), (1.9, True), (2.2, False), (0.0, False)]
)
def test_depth_out_of_range_is_zero(depth_m: float, seen: bool) -> None:
    assert (EXACT.measure(flat(depth_m), K, rng()) > 0).all() == seen
    assert (EXACT.measure(flat(depth_m), K, rng()) > 0).any() == seen


def test_only_pixels_behind_an_edge_lose_their_depth() -> None:
    depth = flat(1.0)
    depth[30:60, 30:60] = 800
    holes = EXACT.measure(depth, K, rng()) == 0
    behind = np.zeros_like(holes)
    behind[30:60, [29, 60]] = behind[[29, 60], 30:60] = True
    np.testing.assert_array_equal(holes, behind)
    depth[30:60, 30:60] = 995  # A sheet of 5 mm is no edge.
    assert EXACT.measure(depth, K, rng()).all()


def test_holes_at_faint_edges_flicker() -> None:
    depth = flat(1.0)
    depth[:, :48] = 970
    shares = [(EXACT.measure(depth, K, rng(seed))[:, 48] == 0).mean() for seed in range(3)]
    assert all(0.2 < share < 0.9 for share in shares)
    assert len(set(shares)) > 1


@pytest.mark.parametrize(("angle_deg", "seen"), [(60.0, True), (75.0, True), (84.0, False)])
def test_grazing_surfaces_have_no_depth(angle_deg: float, seen: bool) -> None:
    near_the_middle = EXACT.measure(leaning(angle_deg, 0.8), K, rng())[10:-10, 46:50]
    assert (near_the_middle > 0).all() == seen
    assert (near_the_middle > 0).any() == seen


def test_weaker_noise_has_smaller_errors() -> None:
    depth = leaning(50.0, 0.7)
    depth[20:40, 20:40] -= 150
    in_range = (depth > 80) & (depth < 1900)

    def error(strength: float) -> tuple[float, int]:
        found = StereoSensor().measure(depth, K, rng(), strength)
        seen = in_range & (found > 0)
        return float(np.abs(found.astype(float) - depth)[seen].mean()), int(
            (in_range & (found == 0)).sum()
        )

    errors, holes = zip(*(error(strength) for strength in (1e-4, 0.25, 0.5, 1.0)), strict=True)
    assert errors[0] < 0.01
    assert holes[0] == 0
    assert list(errors) == sorted(errors)
    assert list(holes) == sorted(holes)
    assert holes[-1] > 40


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (2, 2)])
def test_images_may_be_of_a_row_a_column_or_a_pixel(size: tuple[int, int]) -> None:
    """A single pixel has no slope and hides nothing."""
    depth, near = np.full(size, 700, dtype=np.uint16), intrinsics(*size, 42.0)
    for strength in (0.5, 1.0):
        found = StereoSensor().measure(depth, near, rng(), strength)
        assert found.shape == size
        assert np.abs(found.astype(int) - 700).max() < 20
    depth[0, 0] = 0
    assert StereoSensor().measure(depth, near, rng())[0, 0] == 0


def test_intrinsics_of_cameras_are_kept_apart() -> None:
    """The same image is less oblique through a wider lens, whichever was measured first."""
    depth, wide = leaning(76.0, 0.8), intrinsics(SIZE, SIZE, 80.0)
    first = [EXACT.measure(depth, lens, rng()) for lens in (K, wide)]
    again = [EXACT.measure(depth, lens, rng()) for lens in (wide, K)]
    np.testing.assert_array_equal(first, again[::-1])
    assert (first[0] != first[1]).any()


def test_measurements_are_a_function_of_depth_intrinsics_and_generator() -> None:
    depth = leaning(40.0, 0.6)
    before = depth.copy()
    first, again, other = (StereoSensor().measure(depth, K, rng(seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(depth, before)
    assert (first != other).any()
    assert first.dtype == np.uint16
    assert first.shape == depth.shape
