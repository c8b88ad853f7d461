"""Mixtures: each example equals that of its own store, missing slots are marked, shares fit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.datasets.conftest import Arrays, MakeEpisode

from stringline.datasets.augmentation.augment import Augmentation
from stringline.datasets.augmentation.camera_augmentation import CropAndResize
from stringline.datasets.contract.contract import ActionDimension, Camera, Contract
from stringline.datasets.loading.mixture import MixedWindows, Source
from stringline.datasets.loading.sampler import BatchSampler
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.coordinates.coordinates import Coordinates, MetricPlaces, RayPlaces
from stringline.encoders.coordinates.geometry import View


def made(path: Path, contract: Contract, episodes: list[Arrays]) -> EpisodeStore:
    store = EpisodeStore.create(path)
    for seed, arrays in enumerate(episodes):
        store.write(arrays, EpisodeAttributes(contract, "reach", seed))
    return store


def only_wrist(contract: Contract, arrays: Arrays) -> tuple[Contract, Arrays]:
    """The same episode without its front camera, and with the wrist's under another name."""
    kept = {
        key.replace("/wrist", "/hand"): value
        for key, value in arrays.items()
        if not key.endswith("/front")
    }
    return contract.with_cameras(replace(contract.camera("wrist"), name="hand")), kept


@pytest.fixture
def stores(
    tmp_path: Path, contract: Contract, make_episode: MakeEpisode
) -> tuple[EpisodeStore, EpisodeStore]:
    """Two stores: one with both cameras, one with the wrist camera alone, called `hand`."""
    other, arrays = only_wrist(contract, make_episode(steps=31, seed=7))
    both = made(
        tmp_path / "both", contract, [make_episode(steps=20, seed=0), make_episode(steps=9, seed=1)]
    )
    return both, made(tmp_path / "hand", other, [arrays])


@pytest.fixture
def sources(stores: tuple[EpisodeStore, EpisodeStore]) -> tuple[Source, Source]:
    return Source(stores[0].path, 1.0), Source(stores[1].path, 3.0, {"wrist": "hand"})


@pytest.mark.parametrize("past", [(), (2, 1)])
def test_each_example_is_that_of_its_store(
    stores: tuple[EpisodeStore, EpisodeStore],
    sources: tuple[Source, Source],
    contract: Contract,
    past: tuple[int, ...],
) -> None:
    """In any order; missing values are zeros, identities or a pose without rotation, and marked."""
    mixed = MixedWindows(sources, stores, chunk=5, past=past)
    assert mixed.contract == contract
    alone = [Windows(store, chunk=5, past=past) for store in stores]
    assert len(mixed) == len(alone[0]) + len(alone[1])
    assert mixed.names == (*stores[0].names(), *stores[1].names())
    shuffled = np.random.default_rng(0).permutation(len(mixed))
    batch = mixed.batch(shuffled)
    for row, index in enumerate(shuffled):
        number = int(index >= len(alone[0]))
        window = alone[number][int(index) - number * len(alone[0])]
        assert mixed.names[batch["episode"][row]] == alone[number].names[window.pop("episode")]
        for key, value in window.items():
            np.testing.assert_array_equal(
                batch[key.replace("/hand", "/wrist")][row], value, err_msg=key
            )
        assert batch["present/wrist"][row]
        assert batch["present/front"][row] == (number == 0)
        if number == 1:
            for prefix in ("", "past/") if past else ("",):
                assert not batch[f"{prefix}rgb/front"][row].any()
                assert not batch[f"{prefix}depth/front"][row].any()
                assert (batch[f"{prefix}intrinsics/front"][row] == np.eye(3)).all()
                pose = batch[f"{prefix}T_base_camera/front"][row]
                assert (pose == np.diag([0, 0, 0, 1])).all()
                np.testing.assert_array_equal(
                    batch[f"{prefix}time/front"][row], window[f"{prefix}time"]
                )
    assert all(array.flags.c_contiguous for array in batch.values())
    whole = mixed.batch(np.flatnonzero(mixed.source == 1))
    assert set(whole) == set(batch), "batches of one store alone have the same keys"


def test_state_that_a_store_lacks_is_left_out_of_every_batch(
    tmp_path: Path, contract: Contract, make_episode: MakeEpisode
) -> None:
    velocity = {"joints/velocity": np.zeros((20, 2), np.float32)}
    stores = (
        made(tmp_path / "a", contract, [make_episode() | velocity]),
        made(tmp_path / "b", contract, [make_episode()]),
    )
    mixed = MixedWindows([Source(store.path) for store in stores], stores, chunk=5)
    assert "joints/velocity" in Windows(stores[0])[0]
    for number in (0, 1):
        assert "joints/velocity" not in mixed.batch(np.flatnonzero(mixed.source == number)[:2])


def test_draws_are_in_the_proportion_of_the_weights_and_continue_exactly(
    stores: tuple[EpisodeStore, EpisodeStore], sources: tuple[Source, Source]
) -> None:
    """Shares are exact to one window per epoch; a batch depends on seed and step only."""
    mixed = MixedWindows(sources, stores)
    own = np.random.default_rng(0).uniform(0.5, 2, len(mixed))
    weights = mixed.balanced(own)
    np.testing.assert_allclose(np.bincount(mixed.source, weights), [1, 3])
    for number in (0, 1):
        ratio = (weights / own)[mixed.source == number]
        np.testing.assert_allclose(ratio, ratio[0])

    def drawn(first: int, last: int, seed: int = 4) -> NDArray[np.int64]:
        sampler = BatchSampler(len(mixed), 5, seed, weights=weights)
        return np.concatenate([sampler.batch(step) for step in range(first, last)])

    epochs = drawn(0, 4 * len(mixed)).reshape(20, len(mixed))
    shares = (mixed.source[epochs] == 1).sum(axis=1)
    assert (np.abs(shares - 0.75 * len(mixed)) <= 1).all()
    np.testing.assert_array_equal(drawn(7, 30), drawn(0, 30)[7 * 5 :])
    assert (drawn(0, 30, seed=5) != drawn(0, 30)).any()


def test_slots_may_be_chosen(
    stores: tuple[EpisodeStore, EpisodeStore], sources: tuple[Source, Source]
) -> None:
    mixed = MixedWindows(sources, stores, cameras=["wrist"])
    assert [camera.name for camera in mixed.contract.cameras] == ["wrist"]
    assert "rgb/front" not in mixed.batch([0, len(mixed) - 1])
    with pytest.raises(ValueError, match=r"hand fills none of the slots \['front'\]"):
        MixedWindows(sources, stores, cameras=["front"])
    with pytest.raises(IndexError, match="There are windows 0 to"):
        mixed.batch([len(mixed)])


def test_depth_of_one_store_serves_the_slot(
    tmp_path: Path, contract: Contract, make_episode: MakeEpisode
) -> None:
    """A slot with depth in one store only has depth, which is missing in the other's examples."""
    arrays = make_episode()
    flat = {key: value for key, value in arrays.items() if key != "depth/front"}
    bare = contract.with_cameras(
        replace(contract.camera("front"), depth=None), contract.camera("wrist")
    )
    stores = made(tmp_path / "bare", bare, [flat]), made(tmp_path / "deep", contract, [arrays])
    mixed = MixedWindows([Source(store.path) for store in stores], stores)
    assert mixed.contract.camera("front") == contract.camera("front")
    batch = mixed.batch([0, len(mixed) - 1])
    assert batch["present/front"].all()
    assert not batch["depth/front"][0].any()
    assert batch["depth/front"][1].any()


def test_incompatible_stores_are_refused(
    tmp_path: Path,
    contract: Contract,
    make_episode: MakeEpisode,
    stores: tuple[EpisodeStore, EpisodeStore],
) -> None:
    """The message contains both names."""
    turned = replace(
        contract, action=(ActionDimension("one/elbow", "one", "joint"), contract.action[1])
    )
    slower = replace(contract, joints=("one/elbow", "one/gripper"))
    for name, other, message in (
        ("turned", turned, "both and .*turned cannot be mixed. action"),
        ("slower", slower, r"both and .*slower cannot be mixed. joints: 2 \(one/waist"),
    ):
        store = made(tmp_path / name, other, [make_episode()])
        with pytest.raises(ValueError, match=message):
            MixedWindows([Source(stores[0].path), Source(store.path)], [stores[0], store])
    with pytest.raises(
        ValueError, match=r"both and .*hand fill slot 'front' with 6x8 and 4x4 pixels"
    ):
        MixedWindows(
            [Source(stores[0].path), Source(stores[1].path, cameras={"front": "hand"})], stores
        )
    finer = contract.with_cameras(
        Camera("front", 6, 8, "simulated", 0.0005), contract.camera("wrist")
    )
    store = made(tmp_path / "finer", finer, [make_episode()])
    with pytest.raises(
        ValueError,
        match=r"finer fill slot 'front' with cameras whose depth_unit_m differs: 0.001 and 0.0005",
    ):
        MixedWindows([Source(stores[0].path), Source(store.path)], [stores[0], store])


def test_mistakes_in_a_source_are_explained(
    stores: tuple[EpisodeStore, EpisodeStore], tmp_path: Path
) -> None:
    for weight in (0.0, -1.0, float("inf")):
        with pytest.raises(ValueError, match="The weight of a is .*; allowed: positive and finite"):
            Source(Path("a"), weight)
    with pytest.raises(ValueError, match="A camera of a fills two slots"):
        Source(Path("a"), cameras={"one": "front", "two": "front"})
    with pytest.raises(ValueError, match=r"There is no camera 'frond'\. Did you mean 'front'"):
        MixedWindows([Source(stores[0].path, cameras={"front": "frond"})], stores[:1])
    with pytest.raises(ValueError, match="needs at least one store"):
        MixedWindows([], [])
    empty = EpisodeStore.create(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"no episodes to train from in .*empty"):
        MixedWindows([Source(empty.path)], [empty])


@pytest.mark.parametrize("lacking", [("intrinsics", "T_base_camera"), ("T_base_camera",)])
@pytest.mark.parametrize("coordinates", [MetricPlaces(), RayPlaces()], ids=repr)
def test_a_camera_without_calibration_has_no_places(
    tmp_path: Path,
    contract: Contract,
    make_episode: MakeEpisode,
    lacking: tuple[str, ...],
    coordinates: Coordinates,
) -> None:
    """Also after a crop, which changes intrinsics."""
    front = contract.with_cameras(contract.camera("front"))
    without = front.with_cameras(replace(front.camera("front"), has_geometry=False))
    episode = {k: v for k, v in make_episode(steps=9, seed=0).items() if "/wrist" not in k}
    intrinsics = np.array([[6, 0, 4], [0, 6, 3], [0, 0, 1]], np.float32)
    episode["intrinsics/front"] = np.broadcast_to(intrinsics, episode["intrinsics/front"].shape)
    uncalibrated = {k: v for k, v in episode.items() if k.split("/")[0] not in lacking}
    stores = (
        made(tmp_path / "known", front, [episode]),
        made(tmp_path / "unknown", without, [uncalibrated]),
    )
    mixed = MixedWindows([Source(store.path) for store in stores], stores, chunk=4)
    plain = {k: torch.from_numpy(v.copy()) for k, v in mixed.batch([0, len(mixed) - 1]).items()}
    crop = Augmentation([CropAndResize((0.8, 0.9))])
    cropped = crop(plain, mixed.contract.cameras, torch.Generator().manual_seed(0))
    for batch in (plain, cropped):
        view = View(
            height=6,
            width=8,
            depth=batch["depth/front"],
            intrinsics=batch["intrinsics/front"],
            T_base_camera=batch["T_base_camera/front"],
        )
        placed = coordinates.patches(view, 2, 2, torch.device("cpu"))[1]
        assert placed[0].any()
        assert not placed[1].any()
