"""A small world to learn: the brightness of an object is the target of a revolute joint."""

from typing import Any

import numpy as np

from stringline import Camera, Contract, EpisodeAttributes, EpisodeStore
from stringline.datasets.contract.contract import ActionDimension

CAMERA = Camera("overhead", 32, 32, "simulated")
CONTRACT = Contract(
    embodiment="post",
    base_frame="its foot",
    control_hz=10.0,
    cameras=(CAMERA,),
    joints=("post/hinge",),
    arms=("post",),
    action=(ActionDimension("post/hinge", "post", "joint"),),
)
MODEL: dict[str, Any] = {
    "_target_": "stringline.DiffusionPolicy",
    "chunk": 4,
    "dim": 32,
    "depth": 1,
    "heads": 2,
    "sampling_steps": 4,
    "observation_encoder": {
        "_target_": "stringline.ObservationEncoder",
        "_partial_": True,
        "dim": 32,
        "depth": 1,
        "heads": 2,
        "encoding": {
            "_target_": "stringline.RopeMixed",
            "_partial_": True,
            "wavelengths": [0.04, 2.0],
        },
        "coordinates": {"_target_": "stringline.MetricPlaces"},
    },
}
AUGMENTATION: dict[str, Any] = {
    "_target_": "stringline.Augmentation",
    "transforms": [
        {"_target_": "stringline.CropAndResize", "scale": [0.5, 0.9]},
        {"_target_": "stringline.StereoDepth"},
        {"_target_": "stringline.TextureOverlay", "background": 0.8},
        {"_target_": "stringline.ColourSensor"},
        {"_target_": "stringline.ColourDropout", "probability": 0.3},
    ],
}


def fill(store: EpisodeStore, seeds: range, instruction: str = "") -> None:
    """Adds an episode for each seed."""
    steps = 5
    for seed in seeds:
        brightness = int(np.random.default_rng(seed).integers(0, 256))
        image = np.zeros((steps, 32, 32, 3), np.uint8)
        image[:, 8:24, 8:24] = brightness
        segments = np.ones((steps, 32, 32), np.uint8)
        segments[:, 8:24, 8:24] = 2
        eye = np.tile(np.eye(4, dtype=np.float32), (steps, 1, 1))
        arrays: dict[str, np.ndarray] = {
            "time": np.arange(steps) / 10.0,
            "joints/position": np.zeros((steps, 1), np.float32),
            "T_base_gripper/post": eye,
            "action": np.full((steps, 1), brightness / 128 - 1, np.float32),
            "rgb/overhead": image,
            "depth/overhead": np.full((steps, 32, 32), 500, np.uint16),
            "segmentation/overhead": segments,
            "time/overhead": np.arange(steps) / 10.0,
            "frame/overhead": np.arange(steps, dtype=np.int32),
            "intrinsics/overhead": np.array([[40, 0, 16], [0, 40, 16], [0, 0, 1]], np.float32),
            "T_base_camera/overhead": np.eye(4, dtype=np.float32),
        }
        attributes = EpisodeAttributes(
            CONTRACT, "point", seed, success=True, instruction=instruction
        )
        store.write(arrays, attributes)
