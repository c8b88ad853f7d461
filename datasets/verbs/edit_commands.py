"""The editing verbs of `stringline-data`: trim, delete, split, merge, relabel, filter."""

import sys
from pathlib import Path

from omegaconf import DictConfig

from stringline.datasets.contract.argument_checks import printable
from stringline.datasets.editing.edit import delete, relabel, select, split_episode, trim
from stringline.datasets.editing.selection import Conditions, filter_store, merge, split_store
from stringline.datasets.store.sizes import format_size, store_size
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.transactions import trash_of


def trim_episodes(config: DictConfig) -> None:
    """Replaces episodes by parts of them."""
    store = EpisodeStore.open(config.store)
    names = select(store, _as_list(config.episodes))
    _print_replaced(store, names, trim(store, names, from_s=config.from_s, to_s=config.to_s))


def delete_episodes(config: DictConfig) -> None:
    """Moves episodes to the trash."""
    store = EpisodeStore.open(config.store)
    names = select(store, _as_list(config.episodes))
    delete(store, names)
    _print(
        f"{len(names)} episodes moved to {trash_of(store.path)}; {len(store)} are left in "
        f"{store.path}."
    )


def split(config: DictConfig) -> None:
    """Splits an episode or a store."""
    store = EpisodeStore.open(config.store)
    if (config.episode is None) == (config.parts is None):
        raise ValueError(
            "Set parts={train: 0.9, validation: 0.1} to split the store, or episode=... and "
            "at_s=[...] to split one episode."
        )
    if config.episode is not None:
        names = select(store, [config.episode])
        if len(names) != 1:
            raise ValueError(
                f"Only one episode can be split at a time; got {len(names)}: "
                f"{', '.join(names[:5])}."
            )
        _print_replaced(
            store, names, split_episode(store, names[0], [float(at) for at in config.at_s])
        )
        return
    outputs = {
        Path(f"{config.output}_{part}"): float(share) for part, share in config.parts.items()
    }
    for created in split_store(store, outputs, seed=config.seed):
        _print_created(created)


def merge_stores(config: DictConfig) -> None:
    """Merges several stores into a new one."""
    _print_created(
        merge([EpisodeStore.open(path) for path in _as_list(config.stores)], Path(config.output))
    )


def relabel_episodes(config: DictConfig) -> None:
    """Replaces attributes of episodes."""
    store = EpisodeStore.open(config.store)
    names = select(store, _as_list(config.episodes))
    labels = {key: config[key] for key in ("success", "instruction", "task", "source")}
    _print_replaced(store, names, relabel(store, names, **labels))


def filter_episodes(config: DictConfig) -> None:
    """Creates a store of the episodes that meet the conditions."""
    wanted = Conditions(
        **{key: config[key] for key in ("success", "task", "source", "shortest_s", "longest_s")}
    )
    _print_created(filter_store(EpisodeStore.open(config.store), Path(config.output), wanted))


def _as_list(value: object) -> list[str]:
    """Returns a list, also for a single text."""
    if isinstance(value, str):
        return [value]
    return [str(entry) for entry in value]  # type: ignore[attr-defined]


def _print(line: str) -> None:
    """Prints a line; names in it come from data."""
    sys.stdout.write(f"{printable(line)}\n")


def _print_replaced(store: EpisodeStore, old: list[str], new: list[str]) -> None:
    _print(
        f"{len(old)} episodes of {store.path} replaced by {len(new)}; the old ones are in "
        f"{trash_of(store.path)}."
    )
    for name in new:
        _print(f"  {name}")


def _print_created(store: EpisodeStore) -> None:
    _print(
        f"{store.path}: {len(store)} episodes, {format_size(store_size(store))}; on the same disk "
        "their arrays are shared."
    )
