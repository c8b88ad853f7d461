"""Outputs that an earlier command of the same kind began, and that a later one completes."""

from collections.abc import Collection
from pathlib import Path

from stringline.datasets.store.store import EpisodeStore


def check_completes(path: Path, wanted: Collection[str]) -> None:
    """Checks that an output holds no other episodes than those that the command would write.

    Without the check, episodes would stay that were deleted or edited since, and those that belong
    into another output by now would be in both, such as in training and validation.

    Args:
        path: The output; it may be missing.
        wanted: Names of all episodes of the completed output.

    Raises:
        ValueError: It holds other episodes.
    """
    if not path.exists():
        return
    names = EpisodeStore.create(path).names()
    if surplus := sorted(set(names) - set(wanted)):
        listed = ", ".join(surplus[:3]) + (", ..." if len(surplus) > 3 else "")
        raise ValueError(
            f"{path} holds {len(surplus)} of {len(names)} episodes that this command would not "
            f"write there ({listed}): data or settings have changed. Choose another folder, or "
            f"remove it first."
        )
