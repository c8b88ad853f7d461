"""Augmentation of labelled images changes colours and windows, and nothing that labels describe."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.encoders.perception.conftest import COLOURS, SIDE, encoder
from tests.encoders.perception.test_two_towers import towers

from stringline.datasets.command.choices import CONFIGS, completed
from stringline.datasets.images.image_store import ImageStore
from stringline.encoders.perception.classifier import Classifier, ClassifierSettings
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.perception_data import image_augmentation
from stringline.encoders.perception.perception_network import stack


def config(name: str) -> dict[str, Any]:
    """Returns a configuration of the package."""
    return completed(CONFIGS, f"augmentation/{name}")


def classifier(frames: int = 1) -> Classifier:
    names = tuple(sorted(COLOURS))
    contract = ImageContract(height=SIDE, width=SIDE, names=names, frames=frames)
    return Classifier(ClassifierSettings(image_encoder=encoder()), contract)


def test_training_images_change_with_the_generator_and_labels_stay(colours: ImageStore) -> None:
    network = classifier()
    random = np.random.default_rng(0)
    batch = stack([network.example(colours[index], random) for index in range(6)])
    before = {key: value.clone() for key, value in batch.items()}
    augment = image_augmentation(config("classify"), network)
    assert augment is not None
    first, again, other = (
        augment(batch, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert set(first) == set(batch)
    for key, value in batch.items():
        assert torch.equal(value, before[key])
        assert torch.equal(first[key], again[key])
        assert (first[key].shape, first[key].dtype) == (value.shape, value.dtype)
        assert torch.equal(first[key], other[key]) == (key != "rgb/image")


def test_no_transforms_are_no_augmentation() -> None:
    assert image_augmentation(None, classifier()) is None
    assert image_augmentation(config("none"), classifier()) is None


def test_crops_are_refused_where_captions_need_not_hold() -> None:
    with pytest.raises(ValueError, match=r"captions that TwoTowers .* augmentation=light\."):
        image_augmentation(config("classify"), towers())
    assert image_augmentation(config("light"), towers()) is not None


def test_textures_of_segments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"needs segments.* augmentation=classify\.$"):
        image_augmentation(config("strong"), classifier())


def test_all_frames_of_a_clip_change_alike(colours: ImageStore) -> None:
    network = classifier()
    random = np.random.default_rng(0)
    images = stack([network.example(colours[index], random) for index in range(6)])
    clips = {
        key: torch.stack([value] * 3, dim=1) if key.endswith("/image") else value
        for key, value in images.items()
    }
    of_images = image_augmentation(config("classify"), network)
    of_clips = image_augmentation(config("classify"), classifier(frames=3))
    assert of_images is not None
    assert of_clips is not None
    expected = of_images(images, torch.Generator().manual_seed(1))
    found = of_clips(clips, torch.Generator().manual_seed(1))
    assert set(found) == set(clips)
    assert not torch.equal(found["rgb/image"], clips["rgb/image"])
    for key, value in expected.items():
        frames = found[key].unbind(1) if key.endswith("/image") else [found[key]]
        assert all(torch.equal(frame, value) for frame in frames)
