"""Labels, judged by pixels."""

import numpy as np
import pytest
from tests.sim.scenes.drawn_rooms import views

from stringline.datasets.images.labelled_image import LabelledImage, LabelledObject
from stringline.sim.scenes.labels import LabelledView
from stringline.sim.scenes.scene_images import SceneImages, SceneSettings, Tally

GROWN_M = 0.01
SHARE = 0.99


def inside(image: LabelledImage, one: LabelledObject, number: int) -> np.ndarray:
    """Returns which clean-depth points (P,) of an object lie in its box grown by 1 cm."""
    assert image.segments is not None
    assert image.clean_depth is not None
    assert image.intrinsics is not None
    assert one.box3d is not None
    rows, columns = np.nonzero(image.segments == number + 1)
    rays = np.stack([columns + 0.5, rows + 0.5, np.ones(len(rows))]) / 1000.0
    points = (np.linalg.inv(image.intrinsics) @ rays * image.clean_depth[rows, columns]).T
    local = (points - one.box3d.centre) @ one.box3d.rotation
    return np.asarray((np.abs(local) <= one.box3d.size / 2 + GROWN_M).all(1))


def check_labels(image: LabelledImage) -> None:
    assert image.segments is not None
    assert image.segments.max() == len(image.objects)
    for number, one in enumerate(image.objects):
        mask = image.segments == number + 1
        rows, columns = np.nonzero(mask)
        assert one.box2d is not None
        assert one.box2d.tolist() == [
            columns.min(),
            rows.min(),
            columns.max() + 1,
            rows.max() + 1,
        ]
        if one.box3d is not None:
            assert inside(image, one, number).mean() >= SHARE, one


@pytest.mark.slow
def test_boxes_are_those_of_the_pixels() -> None:
    for _, _, labelled in views():
        check_labels(labelled.image)


@pytest.mark.stress
def test_boxes_of_1000_images_are_those_of_the_pixels() -> None:
    drawer, tally = SceneImages(SceneSettings()), Tally()
    for number in range(250):
        images = drawer.room(number)
        tally.add(images)
        for image in images:
            check_labels(image)
    drawer.close()
    assert tally.images == 1000
    assert tally.shown / tally.images >= 4
    assert tally.hidden / tally.objects >= 0.2


def hidden_share(labelled: LabelledView) -> float:
    shares = [one.visibility for one in labelled.image.objects]
    return float(np.mean([share is not None and share < 0.95 for share in shares]))


@pytest.mark.slow
def test_a_fifth_of_the_objects_is_partly_hidden_and_4_are_visible() -> None:
    found = [labelled for _, _, labelled in views()]
    assert np.mean([hidden_share(one) for one in found]) >= 0.2
    assert np.mean([sum(each.pixels >= 40 for each in one.seen) for one in found]) >= 4


def test_visibility_and_truncation_are_shares() -> None:
    whole = 0
    for _, _, labelled in views():
        height, width = labelled.image.rgb.shape[:2]
        for one in labelled.image.objects:
            assert one.visibility is not None
            assert one.truncation is not None
            assert one.box2d is not None
            assert 0 < one.visibility <= 1
            assert 0 <= one.truncation < 1
            at_edge = one.box2d[0] == 0 or one.box2d[1] == 0
            at_edge |= one.box2d[2] == width or one.box2d[3] == height
            if one.visibility == 1 and not at_edge:
                assert one.truncation == 0
                whole += 1
    assert whole > 20


def test_the_sensor_keeps_most_of_the_depth_and_changes_it() -> None:
    for _, _, labelled in views():
        image = labelled.image
        assert image.depth is not None
        assert image.clean_depth is not None
        both = (image.depth > 0) & (image.clean_depth > 0)
        assert (image.clean_depth > 0).all()
        assert both.mean() > 0.5
        error = np.abs(image.depth[both].astype(float) - image.clean_depth[both])
        assert 0 < np.median(error) < 50
