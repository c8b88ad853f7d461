"""One observation with all kinds of cameras, and their embedding."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from stringline import Camera, ConvolutionalStem, MetricPlaces, RgbdTokens
from stringline.encoders.coordinates.coordinates import RAYS, Coordinates
from stringline.encoders.vision.patches import DepthInput

MakeTokens = Callable[..., RgbdTokens]
Observation = dict[str, Tensor]
CAMERAS = (
    Camera("overhead", 32, 48, depth="simulated"),
    Camera("wrist", 32, 32, depth="measured", depth_unit_m=0.0005),
    Camera("web", 32, 32, has_geometry=False),
    Camera("colour", 32, 32),
)


@pytest.fixture
def cameras() -> tuple[Camera, ...]:
    """Two with depth of 6 and 4 patches, one without geometry, one without depth, of 4 each."""
    return CAMERAS


@pytest.fixture
def observation() -> Observation:
    """Two examples with holes in their depth; in the first one the first patch has no depth."""
    generator = torch.Generator().manual_seed(0)
    drawn: dict[str, Tensor] = {}
    for camera in CAMERAS:
        size = (2, camera.height, camera.width)
        drawn[f"rgb/{camera.name}"] = torch.randint(0, 256, (*size, 3), generator=generator).to(
            torch.uint8
        )
        if camera.depth is not None:
            depth = torch.randint(400, 1600, size, generator=generator)
            depth[torch.rand(size, generator=generator) < 0.2] = 0
            depth[0, :16, :16] = 0
            drawn[f"depth/{camera.name}"] = depth.to(torch.uint16)
        if camera.has_geometry:
            K = torch.tensor(
                [[60.0, 0, camera.width / 2], [0, 60, camera.height / 2], [0, 0, 1]],
                dtype=torch.float64,
            )
            drawn[f"intrinsics/{camera.name}"] = K.expand(2, 3, 3)
            pose = torch.eye(4, dtype=torch.float64).repeat(2, 1, 1)
            pose[:, :3, 3] = torch.randn(2, 3, generator=generator)
            drawn[f"T_base_camera/{camera.name}"] = pose
    return drawn


@pytest.fixture
def make_tokens() -> MakeTokens:
    """Makes the embedding in 32 channels of all cameras that fit, always with the same weights."""

    def make(
        coordinates: Coordinates | None = None, *, depth: DepthInput | None = None
    ) -> RgbdTokens:
        torch.manual_seed(0)
        stem = partial(ConvolutionalStem, width=8)
        places = MetricPlaces() if coordinates is None else coordinates
        cameras = [each for each in CAMERAS if each.has_geometry or RAYS not in places.reads]
        return RgbdTokens(cameras, places, 32, depth=depth, embedding=stem)

    return make
