"""The report has all contents in one self-contained file."""

import base64
import json
import os
import platform
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from tests.sim.clouds import cloud

import stringline.sim.report.report
from stringline import Rate, TaskSettings
from stringline.datasets.files.pages import Section
from stringline.sim.evaluation.results import EpisodeResult
from stringline.sim.evaluation.runner import Trace, write_trace
from stringline.sim.report.charts import rates_chart, training_chart
from stringline.sim.report.report import (
    Clip,
    Report,
    RerunCommand,
    choose_clips,
    duration,
    package_versions,
    system_info,
    write_report,
)
from stringline.sim.rollout.rollout import Video

TASK = {"name": "t", "time_limit_s": 3.0, "frame_hz": 12.5, "options": {}}
VOID = {"meta", "link", "br", "img", "input", "hr", "use", "path", "rect"}


class Page(HTMLParser):
    """Collects tags, attributes and text, and sees that tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.inside: dict[str, int] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.text += " "
        if tag not in VOID:
            self.open.append(tag)
            if tag in ("script", "svg", "video"):
                self.inside[tag] = self.inside.get(tag, 0) + 1

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Videos of seeds 0 to 4."""
    seen = {"rgb/overhead": np.zeros((2, 2, 3), np.uint8)}
    (tmp_path / "videos").mkdir()
    for seed in range(5):
        courses = {
            "left": np.linspace(0, 1, 9, dtype=np.float32),
            "<right>": np.zeros(9, np.float32),
        }
        trace = Trace(
            ("", "lifted_<b>"),
            {"lifted_<b>": 1.25},
            np.arange(9, dtype=np.float32),
            courses,
            np.ones(9, np.float32),
        )
        if seed < 4:
            write_trace(tmp_path / "videos" / f"{seed}.npz", trace, seen)
        video = Video()
        for step in range(3):
            video.add(
                step * 0.08,
                np.full((16, 16, 3), seed * 20, np.uint8),
                np.full((16, 16), 500 + step, np.uint16),
            )
        video.write(tmp_path / "videos" / f"{seed}.mp4")
    return tmp_path / "videos"


def results() -> list[EpisodeResult]:
    """Six episodes, every second a success; the last one has no video."""
    return [
        EpisodeResult(
            s,
            s % 2 == 0,
            2 * (s % 2 == 0),
            "start" if s % 2 else "placed",
            3.25 + s,
            9,
            41.5,
            7.5,
            "",
            48.25,
            0.125,
        )
        for s in range(6)
    ]


def full(videos: Path) -> Report:
    """A report with everything in it."""
    return Report(
        title="Banana <script>alert(1)</script>",
        headline="It worked & well.",
        facts={"machine": system_info(), "seeds": "0 to 5"},
        rates={"expert": Rate(10, 10), "policy": Rate(3, 6), "policy through the wire": Rate(0, 0)},
        failures={"no_such_task": "There is <none> & will be none."},
        phases={"collect": 61.0, "train": 3.25},
        episodes={"policy": results()},
        videos={"policy": videos},
        reruns={
            "policy": RerunCommand(
                "a <b>",
                TaskSettings("t", time_limit_s=3.0),
                24,
                Path("out"),
            )
        },
        clips=choose_clips(results(), videos, run="policy"),
        losses=[(step, 1 / (step + 1)) for step in range(1500)],
        probes=[
            (0, {"explained": -0.2, "aim_mm": 80.0}),
            (1000, {"explained": 0.9, "aim_mm": 9.0}),
        ],
        validations=[(0, 1.5), (1000, 0.01)],
        successes=[(500, Rate(1, 10)), (1000, Rate(9, 10))],
        commands=["stringline-demo seed=0"],
        notes=["The expert sees poses."],
        finished=datetime(2030, 1, 2, 3, 4, tzinfo=UTC),
    )


@pytest.mark.slow
def test_the_page_has_all_contents(tmp_path: Path, videos: Path) -> None:
    """Every number and sentence is on the page, and texts of the user are escaped."""
    write_report(tmp_path / "new" / "report.html", full(videos))
    page = Page((tmp_path / "new" / "report.html").read_text())
    assert page.open == []
    text = " ".join(page.text.split())
    for sentence in (
        "Banana <script>alert(1)</script>",
        "It worked & well.",
        "Finished 2030-01-02 03:04 UTC, after 1 min 04 s.",
        "expert 10 10 100 % 72 to 100 %",
        "policy 3 6 50 % 19 to 81 % 5.2 7.5 12.5 41.5 48.2",
        "reached placed 3 6 50 % 19 to 81 %",
        "no such task could not be evaluated: There is <none> & will be none.",
        "policy through the wire 0 0 - 0 to 100 %",
        "The expert sees poses.",
        (
            "policy 2 success placed 5.2 Stages reached: lifted <b> 1.2 s. 9 41.5 48.2 7.5 12.5 "
            "command stringline-eval"
        ),
        "stringline-demo seed=0",
        "Success after 3.2 s; policy, seed 0 Reached: lifted <b> 1.2 s",
        "Failure at stage start; policy, seed 1",
        "explained",
        "aim, mm",
        "validation",
        "the loss of the averaged weights on held-out episodes",
        "Success during training is measured on other seeds than the reported results",
        system_info(),
    ):
        assert sentence in text, sentence


@pytest.mark.slow
def test_the_page_is_self_contained(tmp_path: Path, videos: Path) -> None:
    """No address, no host name, a strict policy, embedded videos, and unique identifiers."""
    write_report(tmp_path / "report.html", full(videos))
    page = Page((tmp_path / "report.html").read_text())
    links = [
        (tag, value)
        for tag, name, value in page.attributes
        if name in ("src", "href", "xlink:href", "action", "data")
    ]
    assert all(value.startswith(("data:", "#")) for _, value in links)
    written = (tmp_path / "report.html").read_text()
    assert not re.findall(r"\w+://|@import|url\((?!#)|\bfetch\b|XMLHttpRequest|WebSocket", written)
    assert "default-src 'none'" in written
    assert not [name for tag, name, _ in page.attributes if tag == "script" and name == "src"]
    embedded = [base64.b64decode(value.split(",")[1]) for tag, value in links if tag == "video"]
    assert embedded == [(videos / f"{seed}.mp4").read_bytes() for seed in (0, 2, 4, 1, 3)]
    identifiers = [value for _, name, value in page.attributes if name == "id"]
    assert len(set(identifiers)) == len(identifiers)
    assert {value[1:] for _, value in links if value.startswith("#")} <= set(identifiers)


def test_bare_report(tmp_path: Path) -> None:
    """Sections without content are omitted."""
    write_report(tmp_path / "report.html", Report("Only a title", "", {"a": "b"}, {}))
    page = Page((tmp_path / "report.html").read_text())
    assert page.open == []
    assert [value for tag, name, value in page.attributes if (tag, name) == ("section", "id")] == [
        "run"
    ]


@pytest.mark.slow
def test_stays_small(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Videos that do not fit are omitted, the first ones kept."""
    path, report = tmp_path / "report.html", full(videos)
    write_report(path, report)
    everything = path.stat().st_size
    assert path.read_text().count("<video") == 5
    assert "omitted" not in path.read_text()
    for largest, count in ((everything + 500, 5), (everything - 1, 4), (everything - 8000, None)):
        monkeypatch.setattr(stringline.sim.report.report, "LARGEST_BYTES", largest)
        write_report(path, report)
        assert path.stat().st_size <= largest
        page = Page(path.read_text())
        videos_there = page.inside.get("video", 0)
        assert videos_there == count if count is not None else videos_there < 4
        assert (f"{5 - videos_there} more video" in page.text) == (videos_there < 5)
        assert [
            f"policy, seed {seed} Reached" in " ".join(page.text.split())
            for seed in (0, 2, 4, 1, 3)
        ][:videos_there].count(True) == len({0, 2, 1, 3} & set((0, 2, 4, 1, 3)[:videos_there]))


@pytest.mark.slow
def test_too_much_text(tmp_path: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Timelines are omitted first, then the report is refused; an existing file stays."""
    path, report = tmp_path / "report.html", full(videos)
    write_report(path, replace(report, clips=()))
    alone = path.stat().st_size
    monkeypatch.setattr(stringline.sim.report.report, "LARGEST_BYTES", alone - 100)
    write_report(path, report)
    page = Page(path.read_text())
    assert page.inside.get("video", 0) == 0
    assert page.inside["svg"] == 2
    assert "5 more videos were omitted" in page.text
    monkeypatch.setattr(stringline.sim.report.report, "LARGEST_BYTES", 5000)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"The report would have 0 MB; allowed: 0 MB\."):
        write_report(path, report)
    assert path.read_bytes() == before


def test_lost_episodes_are_listed(tmp_path: Path) -> None:
    """Episodes whose worker died, or whose physics became unstable, are listed with their seed."""
    lost = EpisodeResult(
        5, False, 0, "start", 0.0, 0, 0.0, 0.0, "The process was killed (signal 9) & gone."
    )
    unstable = EpisodeResult(6, False, 0, "start", 4.5, 3, 40.0, 1.0, unstable=True)
    report = Report(
        "t", "h", {}, {"a_b": Rate(0, 3)}, episodes={"a_b": [*results()[1:2], lost, unstable]}
    )
    write_report(tmp_path / "report.html", report)
    text = " ".join(Page((tmp_path / "report.html").read_text()).text.split())
    assert "a b, seed 5: The process was killed (signal 9) & gone." in text
    assert "a b, seed 6: the physics became unstable after 4.5 s." in text
    assert "a b 5 incomplete start 0.0 0 - - - -" in text
    assert "a b 6 unstable start" in text
    assert "seed 1:" not in text


def test_embeds_a_comparison_and_a_cloud(tmp_path: Path, videos: Path) -> None:
    """A comparison as a section; a cloud as JSON, in which no text ends the script."""
    clip = replace(choose_clips(results(), videos)[0], cloud=cloud("</script><b>"))
    section = Section("comparison", "A & B", ["<i>"])
    report = Report("t", "h", {}, {}, clips=[clip], sections=[section])
    write_report(tmp_path / "report.html", report)
    written = (tmp_path / "report.html").read_text()
    page = Page(written)
    assert page.open == []
    assert '<section id="comparison">\n<h2>A &amp; B</h2>\n&lt;i&gt;</section>' in written
    found = json.loads(written.split('type="application/json">')[1].split("</script>")[0])
    assert [arm["name"] for arm in found["arms"]] == ["</script><b>", "right"]
    assert "attention of the </script><b> arm" in page.text


def test_choice_of_clips(videos: Path) -> None:
    """The first successes, then the first failures; episodes without a video are omitted."""
    chosen = choose_clips(results(), videos, successes=2, failures=5)
    assert [clip.result.seed for clip in chosen] == [0, 2, 1, 3]
    assert all(isinstance(clip, Clip) and clip.path.exists() for clip in chosen)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.84, "0.8 s"),
        (42.4, "42 s"),
        (59.7, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7800, "2 h 10 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    """Durations as text."""
    assert duration(seconds) == text


def test_charts_take_the_colours_of_the_page() -> None:
    """Text and lines have the page's colours, for dark mode; whiskers end with the interval."""
    chart = rates_chart({"a": Rate(3, 6)}) + training_chart([(0, 1.0), (1, 0.5)], [])
    assert "currentColor" in chart
    assert "var(--accent)" in chart
    assert set(re.findall(r"#[0-9a-f]{6}", chart)) == set()


def test_machine_without_host_name() -> None:
    """The kind of machine without its name."""
    assert "core" in system_info()
    assert platform.node() not in system_info()
    assert os.uname().nodename not in str(package_versions())
    assert package_versions()["python"] == platform.python_version()
