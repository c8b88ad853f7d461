"""Pages consist of blocks, escape every text and need no network."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stringline.datasets.files.pages import (
    SORTING,
    Block,
    Card,
    Cell,
    Choice,
    Code,
    Column,
    Facts,
    Figure,
    Filter,
    Fold,
    Grid,
    Heading,
    Image,
    Items,
    Link,
    Page,
    Row,
    Section,
    Span,
    Svg,
    Table,
    Text,
    Video,
)

BAD = "<b>\"'&"
ESCAPED = "&lt;b&gt;&#34;&#39;&amp;"
SVG = Svg("<svg><rect/></svg>")
BLOCKS = [
    Text(BAD),
    Text([BAD, Span(BAD, "good")]),
    Text("", name=BAD),
    Heading(BAD),
    Code(BAD),
    Link(BAD, BAD),
    Items([BAD, [BAD, SVG]], BAD),
    Fold(BAD, BAD, "quiet", BAD, BAD),
    Table([Column(BAD, BAD)], [[BAD], Row([Cell(BAD)], {"mark": BAD})]),
    Facts({BAD: BAD}),
    Image(BAD, BAD),
    Video(BAD, BAD, BAD),
    Figure(BAD, BAD, BAD, {"mark": BAD}),
    Card([BAD]),
    Grid([Text(BAD)], 10),
    Filter(BAD, [Choice(BAD, BAD, {BAD: BAD})], BAD),
    Section(BAD, BAD, [BAD]),
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: type(block).__name__)
def test_every_text_of_a_block_is_escaped(block: Block) -> None:
    """As often as the block has it."""
    html = block.__html__()
    assert html.count(ESCAPED) == repr(block).count(repr(BAD))
    assert "<b>" not in html


def test_blocks_inside_of_blocks_stay_as_they_are() -> None:
    html = Section("a", "b", [Card(Grid([Figure(SVG, Text(["x ", Span("y", "bad")]))], 5))])
    assert "<svg><rect/></svg>" in html.__html__()
    assert '<p>x <span class="bad">y</span></p>' in html.__html__()


def test_a_table_has_units_formats_and_missing_values() -> None:
    columns = [Column("a"), Column("t", "s", "number", ".1f", sort=True), Column("n")]
    rows = [["x", 1.25, 3], Row([Cell("y", "bad", 7.0), None, 0], {"run": "r"}, below=True)]
    table = ElementTree.fromstring(
        Table(columns, rows).__html__().replace("&nbsp;", " ").replace("data-sort", "data-sort=''")
    )
    assert ["".join(cell.itertext()) for cell in table.iter("th")] == ["a", "t, s", "n"]
    lines = list(table.iter("tr"))[1:]
    assert [["".join(cell.itertext()) for cell in line] for line in lines] == [
        ["x", "1.2", "3"],
        ["y", "-", "0"],
    ]
    assert lines[1].attrib == {"class": "below", "data-run": "r"}
    assert lines[1][0].attrib == {"class": "bad", "data-value": "7.0"}
    assert lines[1][1].attrib == {"class": "number", "data-value": ""}


def test_a_page_loads_nothing_and_runs_only_the_given_scripts(tmp_path: Path) -> None:
    sections = [Section("one", "One", [SVG]), Section("none", "None", [])]
    plain, sorted_page = (
        Page(BAD, [Text("top")], sections, scripts).html() for scripts in ((), (SORTING,))
    )
    for html in (plain, sorted_page):
        assert html.startswith("<!doctype html>")
        assert html.count(ESCAPED) == 2
        assert not re.findall(r"\w+://|@import|url\(|src=", html)
        assert "default-src 'none'" in html
        assert re.findall(r'<section id="(\w+)">', html) == ["one"]
    assert "<script" not in plain
    assert "script-src 'none'" in plain
    assert sorted_page.count("<script>") == 1
    Page("t", [], sections).write(tmp_path / "new" / "page.html")
    assert (tmp_path / "new" / "page.html").read_text().endswith("</html>\n")
