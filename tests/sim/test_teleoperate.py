"""Teleoperation in a browser: move a gripper, record and keep; and errors of the server."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait
from tests.sim.points import MODEL

from stringline import ALOHA, EpisodeStore, Trainer, Vector, train_policy
from stringline.datasets.store.episode import StoredEpisode
from stringline.sim import teleoperate
from stringline.sim.replay import replay_episode
from stringline.sim.teleop.page import EYE_M, HANDLE_M, LOOK_AT_M

SMALL = ("task.cameras=[overhead,wrist_left]", "task.image_size=32", "page_hz=5")
HOME = ALOHA.forward_kinematics(ALOHA.home)
# A browser that draws by software on a busy machine takes its time; it waits no longer than it
# must.
PATIENCE_S = 60


@pytest.fixture
def command(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, serving at a free port, with an empty store."""
    arguments = [f"store={tmp_path}/store", "port=0", *SMALL]
    with subprocess.Popen(
        [sys.executable, "-m", "stringline.sim.teleoperate", *arguments],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / ".src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process
        process.kill()


@pytest.fixture
def browser(command: subprocess.Popen[str]) -> Iterator[webdriver.Chrome]:
    """Chromium without a screen, which has opened the page; it draws 3D by software."""
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in programs.items() if path is None]
    assert not missing, (
        f"{' and '.join(missing)} not found. Debian and Ubuntu: apt install chromium "
        f"chromium-driver"
    )
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs["chromium"])
    drawing = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    arguments = ["--headless=new", "--disable-dev-shm-usage", "--window-size=780,460", *drawing]
    # Chromium refuses to run as root with its sandbox; a container's root has no other choice.
    for argument in [*arguments, *(["--no-sandbox"] if os.geteuid() == 0 else [])]:
        options.add_argument(argument)
    assert command.stdout is not None
    with webdriver.Chrome(
        options=options, service=webdriver.ChromeService(programs["chromedriver"])
    ) as driver:
        output = command.stdout.readline()
        address = re.fullmatch(
            r"Open (http://127\.0\.0\.1:\d+) in a browser\. "
            r"Ctrl-C ends the session; the store is .*\n",
            output,
        )
        assert address, output
        driver.get(address[1])
        yield driver


def wait_for(browser: webdriver.Chrome, text: str) -> None:
    """Waits until the page has a text or matches a pattern."""
    WebDriverWait(browser, PATIENCE_S, 0.1).until(
        lambda _: re.search(text, browser.find_element(By.TAG_NAME, "body").text),
        f"the page never said {text!r}",
    )


def press(browser: webdriver.Chrome, button: str) -> None:
    path = f"//button[normalize-space()='{button}' and not(@disabled)]"
    WebDriverWait(browser, PATIENCE_S, 0.1).until(lambda _: browser.find_elements(By.XPATH, path))[
        0
    ].click()


def field(browser: webdriver.Chrome, label: str, place: int) -> WebElement:
    """The field of the label of that place among those with that text."""
    found = browser.find_elements(By.XPATH, f"//label[text()='{label}']")[place]
    return found.find_element(By.XPATH, "./ancestor::div[.//input][1]//input")


def on_screen(point: Vector, height: float) -> Vector:
    """The pixel (2,) of a point (3,), from the centre of the scene; viser's view has 75 degrees."""
    ahead = np.subtract(LOOK_AT_M, EYE_M) / np.linalg.norm(np.subtract(LOOK_AT_M, EYE_M))
    right = np.cross(ahead, (0.0, 0.0, 1.0)) / np.linalg.norm(np.cross(ahead, (0.0, 0.0, 1.0)))
    seen = np.stack([right, -np.cross(right, ahead), ahead]) @ (point - EYE_M)
    return np.asarray(seen[:2] / (seen[2] * np.tan(np.radians(75.0) / 2)) * height / 2)


def drag_down(browser: webdriver.Chrome) -> None:
    """Drags the vertical arrow of the left handle down by 30 pixels with the mouse."""
    canvas = browser.find_element(By.TAG_NAME, "canvas")
    tip = (HOME["left"] @ (0.0, 0.0, 0.9 * HANDLE_M, 1.0))[:3]
    x, y = on_screen(tip, canvas.size["height"])
    mouse = webdriver.ActionChains(browser, duration=50)
    mouse.move_to_element_with_offset(canvas, round(x), round(y)).click_and_hold()
    mouse.move_by_offset(0, 15).move_by_offset(0, 15).release().perform()


@pytest.mark.slow
def test_a_visitor_moves_a_gripper_records_and_keeps(
    browser: webdriver.Chrome, command: subprocess.Popen[str], tmp_path: Path
) -> None:
    """The episode is in the store, can be replayed and trained on; Ctrl-C loses the open take."""
    wait_for(browser, "hand over the banana.*\n.*not recording; seed 0; 0 kept")
    for close in browser.find_elements(By.CSS_SELECTOR, ".mantine-Notification-closeButton"):
        close.click()  # A warning, that it is slow without a GPU, lies over the scene.
    press(browser, "Record")
    wait_for(browser, r"recording, \d")
    drag_down(browser)
    # The right arm by numbers, to a place that it cannot reach, which is said; and its gripper
    # open.
    place = field(browser, "x, y, z (m)", 1)
    place.send_keys(Keys.CONTROL, "a")
    place.send_keys("-0.9 far", Keys.TAB)
    wait_for(browser, "Got '-0.9 far'; allowed: three numbers, such as -0.2, 0, 0.25")
    place.send_keys(Keys.CONTROL, "a")
    place.send_keys("1.5, -0.1 0.3", Keys.TAB)
    browser.find_elements(By.XPATH, "//*[normalize-space()='open']")[-1].click()
    wait_for(browser, r"right: out of reach, held \d+\.\d cm and \d+° short")
    height = float((field(browser, "x, y, z (m)", 0).get_attribute("value") or "").split(", ")[2])
    press(browser, "Keep")
    wait_for(
        browser,
        (
            r"not recording; seed 1; 1 kept(.|\n)*Kept hand_over_banana\.0{10}\.\w{12}: \d+\.\d "
            r"s, no "
            r"success\."
        ),
    )
    fetched = browser.execute_script(
        "return performance.getEntriesByType('resource').map(entry => new URL(entry.name).host)"
    )
    assert set(fetched) <= {browser.execute_script("return location.host")}
    press(browser, "Record")
    wait_for(browser, r"recording, \d")
    command.send_signal(signal.SIGINT)
    output, _ = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 130
    store = EpisodeStore.open(tmp_path / "store")
    (name,) = store.names()
    lines = output.splitlines()
    assert lines[:2] == [f"Kept 1 episode in {store.path}. The open take is lost.", f"  {name}"]
    assert lines[2].endswith(f"Next: stringline-view store={store.path} episode={name}")
    assert lines[3:] == ["", "Stopped."]
    assert store.leftovers() == []
    check(store.episode(name), height)
    trainer = Trainer(steps=1, batch_size=2, probe_every=100, precision="no", warmup_steps=1)
    ((_, loss),) = train_policy(MODEL, store, trainer, tmp_path / "run").losses()
    assert np.isfinite(loss)


def check(episode: StoredEpisode, height: float) -> None:
    """The arms moved to their targets, and a replay is identical."""
    assert (episode.attributes.source, episode.attributes.success) == ("teleoperation", False)
    left, right = (episode.arrays[f"T_base_gripper/{arm}"] for arm in ALOHA.arms)
    assert height < HOME["left"][2, 3] - 0.02
    assert left[-1, 2, 3] == pytest.approx(height, abs=0.02)
    assert right[-1, 0, 3] > HOME["right"][0, 3] + 0.02
    assert episode.arrays["action"][-1, ALOHA.grippers["right"]] > 0.5
    replay = replay_episode(episode)
    assert (replay.difference, replay.success) == (0.0, False)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["task=hand_over_bananna"], "task 'hand_over_bananna'. Did you mean 'hand_over_banana'"),
        (
            ["gamepad.device={tmp}/js0"],
            r"There is no gamepad at {tmp}/js0 \(No such file or directory\). Found: none.",
        ),
        (
            ["policy=kuka_pick", "task=hand_over_banana"],
            r"task is hand_over_banana, but kuka_pick was trained on kuka_pick\. Choose task=kuka_",
        ),
        (["seed=-1"], r"seed must be an integer of at least 0 \(got -1\)"),
        (["speeds.linear=0"], r"The speeds are linear=0, .*allowed: above 0"),
        (["gamepad.layout.takes=3"], r"There is no option 'gamepad.layout.takes'.*take"),
        (["port={port}"], r"Port {port} of 127.0.0.1 is not available, .*choose another one"),
        (
            ["port=0", "store={tmp}/file/store"],
            r"The store {tmp}/file/store cannot be written \(Not a directory\)",
        ),
    ],
)
def test_errors_are_one_line(
    arguments: list[str],
    answer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        names = {"tmp": str(tmp_path), "port": str(busy.getsockname()[1])}
        filled = [
            argument.format(**names) for argument in (f"store={tmp_path}/store", *SMALL, *arguments)
        ]
        monkeypatch.setattr(sys, "argv", ["stringline-teleop", *filled])
        with pytest.raises(SystemExit, match="2"):
            teleoperate.main()
    assert re.search(answer.format(**names), output := capsys.readouterr().err), output
    assert len(output.splitlines()) == 1
    assert not (tmp_path / "store").exists()
