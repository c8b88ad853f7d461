"""The phases of the demonstration, each of which continues after an interruption."""

from functools import cached_property, partial
from typing import Any

import torch

from stringline.datasets.store.store import EpisodeStore
from stringline.encoders.training.history import History
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.checkpoints.load import checkpoint_digest, load_policy
from stringline.real_robot.protocol_in_the_loop.loop_evaluation import LoopEvaluation
from stringline.real_robot.showcase.demo_report import DemoResults, write_demo
from stringline.real_robot.showcase.demo_settings import DEMONSTRATION_SEED, DemoSettings
from stringline.real_robot.showcase.stopwatch import Stopwatch
from stringline.sim.collect import collect
from stringline.sim.collection.collection_state import Recipe
from stringline.sim.environment.factory import make_environment
from stringline.sim.evaluation.results import EpisodeResult
from stringline.sim.evaluation.runner import Evaluation
from stringline.sim.robots.robot_model import PRIMITIVES, ROBOT_MODEL
from stringline.sim.statistics.intervals import Rate
from stringline.sim.train import train_policy

PHASES = ("expert", "demonstrations", "training", "direct", "wire", "report")


class DemoChain:
    """Runs the phases in order and writes `report.html` and `summary.json`."""

    def __init__(self, settings: DemoSettings) -> None:
        self._settings = settings
        self._folder = settings.output
        self._stopwatch = Stopwatch(self._folder / "seconds.json", PHASES)

    def run(self) -> None:
        """Runs the phases that are not finished."""
        stopwatch = self._stopwatch
        with stopwatch.phase("expert"):
            expert = self._expert()
        with stopwatch.phase("demonstrations"):
            demonstrations = self._demonstrate()
        with stopwatch.phase("training"):
            history = self._train(demonstrations)
        with stopwatch.phase("direct"):
            direct = self._evaluate()
        with stopwatch.phase("wire"):
            wire = self._evaluate_protocol()
        results = DemoResults(expert, demonstrations, history, self.policy, direct, wire)
        write_demo(self._settings, results, stopwatch)

    def _expert(self) -> Rate:
        """Measures the expert without disturbances, and without images, which it does not need."""
        trials = self._settings.expert_trials
        recipe = self.recipe(cameras=(), keep_failures=True, robot_model=PRIMITIVES)
        attempts = collect(recipe, self._folder / "expert", trials, workers=self._settings.workers)
        chosen = [outcome.success for outcome in attempts.outcomes if outcome.seed < trials]
        return Rate(sum(chosen), len(chosen))

    def _demonstrate(self) -> EpisodeStore:
        path = self._folder / "demonstrations"
        collect(
            self.recipe(noise_rad=self._settings.noise_rad),
            path,
            self._settings.episodes,
            workers=self._settings.workers,
            first_seed=DEMONSTRATION_SEED,
        )
        return EpisodeStore.open(path)

    def recipe(self, **changes: Any) -> Recipe:
        """Returns the recipe of the demonstrations, with changes of its fields."""
        task = self._settings.task
        # The plain expert, whose demonstrations the published success rates are from.
        chosen: dict[str, Any] = {
            "task": task.name,
            "varied": False,
            "cameras": task.cameras,
            "robot_model": self._settings.robot_model,
            "image_size": task.image_size,
            "control_hz": task.control_hz,
            "frame_hz": task.frame_hz,
            "time_limit_s": task.time_limit_s,
            "options": dict(task.options),
        }
        return Recipe(**(chosen | changes))

    def _train(self, demonstrations: EpisodeStore) -> History:
        settings = self._settings
        return train_policy(
            settings.policy,
            demonstrations,
            settings.trainer,
            self._folder / "training",
            settings.training,
        )

    @cached_property
    def policy(self) -> ChunkPolicy:
        """The trained policy, in one thread; parallel simulations use the other processors."""
        torch.set_num_threads(1)
        return load_policy(self._settings.checkpoint)

    def _evaluate(self) -> list[EpisodeResult]:
        settings = self._settings
        task = settings.task
        world = partial(
            make_environment,
            task.name,
            cameras=[camera.name for camera in self.policy.contract.cameras],
            robot_model=settings.robot_model,
            image_size=task.image_size,
            control_hz=task.control_hz,
            frame_hz=task.frame_hz,
            time_limit_s=task.time_limit_s,
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
        return evaluation.run(settings.seeds, self._folder / "direct.jsonl", self._about())

    def _evaluate_protocol(self) -> list[EpisodeResult]:
        settings = self._settings
        evaluation = LoopEvaluation(
            self.policy,
            settings.task,
            execute_steps=settings.execute_steps,
            execution=settings.execution,
            workers=settings.workers,
            robot_model=settings.robot_model,
        )
        return evaluation.run(settings.wire_seeds, self._folder / "wire.jsonl", self._about())

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
        }
