"""What an encoder reads of an observation for one camera."""

from collections.abc import Collection, Mapping

from torch import Tensor

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.contract.contract import Camera
from stringline.encoders.coordinates.geometry import View


def check_camera(camera: Camera, patch: int) -> None:
    """Refuses a camera whose images cannot be cut into patches.

    Raises:
        ValueError: Its size is no multiple of the patch, or its images are distorted.
    """
    if camera.height % patch or camera.width % patch:
        got = f"{camera.height}x{camera.width}"
        raise ValueError(f"Camera {camera.name!r} has {got} pixels; allowed: multiples of {patch}.")
    if camera.has_geometry and camera.distortion_model != "none":
        got = f"{camera.distortion_model!r} distortion"
        raise ValueError(f"Camera {camera.name!r} has {got}; undistort its images first.")


def camera_view(
    observation: Mapping[str, Tensor], camera: Camera, reads: Collection[str]
) -> tuple[Tensor, View]:
    """Returns the images (B, H, W, 3) of a camera, and what is known of where they look.

    Args:
        observation: Keys of the contract, each with a leading batch axis.
        camera: Of the contract. Where it promises no depth, depth and geometry are not read.
        reads: Kinds of keys that somebody uses, of `depth`, `intrinsics` and `T_base_camera`.

    Raises:
        ValueError: A key is missing, or what it holds has no meaning; see `View`.
    """
    images = read_key(observation, f"rgb/{camera.name}")
    if images.ndim != 4 or images.shape[-1] != 3:
        raise ValueError(
            f"rgb/{camera.name} has shape {tuple(images.shape)}; allowed: (B, H, W, 3)."
        )
    promised = {"depth"} if camera.depth is not None else set()
    promised |= (
        {"intrinsics", "T_base_camera"}
        if camera.depth is not None and camera.has_geometry
        else set()
    )
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
    observation: Mapping[str, Tensor], camera: Camera, placed: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Leaves out the tokens of examples that lack a camera.

    Args:
        observation: `present/<camera>` (B,) bool says which examples have it; without that key all
            do.
        camera: Of the contract.
        placed: (B, N) bool, which of its tokens have a place.

    Returns:
        (B, N) bool, those that have a place and exist, and (B, N) bool, those that exist, or None
        for all.
    """
    present = observation.get(f"present/{camera.name}")
    if present is None:
        return placed, None
    present = present[:, None].expand_as(placed)
    return placed & present, present


def read_key(observation: Mapping[str, Tensor], key: str) -> Tensor:
    """Returns what an observation has under a key.

    Raises:
        ValueError: It has no such key; the message names the nearest.
    """
    if key not in observation:
        raise unknown_name("observation key", key, observation)
    return observation[key]
