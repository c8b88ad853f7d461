"""The last images of a camera in shared memory.

A ring is a mailbox of complete images, without a lock that a killed process could hold. An image
whose writer died has no number and is not read; the next process continues in the same ring.
"""

import numpy as np

from stringline.real_robot.cameras.camera import Frame
from stringline.real_robot.cameras.camera_settings import CameraSettings
from stringline.real_robot.ipc.mailbox import Mailbox, Memory, Record, shared_memory

_SLOTS = 4


def frame_layout(settings: CameraSettings) -> np.dtype[np.void]:
    """Returns the layout of an image."""
    fields: list[tuple[str, str, tuple[int, ...]]] = [
        ("number", "<i8", ()),
        ("captured", "<f8", ()),
    ]
    fields += [("colour", "u1", (*settings.size, 3))]
    fields += [("depth", "<u2", settings.size)] * settings.depth
    fields += [("intrinsics", "<f4", (3, 3))] * settings.has_geometry
    return np.dtype(fields)


def ring_memory(settings: CameraSettings) -> Memory:
    """Returns memory for the ring of a camera, an argument of its process."""
    return shared_memory(frame_layout(settings), _SLOTS)


class FrameRing:
    """One end of a ring."""

    def __init__(self, memory: Memory, settings: CameraSettings) -> None:
        self._layout = frame_layout(settings)
        self._keys = [
            name for name in self._layout.names or () if name not in ("number", "captured")
        ]
        self._box = Mailbox(memory, self._layout)

    def put(self, frame: Frame) -> None:
        """Adds an image.

        Raises:
            ValueError: Its shape is not the configured one.
        """
        record: Record = np.zeros((), self._layout)
        record["number"] = frame.number
        record["captured"] = frame.captured
        for key in self._keys:
            value = getattr(frame, key)
            shape = None if value is None else value.shape
            if value is None or shape != record[key].shape:
                raise ValueError(f"{key} has shape {shape}; configured is {record[key].shape}.")
            record[key] = value
        self._box.put(record)

    def newest(self) -> Frame | None:
        """Returns the newest image, None before the first one."""
        record = self._box.newest()
        if record is None:
            return None
        return Frame(
            int(record["number"]),
            float(record["captured"]),
            **{key: record[key] for key in self._keys},
        )
