"""CIFAR-10 and CIFAR-100 in the binary version (Krizhevsky, 2009)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.images.labelled_image import LabelledImage
from stringline.datasets.images.omissions import Omissions, OmittedError
from stringline.datasets.images.reading import ItemReference

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE


@dataclass(frozen=True)
class _Version:
    """The names of classes, and the files with images: a label of `labels` bytes before each."""

    names: str
    labels: int
    train: tuple[str, ...]
    test: str


_VERSIONS = (
    _Version(
        "batches.meta.txt", 1, tuple(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"
    ),
    _Version("fine_label_names.txt", 2, ("train.bin",), "test.bin"),
)


@dataclass(frozen=True, kw_only=True)
class CifarImages:
    """Reads the folder `cifar-10-batches-bin` or `cifar-100-binary`.

    The label is the class (the fine one of CIFAR-100); the source is `train` or `test`.
    """

    def references(self, path: Path, omissions: Omissions) -> Sequence[ItemReference]:
        """Lists the images in the order of the files.

        Raises:
            ForeignDataError: The names of the classes are missing.
        """
        found = [version for version in _VERSIONS if (path / version.names).is_file()]
        if not found:
            raise ForeignDataError(
                f"{path} has neither {' nor '.join(version.names for version in _VERSIONS)}; "
                "required: a folder of the binary version of CIFAR-10 or CIFAR-100."
            )
        version = found[0]
        names = (path / version.names).read_text().split()
        parts = [*((file, "train") for file in version.train), (version.test, "test")]
        return [
            reference
            for file, part in parts
            for reference in _references(path / file, part, version.labels, names, omissions)
        ]


def _references(
    file: Path, part: str, labels: int, names: Sequence[str], omissions: Omissions
) -> list[ItemReference]:
    if not file.is_file():
        omissions.add("files", "missing", file.name)
        return []
    size = labels + _PIXELS
    count, rest = divmod(file.stat().st_size, size)
    if rest:
        omissions.add("images", "truncated: the file ends within them", f"{file.name}, {count}")
    if not count:
        return []
    records = np.memmap(file, np.uint8, "r", shape=(count, size))
    return [
        ItemReference(f"{file.name}, {row}", partial(_read, records, row, labels, part, names))
        for row in range(count)
    ]


def _read(
    records: np.ndarray, row: int, labels: int, part: str, names: Sequence[str]
) -> LabelledImage:
    number = int(records[row, labels - 1])
    if number >= len(names):
        raise OmittedError("images", f"their label is not among the {len(names)} classes")
    planes = records[row, labels:].reshape(3, _SIDE, _SIDE)
    rgb = np.ascontiguousarray(planes.transpose(1, 2, 0))
    return LabelledImage(rgb=rgb, label=names[number], source=part)
