"""Reader of MCAP, the recordings of ROS 2 and Foxglove: a file is an episode.

Each topic has a rate of its own. The steps of an episode have one rate; a step shows the last
message of each topic that is not later, as a policy on the robot sees it. Images are stored
once. State and action are vectors of numbers from several topics, chosen by name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stringline.datasets.contract.argument_checks import POSITIVE, unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.formats.checks import inside, numbers
from stringline.datasets.formats.foreign import (
    NOT_CHOSEN,
    UNUSED_IMAGES,
    ForeignDataError,
    Frames,
    ImportedEpisode,
    Reference,
    last_number,
)
from stringline.datasets.formats.gripper_comparison import RECORDED
from stringline.datasets.formats.image_codecs import checked_source
from stringline.datasets.formats.mcap_cameras import (
    IMAGE_KINDS,
    TRANSFORM_KINDS,
    CameraTopics,
    TransformTree,
)
from stringline.datasets.formats.mcap_recording import (
    McapRecording,
    Message,
    Plain,
    Resampling,
    Times,
)
from stringline.datasets.formats.vector_layout import VectorLayout, joint_arrays

Selection = Mapping[str, Sequence[str] | None]
"""The names of the chosen numbers by topic; None chooses all."""

_OF_JOINTS = ("velocity", "acceleration", "effort")
_BOOKKEEPING = ("header", "timestamp", "layout")


def numbers_of(key: str, kind: str, content: Plain) -> dict[str, float]:
    """Returns the numbers of a message by name.

    Those of `JointState` and `foxglove.JointStates` are the positions by the names of the joints,
    others the fields, such as `pose.position.x`, `data` or `data.0`. Errors contain `key`.
    """
    if kind == "JointState":
        names = content["name"]
        positions = content["position"]
        if len(names) != len(positions):
            raise ForeignDataError(f"{key} has {len(names)} names and {len(positions)} positions.")
        return dict(zip(names, map(float, positions), strict=True))
    if kind == "JointStates":
        return {joint["name"]: _position(key, joint) for joint in content["joints"]}
    fields = {key: value for key, value in content.items() if key not in _BOOKKEEPING}
    return dict(_leaves("", fields))


def left_fields(key: str, kind: str, contents: Sequence[Plain]) -> dict[str, str]:
    """Returns the fields of joints that have values beside the positions, with the reason.

    Their names begin with `key`.
    """
    fields: Iterable[Plain] = ()
    if kind == "JointState":  # Fields without values are empty.
        fields = ({field: each.get(field) or None for field in _OF_JOINTS} for each in contents)
    elif kind == "JointStates":
        fields = (joint for each in contents for joint in each["joints"])
    found = {field for each in fields for field in _OF_JOINTS if each.get(field) is not None}
    return {f"{key} {field}": "of joints, only positions are imported" for field in sorted(found)}


def _position(key: str, joint: Plain) -> float:
    if joint.get("position") is None:
        raise ForeignDataError(f"{key} has no position of {joint['name']!r}.")
    return float(joint["position"])


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yields the numbers below a field with their names."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(f"{prefix}.{key}" if prefix else key, part)
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _leaves(f"{prefix}.{place}", part)
    elif isinstance(value, (int, float)):
        yield prefix, float(value)


@dataclass(frozen=True)
class Vector:
    """The vectors (T, D) of an episode and the names of their D numbers."""

    names: tuple[str, ...]
    values: Array


def vector(
    selection: Selection,
    series: Mapping[str, Sequence[Mapping[str, float]]],
    chosen: Mapping[str, Array],
) -> Vector:
    """Returns the vectors of several topics.

    A name that occurs in several topics is preceded by its topic.

    Args:
        selection: The chosen numbers.
        series: The numbers of each message by topic.
        chosen: The number of the message at each step (T,) by topic.
    """
    parts = {}
    for topic, wanted in selection.items():
        names = list(wanted or series[topic][0])
        rows = [
            [_number(topic, m, row, name) for name in names] for m, row in enumerate(series[topic])
        ]
        if not names:
            raise ForeignDataError(f"{topic} has no numbers.")
        parts[topic] = names, numbers(topic, rows, len(names), names)[chosen[topic]]
    every = [name for names, _ in parts.values() for name in names]
    return Vector(
        tuple(
            name if every.count(name) == 1 else f"{topic}/{name}"
            for topic, (names, _) in parts.items()
            for name in names
        ),
        np.concatenate([values for _, values in parts.values()], axis=1) if parts else np.empty(0),
    )


def left_numbers(
    selections: Sequence[Selection], series: Mapping[str, Sequence[Mapping[str, float]]]
) -> dict[str, str]:
    """Returns the numbers of the chosen topics that no selection names, with the reason."""
    skipped_fields: dict[str, str] = {}
    for topic, rows in series.items():
        chosen = [selection[topic] for selection in selections if topic in selection]
        named = {name for names in chosen for name in names or rows[0]}
        skipped_fields |= {f"{topic} {name}": NOT_CHOSEN for name in rows[0] if name not in named}
    return skipped_fields


def _number(topic: str, message: int, row: Mapping[str, float], name: str) -> float:
    if name not in row:
        why = unknown_name("number", name, row)
        raise ForeignDataError(f"{topic} at message {message}: {why}")
    return row[name]


Clock = Literal["stamp", "log"]


class McapReader:
    """Reads MCAP files of ROS 2 and Foxglove."""

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
            control_hz: Steps per second.
            state: The topics of the joint state, each with the names of its numbers, or None for
                all. Numbers of `JointState` have the names of the joints, others those of their
                fields, such as `data.0`. If None, without a state.
            action: The same for the action.
            cameras: Name of the camera by topic of its images; {} for none.
            depth: Topic of the aligned depth by topic of the images.
            depth_source: Source of the depth: `measured`, `simulated` or `estimated`.
            calibration: Topic of the calibration by topic of the images; None takes `camera_info`
                beside the images, if it exists.
            base_frame: Frame of the base. With it, poses of calibrated cameras and of grippers
                come from the transforms.
            grippers: Frame of the gripper by arm.
            instruction: Topic of text, whose first message is the instruction.
            clock: `stamp` for the times in the messages, `log` for those of recording.
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
        """Lists the files of a folder and its subfolders, or a single file.

        Raises:
            ValueError: There are none, or no topics are chosen.
        """
        files = [path] if path.is_file() else sorted(path.rglob("*.mcap"))
        if not files:
            raise ValueError(f"There are no .mcap files in {path}.")
        if self._cameras is None or not self._action:
            raise ValueError(
                "Set the topics, format.cameras={TOPIC: NAME, ...} or {} and "
                f"format.action={{TOPIC: null}}. {_offered(McapRecording(inside(path, files[0])))}"
            )
        for number, file in enumerate(files):
            name = file.name if file == path else file.relative_to(path).as_posix()
            read = partial(self._read, path, file, self._cameras)
            yield Reference(name, last_number(file.stem, number), read)

    def _read(self, root: Path, path: Path, topics: CameraTopics) -> ImportedEpisode:
        recording = McapRecording(inside(root, path))
        topics.check(recording)
        vectors = [*self._state, *self._action]
        messages = _messages(recording, vectors, topics.images())
        line = self._resampling.timeline(messages, [*vectors, *topics.cameras])
        numbers = {topic: _numbers(recording, messages[topic]) for topic in vectors}
        state = vector(self._state, numbers, line.latest)
        action = vector(self._action, numbers, line.latest)
        meaning = self._layout.meaning(state.names, action.names)
        tree = TransformTree(recording, self._resampling) if self._base else None
        arrays = {
            "time": (line.steps - line.steps[0]) / 1e9,
            **self._gripper_poses(tree, line.steps, known=meaning.kinematics is not None),
            **joint_arrays(
                meaning,
                ("the state", state.values if state.names else None),
                ("the action", action.values),
            ),
        }
        cameras = []
        images: dict[str, Frames] = {}
        for entry in topics.recorded(recording, messages, line):
            camera, geometry = entry.placed(tree, self._base)
            cameras.append(camera)
            arrays |= geometry | entry.series(int(line.steps[0]))
            images |= entry.frames(recording)
        return ImportedEpisode(
            meaning.contract(cameras, self._resampling.control_hz, tuple(self._grippers)),
            arrays,
            images,
            instruction=self._text(recording),
            extra={"start_ns": int(line.steps[0])},
            skipped_fields=self._skipped_fields(recording, topics, numbers)
            | _left_fields(recording, vectors, messages),
        )

    def _skipped_fields(
        self,
        recording: McapRecording,
        topics: CameraTopics,
        numbers: Mapping[str, Sequence[Mapping[str, float]]],
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
        return skipped_fields | left_numbers([self._state, self._action], numbers)

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

    def _text(self, recording: McapRecording) -> str:
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
    recording: McapRecording, vectors: Sequence[str], images: Sequence[str]
) -> dict[str, list[Message]]:
    """Returns the messages by topic; of images, only the first with its bytes."""
    recording.check_topics([*vectors, *images])
    found: dict[str, list[Message]] = {topic: [] for topic in (*vectors, *images)}
    for message in recording.messages(list(found)):
        kept = found[message.topic]
        content = message.content
        if message.topic in images and kept:
            content = {key: value for key, value in content.items() if key != "data"}
        kept.append(Message(message.topic, message.logged_ns, content))
    return found


def _numbers(recording: McapRecording, messages: Sequence[Message]) -> list[dict[str, float]]:
    return [
        numbers_of(f"{each.topic} at message {n}", recording.topics[each.topic].kind, each.content)
        for n, each in enumerate(messages)
    ]


def _left_fields(
    recording: McapRecording, topics: Sequence[str], messages: Mapping[str, Sequence[Message]]
) -> dict[str, str]:
    """Returns the fields of joints that have no place, with the reason."""
    skipped_fields: dict[str, str] = {}
    for topic in topics:
        contents = [each.content for each in messages[topic]]
        skipped_fields |= left_fields(topic, recording.topics[topic].kind, contents)
    return skipped_fields


def _offered(recording: McapRecording) -> str:
    """Returns the topics of a recording in words."""
    images = recording.of_kinds(*IMAGE_KINDS)
    others = [
        f"{name} ({topic.type_name})"
        for name, topic in recording.topics.items()
        if name not in images
    ]
    return (
        f"{recording.path.name} has images in {', '.join(images) or 'no topic'}; other topics: "
        f"{', '.join(others) or 'none'}."
    )
