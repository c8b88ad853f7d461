"""Cameras in the model of the simulator that files of robomimic and LIBERO contain.

`data/<demo>.attrs["model_file"]` is MJCF, as MuJoCo saves it. A camera in the body of the world
stands still, so that its entry is its pose; one on a robot moves, and is not read.
"""

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import numpy as np

from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.files.limits import MOST_METADATA_BYTES
from stringline.datasets.formats import hdf5
from stringline.datasets.formats.poses import pose_of_quaternions

ATTRIBUTE = "model_file"
_FOVY_DEG = 45.0  # MuJoCo's default.
# Of a fixed camera; others, such as a target or the size of a sensor, change what it sees.
_READ = {"name", "mode", "pos", "quat", "fovy"}
# MuJoCo's cameras look along -z, with y up.
_OPTICAL = np.diag([1.0, -1.0, -1.0, 1.0])


def cameras_of_model(demo: Any) -> dict[str, Mapping[str, str]] | None:
    """Returns the attributes of the fixed cameras of an episode by name; None without a model."""
    text = hdf5.attribute(demo, ATTRIBUTE)
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
