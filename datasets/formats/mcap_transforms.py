"""The tree of frames in messages of ROS 2's tf2 and Foxglove."""

from collections.abc import Iterator

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.transforms import inverse
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.mcap_recording import (
    McapRecording,
    Message,
    Plain,
    nanoseconds,
)
from stringline.datasets.formats.mcap_times import Resampling, Times, latest
from stringline.datasets.formats.poses import pose_of_quaternions

TRANSFORM_KINDS = ("TFMessage", "FrameTransform", "FrameTransforms")
STATIC_TOPIC = "/tf_static"


class TransformTree:
    """The transforms of a recording; each frame has one parent."""

    def __init__(self, recording: McapRecording, resampling: Resampling) -> None:
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
            self._numbers.setdefault(child, []).append(_numbers(content))
            if message.topic == STATIC_TOPIC:
                self._fixed.add(child)

    def poses(self, base: str, frame: str, times: Times) -> Array:
        """Returns the pose of a frame in the base: (4, 4) float32 if fixed, else (T, 4, 4)."""
        base, frame = base.lstrip("/"), frame.lstrip("/")
        frames = {*self._parents, *self._parents.values()}
        for name in (base, frame):
            if name not in frames:
                raise ForeignDataError(str(unknown_name("frame", name, frames)))
        above_base, above_frame = self._ancestors(base), self._ancestors(frame)
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


def _numbers(content: Plain) -> list[float]:
    """Returns the translation x y z, m, and the quaternion x y z w of a transform."""
    inner = content.get("transform", content)
    translation, rotation = inner["translation"], inner["rotation"]
    return [*(float(translation[a]) for a in "xyz"), *(float(rotation[a]) for a in "xyzw")]
