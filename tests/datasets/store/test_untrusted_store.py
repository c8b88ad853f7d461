"""Stores that come from elsewhere: their metadata claim the impossible, their files lead out."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.zarr_layout import EPISODE_KEY, checksummed_group, read_group

KEY = "rgb/front"


def claimed(episode: StoredEpisode, **entry: Any) -> None:
    """Changes what an episode says about an array, with a valid checksum."""
    file = episode.path / "zarr.json"
    attributes = read_group(file.read_bytes(), "the episode", EPISODE_KEY)
    attributes["arrays"][KEY] |= entry
    file.write_bytes(checksummed_group(attributes))


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry",
    [
        {"shape": [2**62, 4]},
        {"shape": [2**32, 2**32]},
        {"shape": [-1, -6, 8, 3]},
        {"shape": [0, 2**62]},
        {"shape": ["10", 6, 8, 3]},
        {"shape": [10.0, 6, 8, 3]},
        {"shape": [1] * 40},
        {"crc32": "x"},
        {"dtype": "object"},
        {"dtype": ["<f4"]},
    ],
)
def test_impossible_arrays_are_refused(six_episodes: EpisodeStore, entry: dict[str, Any]) -> None:
    episode = six_episodes.episodes()[0]
    claimed(episode, **entry)
    with pytest.raises(ValueError, match="is damaged: its zarr.json is incomplete"):
        _ = six_episodes.episode(episode.name).arrays[KEY]


def test_a_huge_array_does_not_fit_its_file(six_episodes: EpisodeStore) -> None:
    episode = six_episodes.episodes()[0]
    claimed(episode, shape=[2**40, 6, 8, 3])
    with pytest.raises(ValueError, match=r"rgb/front has 1440 bytes instead of 158329674399744"):
        _ = six_episodes.episode(episode.name).arrays[KEY]


def link_chunk(store: EpisodeStore, name: str, outside: Path) -> None:
    chunk = store.path / name / "rgb.front" / "c" / "0" / "0" / "0" / "0"
    chunk.rename(outside)
    chunk.symlink_to(outside)


def link_array(store: EpisodeStore, name: str, outside: Path) -> None:
    (store.path / name / "rgb.front").rename(outside)
    (store.path / name / "rgb.front").symlink_to(outside)


def link_episode(store: EpisodeStore, name: str, outside: Path) -> None:
    (store.path / name).rename(outside)
    (store.path / name).symlink_to(outside)


def link_metadata(store: EpisodeStore, name: str, outside: Path) -> None:
    (store.path / name / "zarr.json").rename(outside)
    (store.path / name / "zarr.json").symlink_to(outside)


@pytest.mark.parametrize("link", [link_chunk, link_array, link_episode, link_metadata])
def test_links_out_of_a_store_are_refused(
    six_episodes: EpisodeStore, tmp_path: Path, link: Callable[[EpisodeStore, str, Path], None]
) -> None:
    name = six_episodes.names()[0]
    link(six_episodes, name, tmp_path / "outside")
    with pytest.raises(ValueError, match="symbolic link"):
        _ = six_episodes.episode(name).arrays[KEY]
    assert any("symbolic link" in sentence for sentence in six_episodes.verify(name))


def test_huge_metadata_are_refused(six_episodes: EpisodeStore) -> None:
    name = six_episodes.names()[0]
    os.truncate(six_episodes.path / name / "zarr.json", 2**40)
    with pytest.raises(ValueError, match="has more than the allowed 16777216 bytes"):
        six_episodes.episode(name)
    os.truncate(six_episodes.path / "zarr.json", 2**40)
    with pytest.raises(ValueError, match="has more than the allowed 16777216 bytes"):
        EpisodeStore.open(six_episodes.path)
