"""Clips of UCF101 (Soomro et al., 2012), and other folders of videos with a folder per class."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from stringline.datasets.contract.argument_checks import COUNT
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.video import VIDEO_SUFFIXES, evenly_spaced_frames
from stringline.datasets.images.classification import class_of
from stringline.datasets.images.labelled_image import LabelledClip
from stringline.datasets.images.reading import ItemReference, Omissions, OmittedError, files_below

_GROUP = re.compile(r"_(g\d+)_c\d+$")


@dataclass(frozen=True, kw_only=True)
class Ucf101Clips:
    """Reads `CLASS/v_CLASS_g01_c01.avi` and other videos.

    Clips of one group come from one video, so the group is the source; official splits keep groups
    together. A random split does not, and gives figures far too high.

    Attributes:
        frames: Frames per clip, evenly spaced over the video.
        listed: A split file such as `trainlist01.txt`, whose clips are read; if None, all videos.
    """

    frames: int = 16
    listed: str | None = None

    def __post_init__(self) -> None:
        COUNT.check(frames=self.frames)

    def references(self, path: Path, omissions: Omissions) -> Sequence[ItemReference]:
        """Lists the videos, sorted by path or in the order of the split file.

        Raises:
            ForeignDataError: The split file cannot be read.
        """
        files = files_below(path, VIDEO_SUFFIXES) if self.listed is None else self._listed(path)
        found = []
        for file in files:
            if file.is_file():
                name = f"{file.relative_to(path)}"
                found.append(ItemReference(name, partial(_read, path, file, self.frames)))
            else:
                omissions.add("clips", "the file is missing", file.relative_to(path))
        return found

    def _listed(self, path: Path) -> list[Path]:
        assert self.listed is not None
        try:
            lines = Path(self.listed).read_text().split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ForeignDataError(f"The split file {self.listed} cannot be read: {error}.") from (
                error
            )
        # A line of a training list ends with the number of the class.
        names = [line.split()[0] for line in lines if line.strip()]
        if any(".." in Path(name).parts or Path(name).is_absolute() for name in names):
            raise ForeignDataError(f"The split file {self.listed} names files outside of {path}.")
        return [path / name for name in names]


def _read(path: Path, file: Path, frames: int) -> LabelledClip:
    group = _GROUP.search(file.stem)
    try:
        rgb = np.stack(evenly_spaced_frames(file, file.name, frames))
    except ForeignDataError as error:
        raise OmittedError("clips", "truncated or damaged: the video does not decode") from error
    return LabelledClip(
        rgb=rgb, label=class_of(path, file), source=group[1] if group else file.stem
    )
