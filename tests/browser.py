"""A Chromium without a screen and without a network, and what holds for each of our pages in it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from selenium import webdriver


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """Yields a Chromium without a screen and without a network."""
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in programs.items() if path is None]
    assert not missing, (
        f"{' and '.join(missing)} not found. Debian and Ubuntu: apt install chromium "
        f"chromium-driver"
    )
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs["chromium"])
    arguments = [
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1100,900",
    ]
    # Chromium refuses to run as root with its sandbox; a container's root has no other choice.
    for argument in [*arguments, *(["--no-sandbox"] if os.geteuid() == 0 else [])]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(
        options=options, service=webdriver.ChromeService(programs["chromedriver"])
    ) as driver:
        driver.set_network_conditions(offline=True, latency=0, throughput=0)
        yield driver


def check_self_contained(browser: webdriver.Chrome) -> None:
    """Nothing of the open page overflows, on narrow screens as well, and nothing is fetched."""
    for width in (1100, 500):
        browser.set_window_size(width, 900)
        assert (
            browser.execute_script(
                "return document.documentElement.scrollWidth - window.innerWidth"
            )
            <= 0
        )
    fetched = browser.execute_script(
        "return performance.getEntriesByType('resource').map(entry => entry.name)"
    )
    assert [address[:60] for address in fetched if not address.startswith("data:")] == []
