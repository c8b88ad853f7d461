"""Reads images, geometry and presence of one camera from an observation."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Camera
from stringline.encoders.coordinates.coordinates import RAYS, Coordinates, excludes_missing_depth
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.coordinates.ray_places import without_rays


def check_camera(camera: Camera, patch: int, reads: Collection[str] = ()) -> None:
    """Raises a ValueError unless patches tile the images and the images are undistorted.

    With `RAYS` in `reads`, the camera must be calibrated.
    """
    if camera.height % patch or camera.width % patch:
        got = f"{camera.height}x{camera.width}"
        raise ValueError(
            f"Camera {camera.name!r} has {got} pixels; allowed: multiples of {patch}"
            f"{_nearest_size(camera, patch)}."
        )
    if RAYS in reads and not camera.has_geometry:
        raise ValueError(without_rays(f"Camera {camera.name!r}"))
    if camera.has_geometry and camera.distortion_model != "none":
        got = f"{camera.distortion_model!r} distortion"
        raise ValueError(f"Camera {camera.name!r} has {got}; undistort its images first.")


def _nearest_size(camera: Camera, patch: int) -> str:
    """Returns the words on the largest allowed size within the images, and on the way to it."""
    rows, columns = (side - side % patch for side in (camera.height, camera.width))
    if not rows or not columns:
        return ""
    return (
        f", such as {rows}x{columns}. To store recorded images at this size, import them with "
        f"image_size=[{rows},{columns}] image_fit=crop (or resize, or pad), or copy the store: "
        f"stringline-data cache store=STORE output=COPY height={rows} width={columns}"
    )


def camera_view(
    observation: Mapping[str, Tensor], camera: Camera, reads: Collection[str]
) -> tuple[Tensor, View]:
    """Returns the images (B, H, W, 3) of a camera in a batch of observations, and their view.

    `reads` are the needed kinds of keys: of `depth`, `intrinsics` and `T_base_camera`. Without
    depth in the contract, neither depth nor, except with `RAYS`, geometry is read.
    """
    images = read_key(observation, f"rgb/{camera.name}")
    if images.ndim != 4 or images.shape[-1] != 3:
        raise ValueError(
            f"rgb/{camera.name} has shape {tuple(images.shape)}; allowed: (B, H, W, 3)."
        )
    promised = {"depth"} if camera.depth is not None else set()
    if (promised or RAYS in reads) and camera.has_geometry:
        promised |= {"intrinsics", "T_base_camera"}
    known = {
        kind: read_key(observation, f"{kind}/{camera.name}")
        for kind in sorted(promised & set(reads))
    }
    try:
        return images, View(
            height=images.shape[1],
            width=images.shape[2],
            depth_unit_m=camera.depth_unit_m,
            name=camera.name,
            **known,
        )
    except ValueError as error:
        raise ValueError(f"Camera {camera.name!r}: {error}") from error


def resized(images: Tensor, view: View, size: tuple[int, int]) -> tuple[Tensor, View]:
    """Returns images (B, rows, columns, 3) of another size, and their view.

    Colours are averaged (bilinear, antialiased), depth is that of the pixel at the same place, and
    intrinsics fit the new size.
    """
    before = view.height, view.width
    if before == size:
        return images, view
    colours = nn.functional.interpolate(
        images.permute(0, 3, 1, 2).float(), size, mode="bilinear", antialias=True
    )
    depth, intrinsics = view.depth, view.intrinsics
    if depth is not None:
        rows, columns = (
            (2 * torch.arange(new, device=depth.device) + 1) * old // (2 * new)
            for new, old in zip(size, before, strict=True)
        )
        depth = depth[:, rows][:, :, columns]
    if intrinsics is not None:
        scale = [size[1] / before[1], size[0] / before[0], 1.0]
        intrinsics = intrinsics * intrinsics.new_tensor(scale)[:, None]
    made = replace(view, height=size[0], width=size[1], depth=depth, intrinsics=intrinsics)
    return colours.permute(0, 2, 3, 1), made


def presence(
    observation: Mapping[str, Tensor],
    camera: Camera,
    has_position: Tensor,
    coordinates: Coordinates | None = None,
    prefix: int = 0,
) -> tuple[Tensor, Tensor | None]:
    """Marks the tokens that do not exist: of a camera that an example lacks, and excluded ones.

    `present/<camera>` (B,) bool tells which examples have the camera; without that key all have it.
    Coordinates may exclude patches without a position (`MissingDepth`); then they do not exist
    where other patches of their image have one. An image without any placed patch, such as of a
    camera without depth, keeps all of its tokens.

    Args:
        observation: The batch.
        camera: The camera.
        has_position: (B, N) bool, which of its tokens have a position.
        coordinates: The coordinates of the tokens; None: none are excluded.
        prefix: Number of tokens before the patches, which are never excluded.

    Returns:
        (B, N) bool, tokens that exist and have a position, and (B, N) bool, tokens that exist
        (None: all).
    """
    present = observation.get(f"present/{camera.name}")
    if present is not None:
        present = present[:, None].expand_as(has_position)
        has_position = has_position & present
    if coordinates is None or not excludes_missing_depth(coordinates):
        return has_position, present
    kept = has_position | ~has_position.any(dim=1, keepdim=True)
    if prefix:
        kept = nn.functional.pad(kept[:, prefix:], (prefix, 0), value=True)
    return has_position, kept if present is None else kept & present


def read_key(observation: Mapping[str, Tensor], key: str) -> Tensor:
    """Returns the value of a key of an observation; a ValueError names the nearest key."""
    if key not in observation:
        raise unknown_name("observation key", key, observation)
    return observation[key]
