"""Images on their way to the recorder of a deployment: in shared memory, bounded, and nobody is waited for."""

from collections.abc import Mapping
from multiprocessing.context import SpawnContext

import numpy as np

from stringline.datasets.contract.contract import Array, Contract
from stringline.real_robot.ipc.mailbox import Mailbox, Memory, Record, shared_memory

_MOST_SLOTS = 32
_FEWEST_SLOTS = 4
_BUDGET_BYTES = 64 << 20


def frames_layout(contract: Contract) -> np.dtype[np.void]:
    """Layout of one look through all cameras of a contract; `number` counts looks from 1."""
    fields: list[tuple[str, str, tuple[int, ...]]] = [("number", "<i8", ())]
    for camera in contract.cameras:
        size = (camera.height, camera.width)
        fields += [(f"time/{camera.name}", "<f8", ()), (f"rgb/{camera.name}", "u1", (*size, 3))]
        fields += [(f"depth/{camera.name}", "<u2", size)] * (camera.depth is not None)
        fields += [(f"intrinsics/{camera.name}", "<f4", (3, 3))] * camera.has_geometry
    return np.dtype(fields)


def frames_memory(context: SpawnContext, contract: Contract) -> Memory:
    """Returns memory for some seconds of images, or for fewer where they are large."""
    layout = frames_layout(contract)
    return shared_memory(
        context, layout, max(_FEWEST_SLOTS, min(_MOST_SLOTS, _BUDGET_BYTES // layout.itemsize))
    )


class FrameBox:
    """One end of the box.

    Args:
        memory: As `frames_memory` returned it.
        contract: Whose cameras count.
    """

    def __init__(self, memory: Memory, contract: Contract) -> None:
        self._layout = frames_layout(contract)
        self._box = Mailbox(memory, self._layout)
        self._keys = [name for name in self._layout.names or () if name != "number"]
        self._times = [f"time/{camera.name}" for camera in contract.cameras]
        self._last: list[float] = []
        self._number = 0

    def put(self, frames: Mapping[str, Array]) -> None:
        """Takes what all cameras show, if one of them shows something new and none shows nothing.

        Raises:
            ValueError: An image has another size than the contract says.
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
        self._number = self._number + 1
        record["number"] = self._number
        self._box.put(record)

    def fresh(self) -> list[dict[str, Array]]:
        """Returns the looks that this end has not had yet, oldest first; `number` is among their keys."""
        return [
            {key: record[key] for key in (*self._keys, "number")} for record in self._box.fresh()
        ]

    def newest_time(self, look: Mapping[str, Array]) -> float:
        """Returns when the newest image of a look was captured."""
        return max(float(look[key]) for key in self._times)
