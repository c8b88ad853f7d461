"""The editing verbs of `stringline-data` from the command line."""

import pytest
from omegaconf import OmegaConf
from tests.datasets.conftest import DataCommand

from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.verbs import store_commands as verbs


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
    store: EpisodeStore, arguments: list[str], answer: str, data_command: DataCommand
) -> None:
    path = str(store.path)
    stores = [] if arguments[0] == "merge" else [f"store={path}"]
    arguments = [argument.replace("{}", path) for argument in arguments]
    status, out, _ = data_command(*arguments, *stores)
    assert status == 0
    assert answer.replace("{}", path) in out


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["split"], "Set parts="),
        (["split", "episode=*", "at_s=[1]"], "Only one episode can be split at a time; got 6"),
        # Without quotes a comma separates the values of a sweep.
        (
            ["relabel", "episodes=*", "instruction=go, then stop"],
            "instruction=go, then stop is several values; allowed: one.",
        ),
    ],
)
def test_mistakes_are_answered(
    store: EpisodeStore, arguments: list[str], answer: str, data_command: DataCommand
) -> None:
    status, _, error = data_command(*arguments, f"store={store.path}")
    assert status == 2
    assert answer in error


FORGED = "reach\x1b[31m\r3 episodes imported\u202e.0000000009.ab12cd34ef56"
SHOWN = "reach\\x1b[31m\\r3 episodes imported\\u202e.0000000009."


@pytest.mark.parametrize(
    ("arguments", "work"),
    [
        (["trim", "episodes=*", "to_s=0.3"], "trim"),
        (["relabel", "episodes=*", "success=true"], "relabel"),
        (["split", "episode=reach.0000000003.*", "at_s=[0.3]"], "split_episode"),
    ],
)
def test_names_from_data_are_shown_in_one_line(
    store: EpisodeStore,
    arguments: list[str],
    work: str,
    monkeypatch: pytest.MonkeyPatch,
    data_command: DataCommand,
) -> None:
    """The name of an edited episode begins with the task that its data name."""
    monkeypatch.setattr(verbs, work, lambda *_, **__: [FORGED])
    _, output, _ = data_command(*arguments, f"store={store.path}")
    assert SHOWN in output
    assert len(output.splitlines()) == 2
    assert all(character.isprintable() for line in output.splitlines() for character in line)


@pytest.mark.parametrize("verb", ["delete", "filter", "split", "merge"])
def test_the_names_of_stores_are_shown_in_one_line(
    store: EpisodeStore,
    verb: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = store.path.with_name("a\x1b[2J\nb")
    store.path.rename(path)
    monkeypatch.setattr(verbs, "trash_of", lambda _: path)
    opened = EpisodeStore.open(path)
    monkeypatch.setattr(verbs.EpisodeStore, "open", lambda _: opened)
    config = OmegaConf.create(
        {
            "store": "-",
            "stores": ["-"],
            "episodes": "*",
            "episode": None,
            "parts": {"all": 1.0},
            "seed": 0,
            "output": str(path),
            **dict.fromkeys(("success", "task", "source", "shortest_s", "longest_s")),
        }
    )
    created = {"filter": "filter_store", "split": "split_store", "merge": "merge"}
    if verb in created:
        made: object = [opened] if verb == "split" else opened
        monkeypatch.setattr(verbs, created[verb], lambda *_, **__: made)
    action = {
        "delete": verbs.delete_episodes,
        "filter": verbs.filter_episodes,
        "split": verbs.split,
        "merge": verbs.merge_stores,
    }[verb]
    action(config)
    output = capsys.readouterr().out
    assert "a\\x1b[2J\\nb" in output
    assert len(output.splitlines()) == 1
