"""New stores from episodes of others: filter, merge, split; arrays are shared, or copied."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.datasets.conftest import MakeEpisode
from tests.datasets.editing.waiting import delete_locked, waiting

from stringline import Contract, EpisodeAttributes, EpisodeStore
from stringline.datasets.editing.derived_stores import Conditions, filter_store, merge, split_store
from stringline.datasets.editing.edit import delete, trim
from stringline.datasets.files.atomic import exclusive
from stringline.datasets.store.store import verify_store


@pytest.fixture
def store(six_episodes: EpisodeStore) -> EpisodeStore:
    return six_episodes


def seeds(store: EpisodeStore) -> list[int]:
    """Returns the seeds of the episodes in order."""
    return [episode.attributes.seed for episode in store.episodes()]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Conditions(success=True), [0, 2, 4]),
        (Conditions(success=False), [1, 3]),
        (Conditions(), [0, 1, 2, 3, 4, 5]),
        (Conditions(source="tele*"), [3, 4, 5]),
        (Conditions(success=True, task="rea*", shortest_s=0.7, longest_s=0.79), [0, 2, 4]),
        (Conditions(shortest_s=0.5), [0, 1, 2, 3, 4]),
    ],
)
def test_filtering(
    store: EpisodeStore, tmp_path: Path, wanted: Conditions, expected: list[int]
) -> None:
    trim(store, store.names()[5:], to_s=0.3)
    kept = filter_store(store, tmp_path / "kept", wanted)
    assert seeds(kept) == expected
    assert set(kept.names()) <= set(store.names())
    assert verify_store(kept) == {}
    assert filter_store(store, tmp_path / "kept", wanted).names() == kept.names()
    assert len(store) == 6


def test_splitting_and_merging_again_gives_the_store(store: EpisodeStore, tmp_path: Path) -> None:
    outputs = {tmp_path / "train": 0.5, tmp_path / "validation": 0.3, tmp_path / "test": 0.2}
    parts = split_store(store, outputs)
    assert [len(part) for part in parts] == [3, 2, 1]
    assert [seeds(part) for part in split_store(store, outputs)] == [seeds(part) for part in parts]
    whole = merge(parts, tmp_path / "whole")
    assert whole.names() == store.names()
    assert verify_store(whole) == {}
    assert {
        path.stat().st_nlink for path in (whole.path / whole.names()[0]).glob("rgb.*/c/0/0/0/0")
    } == {3}


@pytest.mark.slow
@pytest.mark.parametrize("change", ["added", "deleted"])
def test_no_episode_is_in_training_and_validation(
    contract: Contract, make_episode: MakeEpisode, tmp_path: Path, change: str
) -> None:
    """Also after an edit of the store, which changes the order in which episodes are dealt."""
    store = EpisodeStore.create(tmp_path / "store")
    for seed in range(10, 20):
        store.write(make_episode(steps=4, seed=seed), EpisodeAttributes(contract, "reach", seed))
    outputs = {tmp_path / "train": 0.8, tmp_path / "validation": 0.2}
    before = [part.names() for part in split_store(store, outputs)]
    if change == "deleted":
        delete(store, store.names()[2:4])
    else:
        for seed in range(3):
            arrays = make_episode(steps=4, seed=seed)
            store.write(arrays, EpisodeAttributes(contract, "reach", seed))
    with pytest.raises(ValueError, match=r"(train|validation) holds \d of \d episodes that this"):
        split_store(store, outputs)
    assert [EpisodeStore.open(path).names() for path in outputs] == before
    filter_store(store, tmp_path / "kept", Conditions())
    delete(store, store.names()[:1])
    with pytest.raises(ValueError, match=r"kept holds 1 of \d+ episodes that this command would"):
        filter_store(store, tmp_path / "kept", Conditions())


def test_across_disks_arrays_are_copied(
    store: EpisodeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without hard links the arrays are copied."""

    def refuse(old: Path, new: Path) -> None:
        raise OSError(18, os.strerror(18))

    monkeypatch.setattr(os, "link", refuse)
    kept = filter_store(store, tmp_path / "kept", Conditions(success=True))
    assert verify_store(kept) == {}
    assert len(kept) == 3


def test_stores_that_differ_are_not_merged(
    store: EpisodeStore, tmp_path: Path, contract: Contract, make_episode: MakeEpisode
) -> None:
    for change, message in (
        ({"control_hz": 10.0}, "control_hz: 50.0 is required, 10.0 is offered"),
        (
            {"cameras": (replace(contract.cameras[0], depth_unit_m=0.0005), contract.cameras[1])},
            "camera 'front': depth_unit_m is 0.001 and 0.0005.",
        ),
    ):
        other = EpisodeStore.create(tmp_path / message[:5])
        changed = replace(contract, **change)  # type: ignore[arg-type]
        other.write(make_episode(), EpisodeAttributes(changed, "reach", 9))
        with pytest.raises(ValueError, match=f"cannot be merged. .*{message}"):
            merge([store, other], tmp_path / "merged")


def test_a_merge_that_waited_brings_no_deleted_episode_back(store: EpisodeStore) -> None:
    """The output may be one of the merged stores; another command deletes in it meanwhile."""
    deleted, *kept = store.names()
    with waiting() as merges, exclusive(store.path):
        merges.start(lambda: merge([store], store.path))
        delete_locked(store, deleted)
    merges.results()
    assert store.names() == kept


def test_a_merge_that_waited_has_the_episodes_that_it_began_with(
    store: EpisodeStore, tmp_path: Path
) -> None:
    """Deleted episodes are taken from the trash of their store."""
    names = store.names()
    merged = EpisodeStore.create(tmp_path / "merged")
    with waiting() as merges, exclusive(merged.path):
        merges.start(lambda: merge([store], merged.path))
        delete(store, names[:2])
    merges.results()
    assert merged.names() == names
    assert verify_store(merged) == {}
