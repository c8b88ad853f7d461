"""The verbs of `stringline-data` that change which episodes there are: trim, delete, split, merge, relabel, filter."""

import sys
from pathlib import Path

from omegaconf import DictConfig

from stringline.datasets.editing.edit import delete, relabel, select, split_episode, trim
from stringline.datasets.editing.selection import Wanted, filter_store, merge, split_store
from stringline.datasets.store.sizes import mebibytes, store_size
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.transactions import trash_of


def trim_episodes(config: DictConfig) -> None:
    """Replaces episodes by a part of each."""
    store = EpisodeStore.open(config.store)
    names = select(store, _listed(config.episodes))
    _say_replaced(store, names, trim(store, names, from_s=config.from_s, to_s=config.to_s))


def delete_episodes(config: DictConfig) -> None:
    """Moves episodes to the trash."""
    store = EpisodeStore.open(config.store)
    names = select(store, _listed(config.episodes))
    delete(store, names)
    _say(
        f"{len(names)} episodes moved to {trash_of(store.path)}; {len(store)} are left in "
        f"{store.path}."
    )


def split(config: DictConfig) -> None:
    """Divides an episode, or a store.

    Raises:
        ValueError: Neither is asked for, or both.
    """
    store = EpisodeStore.open(config.store)
    if (config.episode is None) == (config.parts is None):
        raise ValueError(
            "Give parts={train: 0.9, validation: 0.1} to divide the store, or episode=... "
            "at_s=[...] to divide one."
        )
    if config.episode is not None:
        (name,) = _one(select(store, [config.episode]))
        _say_replaced(
            store, [name], split_episode(store, name, [float(place) for place in config.at_s])
        )
        return
    outputs = {
        Path(f"{config.output}_{part}"): float(share) for part, share in config.parts.items()
    }
    for made in split_store(store, outputs, seed=config.seed):
        _say_made(made)


def merge_stores(config: DictConfig) -> None:
    """Makes a store of several."""
    _say_made(
        merge([EpisodeStore.open(path) for path in _listed(config.stores)], Path(config.output))
    )


def relabel_episodes(config: DictConfig) -> None:
    """Replaces what episodes say about themselves."""
    store = EpisodeStore.open(config.store)
    names = select(store, _listed(config.episodes))
    labels = {key: config[key] for key in ("success", "instruction", "task", "source")}
    _say_replaced(store, names, relabel(store, names, **labels))


def filter_episodes(config: DictConfig) -> None:
    """Makes a store of the episodes that are wanted."""
    wanted = Wanted(
        **{key: config[key] for key in ("success", "task", "source", "shortest_s", "longest_s")}
    )
    _say_made(filter_store(EpisodeStore.open(config.store), Path(config.output), wanted))


def _listed(value: object) -> list[str]:
    """Returns what may be written as one text or as a list."""
    return [value] if isinstance(value, str) else [str(entry) for entry in value]  # type: ignore[attr-defined]


def _one(names: list[str]) -> list[str]:
    if len(names) != 1:
        raise ValueError(
            f"One episode can be divided at a time; got {len(names)}: {', '.join(names[:5])}."
        )
    return names


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _say_replaced(store: EpisodeStore, old: list[str], new: list[str]) -> None:
    _say(
        f"{len(old)} episodes of {store.path} replaced by {len(new)}; the old ones are in "
        f"{trash_of(store.path)}."
    )
    for name in new:
        _say(f"  {name}")


def _say_made(store: EpisodeStore) -> None:
    _say(
        f"{store.path}: {len(store)} episodes, {mebibytes(store_size(store))}, their arrays "
        f"shared where the disk is the same."
    )
