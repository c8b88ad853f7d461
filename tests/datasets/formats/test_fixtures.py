"""Imports of files by lerobot, diffusion_policy and UMI, which `write_fixtures.py` wrote."""

import runpy
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.datasets.formats.conftest import OPENINGS, Import

from stringline.datasets.formats.diffusion_policy import DiffusionPolicyReader, UmiReader
from stringline.datasets.formats.lerobot import LeRobotReader
from stringline.datasets.store.store import EpisodeStore

FIXTURES = Path(__file__).parent / "fixtures"
MADE: dict[str, Any] = runpy.run_path(str(FIXTURES.with_name("write_fixtures.py")))
LENGTHS = MADE["LENGTHS"]


def unpacked(name: str, folder: Path) -> Path:
    with zipfile.ZipFile(FIXTURES / name) as archive:
        archive.extractall(folder)
    return folder


def images(episode: int) -> Any:
    return np.stack([MADE["image"](step, episode) for step in range(LENGTHS[episode])])


def check_joints(store: EpisodeStore) -> None:
    for number, episode in enumerate(store.episodes()):
        assert episode.steps == LENGTHS[number]
        np.testing.assert_array_equal(
            episode.arrays["joints/position"], MADE["joints"](LENGTHS[number], number)
        )
        np.testing.assert_array_equal(
            episode.arrays["action"], MADE["joints"](LENGTHS[number], number + 5)
        )


def test_each_file_is_small() -> None:
    sizes = {path.name: path.stat().st_size for path in FIXTURES.iterdir()}
    assert set(sizes) == {
        "lerobot_v3.zip",
        "lerobot_v21.zip",
        "diffusion_policy.zip",
        "umi.zarr.zip",
        "rlds.zip",
    }
    assert max(sizes.values()) < 100_000


@pytest.mark.parametrize("name", ["lerobot_v3.zip", "lerobot_v21.zip"])
def test_lerobot(tmp_path: Path, imported: Import, name: str) -> None:
    store, outcome = imported(LeRobotReader(OPENINGS), unpacked(name, tmp_path / "set"))
    assert (len(outcome.imported), outcome.refused) == (2, {})
    check_joints(store)
    for number, episode in enumerate(store.episodes()):
        np.testing.assert_array_equal(episode.arrays["rgb/wrist"], images(number))
        assert (
            np.abs(episode.arrays["rgb/top"].astype(int) - images(number)).mean((1, 2, 3)).max() < 4
        )
        np.testing.assert_allclose(
            episode.arrays["time"], np.arange(LENGTHS[number]) / MADE["HZ"], atol=1e-6
        )
        assert episode.attributes.instruction == f"task {number}"


def test_diffusion_policy(tmp_path: Path, imported: Import) -> None:
    path = unpacked("diffusion_policy.zip", tmp_path) / "set.zarr"
    store, outcome = imported(DiffusionPolicyReader(OPENINGS, control_hz=MADE["HZ"]), path)
    assert (len(outcome.imported), outcome.refused) == (2, {})
    check_joints(store)
    for number, episode in enumerate(store.episodes()):
        np.testing.assert_array_equal(episode.arrays["rgb/img"], images(number))


def test_umi(imported: Import) -> None:
    store, outcome = imported(
        UmiReader(gripper_open_m=0.08, control_hz=MADE["HZ"]), FIXTURES / "umi.zarr.zip"
    )
    assert (len(outcome.imported), outcome.refused) == (2, {})
    for number, episode in enumerate(store.episodes()):
        hand = MADE["hand"](LENGTHS[number], number)
        np.testing.assert_allclose(
            episode.arrays["T_base_gripper/robot0"][:, :3, 3], hand["robot0_eef_pos"], rtol=1e-6
        )
        np.testing.assert_allclose(
            episode.arrays["joints/position"], hand["robot0_gripper_width"] / 0.08, rtol=1e-5
        )
        assert (
            np.abs(episode.arrays["rgb/camera0_rgb"].astype(int) - images(number))
            .mean((1, 2, 3))
            .max()
            < 4
        )
