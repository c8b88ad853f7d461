"""The reports of `stringline-eval`, of a task and of a suite, and of `stringline-compare`.

Videos of several policies on the same starts are chosen to show where they differ.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stringline.policies.checkpoints.load import find_checkpoint, is_address
from stringline.policies.chunks.chunk import Policy
from stringline.sim.evaluation.checkpoint_evaluation import (
    EntryOutcome,
    EvaluationSettings,
    SuiteStatistics,
)
from stringline.sim.evaluation.comparison import Comparison, Row, difference_text
from stringline.sim.evaluation.results import EpisodeResult, Summary
from stringline.sim.evaluation.runner import read_first_observation, trace_of_video
from stringline.sim.evaluation.stored_evaluations import StoredEvaluation, StoredTask
from stringline.sim.report.charts import LearningCurve, learning_curve
from stringline.sim.report.film import with_films
from stringline.sim.report.report import (
    Clip,
    Report,
    RerunCommand,
    choose_clips,
    eval_line,
    package_versions,
    system_info,
)
from stringline.sim.report.scene_cloud import scene_cloud
from stringline.sim.robots.arm_appearance import PRIMITIVES
from stringline.sim.statistics.intervals import Rate
from stringline.sim.worlds.task_settings import TaskSettings


def task_report(
    settings: EvaluationSettings, digest: str, policy: Policy, results: Sequence[EpisodeResult]
) -> Report:
    """Returns the report of an evaluation on a single task, with at least one result.

    `digest` is that of the checkpoint.
    """
    summary = Summary.of(results)
    task = settings.task
    videos = settings.output / "videos"
    changed = ", ".join(f"{name} {value}" for name, value in task.options.items()) or "none"
    rerun = _rerun(settings, task, settings.output)
    return Report(
        title=f"{_title(task.name)}: evaluation",
        headline=f"The policy succeeded in {summary.rate} of unseen starts in simulation.",
        facts=_facts(settings, digest, results) | {"changes to the task": changed},
        rates={"policy": summary.rate},
        episodes={"policy": results},
        videos={"policy": videos},
        reruns={"policy": rerun},
        clips=with_clouds(_clips(settings, task, choose_clips(results, videos)), policy),
        commands=[rerun.whole(len(results), min(result.seed for result in results))],
        **_curves(settings),
    )


def suite_report(
    name: str,
    settings: EvaluationSettings,
    digest: str,
    policy: Policy,
    outcomes: Sequence[EntryOutcome],
) -> Report:
    """Returns the report of a suite; at least one of the outcomes has results."""
    done = {outcome.entry.name: outcome for outcome in outcomes if outcome.results}
    folders = {entry: settings.output / entry for entry in done}
    results = [result for outcome in done.values() for result in outcome.results]
    total = Rate(sum(result.success for result in results), len(results))
    clips: list[Clip] = []
    for entry, outcome in done.items():
        chosen = choose_clips(
            outcome.results, folders[entry] / "videos", run=entry, successes=1, failures=1
        )
        clips += _clips(settings, outcome.entry.settings(), chosen)
    return Report(
        title=f"{_title(name)}: evaluation of a suite",
        headline=(
            f"The policy succeeded in {total} of unseen starts of {len(done)} tasks and "
            f"variations in simulation."
        ),
        facts=SuiteStatistics.of(outcomes).texts() | _facts(settings, digest, results),
        rates={entry: outcome.summary.rate for entry, outcome in done.items() if outcome.summary},
        failures={outcome.entry.name: outcome.failure for outcome in outcomes if outcome.failure},
        episodes={entry: outcome.results for entry, outcome in done.items()},
        videos={entry: folder / "videos" for entry, folder in folders.items()},
        reruns={
            entry: _rerun(settings, outcome.entry.settings(), folders[entry])
            for entry, outcome in done.items()
        },
        clips=with_clouds(clips, policy),
        kind="task",
        commands=[_suite_command(name, settings)],
        **_curves(settings),
    )


def with_clouds(clips: Sequence[Clip], policy: Policy) -> list[Clip]:
    """Returns clips with the cloud of the first observation, if it is stored."""
    first = [read_first_observation(trace_of_video(clip.path)) for clip in clips]
    return [
        replace(clip, cloud=scene_cloud(policy, observation)) if observation else clip
        for clip, observation in zip(clips, first, strict=True)
    ]


def _clips(
    settings: EvaluationSettings, task: TaskSettings, clips: Sequence[Clip]
) -> Sequence[Clip]:
    """Returns the clips of a task, with films if the rendering of the settings has them."""
    return clips if settings.rendering == "fast" else with_films(clips, task, settings.robot_model)


def _rerun(settings: EvaluationSettings, task: TaskSettings, output: Path) -> RerunCommand:
    return RerunCommand(
        settings.checkpoint, task, settings.execute_steps, output, _overrides(settings)
    )


def _suite_command(name: str, settings: EvaluationSettings) -> str:
    seeds = {"seeds": settings.seeds, "first_seed": settings.first_seed}
    chosen: dict[str, object] = (
        {"task": settings.tasks} if settings.tasks else {"suite": settings.suite_file or name}
    )
    return eval_line(
        {
            **chosen,
            **{key: value for key, value in seeds.items() if value is not None},
            "checkpoint": settings.checkpoint,
            "execute_steps": settings.execute_steps,
            **_overrides(settings),
            "output": str(settings.output),
        }
    )


def _overrides(settings: EvaluationSettings) -> dict[str, object]:
    """Returns the overrides of execution and robot; empty for the defaults."""
    return {**settings.execution.overrides(), **_robot(settings)}


def _robot(settings: EvaluationSettings) -> dict[str, str]:
    model = settings.robot_model
    return {} if model == PRIMITIVES else {"robot.model": model}


def _curves(settings: EvaluationSettings) -> dict[str, Any]:
    """Returns the fields of a report that show the training of the checkpoint."""
    if is_address(settings.checkpoint):
        return vars(LearningCurve())
    return vars(learning_curve(find_checkpoint(settings.checkpoint)))


def _facts(
    settings: EvaluationSettings, digest: str, results: Sequence[EpisodeResult]
) -> dict[str, str]:
    seeds = [result.seed for result in results]
    return {
        "checkpoint": settings.checkpoint,
        "its digest": digest,
        "seeds": f"{min(seeds)} to {max(seeds)}",
        "execution": settings.execution.described(settings.execute_steps),
        **_robot(settings),
        "machine": system_info(),
        "versions": ", ".join(f"{name} {value}" for name, value in package_versions().items()),
    }


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


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
