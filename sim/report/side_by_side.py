"""Videos of several policies on the same starts, chosen to show where they differ."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stringline.sim.evaluation.results import EpisodeResult
from stringline.sim.evaluation.stored_evaluations import StoredEvaluation, StoredTask
from stringline.sim.report.report import Clip

MOST_STARTS = 4


def side_by_side(evaluations: Sequence[StoredEvaluation], most: int = MOST_STARTS) -> list[Clip]:
    """Returns the videos of all evaluations on a few starts of each common task.

    Starts with different outcomes come first; then one that all policies solve, and one that none
    solves. Starts of which a video is missing are left out.
    """
    clips: list[Clip] = []
    for task in evaluations[0].tasks:
        tables = {each.name: _of(each, task.name) for each in evaluations}
        found = {name: table for name, table in tables.items() if table is not None}
        if len(found) < len(evaluations):
            continue
        for seed in _chosen(found, most):
            start = f"{task.name}, seed {seed}"
            clips += [
                Clip(_video(table, seed), table.results[seed], run=name, start=start)
                for name, table in found.items()
            ]
    return clips


def _of(evaluation: StoredEvaluation, name: str) -> StoredTask | None:
    return next((task for task in evaluation.tasks if task.name == name), None)


def _chosen(tables: Mapping[str, StoredTask], most: int) -> list[int]:
    common = sorted(set.intersection(*(set(table.results) for table in tables.values())))
    seen = [seed for seed in common if all(_video(t, seed).is_file() for t in tables.values())]
    outcomes = {seed: [table.results[seed] for table in tables.values()] for seed in seen}
    differing = [seed for seed in seen if len({r.success for r in outcomes[seed]}) > 1]
    equal = list(_one_of_each(outcomes))
    kept = differing[: max(most - len(equal), 1)]
    return sorted([*kept, *equal][:most])


def _one_of_each(outcomes: Mapping[int, Sequence[EpisodeResult]]) -> Iterator[int]:
    for success in (True, False):
        alike = [s for s, found in outcomes.items() if all(r.success == success for r in found)]
        yield from alike[:1]


def _video(task: StoredTask, seed: int) -> Path:
    return task.path.parent / "videos" / f"{seed}.mp4"
