"""The place of each patch in metres, whatever the coordinates of the encoding are."""

from collections.abc import Mapping

import torch
from torch import Tensor

from stringline.encoders.coordinates.coordinates import RAYS
from stringline.encoders.coordinates.geometry import (
    base_rays,
    patch_centres,
    patch_median_depth,
)
from stringline.encoders.perception.image_encoder import ImageEncoder

_READS = frozenset({"intrinsics", "T_base_camera", RAYS})


def token_places(
    encoder: ImageEncoder, batch: Mapping[str, Tensor], prior_depth_m: float
) -> Tensor:
    """Returns the places (B, N, 3) of the patches in the frame of the contract, float32.

    A patch is on the ray of its centre at the median of its depth, which lies on one of the
    surfaces that it shows. Patches without depth, and all of an encoder that reads no depth, are at
    the prior depth.
    """
    tokenise = encoder.tokenise
    reads = _READS | {"depth"} if encoder.reads_depth else _READS
    _, view = tokenise.view(batch, encoder.contract.camera, reads)
    assert view.intrinsics is not None  # The detector needs the geometry.
    assert view.T_base_camera is not None
    device = view.intrinsics.device
    pixels = patch_centres(view.height, view.width, tokenise.patch, device)
    directions, origin = base_rays(pixels, view.intrinsics.float(), view.T_base_camera.float())
    if view.depth is None:
        return directions * prior_depth_m + origin
    depth, known = patch_median_depth(view.depth, view.depth_unit_m, tokenise.patch)
    z = torch.where(known, depth.float(), prior_depth_m)
    return directions * z.unsqueeze(-1) + origin
