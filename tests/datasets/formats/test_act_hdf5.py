"""Imports of ACT's HDF5, written by h5py in the documented layout, and their errors."""

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from stringline.datasets.embodiments.aloha import ALOHA, GRIPPER_SERVOS
from stringline.datasets.formats.act_hdf5 import ActHdf5Reader
from stringline.datasets.formats.image_codecs import png
from stringline.datasets.formats.importing import Outcome
from stringline.datasets.formats.vector_layout import AlohaLayout
from stringline.datasets.loading.statistics import Statistics
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore

OPENINGS = AlohaLayout("opening", "opening")
CAMERAS = ("cam_high", "cam_left_wrist")
HEIGHT, WIDTH = 16, 24
Import = Callable[[ActHdf5Reader, Path], tuple[EpisodeStore, Outcome]]
Record = Callable[..., Path]


def jpeg(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="JPEG", quality=90)
    return np.frombuffer(buffer.getvalue(), np.uint8)


@pytest.fixture
def record(samples: Any) -> Record:
    return partial(recorded, samples)


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


def only(store: EpisodeStore) -> Any:
    (episode,) = store.episodes()
    return episode


@pytest.mark.parametrize(("images", "tolerance"), [("raw", 0), ("padded", 6), ("strings", 6)])
def test_recorded_data_is_imported(
    tmp_path: Path, imported: Import, record: Record, samples: Any, images: str, tolerance: int
) -> None:
    assert samples.size_of(record(tmp_path / "set" / "episode_3.hdf5", images=images)) < 100_000
    store, outcome = imported(ActHdf5Reader(OPENINGS), tmp_path / "set")
    assert (len(outcome.imported), outcome.present, outcome.refused) == (1, 0, {})
    episode = only(store)
    arrays, contract = episode.arrays, episode.attributes.contract
    np.testing.assert_array_equal(arrays["joints/position"], samples.joints(5))
    np.testing.assert_array_equal(arrays["action"], samples.joints(5, 100))
    np.testing.assert_allclose(arrays["joints/velocity"], 0.5, atol=1e-3)
    np.testing.assert_allclose(np.diff(arrays["time"]), 0.02)
    np.testing.assert_allclose(
        arrays["T_base_gripper/left"],
        ALOHA.forward_kinematics(samples.joints(5))["left"],
        atol=1e-6,
    )
    for camera in CAMERAS:
        off = np.abs(
            arrays[f"rgb/{camera}"].astype(int)
            - np.stack([samples.image(frame) for frame in range(5)])
        )
        assert off.max() <= tolerance
        assert not contract.camera(camera).has_geometry
    assert contract == ALOHA.contract([], 50.0).with_cameras(*contract.cameras)
    assert (episode.attributes.task, episode.attributes.seed, episode.attributes.source) == (
        "set",
        3,
        "set",
    )
    assert store.verify(episode.name) == []


def test_cameras_can_be_chosen_renamed_and_swapped(
    tmp_path: Path, imported: Import, record: Record, samples: Any
) -> None:
    record(tmp_path / "set" / "episode_0.hdf5")
    reader = ActHdf5Reader(
        OPENINGS, cameras={"cam_high": "overhead"}, swap_colours=True, control_hz=25
    )
    arrays = only(imported(reader, tmp_path / "set")[0]).arrays
    assert [key for key in arrays if key.startswith("rgb/")] == ["rgb/overhead"]
    np.testing.assert_array_equal(arrays["rgb/overhead"][4], samples.image(4)[..., ::-1])
    np.testing.assert_allclose(np.diff(arrays["time"]), 0.04)


def test_states_and_actions_may_have_different_gripper_conventions(
    tmp_path: Path, imported: Import, record: Record, samples: Any
) -> None:
    record(tmp_path / "set" / "episode_0.hdf5")
    arrays = only(
        imported(ActHdf5Reader(AlohaLayout("opening", "aloha1_follower_share")), tmp_path / "set")[
            0
        ]
    ).arrays
    np.testing.assert_array_equal(arrays["joints/position"], samples.joints(5))
    servo = GRIPPER_SERVOS["aloha1_follower"]
    share = samples.joints(5, 100)[:, 6]
    np.testing.assert_allclose(
        arrays["action"][:, 6], servo.opening(servo.closed + share * 2.1123), rtol=1e-5
    )


def test_degrees_become_radians(
    tmp_path: Path, imported: Import, record: Record, samples: Any
) -> None:
    path = record(tmp_path / "set" / "episode_0.hdf5")
    hinges = np.delete(np.arange(14), [6, 13])
    with h5py.File(path, "r+") as file:
        for key in ("action", "observations/qpos"):
            values = file[key][:]
            values[:, hinges] = np.degrees(values[:, hinges])
            file[key][:] = values
    store, outcome = imported(ActHdf5Reader(OPENINGS), tmp_path / "set")
    assert "impossible for a joint in rad. Is the unit another one?" in next(
        iter(outcome.refused.values())
    )
    store, outcome = imported(
        ActHdf5Reader(AlohaLayout("opening", "opening", "deg")), tmp_path / "set"
    )
    np.testing.assert_allclose(
        only(store).arrays["joints/position"], samples.joints(5), rtol=1e-5, atol=1e-6
    )


def test_episodes_of_two_lengths_make_windows_and_statistics(
    tmp_path: Path, imported: Import, record: Record
) -> None:
    for number, steps in enumerate((5, 9)):
        record(tmp_path / "set" / f"episode_{number}.hdf5", steps, number)
    store, _ = imported(ActHdf5Reader(OPENINGS), tmp_path / "set")
    windows = Windows(store, chunk=4)
    assert len(windows) == 14
    batch = windows.batch([0, 13])
    assert batch["rgb/cam_high"].shape == (2, HEIGHT, WIDTH, 3)
    np.testing.assert_array_equal(batch["action_mask"], [[True] * 4, [True, False, False, False]])
    assert Statistics.of_episodes(store.episodes())["action"].count == 14


def test_a_repeated_import_adds_new_episodes_only(
    tmp_path: Path, imported: Import, record: Record
) -> None:
    for number in range(2):
        record(tmp_path / "set" / f"episode_{number}.hdf5", 5, number)
    reader = ActHdf5Reader(OPENINGS)
    imported(reader, tmp_path / "set")
    record(tmp_path / "set" / "episode_10.hdf5", 4, 7)
    (tmp_path / "imported" / ".open-set.0000000000.0123456789ab").mkdir()  # A writer was killed.
    store, outcome = imported(reader, tmp_path / "set")
    assert (len(outcome.imported), outcome.present) == (1, 2)
    assert [episode.attributes.seed for episode in store.episodes()] == [0, 1, 10]
    assert store.leftovers() == []
    record(
        tmp_path / "set" / "episode_1.hdf5", 5, 8
    )  # Another recording under an old name counts as new.
    assert len(imported(reader, tmp_path / "set")[1].imported) == 1


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2000])


def edit(path: Path, key: str, value: Any, where: Any = ...) -> None:
    with h5py.File(path, "r+") as file:
        values = file[key][:]
        values[where] = value
        file[key][:] = values


def replace(path: Path, key: str, value: Any) -> None:
    with h5py.File(path, "r+") as file:
        del file[key]
        if value is not None:
            file[key] = value


BAD = [
    (truncate, "episode_1.hdf5 cannot be read as HDF5; it is truncated"),
    (lambda path: path.write_bytes(b"\0" * 500), "episode_1.hdf5 cannot be read as HDF5"),
    (
        lambda path: edit(path, "action", np.nan, (3, 2)),
        "action at frame 3, dimension 2, is nan; every value must be finite.",
    ),
    (
        lambda path: edit(path, "observations/qvel", np.inf, (1, 0)),
        "observations/qvel at frame 1, dimension 0, is inf",
    ),
    (
        lambda path: edit(path, "action", 90.0, (2, 1)),
        "action at frame 2, 'left/shoulder', is 90; impossible for a joint in rad",
    ),
    (
        lambda path: edit(path, "observations/qpos", 1.62, (4, 13)),
        "observations/qpos at frame 4, 'right/gripper', is 1.62; impossible for a gripper that "
        "counts as 'opening'.",
    ),
    (
        lambda path: replace(path, "action", np.zeros((4, 14))),
        "observations/qpos has 5 frames, action has 4; they must be equal.",
    ),
    (
        lambda path: replace(
            path, "observations/images/cam_high", np.zeros((6, HEIGHT, WIDTH, 3), np.uint8)
        ),
        "observations/images/cam_high has 6 frames, action has 5; they must be equal.",
    ),
    (
        lambda path: replace(path, "observations/qpos", np.zeros((5, 7))),
        "ALOHA has 14 joints; the state has 7:",
    ),
    (
        lambda path: replace(path, "observations/qpos", None),
        "There is no data set 'observations/qpos'. Did you mean",
    ),
    (
        lambda path: replace(path, "observations/images/cam_high", None),
        "There is no camera 'cam_high'. Did you mean 'cam_left_wrist'? Allowed: cam_left_wrist.",
    ),
    (
        lambda path: replace(
            path, "observations/images/cam_high", np.zeros((5, HEIGHT, WIDTH, 3), np.float32)
        ),
        (
            "observations/images/cam_high at frame 0 is float32 (16, 24, 3); allowed: uint8 (16, "
            "24, "
            "3)."
        ),
    ),
    (
        lambda path: replace(
            path, "observations/images/cam_high", np.zeros((5, HEIGHT, WIDTH), np.uint8)
        ),
        "observations/images/cam_high has frames of shape (16, 24); allowed: (H, W, 3), or JPEG.",
    ),
    (
        lambda path: replace(
            path, "observations/images/cam_high", np.zeros((5, 4, WIDTH, 3), np.uint8)
        ),
        "It does not fit the other episodes. camera 'cam_high': height is 16 and 4.",
    ),
    (
        lambda path: replace(path, "action", np.full((5, 14), b"x")),
        "action has type |S1; allowed: floats and integers.",
    ),
    (lambda path: replace(path, "action", np.zeros(5)), "action has shape (5,); allowed: (T, D)."),
    (
        lambda path: replace(path, "action", np.zeros((0, 14))),
        "observations/qpos has 5 frames, action has 0",
    ),
]


@pytest.mark.parametrize(("spoil", "message"), BAD)
def test_a_damaged_episode_is_reported_and_the_others_are_imported(
    tmp_path: Path, imported: Import, record: Record, spoil: Any, message: str
) -> None:
    for number in range(3):
        record(tmp_path / "set" / f"episode_{number}.hdf5", 5, number)
    spoil(tmp_path / "set" / "episode_1.hdf5")
    store, outcome = imported(
        ActHdf5Reader(OPENINGS, cameras={camera: camera for camera in CAMERAS}), tmp_path / "set"
    )
    assert list(outcome.refused) == ["episode 1 (episode_1.hdf5)"]
    assert message in outcome.refused["episode 1 (episode_1.hdf5)"]
    assert [episode.attributes.seed for episode in store.episodes()] == [0, 2]
    assert [entry.name for entry in store.path.iterdir() if entry.name.startswith(".")] == []
    record(tmp_path / "set" / "episode_1.hdf5", 5, 1)  # After a repair it is imported as well.
    assert len(imported(ActHdf5Reader(OPENINGS), tmp_path / "set")[1].imported) == 1


def test_an_image_that_does_not_decode_is_named(
    tmp_path: Path, imported: Import, record: Record
) -> None:
    path = record(tmp_path / "set" / "episode_0.hdf5", images="padded")
    edit(path, "observations/images/cam_left_wrist", 0, 3)
    store, outcome = imported(ActHdf5Reader(OPENINGS), tmp_path / "set")
    assert (
        "observations/images/cam_left_wrist at frame 3 does not decode"
        in outcome.refused["episode 0 (episode_0.hdf5)"]
    )
    assert len(store) == 0
    assert store.leftovers() == []


def test_damaged_bytes_are_named(tmp_path: Path, imported: Import, record: Record) -> None:
    path = tmp_path / "set" / "episode_0.hdf5"
    record(path)
    with h5py.File(path, "r+") as file:
        frames = file["observations/images/cam_high"][:]
        del file["observations/images/cam_high"]
        file.create_dataset(
            "observations/images/cam_high",
            data=frames,
            chunks=(1, HEIGHT, WIDTH, 3),
            fletcher32=True,
        )
        place = file["observations/images/cam_high"].id.get_chunk_info(2).byte_offset
    raw = bytearray(path.read_bytes())
    raw[place] ^= 255
    path.write_bytes(raw)
    _, outcome = imported(ActHdf5Reader(OPENINGS), tmp_path / "set")
    assert (
        "observations/images/cam_high cannot be read at frames 2 to 3"
        in outcome.refused["episode 0 (episode_0.hdf5)"]
    )


@pytest.mark.parametrize("signature", [b"TREE", b"SNOD", b"HEAP"])
def test_damaged_structure_is_named(
    tmp_path: Path, imported: Import, record: Record, signature: bytes
) -> None:
    path = record(tmp_path / "set" / "episode_0.hdf5")
    path.write_bytes(path.read_bytes().replace(signature, b"\0\0\0\0"))
    assert (
        "episode_0.hdf5 is damaged: "
        in imported(ActHdf5Reader(OPENINGS), tmp_path / "set")[1].refused[
            "episode 0 (episode_0.hdf5)"
        ]
    )


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="There are no .hdf5 files in"):
        list(ActHdf5Reader(OPENINGS).episodes(tmp_path))


@pytest.mark.parametrize("images", ["raw", "png"])
def test_depth_is_imported_in_its_unit(
    tmp_path: Path, imported: Import, record: Record, images: str
) -> None:
    """A recorder of RGB-D cameras adds images_depth, uint16 without a unit."""
    path = record(tmp_path / "set" / "episode_0.hdf5")
    depth = np.random.default_rng(0).integers(3000, 9000, (5, HEIGHT, WIDTH)).astype(np.uint16)
    with h5py.File(path, "r+") as file:
        if images == "raw":
            file["observations/images_depth/cam_high"] = depth
        else:
            rows = [np.frombuffer(png(image), np.uint8) for image in depth]
            longest = max(map(len, rows))
            padded = [np.pad(row, (0, longest - len(row))) for row in rows]
            file["observations/images_depth/cam_high"] = np.stack(padded)
    reader = ActHdf5Reader(OPENINGS, depth_unit_m=0.0001)
    episode = only(imported(reader, tmp_path / "set")[0])
    high, wrist = episode.attributes.contract.cameras
    assert (high.depth, high.depth_unit_m, wrist.depth) == ("measured", 0.0001, None)
    np.testing.assert_array_equal(episode.arrays["depth/cam_high"], depth)
    with pytest.raises(
        ValueError, match=r"images_depth/cam_high does not contain its unit; set format.depth_unit"
    ):
        imported(ActHdf5Reader(OPENINGS), tmp_path / "set")


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
    tmp_path: Path,
    imported: Import,
    record: Record,
    name: str,
    shape: tuple[int, ...],
    message: str,
) -> None:
    path = record(tmp_path / "set" / "episode_0.hdf5")
    with h5py.File(path, "r+") as file:
        file[f"observations/images_depth/{name}"] = np.full(shape, 900, np.uint16)
    outcome = imported(ActHdf5Reader(OPENINGS, depth_unit_m=0.001), tmp_path / "set")[1]
    assert message in outcome.refused["episode 0 (episode_0.hdf5)"]
