"""RGB-D data sets of a simulated scene: after their import, depth lies on the table again."""

from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pytest
import yaml
import zarr
from numpy.typing import NDArray
from tests.datasets.formats.conftest import OPENINGS

from stringline.datasets.cameras.camera_calibration import CameraCalibration
from stringline.datasets.cameras.resampling import ImageSize
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.formats.act_hdf5 import ActHdf5Reader
from stringline.datasets.formats.diffusion_policy import DiffusionPolicyReader
from stringline.datasets.formats.foreign import Reader
from stringline.datasets.formats.importing import ImportedCameras, import_data
from stringline.datasets.pointclouds.clouds import depth_view
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore

CAMERAS = ("overhead", "wrist_left")
HZ = 2.5
SIZES = (
    None,
    ImageSize(96, 80, "resize"),
    ImageSize(96, 208, "pad"),
    ImageSize(128, 96, "crop"),
)

Series = dict[str, NDArray[Any]]


@pytest.fixture(scope="module")
def series(episode: StoredEpisode) -> Series:
    """Two steps of a demonstration at which the cameras saw a new image."""
    arrays = episode.arrays
    frames, steps = np.unique(arrays["frame/overhead"], return_index=True)
    frames, steps = frames[[0, -1]], steps[[0, -1]]
    found = {key: np.asarray(arrays[key])[steps] for key in ("joints/position", "action")}
    for camera in CAMERAS:
        found[f"rgb/{camera}"] = arrays[f"rgb/{camera}"][frames]
        found[f"depth/{camera}"] = arrays[f"depth/{camera}"][frames]
    return found


def act(path: Path, series: Series) -> Reader:
    """Writes an episode as a recorder of RGB-D cameras does."""
    path.mkdir()
    with h5py.File(path / "episode_0.hdf5", "w") as file:
        file.attrs["sim"] = False
        file["action"] = series["action"]
        file["observations/qpos"] = series["joints/position"]
        for camera in CAMERAS:
            file[f"observations/images/{camera}"] = series[f"rgb/{camera}"]
            file[f"observations/images_depth/{camera}"] = series[f"depth/{camera}"]
    return ActHdf5Reader(OPENINGS, control_hz=HZ, depth_unit_m=0.001, depth_source="simulated")


def replay_buffer(path: Path, series: Series) -> Reader:
    """Writes a replay buffer with numbered cameras, and depth as floats in metres."""
    root = zarr.open_group(path, mode="w", zarr_format=2)
    values = {"state": series["joints/position"], "action": series["action"]}
    for number, camera in enumerate(CAMERAS):
        values[f"camera_{number}"] = series[f"rgb/{camera}"]
        values[f"depth_{number}"] = (0.001 * series[f"depth/{camera}"]).astype(np.float32)
    values["episode_ends"] = np.array([len(series["action"])])
    for key, array in values.items():
        group = "meta" if key == "episode_ends" else "data"
        stored = root.create_array(
            f"{group}/{key}",
            shape=array.shape,
            dtype=array.dtype,
            chunks=(1, *array.shape[1:]),
            compressors=numcodecs.Blosc(),
        )
        stored[:] = array
    names = {f"camera_{number}": camera for number, camera in enumerate(CAMERAS)}
    return DiffusionPolicyReader(
        OPENINGS, control_hz=HZ, cameras=names, depth_unit_m=1.0, depth_source="simulated"
    )


def calibration(path: Path, episode: StoredEpisode) -> CameraCalibration:
    """Writes the known cameras of the simulation into a file and reads it."""
    mounts = {mount.name: mount for mount in ALOHA.cameras}
    entries = {
        name: {
            "parent": mounts[name].parent,
            "T_parent_camera": mounts[name].T_parent_camera.tolist(),
            "size": [200, 200],
            "intrinsics": episode.arrays[f"intrinsics/{name}"].tolist(),
        }
        for name in CAMERAS
    }
    path.write_text(yaml.safe_dump({"version": 1, "embodiment": "aloha", "cameras": entries}))
    return CameraCalibration.read(path)


@pytest.mark.slow
@pytest.mark.parametrize("write", [act, replay_buffer])
def test_depth_lies_on_the_table(
    tmp_path: Path, episode: StoredEpisode, series: Series, write: Any
) -> None:
    reader = write(tmp_path / "set", series)
    cameras = calibration(tmp_path / "cameras.yaml", episode)
    for number, size in enumerate(SIZES):
        store = EpisodeStore.create(tmp_path / f"store_{number}")
        outcome = import_data(
            reader, tmp_path / "set", store, cameras=ImportedCameras(cameras, size)
        )
        assert outcome.refused == {}
        imported = store.episode(outcome.imported[0])
        for camera in CAMERAS:
            for step in range(imported.steps):
                check_table(depth_view(imported, camera, step).cloud().points)


def check_table(points: NDArray[Any]) -> None:
    """Checks that the lowest surface is the plane z = 0, which a third of an image shows."""
    near = np.abs(points[:, 2]) < 0.02
    assert near.mean() > 0.33
    assert np.percentile(np.abs(points[near, 2]), 75) < 0.002
    assert np.percentile(points[:, 2], 1) > -0.004
