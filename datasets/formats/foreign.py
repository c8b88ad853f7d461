"""What every reader and writer of a foreign format agrees on."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from stringline.datasets.contract.contract import Array, Contract, EpisodeArrays
from stringline.datasets.store.store import EpisodeStore

Frames = Callable[[], Iterator[Array]]


class ForeignDataError(ValueError):
    """A foreign episode that cannot be taken over; the message names the key and, where there is one, the frame."""


@dataclass(frozen=True)
class ForeignEpisode:
    """A foreign episode in the terms of the contract, its images still in their files.

    Attributes:
        contract: What it looks like.
        arrays: Everything but images, by key.
        images: For each `rgb/<camera>` and `depth/<camera>` what starts a pass over its frames, one
            per step.
        instruction: What was asked for, in words.
        success: Whether the task was achieved, where the source says so.
        extra: Anything else worth keeping, plain JSON.
    """

    contract: Contract
    arrays: EpisodeArrays
    images: Mapping[str, Frames]
    instruction: str = ""
    success: bool | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reference:
    """Where a foreign episode lies; nothing of it has been read.

    Attributes:
        file: The file or folder, relative to the data set.
        number: The episode's number in the data set.
        read: Reads it, images excepted. Raises `ForeignDataError`.
    """

    file: str
    number: int
    read: Callable[[], ForeignEpisode]

    def __str__(self) -> str:
        """Returns how messages name the episode."""
        return f"episode {self.number} ({self.file})"


class Reader(Protocol):
    """A format that can be imported."""

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists a data set.

        Raises:
            ValueError: There is no such data set at `path`.
        """
        ...


class Writer(Protocol):
    """A format that can be exported to."""

    def write(self, store: EpisodeStore, path: Path) -> None:
        """Writes the episodes of a store to `path`, which appears when it is complete.

        Raises:
            ValueError: The format cannot hold these episodes.
            NoSpaceError: The disk is full; nothing stays behind.
        """
        ...


def camera_times(contract: Contract, time: Array) -> dict[str, Array]:
    """Returns `frame/<camera>` and `time/<camera>` of cameras that bring one image with every step at `time` (T,)."""
    frames = np.arange(len(time), dtype=np.int32)
    return {
        key: value
        for camera in contract.cameras
        for key, value in _times(camera.name, frames, time)
    }


def _times(camera: str, frames: Array, time: Array) -> tuple[tuple[str, Array], ...]:
    return (f"frame/{camera}", frames), (f"time/{camera}", np.asarray(time, np.float64))
