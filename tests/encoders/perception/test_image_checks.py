"""Images that do not fit a network are counted and named before the training."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.encoders.perception.conftest import coloured, encoder, moving
from tests.encoders.perception.test_detectors import CONTRACT, detector, scene, text

from stringline import Classifier, ImageStore, ImageWriter, LabelledImage, TwoTowers
from stringline.datasets.images.image_store import Split
from stringline.encoders.perception.classifier import ClassifierSettings
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.perception_data import PerceptionData
from stringline.encoders.perception.perception_run import check_images
from stringline.encoders.perception.two_towers import TwoTowersSettings


def data(images: Sequence[LabelledImage], path: Path) -> PerceptionData:
    """Returns images of which the first two are for training."""
    with ImageWriter(path) as writer:
        for image in images:
            writer.add(image)
    split = Split((0, 1), tuple(range(2, len(images))), 0, ("test",))
    return PerceptionData(ImageStore(path), split, "image")


def test_long_captions_are_named(tmp_path: Path) -> None:
    captions = ["a ball", "a box", "ball " * 40, "a box", "box " * 40]
    images = [coloured("red", n, captions=(each,)) for n, each in enumerate(captions)]
    towers = TwoTowers(
        TwoTowersSettings(image_encoder=encoder(), text=text, batch_size=2),
        ImageContract(height=16, width=16, frame="camera", tokeniser=CONTRACT.tokeniser),
    )
    with pytest.raises(
        ValueError,
        match=r"^2 of 3 test images do not fit the network. Image 2: The text .* allowed: at most "
        r"8. Raise head.text.length, or set head.text.truncate=true.$",
    ):
        check_images(towers, data(images, tmp_path / "store"))


def test_missing_geometry_is_named(tmp_path: Path) -> None:
    images = [replace(scene(0), intrinsics=None), *map(scene, range(1, 4))]
    with pytest.raises(
        ValueError,
        match=r"^1 of 2 training images do not fit the network. Image 0: An image lacks intrinsics",
    ):
        check_images(detector("3d"), data(images, tmp_path / "store"))


def test_clips_of_another_length_are_named(tmp_path: Path) -> None:
    with ImageWriter(tmp_path / "clips") as writer:
        for frames in (5, 5, 6):
            writer.add_clip(moving(True, frames, frames))
    contract = ImageContract(height=16, width=16, frame="camera", frames=5, names=("left", "right"))
    network = Classifier(ClassifierSettings(image_encoder=encoder(tubelet=1)), contract)
    clips = PerceptionData(ImageStore(tmp_path / "clips"), Split((0, 1), (2,), 0, ()), "image")
    with pytest.raises(
        ValueError, match="1 of 1 test images .* Image 2: A clip has 6 frames; allowed: 5"
    ):
        check_images(network, clips)


@pytest.mark.parametrize("without", ["boxes", "pixels"])
def test_a_side_without_objects_is_refused(tmp_path: Path, without: str) -> None:
    images = [scene(number) for number in range(4)]
    least = 10
    if without == "boxes":
        images[2:] = [
            replace(image, objects=tuple(replace(one, box3d=None) for one in image.objects))
            for image in images[2:]
        ]
    else:
        least = 1000
    side = "2 test" if without == "boxes" else "2 training"
    with pytest.raises(
        ValueError,
        match=rf"None of the {side} images has an object with a box and at least {least} pixels",
    ):
        check_images(detector("3d", least_pixels=least), data(images, tmp_path / "store"))
