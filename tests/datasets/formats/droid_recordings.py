"""RLDS with DROID's names, and the folder of its annotations, for the tests of the readers.

The messages are encoded here by the rules of protobuf, not by the code under test. Names and forms
are those of DROID 1.0.1 and of the annotations' own description (huggingface.co/KarlP/droid).
"""

import io
import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.spatial.transform import Rotation
from tests.datasets.formats.test_rlds import FIXTURE, LENGTHS, MADE, framed

from stringline.datasets.formats.rlds import example, records

SIZE = (36, 64)
LEFT = "observation/exterior_image_1_left"
RIGHT = "observation/exterior_image_2_left"
WRIST = "observation/wrist_image_left"
VECTORS = {"joint_position": 7, "gripper_position": 1}
SERIALS = {"ext1_cam_serial": "111", "ext2_cam_serial": "222", "wrist_cam_serial": "333"}
EPISODES = ("LAB+0d4edc4b+2023-07-07-09h-42m-23s", "LAB+0d4edc4b+2023-07-07-09h-45m-39s")
PATHS = tuple(f"LAB/success/2023-07-07/Fri_Jul__7_09:4{minute}:23_2023" for minute in (2, 5))
INTRINSICS = (520.0, 640.5, 521.0, 361.5)
"""fx, cx, fy, cy of images of 720x1280."""
K = np.array([[26.0, 0.0, 32.025], [0.0, 26.05, 18.075], [0.0, 0.0, 1.0]])
"""The same of images of 36x64."""
CHOSEN = f"format.cameras={{{LEFT}: left, {RIGHT}: right}}"
RLDS = (
    "format.state=[observation/state]",
    "format.action=[action/joints, action/gripper]",
    "format.control_hz=15",
)
Features = Mapping[str, Any]
joints = MADE["joints"]


def pose_numbers(episode: int, camera: int) -> list[float]:
    """Returns x, y, z, m, and three angles, rad, of a camera in an episode."""
    return [0.1 + camera, -0.4, 0.5 + 0.1 * episode, -1.8, 0.1 * camera, 2.2 - 0.1 * episode]


def pose(numbers: Any) -> Any:
    """Returns the pose (4, 4) as DROID's authors compute it."""
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("xyz", numbers[3:]).as_matrix()
    T[:3, 3] = numbers[:3]
    return T


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def part(number: int, data: bytes) -> bytes:
    """Returns a field of a message with the length of its bytes."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def encoded(features: Features) -> bytes:
    """Returns a `tf.train.Example`."""
    pairs = []
    for name, values in features.items():
        if isinstance(values, list):
            kind = part(1, b"".join(part(1, value) for value in values))
        elif values.dtype.kind == "f":
            kind = part(2, part(1, struct.pack(f"<{len(values)}f", *values)))
        else:
            kind = part(3, part(1, b"".join(varint(int(value)) for value in values)))
        pairs.append(part(1, part(1, name.encode()) + part(2, kind)))
    return part(1, b"".join(pairs))


def png(shown: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(shown).save(buffer, format="PNG")
    return buffer.getvalue()


def droid(folder: Path, poses: bool = True) -> Path:
    """Writes two episodes with three cameras, with their poses in the metadata of the episode."""
    with zipfile.ZipFile(FIXTURE) as archive:
        archive.extractall(folder)
    root = folder / "small" / "1.0.0"
    for number, file in enumerate(sorted(root.glob("*.tfrecord-*"))):
        (record,) = records(file)
        values = dict(example(record.read()))
        for name in ("image", "wrist", "depth"):
            del values[f"steps/observation/{name}"]
        for camera, feature in enumerate((LEFT, RIGHT, WRIST)):
            shown = np.full((*SIZE, 3), 40 * camera + number, np.uint8)
            values[f"steps/{feature}"] = [png(shown)] * LENGTHS[number]
        for place, group in enumerate(("observation", "action_dict")):
            series = joints(LENGTHS[number], number + 5 * place)
            for name, width in VECTORS.items():
                values[f"steps/{group}/{name}"] = series[:, :width].reshape(-1)
        path = f"gs://xembodiment_data/r2d2/r2d2-data-full/{PATHS[number]}/trajectory.h5"
        values["episode_metadata/file_path"] = [path.encode()]
        if poses:
            for camera, name in enumerate(("exterior_cam_1", "exterior_cam_2", "wrist_cam")):
                numbers = np.array(pose_numbers(number, camera), np.float32)
                values[f"episode_metadata/extrinsics_{name}"] = numbers
        file.write_bytes(framed(encoded(values)))
    described(root / "features.json")
    return folder / "small"


def described(path: Path) -> None:
    """Gives the images and vectors in `features.json` DROID's names."""
    plain = json.loads(path.read_text())
    step = plain["featuresDict"]["features"]["steps"]["sequence"]["feature"]
    groups = step["featuresDict"]["features"]
    observation = groups["observation"]["featuresDict"]["features"]
    vectors = {
        name: {"tensor": {"shape": {"dimensions": [str(width)]}, "dtype": "float32"}}
        for name, width in VECTORS.items()
    }
    groups["action_dict"] = {"featuresDict": {"features": vectors}}
    observation |= vectors
    shown = observation["wrist"]
    shown["image"]["shape"]["dimensions"] = [*map(str, SIZE), "3"]
    for name in ("image", "wrist", "depth"):
        del observation[name]
    for feature in (LEFT, RIGHT, WRIST):
        observation[feature.removeprefix("observation/")] = shown
    path.write_text(json.dumps(plain))


def annotations(folder: Path) -> Path:
    """Writes DROID's annotations of both episodes; the second has its second camera elsewhere."""
    folder.mkdir()
    direct: dict[str, Any] = {}
    for number, episode in enumerate(EPISODES):
        poses = {"111": pose_numbers(number, 3), "222": pose_numbers(number, 4)}
        direct[episode] = {**poses, "111_metric_type": "IoU", "111_quality_metric": 0.8}
    superset = {EPISODES[1]: {"222": direct[EPISODES[1]].pop("222")}}
    sized = {"cameraMatrix": [2 * number for number in INTRINSICS], "width": 2560, "height": 1440}
    files = {
        "episode_id_to_path": dict(zip(EPISODES, PATHS, strict=True)),
        "camera_serials": dict.fromkeys(EPISODES, SERIALS),
        "intrinsics": {
            EPISODES[0]: {serial: list(INTRINSICS) for serial in SERIALS.values()},
            EPISODES[1]: dict.fromkeys(SERIALS.values(), sized),
        },
        "cam2base_extrinsics": direct,
        "cam2base_extrinsic_superset": superset,
    }
    for name, plain in files.items():
        (folder / f"{name}.json").write_text(json.dumps(plain))
    return folder
