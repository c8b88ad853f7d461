"""Which episodes of a store are held out of training: those of its validation split, or the last.

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
    number of the last episodes that are held out, at most a fifth of the store. With 0, no episode
    is held out.

    Raises:
        ValueError: All episodes are marked for validation.
    """
    if not held_out:
        return list(names), []
    marked = [
        name
        for name in names
        if store.episode(name, removed=True).attributes.extra.get(SPLIT) == VALIDATION
    ]
    if not marked:
        kept = len(names) - min(held_out, len(names) // 5)
        return list(names[:kept]), list(names[kept:])
    if len(marked) == len(names):
        raise ValueError(
            f"All {len(names)} episodes of {store.path} are marked for validation. To train on "
            "them, set held_out=0."
        )
    _log.info("%s: the %d episodes marked for validation are held out.", store.path, len(marked))
    return [name for name in names if name not in set(marked)], marked
