"""A bad episode costs one episode, the majority decides the contract, and imports take turns."""

import io
import json
import logging
import shutil
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.datasets.formats import small_sets
from tests.datasets.formats.conftest import OPENINGS, Import
from tests.datasets.formats.droid_recordings import encoded
from tests.datasets.formats.lerobot_recordings import recorded
from tests.datasets.formats.test_rlds import framed

from stringline.datasets.cameras.resampling import ImageSize
from stringline.datasets.formats import image_codecs
from stringline.datasets.formats.act_hdf5 import ActHdf5Reader, ActHdf5Writer
from stringline.datasets.formats.checks import blamed_on_data
from stringline.datasets.formats.foreign import (
    ForeignDataError,
    ImportedEpisode,
    Reader,
    Reference,
    refusals,
)
from stringline.datasets.formats.importing import ImportedCameras, import_data
from stringline.datasets.formats.lerobot import LeRobotReader
from stringline.datasets.formats.rlds import example, records
from stringline.datasets.store.store import EpisodeStore


@pytest.fixture
def act(tmp_path: Path, samples: Any) -> Path:
    """Three episodes of ACT with two cameras."""
    store = EpisodeStore.create(tmp_path / "original")
    for seed in range(3):
        store.write(*samples.episode(4, seed))
    ActHdf5Writer(state_gripper="opening", action_gripper="opening").write(store, tmp_path / "act")
    return tmp_path / "act"


@pytest.mark.parametrize("data", [b"", b"no image of any kind"])
def test_no_message_names_an_object_in_memory(act: Path, imported: Import, data: bytes) -> None:
    for file in act.iterdir():
        with h5py.File(file, "r+") as opened:
            del opened["observations/images/overhead"]
            opened["observations/images/overhead"] = np.array([np.frombuffer(data, np.uint8)] * 4)
    outcome = imported(ActHdf5Reader(OPENINGS), act)[1]
    assert len(outcome.refused) == 3
    assert not any("object at 0x" in reason for reason in outcome.refused.values())


def test_addresses_in_errors_of_libraries_are_left_out() -> None:
    with pytest.raises(ForeignDataError) as caught, blamed_on_data():
        raise OSError(f"cannot read {io.BytesIO()}")
    assert str(caught.value) == "It cannot be read (OSError: cannot read _io.BytesIO)."


def without_camera(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        del file["observations/images/overhead"]


def test_the_majority_decides_the_contract(
    act: Path, imported: Import, caplog: pytest.LogCaptureFixture
) -> None:
    without_camera(act / "episode_0.hdf5")
    with caplog.at_level(logging.INFO):
        store, outcome = imported(ActHdf5Reader(OPENINGS), act)
    assert [episode.attributes.seed for episode in store.episodes()] == [1, 2]
    assert outcome.refused == {
        "episode 0 (episode_0.hdf5)": "It does not fit the other episodes. There is no camera "
        "'overhead'. Allowed: wrist_left."
    }
    assert (
        "Contract of 2 of 3 episodes: aloha, 50 Hz, 14 joints, 14 action dimensions, cameras: "
        "overhead 16x24; wrist_left 16x24."
    ) in caplog.messages


def test_an_earlier_import_decides_the_contract(act: Path, imported: Import) -> None:
    aside = [(act / f"episode_{number}.hdf5").rename(act / f"{number}.aside") for number in (1, 2)]
    without_camera(act / "episode_0.hdf5")
    imported(ActHdf5Reader(OPENINGS), act)
    for file in aside:
        file.rename(act / f"episode_{file.stem}.hdf5")
    _, outcome = imported(ActHdf5Reader(OPENINGS), act)
    assert list(outcome.refused) == ["episode 1 (episode_1.hdf5)", "episode 2 (episode_2.hdf5)"]


def test_episodes_are_known_by_content_after_a_deletion_that_renumbers(
    act: Path, imported: Import
) -> None:
    """The second import once stored two of three demonstrations twice."""
    store, _ = imported(ActHdf5Reader(OPENINGS), act)
    (act / "episode_0.hdf5").unlink()
    for number in (1, 2):
        (act / f"episode_{number}.hdf5").rename(act / f"episode_{number - 1}.hdf5")
    renamed = act.rename(act.with_name("act_without_0"))
    _, outcome = imported(ActHdf5Reader(OPENINGS), renamed)
    assert (outcome.imported, outcome.present, outcome.refused) == ((), 2, {})
    assert len(store) == 3


def test_equal_episodes_of_a_data_set_are_told_and_imported_once_each(
    act: Path, imported: Import, caplog: pytest.LogCaptureFixture
) -> None:
    """Copies, or the same motion in another scene: only the user knows."""
    shutil.copy(act / "episode_1.hdf5", act / "episode_3.hdf5")
    for present in (0, 4):
        caplog.clear()
        _, outcome = imported(ActHdf5Reader(OPENINGS), act)
        assert (len(outcome.imported), outcome.present) == (4 - present, present)
        assert "1 episodes have the actions and joint positions of another one" in caplog.text
        assert "episode 1 (episode_1.hdf5) and episode 3 (episode_3.hdf5)" in caplog.text


def test_the_same_error_is_printed_once(
    act: Path, imported: Import, caplog: pytest.LogCaptureFixture
) -> None:
    for file in act.iterdir():
        file.write_bytes(file.read_bytes()[: -100 - len(file.name)])
    (act / "episode_1.hdf5").write_bytes(b"")
    outcome = imported(ActHdf5Reader(OPENINGS), act)[1]
    printed = [message for message in caplog.messages if message.startswith("Left out: ")]
    assert (len(outcome.refused), len(printed)) == (3, 2)
    first, other = refusals(outcome.refused)
    assert first.startswith("Left out: 2 episodes, episode 0 (episode_0.hdf5), episode 2 (")
    assert other.startswith("Left out: episode 1 (episode_1.hdf5): episode_1.hdf5 cannot be read")


def with_action(**data: Any) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            del file["action"]
            file.create_dataset("action", **data)

    return spoil


def bomb() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Returns a PNG of a few bytes that claims to have 60000 x 60000 pixels."""
    data = image_codecs.png(np.zeros((1, 1, 3), np.uint8))
    header = b"IHDR" + struct.pack(">II", 60000, 60000) + data[24:29]
    bytes_ = data[:12] + header + struct.pack(">I", zlib.crc32(header)) + data[33:]
    return np.frombuffer(bytes_, np.uint8)


def with_bomb(first: int) -> Callable[[Path], None]:
    """Returns a function that makes an image and its successors a decompression bomb."""

    def spoil(path: Path) -> None:
        good = np.frombuffer(image_codecs.png(np.zeros((16, 24, 3), np.uint8)), np.uint8)
        with h5py.File(path, "r+") as file:
            del file["observations/images/overhead"]
            frames = file.create_dataset(
                "observations/images/overhead", (4,), h5py.vlen_dtype(np.uint8)
            )
            for frame in range(4):
                frames[frame] = bomb() if frame >= first else good

    return spoil


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (with_action(data=1.0), "action is empty or a single value; allowed: one row per step."),
        (with_action(data=h5py.Empty("f4")), "action is empty or a single value; allowed: one row"),
        (with_action(data=np.zeros((4, 0))), "ALOHA has 14 joints; the action has 0"),
        (
            with_action(shape=(2**44, 14), dtype="f8", chunks=(1024, 14)),
            "action has 17592186044416 rows; allowed: 1048576.",
        ),
        (
            with_action(shape=(4, 2**40), dtype="f8", chunks=(4, 1024)),
            "action has rows of 8796093022208 bytes in chunks of 32768; allowed: 268435456.",
        ),
        (with_bomb(0), "does not decode: Image size (3600000000 pixels) exceeds limit"),
        (with_bomb(2), "does not decode: Image size (3600000000 pixels) exceeds limit"),
    ],
)
def test_a_bad_episode_costs_one_episode(
    act: Path, imported: Import, spoil: Callable[[Path], None], message: str, number: int
) -> None:
    spoil(act / f"episode_{number}.hdf5")
    store, outcome = imported(ActHdf5Reader(OPENINGS), act)
    assert list(outcome.refused) == [f"episode {number} (episode_{number}.hdf5)"]
    assert message in next(iter(outcome.refused.values()))
    assert len(store) == 2
    assert store.leftovers() == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("features", ["action"], "features is a list; allowed: a description by name"),
        ("features", {"action": 3}, "the feature 'action' has no dtype"),
    ],
)
def test_a_damaged_description_of_the_data_set_is_named(
    tmp_path: Path, samples: Any, imported: Import, key: str, value: Any, message: str
) -> None:
    info = recorded(samples, tmp_path / "set", "v2.1", "image") / "meta/info.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {key: value}))
    with pytest.raises(ValueError, match=message):
        imported(LeRobotReader(OPENINGS), tmp_path / "set")


def test_data_outside_of_the_data_set_are_not_read(
    tmp_path: Path, samples: Any, imported: Import
) -> None:
    info = recorded(samples, tmp_path / "set", "v2.1", "image") / "meta/info.json"
    plain = json.loads(info.read_text()) | {"data_path": "/tmp/{episode_index}"}
    info.write_text(json.dumps(plain))
    store, outcome = imported(LeRobotReader(OPENINGS), tmp_path / "set")
    assert len(store) == 0
    (message,) = outcome.refused.values()
    assert "leads out of the data set" in message


class Paused:
    """A reader that lists its episodes when it may."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.begun = threading.Event()
        self.may_go = threading.Event()

    def episodes(self, path: Path) -> Iterator[Reference]:
        self.begun.set()
        assert self.may_go.wait(30)
        yield from self._reader.episodes(path)


def test_imports_into_one_store_take_turns(act: Path, tmp_path: Path) -> None:
    """Two imports at once once gave each episode twice."""
    store = EpisodeStore.create(tmp_path / "imported")
    outcomes = {}
    readers = {name: Paused(ActHdf5Reader(OPENINGS)) for name in ("first", "second")}

    def run(name: str) -> None:
        outcomes[name] = import_data(readers[name], act, store)

    threads = {name: threading.Thread(target=run, args=(name,)) for name in readers}
    threads["first"].start()
    assert readers["first"].begun.wait(30)
    threads["second"].start()
    assert not readers["second"].begun.wait(0.2)
    for name, thread in threads.items():
        readers[name].may_go.set()
        thread.join(60)
    assert (len(outcomes["first"].imported), outcomes["second"].present) == (3, 3)
    assert len(store) == 3


def test_the_rate_of_rlds_agrees_with_its_time_stamps(tmp_path: Path, imported: Import) -> None:
    """Features of times, in whole ns or in s, are compared although no option chooses them."""
    path = small_sets.rlds(tmp_path)
    features = path / "1.0.0" / "features.json"
    plain = json.loads(features.read_text())
    step = plain["featuresDict"]["features"]["steps"]["sequence"]["feature"]
    observation = step["featuresDict"]["features"]["observation"]["featuresDict"]["features"]
    observation["timestamp"] = {"tensor": {"shape": {}, "dtype": "int64"}}
    features.write_text(json.dumps(plain))
    (file,) = path.glob("1.0.0/*.tfrecord-*")
    stamped = []
    for record in records(file):
        values = dict(example(record.read()))
        steps = len(values["steps/reward"])
        values["steps/observation/timestamp"] = 10**18 + 10**8 * np.arange(steps)
        stamped.append(framed(encoded(values)))
    file.write_bytes(b"".join(stamped))
    with pytest.raises(
        ValueError, match=r"observation/timestamp have 10 steps per .* is 20; .*=10"
    ):
        imported(small_sets.READERS["rlds"], path)
    store, outcome = imported(small_sets.MAKERS["rlds"](control_hz=10), path)
    assert (len(store), outcome.refused) == (3, {})


def test_an_error_of_all_episodes_is_one_of_the_options(tmp_path: Path, imported: Import) -> None:
    def fail() -> ImportedEpisode:
        raise ValueError("Set the grippers.")

    class Failing:
        def episodes(self, path: Path) -> Iterator[Reference]:
            yield Reference("a", 0, fail)
            yield Reference("b", 1, fail)

    with pytest.raises(ValueError, match="Set the grippers"):
        imported(Failing(), tmp_path)


def test_an_import_tells_how_much_of_the_disk_it_takes(
    tmp_path: Path, samples: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Decoded, the images of a video take a hundred times as much as the video."""
    root = recorded(samples, tmp_path / "set", "v3.0")
    store = EpisodeStore.create(tmp_path / "store")
    reader = LeRobotReader(OPENINGS)
    with pytest.raises(ValueError, match=r"3 new episodes take .* GiB in .*/store, which ke") as no:
        import_data(reader, root, store, disk_gib=1e-6)
    assert len(store) == 0
    for way in ("image_size=[ROWS,COLUMNS]", "format.cameras=", "disk_gib=1."):
        assert way in str(no.value)
    smaller = ImportedCameras(size=ImageSize.of([2, 3], "resize"))
    with caplog.at_level(logging.INFO):
        outcome = import_data(reader, root, store, cameras=smaller, disk_gib=2e-5)
    assert len(outcome.imported) == 3
    told = next(message for message in caplog.messages if message.startswith("3 new episodes take"))
    taken = sum(entry.nbytes for each in store.episodes() for entry in each.arrays.values())
    assert float(told.split()[4]) == pytest.approx(taken / 2**30, rel=0.01)
    assert import_data(reader, root, store, cameras=smaller, disk_gib=1e-9).present == 3
