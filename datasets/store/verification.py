"""Verification of a store by reading every byte."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

from stringline.datasets.store.episode_writer import OPEN_PREFIX
from stringline.datasets.store.store import EpisodeStore


def verify_store(store: EpisodeStore) -> dict[str, list[str]]:
    """Returns sentences about the damage of each damaged episode, by its name.

    Opening the store has verified its own metadata.
    """
    names = store.names()
    quiet = len(names) < 20
    with ThreadPoolExecutor(2) as pool:
        work = pool.map(store.verify, names)
        found = list(tqdm(work, "verify", len(names), unit="episode", disable=quiet))
    return {name: sentences for name, sentences in zip(names, found, strict=True) if sentences}


def describe_leftover(folder: Path) -> str:
    """Describes the progress of a killed writer, given one of `EpisodeStore.leftovers`."""
    steps = _rows(folder / "time")
    frames = [
        f"{_rows(path)} frames of rgb/{path.name.removeprefix('time.')}"
        for path in sorted(folder.glob("time.*"))
    ]
    written = ", ".join([f"{steps} steps", *frames])
    return (
        f"Episode {folder.name.removeprefix(OPEN_PREFIX)} is incomplete: its writer was killed "
        f"after {written}."
    )


def _rows(array: Path) -> int:
    """Returns the length of a growing float64 array."""
    chunk = array / "c" / "0"
    return chunk.stat().st_size // 8 if chunk.is_file() else 0
