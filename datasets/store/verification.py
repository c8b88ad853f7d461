"""Whether a store is still what was written: every byte of it is read."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

from stringline.datasets.store.episode_writer import OPEN_PREFIX
from stringline.datasets.store.store import EpisodeStore


def verify_store(store: EpisodeStore, *, workers: int = 2) -> dict[str, list[str]]:
    """Returns sentences about what is damaged, by episode; none for a store as it was written.

    Args:
        store: The data; its own metadata was verified when it was opened.
        workers: Episodes that are read at a time.
    """
    names = store.names()
    with ThreadPoolExecutor(max(1, workers)) as pool:
        found = list(
            tqdm(
                pool.map(store.verify, names),
                total=len(names),
                unit="episode",
                desc="verify",
                disable=len(names) < 20,
            )
        )
    return {name: sentences for name, sentences in zip(names, found, strict=True) if sentences}


def describe_leftover(folder: Path) -> str:
    """Returns how far a writer came that was killed.

    Args:
        folder: One of `EpisodeStore.leftovers`.
    """
    steps = _rows(folder / "time")
    frames = [
        f"{_rows(path)} frames of rgb/{path.name.removeprefix('time.')}"
        for path in sorted(folder.glob("time.*"))
    ]
    came = ", ".join([f"{steps} steps", *frames])
    return (
        f"Episode {folder.name.removeprefix(OPEN_PREFIX)} was never completed: its writer was "
        f"killed after {came}."
    )


def _rows(array: Path) -> int:
    """Returns how many float64 a growing array holds."""
    chunk = array / "c" / "0"
    return chunk.stat().st_size // 8 if chunk.is_file() else 0
