"""Cameras of an MCAP recording: images at their own rate, depth, calibration and poses."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from stringline.datasets.contract.contract import Array, Camera, DepthSource
from stringline.datasets.formats.checks import image
from stringline.datasets.formats.foreign import ForeignDataError, Frames
from stringline.datasets.formats.image_codecs import counts
from stringline.datasets.formats.mcap_images import (
    CALIBRATION_KINDS,
    IMAGE_KINDS,
    Calibration,
    calibration_of,
    image_of,
)
from stringline.datasets.formats.mcap_recording import McapRecording, Message
from stringline.datasets.formats.mcap_times import Timeline, Times, nearest
from stringline.datasets.formats.mcap_transforms import TransformTree

_DEPTH_APART_NS = 50_000_000


@dataclass(frozen=True)
class CameraTopics:
    """The topics of the cameras.

    Attributes:
        cameras: Name of the camera by topic of its images.
        depth: Topic of the depth by topic of the images.
        calibration: Topic of the calibration by topic of the images; None: `camera_info` beside
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

    def check(self, recording: McapRecording) -> None:
        """Checks that the topics exist and contain images."""
        recording.check_topics(self.images())
        for topic in self.images():
            if recording.topics[topic].kind not in IMAGE_KINDS:
                raise ForeignDataError(
                    f"{topic} has messages of type {recording.topics[topic].type_name!r}. Topics "
                    f"with images: {', '.join(recording.of_kinds(*IMAGE_KINDS)) or 'none'}."
                )

    def recorded(
        self, recording: McapRecording, messages: Mapping[str, Sequence[Message]], line: Timeline
    ) -> list["RecordedCamera"]:
        """Returns the cameras of a recording; each keeps the images that a step shows."""
        found = []
        for topic, name in self.cameras.items():
            first = messages[topic][0].content
            height, width = image_of(topic, 0, first).shape[:2]
            shown, frame = np.unique(line.latest[topic], return_inverse=True)
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
            found.append(
                RecordedCamera(
                    camera,
                    {"rgb": topic, **({"depth": depth} if depth else {})},
                    {
                        "rgb": shown,
                        **({"depth": _paired(topic, depth, shown, line)} if depth else {}),
                    },
                    frame.astype(np.int32),
                    line.times[topic][shown],
                    lens,
                    str(first.get("header", first).get("frame_id", "")),
                )
            )
        return found

    def calibration_topic(self, recording: McapRecording, topic: str) -> str | None:
        """Returns the topic of the calibration of images; None without one."""
        if self.calibration is not None:
            return self.calibration.get(topic)
        beside = f"{topic.removesuffix('/compressed').rpartition('/')[0]}/camera_info"
        return beside if beside in recording.of_kinds(*CALIBRATION_KINDS) else None

    def _lens(
        self, recording: McapRecording, topic: str, size: tuple[int, int]
    ) -> Calibration | None:
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
class RecordedCamera:
    """A camera, its topics by kind (`rgb`, `depth`), and the messages of its frames.

    Attributes:
        shown: For each kind the number of the message of each frame (F,).
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

    def frames(self, recording: McapRecording) -> dict[str, Frames]:
        """Returns the functions that yield the images."""
        checks = {"rgb": image, "depth": counts}
        return {
            f"{kind}/{self.camera.name}": partial(
                _frames, recording, topic, self.shown[kind], self.camera, checks[kind]
            )
            for kind, topic in self.topics.items()
        }


def _paired(colour: str, depth: str, shown: Array, line: Timeline) -> Array:
    """Returns the number of the depth image of each frame (F,)."""
    wanted = line.times[colour][shown]
    found = nearest(line.times[depth], wanted)
    apart = np.abs(line.times[depth][found] - wanted)
    if apart.max() > _DEPTH_APART_NS:
        raise ForeignDataError(
            f"{depth} has no image within {_DEPTH_APART_NS / 1e9:g} s of message "
            f"{int(shown[apart.argmax()])} of {colour}."
        )
    return found


def _frames(
    recording: McapRecording,
    topic: str,
    shown: Array,
    camera: Camera,
    check: Callable[[str, int, Array, int, int], Array],
) -> Iterator[Array]:
    times = Counter(shown.tolist())
    for number, message in enumerate(recording.messages([topic])):
        for _ in range(times[number]):
            found = image_of(topic, number, message.content)
            yield check(topic, number, found, camera.height, camera.width)
