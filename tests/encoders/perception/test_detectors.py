"""Detectors learn a handful of images; their targets and predictions are in the frames they say."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.encoders.perception.conftest import SIDE, encoder

from stringline.datasets.images.labelled_image import Box3d, LabelledImage, LabelledObject
from stringline.encoders.coordinates.coordinates import GridPlaces
from stringline.encoders.perception.box_detectors import (
    Detector2d,
    Detector2dSettings,
    Detector3d,
    Detector3dSettings,
)
from stringline.encoders.perception.detection_results import DetectionResults
from stringline.encoders.perception.detector import NOTHING, Detector
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.perception_network import Examples, stack
from stringline.encoders.perception.text_tower import BytePairs, TextTower
from stringline.encoders.vision.patches import ColourOnly, DepthChannel

NAMES = ("ball", "box")
PAIRS = BytePairs.trained(NAMES, 300).to_text()
K = np.array([[16.0, 0, 8], [0, 16, 8], [0, 0, 1]])
CONTRACT = ImageContract(
    height=SIDE, width=SIDE, depth=True, geometry=True, names=NAMES, tokeniser=PAIRS
)


def scene(seed: int) -> LabelledImage:
    """Returns an image of a red ball or a blue box, facing the camera, before a far wall."""
    generator = np.random.default_rng(seed)
    name = NAMES[seed % 2]
    side = 4 + 2 * (seed % 3)
    column, row = generator.integers(0, SIDE - side, 2)
    rgb = np.full((SIDE, SIDE, 3), 90, np.uint8)
    depth = np.full((SIDE, SIDE), 3000, np.uint16)
    inside = np.s_[row : row + side, column : column + side]
    rgb[inside] = (220, 30, 30) if name == "ball" else (30, 30, 220)
    depth[inside] = 1500
    centre = np.array([column + side / 2 - 8, row + side / 2 - 8, 16]) * 1.5 / 16
    size = np.array([side, side, 4]) * 1.5 / 16
    thing = LabelledObject(
        name=name,
        box2d=np.array([column, row, column + side, row + side], float),
        box3d=Box3d(centre, np.eye(3), size),
    )
    return LabelledImage(rgb=rgb, depth=depth, intrinsics=K, objects=(thing,))


def text(tokeniser: str) -> TextTower:
    """Returns a small text tower."""
    return TextTower(tokeniser=tokeniser, dim=16, depth=1, heads=2, length=8)


def detector(kind: str, contract: ImageContract = CONTRACT, **settings: Any) -> Detector:
    """Returns a small detector."""
    torch.manual_seed(0)
    plain = {"image_encoder": encoder(dim=32), "text": text, "objects": 3, "least_pixels": 10}
    if kind == "2d":
        return Detector2d(Detector2dSettings(**{**plain, **settings}), contract)
    return Detector3d(Detector3dSettings(**{**plain, **settings}), contract)


def with_depth() -> Any:
    """Returns the factory of an image encoder that reads depth as a channel."""
    return encoder(dim=32, depth_input=DepthChannel())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "settings"), [("2d", {}), ("3d", {"symmetry": "all"})])
def test_a_detector_learns_a_handful_of_images(kind: str, settings: dict[str, Any]) -> None:
    made = detector(kind, **settings)
    images = [scene(seed) for seed in range(6)]
    examples = Examples(images, range(6), CONTRACT)
    before = made.measure(examples).values
    generator = np.random.default_rng(0)
    batch = stack([made.example(image, generator) for image in images])
    optimizer = torch.optim.AdamW(made.parameters(), lr=3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        made.loss(batch).backward()
        optimizer.step()
    found = made.eval().measure(examples)
    assert found.values["mean_iou"] > max(0.6, before["mean_iou"] + 0.2)
    assert found.values[f"ap{kind}_50"] > 0.8
    assert found.values["objects"] == 6
    assert f"ap{kind}_50" in found.statistics
    for name, statistic in found.statistics.items():
        assert statistic(np.arange(6)) == pytest.approx(found.values[name]), name
    assert len(found.drawings[0].predicted_lines) == (1 if kind == "2d" else 12)
    assert found.drawings[1].prediction == "box"


@pytest.mark.parametrize("kind", ["2d", "3d"])
def test_true_boxes_as_predictions_have_no_loss_and_full_overlap(kind: str) -> None:
    """The published frame and pixels survive the way into the network and back."""
    tilted = np.eye(4)
    tilted[:3, :3] = [[1, 0, 0], [0, 0, 1], [0, -1, 0]]  # The camera looks along the world's y.
    contract = replace(CONTRACT, height=8, width=8, frame="level")
    made = detector(kind, contract)
    image = replace(scene(3), T_world_camera=tilted)
    targets = made.targets(image, np.random.default_rng(0))
    boxes = torch.from_numpy(targets["boxes"])[:1]
    if kind == "3d":
        centre, rotation, size = boxes[:, :3], boxes[:, 3:12].reshape(1, 3, 3), boxes[:, 12:]
        # Level: z is up, y into the scene.
        assert centre[0, 1] == pytest.approx(1.5)
        numbers = torch.cat(
            (centre, rotation[..., 0], rotation[..., 1], torch.log(torch.expm1(size))), dim=-1
        )
    else:
        numbers = boxes
    assert made.pair_loss(numbers, boxes).item() == pytest.approx(0, abs=1e-4)
    back = made.detection("box", 1.0, numbers[0], image)
    thing = image.objects[0]
    if kind == "3d":
        assert back.box3d is not None
        assert thing.box3d is not None
        np.testing.assert_allclose(back.box3d.corners(), thing.box3d.corners(), atol=1e-5)
    else:
        assert back.box2d is not None
        assert thing.box2d is not None
        np.testing.assert_allclose(back.box2d, thing.box2d, atol=1e-4)


def test_boxes_relative_to_their_patch_move_with_the_scene_and_absolute_ones_need_features() -> (
    None
):
    image = scene(0)
    assert image.depth is not None
    nearer = replace(image, depth=image.depth - 500)
    for places in ("relative", "absolute"):
        made = detector("3d", places=places, image_encoder=with_depth()).eval()
        with torch.no_grad():
            first, second = (
                made.predict(stack([made.arrays.observation(one)]), NAMES).numbers[..., 2]
                for one in (image, nearer)
            )
        moved = (first - second).mean().item()
        assert moved == pytest.approx(0.5 if places == "relative" else 0.0, abs=0.02)


@pytest.mark.parametrize("places", ["relative", "absolute"])
def test_without_depth_as_an_input_no_prediction_depends_on_it(places: str) -> None:
    image = scene(0)
    assert image.depth is not None
    nearer = replace(image, depth=image.depth - 500)
    flat = encoder(dim=32, coordinates=GridPlaces(4), depth_input=ColourOnly())
    made = detector("3d", places=places, image_encoder=flat).eval()
    assert not made.image_encoder.reads_depth
    with torch.no_grad():
        first, second = (
            made.predict(stack([made.arrays.observation(one)]), NAMES).numbers
            for one in (image, nearer)
        )
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_more_objects_than_places_are_drawn_and_small_ones_left_out() -> None:
    made = detector("3d")
    many = replace(scene(0), objects=scene(0).objects * 5)
    targets = made.targets(many, np.random.default_rng(0))
    assert (targets["names"] != NOTHING).all()
    assert targets["boxes"].shape == (3, 15)
    small = replace(
        scene(0), objects=(replace(scene(0).objects[0], box2d=np.array([0.0, 0, 3, 3])),)
    )
    assert (made.targets(small, np.random.default_rng(0))["names"] == NOTHING).all()


def test_an_image_without_objects_has_a_loss_of_names_only() -> None:
    made = detector("3d")
    generator = np.random.default_rng(0)
    empty = replace(scene(0), objects=())
    loss = made.loss(stack([made.example(empty, generator)] * 2))
    assert loss.isfinite()
    assert loss > 0
    found = made.eval().measure(Examples([empty], [0], CONTRACT))
    assert found.values["objects"] == 0


def test_names_that_were_not_in_training_are_queries_and_are_measured_apart() -> None:
    made = detector("3d", replace(CONTRACT, names=("ball",)))
    found = made.eval().measure(Examples([scene(0), scene(1)], range(2), made.contract))
    assert {"ap3d_known_names", "ap3d_unknown_names"} <= set(found.values)
    assert "ap3d_permuted_unknown_names" not in found.values, "one name has no permutation"


def test_unknown_names_count_more_than_the_same_names_permuted() -> None:
    """Predictions with the true boxes and names are perfect, and half as good under other names."""
    made = detector("3d", replace(CONTRACT, names=("cup",)))
    images = [scene(0), scene(1)]
    results = DetectionResults(made, "3d", NAMES)
    for image in images:
        (thing,) = image.objects
        targets = made.targets(image, np.random.default_rng(0))
        assert (targets["names"] == NOTHING).all(), "neither name is known"
        boxes = torch.from_numpy(made.object_array(thing, image)).float()[None]
        rotation = boxes[:, 3:12].reshape(1, 3, 3)
        sides = torch.log(torch.expm1(boxes[:, 12:]))
        numbers = torch.cat((boxes[:, :3], rotation[..., 0], rotation[..., 1], sides), dim=-1)
        logits = torch.tensor([[5.0 if name == thing.name else -5.0 for name in NAMES]])
        results.add(image, [thing], logits, numbers, torch.zeros(1, 1))
    found = results.measured(frozenset({"cup"})).values
    assert found["ap3d_unknown_names"] == pytest.approx(1)
    assert found["ap3d_permuted_unknown_names"] == pytest.approx(0.5), (
        "the wrong image comes before the right one"
    )


def test_images_without_intrinsics_are_refused() -> None:
    with pytest.raises(ValueError, match="no intrinsics, which 3D boxes need"):
        detector("3d", replace(CONTRACT, geometry=False))


def test_images_without_objects_and_clips_are_refused() -> None:
    with pytest.raises(ValueError, match="have no objects with names; allowed: images with"):
        detector("3d", replace(CONTRACT, names=()))
    with pytest.raises(ValueError, match="clips have 4 frames; allowed: images"):
        detector("2d", replace(CONTRACT, frames=4))
