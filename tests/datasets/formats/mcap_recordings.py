"""Recordings of an arm with a camera, written by the libraries of MCAP.

The schemas of ROS 2 are those of its packages sensor_msgs, std_msgs and tf2_msgs, without comments;
those of Foxglove are reduced to the fields that are set.
"""

import base64
import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from mcap.reader import make_reader
from mcap.writer import Writer
from mcap_protobuf.writer import Writer as ProtobufWriter
from mcap_ros2.writer import Writer as Ros2Writer
from numpy.typing import NDArray
from PIL import Image
from rosbags.rosbag2 import Writer as BagWriter

START_NS = 1_700_000_000 * 10**9
HEIGHT, WIDTH = 16, 24
K = (30.0, 0.0, 11.5, 0.0, 31.0, 7.5, 0.0, 0.0, 1.0)
T_CAMERA = ((0.1, 0.2, 0.9), (1.0, 0.0, 0.0, 0.0))  # Position, quaternion xyzw: looks down.

HEADER = """
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
"""
SCHEMAS = {
    "sensor_msgs/msg/JointState": (
        "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\n"
        "float64[] effort" + HEADER
    ),
    "sensor_msgs/msg/Image": (
        "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\n"
        "uint32 step\nuint8[] data" + HEADER
    ),
    "sensor_msgs/msg/CompressedImage": (
        "std_msgs/Header header\nstring format\nuint8[] data" + HEADER
    ),
    "sensor_msgs/msg/CameraInfo": (
        "std_msgs/Header header\nuint32 height\nuint32 width\nstring distortion_model\n"
        "float64[] d\nfloat64[9] k\nfloat64[9] r\nfloat64[12] p\nuint32 binning_x\n"
        "uint32 binning_y\nsensor_msgs/RegionOfInterest roi" + HEADER + "=" * 80 + "\n"
        "MSG: sensor_msgs/RegionOfInterest\nuint32 x_offset\nuint32 y_offset\nuint32 height\n"
        "uint32 width\nbool do_rectify\n"
    ),
    "std_msgs/msg/Float64MultiArray": (
        "std_msgs/MultiArrayLayout layout\nfloat64[] data\n" + "=" * 80 + "\n"
        "MSG: std_msgs/MultiArrayLayout\nstd_msgs/MultiArrayDimension[] dim\nuint32 data_offset\n"
        + "=" * 80
        + "\nMSG: std_msgs/MultiArrayDimension\nstring label\nuint32 size\nuint32 stride\n"
    ),
    "std_msgs/msg/String": "string data\n",
    "foxglove_msgs/msg/CompressedVideo": (
        "builtin_interfaces/Time timestamp\nstring frame_id\nuint8[] data\nstring format\n"
    ),
    "tf2_msgs/msg/TFMessage": (
        "geometry_msgs/TransformStamped[] transforms\n" + "=" * 80 + "\n"
        "MSG: geometry_msgs/TransformStamped\nstd_msgs/Header header\nstring child_frame_id\n"
        "geometry_msgs/Transform transform\n" + "=" * 80 + "\n"
        "MSG: geometry_msgs/Transform\ngeometry_msgs/Vector3 translation\n"
        "geometry_msgs/Quaternion rotation\n" + "=" * 80 + "\n"
        "MSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n" + "=" * 80 + "\n"
        "MSG: geometry_msgs/Quaternion\nfloat64 x\nfloat64 y\nfloat64 z\nfloat64 w" + HEADER
    ),
}


def joints(seconds: float) -> list[float]:
    """Returns waist, elbow and gripper at a time; the gripper counts from 0 to 100."""
    return [0.1 * seconds, -0.2 * seconds, 100 * (0.5 + 0.1 * seconds)]


def colours(frame: int) -> NDArray[np.uint8]:
    """Returns the image (16, 24, 3) of a frame."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    return np.stack([10 * rows + frame, 7 * columns, 0 * rows + 3 * frame], -1).astype(np.uint8)


def depth_mm(frame: int) -> NDArray[np.uint16]:
    """Returns the depth (16, 24) of a frame."""
    return np.full((HEIGHT, WIDTH), 700 + frame, np.uint16)


def header(seconds: float, frame: str = "camera_optical") -> dict[str, Any]:
    """Returns a header of ROS 2."""
    nanoseconds = START_NS + round(seconds * 1e9)
    return {
        "stamp": {"sec": nanoseconds // 10**9, "nanosec": nanoseconds % 10**9},
        "frame_id": frame,
    }


def raw(seconds: float, array: NDArray[Any], encoding: str) -> dict[str, Any]:
    """Returns an Image whose rows end with two bytes of padding."""
    rows = np.ascontiguousarray(array).view(np.uint8).reshape(len(array), -1)
    padded = np.hstack([rows, np.full((len(rows), 2), 99, np.uint8)])
    return {
        "header": header(seconds),
        "height": len(array),
        "width": array.shape[1],
        "encoding": encoding,
        "is_bigendian": 0,
        "step": padded.shape[1],
        "data": padded.tobytes(),
    }


def camera_info(seconds: float, **changes: Any) -> dict[str, Any]:
    """Returns a CameraInfo of pinhole images."""
    window = {"x_offset": 0, "y_offset": 0, "height": 0, "width": 0, "do_rectify": False}
    P = (20.0, 0.0, 10.5, 0.0, 0.0, 21.0, 6.5, 0.0, 0.0, 0.0, 1.0, 0.0)
    fields = {"distortion_model": "plumb_bob", "d": [0.0] * 5, "k": list(K), "r": [1.0] * 9}
    fields |= {"p": list(P), "binning_x": 0, "binning_y": 0, "roi": window}
    return {"header": header(seconds), "height": HEIGHT, "width": WIDTH, **fields, **changes}


def transform(seconds: float, parent: str, child: str, place: Any, turn: Any) -> dict[str, Any]:
    """Returns a TransformStamped."""
    inner = {
        "translation": dict(zip("xyz", place, strict=True)),
        "rotation": dict(zip("xyzw", turn, strict=True)),
    }
    return {"header": header(seconds, parent), "child_frame_id": child, "transform": inner}


Entry = tuple[str, str, float, dict[str, Any]]
"""Topic, type, time in s, and fields of a message."""


def ros2_entries(seconds: float = 1.0) -> list[Entry]:
    """Returns joints at 50 Hz, commands at 25 Hz, images and transforms at 10 Hz."""
    entries: list[Entry] = []
    names = ["waist", "elbow", "gripper"]
    for k in range(round(50 * seconds) + 1):
        state = {"name": names, "position": joints(k / 50), "velocity": [], "effort": []}
        state["header"] = header(k / 50)
        entries.append(("/joint_states", "sensor_msgs/msg/JointState", k / 50, state))
    for k in range(round(25 * seconds) + 1):
        layout = {"dim": [], "data_offset": 0}
        command = {"layout": layout, "data": joints(k / 25 + 0.04)}
        entries.append(("/command", "std_msgs/msg/Float64MultiArray", k / 25, command))
    for k in range(round(10 * seconds) + 1):
        time = k / 10
        shown = raw(time, colours(k)[..., ::-1], "bgr8")
        entries.append(("/front/image_raw", "sensor_msgs/msg/Image", time, shown))
        depth = raw(time + 0.004, depth_mm(k), "16UC1")
        entries.append(("/front/depth", "sensor_msgs/msg/Image", time + 0.004, depth))
        moved = transform(time, "base", "hand", (0.5, 0.01 * k, 0.2), (0, 0, 0, 1))
        entries.append(("/tf", "tf2_msgs/msg/TFMessage", time, {"transforms": [moved]}))
        info = camera_info(time)
        entries.append(("/front/camera_info", "sensor_msgs/msg/CameraInfo", time, info))
    fixed = transform(0, "base", "camera_optical", *T_CAMERA)
    entries.append(("/tf_static", "tf2_msgs/msg/TFMessage", 0, {"transforms": [fixed]}))
    entries.append(("/task", "std_msgs/msg/String", 0, {"data": "reach the cup"}))
    return entries


Change = Callable[[list[Entry]], list[Entry]]


def write_ros2(path: Path, entries: list[Entry]) -> Path:
    """Writes a recording of ROS 2; each message is logged 1 ms after its time."""
    with path.open("wb") as stream:
        writer = Ros2Writer(stream, chunk_size=4096)
        schemas = {}
        for topic, kind, seconds, fields in sorted(entries, key=lambda entry: entry[2]):
            if kind not in schemas:
                schemas[kind] = writer.register_msgdef(kind, SCHEMAS[kind])
            time = START_NS + round(seconds * 1e9) + 10**6
            writer.write_message(topic, schemas[kind], fields, time, time)
        writer.finish()
    return path


def write_split(folder: Path, entries: list[Entry], at: float, *, listed: bool = True) -> Path:
    """Writes a recording as rosbag2 splits it in two at a time, in s."""
    folder.mkdir(parents=True)
    names = [f"rec_{number}.mcap" for number in range(2)]
    write_ros2(folder / names[0], [entry for entry in entries if entry[2] < at])
    write_ros2(folder / names[1], [entry for entry in entries if entry[2] >= at])
    if listed:
        described = {"version": 9, "storage_identifier": "mcap", "relative_file_paths": names}
        text = yaml.safe_dump({"rosbag2_bagfile_information": described})
        (folder / "metadata.yaml").write_text(text)
    return folder


def write_database(folder: Path, entries: list[Entry], *, definitions: bool = True) -> Path:
    """Writes a recording as a database of rosbag2, which before ROS 2 Iron had no definitions."""
    temporary = write_ros2(folder.with_suffix(".mcap"), entries)
    with temporary.open("rb") as stream, BagWriter(folder, version=9) as writer:
        connections = {}
        for schema, channel, message in make_reader(stream).iter_messages():
            assert schema is not None
            if channel.topic not in connections:
                connections[channel.topic] = writer.add_connection(
                    channel.topic, schema.name, msgdef=schema.data.decode(), rihs01="RIHS01_0"
                )
            writer.write(connections[channel.topic], message.log_time, message.data)
    temporary.unlink()
    if not definitions:
        with closing(sqlite3.connect(folder / f"{folder.name}.db3")) as database:
            database.executescript(
                "DROP TABLE schema; DROP TABLE message_definitions; "
                "ALTER TABLE topics DROP COLUMN type_description_hash;"
            )
    return folder


def jpeg(frame: int) -> bytes:
    """Returns the image of a frame as JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(colours(frame)).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def write_json(path: Path, **last: Any) -> Path:
    """Writes one second of Foxglove's schemas as JSON; `last` are fields of the last joint."""
    with path.open("wb") as stream:
        writer = Writer(stream)
        writer.start()
        channels = {}
        for kind, topic in (
            ("JointStates", "/joints"),
            ("CompressedImage", "/front/compressed"),
            ("CameraCalibration", "/front/calibration"),
            ("FrameTransform", "/transforms"),
        ):
            schema = writer.register_schema(f"foxglove.{kind}", "jsonschema", b"{}")
            channels[topic] = writer.register_channel(topic, "json", schema)

        def add(topic: str, seconds: float, fields: dict[str, Any]) -> None:
            time = START_NS + round(seconds * 1e9)
            stamp = {"sec": time // 10**9, "nsec": time % 10**9}
            data = json.dumps({"timestamp": stamp, **fields}).encode()
            writer.add_message(channels[topic], time, data, time)

        for k in range(21):
            positions = zip(("waist", "elbow", "gripper"), joints(k / 20), strict=True)
            states = [{"name": name, "position": value} for name, value in positions]
            states[-1] |= last
            add("/joints", k / 20, {"joints": states})
        for k in range(11):
            data = base64.b64encode(jpeg(k)).decode()
            shown = {"frame_id": "camera_optical", "format": "jpeg", "data": data}
            add("/front/compressed", k / 10, shown)
        lens = {"width": WIDTH, "height": HEIGHT, "D": [], "K": K, "P": []}
        add("/front/calibration", 0, {"frame_id": "camera_optical", **lens})
        place = dict(zip("xyz", T_CAMERA[0], strict=True))
        turn = dict(zip("xyzw", T_CAMERA[1], strict=True))
        frames = {"parent_frame_id": "base", "child_frame_id": "camera_optical"}
        add("/transforms", 0, {**frames, "translation": place, "rotation": turn})
        writer.finish()
    return path


def write_protobuf(path: Path) -> Path:
    """Writes one second of `foxglove.RawImage` and of a message of our own as protobuf."""
    file = descriptor_pb2.FileDescriptorProto(
        name="foxglove.proto", package="foxglove", syntax="proto3"
    )
    file.dependency.append("google/protobuf/timestamp.proto")
    shapes = {
        "RawImage": "timestamp:11 frame_id:9 width:7 height:7 encoding:9 step:7 data:12",
        "Arm": "timestamp:11 waist:1 elbow:1 gripper:1",
    }
    for name, fields in shapes.items():
        described = file.message_type.add(name=name)
        for number, field in enumerate(fields.split(), 1):
            label, kind = field.split(":")
            entry = described.field.add(name=label, number=number, type=int(kind), label=1)
            if kind == "11":
                entry.type_name = ".google.protobuf.Timestamp"
    pool = descriptor_pool.DescriptorPool()
    known = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    pool.Add(known)
    pool.Add(file)
    kinds = message_factory.GetMessageClassesForFiles(["foxglove.proto"], pool)
    with path.open("wb") as stream:
        writer = ProtobufWriter(stream)
        for k in range(21):
            time = START_NS + k * 50_000_000
            stamp = {"seconds": time // 10**9, "nanos": time % 10**9}
            waist, elbow, gripper = joints(k / 20)
            arm = kinds["foxglove.Arm"](timestamp=stamp, waist=waist, elbow=elbow, gripper=gripper)
            writer.write_message("/arm", arm, time, time)
            if k % 2 == 0:
                shown = {"encoding": "rgb8", "step": 3 * WIDTH, "data": colours(k // 2).tobytes()}
                size = {"width": WIDTH, "height": HEIGHT, "frame_id": "camera_optical"}
                found = kinds["foxglove.RawImage"](timestamp=stamp, **size, **shown)
                writer.write_message("/front", found, time, time)
        writer.finish()
    return path
