"""The validation split of imported data is held out; otherwise the last episodes of each task."""

from collections import Counter
from dataclasses import replace

import pytest

from stringline import EpisodeStore, Windows
from stringline.datasets.loading.sampler import SPLIT, TRAINING, VALIDATION, split_names


def marked(store: EpisodeStore, splits: list[str | None]) -> EpisodeStore:
    """Returns a store of the same episodes with marks."""
    found = EpisodeStore.create(store.path.with_name("marked"))
    for episode, split in zip(store.episodes(), splits, strict=True):
        extra = {} if split is None else {SPLIT: split}
        found.write(episode.arrays, replace(episode.attributes, extra=extra))
    return found


@pytest.mark.parametrize(("held_out", "count"), [(0, 0), (1, 1), (16, 1)])
def test_without_marks_the_last_episodes_are_held_out(
    six_episodes: EpisodeStore, held_out: int, count: int
) -> None:
    names = six_episodes.names()
    assert split_names(six_episodes, names, held_out) == (
        names[: 6 - count],
        names[6 - count :],
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tasks", "held_out", "expected"),
    [
        ("aaabbb", 16, {"a": 1}),
        ("aaaaabbbbb", 16, {"a": 1, "b": 1}),
        ("aaaaaaaaaabbbbb", 16, {"a": 2, "b": 1}),
        ("aaaaaaaaaabbbbb", 1, {"a": 1}),
        ("abcde", 16, {}),
        ("aaaabcde" * 5, 2, {"a": 1, "b": 1}),
    ],
)
def test_each_task_is_trained_and_held_out_in_proportion(
    six_episodes: EpisodeStore, tasks: str, held_out: int, expected: dict[str, int]
) -> None:
    store = EpisodeStore.create(six_episodes.path.with_name("tasks"))
    first = six_episodes.episodes()[0]
    for seed, task in enumerate(sorted(tasks)):
        store.write(first.arrays, replace(first.attributes, task=task, seed=seed))
    names = store.names()
    training, held = split_names(store, names, held_out)
    of = {name: store.episode(name).attributes.task for name in names}
    assert Counter(of[name] for name in held) == expected
    assert {of[name] for name in training} == set(tasks)
    assert sorted([*training, *held]) == names
    for name in held:
        later = [other for other in names if of[other] == of[name] and other > name]
        assert set(later) <= set(held)


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        ("aaaaaaaaaabbbbb", {"a": 2, "b": 1}),
        ("aaaaabbbbb", {"a": 1, "b": 1}),
        ("aaaaaaaaabcdefgh", {"a": 1, "h": 1}),
        ("abcde", {"e": 1}),
    ],
)
def test_instructions_are_held_out_in_proportion_where_all_have_one_task(
    six_episodes: EpisodeStore,
    instructions: str,
    expected: dict[str, int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An import gives its episodes one task: the last ones could be a whole task."""
    store = EpisodeStore.create(six_episodes.path.with_name("instructions"))
    first = six_episodes.episodes()[0]
    for seed, instruction in enumerate(instructions):
        store.write(first.arrays, replace(first.attributes, instruction=instruction, seed=seed))
    names = store.names()
    with caplog.at_level("INFO"):
        training, held = split_names(store, names, 16)
    of = {name: store.episode(name).attributes.instruction for name in names}
    assert Counter(of[name] for name in held) == expected
    assert set("abcde"[:2]) & {*instructions} <= {of[name] for name in training}
    if "a" in expected:
        left = instructions.count("a") - expected["a"]
        assert f"training episodes: {left} of 'a', " in caplog.text
        assert f"held-out episodes: {expected['a']} of 'a', 1 of " in caplog.text
    windows = Windows(store, chunk=2, names=training)
    assert windows.tasks == tuple(of[name] for name in training)


def test_the_validation_split_is_held_out(six_episodes: EpisodeStore) -> None:
    store = marked(six_episodes, [TRAINING, VALIDATION, TRAINING, VALIDATION, VALIDATION, None])
    names = store.names()
    training, held_out = split_names(store, store.names(), 1)
    assert held_out == [names[1], names[3], names[4]]
    assert training == [names[0], names[2], names[5]]
    assert split_names(store, store.names(), 0) == (names, [])


def test_a_store_without_training_episodes_is_refused(six_episodes: EpisodeStore) -> None:
    store = marked(six_episodes, [VALIDATION] * 6)
    with pytest.raises(ValueError, match=r"All 6 episodes of .* To train on them, set held_out=0"):
        split_names(store, store.names(), 16)
