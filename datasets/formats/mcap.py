"""Reader of recordings of ROS 2 and Foxglove, MCAP files and rosbag2's databases.

Each topic has a rate of its own. The steps of an episode have one rate; a step shows the last
message of each topic that is not later, as a policy on the robot sees it. Images are stored
once. State and action are vectors of numbers from several topics, chosen by name.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from stringline.datasets.contract.argument_checks import POSITIVE, unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.formats.conversions import RECORDED
from stringline.datasets.formats.foreign import (
    NOT_CHOSEN,
    UNUSED_IMAGES,
    ForeignDataError,
    Frames,
    ImportedEpisode,
    Reference,
)
from stringline.datasets.formats.image_codecs import checked_source
from stringline.datasets.formats.mcap_cameras import (
    IMAGE_KINDS,
    TRANSFORM_KINDS,
    CameraTopics,
    ImageMessages,
    TransformTree,
)
from stringline.datasets.formats.message_images import NO_KEY_FRAME, VIDEO_KIND, is_key_frame
from stringline.datasets.formats.recording import (
    UNFINISHED,
    Message,
    Recording,
    Resampling,
    Rows,
    Selection,
    Stream,
    Times,
    left_fields,
    left_numbers,
    numbers_of,
    streams,
    vector,
)
from stringline.datasets.formats.recording_files import Take, takes
from stringline.datasets.formats.vector_layout import VectorLayout, joint_arrays

Clock = Literal["stamp", "log"]


class McapReader:
    """Reads recordings of ROS 2 and Foxglove: MCAP files, and databases of rosbag2."""

    def __init__(
        self,
        layout: VectorLayout,
        *,
        control_hz: float | None = None,
        state: Selection | None = None,
        action: Selection | None = None,
        cameras: Mapping[str, str] | None = None,
        depth: Mapping[str, str] | None = None,
        depth_source: str = "measured",
        calibration: Mapping[str, str] | None = None,
        base_frame: str | None = None,
        grippers: Mapping[str, str] | None = None,
        instruction: str | None = None,
        clock: Clock = "stamp",
        largest_gap_s: float = 0.5,
        held: Sequence[str] = (),
    ) -> None:
        """Sets the meaning of the topics.

        Args:
            layout: Meaning of the numbers of state and action.
            control_hz: Steps per second; required.
            state: {/joint_states: null} takes all joints of this topic, {/joint_states: [NAME,
                ...]} some; numbers of other messages than JointState have the names of their
                fields; None: no state.
            action: The same for the action, such as {/command: [data.0, data.1]}; required.
            cameras: {/front/image_raw: front, ...} names the cameras; {}: none; required.
            depth: {/front/image_raw: /front/depth, ...} pairs topics of colours and aligned depth;
                None: no depth.
            depth_source: Origin of the depth: measured, simulated or estimated.
            calibration: {/front/image_raw: /front/camera_info, ...}; None: camera_info beside the
                images, if there.
            base_frame: Frame of the base, for poses of calibrated cameras and of grippers from
                transforms; None: no poses.
            grippers: {ARM: FRAME, ...}, frames of the grippers (TCP); None: no poses.
            instruction: Topic of text, whose first message is the instruction; None: none.
            clock: Times: stamp for those in the messages, log for those of recording.
            largest_gap_s: Largest age of a message at a step, s.
            held: Topics that publish changes only: their values stay valid.

        Raises:
            ValueError: An option is missing or invalid.
        """
        POSITIVE.check(largest_gap_s=largest_gap_s)
        if clock not in ("stamp", "log"):
            raise unknown_name("clock", clock, ("stamp", "log"))
        if grippers and base_frame is None:
            raise ValueError("format.grippers needs the frame of the base, format.base_frame=NAME.")
        for topic in (*(depth or ()), *(calibration or ())):
            if topic not in (cameras or {}):
                raise unknown_name("topic in format.cameras", topic, cameras or ())
        self._layout = layout
        self._state: Selection = state or {}
        self._action: Selection = action or {}
        self._cameras = (
            None
            if cameras is None
            else CameraTopics(cameras, depth or {}, calibration, checked_source(depth_source))
        )
        self._base = base_frame
        self._grippers = grippers or {}
        self._instruction = instruction
        gap_ns = round(largest_gap_s * 1e9)
        self._resampling = Resampling(_rate(control_hz), clock == "stamp", gap_ns, held)

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists the recordings of a folder and its subfolders, or a single file.

        The files of a recording that rosbag2 split, which its `metadata.yaml` lists, are one
        episode.

        Raises:
            ValueError: There are none, the file is a part of one, or no topics are chosen.
        """
        found = takes(path)
        if self._cameras is None or not self._action:
            raise ValueError(
                "Set the topics, format.cameras={TOPIC: NAME, ...} or {} and "
                f"format.action={{TOPIC: null}}. {_offered(found[0].opened())}"
            )
        for take in found:
            yield Reference(take.name, take.number, partial(self._read, take, self._cameras))

    def _read(self, take: Take, topics: CameraTopics) -> ImportedEpisode:
        recording = take.opened()
        take.check_whole(self._resampling.largest_gap_ns)
        topics.check(recording)
        vectors = [*self._state, *self._action]
        messages, images = _messages(recording, vectors, topics.images())
        rows = {topic: _numbers(recording, messages[topic]) for topic in vectors}
        chosen = [
            self._streams(recording, each, messages, rows) for each in (self._state, self._action)
        ]
        tracks = {topic: self._resampling.track(topic, images[topic].messages) for topic in images}
        shown = [stream.track for found in chosen for stream in found]
        shown += [tracks[topic] for topic in topics.cameras]
        steps = self._resampling.steps(shown, list(tracks.values()))
        state, action = (
            vector(each, found, steps, self._resampling)
            for each, found in zip((self._state, self._action), chosen, strict=True)
        )
        meaning = self._layout.meaning(state.names, action.names)
        tree = TransformTree(recording, self._resampling) if self._base else None
        arrays = {
            "time": (steps - steps[0]) / 1e9,
            **self._gripper_poses(tree, steps, known=meaning.kinematics is not None),
            **joint_arrays(
                meaning,
                ("the state", state.values if state.names else None),
                ("the action", action.values),
            ),
        }
        cameras = []
        frames: dict[str, Frames] = {}
        latest = {topic: self._resampling.shown(tracks[topic], steps) for topic in topics.cameras}
        for entry in topics.recorded(recording, images, tracks, latest):
            camera, geometry = entry.placed(tree, self._base)
            cameras.append(camera)
            arrays |= geometry | entry.series(int(steps[0]))
            frames |= entry.frames(recording)
        return ImportedEpisode(
            meaning.contract(cameras, self._resampling.control_hz, tuple(self._grippers)),
            arrays,
            frames,
            instruction=self._text(recording),
            extra={"start_ns": int(steps[0])},
            skipped_fields=self._skipped_fields(recording, topics, rows)
            | _left_fields(recording, vectors, messages)
            | _left_at_the_beginning(chosen, images),
        )

    def _streams(
        self,
        recording: Recording,
        selection: Selection,
        messages: Mapping[str, Sequence[Message]],
        rows: Mapping[str, Rows],
    ) -> list[Stream]:
        return [
            stream
            for topic, wanted in selection.items()
            for stream in streams(
                topic,
                recording.topics[topic].kind,
                wanted,
                messages[topic],
                rows[topic],
                self._resampling,
            )
        ]

    def _skipped_fields(
        self,
        recording: Recording,
        topics: CameraTopics,
        rows: Mapping[str, Rows],
    ) -> dict[str, str]:
        """Returns the topics and numbers that no option chooses, with the reason."""
        lenses = [topics.calibration_topic(recording, topic) for topic in topics.cameras]
        used = {*self._state, *self._action, *topics.images(), *lenses, self._instruction}
        if self._base is not None:
            used |= {*recording.of_kinds(*TRANSFORM_KINDS)}
        images = recording.of_kinds(*IMAGE_KINDS)
        skipped_fields = {
            topic: UNUSED_IMAGES if topic in images else NOT_CHOSEN
            for topic in recording.topics
            if topic not in used
        }
        kinds = {topic: recording.topics[topic].kind for topic in rows}
        return skipped_fields | left_numbers([self._state, self._action], kinds, rows)

    def _gripper_poses(
        self, tree: TransformTree | None, steps: Times, *, known: bool
    ) -> dict[str, Array]:
        """Returns the poses of the grippers; as further series if the kinematics are `known`."""
        if tree is None or self._base is None:
            return {}
        shape = (len(steps), 4, 4)
        return {
            f"{RECORDED if known else 'T_base_gripper/'}{arm}": np.broadcast_to(
                tree.poses(self._base, frame, steps), shape
            ).copy()
            for arm, frame in self._grippers.items()
        }

    def _text(self, recording: Recording) -> str:
        if self._instruction is None:
            return ""
        recording.check_topics([self._instruction])
        for message in recording.messages([self._instruction]):
            return str(message.content.get("data", ""))
        raise ForeignDataError(f"{self._instruction} has no messages.")


def _rate(control_hz: float | None) -> float:
    if control_hz is None:
        raise ValueError(
            "The topics of a recording have rates of their own; set the rate of the steps, "
            "format.control_hz=NUMBER."
        )
    POSITIVE.check(control_hz=control_hz)
    return control_hz


def _messages(
    recording: Recording, vectors: Sequence[str], images: Sequence[str]
) -> tuple[dict[str, list[Message]], dict[str, ImageMessages]]:
    """Returns the messages by topic, and those with images, of which the first has its bytes."""
    recording.check_topics([*vectors, *images])
    found: dict[str, list[Message]] = {topic: [] for topic in (*vectors, *images)}
    skipped: Counter[str] = Counter()
    videos = recording.of_kinds(VIDEO_KIND)
    for message in recording.messages(list(found)):
        topic = message.topic
        content = message.content
        if topic in images and not found[topic]:
            if topic in videos and not is_key_frame(topic, skipped[topic], content):
                skipped[topic] += 1
                continue
        elif topic in images:
            content = {key: value for key, value in content.items() if key != "data"}
        found[topic].append(Message(topic, message.logged_ns, content))
    for topic in images:
        if skipped[topic] and not found[topic]:
            raise ForeignDataError(f"{topic} has no key frame; a video needs one to decode.")
    return found, {
        topic: ImageMessages(found[topic], skipped[topic], topic in videos) for topic in images
    }


def _numbers(recording: Recording, messages: Sequence[Message]) -> list[dict[str, float]]:
    return [
        numbers_of(f"{each.topic} at message {n}", recording.topics[each.topic].kind, each.content)
        for n, each in enumerate(messages)
    ]


def _left_fields(
    recording: Recording, topics: Sequence[str], messages: Mapping[str, Sequence[Message]]
) -> dict[str, str]:
    """Returns the fields of joints that have no place, with the reason."""
    skipped_fields: dict[str, str] = {}
    for topic in topics:
        contents = [each.content for each in messages[topic]]
        skipped_fields |= left_fields(topic, recording.topics[topic].kind, contents)
    return skipped_fields


def _left_at_the_beginning(
    chosen: Sequence[Sequence[Stream]], images: Mapping[str, ImageMessages]
) -> dict[str, str]:
    """Returns the topics of which the first messages cannot be used, with the reason."""
    late = {each.track.name: UNFINISHED for found in chosen for each in found if each.unfinished}
    late |= {topic: NO_KEY_FRAME for topic, each in images.items() if each.first}
    return {f"{name} at the beginning": reason for name, reason in late.items()}


def _offered(recording: Recording) -> str:
    """Returns the topics of a recording in words."""
    images = recording.of_kinds(*IMAGE_KINDS)
    others = [
        f"{name} ({topic.type_name})"
        for name, topic in recording.topics.items()
        if name not in images
    ]
    return (
        f"{recording.name} has images in {', '.join(images) or 'no topic'}; other topics: "
        f"{', '.join(others) or 'none'}."
    )
