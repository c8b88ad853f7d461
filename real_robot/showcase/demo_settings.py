"""Settings of `stringline-demo` and its task: whether it can run, its cameras and emulated arms."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

from stringline.datasets.contract.argument_checks import COUNT, POSITIVE, Range, unknown_name
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.encoders.training.checkpoint import build
from stringline.encoders.training.trainer import Trainer
from stringline.policies.checkpoints.training_record import RecordedExecution
from stringline.policies.execution.execution import Execution
from stringline.real_robot.emulated_evaluation.loop_evaluation import check_delay
from stringline.sim.collection.demonstration import NOISES_RAD
from stringline.sim.collection.disturbances import SHARES
from stringline.sim.evaluation.suites import evaluation_seeds
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.rendering.rendering import Rendering, check_rendering
from stringline.sim.robots.arm_appearance import PRIMITIVES, RobotModel, check_robot_model
from stringline.sim.tasks.tabletop import TabletopTask
from stringline.sim.tasks.task_registry import TASKS, is_remote_task, is_user_task, task_class
from stringline.sim.training.training_settings import TrainingSettings
from stringline.sim.worlds.task_settings import TaskSettings
from stringline.sim.worlds.world_registry import check_own_arm, is_third_party

OVERHEAD = "overhead"


@dataclass(frozen=True)
class EmulatedArms:
    """The emulated arms of an embodiment.

    Attributes:
        words: The arms and their protocol, for a report.
        overrides: Options of `stringline-deploy` that choose them.
    """

    words: str
    overrides: Mapping[str, str]


ARMS: Mapping[str, EmulatedArms] = {
    ALOHA.name: EmulatedArms(
        "emulated ALOHA arms over the servo protocol", {"robot": "aloha_emulated"}
    ),
    IIWA14.name: EmulatedArms("an emulated KUKA arm over FRI", {"robot": "kuka_emulated"}),
    IIWA14_BIMANUAL.name: EmulatedArms(
        "two emulated KUKA arms over FRI", {"robot": "kuka_emulated", "robot.arms": "two"}
    ),
}


class ChainTask:
    """A task with an expert.

    Args:
        settings: Settings of the task.
        varied: Whether the demonstrations are those of the expert with variation.

    Attributes:
        arms: The emulation of its arms; None for environments in other interpreters, whose arms
            only move there.

    Raises:
        ValueError: The task does not exist, has no such expert, or its arms have no emulator.
    """

    def __init__(self, settings: TaskSettings, *, varied: bool) -> None:
        self._settings = settings
        check_own_arm("the demo, which emulates the arms,", settings.embodiment)
        self._class = None if is_remote_task(settings.name) else _task_class(settings.name)
        self.arms = None if self._class is None else _emulated(self._class.cell.embodiment)
        if self._class is None:
            _ = settings.interpreter.program  # Its error, before anything runs.
        else:
            make_expert(settings.name, varied=varied)

    @property
    def choice(self) -> str:
        """The options that choose the task on a command line."""
        name = self._settings.name
        python = self._settings.python
        if python is not None:
            return f"task={name} python={python}"
        return f"task.name={name}" if is_user_task(name) else f"task={name}"

    @property
    def title(self) -> str:
        """The name of the task as a heading."""
        name = self._settings.name.rpartition(":")[2].replace("_", " ")
        return name[:1].upper() + name[1:]

    def policy_cameras(self) -> list[str] | None:
        """Returns the cameras that a policy reads; None means all that are recorded.

        Of the project's own tasks they are the overhead camera and those on the wrists.
        """
        recorded = self._settings.cameras
        if self._class is None:
            return None if recorded is None else list(recorded)
        mounts = self._class.cell.embodiment.cameras
        fixed = {mount.name for mount in mounts if mount.parent == "world"}
        every = recorded or [mount.name for mount in mounts]
        return [name for name in every if name == OVERHEAD or name not in fixed]

    def success(self) -> str:
        """Returns a sentence on the criterion of success, for a report."""
        if self._class is None:
            return "Success is what the environment says, at any time of an episode."
        stages = ", ".join(self._class.stages)
        where = "" if is_user_task(self._settings.name) else " docs/tasks.md has the criterion."
        return f"Instruction: {self._class.instruction}. Stages of an episode: {stages}.{where}"


def _emulated(embodiment: Embodiment) -> EmulatedArms:
    if embodiment.name not in ARMS:
        raise unknown_name("emulated embodiment", embodiment.name, ARMS)
    return ARMS[embodiment.name]


def _task_class(name: str) -> type[TabletopTask]:
    # Boards for calibration have no goal, worlds of third parties no emulated arms.
    if is_third_party(name) or name.startswith("stringline."):
        raise ValueError(
            f"{name} cannot run the whole chain, which needs a scripted expert and emulated arms. "
            f"Allowed: {', '.join(sorted(TASKS))}, and module:Class of yours."
        )
    return task_class(name)


DEMONSTRATION_SEED = 10_000  # First seed of the demonstrations.
DISTURBED = ("noise_rad", "lost_grasps")
COUNTS = ("expert_trials", "episodes", "trials", "workers")


@dataclass(frozen=True, kw_only=True)
class DemoSettings:
    """Settings of `configs/demo.yaml`; comments there describe the numbers.

    Attributes:
        policy: Configuration of the policy, with its `_target_`.
        encoder: Configuration of the encoder, for the report.
        coordinates: Configuration of the coordinates, for the report.
        execute_steps: Actions of a chunk that are executed before the next plan; if None, all.
        noise_rad: Disturbance of executed commands in demonstrations.
        lost_grasps: Share of demonstrations in which a gripper opens once during a grasp.
        varied: Whether the expert of the demonstrations varies its motions.
        emulated_trials: Number of trials through the real protocol.
        minutes: Duration of the whole run, from which the counts follow; if None, these counts.
    """

    task: TaskSettings
    policy: Mapping[str, Any]
    encoder: Mapping[str, Any]
    coordinates: Mapping[str, Any]
    trainer: Trainer
    training: TrainingSettings
    execution: Execution
    execute_steps: int | None
    robot_model: RobotModel
    rendering: Rendering
    output: Path
    workers: int
    expert_trials: int
    episodes: int
    noise_rad: float
    lost_grasps: float
    varied: bool
    trials: int
    emulated_trials: int
    minutes: float | None = None

    def __post_init__(self) -> None:
        """Checks everything that a later phase would refuse after hours."""
        COUNT.check(**{name: getattr(self, name) for name in COUNTS})
        Range(least=1, most=self.trials, whole=True).check(emulated_trials=self.emulated_trials)
        if self.minutes is not None:
            POSITIVE.check(minutes=self.minutes)
        NOISES_RAD.check(noise_rad=self.noise_rad)
        SHARES.check(lost_grasps=self.lost_grasps)
        if self.execute_steps is not None:
            COUNT.check(execute_steps=self.execute_steps)
        check_robot_model(self.robot_model)
        ChainTask(self.task, varied=self.varied)
        check_rendering(self.rendering)
        check_delay(self.execution)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Reads the settings of a configuration."""
        execution = Execution.of(plain["execution"])
        numbers = ("execute_steps", "emulated_trials", "varied", "minutes", *DISTURBED, *COUNTS)
        task = TaskSettings.of(plain["task"])
        return cls(
            task=task,
            policy=_with_cameras(plain["policy"], ChainTask(task, varied=plain["varied"])),
            encoder=plain["encoder"],
            coordinates=plain["coordinates"],
            trainer=build(plain["trainer"]),
            training=TrainingSettings(
                **plain["dataset"],
                augmentation=plain["augmentation"],
                execution=RecordedExecution(execution, plain["execute_steps"]),
            ),
            execution=execution,
            robot_model=cast("RobotModel", plain["robot"]["model"]),
            rendering=plain["rendering"],
            output=Path(str(plain["output"])),
            **{name: plain[name] for name in numbers},
        )

    @property
    def chain_task(self) -> ChainTask:
        """The task with its arms."""
        return ChainTask(self.task, varied=self.varied)

    def proportions(self) -> dict[str, int]:
        """Returns the counts of the configuration, for a budget."""
        names = ["expert_trials", "episodes", "trials"]
        names += [] if self.chain_task.arms is None else ["emulated_trials"]
        return {name: getattr(self, name) for name in names} | {"steps": self.trainer.steps}

    def counted(self, counts: Mapping[str, int]) -> Self:
        """Returns the settings with other counts, by the names of `proportions`."""
        chosen: dict[str, Any] = dict(counts)
        trainer = copy(self.trainer)
        trainer.steps = chosen.pop("steps", trainer.steps)
        return replace(self, trainer=trainer, **chosen)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the evaluation in simulation."""
        return evaluation_seeds(self.trials)

    @property
    def emulated_seeds(self) -> list[int]:
        """Seeds of the evaluation through the real protocol."""
        return self.seeds[: self.emulated_trials]

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the trained policy."""
        return self.output / "training" / "checkpoint"

    def overrides(self) -> dict[str, object]:
        """Returns overrides of other commands for the same execution and appearance."""
        model = {} if self.robot_model == PRIMITIVES else {"robot.model": self.robot_model}
        return {**self.execution.overrides(), **model}


def _with_cameras(policy: Mapping[str, Any], task: ChainTask) -> dict[str, Any]:
    """Returns the configuration of a policy with the cameras of the task, unless it has some."""
    encoder = policy["observation_encoder"]
    cameras = encoder["cameras"] or task.policy_cameras()
    return {**policy, "observation_encoder": {**encoder, "cameras": cameras}}
