"""The exact IoU equals SciPy's intersection of half-spaces, also for degenerate pairs."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.spatial import ConvexHull, HalfspaceIntersection
from tests.encoders.perception.box_draws import boxes, rotations

from stringline.datasets.images.labelled_image import Box3d
from stringline.encoders.perception.overlap import (
    exact_iou,
    iou_matrix,
    sampled_iou,
    sampled_standard_error,
)

KINDS = ("random", "identical", "nested", "touching", "overlapping", "thin", "disjoint", "close")
FAR = np.array([1e4, -1e4, 1e4])


def half_spaces(box: Box3d, origin: np.ndarray) -> np.ndarray:
    """Returns rows (n, d) with n x + d <= 0 inside."""
    normals = np.concatenate([box.rotation.T, -box.rotation.T])
    offsets = normals @ (box.centre - origin) + np.tile(box.size / 2, 2)
    return np.concatenate([normals, -offsets[:, None]], axis=1)


def by_scipy(a: Box3d, b: Box3d) -> float:
    """Returns the IoU from the vertices that SciPy finds around the centre of the largest ball."""
    rows = np.concatenate([half_spaces(a, a.centre), half_spaces(b, a.centre)])
    ball = linprog(
        [0, 0, 0, -1],
        A_ub=np.concatenate([rows[:, :3], np.ones((12, 1))], axis=1),
        b_ub=-rows[:, 3],
        bounds=[(None, None)] * 3 + [(0, None)],
    )
    if ball.status == 2 or ball.x[3] < 1e-9:
        return 0.0
    points = HalfspaceIntersection(rows, ball.x[:3]).intersections
    shared = ConvexHull(points).volume
    return float(shared / (a.size.prod() + b.size.prod() - shared))


def pair(kind: str, random: np.random.Generator) -> tuple[Box3d, Box3d]:
    """Returns two boxes whose faces relate as the kind says."""
    a, b = boxes(2, seed=int(random.integers(1 << 31)))
    side = random.integers(3)
    step = a.rotation[:, side] * a.size[side]
    smaller = a.size * random.uniform(0.1, 1, 3)
    thin = np.where(np.arange(3) == side, 1e-3, b.size)
    away = 4 * b.centre / np.linalg.norm(b.centre)
    return a, {
        "random": replace(b, centre=a.centre + 0.5 * random.normal(size=3)),
        "identical": a,
        # Three faces lie in common planes.
        "nested": replace(a, centre=a.centre + a.rotation @ (a.size - smaller) / 2, size=smaller),
        "touching": replace(a, centre=a.centre + step),
        # Four faces lie in common planes.
        "overlapping": replace(a, centre=a.centre + random.uniform(0, 1) * step),
        "thin": Box3d(a.centre + 0.2 * b.centre, b.rotation, thin),
        "disjoint": replace(b, centre=a.centre + away),
        "close": replace(a, rotation=tilted(a.rotation, random)),
    }[kind]


def tilted(rotation: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Returns a rotation that differs by 1e-13 to 1e-7."""
    x, y, z = random.normal(size=3) * 10 ** random.uniform(-13, -7)
    tilt, signs = np.linalg.qr(np.array([[1, -z, y], [z, 1, -x], [-y, x, 1]]))
    return tilt * np.sign(np.diagonal(signs)) @ rotation


def check(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    for index in range(count):
        kind = KINDS[index % len(KINDS)]
        a, b = pair(kind, random)
        found = exact_iou(a, b)
        assert found == pytest.approx(by_scipy(a, b), abs=1e-9), (kind, index)
        assert 0 <= found <= 1
        assert exact_iou(b, a) == pytest.approx(found, abs=1e-12)
        shifted = [replace(each, centre=each.centre + FAR) for each in (a, b)]
        # Coordinates of 10^4 m are themselves rounded to 2e-12 m.
        assert exact_iou(*shifted) == pytest.approx(found, abs=1e-8 if kind == "thin" else 1e-9)


@pytest.mark.slow
def test_it_equals_scipy_for_pairs_of_every_kind() -> None:
    check(160, seed=0)


@pytest.mark.stress
def test_it_equals_scipy_for_ten_thousand_pairs() -> None:
    check(10_000, seed=1)


def test_degenerate_pairs_have_the_known_values() -> None:
    for a in boxes(20):
        assert exact_iou(a, a) == pytest.approx(1, abs=1e-14)
        far = replace(a, centre=a.centre + FAR)
        assert exact_iou(far, far) == pytest.approx(1, abs=1e-14)
        touching = replace(a, centre=a.centre + a.rotation[:, 0] * a.size[0])
        assert exact_iou(a, touching) == pytest.approx(0, abs=1e-14)
        half = replace(a, centre=a.centre + a.rotation[:, 1] * a.size[1] / 2)
        assert exact_iou(a, half) == pytest.approx(1 / 3, abs=1e-14)
        inner = replace(a, size=a.size * [0.5, 0.4, 0.3])
        assert exact_iou(a, inner) == pytest.approx(0.06, abs=1e-14)


def test_the_octagonal_overlap_of_two_cubes() -> None:
    """Of two unit cubes, one turned by 45 degrees; the octagon has the area 2 sqrt 2 - 2."""
    c = np.sqrt(0.5)
    turned = np.array([[c, -c, 0], [c, c, 0], [0, 0, 1]])
    shared = 2 * (np.sqrt(2) - 1)
    found = exact_iou(
        Box3d(np.zeros(3), np.eye(3), np.ones(3)), Box3d(np.zeros(3), turned, np.ones(3))
    )
    assert found == pytest.approx(shared / (2 - shared), abs=1e-14)


def test_rounded_axes_still_give_a_box_its_own_overlap() -> None:
    for rotation in rotations(20, np.random.default_rng(0)):
        box = Box3d(np.zeros(3), rotation.round(5), np.array([1.0, 2.0, 0.5]))
        assert exact_iou(box, box) == pytest.approx(1, abs=1e-14)


def test_a_matrix_holds_the_pairs() -> None:
    first = boxes(6, 1)
    second = boxes(5, 2)
    found = iou_matrix(first, second)
    np.testing.assert_array_equal(
        found, [[exact_iou(a, b) for b in second] for a in first], strict=True
    )
    assert (found > 0).any()
    assert (found == 0).any()
    assert iou_matrix(first, []).shape == (6, 0)


def test_the_sampled_one_is_within_four_standard_errors() -> None:
    random = np.random.default_rng(0)
    deviations = []
    for index in range(64):
        predicted, target = pair(KINDS[index % len(KINDS)], random)
        error = sampled_standard_error(predicted, target, 20_000)
        assert error < 0.01
        difference = sampled_iou(predicted, target, points=20_000, seed=index)
        difference -= exact_iou(predicted, target)
        assert abs(difference) <= 4 * error + 1e-6, index
        if error > 1e-4:
            deviations.append(difference / error)
    assert 0.6 < np.std(deviations) < 1.4  # The standard error is not merely an upper bound.


def test_the_published_number_of_points_has_the_stated_error() -> None:
    a = boxes(1)[0]
    b = boxes(1, 3)[0]
    near = replace(b, centre=a.centre)
    assert 0 < sampled_standard_error(a, near) < 0.002
    with pytest.raises(ValueError, match=r"points must be an integer of at least 1 \(got 0\)"):
        sampled_iou(a, near, points=0)
