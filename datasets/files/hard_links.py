"""Hard links, or copies where there can be none."""

import logging
import os
import shutil
from pathlib import Path

logger = logging.getLogger(__name__)


def link_or_copy(old: str | Path, new: str | Path) -> None:
    """Links a file, or copies it: to another disk, or where the file system has no hard links."""
    try:
        os.link(old, new)
    except OSError as error:
        logger.debug("%s is copied, not linked (%s).", old, error.strerror)
        shutil.copyfile(old, new)


def link_tree(old: Path, new: Path) -> None:
    """Makes the folder `new` with the files of the folder `old`."""
    shutil.copytree(old, new, copy_function=link_or_copy)
