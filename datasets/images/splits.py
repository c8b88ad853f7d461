"""Splits of a store of images into a training and a test part that have nothing in common."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from stringline.datasets.contract.argument_checks import Range, unknown_name
from stringline.datasets.images.image_store import ImageStore

SplitBy = Literal["room", "source", "asset", "name", "image"]
_INNER = Range(above=0, below=1)


@dataclass(frozen=True)
class Split:
    """Numbers of images, in the order of the store.

    Attributes:
        train: Images to train on.
        test: Images to test on.
        skipped: Number of images in neither part: they share a room with the test part.
        held_out: The rooms, sources, assets or names that are held out.
    """

    train: tuple[int, ...]
    test: tuple[int, ...]
    skipped: int
    held_out: tuple[str, ...]


def split(
    store: ImageStore,
    by: SplitBy = "room",
    held_out: float | Sequence[str | int] = 0.2,
    seed: int = 0,
) -> Split:
    """Divides the images of a store.

    An image belongs to the test part if its room, source or number is held out, or if any of its
    objects has an asset or a name (or the image a label) that is held out. Images outside of the
    test part that share a room with it are skipped.

    Args:
        store: The images or clips.
        by: What is held out; `image` needs images without rooms.
        held_out: Share of the rooms, sources, assets, names or images, above 0 and below 1, at
            least one of them; or those that are held out.
        seed: Selects them. The choice depends on the names and the seed only.

    Raises:
        ValueError: An argument is out of range or unknown, the images lack what they are to be
            divided by, `image` would divide rooms, or a part is empty.
    """
    if by not in get_args(SplitBy):
        raise unknown_name("way to split", by, get_args(SplitBy))
    groups = _groups(store, by)
    names = sorted(set().union(*groups))
    chosen = _chosen(names, by, held_out, seed)
    tested = [not chosen.isdisjoint(group) for group in groups]
    rooms = store.rooms()
    closed = _rooms_of(rooms, tested, test=True) - {""}
    if by == "image" and (shared := closed & _rooms_of(rooms, tested, test=False)):
        raise ValueError(
            f"A split of {store.path} by image has views of {len(shared)} rooms in both parts; "
            "split by room."
        )
    train = tuple(
        number for number, test in enumerate(tested) if not test and rooms[number] not in closed
    )
    test = tuple(number for number, test in enumerate(tested) if test)
    if not train or not test:
        raise ValueError(
            f"A split of {store.path} by {by} leaves {len(train)} images for training and "
            f"{len(test)} for testing; hold out {'less' if test else 'more'}."
        )
    skipped = len(store) - len(train) - len(test)
    return Split(train, test, skipped, tuple(sorted(chosen)))


def _rooms_of(rooms: Sequence[str], tested: Sequence[bool], *, test: bool) -> set[str]:
    return {room for room, each in zip(rooms, tested, strict=True) if each is test}


def _groups(store: ImageStore, by: SplitBy) -> list[frozenset[str]]:
    """Returns the names of what each image belongs to."""
    if by == "image":
        return [frozenset((str(number),)) for number in range(len(store))]
    if by == "asset":
        found = store.assets()
    elif by == "name":
        labels = [frozenset({label} if label else ()) for label in store.labels()]
        found = [names | label for names, label in zip(store.names(), labels, strict=True)]
    else:
        values = store.rooms() if by == "room" else store.sources()
        if missing := values.count(""):
            raise ValueError(
                f"{missing} of {len(values)} images of {store.path} name no {by}; split by "
                "something else."
            )
        found = [frozenset((value,)) for value in values]
    if not any(found):
        raise ValueError(f"The images of {store.path} name no {by}; split by something else.")
    return found


def _chosen(
    names: Sequence[str], by: str, held_out: float | Sequence[str | int], seed: int
) -> frozenset[str]:
    if isinstance(held_out, str):
        raise ValueError(f"held_out is {held_out!r}; allowed: a share, or a list of names.")
    if isinstance(held_out, Sequence):
        chosen = [str(name) for name in held_out]  # YAML reads the name 7 as a number.
        for name in chosen:
            if name not in names:
                raise unknown_name(by, name, names)
        return frozenset(chosen)
    _INNER.check(held_out=held_out)
    count = max(1, round(held_out * len(names)))
    # Not a generator of random numbers: a new name must not move all others.
    return frozenset(sorted(names, key=lambda name: _order(name, seed))[:count])


def _order(name: str, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
