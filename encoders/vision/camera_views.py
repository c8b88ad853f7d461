"""Reads images, geometry and presence of one camera from an observation."""

from collections.abc import Collection, Mapping

from torch import Tensor

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Camera
from stringline.encoders.coordinates.coordinates import RAYS
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.coordinates.ray_places import without_rays


def check_camera(camera: Camera, patch: int, reads: Collection[str] = ()) -> None:
    """Raises a ValueError unless patches tile the images and the images are undistorted.

    With `RAYS` in `reads`, the camera must be calibrated.
    """
    if camera.height % patch or camera.width % patch:
        got = f"{camera.height}x{camera.width}"
        raise ValueError(f"Camera {camera.name!r} has {got} pixels; allowed: multiples of {patch}.")
    if RAYS in reads and not camera.has_geometry:
        raise ValueError(without_rays(f"Camera {camera.name!r}"))
    if camera.has_geometry and camera.distortion_model != "none":
        got = f"{camera.distortion_model!r} distortion"
        raise ValueError(f"Camera {camera.name!r} has {got}; undistort its images first.")


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
            height=images.shape[1], width=images.shape[2], depth_unit_m=camera.depth_unit_m, **known
        )
    except ValueError as error:
        raise ValueError(f"Camera {camera.name!r}: {error}") from error


def presence(
    observation: Mapping[str, Tensor], camera: Camera, has_position: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Marks the tokens of examples that lack a camera, by `present/<camera>` (B,) bool.

    Without that key all examples have the camera. Returns (B, N) bool, tokens that exist and have a
    position, and (B, N) bool, tokens that exist (None: all).
    """
    present = observation.get(f"present/{camera.name}")
    if present is None:
        return has_position, None
    present = present[:, None].expand_as(has_position)
    return has_position & present, present


def read_key(observation: Mapping[str, Tensor], key: str) -> Tensor:
    """Returns the value of a key of an observation; a ValueError names the nearest key."""
    if key not in observation:
        raise unknown_name("observation key", key, observation)
    return observation[key]
