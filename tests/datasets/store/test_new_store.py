"""A failure leaves no store without an episode."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stringline.datasets.contract.contract import Contract, EpisodeArrays
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore, new_store


def fail(path: Path, work: Callable[[EpisodeStore], object]) -> None:
    with pytest.raises(KeyError), new_store(path) as store:
        raise KeyError(work(store))


def test_a_store_without_an_episode_is_removed(tmp_path: Path) -> None:
    fail(tmp_path / "a" / "store", lambda store: (store.path / "collection.json").touch())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "given").mkdir()
    fail(tmp_path / "given", lambda store: None)
    assert list((tmp_path / "given").iterdir()) == []


def test_other_stores_stay(
    tmp_path: Path, contract: Contract, make_episode: Callable[..., EpisodeArrays]
) -> None:
    """With an episode, with the mark of another process, and those that existed before."""
    EpisodeStore.create(tmp_path / "before")
    fail(tmp_path / "before", lambda store: None)
    attributes = EpisodeAttributes(contract, "reach", 1)
    fail(tmp_path / "filled", lambda store: store.write(make_episode(), attributes))
    fail(tmp_path / "shared", lambda store: (store.path / ".shared-1").touch())
    with new_store(tmp_path / "done"):
        pass
    lengths = {path.name: len(EpisodeStore.open(path)) for path in tmp_path.iterdir()}
    assert lengths == {"before": 0, "filled": 1, "shared": 0, "done": 0}


def test_something_else_at_the_path_stays(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ValueError, match="is not an episode store"), new_store(tmp_path / "notes"):
        pass
    assert (tmp_path / "notes").read_text() == "mine"
