"""The calibration that robomimic's `dataset_states_to_obs.py` stores with images of robosuite.

It is JSON in `data/<demo>.attrs["camera_info"]`: for each camera `intrinsics` (3, 3) and
`extrinsics` (4, 4). Those of fixed cameras are poses in the world. Those of cameras in the hand are
the product of the pose in the world and the inverse pose of the hand in the state that the
environment had when the file was written, in this order, so that they do not determine the
pose on the hand; they are left out.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from stringline.datasets.cameras.calibration_file import WORLD, CameraGeometry
from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.formats import hdf5
from stringline.datasets.formats.foreign import ForeignDataError

ATTRIBUTE = "camera_info"
IN_HAND = "eye_in_hand"
_log = logging.getLogger(__name__)


def with_geometry(
    demo: Any, cameras: Mapping[str, Camera]
) -> tuple[dict[str, Camera], dict[str, Array]]:
    """Returns the cameras of an episode, and intrinsics and poses of those that it describes.

    Args:
        demo: Group of the episode.
        cameras: Cameras of the contract by their names in the file.

    Raises:
        ForeignDataError: The description is damaged.
    """
    described = _described(demo)
    found = dict(cameras)
    arrays: dict[str, Array] = {}
    for old, camera in cameras.items():
        if old not in described or IN_HAND in old:
            continue
        try:
            plain = {
                "parent": WORLD,
                "T_parent_camera": described[old]["extrinsics"],
                "size": (camera.height, camera.width),
                "intrinsics": described[old]["intrinsics"],
            }
            arrays |= CameraGeometry.of(camera.name, plain).arrays(camera)
        except (KeyError, TypeError, ValueError) as error:
            raise ForeignDataError(f"attrs[{ATTRIBUTE!r}] is damaged at {old}: {error}") from None
        found[old] = replace(camera, has_geometry=True)
    return found, arrays


def report_cameras_in_hand(data: Any, names: Sequence[str]) -> None:
    """Logs the cameras in the hand that some episodes describe; their poses are left out."""
    left = set[str]()
    for name in names:
        with suppress(ForeignDataError):  # Reported when the episode is read.
            left |= {old for old in _described(hdf5.item_at(data, name)) if IN_HAND in old}
    if left:
        _log.info(
            "The poses of %s in the file are left out, since they do not determine the pose on "
            "the hand; cameras=FILE sets it.",
            ", ".join(sorted(left)),
        )


def _described(demo: Any) -> Mapping[str, Any]:
    try:
        text = hdf5.attribute(demo, ATTRIBUTE)
        found = {} if text is None else json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ForeignDataError(f"attrs[{ATTRIBUTE!r}] is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ForeignDataError(f"attrs[{ATTRIBUTE!r}] is not a mapping of cameras.")
    return found
