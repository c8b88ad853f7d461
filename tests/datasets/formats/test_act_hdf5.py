"""Imports of ACT's HDF5, written by h5py in the documented layout, and their errors."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from tests.datasets.formats.conftest import OPENINGS, Import

from stringline.datasets.embodiments.aloha import ALOHA, GRIPPER_SERVOS
from stringline.datasets.formats.act_hdf5 import ActHdf5Reader
from stringline.datasets.formats.image_codecs import png
from stringline.datasets.formats.importing import Outcome
from stringline.datasets.formats.vector_layout import AlohaLayout
from stringline.datasets.loading.statistics import Statistics
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore

CAMERAS = ("cam_high", "cam_left_wrist")
HEIGHT, WIDTH = 16, 24


def jpeg(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="JPEG", quality=90)
    return np.frombuffer(buffer.getvalue(), np.uint8)


def recorded(samples: Any, path: Path, steps: int = 5, seed: int = 0, images: str = "raw") -> Path:
    """Writes a file like the recording scripts of ACT; `images` is raw, padded or strings."""
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs["sim"] = False
        file["action"] = samples.joints(steps, seed + 100)
        observations = file.create_group("observations")
        observations["qpos"] = samples.joints(steps, seed)
        observations["qvel"] = np.full((steps, 14), 0.5, np.float32)
        observations["effort"] = np.zeros((steps, 14), np.float32)
        for camera in CAMERAS:
            frames = [samples.image(frame) for frame in range(steps)]
            if images == "raw":
                file.create_dataset(
                    f"observations/images/{camera}",
                    data=np.stack(frames),
                    chunks=(1, HEIGHT, WIDTH, 3),
                )
                continue
            encoded = [jpeg(frame) for frame in frames]
            if images == "padded":
                file[f"compress_len/{camera}"] = [len(row) for row in encoded]
                longest = max(map(len, encoded))
                padded = np.stack([np.pad(row, (0, longest - len(row))) for row in encoded])
                file.create_dataset(
                    f"observations/images/{camera}", data=padded, chunks=(1, longest)
                )
            else:
                strings = file.create_dataset(
                    f"observations/images/{camera}", (steps,), h5py.vlen_dtype(np.uint8)
                )
                for frame, row in enumerate(encoded):
                    strings[frame] = row
    return path


@dataclass
class ActSet:
    """A folder of recordings of ACT, and their import."""

    root: Path
    samples: Any
    run: Import

    def record(self, number: int = 0, steps: int = 5, seed: int = 0, images: str = "raw") -> Path:
        return recorded(self.samples, self.root / f"episode_{number}.hdf5", steps, seed, images)

    def imported(
        self, layout: AlohaLayout = OPENINGS, **options: Any
    ) -> tuple[EpisodeStore, Outcome]:
        return self.run(ActHdf5Reader(layout, **{"control_hz": 50, **options}), self.root)

    def only(self, layout: AlohaLayout = OPENINGS, **options: Any) -> StoredEpisode:
        (episode,) = self.imported(layout, **options)[0].episodes()
        return episode

    def refusal(self, **options: Any) -> str:
        """Returns why the first episode is refused."""
        return self.imported(**options)[1].refused["episode 0 (episode_0.hdf5)"]


@pytest.fixture
def act(tmp_path: Path, samples: Any, imported: Import) -> ActSet:
    return ActSet(tmp_path / "set", samples, imported)


@pytest.mark.parametrize(("images", "tolerance"), [("raw", 0), ("padded", 6), ("strings", 6)])
def test_recorded_data_is_imported(act: ActSet, samples: Any, images: str, tolerance: int) -> None:
    assert samples.size_of(act.record(3, images=images)) < 100_000
    store, outcome = act.imported()
    assert (len(outcome.imported), outcome.present, outcome.refused) == (1, 0, {})
    (episode,) = store.episodes()
    arrays, contract = episode.arrays, episode.attributes.contract
    np.testing.assert_array_equal(arrays["joints/position"], samples.joints(5))
    np.testing.assert_array_equal(arrays["action"], samples.joints(5, 100))
    np.testing.assert_allclose(arrays["joints/velocity"], 0.5, atol=1e-3)
    np.testing.assert_allclose(np.diff(arrays["time"]), 0.02)
    pose = ALOHA.forward_kinematics(samples.joints(5))["left"]
    np.testing.assert_allclose(arrays["T_base_gripper/left"], pose, atol=1e-6)
    shown = np.stack([samples.image(frame) for frame in range(5)])
    for camera in CAMERAS:
        assert np.abs(arrays[f"rgb/{camera}"].astype(int) - shown).max() <= tolerance
        assert not contract.camera(camera).has_geometry
    assert contract == ALOHA.contract([], 50.0).with_cameras(*contract.cameras)
    attributes = episode.attributes
    assert (attributes.task, attributes.seed, attributes.source) == ("set", 3, "set")
    assert store.verify(episode.name) == []


def test_cameras_can_be_chosen_renamed_and_swapped(act: ActSet, samples: Any) -> None:
    act.record()
    cameras = {"cam_high": "overhead"}
    arrays = act.only(cameras=cameras, swap_colours=True, control_hz=25).arrays
    assert [key for key in arrays if key.startswith("rgb/")] == ["rgb/overhead"]
    np.testing.assert_array_equal(arrays["rgb/overhead"][4], samples.image(4)[..., ::-1])
    np.testing.assert_allclose(np.diff(arrays["time"]), 0.04)


def test_the_rate_is_asked_for_and_agrees_with_time_stamps(act: ActSet) -> None:
    """A default of 50 Hz once made recordings of 30 Hz too fast."""
    path = act.record()
    with pytest.raises(ValueError, match="set it, format.control_hz=NUMBER: 50 for .*ALOHA.* 30"):
        act.imported(control_hz=None)
    with h5py.File(path, "r+") as file:
        file["observations/timestamp"] = 5.0 + np.arange(5) / 30
    with pytest.raises(ValueError, match=r"observations/timestamp have 30 steps per second, .* 50"):
        act.imported()
    assert act.only(control_hz=30).attributes.contract.control_hz == 30


def test_state_and_action_may_have_several_data_sets(act: ActSet, samples: Any) -> None:
    """AgiBot World: joints and effectors apart, and no group of observations."""
    path = act.record()
    with h5py.File(path, "r+") as file:
        for old, new, values in (
            ("action", "action", samples.joints(5, 100)),
            ("observations/qpos", "state", samples.joints(5)),
        ):
            del file[old]
            file[f"{new}/joint/position"] = values[:, :13]
            file[f"{new}/effector/position"] = values[:, 13]
    names: dict[str, Any] = {
        name: [f"{name}/joint/position", f"{name}/effector/position"]
        for name in ("state", "action")
    }
    arrays = act.only(**names).arrays
    np.testing.assert_array_equal(arrays["joints/position"], samples.joints(5))
    np.testing.assert_array_equal(arrays["action"], samples.joints(5, 100))
    assert "series/observations/qvel" in arrays, "its numbers belong to another state"


def test_states_and_actions_may_have_different_gripper_conventions(
    act: ActSet, samples: Any
) -> None:
    act.record()
    arrays = act.only(AlohaLayout("opening", "aloha1_follower_share")).arrays
    np.testing.assert_array_equal(arrays["joints/position"], samples.joints(5))
    servo = GRIPPER_SERVOS["aloha1_follower"]
    share = samples.joints(5, 100)[:, 6]
    np.testing.assert_allclose(
        arrays["action"][:, 6], servo.opening(servo.closed + share * 2.1123), rtol=1e-5
    )


def test_degrees_become_radians(act: ActSet, samples: Any) -> None:
    path = act.record()
    revolute = np.delete(np.arange(14), [6, 13])
    with h5py.File(path, "r+") as file:
        for key in ("action", "observations/qpos"):
            values = file[key][:]
            values[:, revolute] = np.degrees(values[:, revolute])
            file[key][:] = values
    assert "impossible for a joint in rad. Is the unit another one?" in act.refusal()
    arrays = act.only(AlohaLayout("opening", "opening", "deg")).arrays
    np.testing.assert_allclose(arrays["joints/position"], samples.joints(5), rtol=1e-5, atol=1e-6)


def test_episodes_of_two_lengths_make_windows_and_statistics(act: ActSet) -> None:
    for number, steps in enumerate((5, 9)):
        act.record(number, steps, number)
    store, _ = act.imported()
    windows = Windows(store, chunk=4)
    assert len(windows) == 14
    batch = windows.batch([0, 13])
    assert batch["rgb/cam_high"].shape == (2, HEIGHT, WIDTH, 3)
    np.testing.assert_array_equal(batch["action_mask"], [[True] * 4, [True, False, False, False]])
    assert Statistics.of_episodes(store.episodes())["action"].count == 14


def test_a_repeated_import_adds_new_episodes_only(act: ActSet, tmp_path: Path) -> None:
    for number in range(2):
        act.record(number, 5, number)
    act.imported()
    act.record(10, 4, 7)
    (tmp_path / "imported" / ".open-set.0000000000.0123456789ab").mkdir()  # A writer was killed.
    store, outcome = act.imported()
    assert (len(outcome.imported), outcome.present) == (1, 2)
    assert [episode.attributes.seed for episode in store.episodes()] == [0, 1, 10]
    assert store.leftovers() == []
    act.record(1, 5, 8)  # Another recording under an old name counts as new.
    assert len(act.imported()[1].imported) == 1


Spoil = Callable[[Path], object]
QPOS, HIGH = "observations/qpos", "observations/images/cam_high"


def edit(path: Path, key: str, value: Any, where: Any) -> None:
    with h5py.File(path, "r+") as file:
        values = file[key][:]
        values[where] = value
        file[key][:] = values


def edited(key: str, value: float, where: tuple[int, int]) -> Spoil:
    return lambda path: edit(path, key, value, where)


def replaced(key: str, value: Any) -> Spoil:
    """Returns a function that puts another data set in the place of one, or none."""

    def spoil(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            del file[key]
            if value is not None:
                file[key] = value

    return spoil


def shown(*shape: int, dtype: Any = np.uint8) -> Spoil:
    return replaced(HIGH, np.zeros(shape, dtype))


BAD: list[tuple[Spoil, str]] = [
    (lambda path: path.write_bytes(path.read_bytes()[:-2000]), "as HDF5; it is truncated"),
    (lambda path: path.write_bytes(b"\0" * 500), "episode_1.hdf5 cannot be read as HDF5"),
    (edited("action", np.nan, (3, 2)), "action at frame 3, dimension 2, is nan"),
    (edited("observations/qvel", np.inf, (1, 0)), "qvel at frame 1, dimension 0, is inf"),
    (edited("action", 90.0, (2, 1)), "action at frame 2, 'left/shoulder', is 90; impossible"),
    (edited(QPOS, 1.62, (4, 13)), "qpos at frame 4, 'right/gripper', is 1.62; impossible"),
    (replaced("action", np.zeros((4, 14))), "observations/qpos has 5 frames, action has 4"),
    (replaced("action", np.zeros((0, 14))), "observations/qpos has 5 frames, action has 0"),
    (
        replaced("action", np.zeros((5, 2, 7))),
        "action has shape (5, 2, 7); allowed: (T,) or (T, D).",
    ),
    (replaced("action", np.zeros(5)), "ALOHA has 14 joints; the action has 1: action."),
    (replaced("action", np.full((5, 14), b"x")), "action has type |S1; allowed: floats"),
    (replaced(QPOS, np.zeros((5, 7))), "ALOHA has 14 joints; the state has 7:"),
    (replaced(QPOS, None), "There is no data set 'observations/qpos'. Did you mean"),
    (replaced(HIGH, None), "There is no camera 'cam_high'. Did you mean 'cam_left_wrist'?"),
    (shown(6, HEIGHT, WIDTH, 3), "observations/images/cam_high has 6 frames, action has 5"),
    (shown(5, HEIGHT, WIDTH, 3, dtype=np.float32), "cam_high at frame 0 is float32 (16, 24, 3)"),
    (shown(5, HEIGHT, WIDTH), "cam_high has frames of shape (16, 24); allowed: (H, W, 3), or JPEG"),
    (shown(5, 4, WIDTH, 3), "not fit the other episodes. camera 'cam_high': height is 16 and 4."),
]


@pytest.mark.parametrize(("spoil", "message"), BAD)
def test_a_damaged_episode_is_reported_and_the_others_are_imported(
    act: ActSet, spoil: Spoil, message: str
) -> None:
    for number in range(3):
        act.record(number, 5, number)
    spoil(act.root / "episode_1.hdf5")
    store, outcome = act.imported(cameras={camera: camera for camera in CAMERAS})
    assert list(outcome.refused) == ["episode 1 (episode_1.hdf5)"]
    assert message in outcome.refused["episode 1 (episode_1.hdf5)"]
    assert [episode.attributes.seed for episode in store.episodes()] == [0, 2]
    assert [entry.name for entry in store.path.iterdir() if entry.name.startswith(".")] == []
    act.record(1, 5, 1)  # After a repair it is imported as well.
    assert len(act.imported()[1].imported) == 1


def test_an_image_that_does_not_decode_is_named(act: ActSet) -> None:
    edit(act.record(images="padded"), "observations/images/cam_left_wrist", 0, 3)
    assert "observations/images/cam_left_wrist at frame 3 does not decode" in act.refusal()


def test_damaged_bytes_are_named(act: ActSet) -> None:
    path = act.record()
    with h5py.File(path, "r+") as file:
        frames = file[HIGH][:]
        del file[HIGH]
        chunks = (1, HEIGHT, WIDTH, 3)
        file.create_dataset(HIGH, data=frames, chunks=chunks, fletcher32=True)
        place = file[HIGH].id.get_chunk_info(2).byte_offset
    raw = bytearray(path.read_bytes())
    raw[place] ^= 255
    path.write_bytes(raw)
    assert "observations/images/cam_high cannot be read at frames 2 to 3" in act.refusal()


@pytest.mark.parametrize("signature", [b"TREE", b"SNOD", b"HEAP"])
def test_damaged_structure_is_named(act: ActSet, signature: bytes) -> None:
    path = act.record()
    path.write_bytes(path.read_bytes().replace(signature, b"\0\0\0\0"))
    assert "episode_0.hdf5 is damaged: " in act.refusal()


@pytest.mark.parametrize("images", ["raw", "png"])
def test_depth_is_imported_in_its_unit(act: ActSet, images: str) -> None:
    """A recorder of RGB-D cameras adds images_depth, uint16 without a unit."""
    path = act.record()
    depth = np.random.default_rng(0).integers(3000, 9000, (5, HEIGHT, WIDTH)).astype(np.uint16)
    rows = [np.frombuffer(png(image), np.uint8) for image in depth]
    longest = max(map(len, rows))
    padded = np.stack([np.pad(row, (0, longest - len(row))) for row in rows])
    with h5py.File(path, "r+") as file:
        file["observations/images_depth/cam_high"] = depth if images == "raw" else padded
    episode = act.only(depth_unit_m=0.0001)
    high, wrist = episode.attributes.contract.cameras
    assert (high.depth, high.depth_unit_m, wrist.depth) == ("measured", 0.0001, None)
    np.testing.assert_array_equal(episode.arrays["depth/cam_high"], depth)
    with pytest.raises(ValueError, match="cam_high does not contain its unit; set format.depth_un"):
        act.imported()


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("side", (5, HEIGHT, WIDTH), "The depth series 'side' belongs to no camera by its name"),
        ("cam_high", (5, 8, WIDTH), "has frames of shape (8, 24), observations/images/cam_high of"),
        ("cam_high", (4, HEIGHT, WIDTH), "images_depth/cam_high has 4 frames, action has 5"),
        ("cam_high", (0, HEIGHT, WIDTH), "observations/images_depth/cam_high has no frames"),
    ],
)
def test_depth_that_does_not_fit_costs_its_episode(
    act: ActSet, name: str, shape: tuple[int, ...], message: str
) -> None:
    with h5py.File(act.record(), "r+") as file:
        file[f"observations/images_depth/{name}"] = np.full(shape, 900, np.uint16)
    assert message in act.refusal(depth_unit_m=0.001)
