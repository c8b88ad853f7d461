"""Point clouds for tests of reports."""

import numpy as np

from stringline.policies.observation.interfaces import AttentionMap
from stringline.sim.report.scene_cloud import SceneCloud


def cloud(first_arm: str = "left") -> SceneCloud:
    """A red cube of 1000 points with blue patches at its corners; each arm attends to one."""
    side = np.linspace(-0.2, 0.2, 10, dtype=np.float32)
    points = np.stack(np.meshgrid(side, side, side + 0.3), axis=-1).reshape(-1, 3)
    corners = np.stack(
        np.meshgrid(side[[0, -1]], side[[0, -1]], side[[0, -1]] + 0.3), axis=-1
    ).reshape(-1, 3)
    red = np.tile(np.array([[220, 20, 20]], np.uint8), (1000, 1))
    blue = np.tile(np.array([[20, 20, 220]], np.uint8), (8, 1))
    weights = np.full((2, 8), 0.01, np.float32)
    weights[0, 0], weights[1, 7] = 0.5, 0.25
    images = {"overhead": weights.reshape(2, 2, 4)}
    attention = AttentionMap(corners, blue, weights, (first_arm, "right"), images)
    return SceneCloud(points, red, attention)
