"""The report of `stringline-compare`.

Videos of several policies on the same starts are chosen to show where they differ.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stringline.sim.evaluation.comparison import Comparison, Row, difference_text
from stringline.sim.evaluation.results import EpisodeResult
from stringline.sim.evaluation.stored_evaluations import StoredEvaluation, StoredTask
from stringline.sim.report.report import Clip, Report, package_versions, system_info
from stringline.sim.statistics.intervals import Rate

MOST_STARTS = 4


def side_by_side(evaluations: Sequence[StoredEvaluation], most: int = MOST_STARTS) -> list[Clip]:
    """Returns the videos of all evaluations on a few starts of each common task.

    Starts with different outcomes come first; then one that all policies solve, and one that none
    solves. Starts of which a video is missing are left out.
    """
    by_task: dict[str, dict[str, StoredTask]] = {}
    for label, task in labelled_tasks(evaluations).items():
        by_task.setdefault(task.name, {})[label] = task
    return [
        Clip(_video(task, seed), task.results[seed], run=label, start=f"{name}, seed {seed}")
        for name, tasks in by_task.items()
        if len(tasks) == len(evaluations)
        for seed in _chosen(tasks, most)
        for label, task in tasks.items()
    ]


def labelled_tasks(evaluations: Sequence[StoredEvaluation]) -> dict[str, StoredTask]:
    """Returns the tasks of all policies by a name that is unique on a page."""
    several = len({task.name for each in evaluations for task in each.tasks}) > 1
    return {
        f"{each.name}: {task.name}" if several else each.name: task
        for each in evaluations
        for task in each.tasks
    }


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


def comparison_report(comparison: Comparison, paths: Mapping[str, str], command: str) -> Report:
    """Returns the report of a comparison.

    Args:
        comparison: The comparison of stored evaluations.
        paths: Path of each evaluation or checkpoint, as the user named it, by its name.
        command: Command that repeats the comparison.
    """
    evaluations = comparison.evaluations
    tasks = labelled_tasks(evaluations)
    episodes = {name: [t.results[seed] for seed in sorted(t.results)] for name, t in tasks.items()}
    digests = {
        each.name: ", ".join(dict.fromkeys(str(t.about.get("checkpoint")) for t in each.tasks))
        for each in evaluations
    }
    return Report(
        title=f"{', '.join(comparison.names)}: comparison of policies",
        headline=_headline(comparison),
        facts={
            **{f"path of {name}": path for name, path in paths.items()},
            **{f"checkpoint of {name}": digest for name, digest in digests.items()},
            "machine": system_info(),
            "versions": ", ".join(f"{name} {value}" for name, value in package_versions().items()),
        },
        rates={
            name: Rate(sum(result.success for result in results), len(results))
            for name, results in episodes.items()
        },
        episodes=episodes,
        videos={name: task.path.parent / "videos" for name, task in tasks.items()},
        clips=side_by_side(evaluations),
        sections=[comparison.section(_chart(comparison.rows))],
        commands=[command],
        kind="policy",
    )


def _headline(comparison: Comparison) -> str:
    last = comparison.rows[-1].task
    return " ".join(
        f"{row.second} less {row.first}: {difference_text(row)} points on {row.pairs.count} "
        f"starts; {row.verdict}."
        for row in comparison.rows
        if row.task == last
    )


def _chart(rows: Sequence[Row]) -> str:
    # matplotlib takes half a second, so it is not imported at the start of the command.
    from stringline.sim.report.charts import EstimateRow, estimates_chart

    several = len({row.task for row in rows}) > 1
    shown = [
        EstimateRow(
            f"{row.second} less {row.first}" + f": {row.task}" * several,
            row.difference,
            row.interval.low,
            row.interval.high,
        )
        for row in rows
    ]
    return estimates_chart(shown, "differences", differences=True)
