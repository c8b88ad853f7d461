"""An observation as a point cloud with the attention of each arm, in compact form for a page."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.files.pages import Block
from stringline.policies.algorithms.learned_policy import LearnedPolicy
from stringline.policies.chunks.chunk import Policy
from stringline.policies.observation.interfaces import AttentionMap

CLOUDS = Path(__file__).parent / "assets" / "clouds.js"
"""The script that draws the clouds of a page."""
_MOST_POINTS = 3000
_FARTHEST_M = 2.0


@dataclass(frozen=True)
class SceneCloud(Block):
    """One observation in space, a block that the script `CLOUDS` draws.

    Attributes:
        points: (N, 3) in the base frame, m, at most 3000 pixels with depth.
        colours: (N, 3) uint8.
        attention: Patches with the attention of each arm.
    """

    points: NDArray[np.float32]
    colours: NDArray[np.uint8]
    attention: AttentionMap

    def __html__(self) -> str:
        options = "".join(
            f'<option value="{number}">attention of the {escape(arm)} arm</option>'
            for number, arm in enumerate(self.attention.arms)
        )
        return (
            f'<div class="cloud" hidden><script type="application/json">{self.to_json()}</script>'
            f'<canvas tabindex="0" role="img" aria-label="First observation of the policy as '
            f'points in space. Arrow keys rotate, plus and minus zoom."></canvas>'
            f'<div class="quiet"><label>Show <select><option value="">colours</option>{options}'
            f"</select></label> <output></output></div></div>"
        )

    def to_json(self) -> str:
        """Returns the cloud as JSON without special characters of HTML.

        Points are millimetres (int16) and colours bytes; weights are bytes, relative to the largest
        weight of the arm (`most`; `all` is their sum). All arrays are in base64.
        """
        weights = self.attention.weights
        most = np.maximum(weights.max(axis=1, initial=0.0), 1e-9)
        arms = [
            {
                "name": name,
                "most": float(largest),
                "all": float(row.sum()),
                "weights": _text(np.round(row / largest * 255).astype(np.uint8)),
            }
            for name, row, largest in zip(self.attention.arms, weights, most, strict=True)
        ]
        found = {
            "points": _text(_millimetres(self.points)),
            "colours": _text(self.colours),
            "patches": _text(_millimetres(self.attention.points)),
            "patchColours": _text(self.attention.colours),
            "arms": arms,
        }
        return (
            json.dumps(found)
            .replace("<", "\\u003c")
            .replace(">", "\\u003e")
            .replace("&", "\\u0026")
        )


def scene_cloud(policy: Policy, observation: Mapping[str, Array]) -> SceneCloud | None:
    """Returns the cloud of an observation; None if its attention is unknown, as for servers."""
    found = policy.attention_map(observation) if isinstance(policy, LearnedPolicy) else None
    if found is None or not len(found.points):
        return None
    return SceneCloud(*_dense(policy.contract, observation), found)


def _dense(
    contract: Contract, observation: Mapping[str, Array]
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Returns points (N, 3) and colours (N, 3) of pixels of undistorted cameras with depth."""
    placed = [
        _camera_points(camera, observation)
        for camera in contract.cameras
        if camera.depth is not None and camera.has_geometry and camera.distortion_model == "none"
    ]
    if not placed:
        return np.zeros((0, 3), np.float32), np.zeros((0, 3), np.uint8)
    points, colours = (np.concatenate(parts) for parts in zip(*placed, strict=True))
    # A random choice, because a regular one would show stripes.
    chosen = np.random.default_rng(0).permutation(len(points))[:_MOST_POINTS]
    return points[chosen].astype(np.float32), colours[chosen]


def _camera_points(
    camera: Camera, observation: Mapping[str, Array]
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Returns points (M, 3) in the base frame and colours (M, 3) of the pixels with depth."""
    depth = observation[f"depth/{camera.name}"] * camera.depth_unit_m
    rows, columns = np.nonzero((depth > 0) & (depth < _FARTHEST_M))
    K, T = (
        observation[f"{kind}/{camera.name}"].astype(np.float64)
        for kind in ("intrinsics", "T_base_camera")
    )
    pixels = np.stack([columns + 0.5, rows + 0.5, np.ones(len(rows))])
    seen = np.linalg.solve(K, pixels) * depth[rows, columns]
    return (T[:3, :3] @ seen + T[:3, 3:]).T, observation[f"rgb/{camera.name}"][rows, columns]


def _millimetres(points: NDArray[np.float32]) -> NDArray[np.int16]:
    return np.clip(np.round(points * 1000), -32768, 32767).astype("<i2")


def _text(array: NDArray[np.generic]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
