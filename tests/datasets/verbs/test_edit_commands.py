"""The editing verbs of `stringline-data` from the command line."""

import sys

import pytest

from stringline.datasets.data import main
from stringline.datasets.store.store import EpisodeStore


@pytest.fixture
def store(six_episodes: EpisodeStore) -> EpisodeStore:
    return six_episodes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (
            ["trim", "episodes=*", "to_s=0.3"],
            "6 episodes of {} replaced by 6; the old ones are in {}.trash",
        ),
        (
            ["delete", "episodes=[reach.0000000001.*,reach.0000000002.*]"],
            "2 episodes moved to {}.trash; 4 are left in {}",
        ),
        (["split", "parts={train: 0.5, test: 0.5}"], "{}_train: 3 episodes"),
        (["split", "episode=reach.0000000003.*", "at_s=[0.3]"], "1 episodes of {} replaced by 2"),
        (
            ["relabel", "episodes=reach.0000000003.*", "success=true"],
            "1 episodes of {} replaced by 1",
        ),
        # Other commands have groups with the names of these options.
        (["relabel", "episodes=*", "instruction='go there, then stop'"], "6 episodes of {} repl"),
        (["relabel", "episodes=*", "instruction=go to the left"], "6 episodes of {} replaced by 6"),
        (["relabel", "episodes=*", "task=push", "success=true"], "6 episodes of {} replaced by 6"),
        (["filter", "output={}_task", "task=rea*", "success=null"], "{}_task: 6 episodes"),
        (["filter", "output={}_good"], "{}_good: 3 episodes"),
        (["merge", "stores=[{},{}]", "output={}_all"], "{}_all: 6 episodes"),
        (["archive", "output={}_archive"], "6 episodes added"),
        (["cache", "output={}_small", "height=3", "width=4"], "{}_small: 6 episodes"),
    ],
)
def test_verbs(
    store: EpisodeStore,
    arguments: list[str],
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(store.path)
    stores = [] if arguments[0] == "merge" else [f"store={path}"]
    arguments = [argument.replace("{}", path) for argument in arguments]
    monkeypatch.setattr(sys, "argv", ["stringline-data", *arguments, *stores])
    main()
    assert answer.replace("{}", path) in capsys.readouterr().out


def test_split_needs_shares_or_one_episode(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, answer in (
        ([], "Set parts="),
        (["episode=*", "at_s=[1]"], "Only one episode can be split at a time; got 6"),
    ):
        monkeypatch.setattr(
            sys, "argv", ["stringline-data", "split", f"store={store.path}", *arguments]
        )
        with pytest.raises(SystemExit):
            main()
        assert answer in capsys.readouterr().err


def test_several_values_of_an_option_are_refused(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without quotes a comma separates the values of a sweep."""
    arguments = ["relabel", f"store={store.path}", "episodes=*", "instruction=go, then stop"]
    monkeypatch.setattr(sys, "argv", ["stringline-data", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert "instruction=go, then stop is several values; allowed: one." in capsys.readouterr().err
