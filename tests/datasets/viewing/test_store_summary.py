"""The summary of a store is one file that a browser shows offline and without errors."""

import io
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from selenium import webdriver
from selenium.webdriver.common.by import By
from tests.browser import check_self_contained, chromium
from tests.datasets.conftest import MakeEpisode

from stringline import Contract, EpisodeAttributes, EpisodeStore
from stringline.datasets.data import main
from stringline.datasets.viewing.page_drawings import Histogram
from stringline.datasets.viewing.store_summary import summarise, write_summary


@pytest.fixture
def store(tmp_path: Path, contract: Contract, make_episode: MakeEpisode) -> EpisodeStore:
    """Seven episodes of two tasks with random numbers: jumps and grippers out of range."""
    store = EpisodeStore.create(tmp_path / "apples & <pears>")
    for seed in range(7):
        task, success = ("reach", seed > 1) if seed < 5 else ("press_button", None)
        arrays = make_episode(steps=60, seed=seed)
        arrays["depth/front"][:, :3] = 0
        store.write(
            arrays,
            EpisodeAttributes(contract, task, seed, success, "expert" if seed else "teleoperation"),
        )
    return store


@pytest.fixture
def page(store: EpisodeStore, tmp_path: Path) -> Path:
    """The summary of the store."""
    path = tmp_path / "pages" / "summary.html"
    write_summary(path, summarise(store))
    return path


def test_what_the_summary_counts(store: EpisodeStore) -> None:
    summary = summarise(store)
    assert summary.episodes == 7
    assert [
        (row.task, row.episodes, row.successes, row.failures, row.unlabelled)
        for row in summary.tasks
    ] == [("press_button", 2, 0, 0, 2), ("reach", 5, 3, 2, 0)]
    assert summary.sources == {"expert": 6, "teleoperation": 1}
    assert sum(row.seconds for row in summary.tasks) == pytest.approx(7 * 59 * 0.02)
    assert summary.bytes == sum(episode.nbytes for episode in store.episodes())
    front, wrist = summary.cameras
    assert front.coverage == (pytest.approx(0.5, abs=0.01), pytest.approx(0.5, abs=0.01))
    assert wrist.coverage is None
    assert front.rate_hz == pytest.approx(12.5)
    assert [histogram.counts.sum() for histogram in summary.action] == [420, 420]
    assert len(summary.strips) == 7
    assert {finding.kind for finding in summary.findings} == {"jump", "gripper"}


def test_many_episodes_are_sampled(store: EpisodeStore) -> None:
    summary = summarise(store, sample_size=3)
    assert (summary.episodes, summary.sample_size, len(summary.strips)) == (7, 3, 3)
    assert [histogram.counts.sum() for histogram in summary.action] == [180, 180]
    assert summary.durations.counts.sum() == 7


def test_damaged_episodes_are_named_and_left_out(store: EpisodeStore, tmp_path: Path) -> None:
    bad = store.names()[0]
    chunk = store.path / bad / "rgb.front/c/0/0/0/0"
    chunk.write_bytes(chunk.read_bytes()[:300])
    summary = summarise(store)
    assert summary.episodes == 6
    assert [bad in sentence for sentence in summary.damaged] == [True]
    write_summary(tmp_path / "page.html", summary)
    assert f"Episode {bad}: rgb/front has 300 bytes" in (tmp_path / "page.html").read_text()


def test_without_cameras_joints_and_depth(
    tmp_path: Path, contract: Contract, make_episode: MakeEpisode
) -> None:
    """A data set without these has a page as well."""
    store = EpisodeStore.create(tmp_path / "bare")
    arrays = {
        key: make_episode()[key]
        for key in ("time", "action", "T_base_gripper/one", "joints/position")
    }
    store.write(arrays, EpisodeAttributes(replace(contract, cameras=()), "reach", 0))
    blind = EpisodeStore.create(tmp_path / "blind")
    arrays = {
        key: array
        for key, array in make_episode().items()
        if "joints" not in key and "T_base_gripper" not in key
    }
    blind.write(arrays, EpisodeAttributes(replace(contract, joints=(), arms=()), "reach", 0))
    for each, state in ((store, 2), (blind, 0)):
        summary = summarise(each)
        assert len(summary.state) == state
        write_summary(tmp_path / "page.html", summary)
        assert ("Cameras" in (tmp_path / "page.html").read_text()) == (each is blind)


def test_an_episode_of_one_step_has_a_page(
    tmp_path: Path, contract: Contract, make_episode: MakeEpisode
) -> None:
    store = EpisodeStore.create(tmp_path / "short")
    store.write(make_episode(steps=1), EpisodeAttributes(contract, "reach", 0))
    summary = summarise(store)
    assert [camera.rate_hz for camera in summary.cameras] == [0, 0]
    write_summary(tmp_path / "page.html", summary)
    assert "1 episodes, 0.0 minutes" in (tmp_path / "page.html").read_text()


def test_a_store_without_episodes_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="There is no readable episode in"):
        summarise(EpisodeStore.create(tmp_path / "empty"))


def test_the_command(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["stringline-data", "summary", f"store='{store.path}'"])
    main()
    page = store.path.with_name(f"{store.path.name}_summary.html")
    assert capsys.readouterr().out.startswith(f"{page}: 7 episodes; stalls 0, jumps ")
    assert page.read_text().startswith("<!doctype html>")


def test_the_page_loads_no_other_file(page: Path) -> None:
    text = page.read_text()
    assert "<script" not in text
    addresses = re.findall(r"(?:src|href)=\"([^\"]*)", text) + re.findall(r"url\(([^)]*)", text)
    assert addresses
    assert [address[:40] for address in addresses if not address.startswith("data:")] == []


@pytest.mark.parametrize(
    "values", [[3.0], [2.0] * 5, [0.0, 1e-12], [-1e30, 1e30], [1, 2, np.nan, np.inf, 3]]
)
def test_histograms_count_every_finite_value(values: list[float]) -> None:
    histogram = Histogram.of("a <b>", "m", values)
    finite = np.array(values)[np.isfinite(values)]
    assert histogram.counts.sum() == len(finite)
    assert (histogram.low, histogram.high) == (finite.min(), finite.max())
    assert "a &lt;b&gt;" in histogram.svg()
    assert histogram.svg().count("<rect") == np.count_nonzero(histogram.counts)


def test_a_histogram_needs_values() -> None:
    with pytest.raises(ValueError, match="waist: there are no values to count"):
        Histogram.of("waist", "rad", [np.nan])


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """A browser for all tests."""
    with chromium() as driver:
        yield driver


@pytest.mark.slow
def test_a_browser_shows_it(browser: webdriver.Chrome, page: Path) -> None:
    """All images are drawn, the warnings open, nothing overflows, is fetched or logged."""
    browser.get(page.as_uri())
    assert browser.find_element(By.TAG_NAME, "h1").text == "apples & <pears>"
    assert "7 episodes" in browser.find_element(By.CLASS_NAME, "headline").text
    browser.execute_script(
        "document.querySelectorAll('img').forEach(image => image.loading = 'eager')"
    )
    sizes = browser.execute_async_script(
        "const done = arguments[0], images = [...document.images];"
        "Promise.all(images.map(image => image.decode())).then(() => done(images.map(image => "
        "image.naturalWidth)))"
    )
    assert len(sizes) == 3 + 7
    assert min(sizes) > 1
    jumps = browser.find_element(By.CSS_SELECTOR, "details.jump")
    row = jumps.find_element(By.CSS_SELECTOR, "td")
    assert not row.is_displayed()
    jumps.find_element(By.TAG_NAME, "summary").click()
    assert row.is_displayed()
    assert "reach" in row.text or "press_button" in row.text
    assert [
        entry.text for entry in browser.find_elements(By.CSS_SELECTOR, "p.stall, p.timing")
    ] == ["Stalls: none.", "Irregular frame and step times: none."]
    assert len(browser.find_elements(By.CSS_SELECTOR, "#actions svg rect")) > 20
    check_self_contained(browser)
    assert browser.get_log("browser") == []
    image = imread(io.BytesIO(browser.get_screenshot_as_png()))
    assert image.std() > 0.05
