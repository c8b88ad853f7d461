"""Imports with a calibration file, and with images of another size, from the command line."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml
from scipy.spatial.transform import Rotation
from tests.datasets.formats.replay_buffers import LENGTHS, replay_buffer

from stringline.datasets.data import main
from stringline.datasets.editing.derived_stores import Resolution, cache
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.transforms import looking_at
from stringline.datasets.store.store import EpisodeStore

OPENINGS = ["layout.state_gripper=opening", "layout.action_gripper=opening"]
RATE = "format.control_hz=50"
MOUNT = next(mount for mount in ALOHA.cameras if mount.name == "wrist_left")
CAMERAS = {
    "top": ("world", looking_at((0.0, -0.5, 0.6), (0.0, 0.0, 0.0))),
    "hand": ("left", MOUNT.T_parent_camera),
}
INTRINSICS = [f"intrinsics/{name}" for name in CAMERAS]
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def data(tmp_path: Path, samples: Any) -> Path:
    """A data set of ACT with two cameras, and a calibration file of 160x240."""
    for number in range(2):
        with h5py.File(tmp_path / f"episode_{number}.hdf5", "w") as file:
            file["action"] = samples.joints(5, 100 + number)
            file["observations/qpos"] = samples.joints(5, number)
            for name in CAMERAS:
                images = np.stack([samples.image(frame) for frame in range(5)])
                file[f"observations/images/{name}"] = images
    entries = {
        name: {
            "parent": parent,
            "T_parent_camera": T.tolist(),
            "size": [160, 240],
            "intrinsics": [200.0, 200.0, 120.0, 80.0],
        }
        for name, (parent, T) in CAMERAS.items()
    }
    plain = {"version": 1, "embodiment": "aloha", "cameras": entries}
    (tmp_path / "cameras.yaml").write_text(yaml.safe_dump(plain))
    return tmp_path


@pytest.fixture
def run(data: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Returns a function that runs an import and returns its exit status and messages."""

    def command(*arguments: str) -> tuple[int, str]:
        paths = [f"path={data}", f"store={data / 'store'}", f"cameras={data / 'cameras.yaml'}"]
        monkeypatch.setattr(
            sys, "argv", ["stringline-data", "import", *paths, RATE, *OPENINGS, *arguments]
        )
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = int(str(ended.code))
        return status, capfd.readouterr().err

    return command


@pytest.mark.slow
def test_an_import_takes_the_calibration_of_a_file(data: Path, run: Run) -> None:
    status, messages = run()
    assert status == 0
    assert messages.count("The intrinsics of top, which belong to images of 160x240, are sc") == 1
    for episode in EpisodeStore.open(data / "store").episodes():
        assert all(camera.has_geometry for camera in episode.attributes.contract.cameras)
        arrays = episode.arrays
        np.testing.assert_allclose(arrays["T_base_camera/top"], CAMERAS["top"][1], atol=1e-7)
        # The mount of the embodiment and the kinematics give the same poses.
        expected = [ALOHA.camera_poses(q)["wrist_left"] for q in arrays["joints/position"]]
        np.testing.assert_allclose(arrays["T_base_camera/hand"], expected, atol=1e-5)
        np.testing.assert_allclose(
            arrays["intrinsics/hand"], [[20, 0, 12], [0, 20, 8], [0, 0, 1]], rtol=1e-6
        )


@pytest.mark.slow
def test_images_of_another_size_keep_their_geometry(data: Path, run: Run, samples: Any) -> None:
    status, _ = run("image_size=[32,32]", "image_fit=pad")
    assert status == 0
    (episode, _) = EpisodeStore.open(data / "store").episodes()
    found = episode.arrays
    assert found["rgb/top"].shape == (5, 32, 32, 3)
    inside = found["rgb/top"][:, 8:24, 4:28]
    np.testing.assert_array_equal(inside, [samples.image(frame) for frame in range(5)])
    np.testing.assert_allclose(
        found["intrinsics/top"], [[20, 0, 16], [0, 20, 16], [0, 0, 1]], rtol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "fit"), [((32, 48), "pad"), ((32, 32), "pad"), ((12, 12), "crop"), ((8, 24), "resize")]
)
def test_a_calibration_after_an_import_is_that_of_the_import(
    data: Path, run: Run, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], fit: str
) -> None:
    """The file belongs to the images of the camera, not to the fitted ones of the store."""
    status, _ = run(f"image_size=[{size[0]},{size[1]}]", f"image_fit={fit}")
    assert status == 0
    store = EpisodeStore.open(data / "store")
    copy = cache(store, data / "copy", Resolution(4, 6))
    (first, _), (small, _) = store.episodes(), copy.episodes()
    assert first.attributes.extra["fitted_images"] == {
        name: {"from": [16, 24], "to": list(size), "fit": fit} for name in CAMERAS
    }
    wanted = {key: np.array(first.arrays[key]) for key in first.arrays if key in INTRINSICS}
    smaller = {key: np.array(small.arrays[key]) for key in small.arrays if key in INTRINSICS}
    for path, expected in ((store.path, wanted), (copy.path, smaller)):
        words = [f"store={path}", f"cameras={data / 'cameras.yaml'}"]
        monkeypatch.setattr(sys, "argv", ["stringline-data", "calibrate", *words])
        main()
        for episode in EpisodeStore.open(path).episodes():
            for key, intrinsics in expected.items():
                np.testing.assert_allclose(episode.arrays[key], intrinsics, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["format.cameras={top: tip, hand: hand}"], "There is no camera 'top'. Did you mean 'tip'"),
        (["uncalibrated=[side]"], "There is no camera 'side'."),
        (["cameras=missing.yaml"], "The calibration file missing.yaml cannot be read: No such"),
        (["cameras=null", "uncalibrated=[top]"], "uncalibrated needs cameras=FILE"),
        (["image_size=64", "image_fit=crop"], "image_fit=crop does not enlarge them to 64x64"),
    ],
)
def test_what_does_not_fit_ends_the_import(
    data: Path, run: Run, arguments: list[str], message: str
) -> None:
    status, messages = run(*arguments)
    assert status == 2
    assert message in messages
    assert messages.splitlines()[-1].startswith("stringline-data import: ")
    assert not (data / "store").exists()


def test_a_later_episode_that_does_not_fit_is_left_out(data: Path, run: Run) -> None:
    with h5py.File(data / "episode_1.hdf5", "r+") as file:
        del file["observations/images/hand"]
    status, messages = run()
    assert status == 2
    assert "Left out: episode 1 (episode_1.hdf5): There is no camera 'hand'." in messages
    assert len(EpisodeStore.open(data / "store")) == 1


def mount(seed: int) -> Any:
    """Returns a random pose (4, 4) of a camera on a gripper."""
    rng = np.random.default_rng(seed)
    T = np.eye(4)
    T[:3, :3] = Rotation.random(rng=rng).as_matrix()
    T[:3, 3] = rng.uniform(-0.1, 0.1, 3)
    return T


@pytest.fixture
def two_hands(tmp_path: Path, samples: Any) -> tuple[Path, dict[str, Any]]:
    """A buffer of UMI with two grippers that move, a camera on each, and a calibration file."""
    rng = np.random.default_rng(0)
    steps = sum(LENGTHS)
    series: dict[str, Any] = {}
    poses: dict[str, Any] = {}
    for hand in range(2):
        position = rng.normal(size=(steps, 3)).astype(np.float32)
        turn = rng.normal(size=(steps, 3)).astype(np.float32)
        series |= {
            f"camera{hand}_rgb": np.stack([samples.image(frame) for frame in range(steps)]),
            f"robot{hand}_eef_pos": position,
            f"robot{hand}_eef_rot_axis_angle": turn,
            f"robot{hand}_gripper_width": np.full((steps, 1), 0.04, np.float32),
        }
        poses[f"camera{hand}_rgb"] = np.tile(np.eye(4), (steps, 1, 1))
        poses[f"camera{hand}_rgb"][:, :3, :3] = Rotation.from_rotvec(turn).as_matrix()
        poses[f"camera{hand}_rgb"][:, :3, 3] = position
    entries = {
        f"camera{hand}_rgb": {
            "parent": f"robot{hand}",
            "T_parent_camera": mount(hand).tolist(),
            "size": [16, 24],
            "intrinsics": [20.0, 20.0, 12.0, 8.0],
        }
        for hand in range(2)
    }
    plain = {"version": 1, "embodiment": "umi", "cameras": entries}
    (tmp_path / "umi.yaml").write_text(yaml.safe_dump(plain))
    return replay_buffer(tmp_path / "cup.zarr", series), poses


@pytest.mark.slow
def test_the_camera_on_a_gripper_of_umi_moves_with_it(
    two_hands: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, poses = two_hands
    words = [f"path={path}", f"store={tmp_path / 'store'}", f"cameras={tmp_path / 'umi.yaml'}"]
    options = ["format=umi", "format.gripper_open_m=0.08", "format.control_hz=60"]
    monkeypatch.setattr(sys, "argv", ["stringline-data", "import", *words, *options])
    main()
    episodes = EpisodeStore.open(tmp_path / "store").episodes()
    starts = np.cumsum([0, *LENGTHS])
    for start, steps, episode in zip(starts, LENGTHS, episodes, strict=False):
        for hand, (camera, T_base_gripper) in enumerate(poses.items()):
            assert episode.attributes.contract.camera(camera).has_geometry
            found = episode.arrays[f"T_base_camera/{camera}"]
            moved = T_base_gripper[start : start + steps]
            np.testing.assert_allclose(found, moved @ mount(hand), atol=1e-5)
            assert np.abs(np.diff(found[:, :3, 3], axis=0)).max(axis=1).min() > 0.1
            gripper = episode.arrays[f"T_base_gripper/robot{hand}"]
            on_gripper = np.linalg.inv(gripper) @ found
            np.testing.assert_allclose(on_gripper, np.tile(mount(hand), (steps, 1, 1)), atol=1e-5)
