"""The reports of `stringline-eval`: of one task, and of a suite."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stringline.policies.checkpoints.load import find_checkpoint, is_address
from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.execution import Execution
from stringline.sim.collection.rerun_command import Replay, eval_line
from stringline.sim.evaluation.results import EpisodeResult, Summary
from stringline.sim.evaluation.suite_run import CellOutcome
from stringline.sim.evaluation.trace import read_first_observation, trace_of_video
from stringline.sim.report.learning_curve import LearningCurve, learning_curve
from stringline.sim.report.report import Clip, Report, choose_clips
from stringline.sim.report.scene_cloud import scene_cloud
from stringline.sim.report.system_info import machine_kind, versions
from stringline.sim.robots.robot_model import PRIMITIVES
from stringline.sim.statistics.intervals import Rate


def task_report(
    settings: Mapping[str, Any], digest: str, policy: Policy, results: Sequence[EpisodeResult]
) -> Report:
    """Returns the report of an evaluation on a single task.

    Args:
        settings: Those of `configs/eval.yaml`, resolved.
        digest: What tells the checkpoint from every other one.
        policy: What was measured.
        results: At least one.
    """
    summary = Summary.of(results)
    task = settings["task"]
    output = Path(settings["output"])
    changed = ", ".join(f"{name} {value}" for name, value in task["options"].items()) or "none"
    curve = _learning_curve(settings)
    replay = _replay(settings, task, output)
    return Report(
        title=f"{_title(task['name'])}: evaluation",
        headline=f"The policy succeeded in {summary.rate} of unseen starts in simulation.",
        facts=_facts(settings, digest, results) | {"changes to the task": changed},
        rates={"policy": summary.rate},
        episodes={"policy": results},
        videos={"policy": output / "videos"},
        replays={"policy": replay},
        clips=with_clouds(choose_clips(results, output / "videos"), policy),
        losses=curve.losses,
        probes=curve.probes,
        validations=curve.validations,
        successes=curve.successes,
        commands=[replay.whole(len(results), min(result.seed for result in results))],
    )


def suite_report(
    name: str,
    settings: Mapping[str, Any],
    digest: str,
    policy: Policy,
    outcomes: Mapping[str, CellOutcome],
) -> Report:
    """Returns the report of a suite.

    Args:
        name: Of the suite.
        settings: Those of `configs/eval.yaml`, resolved.
        digest: What tells the checkpoint from every other one.
        policy: What was measured.
        outcomes: By the name of the entry; at least one has results.
    """
    output = Path(settings["output"])
    curve = _learning_curve(settings)
    done = {entry: outcome for entry, outcome in outcomes.items() if outcome.results}
    everything = [result for outcome in done.values() for result in outcome.results]
    total = Rate(sum(result.success for result in everything), len(everything))
    clips: list[Clip] = []
    for entry, outcome in done.items():
        clips += choose_clips(
            outcome.results, output / entry / "videos", run=entry, successes=1, failures=1
        )
    return Report(
        title=f"{_title(name)}: evaluation of a suite",
        headline=(
            f"The policy succeeded in {total} of unseen starts of {len(done)} tasks and "
            f"variations in simulation."
        ),
        facts=_facts(settings, digest, everything),
        rates={entry: outcome.summary.rate for entry, outcome in done.items() if outcome.summary},
        failures={entry: outcome.failure for entry, outcome in outcomes.items() if outcome.failure},
        episodes={entry: outcome.results for entry, outcome in done.items()},
        videos={entry: output / entry / "videos" for entry in done},
        replays={
            entry: _replay(settings, outcome.cell.settings(), output / entry)
            for entry, outcome in done.items()
        },
        clips=with_clouds(clips, policy),
        kind="task",
        losses=curve.losses,
        probes=curve.probes,
        validations=curve.validations,
        successes=curve.successes,
        commands=[_suite_command(name, settings)],
    )


def with_clouds(clips: Sequence[Clip], policy: Policy) -> list[Clip]:
    """Returns clips with what the policy saw first, where that was kept and its attention can be followed."""
    seen = [read_first_observation(trace_of_video(clip.path)) for clip in clips]
    return [
        replace(clip, cloud=scene_cloud(policy, first)) if first else clip
        for clip, first in zip(clips, seen, strict=True)
    ]


def _replay(settings: Mapping[str, Any], task: Mapping[str, Any], output: Path) -> Replay:
    how = _execution(settings).overrides() | _robot(settings)
    return Replay(str(settings["checkpoint"]), task, settings["execute_steps"], output, how)


def _suite_command(name: str, settings: Mapping[str, Any]) -> str:
    chosen = {key: settings[key] for key in ("seeds", "first_seed") if settings[key] is not None}
    rest = {"checkpoint": settings["checkpoint"], "execute_steps": settings["execute_steps"]}
    how = _execution(settings).overrides() | _robot(settings)
    return eval_line(
        {
            "suite": settings["suite_file"] or name,
            **chosen,
            **rest,
            **how,
            "output": settings["output"],
        }
    )


def _execution(settings: Mapping[str, Any]) -> Execution:
    return Execution.of(settings.get("execution"))


def _robot(settings: Mapping[str, Any]) -> dict[str, object]:
    """Returns overrides that say what arms are drawn with; none where it is the usual."""
    model = settings.get("robot", {}).get("model", PRIMITIVES)
    return {} if model == PRIMITIVES else {"robot.model": model}


def _learning_curve(settings: Mapping[str, Any]) -> LearningCurve:
    checkpoint = settings["checkpoint"]
    return (
        LearningCurve() if is_address(checkpoint) else learning_curve(find_checkpoint(checkpoint))
    )


def _facts(
    settings: Mapping[str, Any], digest: str, results: Sequence[EpisodeResult]
) -> dict[str, str]:
    seeds = [result.seed for result in results]
    return {
        "checkpoint": str(settings["checkpoint"]),
        "its digest": digest,
        "seeds": f"{min(seeds)} to {max(seeds)}",
        "execution": _execution(settings).described(settings["execute_steps"]),
        **{name: str(value) for name, value in _robot(settings).items()},
        "machine": machine_kind(),
        "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
    }


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()
