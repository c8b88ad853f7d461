"""Data sets of images or clips with a class each.

Image folders, and folders of videos such as UCF101 (Soomro et al., 2012), have a folder for each
class. CIFAR-10 and CIFAR-100 are read in the binary version (Krizhevsky, 2009). Open Clip Art has
drawings in folders, with titles and keywords in their SVG files. Emoji in three styles come from
the packages of npm that contain their images.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args
from xml.etree import ElementTree

import numpy as np

from stringline.datasets.contract.argument_checks import COUNT, unknown_name
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.video import VIDEO_SUFFIXES, evenly_spaced_frames
from stringline.datasets.images.labelled_image import LabelledClip, LabelledImage
from stringline.datasets.images.reading import (
    ItemReference,
    Omissions,
    OmittedError,
    files_below,
    read_colours,
)

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


@dataclass(frozen=True, kw_only=True)
class ImageFolder:
    """Reads `CLASS/.../NAME.png` and other image files.

    The label is the first folder below the path; images directly in the path have none.
    """

    def references(self, path: Path, omissions: Omissions) -> Sequence[ItemReference]:
        """Lists the images, sorted by path."""
        return [
            ItemReference(f"{file.relative_to(path)}", partial(_folder_image, path, file))
            for file in files_below(path)
        ]


def _folder_image(path: Path, file: Path) -> LabelledImage:
    return LabelledImage(rgb=read_colours(file), label=class_of(path, file))


def class_of(path: Path, file: Path) -> str | None:
    """Returns the first folder below `path` on the way to a file; None without one."""
    folders = file.relative_to(path).parts[:-1]
    return folders[0] if folders else None


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
            for reference in _cifar_references(path / file, part, version.labels, names, omissions)
        ]


def _cifar_references(
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
        ItemReference(
            f"{file.name}, {row}", partial(_cifar_image, records, row, labels, part, names)
        )
        for row in range(count)
    ]


def _cifar_image(
    records: np.ndarray, row: int, labels: int, part: str, names: Sequence[str]
) -> LabelledImage:
    number = int(records[row, labels - 1])
    if number >= len(names):
        raise OmittedError("images", f"their label is not among the {len(names)} classes")
    planes = records[row, labels:].reshape(3, _SIDE, _SIDE)
    rgb = np.ascontiguousarray(planes.transpose(1, 2, 0))
    return LabelledImage(rgb=rgb, label=names[number], source=part)


_DC = "{http://purl.org/dc/elements/1.1/}"
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_MOST_BYTES = 8 * 2**20


@dataclass(frozen=True, kw_only=True)
class ClipArtImages:
    """Reads the folder `png` of Open Clip Art, as in Debian's package `openclipart-png`.

    The label is the first folder. The title is the first caption, the keywords are the second one.

    Attributes:
        svg: Folder of the SVG files, in the same folders as the images; if None, no captions.
    """

    svg: str | None = None

    def references(self, path: Path, omissions: Omissions) -> Sequence[ItemReference]:
        """Lists the images, sorted by path."""
        return [
            ItemReference(f"{file.relative_to(path)}", partial(self._read, path, file, omissions))
            for file in files_below(path, (".png",))
        ]

    def _read(self, path: Path, file: Path, omissions: Omissions) -> LabelledImage:
        rgb = read_colours(file)
        captions: tuple[str, ...] = ()
        if self.svg is not None:
            name = file.relative_to(path).with_suffix(".svg")
            captions = tuple(_captions(Path(self.svg) / name, omissions))
        return LabelledImage(rgb=rgb, label=class_of(path, file), captions=captions)


def _captions(file: Path, omissions: Omissions) -> Iterator[str]:
    """Yields the title and the keywords of an SVG file."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            omissions.add("captions", f"the SVG file has more than {_MOST_BYTES} bytes", file.name)
            return
        root = ElementTree.fromstring(file.read_bytes())  # Expat limits entities.
    except FileNotFoundError:
        omissions.add("captions", "the SVG file is missing", file.name)
        return
    except (OSError, ElementTree.ParseError, ValueError, LookupError):
        omissions.add("captions", "the SVG file is damaged", file.name)
        return
    # Not all titles: agents within a work have some, too.
    works = [each for each in root.iter() if str(each.tag).endswith("}Work")]
    titles = (_text(each) for work in works for each in work.findall(f"{_DC}title"))
    title = next((text for text in titles if text), None)
    subjects = [each for work in works for each in work.findall(f"{_DC}subject")]
    words = [text for each in subjects for text in _keywords(each)]
    if title is None and not words:
        omissions.add("captions", "the SVG file has neither title nor keywords", file.name)
    if title is not None:
        yield title
    if words:
        yield ", ".join(dict.fromkeys(words))


def _keywords(subject: ElementTree.Element) -> Iterator[str]:
    items = [_text(each) for each in subject.iter(f"{_RDF}li")]
    yield from (text for text in items or [_text(subject)] if text)


def _text(element: ElementTree.Element) -> str:
    return " ".join((element.text or "").split())


EmojiLabel = Literal["name", "category", "subcategory"]
_DATASETS = {"google": "emoji-datasource-google", "twitter": "emoji-datasource-twitter"}
_FLUENT = "@lobehub/fluent-emoji-3d"
STYLES = (*_DATASETS, "fluent")
_SKIN_TONE = re.compile(r"1f3f[b-f]")
# Selects the coloured drawing of a character; names of files have it or not.
_SELECTOR = "fe0f"


@dataclass(frozen=True, kw_only=True)
class EmojiImages:
    """Reads `node_modules` with `emoji-datasource-google` or `-twitter`, and Fluent if it is there.

    The packages come from `npm install emoji-datasource-google emoji-datasource-twitter
    @lobehub/fluent-emoji-3d`. One emoji has the same name in all styles, which are the sources.
    Emoji with skin tones are left out. The name is the caption. The drawings are licensed under
    Apache 2.0 (Google), CC-BY 4.0 (Twitter) and MIT (Fluent).

    Attributes:
        label: `name`, `category` or `subcategory`.
        flags: Whether flags are read; most of them differ little between the styles.
        in_all_styles: Whether emoji that a style lacks are left out of the others, too.
    """

    label: EmojiLabel = "name"
    flags: bool = False
    in_all_styles: bool = False

    def __post_init__(self) -> None:
        if self.label not in get_args(EmojiLabel):
            raise unknown_name("label of emoji", self.label, get_args(EmojiLabel))

    def references(self, path: Path, omissions: Omissions) -> Sequence[ItemReference]:
        """Lists the images by style, in the order of the first package.

        Raises:
            ForeignDataError: No package has the names, or they cannot be read.
        """
        entries = self._entries(path, omissions)
        files = {style: _files(path, style) for style in STYLES}
        present = {style: found for style, found in files.items() if found}
        for style in sorted(files.keys() - present.keys()):
            omissions.add("styles", "the package is missing", style)
        found = []
        for style, by_points in present.items():
            for points, entry in entries.items():
                lacking = [each for each in present if points not in present[each]]
                if points not in by_points:
                    omissions.add("images", f"there is none in the style {style}", points)
                elif self.in_all_styles and lacking:
                    omissions.add("images", f"there is none in the style {lacking[0]}", points)
                else:
                    read = partial(_emoji_image, by_points[points], entry, self.label, style)
                    found.append(ItemReference(f"{style}, {points}", read))
        return found

    def _entries(self, path: Path, omissions: Omissions) -> dict[str, dict[str, Any]]:
        """Returns the description of each emoji by its code points."""
        found = {}
        for entry in _descriptions(path):
            points = _code_points(entry["unified"])
            for tone in entry.get("skin_variations", ()):
                omissions.add("emoji", "with skin tones", f"{points} {tone}")
            if entry["category"] == "Flags" and not self.flags:
                omissions.add("emoji", "flags (flags=false)", points)
            elif not _SKIN_TONE.search(points) or _SKIN_TONE.fullmatch(points):
                found[points] = entry
        return found


def _descriptions(path: Path) -> list[dict[str, Any]]:
    files = [path / package / "emoji.json" for package in _DATASETS.values()]
    file = next((each for each in files if each.is_file()), None)
    if file is None:
        raise ForeignDataError(
            f"{path} has none of the packages {', '.join(_DATASETS.values())}; run in its parent: "
            "npm install emoji-datasource-google"
        )
    try:
        entries = json.loads(file.read_bytes())
        for entry in entries:
            for name in ("unified", "name", "category", "subcategory"):
                entry[name] = str(entry[name] or entry["short_name"])
        # Two emoji are named "man in tuxedo"; only their short names differ.
        counts = Counter(entry["name"] for entry in entries)
        for entry in entries:
            if counts[entry["name"]] > 1:
                entry["name"] = str(entry["short_name"]).replace("_", " ")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ForeignDataError(f"{file} does not describe emoji: {error!r}.") from error
    return entries  # type: ignore[no-any-return]


def _files(path: Path, style: str) -> Mapping[str, Path]:
    """Returns the images of a style by code points."""
    if style in _DATASETS:
        folder = path / _DATASETS[style] / "img" / style / "64"
        return {_code_points(file.stem): file for file in sorted(folder.glob("*.png"))}
    folder = path / _FLUENT / "assets"
    return {_code_points(file.stem): file for file in sorted(folder.glob("*.webp"))}


def _code_points(name: str) -> str:
    points = name.lower().split("-")
    return "-".join(point for point in points if point != _SELECTOR)


def _emoji_image(
    file: Path, entry: Mapping[str, str], label: EmojiLabel, style: str
) -> LabelledImage:
    name = entry["name"].lower()
    if not name.strip():
        raise OmittedError("emoji", "without a name")
    return LabelledImage(
        rgb=read_colours(file),
        label=name if label == "name" else entry[label],
        captions=(name,),
        source=style,
    )
