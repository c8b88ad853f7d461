"""Reading single rows of memory-mapped images."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.datasets.conftest import random_episode

from stringline import Camera, Contract, EpisodeAttributes, EpisodeStore, Windows

SMAPS = Path("/proc/self/smaps")


@pytest.fixture
def store(tmp_path: Path, contract: Contract) -> EpisodeStore:
    """A store with one episode of 10 images, which end in the middle of pages of memory."""
    arrays = random_episode(steps=40)
    arrays["rgb/front"] = np.random.default_rng(0).integers(0, 256, (10, 93, 125, 3), np.uint8)
    arrays = {key: value for key, value in arrays.items() if not key.endswith("wrist")}
    del arrays["depth/front"]
    contract = replace(contract, cameras=(Camera("front", 93, 125),))
    store = EpisodeStore.create(tmp_path / "store")
    store.write(arrays, EpisodeAttributes(contract, "reach", 0))
    return store


def flags_of_maps(folder: Path) -> dict[str, set[str]]:
    """Returns the kernel's flags of each file under a folder that this process has mapped."""
    maps = SMAPS.read_text(encoding="utf-8")
    found = re.findall(rf"{re.escape(str(folder))}/(\S+)\n(?:.*\n)*?VmFlags: (.*)", maps)
    return {name: set(flags.split()) for name, flags in found}


@pytest.mark.skipif(not SMAPS.exists(), reason="only Linux lists the flags of maps")
def test_images_of_a_training_are_read_without_read_ahead(store: EpisodeStore) -> None:
    """In random order, the kernel would read up to megabytes around each image, for one window."""
    windows = Windows(store, chunk=4)
    windows.batch(np.arange(len(windows)))
    flags = flags_of_maps(store.path)
    assert any(name.endswith("rgb.front/c/0/0/0/0") for name in flags)
    assert all("rr" in each for each in flags.values()), flags


def test_mapped_rows_equal_the_stored_ones(store: EpisodeStore) -> None:
    """Every image, wherever it begins and ends in a page."""
    windows = Windows(store, chunk=4)
    stored = store.episode(windows.names[0]).arrays["rgb/front"]
    np.testing.assert_array_equal(windows.batch(np.arange(len(windows)))["rgb/front"], stored)
