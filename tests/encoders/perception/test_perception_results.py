"""Results have intervals over rooms, operations, and null for what is not known."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.encoders.perception.conftest import encoder

from stringline import Classifier, ImageStore, LabelledObject, TextTower, TwoTowers
from stringline.encoders.perception.average_precision import AveragePrecision, Detection
from stringline.encoders.perception.classifier import ClassifierSettings
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.perception_data import PerceptionData
from stringline.encoders.perception.perception_network import Examples, mean_over_images
from stringline.encoders.perception.perception_results import (
    intervals,
    operations,
    write_results,
)
from stringline.encoders.perception.text_tower import BytePairs
from stringline.encoders.perception.two_towers import TwoTowersSettings


def test_an_interval_over_rooms_contains_the_mean_and_is_wider_than_one_over_images() -> None:
    outcomes = np.repeat([0.0, 1.0] * 10, 5)  # The images of a room agree.
    statistics = {"top1": mean_over_images(outcomes)}
    rooms = intervals(statistics, np.repeat(np.arange(20), 5).tolist())["top1"]
    images = intervals(statistics, list(range(100)))["top1"]
    assert rooms[0] < images[0] < 0.5 < images[1] < rooms[1]


def test_sums_over_objects_are_weighted_by_their_number() -> None:
    mean = mean_over_images([3.0, 0.0, 0.0], [3, 1, 0])
    assert mean(np.arange(3)) == pytest.approx(0.75)
    assert mean(np.array([0, 0, 1])) == pytest.approx(6 / 7)
    assert np.isnan(mean(np.array([2])))


def test_without_two_rooms_or_objects_there_is_no_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert not intervals({"top1": mean_over_images([1.0, 0.0])}, ["kitchen", "kitchen"])
    assert "top1 has no interval. There are 1 groups" in caplog.text
    assert not intervals({"mean_iou": mean_over_images([0.0, 1.0], [0, 1])}, [0, 1])


def test_the_interval_of_the_average_precision_contains_it() -> None:
    """Draws repeat images, which makes the average precision larger by itself."""
    random = np.random.default_rng(0)
    truth, found = [], []
    for _ in range(40):
        boxes = [np.array([x, 0, x + 8, 8], float) for x in (0, 20, 40)]
        names = random.choice(list("abcdefgh"), 3)
        truth.append([LabelledObject(name=n, box2d=b) for n, b in zip(names, boxes, strict=True)])
        shifts = random.uniform(0, 6, 3)
        found.append(
            [
                Detection(name=n, score=float(random.uniform()), box2d=b + np.array([s, 0, s, 0]))
                for n, b, s in zip(names, boxes, shifts, strict=True)
            ]
        )
    precision = AveragePrecision(truth, found, space="2d")
    low, high = intervals({"ap2d": precision.value}, list(range(40)))["ap2d"]
    assert low < precision.value() < high
    assert high - low < 0.3


def test_recalls_have_intervals_of_both_directions(colours: ImageStore) -> None:
    texts = ("a blue wall", "a green wall", "a red wall")
    contract = ImageContract(height=16, width=16, tokeniser=BytePairs.trained(texts, 300).to_text())

    def text(tokeniser: str) -> TextTower:
        return TextTower(tokeniser=tokeniser, dim=16, depth=1, heads=2, length=16)

    settings = TwoTowersSettings(image_encoder=encoder(), text=text, width=16, batch_size=4)
    found = TwoTowers(settings, contract).measure(Examples(colours, range(30), contract))
    for name, statistic in found.statistics.items():
        assert statistic(np.arange(30)) == pytest.approx(found.values[name]), name
    assert {"i2t_recall_at_1", "t2i_recall_at_10"} <= set(found.statistics)


def test_operations_are_counted_for_one_image(colours: ImageStore) -> None:
    contract = ImageContract(height=16, width=16, names=("blue", "green", "red"))
    made = Classifier(ClassifierSettings(image_encoder=encoder()), contract)
    counted = operations(made, Examples(colours, range(30), contract))
    tokens = 16 + 1
    # Queries and keys, values and outputs: 4 vectors of 16 channels in 2 blocks, 2 MAC each.
    assert counted["rotations"] == 2 * 4 * tokens * 16 * 2
    assert counted["products"] > counted["rotations"]


def test_unknown_numbers_become_null(tmp_path: Path) -> None:
    write_results(tmp_path, {"measures": {"a": float("nan"), "b": [1.0, float("inf")]}})
    text = (tmp_path / "results.json").read_text()
    assert json.loads(text) == {"measures": {"a": None, "b": [1.0, None]}}
    assert "NaN" not in text


def test_a_share_of_the_training_images_has_all_classes_and_grows(colours: ImageStore) -> None:
    def data(share: float) -> PerceptionData:
        return PerceptionData.of(colours, "room", 0.2, 0, {"labels"}, share)

    whole = data(1.0)
    assert whole.train == whole.split.train
    chosen = [set(data(share).train) for share in (0.125, 0.25, 0.5, 1.0)]
    assert [len(one) for one in chosen] == [3, 6, 12, 24]
    assert all(small < large for small, large in pairwise(chosen))
    labels = colours.labels()
    assert {labels[index] for index in chosen[0]} == {"blue", "green", "red"}
    small = data(0.125)
    assert small.split == whole.split
    assert small.contract(16, 16, fit="pad", frame="camera") == whole.contract(
        16, 16, fit="pad", frame="camera"
    )
    assert small.fingerprint() != whole.fingerprint()
    with pytest.raises(ValueError, match="train_share must be a number above 0"):
        data(0)
