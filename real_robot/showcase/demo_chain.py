"""The phases of the demonstration, which continue after an interruption, and its report."""

import json
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from stringline.datasets.files.atomic import write_file
from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.training.checkpoint import load_description
from stringline.encoders.training.monitor import History
from stringline.encoders.training.trainer import Trainer
from stringline.policies.algorithms.learned_policy import LearnedPolicy
from stringline.policies.checkpoints.load import build_policy, checkpoint_digest, load_policy
from stringline.real_robot.emulated_evaluation.loop_evaluation import LoopEvaluation
from stringline.real_robot.showcase.budget import Budget, Stopwatch
from stringline.real_robot.showcase.demo_settings import DEMONSTRATION_SEED, DemoSettings
from stringline.sim.collect import collect, task_recipe
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.evaluation.results import EpisodeResult, Summary, read_results
from stringline.sim.evaluation.runner import Evaluation
from stringline.sim.evaluation.suites import evaluation_seeds
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
from stringline.sim.report.run_reports import with_clouds
from stringline.sim.robots.arm_appearance import PRIMITIVES, ROBOT_MODEL
from stringline.sim.rollout.jobs import Speed, measure
from stringline.sim.statistics.intervals import Rate
from stringline.sim.train import train_policy
from stringline.sim.training.training_data import TrainingData
from stringline.sim.worlds.world_registry import open_world
from stringline.sim.worlds.world_versions import result_versions

_NAMES = {"expert": "expert", "direct": "policy", "emulated": "policy through the real protocol"}


@dataclass(frozen=True)
class DemoResults:
    """Results of all phases.

    Attributes:
        direct: Results in simulation.
        emulated: Results through the real protocol; None if the arms have no emulator.
    """

    expert: Rate
    demonstrations: EpisodeStore
    history: History
    policy: LearnedPolicy
    direct: list[EpisodeResult]
    emulated: list[EpisodeResult] | None

    def rates(self) -> dict[str, Rate]:
        """Returns the success rates by phase."""
        found = {"expert": self.expert, "direct": Summary.of(self.direct).rate}
        if self.emulated is not None:
            found["emulated"] = Summary.of(self.emulated).rate
        return found


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
        headline=_headline(settings, rates, trained_on),
        facts=_facts(settings, results, trained_on),
        rates={_NAMES[key]: rate for key, rate in rates.items()},
        phases=stopwatch.seconds,
        episodes={name: results.direct}
        | ({} if results.emulated is None else {_NAMES["emulated"]: results.emulated}),
        videos={name: videos},
        reruns={name: rerun},
        clips=with_clouds(_clips(settings, results, videos), results.policy),
        losses=results.history.losses(),
        probes=results.history.probes(),
        validations=results.history.validations(),
        commands=commands(settings),
        notes=_notes(settings, results),
    )


def _headline(settings: DemoSettings, rates: Mapping[str, Rate], trained_on: int) -> str:
    arms = settings.chain_task.arms
    real = "" if arms is None else f", and in {rates['emulated']} when it drove {arms.words}"
    return (
        f"A policy trained on {trained_on} demonstrations succeeded in {rates['direct']} of unseen "
        f"starts in simulation{real}."
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
    python = "" if settings.task.python is None else f" python={settings.task.python}"
    found = [
        f"stringline-demo {task.choice}{minutes} output={settings.output}{overrides}",
        f"stringline-eval checkpoint={checkpoint}{python} seeds={settings.trials}{overrides}",
    ]
    if task.arms is not None:
        arms = _joined(task.arms.overrides)
        found.append(f"stringline-deploy checkpoint={checkpoint}{arms}{overrides}")
    return found


def _joined(overrides: Mapping[str, object]) -> str:
    return "".join(f" {key}={value}" for key, value in overrides.items())


def _notes(settings: DemoSettings, results: DemoResults) -> list[str]:
    if results.emulated is None:
        return [settings.chain_task.success()]
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
            **({} if results.emulated is None else {"emulated": settings.emulated_seeds}),
            "training": settings.trainer.seed,
        },
        "trainer": vars(settings.trainer),
        "encoder": settings.encoder,
    }


MEASURED_STEPS = 12
CHECK, PLANNING = "check", "planning"
FOLDERS = {"expert_trials": "expert", "episodes": "demonstrations"}
PHASES = ("expert", "demonstrations", "training", "direct", "emulated", "report")


class DemoChain:
    """Runs the phases in order and writes `report.html` and `summary.json`."""

    def __init__(self, settings: DemoSettings) -> None:
        self._settings = settings
        self._folder = settings.output
        planning = () if settings.minutes is None else (PLANNING,)
        self._emulates = settings.chain_task.arms is not None
        after = [name for name in PHASES if self._emulates or name != "emulated"]
        phases = (CHECK, *planning, *after)
        self._stopwatch = Stopwatch(self._folder / "seconds.json", phases)

    def run(self) -> None:
        """Runs the phases that are not finished."""
        stopwatch = self._stopwatch
        budget = self._budget()
        if budget is not None:
            budget.check(stopwatch.elapsed(), self._done())
        with stopwatch.phase(CHECK):
            self._check_policy()
        self._plan_training(budget)
        with stopwatch.phase("expert"):
            expert = self._expert(self._settings.expert_trials)
        with stopwatch.phase("demonstrations"):
            demonstrations = self._demonstrate(self._settings.episodes)
        with stopwatch.phase("training"):
            history = self._train(demonstrations)
        self._plan_trials(budget)
        settings = self._settings
        with stopwatch.phase("direct"):
            direct = self._evaluate(settings.trials)
        emulated = None
        if self._emulates:
            with stopwatch.phase("emulated"):
                emulated = self._evaluate_protocol(settings.emulated_trials)
        results = DemoResults(expert, demonstrations, history, self.policy, direct, emulated)
        write_demo(settings, results, stopwatch)

    def _check_policy(self) -> None:
        """Builds the policy for the first demonstration.

        A policy that does not suit the task ends the chain before the other demonstrations.
        """
        store = (
            EpisodeStore.open(self._folder / "demonstrations")
            if self._stored("demonstrations")
            else self._demonstrate(1)
        )
        data = TrainingData(store, 0)
        model = self._settings.policy
        build_policy(model, data.contract, data.statistics(model))

    def _budget(self) -> Budget | None:
        """Returns the budget of the run, if it has one."""
        settings = self._settings
        if settings.minutes is None:
            return None
        return Budget(self._folder / "budget.json", settings.minutes, settings.proportions())

    def _done(self) -> dict[str, int]:
        """Returns the finished units of the phases before the training."""
        return {name: self._stored(folder) for name, folder in FOLDERS.items()}

    def _plan_training(self, budget: Budget | None) -> None:
        """Measures the phases until the end of the training and sets their counts.

        The training takes the most time and needs no further demonstration, so it is measured
        first: a budget that it exceeds ends the run before the collection.
        """
        if budget is None:
            return
        settings = self._settings
        stopwatch = self._stopwatch
        works = {"expert_trials": self._expert, "episodes": self._demonstrate}
        with stopwatch.phase(PLANNING):
            budget.speed("steps", self._training_speed)
            for name, work in works.items():
                budget.check(stopwatch.elapsed(), self._done())
                done = partial(self._stored, FOLDERS[name])
                budget.speed(name, partial(measure, work, done, settings.workers))
        budget.plan_training(stopwatch.elapsed(), self._done())
        self._settings = settings.counted(budget.counts)

    def _plan_trials(self, budget: Budget | None) -> None:
        """Measures the evaluations by their first trials and sets their counts."""
        if budget is None:
            return
        settings = self._settings
        done = {
            name: partial(self._evaluated, file)
            for name, file in {"trials": "direct", "emulated_trials": "emulated"}.items()
        }
        with self._stopwatch.phase("direct"):
            budget.speed(
                "trials", partial(measure, self._evaluate, done["trials"], settings.workers)
            )
        if self._emulates:
            with self._stopwatch.phase("emulated"):
                budget.speed(
                    "emulated_trials",
                    partial(measure, self._evaluate_protocol, done["emulated_trials"], 1),
                )
        finished = {name: count() for name, count in done.items()}
        budget.plan_trials(self._stopwatch.elapsed(), finished)
        self._settings = settings.counted(budget.counts)

    def _evaluated(self, name: str) -> int:
        path = self._folder / f"{name}.jsonl"
        return len(read_results(path)[1]) if path.exists() else 0

    def _stored(self, folder: str) -> int:
        path = self._folder / folder
        return len(EpisodeStore.open(path)) if path.exists() else 0

    def _training_speed(self) -> Speed:
        """Measures some steps of a training that is thrown away."""
        trainer = copy(self._settings.trainer)
        trainer.steps = MEASURED_STEPS
        store = EpisodeStore.open(self._folder / "demonstrations")
        started = time.monotonic()
        with TemporaryDirectory() as folder:
            history = self._train(store, trainer, Path(folder))
            seconds = [row["seconds"] for row in history.rows if "seconds" in row]
        return Speed.of_training(time.monotonic() - started, seconds)

    def _expert(self, trials: int) -> Rate:
        """Measures the expert without disturbances, and without images, which it does not need."""
        recipe = self.recipe(cameras=(), keep_failures=True, robot_model=PRIMITIVES)
        attempts = collect(recipe, self._folder / "expert", trials, workers=self._settings.workers)
        chosen = [outcome.success for outcome in attempts.outcomes if outcome.seed < trials]
        return Rate(sum(chosen), len(chosen))

    def _demonstrate(self, episodes: int) -> EpisodeStore:
        path = self._folder / "demonstrations"
        collect(
            self.disturbed_recipe(),
            path,
            episodes,
            workers=self._settings.workers,
            first_seed=DEMONSTRATION_SEED,
        )
        return EpisodeStore.open(path)

    def disturbed_recipe(self) -> Recipe:
        """Returns the recipe of the demonstrations."""
        settings = self._settings
        return self.recipe(noise_rad=settings.noise_rad, lost_grasps=settings.lost_grasps)

    def recipe(self, **changes: Any) -> Recipe:
        """Returns the recipe of attempts without disturbances, with changes of its fields."""
        settings = self._settings
        recipe = task_recipe(
            settings.task, varied=settings.varied, robot_model=settings.robot_model
        )
        return replace(recipe, **changes)

    def _train(
        self,
        demonstrations: EpisodeStore,
        trainer: Trainer | None = None,
        folder: Path | None = None,
    ) -> History:
        settings = self._settings
        return train_policy(
            settings.policy,
            demonstrations,
            trainer or settings.trainer,
            folder or self._folder / "training",
            settings.training,
        )

    @cached_property
    def policy(self) -> LearnedPolicy:
        """The trained policy, in one thread; parallel simulations use the other processors."""
        torch.set_num_threads(1)
        return load_policy(self._settings.checkpoint)

    def _evaluate(self, trials: int) -> list[EpisodeResult]:
        settings = self._settings
        task = settings.task
        world = partial(
            open_world,
            task.name,
            cameras=[camera.name for camera in self.policy.contract.cameras],
            robot_model=settings.robot_model,
            image_size=task.image_size,
            control_hz=task.control_hz,
            frame_hz=task.frame_hz,
            time_limit_s=task.time_limit_s,
            interpreter=task.interpreter,
        )
        evaluation = Evaluation(
            self.policy,
            world,
            execute_steps=settings.execute_steps,
            execution=settings.execution,
            workers=settings.workers,
            options=task.options,
            videos=self._folder / "videos",
        )
        return evaluation.run(
            evaluation_seeds(trials), self._folder / "direct.jsonl", self._about()
        )

    def _evaluate_protocol(self, trials: int) -> list[EpisodeResult]:
        settings = self._settings
        evaluation = LoopEvaluation(
            self.policy,
            settings.task,
            execute_steps=settings.execute_steps,
            execution=settings.execution,
            workers=settings.workers,
            robot_model=settings.robot_model,
        )
        return evaluation.run(
            evaluation_seeds(trials), self._folder / "emulated.jsonl", self._about()
        )

    def _about(self) -> dict[str, Any]:
        task = self._settings.task
        model = self._settings.robot_model
        return {
            "task": task.name,
            "checkpoint": checkpoint_digest(self._settings.checkpoint),
            "image_size": task.image_size,
            "control_hz": task.control_hz,
            "frame_hz": task.frame_hz,
            "time_limit_s": task.time_limit_s,
            **({} if model == PRIMITIVES else {ROBOT_MODEL: model}),
            **result_versions(task.name, task.options, interpreter=task.interpreter),
        }
