"""The phases of the demonstration, each of which continues where it was stopped."""

import json
import logging
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from stringline.datasets.contract.arguments import COUNT, Range
from stringline.datasets.files.atomic import write_file
from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.training.checkpoint import build, load_description
from stringline.encoders.training.history import History
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import checkpoint_digest, load_policy
from stringline.policies.execution.execution import Execution
from stringline.real_robot.protocol_in_the_loop.loop_evaluation import (
    WireEvaluation,
    refuse_measured,
)
from stringline.real_robot.showcase.stopwatch import Journal
from stringline.sim.collect import collect
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.collection.demonstration import NOISES_RAD
from stringline.sim.collection.rerun_command import Replay
from stringline.sim.environment.factory import make_environment
from stringline.sim.evaluation.results import EpisodeResult, Summary
from stringline.sim.evaluation.runner import Evaluation, evaluation_seeds
from stringline.sim.report.evaluation_report import with_clouds
from stringline.sim.report.report import Report, choose_clips, write_report
from stringline.sim.report.system_info import machine_kind, versions
from stringline.sim.robots.robot_model import (
    PRIMITIVES,
    ROBOT_MODEL,
    RobotModel,
    demand_robot_model,
)
from stringline.sim.statistics.intervals import Rate
from stringline.sim.train import train_policy
from stringline.sim.training.training_settings import TrainingSettings
from stringline.sim.worlds.world_registry import demand_task_settings

_log = logging.getLogger(__name__)

COUNTS = ("expert_trials", "episodes", "trials", "workers")
PHASES = ("expert", "demonstrations", "training", "direct", "wire", "report")
DEMONSTRATION_SEED = 10_000


class DemoChain:
    """Runs the phases in order and writes `report.html` and `summary.json`."""

    def __init__(self, config: DictConfig) -> None:
        """Resolves the configuration.

        Args:
            config: That of `configs/demo.yaml`.

        Raises:
            ValueError: A number is out of range, there is no such setting of the task or model of
                the arms, or plans cannot be executed like that through the wire. Whatever is
                refused is refused here, before hours are spent.
        """
        settings = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        assert isinstance(settings, dict)
        self.settings: dict[str, Any] = {str(key): value for key, value in settings.items()}
        _demand(self.settings)
        self.robot_model: RobotModel = self.settings["robot"]["model"]
        self.folder = Path(str(self.settings["output"]))
        self.journal = Journal(self.folder / "seconds.json", PHASES)
        self.trainer = build(self.settings["trainer"])
        self.training = TrainingSettings(
            early_s=self.settings["early_s"], early_factor=self.settings["early_factor"]
        )
        self.seeds = evaluation_seeds(self.settings["trials"])
        self.execution = Execution.of(self.settings["execution"])
        refuse_measured(self.execution)

    def run(self) -> None:
        """Does what is not yet done."""
        with self.journal.phase("expert"):
            expert = self._expert()
        with self.journal.phase("demonstrations"):
            demonstrations = self._demonstrate()
        with self.journal.phase("training"):
            history = self._train(demonstrations)
        with self.journal.phase("direct"):
            direct = self._evaluate()
        with self.journal.phase("wire"):
            wire = self._through_the_wire()
        rates = {"expert": expert, "direct": Summary.of(direct).rate, "wire": Summary.of(wire).rate}
        with self.journal.phase("report"):
            self._report(rates, demonstrations, history, direct, wire)
        self._summarise(rates, demonstrations)

    def _expert(self) -> Rate:
        """Measures the expert undisturbed, and without images, which it does not look at; so nobody sees the arms."""
        recipe = self._recipe(cameras=(), keep_failures=True, robot_model=PRIMITIVES)
        attempts = collect(
            recipe,
            self.folder / "expert",
            self.settings["expert_trials"],
            workers=self.settings["workers"],
        )
        chosen = [
            outcome.success
            for outcome in attempts.outcomes
            if outcome.seed < self.settings["expert_trials"]
        ]
        return Rate(sum(chosen), len(chosen))

    def _demonstrate(self) -> EpisodeStore:
        path = self.folder / "demonstrations"
        recipe = self._recipe(noise_rad=self.settings["noise_rad"])
        collect(
            recipe,
            path,
            self.settings["episodes"],
            workers=self.settings["workers"],
            first_seed=DEMONSTRATION_SEED,
        )
        return EpisodeStore.open(path)

    def _recipe(self, **changes: Any) -> Recipe:
        task = self.settings["task"]
        chosen = {
            key: task[key]
            for key in ("image_size", "control_hz", "frame_hz", "time_limit_s", "options")
        }
        # The plain expert: the policy's published success was measured with its demonstrations.
        drawn: dict[str, Any] = {"cameras": tuple(task["cameras"]), "robot_model": self.robot_model}
        return Recipe(**({"task": task["name"], "varied": False} | drawn | chosen | changes))

    def _train(self, demonstrations: EpisodeStore) -> History:
        return train_policy(
            self.settings["policy"],
            demonstrations,
            self.trainer,
            self.folder / "training",
            self.training,
        )

    @property
    def checkpoint(self) -> Path:
        """The checkpoint that this run trains."""
        return self.folder / "training" / "checkpoint"

    @cached_property
    def policy(self) -> ChunkPolicy:
        """The trained policy; it plans in one thread, because the simulations beside it want the other processors."""
        torch.set_num_threads(1)
        return load_policy(self.checkpoint)

    def _evaluate(self) -> list[EpisodeResult]:
        task = self.settings["task"]
        world = partial(
            make_environment,
            task["name"],
            cameras=[camera.name for camera in self.policy.contract.cameras],
            robot_model=self.robot_model,
            **{key: task[key] for key in ("image_size", "control_hz", "frame_hz", "time_limit_s")},
        )
        evaluation = Evaluation(
            self.policy,
            world,
            execute_steps=self.settings["execute_steps"],
            execution=self.execution,
            workers=self.settings["workers"],
            options=task["options"],
            videos=self.folder / "videos",
        )
        return evaluation.run(self.seeds, self.folder / "direct.jsonl", self._about)

    def _through_the_wire(self) -> list[EpisodeResult]:
        evaluation = WireEvaluation(
            self.policy,
            task=self.settings["task"],
            execute_steps=self.settings["execute_steps"],
            execution=self.execution,
            workers=self.settings["workers"],
            robot_model=self.robot_model,
        )
        return evaluation.run(
            self.seeds[: self.settings["wire_trials"]], self.folder / "wire.jsonl", self._about
        )

    @property
    def _about(self) -> dict[str, Any]:
        task = self.settings["task"]
        settings = {
            key: task[key] for key in ("image_size", "control_hz", "frame_hz", "time_limit_s")
        }
        drawn = {} if self.robot_model == PRIMITIVES else {ROBOT_MODEL: self.robot_model}
        return {
            "task": task["name"],
            "checkpoint": checkpoint_digest(self.checkpoint),
            **settings,
            **drawn,
        }

    def _report(
        self,
        rates: dict[str, Rate],
        demonstrations: EpisodeStore,
        history: History,
        direct: list[EpisodeResult],
        wire: list[EpisodeResult],
    ) -> None:
        names = {"expert": "expert", "direct": "policy", "wire": "policy through the wire"}
        report = Report(
            title=self.settings["task"]["name"].replace("_", " ").capitalize(),
            headline=(
                f"A policy trained on {self._trained_on} demonstrations succeeded in "
                f"{rates['direct']} of unseen starts "
                f"in simulation, and in {rates['wire']} when it drove emulated ALOHA arms over "
                f"the servo protocol."
            ),
            facts=self._facts(demonstrations),
            rates={names[key]: rate for key, rate in rates.items()},
            phases=self.journal.seconds,
            episodes={names["direct"]: direct, names["wire"]: wire},
            videos={names["direct"]: self.folder / "videos"},
            replays={names["direct"]: self._replay},
            clips=with_clouds(
                choose_clips(direct, self.folder / "videos", run=names["direct"]), self.policy
            ),
            losses=history.losses(),
            probes=history.probes(),
            validations=history.validations(),
            commands=self._commands(),
            notes=self._notes(direct, wire),
        )
        write_report(self.folder / "report.html", report)

    @property
    def _replay(self) -> Replay:
        how = self.settings["execute_steps"], self.folder, self._overrides
        return Replay(str(self.checkpoint), self.settings["task"], *how)

    @property
    def _overrides(self) -> dict[str, object]:
        """What commands need besides, to do the same as this run: how plans are executed, and what arms are drawn with."""
        drawn = {} if self.robot_model == PRIMITIVES else {"robot.model": self.robot_model}
        return {**self.execution.overrides(), **drawn}

    @property
    def _trained_on(self) -> int:
        return int(load_description(self.checkpoint)["training"]["episodes"])

    def _facts(self, demonstrations: EpisodeStore) -> dict[str, str]:
        encoder = self.settings["encoder"]
        return {
            "encoding": encoder["encoding"]["_target_"].rpartition(".")[2]
            + (", relative values" if encoder["values"] else ""),
            "places": self.settings["coordinates"]["places"]["_target_"].rpartition(".")[2],
            "parameters": (
                f"{sum(parameter.numel() for parameter in self.policy.parameters()) / 1e6:.2f} "
                f"million"
            ),
            "training": (
                f"{self.trainer.steps} steps of {self.trainer.batch_size} windows, seed "
                f"{self.trainer.seed}"
            ),
            "demonstrations": f"{len(demonstrations)}, seeds {DEMONSTRATION_SEED} and up; {self._trained_on} "
            f"trained on, "
            f"{len(demonstrations) - self._trained_on} held out",
            "evaluation seeds": f"{self.seeds[0]} to {self.seeds[-1]}",
            "execution": self.execution.described(self.settings["execute_steps"]),
            "machine": machine_kind(),
            "versions": ", ".join(f"{name} {number}" for name, number in versions().items()),
        }

    def _commands(self) -> list[str]:
        how = "".join(f" {key}={value}" for key, value in self._overrides.items())
        return [
            f"stringline-demo output={self.folder}{how}",
            f"stringline-eval checkpoint={self.checkpoint} seeds={self.settings['trials']}{how}",
            f"stringline-deploy robot=aloha_emulated checkpoint={self.checkpoint}{how}",
        ]

    def _notes(self, direct: list[EpisodeResult], wire: list[EpisodeResult]) -> list[str]:
        by_seed = {result.seed: result.success for result in direct}
        agreeing = sum(by_seed[result.seed] == result.success for result in wire)
        return [
            (
                "Success: the hand-over happened, and the banana lay in the bowl, released and at "
                "rest for half a second."
            ),
            f"On the {len(wire)} seeds run both ways, direct and wire agreed in {agreeing}.",
            (
                "The wire run is in lock-step: the emulated arms wait for the policy, so it says "
                "nothing about latency."
            ),
        ]

    def _summarise(self, rates: dict[str, Rate], demonstrations: EpisodeStore) -> None:
        summary = {
            "seconds": {name: round(self.journal.seconds[name], 1) for name in PHASES},
            "demonstrations": len(demonstrations),
            **{name: rate.to_dict() for name, rate in rates.items()},
            "versions": versions(),
            "machine": machine_kind(),
            "seeds": {
                "expert": [0, self.settings["expert_trials"] - 1],
                "demonstrations": sorted(demonstrations.seeds(self.settings["task"]["name"])),
                "direct": self.seeds,
                "wire": self.seeds[: self.settings["wire_trials"]],
                "training": self.trainer.seed,
            },
            "trainer": vars(self.trainer),
            "encoder": self.settings["encoder"],
        }
        write_file(self.folder / "summary.json", json.dumps(summary, indent=1).encode())
        rows = [f"{name:<16}{rate}" for name, rate in rates.items()]
        rows += [f"{name:<16}{seconds:6.0f} s" for name, seconds in summary["seconds"].items()]
        print(
            "\n".join(
                [
                    "",
                    *rows,
                    "",
                    f"Open the report: {(self.folder / 'report.html').resolve().as_uri()}",
                ]
            )
        )


def _demand(settings: Mapping[str, Any]) -> None:
    """Refuses settings of `configs/demo.yaml` that some phase would refuse.

    Raises:
        ValueError: It names the first of them, and what is allowed.
    """
    COUNT.check(**{name: settings[name] for name in COUNTS})
    Range(least=1, most=settings["trials"], whole=True).check(wire_trials=settings["wire_trials"])
    NOISES_RAD.check(noise_rad=settings["noise_rad"])
    if settings["execute_steps"] is not None:
        COUNT.check(execute_steps=settings["execute_steps"])
    demand_task_settings(settings["task"])
    demand_robot_model(settings["robot"]["model"])
