"""Stores of format version 1 are read, and migrated without loss; damage is reported."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract
from stringline.datasets.data import main
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.verification import migrate, verify_store
from stringline.datasets.store.zarr_layout import CHECKSUM_KEY, check_version

MakeEpisode = Callable[..., dict[str, NDArray[Any]]]


@pytest.fixture
def old(tmp_path: Path, contract: Contract, make_episode: MakeEpisode) -> EpisodeStore:
    """Three episodes as version 1 wrote them: the same files without checksums of metadata."""
    store = EpisodeStore.create(tmp_path / "old")
    for seed in range(3):
        store.write(
            make_episode(seed=seed),
            EpisodeAttributes(contract, "reach", seed, seed == 1, instruction="touch it"),
        )
    for path in [store.path / "zarr.json", *store.path.glob("*/zarr.json")]:
        plain = json.loads(path.read_text())
        del plain["attributes"][CHECKSUM_KEY]
        plain["attributes"].update(
            {key: 1 for key in plain["attributes"] if key.startswith("stringline_")}
        )
        path.write_text(json.dumps(plain, indent=2))
    return EpisodeStore.open(store.path)


def test_an_older_store_is_read_as_it_is(old: EpisodeStore, make_episode: MakeEpisode) -> None:
    assert old.version == 1
    assert [episode.version for episode in old.episodes()] == [1, 1, 1]
    assert verify_store(old) == {}
    for seed, episode in enumerate(old.episodes()):
        assert (episode.attributes.seed, episode.attributes.success) == (seed, seed == 1)
        for key, array in make_episode(seed=seed).items():
            np.testing.assert_array_equal(episode.arrays[key], array)


def test_migrating_loses_nothing(old: EpisodeStore, make_episode: MakeEpisode) -> None:
    before = [episode.attributes for episode in old.episodes()]
    assert migrate(old) == old.names()
    new = EpisodeStore.open(old.path)
    assert new.version == 2
    assert [episode.version for episode in new.episodes()] == [2, 2, 2]
    assert [episode.attributes for episode in new.episodes()] == before
    assert verify_store(new) == {}
    assert migrate(new) == []
    np.testing.assert_array_equal(
        new.episodes()[2].arrays["rgb/front"], make_episode(seed=2)["rgb/front"]
    )


def test_a_store_may_contain_new_and_old_episodes(
    old: EpisodeStore, contract: Contract, make_episode: MakeEpisode
) -> None:
    old.write(make_episode(seed=7), EpisodeAttributes(contract, "reach", 7))
    assert [episode.version for episode in old.episodes()] == [1, 1, 1, 2]
    assert len(migrate(old)) == 3


def test_a_damaged_episode_is_not_migrated(old: EpisodeStore) -> None:
    bad, *good = old.names()
    chunk = old.path / bad / "action/c/0/0"
    chunk.write_bytes(chunk.read_bytes()[:-8])
    with pytest.raises(
        ValueError, match=f"1 of 3 episodes are damaged, the others are done. Episode {bad}: action"
    ):
        migrate(old)
    assert [old.episode(name).version for name in (bad, *good)] == [1, 2, 2]


@pytest.mark.parametrize(
    "spoil",
    [
        {"arrays": 3},
        {"arrays": {"a": {"shape": [1], "dtype": "text", "crc32": 0}}},
        {"contract": 3},
    ],
)
def test_damage_without_a_checksum_is_found_where_it_breaks_the_metadata(
    old: EpisodeStore, spoil: dict[str, object]
) -> None:
    name = old.names()[0]
    path = old.path / name / "zarr.json"
    plain = json.loads(path.read_text())
    plain["attributes"].update(spoil)
    path.write_text(json.dumps(plain))
    with pytest.raises(ValueError, match=f"Episode {name} is damaged"):
        old.episode(name)


def test_the_command(
    old: EpisodeStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for verb, answer in (
        (
            "verify",
            (
                "3 of them have an older format without checksums of metadata. Migrate them: "
                f"stringline-data migrate store={old.path}"
            ),
        ),
        ("migrate", "3 of 3 episodes brought to format version 2."),
        ("migrate", "0 of 3 episodes brought to format version 2."),
    ):
        monkeypatch.setattr(sys, "argv", ["stringline-data", verb, f"store={old.path}"])
        main()
        assert answer in capsys.readouterr().out


@pytest.mark.parametrize("version", [None, "2", 0, True])
def test_a_store_without_a_version_is_refused(version: object) -> None:
    with pytest.raises(
        ValueError, match="The store was not written by Stringline: it names no format version"
    ):
        check_version("The store", version)
