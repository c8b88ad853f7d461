"""A store of an unreleased version, or with metadata of no use, is refused in one line."""

from pathlib import Path

import pytest
import zarr
from tests.datasets.conftest import MakeEpisode

from stringline import Contract, EpisodeAttributes, EpisodeStore
from stringline.datasets.store.zarr_layout import check_version, checksummed_group


@pytest.fixture
def store(tmp_path: Path, contract: Contract, make_episode: MakeEpisode) -> EpisodeStore:
    made = EpisodeStore.create(tmp_path / "store")
    made.write(make_episode(), EpisodeAttributes(contract, "reach", 0, True))
    return made


@pytest.mark.parametrize("of", ["store", "episode"])
def test_an_unreleased_version_is_refused(store: EpisodeStore, of: str) -> None:
    name = store.names()[0]
    group = store.path if of == "store" else store.path / name
    plain = dict(zarr.open_group(group, mode="r").attrs) | {f"stringline_{of}": 1}
    (group / "zarr.json").write_bytes(checksummed_group(plain))
    message = (
        "has format version 1, of an unreleased Stringline; .* Record or import the data again"
    )
    with pytest.raises(ValueError, match=message):
        EpisodeStore.open(store.path).episode(name)


@pytest.mark.parametrize(
    "spoil",
    [
        {"arrays": 3},
        {"arrays": {"a": {"shape": [1], "dtype": "text", "crc32": 0}}},
        {"contract": 3},
    ],
)
def test_metadata_with_a_right_checksum_that_cannot_be_used_is_damage(
    store: EpisodeStore, spoil: dict[str, object]
) -> None:
    name = store.names()[0]
    plain = dict(zarr.open_group(store.path / name, mode="r").attrs) | spoil
    (store.path / name / "zarr.json").write_bytes(checksummed_group(plain))
    with pytest.raises(ValueError, match=f"Episode {name} is damaged"):
        _ = store.episode(name).entries


@pytest.mark.parametrize("version", [None, "2", 0, True])
def test_a_store_without_a_version_is_refused(version: object) -> None:
    with pytest.raises(ValueError, match="The store was not written by Stringline"):
        check_version("The store", version)
