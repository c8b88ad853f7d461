"""The sentences of the page of predictions say what is wrong."""

from collections.abc import Sequence

import numpy as np
import pytest

from stringline.datasets.images.labelled_image import Box3d, LabelledObject
from stringline.encoders.perception import classifier, two_towers
from stringline.encoders.perception.average_precision import Detection
from stringline.encoders.perception.detection_results import comment

UNIT = np.ones(3)


def box(x: float) -> Box3d:
    return Box3d(np.array([x, 0.0, 2.0]), np.eye(3), UNIT)


def flat(x: float) -> np.ndarray:
    return np.array([x, 0.0, x + 10, 10])


MUG = LabelledObject(name="mug", box3d=box(0))
BOWL = LabelledObject(name="bowl", box3d=box(1))


def found(name: str, x: float) -> Detection:
    return Detection(name=name, score=1.0, box3d=box(x))


@pytest.mark.parametrize(
    ("assigned", "ious", "sentence"),
    [
        (
            [found("mug", 0.25), found("bowl", 1.5)],
            [0.6, 0.33],
            "All names are right; the least overlap is 0.33, of bowl (0.50 m beside it).",
        ),
        (
            [found("mug", 3.0), found("pan", 1.0)],
            [0.0, 1.0],
            "1 of 2 names are wrong; the least overlap is 0.00, of mug (3.00 m beside it).",
        ),
        ([None, None], [0.0, 0.0], "2 of 2 names are wrong; the least overlap is 0.00, of mug."),
    ],
)
def test_of_boxes(assigned: Sequence[Detection | None], ious: list[float], sentence: str) -> None:
    assert comment([MUG, BOWL], assigned, np.array(ious)) == sentence


def test_of_boxes_in_the_image() -> None:
    thing = LabelledObject(name="cat", box2d=flat(0))
    one = Detection(name="cat", score=1.0, box2d=flat(4))
    assert comment([thing], [one], np.array([0.4])) == (
        "All names are right; the least overlap is 0.40, of cat (4 pixels beside it)."
    )
    assert comment([], [], np.zeros(0)) == "No object is to be found."


def test_of_classes_and_captions() -> None:
    logits = np.array([0.1, 3.0, 2.0, -1.0])
    assert classifier.comment(logits, 1) == "Right."
    assert classifier.comment(logits, 0) == "Wrong: the true class is number 3 of 4."
    assert two_towers.comment(0, 9) == "Right."
    assert two_towers.comment(4, 9) == "Wrong: 4 of 9 captions are before the first right one."
