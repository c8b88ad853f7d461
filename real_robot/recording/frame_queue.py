"""A bounded queue of images in shared memory, without waiting, for recorder and live view."""

from collections.abc import Mapping

import numpy as np

from stringline.datasets.contract.contract import Array, Contract
from stringline.real_robot.ipc.mailbox import Mailbox, Memory, Record, shared_memory

_MOST_SLOTS = 32
_FEWEST_SLOTS = 4
_BUDGET_BYTES = 64 << 20


def frames_layout(contract: Contract) -> np.dtype[np.void]:
    """Returns the layout of one capture of all cameras of a contract; `number` counts from 1."""
    fields: list[tuple[str, str, tuple[int, ...]]] = [("number", "<i8", ())]
    for camera in contract.cameras:
        size = (camera.height, camera.width)
        fields += [(f"time/{camera.name}", "<f8", ()), (f"rgb/{camera.name}", "u1", (*size, 3))]
        fields += [(f"depth/{camera.name}", "<u2", size)] * (camera.depth is not None)
        fields += [(f"intrinsics/{camera.name}", "<f4", (3, 3))] * camera.has_geometry
    return np.dtype(fields)


def frames_memory(contract: Contract) -> Memory:
    """Returns memory for some seconds of images, or for less time if they are large."""
    layout = frames_layout(contract)
    return shared_memory(
        layout, max(_FEWEST_SLOTS, min(_MOST_SLOTS, _BUDGET_BYTES // layout.itemsize))
    )


class FrameQueue:
    """One end of the queue."""

    def __init__(self, memory: Memory, contract: Contract) -> None:
        self._layout = frames_layout(contract)
        self._box = Mailbox(memory, self._layout)
        self._keys = [name for name in self._layout.names or () if name != "number"]
        self._times = [f"time/{camera.name}" for camera in contract.cameras]
        self._last: list[float] = []
        self._number = 0

    def put(self, frames: Mapping[str, Array]) -> None:
        """Adds the images of all cameras, if none is missing and at least one is new.

        Raises:
            ValueError: An image does not have the size of the contract.
        """
        if any(key not in frames for key in self._keys):
            return
        times = [float(frames[key]) for key in self._times]
        if times == self._last:
            return
        record: Record = np.zeros((), self._layout)
        for key in self._keys:
            if frames[key].shape != record[key].shape:
                raise ValueError(
                    f"{key} has shape {frames[key].shape}; allowed: {record[key].shape}."
                )
            record[key] = frames[key]
        self._last = times
        self._number += 1
        record["number"] = self._number
        self._box.put(record)

    def fresh(self) -> list[dict[str, Array]]:
        """Returns the captures that this end has not read yet, oldest first, with `number`."""
        return [
            {key: record[key] for key in (*self._keys, "number")} for record in self._box.fresh()
        ]

    def newest_time(self, capture: Mapping[str, Array]) -> float:
        """Returns the time of the newest image in a capture."""
        return max(float(capture[key]) for key in self._times)
