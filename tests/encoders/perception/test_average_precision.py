"""Average precision equals pycocotools in the image, and holds its meaning in space.

The exact IoU equals SciPy's intersection of half-spaces, also for degenerate pairs.
"""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from scipy.optimize import linprog
from scipy.spatial import ConvexHull, HalfspaceIntersection
from tests.encoders.perception.box_draws import boxes, rotations

from stringline.datasets.images.labelled_image import Box3d, LabelledObject
from stringline.encoders.perception.average_precision import (
    COCO_THRESHOLDS,
    OMNI3D_THRESHOLDS,
    AveragePrecision,
    Detection,
    MatchedDetections,
    Subset,
    exact_iou,
    iou_matrix,
    sampled_iou,
    sampled_standard_error,
)

NAMES = ("bowl", "chair", "lamp", "mug")
Truth = list[list[LabelledObject]]
Found = list[list[Detection]]


def drawn(images: int = 25, seed: int = 0) -> tuple[Truth, Found]:
    """Returns objects and predictions: displaced, doubled, misnamed, missing, and from nowhere."""
    random = np.random.default_rng(seed)
    truth: Truth = []
    detections: Found = []
    for _ in range(images):
        corners = random.uniform(0, 80, (random.integers(0, 9), 2))
        sides = random.uniform(8, 60, corners.shape)
        objects = [
            LabelledObject(name=str(random.choice(NAMES)), box2d=np.array([*low, *(low + side)]))
            for low, side in zip(corners, sides, strict=True)
        ]
        found = [
            Detection(
                name=each.name if random.random() < 0.8 else str(random.choice(NAMES)),
                score=round(float(random.uniform()), 1),  # With ties.
                box2d=each.box2d + random.uniform(-4, 4, 4) * random.random(),
            )
            for each in objects * 2
            if random.random() < 0.8 and each.box2d is not None
        ]
        truth.append(objects)
        detections.append(found)
    return truth, detections


def by_pycocotools(truth: Truth, detections: Found, area: tuple[float, float]) -> np.ndarray:
    """Returns the average precision (names, thresholds) of COCO; -1 for names without objects."""

    def entry(image: int, each: LabelledObject | Detection) -> dict[str, object]:
        assert each.box2d is not None
        x0, y0, x1, y1 = map(float, each.box2d)
        box = [x0, y0, x1 - x0, y1 - y0]
        category = NAMES.index(each.name) + 1
        return {"image_id": image + 1, "category_id": category, "bbox": box}

    annotations = [
        entry(i, each) | {"area": (box := entry(i, each)["bbox"])[2] * box[3], "iscrowd": 0}  # type: ignore[index]
        for i, objects in enumerate(truth)
        for each in objects
    ]
    reference = COCO()
    reference.dataset = {  # pyright: ignore[reportAttributeAccessIssue]
        "info": {},
        "images": [{"id": i + 1} for i in range(len(truth))],
        "categories": [{"id": n + 1, "name": name} for n, name in enumerate(NAMES)],
        "annotations": [each | {"id": n + 1} for n, each in enumerate(annotations)],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        reference.createIndex()
        results = reference.loadRes(
            [  # pyright: ignore[reportArgumentType]
                entry(i, each) | {"score": each.score}
                for i, found in enumerate(detections)
                for each in found
            ]
        )
        evaluation = COCOeval(reference, results, "bbox")
        evaluation.params.areaRng = [list(area)]
        evaluation.params.areaRngLbl = ["all"]
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval["precision"][:, :, :, 0, -1]  # Thresholds, recalls, names.
    return np.asarray(precision.mean(axis=1).T)


def test_it_equals_pycocotools_for_all_objects_and_by_size() -> None:
    for seed in range(4):
        truth, detections = drawn(seed=seed)
        for least, below in ((0.0, 1e5), (0.0, 16.0), (16.0, 32.0)):
            subset = Subset(title="part", quantity="size_2d", least=least, below=below)
            measure = AveragePrecision(truth, detections, space="2d", subset=subset)
            expected = by_pycocotools(truth, detections, (least**2, below**2))
            found = measure.by_name()
            for name, values in zip(NAMES, expected, strict=True):
                if (values >= 0).all():
                    np.testing.assert_allclose(found[name], values, atol=1e-9)
                else:
                    assert name not in found
            assert measure.value() == pytest.approx(expected[expected >= 0].mean(), abs=1e-9)
            assert 0.05 < measure.value() < 0.9
            assert measure.at(0.75) == pytest.approx(
                np.mean([values[5] for values in expected if values[0] >= 0]), abs=1e-9
            )


def test_thresholds_are_those_of_the_benchmarks() -> None:
    assert COCO_THRESHOLDS == (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
    assert OMNI3D_THRESHOLDS == (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)


def in_space(count: int = 8) -> tuple[list[LabelledObject], list[Detection]]:
    """Returns objects of two names around the camera, and exact predictions of them."""
    objects = [
        LabelledObject(name=NAMES[n % 2], box3d=box, visibility=n / count)
        for n, box in enumerate(boxes(count))
    ]
    found = [Detection(name=each.name, score=0.5, box3d=each.box3d) for each in objects]
    return objects, found


def test_in_space_exact_predictions_have_1_and_none_have_0() -> None:
    objects, found = in_space()
    assert AveragePrecision([objects], [found], space="3d").value() == 1
    assert AveragePrecision([objects], [[]], space="3d").value() == 0
    assert np.isnan(AveragePrecision([[]], [found], space="3d").value())


def test_in_space_the_thresholds_tell_the_overlap() -> None:
    """Boxes that are shifted by a half of one side have the IoU 1/3."""
    objects, found = in_space()
    shifted = []
    for each in found:
        assert each.box3d is not None
        step = each.box3d.rotation[:, 0] * each.box3d.size[0] / 2
        shifted.append(replace(each, box3d=replace(each.box3d, centre=each.box3d.centre + step)))
    apart = [[each] for each in objects]
    measure = AveragePrecision(apart, [[each] for each in shifted], space="3d")
    assert (measure.at(0.25), measure.at(0.3), measure.at(0.35), measure.at(0.5)) == (1, 1, 0, 0)
    assert measure.value() == pytest.approx(0.6)
    with pytest.raises(ValueError, match=r"no threshold 0.75; allowed: \[0.05"):
        measure.at(0.75)


def test_wrong_predictions_with_larger_scores_cost_precision() -> None:
    objects, found = in_space()
    nowhere = [replace(each, score=0.9, box3d=boxes(1, seed=9)[0]) for each in found[:2]]
    ends = [replace(each, score=0.1) for each in nowhere]

    def value(extra: Sequence[Detection]) -> float:
        return AveragePrecision([objects], [[*found, *extra]], space="3d").value()

    assert value(ends) == 1
    assert value(nowhere) == pytest.approx(4 / 5)  # Per name, one of five is wrong.


def test_subsets_of_distance_visibility_and_names() -> None:
    objects, found = in_space()
    distances = [float(np.linalg.norm(each.box3d.centre)) for each in objects if each.box3d]
    middle = float(np.median(distances))
    near = Subset(title="near", quantity="distance", below=middle)
    seen = Subset(title="seen", quantity="visibility", least=0.5)
    chairs = Subset(title="unknown", names=frozenset({"chair"}))
    only_near = [each for each, far in zip(found, distances, strict=True) if far < middle]
    for subset, enough in ((near, only_near), (seen, found[4:]), (chairs, found[1::2])):
        missing = [each for each in found if each not in enough]
        for predictions in (enough, found):
            measure = AveragePrecision([objects], [predictions], space="3d", subset=subset)
            assert measure.value() == 1, subset.title
        measure = AveragePrecision([objects], [missing], space="3d", subset=subset)
        assert measure.value() < 0.1, subset.title  # Some of the others overlap by 5 %.
    names = AveragePrecision([objects], [found], space="3d", subset=chairs).by_name()
    assert list(names) == ["chair"]


def test_a_draw_of_images_counts_each_as_often_as_drawn() -> None:
    truth, detections = drawn()
    measure = AveragePrecision(truth, detections, space="2d")
    images = [3, 3, 7, 11, 20]
    again = AveragePrecision(
        [truth[i] for i in images], [detections[i] for i in images], space="2d"
    )
    assert measure.value(images) == again.value()
    assert measure.value(range(len(truth))) == measure.value()


def test_stored_matches_give_the_same_values() -> None:
    truth, detections = drawn()
    measure = AveragePrecision(truth, detections, space="2d")
    again = MatchedDetections.from_arrays(measure.to_arrays())
    for images in (range(len(truth)), [3, 3, 7, 11, 20]):
        assert again.value(images) == measure.value(images)
        assert again.at(0.75, images) == measure.at(0.75, images)
    nothing = AveragePrecision([[]], [[]], space="2d")
    assert np.isnan(MatchedDetections.from_arrays(nothing.to_arrays()).value())


def test_only_the_best_predictions_of_an_image_count() -> None:
    objects, found = in_space(1)
    wrong = [replace(found[0], score=0.9, box3d=boxes(1, seed=9)[0])] * 100
    assert AveragePrecision([objects], [[*found, *wrong]], space="3d").value() == 0


def test_errors_are_named() -> None:
    objects, found = in_space(1)
    with pytest.raises(ValueError, match="objects of 1 images and predictions for 2"):
        AveragePrecision([objects], [found, found], space="3d")
    with pytest.raises(ValueError, match="'bowl' has no box in the image"):
        AveragePrecision([objects], [found], space="2d")
    with pytest.raises(ValueError, match="score of 'mug' is nan; allowed: finite"):
        Detection(name="mug", score=float("nan"))
    with pytest.raises(ValueError, match=r"'mug' is \[3.0, 0.0, 2.0, 1.0\]; allowed: finite, x0"):
        Detection(name="mug", score=1.0, box2d=np.array([3.0, 0.0, 2.0, 1.0]))
    with pytest.raises(ValueError, match="no quantity 'size'. Did you mean 'size_"):
        Subset(title="small", quantity="size")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'none' is from 2 to below 1; allowed: a range"):
        Subset(title="none", quantity="distance", least=2, below=1)


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
