"""The store and plain zarr return the written arrays; incomplete episodes are hidden."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray
from zarr.core.buffer import default_buffer_prototype

from stringline.datasets.contract.contract import ActionDimension, Camera, Contract
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.versions import FORMAT_VERSION
from stringline.datasets.store.zarr_layout import DTYPES, ArrayEntry, array_metadata, array_name

ROOT = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / ".src")}
Arrays = dict[str, NDArray[Any]]
MakeEpisode = Callable[..., Arrays]


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    """An empty store."""
    return EpisodeStore.create(tmp_path / "store")


def attributes(contract: Contract, seed: int = 3, task: str = "reach") -> EpisodeAttributes:
    """What the episodes of this file say about themselves."""
    return EpisodeAttributes(
        contract, task, seed, success=True, instruction="touch it", extra={"note": [1, 2.5, None]}
    )


def test_round_trip(store: EpisodeStore, contract: Contract, make_episode: MakeEpisode) -> None:
    """Arrays and attributes come back equal, mapped and read-only."""
    written = make_episode()
    name = store.write(written, attributes(contract))
    episode = EpisodeStore.open(store.path).episode(name)
    assert episode.attributes == attributes(contract)
    assert set(episode.arrays) == set(written)
    assert episode.steps == 20
    assert episode.nbytes == sum(array.nbytes for array in written.values())
    for key, array in written.items():
        assert episode.arrays[key].dtype == array.dtype
        np.testing.assert_array_equal(episode.arrays[key], array)
        assert not episode.arrays[key].flags.writeable
    assert store.verify(name) == []


def test_plain_zarr_reads_it(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """Zarr alone finds the episode, its attributes and its arrays; numpy alone maps the chunk."""
    written = make_episode()
    name = store.write(written, attributes(contract))
    group = zarr.open_group(store.path, mode="r")
    assert list(group.group_keys()) == [name]
    assert group[name].attrs["task"] == "reach"
    assert group[name].attrs["cameras"] == ["front", "wrist"]
    for key, array in written.items():
        stored = group[f"{name}/{array_name(key)}"]
        assert isinstance(stored, zarr.Array)
        np.testing.assert_array_equal(stored[...], array)
    chunk = np.memmap(
        store.path / name / "rgb.front" / "c/0/0/0/0",
        np.uint8,
        "r",
        shape=written["rgb/front"].shape,
    )
    np.testing.assert_array_equal(chunk, written["rgb/front"])


@pytest.mark.parametrize("dtype", DTYPES)
def test_metadata_is_what_zarr_writes(dtype: str) -> None:
    """For every type, the hand-written metadata equals that of zarr."""
    array = zarr.create_array(
        {},
        shape=(5, 0, 3),
        chunks=(5, 1, 3),
        dtype=dtype,
        compressors=None,
        filters=None,
        fill_value=0,
    )
    written = array.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    assert json.loads(array_metadata(ArrayEntry((5, 0, 3), dtype, 0))) == json.loads(written)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: arrays_of.arrays(
            np.dtype(dtype), arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
        )
    )
)
def test_any_array_round_trips(
    store: EpisodeStore, make_episode: MakeEpisode, array: NDArray[Any]
) -> None:
    """Scalars, arrays of length 0 and every type survive beside the contract's keys."""
    bare = Contract("none", "table", 10.0, (), ("a",), (), (ActionDimension("a", "one", "joint"),))
    steps = {key: make_episode(steps=2)[key][..., :1] for key in ("joints/position", "action")}
    name = store.write(
        {"time": np.arange(2.0), **steps, "extra/any": array}, EpisodeAttributes(bare, "any", 0)
    )
    np.testing.assert_array_equal(store.episode(name).arrays["extra/any"], array)
    assert store.episode(name).arrays["extra/any"].shape == array.shape
    assert store.verify(name) == []
    read = zarr.open_array(store.path / name / "extra.any", mode="r")
    np.testing.assert_array_equal(read[...], array)


def test_big_endian_is_stored_little(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """The byte order of the source does not matter."""
    name = store.write(
        make_episode() | {"extra/big": np.arange(5, dtype=">u4")}, attributes(contract)
    )
    chunk = store.path / name / "extra.big" / "c" / "0"
    assert chunk.read_bytes() == np.arange(5, dtype="<u4").tobytes()


def test_names_are_ordered_by_task_and_seed(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """The order of writing leaves no trace."""
    for task, seed in (("b", 2), ("a", 10), ("b", 1), ("a", 9)):
        store.write(make_episode(steps=1), attributes(contract, seed, task))
    assert [name.rsplit(".", 1)[0] for name in store.names()] == [
        "a.0000000009",
        "a.0000000010",
        "b.0000000001",
        "b.0000000002",
    ]
    assert store.seeds("a") == {9, 10}


def test_streaming_equals_writing_at_once(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """Step by step, with images only where they are new, gives the same arrays."""
    whole = make_episode()
    with store.writer(replace(attributes(contract), success=None)) as writer:
        for t in range(20):
            observation = {
                key: whole[key][t] for key in ("time", "joints/position", "T_base_gripper/one")
            }
            for camera in ("front", "wrist"):
                frame = whole[f"frame/{camera}"][t]
                observation |= {
                    key: whole[key][frame] for key in (f"rgb/{camera}", f"time/{camera}")
                }
                observation |= {f"intrinsics/{camera}": whole[f"intrinsics/{camera}"]}
            observation["depth/front"] = whole["depth/front"][whole["frame/front"][t]]
            observation["T_base_camera/front"] = whole["T_base_camera/front"]
            observation["T_base_camera/wrist"] = whole["T_base_camera/wrist"][
                whole["frame/wrist"][t]
            ]
            writer.step(observation, whole["action"][t])
        assert len(store) == 0
        name = writer.commit(success=False, extra={"reason": "dropped"})
    episode = store.episode(name)
    assert episode.attributes.success is False
    assert episode.attributes.extra["reason"] == "dropped"
    for key, array in whole.items():
        expected = np.broadcast_to(array, (5, 4, 4)) if key == "T_base_camera/front" else array
        np.testing.assert_array_equal(episode.arrays[key], expected)
    assert store.verify(name) == []


def test_leaving_without_commit_discards(store: EpisodeStore, contract: Contract) -> None:
    """An exception in the middle of a recording leaves nothing."""
    writer = store.writer(attributes(contract))
    writer.append("time", 0.0)
    assert len(os.listdir(store.path)) == 2
    with pytest.raises(KeyboardInterrupt), writer:
        raise KeyboardInterrupt
    assert sorted(os.listdir(store.path)) == ["zarr.json"]


def test_opening_reads_no_array(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """An episode opens although its chunks are gone; looking at one then says which."""
    name = store.write(make_episode(), attributes(contract))
    for chunk in (store.path / name).glob("*/c"):
        chunk.rename(chunk.with_name("away"))
    episode = store.episode(name)
    assert episode.steps == 20
    with pytest.raises(ValueError, match=r"rgb/front is missing"):
        episode.arrays["rgb/front"]


def test_flipped_byte_is_found(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """Verify names the array, and only that one."""
    name = store.write(make_episode(), attributes(contract))
    chunk = store.path / name / "depth.front" / "c/0/0/0"
    data = bytearray(chunk.read_bytes())
    data[17] ^= 4
    chunk.write_bytes(data)
    assert [sentence.split(" has")[0] for sentence in store.verify(name)] == [
        f"Episode {name}: depth/front"
    ]
    chunk.write_bytes(data[:-1])
    assert "bytes instead of" in store.verify(name)[0]


@pytest.mark.parametrize("where", ["store", "episode"])
def test_newer_format(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode, where: str
) -> None:
    """What a newer version wrote is refused with advice."""
    name = store.write(make_episode(), attributes(contract))
    path = (store.path if where == "store" else store.path / name) / "zarr.json"
    path.write_text(
        path.read_text().replace(
            f'"stringline_{where}": {FORMAT_VERSION}', f'"stringline_{where}": 99'
        )
    )
    with pytest.raises(
        ValueError, match=r"format version 99; this Stringline reads up to 2\. Update"
    ):
        EpisodeStore.open(store.path).episode(name)


def test_opening_what_is_no_store(
    tmp_path: Path, store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """Every wrong path gets a message."""
    with pytest.raises(ValueError, match="There is no episode store at"):
        EpisodeStore.open(tmp_path / "nothing")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("")
    with pytest.raises(ValueError, match="choose a new or empty folder"):
        EpisodeStore.create(tmp_path / "full")
    zarr.create_group(tmp_path / "foreign")
    with pytest.raises(ValueError, match="names no format version"):
        EpisodeStore.open(tmp_path / "foreign")
    name = store.write(make_episode(), attributes(contract))
    with pytest.raises(ValueError, match=f"Did you mean '{name}'"):
        store.episode(name[:-1])
    with pytest.raises(KeyError, match="Did you mean 'rgb/front'"):
        store.episode(name).arrays["rgb/frond"]


@pytest.mark.parametrize(
    ("key", "spoil", "message"),
    [
        ("action", lambda a: a.astype(np.float64), "action has type float64; allowed: float32"),
        ("rgb/front", lambda a: a[..., :2], r"rgb/front has shape .* allowed"),
        (
            "joints/position",
            lambda a: np.where(a == a[3], np.float32(np.nan), a),
            r"joints/position is not finite at index \(3, 0\)",
        ),
        ("depth/front", lambda a: a[:-1], "depth/front has shape"),
        ("frame/wrist", lambda a: a + np.int32(1), "frame/wrist points at frames"),
        ("time", lambda a: a[::-1].copy(), "time does not increase"),
        ("extra/text", lambda _: np.array(["a"]), "cannot be stored"),
        ("extra.dot", lambda _: np.zeros(1), "cannot be an array key"),
    ],
)
def test_bad_arrays_leave_nothing(
    store: EpisodeStore,
    contract: Contract,
    make_episode: MakeEpisode,
    key: str,
    spoil: Callable[[Any], Any],
    message: str,
) -> None:
    """Each mistake is named, and nothing of the episode is visible."""
    arrays = make_episode()
    arrays[key] = spoil(arrays.get(key))
    with pytest.raises(ValueError, match=message):
        store.write(arrays, attributes(contract))
    assert sorted(os.listdir(store.path)) == ["zarr.json"]


def test_changing_rows_are_refused(store: EpisodeStore, contract: Contract) -> None:
    """A stream keeps the type and shape that it began with."""
    with store.writer(attributes(contract)) as writer:
        writer.append("stage", np.int32(0))
        with pytest.raises(
            ValueError, match=r"stage: a row is int64 \(\); the previous rows are int32 \(\)"
        ):
            writer.append("stage", np.int64(0))


def test_no_json_no_episode(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """Attributes that JSON cannot hold are refused, and nothing stays."""
    with pytest.raises(ValueError, match="plain JSON"):
        store.write(make_episode(), replace(attributes(contract), extra={"score": float("nan")}))
    assert sorted(os.listdir(store.path)) == ["zarr.json"]


def test_hugging_face_datasets_stays_importable() -> None:
    """Run from the repository root, both `datasets` are themselves."""
    code = (
        "import datasets; datasets.Dataset; import stringline.datasets.store.store as s; "
        "print(s.__name__)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "stringline.datasets.store.store"


def test_light_imports() -> None:
    """The store needs neither torch nor zarr nor MuJoCo at run time."""
    code = (
        "import sys, stringline.datasets.store.store; print({'torch', 'zarr', 'mujoco'} & "
        "set(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "set()"


def test_many_open_episodes_need_few_files(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """Opening episodes keeps no file open."""
    for seed in range(20):
        store.write(make_episode(steps=2), attributes(contract, seed))
    before = len(os.listdir("/proc/self/fd"))
    episodes = store.episodes()
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(episodes) == 20


def test_ten_thousand_episodes_open_in_twice_the_time_of_parsing_their_metadata(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """Metadata of the size of four RGB-D cameras and fourteen joints, with checksums."""
    cameras = tuple(Camera(f"camera_{number}", 6, 8, depth="simulated") for number in range(4))
    joints = tuple(f"one/joint_{number}" for number in range(14))
    action = tuple(ActionDimension(joint, "one", "joint") for joint in joints)
    large = Contract("large", "table", 50.0, cameras, joints, ("one",), action)
    front = {key: array for key, array in make_episode().items() if key.endswith("/front")}
    arrays = {
        f"{key.split('/')[0]}/{camera.name}": array
        for camera in cameras
        for key, array in front.items()
    }
    arrays |= {key: make_episode()[key] for key in ("time", "T_base_gripper/one")}
    wide = np.zeros((20, 14), np.float32)
    name = store.write(arrays | {"action": wide, "joints/position": wide}, attributes(large))
    data = (store.path / name / "zarr.json").read_bytes()
    assert len(data) > 8000
    for seed in range(9999):
        folder = store.path / f"reach.{seed + 10:010d}.{seed:012x}"
        folder.mkdir()
        (folder / "zarr.json").write_bytes(data)
    start = time.process_time()
    for file in store.path.glob("*/zarr.json"):
        json.loads(file.read_bytes())
    read = time.process_time() - start
    start = time.process_time()
    episodes = EpisodeStore.open(store.path).episodes()
    taken = time.process_time() - start
    assert taken < 2 * read
    assert len(episodes) == 10_000
    assert {episode.attributes.contract for episode in episodes} == {large}
