"""HTML pages: files that a browser shows without a network, made of a few blocks.

A page has sections, and a section has blocks. Texts are escaped wherever they stand; HTML comes
from blocks alone, and the only ones that take it from outside are `Svg` and classes that
override `__html__`. The template, the style and the scripts lie in `assets`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import jinja2

from stringline.datasets.files.atomic import write_file

_ASSETS = Path(__file__).parent / "assets"
SORTING = _ASSETS / "sorting.js"
"""The script of tables with `Column.sort`, and of `Filter`."""

Style = Literal["", "quiet", "good", "bad", "accent"]


class Block:
    """A part of a page, drawn by the macro of the template that has the name of its class."""

    def __html__(self) -> str:
        return _draw(type(self).__name__, self)


Content: TypeAlias = str | int | float | Block
Contents: TypeAlias = Content | Sequence[Content]


@dataclass(frozen=True)
class Text(Block):
    """A paragraph."""

    content: Contents
    style: Style | Literal["headline"] = ""
    name: str = ""


@dataclass(frozen=True)
class Span(Block):
    """Words inside of a paragraph or a cell."""

    content: Content
    style: Style


@dataclass(frozen=True)
class Heading(Block):
    """A heading inside of a section."""

    content: str


@dataclass(frozen=True)
class Code(Block):
    """Lines of a command or of numbers, as they are."""

    content: str


@dataclass(frozen=True)
class Link(Block):
    """A link to a file beside the page."""

    address: str
    content: str


@dataclass(frozen=True)
class Items(Block):
    """A list."""

    items: Sequence[Contents]
    name: str = ""


@dataclass(frozen=True)
class Fold(Block):
    """Blocks that a click on the title opens; `label` is the title for screen readers."""

    title: Content
    content: Contents
    style: Style = ""
    name: str = ""
    label: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its heading, followed by the unit.
        kind: `number` is aligned to the right, `wrap` may have several lines.
        form: Format of the numbers in it, as `.1f`; empty: as they are.
        sort: Whether a click on the heading sorts the rows; see `SORTING`.
    """

    name: str
    unit: str = ""
    kind: Literal["text", "wrap", "number"] = "text"
    form: str = ""
    sort: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell with its own style, the value by which it is sorted, or a width of several columns."""

    content: Contents
    style: Style = ""
    value: float | None = None
    span: int = 1


CellContent: TypeAlias = Content | Cell | None


@dataclass(frozen=True)
class Row:
    """A row of a table; a cell that is None has no value.

    Attributes:
        marks: Values by which a `Filter` chooses.
        below: Whether it details the row above.
    """

    cells: Sequence[CellContent]
    marks: Mapping[str, str] = field(default_factory=dict)
    below: bool = False


@dataclass(frozen=True)
class Table(Block):
    """A table with headings; a dense one has smaller letters."""

    columns: Sequence[Column]
    rows: Sequence[Row | Sequence[CellContent]]
    dense: bool = False

    def lines(self) -> list[Row]:
        """Returns the rows."""
        return [row if isinstance(row, Row) else Row(row) for row in self.rows]

    @staticmethod
    def shown(column: Column, content: Content) -> Content:
        """Returns a content with the format of its column."""
        if column.form and isinstance(content, int | float):
            return format(content, column.form)
        return content


@dataclass(frozen=True)
class Facts(Block):
    """A table of names with their values."""

    values: Mapping[str, Content]
    numbers: bool = False


@dataclass(frozen=True)
class Svg(Block):
    """A drawing, whose texts the caller has escaped."""

    text: str


@dataclass(frozen=True)
class Image(Block):
    """An image: a data URL, or the name of a file beside the page; `over` is drawn on it."""

    address: str
    label: str
    over: Svg | None = None
    pixelated: bool = False


@dataclass(frozen=True)
class Video(Block):
    """A video with its first image, base64 of mp4 and JPEG."""

    mp4: str
    poster: str
    label: str
    wide: bool = False


@dataclass(frozen=True)
class Figure(Block):
    """Images, videos or drawings with a caption; `marks` as those of a row."""

    content: Contents
    caption: Contents = ""
    after: Contents = ""
    marks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Card(Block):
    """Blocks in a box, in which wide tables scroll."""

    content: Contents


@dataclass(frozen=True)
class Grid(Block):
    """Blocks side by side, as many as the width has room for.

    Attributes:
        least_rem: Smallest width of a column.
        stretched: Whether few blocks take the whole width.
    """

    blocks: Sequence[Block]
    least_rem: float
    stretched: bool = False


@dataclass(frozen=True)
class Choice:
    """A choice of a filter: the mark, its name, and the texts of its values."""

    mark: str
    name: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Filter(Block):
    """Choices that hide all rows and figures of the page with other marks; see `SORTING`."""

    label: str
    choices: Sequence[Choice]
    counted: str


@dataclass(frozen=True)
class Section(Block):
    """Blocks under a heading; `name` is the address of the section on its page."""

    name: str
    title: Contents
    content: Sequence[Content]


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        title: Its name and first heading.
        top: Blocks below the title.
        sections: The contents; those without blocks are left out.
        scripts: Files of JavaScript, which become part of the page.
    """

    title: str
    top: Sequence[Block]
    sections: Sequence[Section]
    scripts: Sequence[Path] = ()

    def html(self) -> str:
        """Returns the text of the page."""
        return _draw(
            "Page",
            self,
            [section for section in self.sections if section.content],
            (_ASSETS / "page.css").read_text(),
            [script.read_text() for script in self.scripts],
        )

    def write(self, path: Path) -> None:
        """Writes the page atomically, in a folder that is made if it is missing.

        Raises:
            NoSpaceError: The disk is full.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, self.html().encode())


def _draw(name: str, *arguments: object) -> str:
    return str(getattr(_macros(), name)(*arguments))


@cache
def _macros() -> object:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["several"] = lambda content: isinstance(content, list | tuple)
    return environment.get_template("page.html.jinja").module
