"""The report and the summary of the demonstration."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stringline.datasets.files.atomic import write_file
from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.training.checkpoint import load_description
from stringline.encoders.training.monitor import History
from stringline.policies.algorithms.learned_policy import LearnedPolicy
from stringline.real_robot.showcase.budget import Stopwatch
from stringline.real_robot.showcase.demo_settings import DEMONSTRATION_SEED, DemoSettings
from stringline.sim.evaluation.results import EpisodeResult, Summary
from stringline.sim.report.evaluation_report import with_clouds
from stringline.sim.report.film import with_films
from stringline.sim.report.report import (
    Clip,
    Report,
    RerunCommand,
    choose_clips,
    package_versions,
    system_info,
    write_report,
)
from stringline.sim.statistics.intervals import Rate

_NAMES = {"expert": "expert", "direct": "policy", "emulated": "policy through the real protocol"}


@dataclass(frozen=True)
class DemoResults:
    """Results of all phases.

    Attributes:
        direct: Results in simulation.
        emulated: Results through the real protocol.
    """

    expert: Rate
    demonstrations: EpisodeStore
    history: History
    policy: LearnedPolicy
    direct: list[EpisodeResult]
    emulated: list[EpisodeResult]

    def rates(self) -> dict[str, Rate]:
        """Returns the success rates by phase."""
        direct, emulated = (Summary.of(results).rate for results in (self.direct, self.emulated))
        return {"expert": self.expert, "direct": direct, "emulated": emulated}


def write_demo(settings: DemoSettings, results: DemoResults, stopwatch: Stopwatch) -> None:
    """Writes `report.html` and `summary.json` and prints the success rates."""
    page = settings.output / "report.html"
    with stopwatch.phase("report"):
        write_report(page, _report(settings, results, stopwatch))
    seconds = {name: round(stopwatch.seconds[name], 1) for name in stopwatch.phases}
    summary = _summary(settings, results, seconds)
    write_file(settings.output / "summary.json", json.dumps(summary, indent=1).encode())
    rows = [f"{name:<16}{rate}" for name, rate in results.rates().items()]
    rows += [f"{name:<16}{value:6.0f} s" for name, value in seconds.items()]
    print("\n".join(["", *rows, "", f"Open the report: {page.resolve().as_uri()}"]))


def _report(settings: DemoSettings, results: DemoResults, stopwatch: Stopwatch) -> Report:
    rates = results.rates()
    name = _NAMES["direct"]
    videos = settings.output / "videos"
    trained_on = _trained_on(settings)
    rerun = RerunCommand(
        str(settings.checkpoint),
        settings.task,
        settings.execute_steps,
        settings.output,
        settings.overrides(),
    )
    return Report(
        title=settings.chain_task.title,
        headline=(
            f"A policy trained on {trained_on} demonstrations succeeded in {rates['direct']} of "
            f"unseen starts in simulation, and in {rates['emulated']} when it drove "
            f"{settings.chain_task.arms.words}."
        ),
        facts=_facts(settings, results, trained_on),
        rates={_NAMES[key]: rate for key, rate in rates.items()},
        phases=stopwatch.seconds,
        episodes={name: results.direct, _NAMES["emulated"]: results.emulated},
        videos={name: videos},
        reruns={name: rerun},
        clips=with_clouds(_clips(settings, results, videos), results.policy),
        losses=results.history.losses(),
        probes=results.history.probes(),
        validations=results.history.validations(),
        commands=commands(settings),
        notes=_notes(settings, results),
    )


def _clips(settings: DemoSettings, results: DemoResults, videos: Path) -> Sequence[Clip]:
    clips = choose_clips(results.direct, videos, run=_NAMES["direct"])
    if settings.rendering == "fast":
        return clips
    return with_films(clips, settings.task, settings.robot_model)


def _trained_on(settings: DemoSettings) -> int:
    return int(load_description(settings.checkpoint)["training"]["episodes"])


def _facts(settings: DemoSettings, results: DemoResults, trained_on: int) -> dict[str, str]:
    encoding = settings.encoder["encoding"]["_target_"].rpartition(".")[2]
    relative = ", relative values" if settings.encoder["values"] else ""
    parameters = sum(parameter.numel() for parameter in results.policy.parameters())
    trainer = settings.trainer
    seeds = settings.seeds
    held_out = len(results.demonstrations) - trained_on
    versions = package_versions()
    return {
        "encoding": f"{encoding}{relative}",
        "places": settings.coordinates["places"]["_target_"].rpartition(".")[2],
        **_action_facts(settings),
        "parameters": f"{parameters / 1e6:.2f} million",
        "training": (f"{trainer.steps} steps of {trainer.batch_size} windows, seed {trainer.seed}"),
        "demonstrations": (
            f"{len(results.demonstrations)}, seeds {DEMONSTRATION_SEED} and up; {trained_on} "
            f"trained on, {held_out} held out"
        ),
        "evaluation seeds": f"{seeds[0]} to {seeds[-1]}",
        "execution": settings.execution.described(settings.execute_steps),
        "machine": system_info(),
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
    }


def _action_facts(settings: DemoSettings) -> dict[str, str]:
    """Returns the frames of tokens and the spaces and places of actions, if they are chosen."""
    policy = settings.policy
    frames = policy["observation_encoder"].get("frames")
    spaces = [policy[key]["_target_"] for key in ("action_space", "gripper_space") if key in policy]
    places = policy.get("action_places")
    facts = {
        "frames": ", ".join(frames["names"]) if frames else "",
        "actions": ", ".join(name.rpartition(".")[2] for name in spaces),
        "action tokens": f"at {places['at'].replace('_', ' ')}" if places else "",
    }
    return {name: fact for name, fact in facts.items() if fact}


def commands(settings: DemoSettings) -> list[str]:
    """Returns the commands that repeat the demonstration and its evaluation."""
    overrides = _joined(settings.overrides())
    checkpoint = settings.checkpoint
    task = settings.chain_task
    minutes = "" if settings.minutes is None else f" minutes={settings.minutes:g}"
    return [
        f"stringline-demo {task.choice}{minutes} output={settings.output}{overrides}",
        f"stringline-eval checkpoint={checkpoint} seeds={settings.trials}{overrides}",
        f"stringline-deploy checkpoint={checkpoint}{_joined(task.arms.overrides)}{overrides}",
    ]


def _joined(overrides: Mapping[str, object]) -> str:
    return "".join(f" {key}={value}" for key, value in overrides.items())


def _notes(settings: DemoSettings, results: DemoResults) -> list[str]:
    by_seed = {result.seed: result.success for result in results.direct}
    agreeing = sum(by_seed[result.seed] == result.success for result in results.emulated)
    return [
        settings.chain_task.success(),
        (
            f"On the {len(results.emulated)} seeds run both ways, simulation and real protocol "
            f"agreed "
            f"in {agreeing}."
        ),
        (
            "Through the real protocol the emulated arms run in lock-step with the policy, so "
            "these results do not show the effect of latency."
        ),
    ]


def _summary(
    settings: DemoSettings, results: DemoResults, seconds: dict[str, float]
) -> dict[str, object]:
    demonstrations = results.demonstrations
    return {
        "seconds": seconds,
        "demonstrations": len(demonstrations),
        **{name: rate.to_dict() for name, rate in results.rates().items()},
        "versions": package_versions(),
        "machine": system_info(),
        "seeds": {
            "expert": [0, settings.expert_trials - 1],
            "demonstrations": sorted(demonstrations.seeds(settings.task.name)),
            "direct": settings.seeds,
            "emulated": settings.emulated_seeds,
            "training": settings.trainer.seed,
        },
        "trainer": vars(settings.trainer),
        "encoder": settings.encoder,
    }
