"""Cameras of an MCAP recording: images at their own rate, depth, calibration and poses.

Images and calibrations are messages of ROS 2 and Foxglove. Poses come from the tree of frames
in messages of ROS 2's tf2 and Foxglove.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera, DepthSource
from stringline.datasets.embodiments.transforms import inverse
from stringline.datasets.formats.checks import image
from stringline.datasets.formats.conversions import pose_of_quaternions
from stringline.datasets.formats.foreign import ForeignDataError, Frames
from stringline.datasets.formats.image_codecs import counts
from stringline.datasets.formats.message_images import (
    VIDEO_KIND,
    image_of,
    is_key_frame,
    video_frames,
)
from stringline.datasets.formats.recording import (
    Message,
    Plain,
    Recording,
    Resampling,
    Times,
    Track,
    latest,
    nanoseconds,
    nearest,
)

IMAGE_KINDS = ("Image", "RawImage", "CompressedImage", VIDEO_KIND)
CALIBRATION_KINDS = ("CameraInfo", "CameraCalibration")


@dataclass(frozen=True)
class Calibration:
    """The intrinsics (3, 3) of images (height, width), and their distortion."""

    height: int
    width: int
    intrinsics: Array
    distortion_model: str
    distortion: tuple[float, ...]


def calibration_of(topic: str, contents: Sequence[Plain], *, rectified: bool) -> Calibration:
    """Returns the calibration in the messages of a topic, which must agree.

    `sensor_msgs/CameraInfo` has the centre of the first pixel at (0, 0), the contract at
    (0.5, 0.5). The projection matrix P applies to `rectified` images, K to others.
    """
    found = [_calibration(topic, content, rectified=rectified) for content in contents]
    if not found:
        raise ForeignDataError(f"{topic} has no messages.")
    for number, other in enumerate(found):
        if (
            (other.height, other.width, other.distortion)
            != (found[0].height, found[0].width, found[0].distortion)
        ) or not np.array_equal(other.intrinsics, found[0].intrinsics):
            raise ForeignDataError(f"{topic} changes at message {number}; a calibration is fixed.")
    return found[0]


def _calibration(topic: str, content: Plain, *, rectified: bool) -> Calibration:
    size = {name: int(content.get(name, 0)) for name in ("height", "width")}
    window = content.get("roi", {})
    part = any(window.get(name) not in (None, 0, size[name]) for name in size)
    if part or any(content.get(name, 0) > 1 for name in ("binning_x", "binning_y")):
        raise ForeignDataError(
            f"{topic} calibrates a larger image (roi, binning); allowed: the whole image."
        )
    K = _field_numbers(topic, content, "K", 9).reshape(3, 3)
    if rectified:
        K = _field_numbers(topic, content, "P", 12).reshape(3, 4)[:, :3]
    distortion = np.asarray(_field(content, "D"), np.float64)
    bent = not rectified and bool(distortion.any())
    if not (K[0, 0] > 0 and K[1, 1] > 0 and np.array_equal(K[2], (0, 0, 1))):
        raise ForeignDataError(f"{topic} has focal lengths {K[0, 0]:g} and {K[1, 1]:g}: not set?")
    K = K + np.array([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])
    return Calibration(
        size["height"],
        size["width"],
        K.astype(np.float32),
        (str(content.get("distortion_model")) or "unknown") if bent else "none",
        tuple(distortion.tolist()) if bent else (),
    )


def _field(content: Plain, name: str) -> Any:
    """Returns a field whose name ROS 2 writes in lower case, Foxglove in upper case."""
    return content.get(name, content.get(name.lower(), ()))


def _field_numbers(topic: str, content: Plain, name: str, count: int) -> Array:
    found = np.asarray(_field(content, name), np.float64)
    if found.shape != (count,) or not np.isfinite(found).all():
        raise ForeignDataError(f"{topic} has no {name} of {count} finite numbers; got {found}.")
    return found


TRANSFORM_KINDS = ("TFMessage", "FrameTransform", "FrameTransforms")
STATIC_TOPIC = "/tf_static"


class TransformTree:
    """The transforms of a recording; each frame has one parent."""

    def __init__(self, recording: Recording, resampling: Resampling) -> None:
        """Reads all transforms of a recording."""
        self._gap_ns = resampling.largest_gap_ns
        self._parents: dict[str, str] = {}
        self._fixed: set[str] = set()
        self._times: dict[str, list[int]] = {}
        self._numbers: dict[str, list[list[float]]] = {}
        for message in recording.messages(recording.of_kinds(*TRANSFORM_KINDS)):
            self._add(message, stamped=resampling.stamped)

    def _add(self, message: Message, *, stamped: bool) -> None:
        """Adds the transforms of a message, by their own time stamps or by that of recording."""
        for content in _transforms(message.content):
            header = content.get("header", {})
            parent = str(content.get("parent_frame_id", header.get("frame_id"))).lstrip("/")
            child = str(content.get("child_frame_id")).lstrip("/")
            if self._parents.setdefault(child, parent) != parent:
                raise ForeignDataError(
                    f"{message.topic}: the frame {child!r} has two parents, "
                    f"{self._parents[child]!r} and {parent!r}."
                )
            stamp = header.get("stamp", content.get("timestamp"))
            time = nanoseconds(stamp) if stamp and stamped else message.logged_ns
            self._times.setdefault(child, []).append(time)
            self._numbers.setdefault(child, []).append(_pose_numbers(content))
            if message.topic == STATIC_TOPIC:
                self._fixed.add(child)

    def poses(self, base: str, frame: str, times: Times) -> Array:
        """Returns the pose of a frame in the base: (4, 4) float32 if fixed, else (T, 4, 4)."""
        base, frame = base.lstrip("/"), frame.lstrip("/")
        frames = {*self._parents, *self._parents.values()}
        for name in (base, frame):
            if name not in frames:
                raise ForeignDataError(str(unknown_name("frame", name, frames)))
        above_base = self._ancestors(base)
        above_frame = self._ancestors(frame)
        common = next((name for name in above_frame if name in above_base), None)
        if common is None:
            raise ForeignDataError(f"No transforms connect {frame!r} with {base!r}.")

        def pose(path: list[str]) -> Array:
            found: Array = np.eye(4)
            for name in path[: path.index(common)]:
                found = self._link(name, times) @ found
            return found

        T_base_frame: Array = inverse(pose(above_base)) @ pose(above_frame)
        return T_base_frame.astype(np.float32)

    def _ancestors(self, frame: str) -> list[str]:
        """Returns a frame, its parent and so on up to the root."""
        path = [frame]
        while path[-1] in self._parents:
            path.append(self._parents[path[-1]])
            if path[-1] in path[:-1]:
                raise ForeignDataError(f"The transforms of {path[-1]!r} form a loop.")
        return path

    def _link(self, child: str, times: Times) -> Array:
        """Returns the pose of a frame in its parent: (4, 4) if it is fixed, else (T, 4, 4)."""
        values = np.array(self._numbers[child])
        key = f"The transform of {child!r}"
        if child in self._fixed or len(values) == 1:
            if not np.allclose(values, values[0]):
                raise ForeignDataError(f"{key} changes, but is static.")
            fixed: Array = self._matrices(key, values[:1])[0]
            return fixed
        stamps = np.array(self._times[child], np.int64)
        order = np.argsort(stamps, kind="stable")
        chosen = order[latest(key, stamps[order], times, self._gap_ns)]
        return self._matrices(key, values[chosen])

    @staticmethod
    def _matrices(key: str, values: Array) -> Array:
        found: Array = pose_of_quaternions(key, values[:, :3], values[:, 3:])
        return found.astype(np.float64)


def _transforms(content: Plain) -> Iterator[Plain]:
    """Yields the single transforms of a message."""
    if "transforms" in content:
        yield from content["transforms"]
    else:
        yield content


def _pose_numbers(content: Plain) -> list[float]:
    """Returns the translation x y z, m, and the quaternion x y z w of a transform."""
    inner = content.get("transform", content)
    translation = inner["translation"]
    rotation = inner["rotation"]
    return [*(float(translation[a]) for a in "xyz"), *(float(rotation[a]) for a in "xyzw")]


_DEPTH_APART_NS = 50_000_000


@dataclass(frozen=True)
class CameraTopics:
    """The topics of the cameras.

    Attributes:
        cameras: Name of the camera by topic of its images.
        depth: Topic of the depth by topic of the images.
        calibration: Topic of the calibration by topic of the images; if None, `camera_info` beside
            the images, if it exists.
        source: Source of the depth.
    """

    cameras: Mapping[str, str]
    depth: Mapping[str, str]
    calibration: Mapping[str, str] | None
    source: DepthSource

    def images(self) -> list[str]:
        """Returns the topics with images, depth included."""
        return [*self.cameras, *self.depth.values()]

    def check(self, recording: Recording) -> None:
        """Checks that the topics exist and contain images."""
        recording.check_topics(self.images())
        for topic in self.images():
            if recording.topics[topic].kind not in IMAGE_KINDS:
                raise ForeignDataError(
                    f"{topic} has messages of type {recording.topics[topic].type_name!r}. Topics "
                    f"with images: {', '.join(recording.of_kinds(*IMAGE_KINDS)) or 'none'}."
                )

    def recorded(
        self,
        recording: Recording,
        images: Mapping[str, "ImageMessages"],
        tracks: Mapping[str, Track],
        latest: Mapping[str, Array],
    ) -> list["RecordedCamera"]:
        """Returns the cameras of a recording; each keeps the images that a step shows.

        Args:
            recording: The recording.
            images: Messages by topic.
            tracks: Their times by topic.
            latest: The number of the message that each step (T,) shows, by topic of a camera.
        """
        found = []
        for topic, name in self.cameras.items():
            first = images[topic].messages[0].content
            height, width = images[topic].first_image(topic).shape[:2]
            shown, frame = np.unique(latest[topic], return_inverse=True)
            lens = self._lens(recording, topic, (height, width))
            depth = self.depth.get(topic)
            camera = Camera(
                name,
                height,
                width,
                self.source if depth else None,
                has_geometry=False,
                distortion_model=lens.distortion_model if lens else "none",
                distortion=lens.distortion if lens else (),
            )
            numbers = {topic: shown}
            if depth:
                numbers[depth] = _paired(tracks[topic], tracks[depth], shown)
            found.append(
                RecordedCamera(
                    camera,
                    {"rgb": topic, **({"depth": depth} if depth else {})},
                    {each: places + images[each].first for each, places in numbers.items()},
                    frame.astype(np.int32),
                    tracks[topic].times[shown],
                    lens,
                    str(first.get("header", first).get("frame_id", "")),
                )
            )
        return found

    def calibration_topic(self, recording: Recording, topic: str) -> str | None:
        """Returns the topic of the calibration of images; None without one."""
        if self.calibration is not None:
            return self.calibration.get(topic)
        beside = f"{topic.removesuffix('/compressed').rpartition('/')[0]}/camera_info"
        return beside if beside in recording.of_kinds(*CALIBRATION_KINDS) else None

    def _lens(self, recording: Recording, topic: str, size: tuple[int, int]) -> Calibration | None:
        info = self.calibration_topic(recording, topic)
        if info is None:
            return None
        recording.check_topics([info])
        contents = [message.content for message in recording.messages([info])]
        found = calibration_of(info, contents, rectified="/image_rect" in topic)
        if (found.height, found.width) != size:
            raise ForeignDataError(
                f"{info} calibrates images of {found.height}x{found.width}; those of {topic} are "
                f"{size[0]}x{size[1]}."
            )
        return found


@dataclass(frozen=True)
class ImageMessages:
    """The messages of a topic with images: only the first one has its bytes.

    Attributes:
        messages: The messages.
        first: Number of the first one among all of the topic: a video begins with a key frame.
        video: Whether each message is a frame of a video.
    """

    messages: Sequence[Message]
    first: int
    video: bool

    def first_image(self, topic: str) -> Array:
        """Returns the image of the first message."""
        content = self.messages[0].content
        if self.video:
            return next(video_frames(topic, [(self.first, content)]))[1]
        return image_of(topic, self.first, content)


@dataclass(frozen=True)
class RecordedCamera:
    """A camera, its topics by kind (`rgb`, `depth`), and the messages of its frames.

    Attributes:
        shown: For each topic the number of the message of each frame (F,).
        frame: The frame that each step shows (T,).
        times: Times (F,) of the frames.
        frame_id: The frame of the camera among the transforms.
    """

    camera: Camera
    topics: Mapping[str, str]
    shown: Mapping[str, Array]
    frame: Array
    times: Times
    lens: Calibration | None
    frame_id: str

    def placed(
        self, tree: TransformTree | None, base: str | None
    ) -> tuple[Camera, dict[str, Array]]:
        """Returns the camera and its geometry; its pose is known if it has a calibration."""
        name = self.camera.name
        if self.lens is None:
            return self.camera, {}
        arrays = {f"intrinsics/{name}": self.lens.intrinsics}
        if tree is None or base is None:
            return self.camera, arrays
        arrays[f"T_base_camera/{name}"] = tree.poses(base, self.frame_id, self.times)
        return replace(self.camera, has_geometry=True), arrays

    def series(self, start_ns: int) -> dict[str, Array]:
        """Returns `frame/<camera>` and `time/<camera>`."""
        name = self.camera.name
        return {f"frame/{name}": self.frame, f"time/{name}": (self.times - start_ns) / 1e9}

    def frames(self, recording: Recording) -> dict[str, Frames]:
        """Returns the functions that yield the images."""
        checks = {"rgb": image, "depth": counts}
        return {
            f"{kind}/{self.camera.name}": partial(
                _frames, recording, topic, self.shown[topic], self.camera, checks[kind]
            )
            for kind, topic in self.topics.items()
        }


def _paired(colour: Track, depth: Track, shown: Array) -> Array:
    """Returns the number of the depth image of each frame (F,)."""
    wanted = colour.times[shown]
    found = nearest(depth.times, wanted)
    apart = np.abs(depth.times[found] - wanted)
    if apart.max() > _DEPTH_APART_NS:
        raise ForeignDataError(
            f"{depth.name} has no image within {_DEPTH_APART_NS / 1e9:g} s of message "
            f"{int(shown[apart.argmax()])} of {colour.name}."
        )
    return found


def _frames(
    recording: Recording,
    topic: str,
    shown: Array,
    camera: Camera,
    check: Callable[[str, int, Array, int, int], Array],
) -> Iterator[Array]:
    times = Counter(shown.tolist())
    for number, found in _images(recording, topic, times):
        for _ in range(times[number]):
            yield check(topic, number, found, camera.height, camera.width)


def _images(
    recording: Recording, topic: str, wanted: Container[int]
) -> Iterator[tuple[int, Array]]:
    """Yields the wanted images of a topic; of a video, all from the first wanted one on."""
    numbered = enumerate(recording.messages([topic]))
    if recording.topics[topic].kind == VIDEO_KIND:
        whole = itertools.dropwhile(
            lambda pair: not is_key_frame(topic, pair[0], pair[1].content), numbered
        )
        yield from video_frames(topic, ((number, each.content) for number, each in whole))
        return
    for number, message in numbered:
        if number in wanted:
            yield number, image_of(topic, number, message.content)
