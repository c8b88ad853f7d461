"""What files of robomimic and LIBERO tell of robosuite: environment, controller and cameras.

`env_args` describes the environment and the scales of its operational space controller, whose
actions from -1 to 1 become m and rad.

The calibration that robomimic's `dataset_states_to_obs.py` stores with images is JSON in
`data/<demo>.attrs["camera_info"]`: for each camera `intrinsics` (3, 3) and `extrinsics` (4, 4).
Those of fixed cameras are poses in the world. Those of cameras in the hand are the product of
the pose in the world and the inverse pose of the hand in the state that the environment had
when the file was written, in this order, so that they do not determine the pose on the hand;
they are left out.

Files without it may have fixed cameras in the model of the simulator:
`data/<demo>.attrs["model_file"]` is MJCF, as MuJoCo saves it. A camera in the body of the world
stands still, so that its entry is its pose; one on a robot moves, and is not read.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any
from xml.etree import ElementTree

import numpy as np

from stringline.datasets.cameras.camera_calibration import WORLD, CameraGeometry
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import ActionMode, Array, Camera
from stringline.datasets.files.limits import MOST_METADATA_BYTES
from stringline.datasets.formats import hdf5
from stringline.datasets.formats.conversions import pose_of_quaternions
from stringline.datasets.formats.foreign import ForeignDataError


def environment_of(file: Any) -> Mapping[str, Any]:
    """Returns the description of the environment in a file; empty without it.

    Raises:
        ValueError: It is damaged.
    """
    text = hdf5.attribute(hdf5.item_at(file, "data"), "env_args")
    if text is None:
        return {}
    if not isinstance(text, str | bytes) or len(text) > MOST_METADATA_BYTES:
        raise ValueError(
            f"data.attrs['env_args'] is a {type(text).__name__}; allowed: JSON with at most "
            f"{MOST_METADATA_BYTES} bytes."
        )
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"data.attrs['env_args'] is not JSON: {error}.") from error
    if not isinstance(found, dict) or not isinstance(found.get("env_kwargs", {}), dict):
        raise ValueError("data.attrs['env_args'] is not a description of an environment.")
    return found


def robots_of(environment: Mapping[str, Any]) -> str:
    """Returns the names of the robots of an environment."""
    robots = environment.get("env_kwargs", {}).get("robots", "unknown")
    return robots if isinstance(robots, str) else "+".join(map(str, robots))


OPTION = "format.controller={position_m: NUMBER, rotation_rad: NUMBER, relative: true or false}"


@dataclass(frozen=True)
class Controller:
    """The scales of an action: metres and radians at 1; relative to the measured pose or not."""

    position_m: float
    rotation_rad: float
    mode: ActionMode


def named_controller(named: Mapping[str, Any]) -> Controller:
    """Builds a controller from a user's fields."""
    fields = ("position_m", "rotation_rad", "relative")
    for name in named:
        if name not in fields:
            raise unknown_name("field of the controller", name, fields)
    if set(named) != set(fields):
        raise ValueError(
            f"The controller has the fields {', '.join(named) or 'none'}; needed: "
            f"{', '.join(fields)}."
        )
    return Controller(
        named["position_m"], named["rotation_rad"], "relative" if named["relative"] else "absolute"
    )


def controller_of(environment: Mapping[str, Any]) -> Controller:
    """Reads the controller of a recorded environment from `env_args` of the file.

    Since robosuite 1.5 a controller has one part for each arm; all parts must be equal.
    """
    settings = environment.get("env_kwargs", {}).get("controller_configs")
    parts = settings if isinstance(settings, list) else [settings]
    if len(parts) == 1 and isinstance(parts[0], Mapping) and "body_parts" in parts[0]:
        bodies = parts[0]["body_parts"]
        arms = bodies.get("arms", bodies)
        parts = [arms[name] for name in ("left", "right") if name in arms]
    found = {_controller(part) for part in parts}
    if len(found) != 1 or None in found:
        raise ValueError(
            f"The file does not contain the scales of its actions in m and rad; set {OPTION}."
        )
    (controller,) = found
    assert controller is not None
    return controller


def _controller(part: Any) -> Controller | None:
    if not isinstance(part, Mapping) or part.get("type") != "OSC_POSE":
        return None
    if part.get("control_delta", part.get("input_type", "delta") == "delta") is False:
        return Controller(1.0, 1.0, "absolute")
    limits = part.get("output_max")
    if (
        not isinstance(limits, list)
        or len(limits) != 6
        or len(set(limits[:3])) != 1
        or len(set(limits[3:])) != 1
    ):
        return None
    return Controller(float(limits[0]), float(limits[3]), "relative")


MODEL_FILE = "model_file"
_FOVY_DEG = 45.0  # MuJoCo's default.
# Of a fixed camera; others, such as a target or the size of a sensor, change what it sees.
_READ = {"name", "mode", "pos", "quat", "fovy"}
# MuJoCo's cameras look along -z, with y up.
_OPTICAL = np.diag([1.0, -1.0, -1.0, 1.0])


def cameras_of_model(demo: Any) -> dict[str, Mapping[str, str]] | None:
    """Returns the attributes of the fixed cameras of an episode by name; None without a model."""
    text = hdf5.attribute(demo, MODEL_FILE)
    if not isinstance(text, str) or len(text) > MOST_METADATA_BYTES:
        return None
    # Declarations of entities may stand for gigabytes.
    if re.search("<!(?!--)", text):
        return None
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return None
    world = root.find("worldbody")
    if root.tag != "mujoco" or world is None or root.find("default//camera") is not None:
        return None
    fixed = {entry.get("name", ""): dict(entry.attrib) for entry in world.findall("camera")}
    return {
        name: entry
        for name, entry in fixed.items()
        if _READ.issuperset(entry) and entry.get("mode", "fixed") == "fixed"
    }


def calibration_of(entry: Mapping[str, str], camera: Camera) -> dict[str, Any]:
    """Returns the calibration of a camera by its attributes in the model, as in `camera_info`.

    Those are `intrinsics`, here [fx, fy, cx, cy], and `extrinsics`, its pose in the world (4, 4).

    Raises:
        ValueError: A number is damaged.
    """
    position = _numbers(entry.get("pos", "0 0 0"), 3)
    w, *xyz = _numbers(entry.get("quat", "1 0 0 0"), 4)
    pose = pose_of_quaternions("quat", position[None], np.array([[*xyz, w]]))[0] @ _OPTICAL
    (fovy,) = _numbers(entry.get("fovy", str(_FOVY_DEG)), 1)
    if not 0 < fovy < 180:
        raise ValueError(f"fovy is {fovy:g}; allowed: degrees above 0 and below 180.")
    focal = camera.height / 2 / np.tan(np.radians(fovy) / 2)
    centre = [camera.width / 2, camera.height / 2]
    return {"intrinsics": [focal, focal, *centre], "extrinsics": pose.tolist()}


def _numbers(text: str, count: int) -> Array:
    found = np.array(text.split(), np.float64)
    if found.shape != (count,) or not np.isfinite(found).all():
        raise ValueError(f"{text!r} must be {count} numbers.")
    return found


CAMERA_INFO = "camera_info"
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
            name = CAMERA_INFO if old in described else MODEL_FILE
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
            found[f"{CAMERA_INFO} of {name}"] = _POSE_IN_HAND
        elif name not in cameras:
            found[f"{CAMERA_INFO} of {name}"] = _NOT_IMPORTED
    return found


def _described(demo: Any) -> Mapping[str, Any]:
    try:
        text = hdf5.attribute(demo, CAMERA_INFO)
        found = {} if text is None else json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ForeignDataError(f"attrs[{CAMERA_INFO!r}] is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ForeignDataError(f"attrs[{CAMERA_INFO!r}] is not a mapping of cameras.")
    return found
