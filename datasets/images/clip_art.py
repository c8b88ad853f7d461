"""Open Clip Art: drawings in folders, with titles and keywords in their SVG files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from stringline.datasets.images.image_files import read_colours
from stringline.datasets.images.image_folder import class_of
from stringline.datasets.images.labelled_image import LabelledImage
from stringline.datasets.images.omissions import Omissions
from stringline.datasets.images.reading import ItemReference, files_below

_DC = "{http://purl.org/dc/elements/1.1/}"
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_MOST_BYTES = 8 * 2**20


@dataclass(frozen=True, kw_only=True)
class ClipArtImages:
    """Reads the folder `png` of Open Clip Art, as in Debian's package `openclipart-png`.

    The label is the first folder. The title is the first caption, the keywords are the second one.

    Attributes:
        svg: Folder of the SVG files, in the same folders as the images; None: no captions.
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
