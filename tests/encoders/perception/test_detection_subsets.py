"""Measures by size, distance and visibility are those of the objects in each range."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.encoders.perception.test_detectors import CONTRACT, detector, scene

from stringline.datasets.images.labelled_image import Box3d, LabelledObject
from stringline.encoders.perception.average_precision import AveragePrecision, Detection, Space
from stringline.encoders.perception.detection_results import measured_subsets, subsets_of
from stringline.encoders.perception.perception_network import Examples
from stringline.encoders.perception.perception_results import with_intervals


def things(visibility: float | None = None) -> list[LabelledObject]:
    """Returns twelve cubes of growing sides, ever farther away."""
    return [
        LabelledObject(
            name="box",
            box2d=np.array([0, 0, 10 * n, 10 * n], float),
            box3d=Box3d(np.array([0, 0, float(n)]), np.eye(3), np.full(3, n / 10)),
            visibility=n / 12 if visibility is None else visibility,
        )
        for n in range(1, 13)
    ]


def found(objects: Sequence[LabelledObject]) -> list[Detection]:
    """Returns right predictions of the objects nearer than 6 m."""
    near = [one for one in objects if one.box3d is not None and one.box3d.centre[2] < 6]
    return [Detection(name=one.name, score=0.5, box2d=one.box2d, box3d=one.box3d) for one in near]


def test_each_object_is_in_one_range_of_a_quantity() -> None:
    objects = things()
    spaces: tuple[tuple[Space, int], ...] = (("3d", 3), ("2d", 2))
    for space, quantities in spaces:
        held = [[subset.holds(one) for one in objects] for subset in subsets_of(objects, space)]
        assert np.sum(held) == quantities * len(objects)
        assert np.any(held, axis=1).all()
    titles = [subset.title for subset in subsets_of(objects, "2d")]
    assert titles[:3] == ["size_2d below 32 px", "size_2d 32 to 96 px", "size_2d from 96 px"]
    assert titles[3:] == ["visibility below 0.5", "visibility 0.5 to 0.9", "visibility from 0.9"]


def test_sizes_in_small_images_have_thirds() -> None:
    titles = [subset.title for subset in subsets_of(things()[:6], "2d")]
    assert titles[:3] == ["size_2d below 27 px", "size_2d 27 to 43 px", "size_2d from 43 px"]


def test_a_quantity_with_one_range_is_left_out() -> None:
    assert not [s for s in subsets_of(things(1.0), "3d") if s.quantity == "visibility"]
    assert not list(subsets_of([], "3d"))
    unknown = [replace(one, visibility=None) for one in things()]
    assert not [s for s in subsets_of(unknown, "3d") if s.quantity == "visibility"]


def test_near_objects_that_are_found_have_the_full_precision() -> None:
    objects = things()
    precision = AveragePrecision([objects], [found(objects)], space="3d")
    ious = np.array([1.0 if one.box3d and one.box3d.centre[2] < 6 else 0.0 for one in objects])
    rows = {str(row["subset"]): row for row in measured_subsets([objects], [ious], precision, "3d")}
    assert rows["distance below 4.7 m"]["ap3d"] == pytest.approx(1)
    assert rows["distance below 4.7 m"]["mean_iou"] == 1
    assert rows["distance from 8.3 m"]["ap3d"] == 0
    assert rows["distance from 8.3 m"]["objects"] == 4
    counted = [float(row["objects"]) for name, row in rows.items() if "distance" in name]
    weighted = [
        float(row["objects"]) * float(row["mean_iou"])
        for name, row in rows.items()
        if "distance" in name
    ]
    assert sum(weighted) / sum(counted) == pytest.approx(ious.mean())


def test_a_subset_equals_a_measurement_with_it() -> None:
    objects = things()
    whole = AveragePrecision([objects], [found(objects)], space="3d")
    for subset in subsets_of(objects, "3d"):
        alone = AveragePrecision([objects], [found(objects)], space="3d", subset=subset)
        assert whole.of(subset).value() == alone.value()


def test_a_detector_reports_subsets_and_the_sampled_overlap() -> None:
    images = [scene(seed) for seed in range(27)]
    measured = detector("3d").measure(Examples(images, range(27), CONTRACT)).detailed()
    assert {"subset", "objects", "mean_iou", "ap3d"} == set(measured.subsets[0])
    assert set(measured.of_subsets) == {row["subset"] for row in measured.subsets}
    for row in measured.subsets:
        mean = measured.of_subsets[str(row["subset"])](np.arange(27))
        assert mean == pytest.approx(row["mean_iou"])
    rows = with_intervals(measured, list(range(27)))
    assert all(float(row["mean_iou_low"]) <= float(row["mean_iou"]) for row in rows)
    assert all(float(row["mean_iou"]) <= float(row["mean_iou_high"]) for row in rows)
    assert with_intervals(measured, [0] * 27) == measured.subsets, "one room has no interval"
    assert measured.values["mean_iou_sampled"] == pytest.approx(
        measured.values["mean_iou"], abs=0.005
    )
    assert measured.statistics["mean_iou"](np.arange(27)) == pytest.approx(
        measured.values["mean_iou"]
    )
    assert measured.statistics["ap3d"](np.arange(27)) == measured.values["ap3d"]
