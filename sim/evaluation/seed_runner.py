"""The runner over seeds: stored results, continuation after an interruption, and progress."""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tqdm import tqdm

from stringline.sim.evaluation.results import EpisodeResult, ResultsFile

logger = logging.getLogger(__name__)

EVALUATION_SEED = 1_000_000

Results = Generator[EpisodeResult, None, None]


def evaluation_seeds(count: int, first: int = EVALUATION_SEED) -> list[int]:
    """Returns the seeds of evaluations; collection counts from 0, so no policy has seen them."""
    return list(range(first, first + count))


def run_seeds(
    seeds: Sequence[int],
    run: Callable[[Sequence[int]], Results],
    *,
    file: Path | None = None,
    about: Mapping[str, Any],
    description: str = "evaluating",
) -> list[EpisodeResult]:
    """Runs the episodes of the seeds that have no result yet.

    Args:
        seeds: Distinct seeds.
        run: Runs the episodes of seeds; yields each result when its episode ends.
        file: File of the results, one per line; an interrupted evaluation continues it.
        about: The evaluated policy and task, plain JSON; must agree with the file.
        description: Label of the progress bar.

    Returns:
        One result per seed, in the order of the seeds.
    """
    if len(set(seeds)) != len(seeds):
        raise ValueError("The seeds of an evaluation must differ from each other.")
    stored = None if file is None else ResultsFile(file, about)
    results = dict(stored.results) if stored else {}
    pending = [seed for seed in seeds if seed not in results]
    done = len(seeds) - len(pending)
    if done:
        logger.info("%d of %d episodes are done already.", done, len(seeds))
    fresh = run(pending)
    with (
        tqdm(total=len(seeds), initial=done, desc=description, unit="episode") as progress,
        closing(fresh),
    ):
        for result in fresh:
            results[result.seed] = result
            if stored:
                stored.add(result)
            successes = sum(results[seed].success for seed in seeds if seed in results)
            progress.set_postfix_str(f"{successes} successes", refresh=False)
            progress.update()
    return [results[seed] for seed in seeds]
