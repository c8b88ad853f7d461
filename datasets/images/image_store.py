"""A store of labelled images, or of labelled clips: one zarr 3 group, its arrays memory-mapped.

Pixels, intrinsics and poses lie in one array for each shape of an image, such as `rgb/96x128`, and
are not compressed. `item/rows` tells the row of each image in these arrays. Objects of all images
follow each other in the arrays `object/...`. Texts are stored once, see `Texts`.
"""

import os
import shutil
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.files.atomic import check_space, explained_full_disk, sync, sync_tree
from stringline.datasets.files.lock import is_locked, lock_folder
from stringline.datasets.images.growing_arrays import GrowingArrays, StoredTexts, Texts
from stringline.datasets.images.labelled_checks import check_clip, check_image
from stringline.datasets.images.labelled_image import LabelledClip, LabelledImage
from stringline.datasets.images.object_rows import COLUMNS, objects_of_rows, rows_of_objects
from stringline.datasets.store.group_metadata import (
    FORMAT_VERSION,
    checksummed_group,
    read_group,
)
from stringline.datasets.store.zarr_layout import ArrayEntry, map_array

IMAGES_KEY = "stringline_images"
IMAGES = "images"
CLIPS = "clips"
_BY_SHAPE = ("rgb", "depth", "clean_depth", "segments", "intrinsics", "T_world_camera")
_TEXTS = ("label", "reverse_label", "room", "source")
# A map holds an open file, and a process may open some 1,000 of them.
_MOST_MAPS = 256


class ImageWriter:
    """Writes a new store of images, or of clips, in a `with` block.

    The store appears when the block ends. If the block fails, nothing is left behind. If the
    process dies, the next writer of the same path removes what it has written.
    """

    def __init__(self, path: str | Path) -> None:
        """Opens a temporary folder beside `path`.

        Raises:
            ValueError: `path` exists, or another process writes it.
        """
        self.path = Path(path)
        if self.path.exists():
            raise ValueError(f"{self.path} exists already; choose another path for the images.")
        self._folder = self.path.with_name(f".{self.path.name}.new")
        if self._folder.exists():
            if is_locked(self._folder):
                raise ValueError(f"Another process writes {self.path}.")
            shutil.rmtree(self._folder)
        self._folder.mkdir(parents=True)
        check_space(self._folder, 0)
        self._alive = lock_folder(self._folder)
        self._arrays = GrowingArrays(self._folder)
        self._texts = Texts()
        self._shapes: dict[str, int] = {}
        self._kind = ""
        self._count = 0

    def add(self, image: LabelledImage) -> int:
        """Appends an image and returns its number.

        Raises:
            ValueError: A field of the image is not as the contract says, or the store has clips.
        """
        check_image(image)
        self._append(image, IMAGES)
        self._texts_of_captions(image.captions)
        objects = rows_of_objects(image.objects, self._texts.number)
        first = 0
        for name in COLUMNS:
            first = self._arrays.extend(f"object/{name}", objects[name])
        bounds = np.array([[first, first + len(image.objects)]], np.int64)
        self._arrays.extend("item/objects", bounds)
        return self._count - 1

    def add_clip(self, clip: LabelledClip) -> int:
        """Appends a clip and returns its number.

        Raises:
            ValueError: A field of the clip is not as the contract says, or the store has images.
        """
        check_clip(clip)
        self._append(clip, CLIPS)
        return self._count - 1

    def _append(self, item: LabelledImage | LabelledClip, kind: str) -> None:
        if self._kind not in ("", kind):
            raise ValueError(f"{self.path} is a store of {self._kind}; {kind} need another one.")
        self._kind = kind
        shape = "x".join(str(size) for size in item.rgb.shape[:-1])
        rows = []
        for name in _BY_SHAPE:
            value = getattr(item, name, None)
            if value is None:
                rows.append(-1)
                continue
            array = np.asarray(value, np.float64 if name[0] in "iT" else None)
            rows.append(self._arrays.extend(f"{name}/{shape}", array[None]))
        self._arrays.extend("item/rows", np.array([rows], np.int64))
        number = self._shapes.setdefault(shape, len(self._shapes))
        self._arrays.extend("item/shape", np.array([number], np.int32))
        texts = [self._texts.number(getattr(item, name, None)) for name in _TEXTS]
        self._arrays.extend("item/texts", np.array([texts], np.int32))
        self._count += 1

    def _texts_of_captions(self, captions: tuple[str, ...]) -> None:
        numbers = np.array([self._texts.number(text) for text in captions], np.int32)
        first = self._arrays.extend("caption/text", numbers)
        bounds = np.array([[first, first + len(captions)]], np.int64)
        self._arrays.extend("item/captions", bounds)

    def commit(self) -> None:
        """Makes the store appear at its path; nothing can be added any more.

        Raises:
            ValueError: There is no image, or something else is at the path by now.
        """
        if not self._count:
            raise ValueError(f"No image was added to {self.path}; an empty store is of no use.")
        data, ends = self._texts.arrays()
        self._arrays.extend("text/bytes", data)
        self._arrays.extend("text/ends", ends)
        with explained_full_disk(self.path):
            self._arrays.finish()
            (self._folder / "zarr.json").write_bytes(checksummed_group(self._attributes()))
            sync_tree(self._folder)
        if self.path.exists():
            raise ValueError(f"{self.path} was made by another process in the meantime.")
        self._folder.rename(self.path)
        sync(self.path.parent)
        self._close()

    def _attributes(self) -> dict[str, Any]:
        entries = self._arrays.entries
        return {
            IMAGES_KEY: FORMAT_VERSION,
            "kind": self._kind,
            "shapes": list(self._shapes),
            "arrays": {key: entry._asdict() for key, entry in entries.items()},
        }

    def discard(self) -> None:
        """Removes what was written."""
        self._close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _close(self) -> None:
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._alive >= 0:
                self.commit()
        finally:
            if self._alive >= 0:
                self.discard()


class ImageStore:
    """A store that `ImageWriter` has written; its arrays are read-only views of the files.

    It can be sent to other processes, which open the files themselves.
    """

    def __init__(self, path: str | Path) -> None:
        """Opens the store at `path` without reading pixels.

        Raises:
            ValueError: There is no such store, it is damaged, or its version is newer.
        """
        self.path = Path(path)
        file = self.path / "zarr.json"
        if not file.is_file():
            raise ValueError(f"There is no store of images at {self.path}.")
        where = f"The store of images {self.path}"
        attributes, _ = read_group(file.read_bytes(), where, IMAGES_KEY)
        self.kind: str = attributes["kind"]
        self._shapes: list[str] = attributes["shapes"]
        self._entries = {
            key: ArrayEntry.from_dict(plain) for key, plain in attributes["arrays"].items()
        }
        self.array = lru_cache(_MOST_MAPS)(self._map)
        self._items = {
            key: self._map(key) for key in self._entries if not key.startswith(_BY_SHAPE)
        }
        self._stored_texts = StoredTexts(self._items["text/bytes"], self._items["text/ends"])

    def _map(self, key: str) -> Array:
        return map_array(self.path, key, self._entries[key], kind="Store")

    def __reduce__(self) -> tuple[type[Self], tuple[Path]]:
        return type(self), (self.path,)

    def __len__(self) -> int:
        return len(self._items["item/rows"])

    def __getitem__(self, index: int) -> LabelledImage | LabelledClip:
        return self.clip(index) if self.kind == CLIPS else self.image(index)

    def image(self, index: int) -> LabelledImage:
        """Returns an image; its arrays are read-only.

        Raises:
            ValueError: The store has clips.
        """
        index = self._checked(index, IMAGES)
        texts = self._fields(index)
        del texts["reverse_label"]
        start, end = self._items["item/captions"][index].tolist()
        numbers = self._items["caption/text"][start:end].tolist()
        captions = tuple(self._stored_texts[each] for each in numbers)
        start, end = self._items["item/objects"][index].tolist()
        rows = {name: self._items[f"object/{name}"][start:end] for name in COLUMNS}
        objects = objects_of_rows(rows, self._stored_texts.__getitem__)
        return LabelledImage(captions=captions, objects=objects, **texts)

    def clip(self, index: int) -> LabelledClip:
        """Returns a clip; its arrays are read-only.

        Raises:
            ValueError: The store has images.
        """
        fields = self._fields(self._checked(index, CLIPS))
        del fields["clean_depth"], fields["segments"]
        return LabelledClip(**fields)

    def _checked(self, index: int, kind: str) -> int:
        if kind != self.kind:
            raise ValueError(f"{self.path} is a store of {self.kind}; allowed: {kind}.")
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.path} has no number {index}; allowed: 0 to {len(self) - 1}.")
        return int(index) % len(self)

    def _fields(self, index: int) -> dict[str, Any]:
        """Returns what images and clips have both."""
        numbers = self._items["item/texts"][index].tolist()
        fields: dict[str, Any] = {
            name: None if number < 0 else self._stored_texts[number]
            for name, number in zip(_TEXTS, numbers, strict=True)
        }
        shape = self._shapes[self._items["item/shape"][index]]
        for name, row in zip(_BY_SHAPE, self._items["item/rows"][index].tolist(), strict=True):
            fields[name] = None if row < 0 else self.array(f"{name}/{shape}")[row]
        return fields

    def labels(self) -> list[str | None]:
        """Returns the label of each image."""
        return self._column("label")

    def rooms(self) -> list[str]:
        """Returns the room of each image, "" where unknown."""
        return [room or "" for room in self._column("room")]

    def sources(self) -> list[str]:
        """Returns the source of each image, "" where unknown."""
        return [source or "" for source in self._column("source")]

    def _column(self, name: str) -> list[str | None]:
        numbers = self._items["item/texts"][:, _TEXTS.index(name)].tolist()
        known = {each: self._stored_texts[each] for each in set(numbers) - {-1}}
        return [known.get(each) for each in numbers]

    def assets(self) -> list[frozenset[str]]:
        """Returns the known assets of the objects of each image."""
        return self._of_objects("asset")

    def names(self) -> list[frozenset[str]]:
        """Returns the names of the objects of each image."""
        return self._of_objects("name")

    def _of_objects(self, column: str) -> list[frozenset[str]]:
        if self.kind == CLIPS:
            return [frozenset()] * len(self)
        numbers = self._items[f"object/{column}"].tolist()
        known = {each: self._stored_texts[each] for each in set(numbers)}
        bounds = self._items["item/objects"].tolist()
        return [
            frozenset(known[each] for each in numbers[start:end]) - {""} for start, end in bounds
        ]
