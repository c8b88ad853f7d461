"""The calibration that robomimic's `dataset_states_to_obs.py` stores with images of robosuite.

It is JSON in `data/<demo>.attrs["camera_info"]`: for each camera `intrinsics` (3, 3) and
`extrinsics` (4, 4). Those of fixed cameras are poses in the world. Those of cameras in the hand are
the product of the pose in the world and the inverse pose of the hand in the state that the
environment had when the file was written, in this order, so that they do not determine the
pose on the hand; they are left out. Files without it may have fixed cameras in the model of the
simulator (`robosuite_model.py`).
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from stringline.datasets.cameras.calibration_file import WORLD, CameraGeometry
from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.formats import hdf5
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.robosuite_model import ATTRIBUTE as MODEL
from stringline.datasets.formats.robosuite_model import calibration_of, cameras_of_model

ATTRIBUTE = "camera_info"
IN_HAND = "eye_in_hand"
_POSE_IN_HAND = (
    "poses that do not determine the place of the camera on the hand; cameras=FILE sets it"
)
_MOVES = "no fixed camera of the model in the file; cameras=FILE sets it"
_NOT_IMPORTED = "the calibration of a camera that is not imported"


def with_geometry(
    demo: Any, cameras: Mapping[str, Camera]
) -> tuple[dict[str, Camera], dict[str, Array], dict[str, str]]:
    """Returns the cameras of an episode, the arrays of their geometry, and what is left out.

    The last are the reasons for calibrations that are not read, by their names.

    Args:
        demo: Group of the episode.
        cameras: Cameras of the contract by their names in the file.

    Raises:
        ForeignDataError: The description is damaged.
    """
    described = _described(demo)
    model = cameras_of_model(demo)
    found = dict(cameras)
    arrays: dict[str, Array] = {}
    for old, camera in cameras.items():
        entry = None if old in described else (model or {}).get(old)
        if IN_HAND in old or (old not in described and entry is None):
            continue
        try:
            known = described[old] if entry is None else calibration_of(entry, camera)
            arrays |= _geometry(known, camera)
        except (KeyError, TypeError, ValueError) as error:
            name = ATTRIBUTE if old in described else MODEL
            raise ForeignDataError(f"attrs[{name!r}] is damaged at {old}: {error}") from None
        found[old] = replace(camera, has_geometry=True)
    return found, arrays, _unread(described, model, cameras)


def _geometry(described: Any, camera: Camera) -> dict[str, Array]:
    plain = {
        "parent": WORLD,
        "T_parent_camera": described["extrinsics"],
        "size": (camera.height, camera.width),
        "intrinsics": described["intrinsics"],
    }
    return CameraGeometry.of(camera.name, plain).arrays(camera)


def _unread(
    described: Collection[str], model: Collection[str] | None, cameras: Collection[str]
) -> dict[str, str]:
    """Returns the reasons for which calibrations are left out."""
    found: dict[str, str] = {}
    if model is not None:
        bare = [name for name in cameras if name not in described and name not in model]
        found |= {f"pose of {name}": _MOVES for name in bare}
    for name in described:
        if IN_HAND in name:
            found[f"{ATTRIBUTE} of {name}"] = _POSE_IN_HAND
        elif name not in cameras:
            found[f"{ATTRIBUTE} of {name}"] = _NOT_IMPORTED
    return found


def _described(demo: Any) -> Mapping[str, Any]:
    try:
        text = hdf5.attribute(demo, ATTRIBUTE)
        found = {} if text is None else json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ForeignDataError(f"attrs[{ATTRIBUTE!r}] is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ForeignDataError(f"attrs[{ATTRIBUTE!r}] is not a mapping of cameras.")
    return found
