"""Parallel work on many episodes, which continues after damaged ones."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tqdm import tqdm


def for_each_episode(
    work: Callable[[str], object], names: Sequence[str], workers: int, title: str
) -> None:
    """Calls `work` with the name of each episode, in threads.

    Raises:
        ValueError: Some episodes are damaged; the work is done for all others.
    """
    damage: list[str] = []

    def guarded(name: str) -> None:
        try:
            work(name)
        except ValueError as error:
            damage.append(str(error))

    with ThreadPoolExecutor(max(1, workers)) as pool:
        for _ in tqdm(
            pool.map(guarded, names),
            total=len(names),
            unit="episode",
            desc=title,
            disable=len(names) < 2,
        ):
            pass
    if damage:
        raise ValueError(
            f"{len(damage)} of {len(names)} episodes are damaged, the others are done. "
            f"{' '.join(sorted(damage))}"
        )
