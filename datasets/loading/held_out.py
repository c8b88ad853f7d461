"""Which episodes of a store are held out of training: its validation split, or the last ones.

An import marks the episodes of a data set that has splits, such as the masks of robomimic.
"""

import logging
from collections.abc import Sequence

from stringline.datasets.store.store import EpisodeStore

SPLIT = "split"
"""Attribute `extra` of an episode: `TRAINING` or `VALIDATION`."""
TRAINING = "train"
VALIDATION = "validation"
_log = logging.getLogger(__name__)


def split_names(
    store: EpisodeStore, names: Sequence[str], held_out: int
) -> tuple[list[str], list[str]]:
    """Divides episodes of a store, which may be removed ones, into training and held-out ones.

    Held out are the episodes that are marked for validation. Without such marks, `held_out` is the
    number of episodes that are held out, at most a fifth of the store: the last ones of each task,
    in proportion to its episodes. With 0, no episode is held out.

    Raises:
        ValueError: All episodes are marked for validation.
    """
    if not held_out:
        return list(names), []
    attributes = {name: store.episode(name, removed=True).attributes for name in names}
    marked = [name for name in names if attributes[name].extra.get(SPLIT) == VALIDATION]
    if not marked:
        by_task: dict[str, list[str]] = {}
        for name in names:
            by_task.setdefault(attributes[name].task, []).append(name)
        last = _last_of_each(list(by_task.values()), min(held_out, len(names) // 5))
        return [name for name in names if name not in last], [n for n in names if n in last]
    if len(marked) == len(names):
        raise ValueError(
            f"All {len(names)} episodes of {store.path} are marked for validation. To train on "
            "them, set held_out=0."
        )
    _log.info("%s: the %d episodes marked for validation are held out.", store.path, len(marked))
    return [name for name in names if name not in set(marked)], marked


def _last_of_each(groups: Sequence[Sequence[str]], count: int) -> set[str]:
    """Returns `count` names, the last of each group in proportion to their numbers.

    A group keeps four of five names, or all but one of fewer.
    """
    total = sum(map(len, groups))
    most = [min(max(len(group) // 5, 1), len(group) - 1) for group in groups]
    taken = [0] * len(groups)
    for _ in range(min(count, sum(most))):
        open_groups = [index for index in range(len(groups)) if taken[index] < most[index]]
        lacking = [len(groups[index]) * count / total - taken[index] for index in open_groups]
        taken[open_groups[lacking.index(max(lacking))]] += 1
    return {
        name
        for group, number in zip(groups, taken, strict=True)
        for name in group[len(group) - number :]
    }
