"""A browser without a network shows a report: videos, filters, sorting, and a rotating cloud."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select
from tests.browser import check_self_contained, chromium
from tests.sim.clouds import cloud

from stringline import Rate, TaskSettings
from stringline.sim.evaluation.results import EpisodeResult
from stringline.sim.evaluation.runner import Trace, write_trace
from stringline.sim.report.report import Clip, Report, RerunCommand, choose_clips, write_report
from stringline.sim.rollout.rollout import Video


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two tasks with three episodes each, with three videos and one cloud."""
    folder = tmp_path_factory.mktemp("report")
    first = [
        EpisodeResult(
            s, s != 1, 2 - s % 2, ("", "lifted", "success")[2 - s % 2], 9.0 + s, 4, 40, 7.5
        )
        for s in range(3)
    ]
    second = [EpisodeResult(s, False, 0, "start", 20.0, 4, 40, 0.5 + s) for s in range(2)]
    second.append(EpisodeResult(2, False, 0, "start", 0.0, 0, 0.0, 0.0, "Its process was killed."))
    for seed in range(3):
        video = Video()
        for step in range(25):
            video.add(
                step * 0.08,
                np.full((32, 32, 3), step * 9, np.uint8),
                np.full((32, 32), 500 + step, np.uint16),
            )
        video.write(folder / "videos" / f"{seed}.mp4")
        courses = {"left": np.linspace(0, 1, 9, dtype=np.float32)}
        trace = Trace(
            ("start", "lifted"),
            {"lifted": 3.0},
            np.arange(9, dtype=np.float32),
            courses,
            np.ones(9, np.float32),
        )
        write_trace(folder / "videos" / f"{seed}.npz", trace, {})
    clips = choose_clips(first, folder / "videos", run="task_a")
    clips[0] = Clip(clips[0].path, clips[0].result, clips[0].run, cloud())
    task = TaskSettings("task_a", time_limit_s=3.0)
    report = Report(
        title="A & <b>",
        headline="It worked.",
        facts={"machine": "m" * 200},
        rates={"task_a": Rate(2, 3), "task_b": Rate(0, 3)},
        episodes={"task_a": first, "task_b": second},
        videos={"task_a": folder / "videos"},
        reruns={"task_a": RerunCommand("checkpoint", task, 24, folder)},
        clips=clips,
        losses=[(0, 1.0), (1, 0.5)],
        kind="task",
    )
    write_report(folder / "report.html", report)
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(page: Path) -> Iterator[webdriver.Chrome]:
    """A browser that has opened the report."""
    with chromium() as driver:
        driver.set_script_timeout(20)
        driver.get(page.as_uri())
        yield driver


def rows(browser: webdriver.Chrome) -> list[list[str]]:
    """Task, seed and outcome of the episodes that are shown, from top to bottom."""
    shown = [
        row
        for row in browser.find_elements(By.CSS_SELECTOR, "#episodes tbody tr")
        if row.is_displayed()
    ]
    return [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")[:3]] for row in shown]


@pytest.mark.slow
def test_videos_play(browser: webdriver.Chrome) -> None:
    """From the data in the page, in time with the clock."""
    found = browser.execute_async_script(
        "const done = arguments[0], video = document.querySelector('video');"
        "video.play().then(() => video.addEventListener('timeupdate', () => {"
        "  if (video.currentTime > 0.3) { video.pause(); done([video.currentTime, "
        "video.videoWidth, video.duration]); } }))"
        ".catch(error => done(String(error)))"
    )
    assert found[0] > 0.3
    assert found[1:] == [64, pytest.approx(2.0, abs=0.05)]


@pytest.mark.slow
def test_filters(browser: webdriver.Chrome) -> None:
    """Episodes and their videos, by outcome, task and stage, and together."""
    choices = {
        name: Select(browser.find_element(By.NAME, name)) for name in ("outcome", "run", "stage")
    }
    told = browser.find_element(By.CSS_SELECTOR, ".filter output")
    for chosen, seeds, videos in (
        ({}, 6, 3),
        ({"outcome": "success"}, 2, 2),
        ({"outcome": "failure"}, 4, 1),
        ({"run": "task_b"}, 3, 0),
        ({"stage": "lifted"}, 1, 1),
        ({"outcome": "failure", "run": "task_a"}, 1, 1),
        ({"outcome": "success", "run": "task_b"}, 0, 0),
    ):
        for name, choice in choices.items():
            choice.select_by_value(chosen.get(name, ""))
        assert len(rows(browser)) == seeds
        assert told.text == f"{seeds} of 6 episodes"
        assert (
            sum(figure.is_displayed() for figure in browser.find_elements(By.TAG_NAME, "figure"))
            == videos
        )
    for choice in choices.values():
        choice.select_by_value("")


@pytest.mark.slow
def test_sorting(browser: webdriver.Chrome) -> None:
    """By number, in both orders, missing values last, also from the keyboard."""
    headers = browser.find_elements(By.CSS_SELECTOR, "#episodes th")
    button = next(header for header in headers if "rad" in header.text).find_element(
        By.TAG_NAME, "button"
    )
    key = (
        "return [...document.querySelectorAll('#episodes tbody tr')].map(row => "
        "row.cells[9].textContent)"
    )
    button.click()
    assert browser.execute_script(key) == ["0.5", "1.5", "7.5", "7.5", "7.5", "-"]
    button.send_keys(Keys.ENTER)
    assert browser.execute_script(key) == ["7.5", "7.5", "7.5", "1.5", "0.5", "-"]
    assert [header.get_attribute("aria-sort") for header in headers].count("descending") == 1
    headers[1].find_element(By.TAG_NAME, "button").click()
    assert [row[1] for row in rows(browser)] == ["0", "0", "1", "1", "2", "2"]
    assert [row[2] for row in rows(browser)][-2:].count("incomplete") == 1


def test_the_cloud_turns(browser: webdriver.Chrome) -> None:
    """By mouse and by keys; colours and attention differ, and have a scale."""
    canvas = browser.find_element(By.TAG_NAME, "canvas")
    image = (
        "const canvas = document.querySelector('canvas'), data = canvas.getContext('2d')"
        ".getImageData(0, 0, canvas.width, canvas.height).data;"
        "let red = 0, blue = 0, hash = 0; for (let i = 0; i < data.length; i += 4) {"
        "  red += data[i] > 150 && data[i + 2] < 60; blue += data[i + 2] > 150;"
        "  hash = (hash * 31 + data[i] + data[i + 2]) | 0; }"
        "return [red, blue, hash]"
    )
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    red, blue, at_first = browser.execute_script(image)
    assert red > 1000
    assert blue > 50
    webdriver.ActionChains(browser, duration=50).click_and_hold(canvas).move_by_offset(
        60, 10
    ).release().perform()
    turned = browser.execute_script(image)[2]
    assert turned != at_first
    canvas.send_keys(Keys.ARROW_LEFT)
    assert (again := browser.execute_script(image)[2]) not in (turned, at_first)
    webdriver.ActionChains(browser).scroll_from_origin(
        ScrollOrigin.from_element(canvas), 0, 200
    ).perform()
    assert browser.execute_script(image)[2] != again
    box = browser.find_element(By.CLASS_NAME, "cloud")
    Select(box.find_element(By.TAG_NAME, "select")).select_by_visible_text(
        "attention of the right arm"
    )
    assert browser.execute_script(image)[1] == 0
    assert box.find_element(By.TAG_NAME, "output").text == "all patches: 32 %, the largest: 25.0 %"


def test_a_telephone_shows_all_in_its_width(browser: webdriver.Chrome) -> None:
    """Only tables are wider, in boxes that scroll; text of charts has at least 8 pixels."""
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    wider, smallest, scrolling, posters = browser.execute_script(
        "const width = document.documentElement.clientWidth;"
        "const wider = [...document.querySelectorAll('body *')].filter(one =>"
        "  one.getBoundingClientRect().right > width + 1 && !one.closest('.card table'));"
        "const sizes = [...document.querySelectorAll('.card > svg text, figure svg text')].map("
        "  one => { const box = one.closest('svg'); return parseFloat(getComputedStyle(one)"
        "  .fontSize) * box.getBoundingClientRect().width / box.viewBox.baseVal.width; });"
        "const box = document.querySelector('#episodes .card');"
        "return [wider.map(one => one.outerHTML.slice(0, 80)), Math.min(...sizes),"
        "  box.scrollWidth > box.clientWidth, [...document.querySelectorAll('video')].filter("
        "  one => one.poster.startsWith('data:image/jpeg;base64,')).length];"
    )
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wider == []
    assert smallest >= 8
    assert scrolling
    assert posters == 3


def test_no_requests_no_overflow_no_log_entries(browser: webdriver.Chrome) -> None:
    """The command is beside its episode, too."""
    assert browser.find_element(By.TAG_NAME, "h1").text == "A & <b>"
    commands = [command.text for command in browser.find_elements(By.CSS_SELECTOR, "figure pre")]
    assert [
        f"first_seed={seed} " in command for seed, command in zip((0, 2, 1), commands, strict=True)
    ] == [True] * 3
    check_self_contained(browser)
    # Tests read the canvas back, which Chromium thinks could be quicker.
    assert [
        entry for entry in browser.get_log("browser") if "getImageData" not in entry["message"]
    ] == []
