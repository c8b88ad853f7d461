"""A short episode of ALOHA in the contract's terms, and functions that import data sets."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.datasets.conftest import Arrays, DataCommand

from stringline.datasets.contract.contract import Camera
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.formats.foreign import Reader
from stringline.datasets.formats.importing import Outcome, import_data
from stringline.datasets.formats.vector_layout import AlohaLayout
from stringline.datasets.store.episode import EpisodeAttributes, StoredEpisode
from stringline.datasets.store.store import EpisodeStore

Run = Callable[..., tuple[int, str, list[StoredEpisode]]]
OPENINGS = AlohaLayout("opening", "opening")
HEIGHT, WIDTH = 16, 24
Import = Callable[[Reader, Path], tuple[EpisodeStore, Outcome]]


def smooth_image(frame: int, shift: int = 0) -> NDArray[np.uint8]:
    """Returns an image (16, 24, 3) for a frame that lossy codecs nearly preserve."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    return np.stack(
        [40 + 5 * rows + 4 * frame, 60 + 4 * columns, 0 * rows + 120 + shift], axis=-1
    ).astype(np.uint8)


def joint_series(steps: int, seed: int = 0) -> NDArray[np.float32]:
    """Returns joint positions (steps, 14) of ALOHA, grippers as openings."""
    rng = np.random.default_rng(seed)
    joints = np.asarray(ALOHA.home + rng.uniform(-0.3, 0.3, (steps, 14)), np.float32)
    joints[:, [6, 13]] = rng.uniform(0, 1, (steps, 2))
    return joints


def aloha_episode(
    steps: int = 5, seed: int = 0, *, depth: bool = False
) -> tuple[Arrays, EpisodeAttributes]:
    """Returns an episode with two cameras at 50 Hz, as a store takes it."""
    cameras = [
        Camera("overhead", HEIGHT, WIDTH, depth="simulated" if depth else None, has_geometry=False),
        Camera("wrist_left", HEIGHT, WIDTH, has_geometry=False),
    ]
    contract = ALOHA.contract(cameras, 50.0)
    time = np.arange(steps) / 50
    arrays: Arrays = {
        "time": time,
        "joints/position": joint_series(steps, seed),
        "action": joint_series(steps, seed + 100),
    }
    poses = ALOHA.forward_kinematics(arrays["joints/position"])
    arrays |= {f"T_base_gripper/{arm}": pose.astype(np.float32) for arm, pose in poses.items()}
    for shift, camera in enumerate(cameras):
        arrays[f"rgb/{camera.name}"] = np.stack(
            [smooth_image(frame, 9 * shift) for frame in range(steps)]
        )
        arrays[f"frame/{camera.name}"] = np.arange(steps, dtype=np.int32)
        arrays[f"time/{camera.name}"] = time
    if depth:
        arrays["depth/overhead"] = (
            np.random.default_rng(seed)
            .integers(300, 2000, (steps, HEIGHT, WIDTH))
            .astype(np.uint16)
        )
    return arrays, EpisodeAttributes(
        contract, "stack", seed, source="expert", instruction="stack the cups"
    )


@pytest.fixture
def original(tmp_path: Path) -> EpisodeStore:
    """A store with two episodes of different lengths."""
    store = EpisodeStore.create(tmp_path / "original")
    for seed, steps in enumerate((5, 8)):
        store.write(*aloha_episode(steps, seed))
    return store


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Returns a function that imports a data set into one store."""

    def run(reader: Reader, path: Path) -> tuple[EpisodeStore, Outcome]:
        store = EpisodeStore.create(tmp_path / "imported")
        return store, import_data(reader, path, store)

    return run


@pytest.fixture
def samples() -> SimpleNamespace:
    """Returns the functions that make images, joints and episodes, and their sizes."""
    return SimpleNamespace(
        height=HEIGHT,
        width=WIDTH,
        image=smooth_image,
        joints=joint_series,
        episode=aloha_episode,
        size_of=size_of,
    )


def size_of(path: Path) -> int:
    """Returns the bytes of a file or of all files in a folder."""
    return sum(
        file.stat().st_size
        for file in ([path] if path.is_file() else path.rglob("*"))
        if file.is_file()
    )


@pytest.fixture
def run(tmp_path: Path, data_command: DataCommand) -> Run:
    """Returns a function that imports a set; it returns the exit code, the words, the episodes."""

    def command(path: Path, kind: str, *arguments: str) -> tuple[int, str, list[StoredEpisode]]:
        store = tmp_path / f"store_{len(list(tmp_path.glob('store_*')))}"
        words = [f"format={kind}", f"path={path}", f"store={store}", *arguments]
        grippers = ["layout.state_gripper=opening", "layout.action_gripper=opening"]
        status, out, error = data_command("import", *words, *grippers)
        found = EpisodeStore.open(store).episodes() if store.exists() else ()
        text = re.sub(" {2,}", "  ", out + error)  # The columns of tables.
        return status, text, sorted(found, key=lambda each: each.steps)

    return command
