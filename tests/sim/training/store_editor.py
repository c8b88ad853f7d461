"""Edits a store, one edit per line of standard input, and empties its trash after each.

    python store_editor.py STORE

In turn an episode is trimmed, deleted, or gets another instruction, each once. The line that
answers is the number of edits.
"""

import os
import random
import shutil
import sys

from stringline.datasets.editing.edit import delete, relabel, trim
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.transactions import trash_of


def main() -> None:
    setattr(os, "fsync", lambda descriptor: None)  # noqa: B010 - It would take most of the time.
    store = EpisodeStore.open(sys.argv[1])
    names = store.names()
    random.Random(0).shuffle(names)
    for number, (name, _) in enumerate(zip(names, sys.stdin, strict=False)):
        if number % 3 == 0:
            trim(store, [name], from_s=0.1)
        elif number % 3 == 1:
            delete(store, [name])
        else:
            relabel(store, [name], instruction=f"edit {number}")
        shutil.rmtree(trash_of(store.path))
        sys.stdout.write(f"{number + 1}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
