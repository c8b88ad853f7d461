"""The store and plain zarr return the written arrays; incomplete episodes are hidden."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.datasets.conftest import MakeEpisode

from stringline import Camera, Contract, EpisodeAttributes, EpisodeStore
from stringline.datasets.contract.contract import ActionDimension
from stringline.datasets.store.zarr_layout import FORMAT_VERSION

ROOT = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / ".src")}


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    """An empty store."""
    return EpisodeStore.create(tmp_path / "store")


def attributes(contract: Contract, seed: int = 3, task: str = "reach") -> EpisodeAttributes:
    """Returns the attributes of the episodes in this file."""
    return EpisodeAttributes(
        contract, task, seed, success=True, instruction="touch it", extra={"note": [1, 2.5, None]}
    )


@contextmanager
def counted_opens(folder: Path) -> Iterator[Counter[str]]:
    """Counts the openings of each file below a folder while the block runs."""
    opened = Counter[str]()
    counting = True

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        # An audit hook cannot be removed.
        if counting and event == "open" and str(arguments[0]).startswith(f"{folder}{os.sep}"):
            opened[str(arguments[0])] += 1

    sys.addaudithook(count)
    try:
        yield opened
    finally:
        counting = False


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


def test_the_digest_identifies_the_content(
    tmp_path: Path, contract: Contract, make_episode: MakeEpisode
) -> None:
    """It is the same in another folder, under other ids and in another order of writing."""
    digests = []
    for folder, seeds in (("a", (1, 2)), ("b", (2, 1)), ("c", (1, 3)), ("d", (1,))):
        store = EpisodeStore.create(tmp_path / folder)
        for seed in seeds:
            store.write(make_episode(), attributes(contract, seed))
        digests.append(store.digest())
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    arrays = make_episode()
    arrays["action"] = arrays["action"] + 1
    store = EpisodeStore.create(tmp_path / "e")
    store.write(arrays, attributes(contract, 1))
    assert store.digest() != digests[3]


def test_names_are_ordered_by_task_and_seed(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """The order of writing does not matter."""
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
    """An exception during a recording discards the episode."""
    writer = store.writer(attributes(contract))
    writer.append("time", 0.0)
    assert len(os.listdir(store.path)) == 2
    with pytest.raises(KeyboardInterrupt), writer:
        raise KeyboardInterrupt
    assert sorted(os.listdir(store.path)) == ["zarr.json"]


def test_opening_reads_no_array(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """An episode without chunks can be opened; access to an array names the missing one."""
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
    """A store of a newer version is refused with advice."""
    name = store.write(make_episode(), attributes(contract))
    path = (store.path if where == "store" else store.path / name) / "zarr.json"
    path.write_text(
        path.read_text().replace(
            f'"stringline_{where}": {FORMAT_VERSION}', f'"stringline_{where}": 99'
        )
    )
    with pytest.raises(
        ValueError, match=r"format version 99; this Stringline reads version 2\. Update"
    ):
        EpisodeStore.open(store.path).episode(name)


def test_opening_other_paths(
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
    """All rows of an array have one type and shape."""
    with store.writer(attributes(contract)) as writer:
        writer.append("stage", np.int32(0))
        with pytest.raises(ValueError, match=r"stage: a row is int64 \(\)"):
            writer.append("stage", np.int64(0))


def test_attributes_must_be_json(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """Other attributes are refused, and the episode is discarded."""
    with pytest.raises(ValueError, match="plain JSON"):
        store.write(make_episode(), replace(attributes(contract), extra={"score": float("nan")}))
    assert sorted(os.listdir(store.path)) == ["zarr.json"]


@pytest.mark.slow
def test_hugging_face_datasets_stays_importable() -> None:
    """From the repository root, `import datasets` finds the package of Hugging Face."""
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


@pytest.mark.slow
def test_episodes_of_ten_thousand_folders_share_one_contract_and_read_each_file_once(
    store: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    """Metadata of the size of four RGB-D cameras and fourteen joints, with checksums.

    `benchmarks/many_episodes.py` measures the time.
    """
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
    with counted_opens(store.path) as opened:
        episodes = EpisodeStore.open(store.path).episodes()
    assert len(episodes) == 10_000
    assert {episode.attributes.contract for episode in episodes} == {large}
    assert len({id(episode.attributes.contract) for episode in episodes}) == 1
    metadata = [count for path, count in opened.items() if Path(path).parent != store.path]
    assert metadata == [1] * 10_000


def test_a_store_that_another_process_creates_meanwhile_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It appears after the look that did not find it."""
    path = tmp_path / "store"
    path.mkdir()
    listed = Path.iterdir

    def create_before_listing(self: Path) -> Iterator[Path]:
        monkeypatch.undo()
        EpisodeStore.create(path)
        return listed(self)

    monkeypatch.setattr(Path, "iterdir", create_before_listing)
    assert EpisodeStore.create(path).names() == []
