"""`verify` reports every changed byte of a store; the other episodes stay usable."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from tests.datasets.conftest import DataCommand, MakeEpisode

import stringline.datasets.store.zarr_layout
from stringline import Camera, Contract, EpisodeAttributes, EpisodeStore
from stringline.datasets.store.store import verify_store
from stringline.datasets.store.zarr_layout import (
    CHECKSUM_KEY,
    array_name,
    checksum_matches,
    checksummed_group,
)

Spoil = Callable[[Path], object]


@pytest.fixture
def store(tmp_path: Path, contract: Contract, make_episode: MakeEpisode) -> EpisodeStore:
    """Three episodes, with an array of no elements, a scalar, and text beyond ASCII."""
    store = EpisodeStore.create(tmp_path / "store")
    for seed in range(3):
        extra = {"extra/none": np.zeros((0, 3), np.float32), "extra/one": np.array(7, np.int16)}
        attributes = EpisodeAttributes(
            contract, "reach", seed, True, instruction="greif die Banane, schön sacht"
        )
        store.write(make_episode(steps=6, seed=seed) | extra, attributes)
    return store


@pytest.fixture
def small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores checksums of the rows of small images, as for images of real size."""
    monkeypatch.setattr(stringline.datasets.store.zarr_layout, "_LARGE_ROW", 40)


@pytest.mark.slow
@pytest.mark.parametrize("flips", [100, pytest.param(1000, marks=pytest.mark.stress)])
def test_every_flipped_byte_is_found(small_rows: None, store: EpisodeStore, flips: int) -> None:
    """A third of the flips hits any byte, a third any file, a third the metadata."""
    files = sorted(path for path in store.path.rglob("*") if path.is_file())
    sizes = np.array([path.stat().st_size for path in files])
    groups = [store.path / "zarr.json", *store.path.glob("*/zarr.json")]
    rng = np.random.default_rng(flips)
    assert verify_store(store) == {}
    hit = set()
    for flip in range(flips):
        among = groups if flip % 3 == 2 else files
        path = among[rng.choice(len(among), p=sizes / sizes.sum() if flip % 3 == 0 else None)]
        intact = path.read_bytes()
        spoilt = bytearray(intact)
        spoilt[rng.integers(len(spoilt))] ^= int(rng.integers(1, 256))
        path.write_bytes(spoilt)
        if path.parent == store.path:
            with pytest.raises(ValueError, match="The store .*(damaged|version)"):
                EpisodeStore.open(store.path)
        else:
            name = path.relative_to(store.path).parts[0]
            damage = verify_store(EpisodeStore.open(store.path))
            assert list(damage) == [name], (path, spoilt)
            assert all(name in sentence for sentence in damage[name])
        path.write_bytes(intact)
        hit.add(path)
    assert store.path / "zarr.json" in hit
    assert {path.name for path in hit} >= {"zarr.json", "0", "rows.crc32"}
    assert verify_store(store) == {}


def test_the_frame_of_a_flipped_byte_is_named(store: EpisodeStore) -> None:
    """Each row of images has a checksum in a file that zarr ignores; its damage is reported."""
    name = store.names()[0]
    assert not (
        store.path / name / "rgb.wrist/rows.crc32"
    ).exists()  # Rows of 48 bytes have no checksums.
    contract = replace(store.episode(name).attributes.contract, cameras=(Camera("large", 16, 16),))
    arrays = {
        key: array
        for key, array in store.episode(name).arrays.items()
        if not key.endswith(("/front", "/wrist"))
    }
    arrays |= {"rgb/large": np.zeros((6, 16, 16, 3), np.uint8), "time/large": arrays["time"]}
    arrays |= {
        "frame/large": np.arange(6, dtype=np.int32),
        "intrinsics/large": np.eye(3, dtype=np.float32),
    }
    arrays["T_base_camera/large"] = np.eye(4, dtype=np.float32)
    name = store.write(arrays, EpisodeAttributes(contract, "look", 0))
    chunk, rows = (store.path / name / "rgb.large" / part for part in ("c/0/0/0/0", "rows.crc32"))
    assert rows.stat().st_size == 6 * 4
    for flipped, message in (([4], "; frame 4."), ([2, 5], "; frame 2 and 1 more.")):
        data = bytearray(6 * 768)
        for frame in flipped:
            data[frame * 768 + 9] = 1
        chunk.write_bytes(data)
        (sentence,) = store.verify(name)
        assert " instead of " in sentence
        assert sentence.endswith(message)
    chunk.write_bytes(bytes(6 * 768))
    assert store.verify(name) == []
    rows.write_bytes(rows.read_bytes()[:-1] + b"x")
    assert [
        "the checksums of the rows of rgb/large are damaged" in sentence
        for sentence in store.verify(name)
    ] == [True]
    rows.unlink()
    assert store.verify(name) == []  # The file with the checksums of rows may be missing.
    group = zarr.open_group(store.path / name, mode="r")
    assert {array_name(key) for key in arrays} == set(group.array_keys())


def test_plain_zarr_reads_a_group_with_a_checksum(store: EpisodeStore) -> None:
    """The checksum is an attribute like others."""
    group = zarr.open_group(store.path, mode="r")
    assert group.attrs["stringline_store"] == 2
    assert len(str(group[store.names()[0]].attrs[CHECKSUM_KEY])) == 8
    for path in (store.path, store.path / store.names()[0]):
        assert checksum_matches((path / "zarr.json").read_bytes())


def test_a_checksum_is_replaced_not_repeated() -> None:
    """Attributes that were read may be written again."""
    once = checksummed_group({"a": 1})
    assert checksummed_group({CHECKSUM_KEY: "ffffffff", "a": 1}) == once
    assert checksum_matches(once)
    assert not checksum_matches(once.replace(b"1", b"2"))
    assert not checksum_matches(once + b"\n")
    assert not checksum_matches(b"")


def cut(name: str, size: int) -> Spoil:
    return lambda path: (path / name).write_bytes((path / name).read_bytes()[:size])


def lost(name: str) -> Spoil:
    return lambda path: (path / name).unlink()


def described(data: bytes) -> Spoil:
    """Replaces the attributes of an episode."""
    return lambda path: (path / "zarr.json").write_bytes(data)


ROWS = "rgb/front has 150 bytes instead of 288; it is damaged from frame 1 of 2"
UNTITLED = checksummed_group({"stringline_episode": 2})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lost("rgb.front/c/0/0/0/0"), "rgb/front is missing"),
        (cut("rgb.front/c/0/0/0/0", 150), ROWS),
        (cut("action/c/0/0", 40), "action has 40 bytes instead of 48"),
        (cut("action/c/0/0", 0), "action is missing or empty"),
        (lost("action/zarr.json"), "the zarr.json of action was changed"),
        (lost("zarr.json"), "its zarr.json is missing"),
        (cut("zarr.json", 500), "its zarr.json cannot be read"),
        (described(b"\xff\xfe{}"), "its zarr.json cannot be read"),
        (described(b"[]"), "its zarr.json cannot be read"),
        (described(b'{"attributes": 3}'), "its zarr.json has no attributes"),
        (described(UNTITLED), "The attributes of the episode lack 'task'"),
    ],
)
def test_damage_is_named_and_the_other_episodes_stay_usable(
    store: EpisodeStore, spoil: Spoil, message: str, data_command: DataCommand
) -> None:
    bad, *good = store.names()
    spoil(store.path / bad)
    assert list(verify_store(store)) == [bad]
    output = store.verify(bad)[0]
    assert f"Episode {bad}" in output
    assert message in output
    if "zarr.json" in output and "action" not in output:
        way_out = f"set it aside: stringline-data verify store={store.path} set_aside=true"
        with pytest.raises(ValueError, match=way_out):
            store.episodes()
    for name in good:
        assert len(store.episode(name).arrays["action"]) == 6
    status, out, error = data_command("verify", f"store={store.path}")
    assert status == 2
    assert output in out
    assert f"1 of 3 episodes in {store.path} are damaged" in error
    status, _, error = data_command("verify", f"store={store.path}", "set_aside=true")
    assert status == 2
    assert f"1 damaged episodes moved to {store.path}.trash; 2 intact episodes remain." in error
    assert store.names() == good
    assert verify_store(store) == {}


RECORD = """
import sys, time, numpy as np
from stringline.datasets.contract.contract import ActionDimension, Contract
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore
contract = Contract("none", "table", 10.0, (), ("a",), (), (ActionDimension("a", "one", "joint"),))
writer = EpisodeStore.open(sys.argv[1]).writer(EpisodeAttributes(contract, "reach", 9))
images = np.zeros((5, 2, 2, 3), np.uint8)
for key, array in {"time": np.zeros(20), "time/front": np.zeros(5), "rgb/front": images}.items():
    writer.put(key, array)
print(writer.name, flush=True)
time.sleep(60)
"""


def test_leftovers_of_a_killed_writer_are_described(
    store: EpisodeStore, data_command: DataCommand
) -> None:
    """With the numbers of steps and frames; a running writer is not reported."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / ".src")}

    def output() -> str:
        return data_command("verify", f"store={store.path}")[1]

    command = [sys.executable, "-c", RECORD, str(store.path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as recorder:
        assert recorder.stdout is not None
        name = recorder.stdout.readline().strip()
        assert "is incomplete" not in output()
        recorder.kill()
    assert (
        f"Episode {name} is incomplete: its writer was killed after 20 steps, 5 frames of "
        f"rgb/front."
    ) in output()
