"""Modes and settings of `stringline-deploy`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from stringline.datasets.contract.argument_checks import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    WHOLE,
    unknown_name,
)
from stringline.datasets.extensions.trust import OPTION
from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.execution import ChunkExecutor, Clock, Execution
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.robots.robot_settings import RobotSettings, known_settings
from stringline.sim.worlds.task_settings import TaskSettings
from stringline.sim.worlds.world_registry import check_own_arm

LEADERS = "leaders"
PAGE = "page"
TAKEOVERS = (LEADERS, PAGE)


class DeploymentMode(StrEnum):
    """The source of the commands."""

    RUN = "run"  # A policy moves the arms.
    DRY_RUN = "dry_run"  # A policy plans, the filter computes commands, and none is sent.
    SHADOW = "shadow"  # A policy moves the arms and an emulated twin.
    TELEOP = "teleop"  # A person moves the arms with leader arms.
    CALIBRATE = "calibrate"  # The arms visit poses at which cameras take images of a board.
    CHECK = "check"  # Nothing moves; the lateness of a loop on this machine is measured.

    @classmethod
    def named(cls, name: str) -> "DeploymentMode":
        """Returns the mode of that name.

        Raises:
            ValueError: The name is unknown; the message has the nearest.
        """
        if name not in {mode.value for mode in cls}:
            raise unknown_name("mode of deployment", name, [mode.value for mode in cls])
        return cls(name)


@dataclass(frozen=True, kw_only=True)
class DeploymentSettings:
    """Settings of `configs/deploy.yaml`, without those of a calibration.

    Attributes:
        mode: run, dry_run (nothing is sent), shadow (twin), teleop (leaders), calibrate (cameras),
            check (timing): docs/robots.md.
        task: The task, whose world an emulated robot has.
        checkpoint: Folder, name (docs/checkpoints.md), https://HOST/FOLDER@sha256:HEX, or
            ws://HOST:PORT.
        device: Where the policy computes: cpu, cuda, cuda:0, ...; a policy server has its own
            device.
        seed: Seed of the policy and of the emulated world.
        prompt: Instruction to the policy; if None, that of the task in the training, or of the
            task.
        execute_steps: Actions of a chunk that are executed before the next plan; if None, all. A
            checkpoint may record another.
        seconds: Longest episode in real time, s.
        options: Options of the emulated world.
        reconnect_s: In real time, longest time for which arms hold and an absent policy server is
            asked again, s.
        take_over: In real time, who may take over by the key t, which the episode marks as an
            intervention: leaders, the leader arms; page, a page in the browser. If None, nobody.
        page_port: Port of the page of take_over=page, of this machine only; 0: any free port.
        episodes: In real time, episodes with the policy loaded; between them the operator labels,
            discards and starts.
        view: Live view in rerun: spawn, FILE.rrd, or rerun+http://HOST:PORT/proxy of a running
            viewer; if None, no view.
        record: Episode store for recordings of deployments, which need log.folder; if None, no
            recording.
        log: All bytes and cycles before and after a fault or the key k; if None, no log.
        check_seconds: Duration of the measurement of mode=check, s (docs/real-time.md).
        output: Folder of the commands of a dry run, the images of a calibration, and the result of
            a check.
    """

    mode: DeploymentMode
    robot: RobotSettings
    task: TaskSettings
    checkpoint: str = ""
    device: str = "cpu"
    execution: Execution = field(default_factory=Execution)
    execute_steps: int | None = None
    seed: int = 0
    prompt: str | None = None
    seconds: float = 20.0
    options: Mapping[str, Any] = field(default_factory=dict)
    reconnect_s: float = 60.0
    take_over: str | None = None
    page_port: int = 8080
    episodes: int = 1
    view: str | None = None
    output: Path = Path("runs/deploy")
    record: Path | None = None
    log: LogPlan | None = None
    check_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Checks the numbers."""
        WHOLE.check(seed=self.seed)
        COUNT.check(episodes=self.episodes)
        if self.take_over not in (None, *TAKEOVERS):
            raise unknown_name("take_over", str(self.take_over), TAKEOVERS)
        POSITIVE.check(seconds=self.seconds, check_seconds=self.check_seconds)
        NOT_NEGATIVE.check(reconnect_s=self.reconnect_s)

    def executor(
        self,
        policy: Policy,
        instruction: str | None,
        *,
        seed: int | None = None,
        clock: Clock | None = None,
    ) -> ChunkExecutor:
        """Starts an episode of a policy; see `ChunkExecutor`. If None, the seed of the settings."""
        return ChunkExecutor(
            policy,
            self.seed if seed is None else seed,
            self.execution,
            execute_steps=self.execute_steps,
            instruction=instruction,
            clock=clock,
        )

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Reads the settings of a configuration."""
        # `trust` is for the command, which reads it before it loads anything.
        others = ("calibration", OPTION)
        settings = {name: value for name, value in plain.items() if name not in others}
        chosen = known_settings("a deployment", settings, cls)
        log = dict(chosen.pop("log", {}))
        if (folder := log.pop("folder", None)) is not None:
            chosen["log"] = LogPlan(Path(folder), {"configuration": plain}, **log)
        if "record" in chosen:
            chosen["record"] = Path(chosen["record"])
        task = TaskSettings.of(plain["task"])
        check_own_arm("the robot of a deployment", task.embodiment)
        return cls(
            **chosen
            | {
                "mode": DeploymentMode.named(str(plain["mode"])),
                "robot": RobotSettings.of(plain["robot"]),
                "task": task,
                "execution": Execution.of(plain.get("execution")),
                "output": Path(plain["output"]),
            }
        )
