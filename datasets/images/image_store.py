"""A store of labelled images, or of labelled clips: one zarr 3 group, its arrays memory-mapped.

Pixels, intrinsics and poses lie in one array for each shape of an image, such as `rgb/96x128`,
and are not compressed. `item/rows` tells the row of each image in these arrays. Objects of all
images follow each other in the arrays `object/...`, with NaN where unknown. Texts are stored
once, see `Texts`. The folder of a store appears when all of its files are there.
"""

import hashlib
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

import numpy as np

from stringline.datasets.contract.argument_checks import Range, unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.files.atomic import (
    check_space,
    explained_full_disk,
    is_locked,
    lock_folder,
    sync,
    sync_tree,
    write_all,
)
from stringline.datasets.images.labelled_image import (
    Box3d,
    Item,
    LabelledClip,
    LabelledImage,
    LabelledObject,
    check_clip,
    check_image,
)
from stringline.datasets.store.zarr_layout import (
    FORMAT_VERSION,
    IMAGES_KEY,
    ArrayEntry,
    array_metadata,
    array_name,
    as_bytes,
    checksummed_group,
    chunk_file,
    crc32,
    little_endian,
    map_array,
    read_group,
)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a folder that is renamed to `path` when the block ends without an error.

    If the block fails, the folder is removed; that of a process that died, by the next one.

    Raises:
        ValueError: `path` exists, or another process writes it.
        NoSpaceError: The disk is full.
    """
    folder = path.with_name(f".{path.name}.new")
    _check_new(path)
    if folder.exists() and is_locked(folder):
        raise ValueError(f"Another process writes {path}.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    alive = lock_folder(folder)
    try:
        check_space(folder, 0)
        with explained_full_disk(path):
            yield folder
            sync_tree(folder)
        _check_new(path)
        folder.rename(path)
        sync(path.parent)
    finally:
        os.close(alive)
        shutil.rmtree(folder, ignore_errors=True)


def _check_new(path: Path) -> None:
    if path.exists():
        raise ValueError(f"{path} exists already; choose another path.")


class GrowingArrays:
    """Arrays of one folder that grow along their first axis.

    A file is open during a write only: images of thousands of shapes need as many files.

    Attributes:
        entries: Shape, type and checksum of each array by key.
    """

    def __init__(self, folder: Path) -> None:
        self.entries: dict[str, ArrayEntry] = {}
        self._folder = folder

    def extend(self, key: str, rows: Array) -> int:
        """Appends rows (N, ...) and returns the number of the first of them.

        The rows of a key have one shape and type.
        """
        rows = little_endian(rows)
        path = chunk_file(self._folder, key, rows.ndim)
        if key not in self.entries:
            path.parent.mkdir(parents=True)
            self.entries[key] = ArrayEntry((0, *rows.shape[1:]), rows.dtype.name, 0)
        known = self.entries[key]
        assert (known.shape[1:], known.dtype) == (rows.shape[1:], rows.dtype.name), key
        if rows.size:
            with explained_full_disk(self._folder, key), path.open("ab", buffering=0) as file:
                write_all(file.fileno(), as_bytes(rows))
        count = known.shape[0] + len(rows)
        checksum = crc32(rows, known.crc32)
        self.entries[key] = ArrayEntry((count, *rows.shape[1:]), rows.dtype.name, checksum)
        return known.shape[0]

    def finish(self) -> None:
        """Writes the metadata of the arrays."""
        for key, entry in self.entries.items():
            path = self._folder / array_name(key) / "zarr.json"
            path.write_bytes(array_metadata(entry))


class Texts:
    """Different texts, each with a number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """Returns the number of a text, a new one for a new text; -1 for None."""
        return -1 if text is None else self._numbers.setdefault(text, len(self._numbers))

    def arrays(self) -> tuple[Array, Array]:
        """Returns all texts in UTF-8 (bytes,) uint8, and where each of them ends (T,) int64."""
        encoded = [text.encode() for text in self._numbers]
        ends = np.cumsum([len(data) for data in encoded], dtype=np.int64)
        return np.frombuffer(b"".join(encoded), np.uint8), ends


class StoredTexts:
    """The texts of `Texts.arrays` by number."""

    def __init__(self, data: Array, ends: Array) -> None:
        self._data = data
        self._ends = ends

    def __getitem__(self, number: int) -> str:
        start = self._ends[number - 1] if number else 0
        return bytes(self._data[start : self._ends[number]]).decode()


COLUMNS = ("name", "asset", "box2d", "box3d", "visibility", "truncation")


def rows_of_objects(
    objects: Sequence[LabelledObject], number: Callable[[str], int]
) -> dict[str, Array]:
    """Returns rows by column: texts (N,) int32 by number, and float64 numbers.

    These are box2d (N, 4), box3d (N, 15) with centre, rotation (row by row) and size, and
    visibility and truncation (N,).
    """
    count = len(objects)
    columns: dict[str, Array] = {
        "name": np.array([number(each.name) for each in objects], np.int32),
        "asset": np.array([number(each.asset) for each in objects], np.int32),
        "box2d": np.full((count, 4), np.nan),
        "box3d": np.full((count, 15), np.nan),
        "visibility": np.full(count, np.nan),
        "truncation": np.full(count, np.nan),
    }
    for row, each in enumerate(objects):
        if each.box2d is not None:
            columns["box2d"][row] = each.box2d
        if (box := each.box3d) is not None:
            columns["box3d"][row] = np.concatenate([box.centre, box.rotation.ravel(), box.size])
        for name in ("visibility", "truncation"):
            if (share := getattr(each, name)) is not None:
                columns[name][row] = share
    return columns


def objects_of_rows(
    columns: Mapping[str, Array], text: Callable[[int], str]
) -> tuple[LabelledObject, ...]:
    """Returns the objects of the rows that `rows_of_objects` returns."""
    boxes2d = columns["box2d"]
    boxes3d = columns["box3d"]
    shares = {name: columns[name].tolist() for name in ("visibility", "truncation")}
    known2d = ~np.isnan(boxes2d[:, 0])
    known3d = ~np.isnan(boxes3d[:, 0])
    return tuple(
        LabelledObject(
            name=text(name),
            asset=text(asset),
            box2d=boxes2d[row] if known2d[row] else None,
            box3d=_box(boxes3d[row]) if known3d[row] else None,
            visibility=_known(shares["visibility"][row]),
            truncation=_known(shares["truncation"][row]),
        )
        for row, (name, asset) in enumerate(
            zip(columns["name"].tolist(), columns["asset"].tolist(), strict=True)
        )
    )


def _box(row: Array) -> Box3d:
    return Box3d(row[:3], row[3:12].reshape(3, 3), row[12:])


def _known(share: float) -> float | None:
    return None if math.isnan(share) else share


IMAGES = "images"
CLIPS = "clips"
_BY_SHAPE = ("rgb", "depth", "clean_depth", "segments", "intrinsics", "T_world_camera")
_TEXTS = ("label", "reverse_label", "room", "source")
# A map holds an open file, and a process may open some 1,000 of them.
_MOST_MAPS = 256
_MOST_TEXTS = 4096


def is_image_store(path: str | Path) -> bool:
    """Returns whether there is a store of images, rather than of episodes, at a path."""
    try:
        return f'"{IMAGES_KEY}": '.encode() in (Path(path) / "zarr.json").read_bytes()
    except OSError:
        return False


class ImageWriter:
    """Writes a new store of images, or of clips, in a `with` block.

    The store appears when the block ends. If the block fails, nothing is left behind. If the
    process dies, the next writer of the same path removes what it has written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._making = new_folder(self.path)
        self._texts = Texts()
        self._shapes: dict[str, int] = {}
        self._kind = ""
        self._count = 0

    def __enter__(self) -> Self:
        """Opens a temporary folder beside the path.

        Raises:
            ValueError: The path exists, or another process writes it.
        """
        self._folder = self._making.__enter__()
        self._arrays = GrowingArrays(self._folder)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Makes the store appear at its path, or removes it after an error.

        Raises:
            ValueError: There is no image, or something else is at the path by now.
        """
        if kind is None:
            try:
                self._finish()
            except BaseException as failure:
                self._making.__exit__(type(failure), failure, failure.__traceback__)
                raise
        self._making.__exit__(kind, error, trace)

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

    def _append(self, item: Item, kind: str) -> None:
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

    def _finish(self) -> None:
        if not self._count:
            raise ValueError(f"No image was added to {self.path}; a store has one or more.")
        data, ends = self._texts.arrays()
        self._arrays.extend("text/bytes", data)
        self._arrays.extend("text/ends", ends)
        self._arrays.finish()
        attributes = {
            IMAGES_KEY: FORMAT_VERSION,
            "kind": self._kind,
            "shapes": list(self._shapes),
            "arrays": {key: entry._asdict() for key, entry in self._arrays.entries.items()},
        }
        (self._folder / "zarr.json").write_bytes(checksummed_group(attributes))


class ImageStore:
    """A store that `ImageWriter` has written; its arrays are read-only views of the files.

    It can be sent to other processes, which open the files themselves.

    Attributes:
        path: Path of the store.
        kind: `images` or `clips`.
    """

    def __init__(self, path: str | Path) -> None:
        """Opens the store at `path` without reading pixels.

        Raises:
            ValueError: There is no such store, it is damaged, or its version is newer.
        """
        self.path = Path(path)
        if not is_image_store(self.path):
            raise ValueError(f"There is no store of images at {self.path}.")
        where = f"The store of images {self.path}"
        attributes = read_group((self.path / "zarr.json").read_bytes(), where, IMAGES_KEY)
        self.kind: str = attributes["kind"]
        self._shapes: list[str] = attributes["shapes"]
        self._entries = {
            key: ArrayEntry.from_dict(plain) for key, plain in attributes["arrays"].items()
        }
        self.array = lru_cache(_MOST_MAPS)(self._map)
        self._items = {
            key: self._map(key) for key in self._entries if not key.startswith(_BY_SHAPE)
        }
        texts = StoredTexts(self._items["text/bytes"], self._items["text/ends"])
        self._text = lru_cache(_MOST_TEXTS)(texts.__getitem__)

    def _map(self, key: str) -> Array:
        return map_array(self.path, key, self._entries[key], kind="Store")

    def damaged(self) -> list[str]:
        """Reads every byte and returns the keys of the arrays that have changed.

        Raises:
            ValueError: A file has another size.
        """
        return [key for key, entry in self._entries.items() if crc32(self._map(key)) != entry.crc32]

    def digest(self) -> str:
        """Returns a digest of the content, 16 hexadecimal digits; it reads no pixels."""
        return hashlib.sha256((self.path / "zarr.json").read_bytes()).hexdigest()[:16]

    def __reduce__(self) -> tuple[type[Self], tuple[Path]]:
        return type(self), (self.path,)

    def __len__(self) -> int:
        return len(self._items["item/rows"])

    def __getitem__(self, index: int) -> Item:
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
        captions = tuple(self._text(each) for each in numbers)
        start, end = self._items["item/objects"][index].tolist()
        rows = {name: self._items[f"object/{name}"][start:end] for name in COLUMNS}
        objects = objects_of_rows(rows, self._text)
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
            name: None if number < 0 else self._text(number)
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
        known = {each: self._text(each) for each in set(numbers) - {-1}}
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
        known = {each: self._text(each) for each in set(numbers)}
        bounds = self._items["item/objects"].tolist()
        return [
            frozenset(known[each] for each in numbers[start:end]) - {""} for start, end in bounds
        ]


SplitBy = Literal["room", "source", "asset", "name", "image"]
_INNER = Range(above=0, below=1)


@dataclass(frozen=True)
class Split:
    """Numbers of images, in the order of the store.

    Attributes:
        train: Images to train on.
        test: Images to test on.
        skipped: Number of images in neither part: they share a room with the test part.
        held_out: The rooms, sources, assets or names that are held out.
    """

    train: tuple[int, ...]
    test: tuple[int, ...]
    skipped: int
    held_out: tuple[str, ...]


def split(
    store: ImageStore,
    by: SplitBy = "room",
    held_out: float | Sequence[str | int] = 0.2,
    seed: int = 0,
) -> Split:
    """Divides the images of a store.

    An image belongs to the test part if its room, source or number is held out, or if any of its
    objects has an asset or a name (or the image a label) that is held out. Images outside of the
    test part that share a room with it are skipped.

    Args:
        store: The images or clips.
        by: What is held out; `image` needs images without rooms.
        held_out: Share of the rooms, sources, assets, names or images, above 0 and below 1, at
            least one of them; or those that are held out.
        seed: Selects them. The choice depends on the names and the seed only.

    Raises:
        ValueError: An argument is out of range or unknown, the images lack what they are to be
            divided by, `image` would divide rooms, or a part is empty.
    """
    if by not in get_args(SplitBy):
        raise unknown_name("way to split", by, get_args(SplitBy))
    groups = _groups(store, by)
    names = sorted(set().union(*groups))
    chosen = _chosen(names, by, held_out, seed)
    tested = [not chosen.isdisjoint(group) for group in groups]
    rooms = store.rooms()
    closed = _rooms_of(rooms, tested, test=True) - {""}
    if by == "image" and (shared := closed & _rooms_of(rooms, tested, test=False)):
        raise ValueError(
            f"A split of {store.path} by image has views of {len(shared)} rooms in both parts; "
            "split by room."
        )
    train = tuple(
        number for number, test in enumerate(tested) if not test and rooms[number] not in closed
    )
    test = tuple(number for number, test in enumerate(tested) if test)
    if not train or not test:
        raise ValueError(
            f"A split of {store.path} by {by} leaves {len(train)} images for training and "
            f"{len(test)} for testing; hold out {'less' if test else 'more'}."
        )
    skipped = len(store) - len(train) - len(test)
    return Split(train, test, skipped, tuple(sorted(chosen)))


def _rooms_of(rooms: Sequence[str], tested: Sequence[bool], *, test: bool) -> set[str]:
    return {room for room, each in zip(rooms, tested, strict=True) if each is test}


def _groups(store: ImageStore, by: SplitBy) -> list[frozenset[str]]:
    """Returns the names of what each image belongs to."""
    if by == "image":
        return [frozenset((str(number),)) for number in range(len(store))]
    if by == "asset":
        found = store.assets()
    elif by == "name":
        labels = [frozenset({label} if label else ()) for label in store.labels()]
        found = [names | label for names, label in zip(store.names(), labels, strict=True)]
    else:
        values = store.rooms() if by == "room" else store.sources()
        if missing := values.count(""):
            raise ValueError(
                f"{missing} of {len(values)} images of {store.path} name no {by}; split by "
                "something else."
            )
        found = [frozenset((value,)) for value in values]
    if not any(found):
        raise ValueError(f"The images of {store.path} name no {by}; split by something else.")
    return found


def _chosen(
    names: Sequence[str], by: str, held_out: float | Sequence[str | int], seed: int
) -> frozenset[str]:
    if isinstance(held_out, str):
        raise ValueError(f"held_out is {held_out!r}; allowed: a share, or a list of names.")
    if isinstance(held_out, Sequence):
        chosen = [str(name) for name in held_out]  # YAML reads the name 7 as a number.
        for name in chosen:
            if name not in names:
                raise unknown_name(by, name, names)
        return frozenset(chosen)
    _INNER.check(held_out=held_out)
    count = max(1, round(held_out * len(names)))
    # Not a generator of random numbers: a new name must not move all others.
    return frozenset(sorted(names, key=lambda name: _order(name, seed))[:count])


def _order(name: str, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
