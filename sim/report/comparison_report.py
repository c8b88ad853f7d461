"""The report of `stringline-compare`."""

from collections.abc import Mapping, Sequence

from stringline.sim.evaluation.comparison import Comparison
from stringline.sim.evaluation.comparison_row import Row, difference_text
from stringline.sim.report.report import Report
from stringline.sim.report.side_by_side import labelled_tasks, side_by_side
from stringline.sim.report.system_info import package_versions, system_info
from stringline.sim.statistics.intervals import Rate


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
        comparison=comparison.section(_chart(comparison.rows)),
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
    from stringline.sim.report.comparison_charts import EstimateRow, estimates_chart

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
