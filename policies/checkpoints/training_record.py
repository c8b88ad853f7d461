"""The record of a checkpoint's training, from which commands take what their line does not give."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from stringline.datasets.contract.contract import Contract
from stringline.encoders.training.checkpoint import load_description
from stringline.policies.checkpoints.load import find_checkpoint, is_address, remote_policy
from stringline.policies.execution.execution import Execution
from stringline.policies.remote.protocol import RemoteError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecordedExecution:
    """The execution of a policy, and the actions that are executed of each chunk; if None, all."""

    execution: Execution = field(default_factory=Execution)
    execute_steps: int | None = None

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Reads the result of `to_dict`."""
        settings = {key: value for key, value in plain.items() if key != "execute_steps"}
        return cls(Execution.of(settings), plain.get("execute_steps"))

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data."""
        execution = self.execution
        return {
            "name": execution.name,
            "delay_s": execution.delay_s,
            **({} if execution.decay is None else {"decay": execution.decay}),
            "execute_steps": self.execute_steps,
        }

    def options(self) -> dict[str, Any]:
        """Returns the same by the names of options on a command line."""
        names = {"name": "execution", "execute_steps": "execute_steps"}
        return {names.get(key, f"execution.{key}"): value for key, value in self.to_dict().items()}


@dataclass(frozen=True)
class TrainingRecord:
    """The known facts of a training; those that an older checkpoint lacks are empty.

    Attributes:
        where: The checkpoint, for messages.
        tasks: The instruction of each task of the data, that of its first episode.
        instructions: All instructions of the data.
        robot_models: The meshes of the arms in the images.
        worlds: The recipes of the simulated demonstrations: task, cameras, rates, options ...
        execution: The execution of the training's evaluations; if None, unknown.
        held_out: Digests of the held-out episodes, see `EpisodeStore.digest`.
        contract: The contract of the policy; if None, unknown.
    """

    where: str
    tasks: Mapping[str, str] = field(default_factory=dict)
    instructions: tuple[str, ...] = ()
    robot_models: tuple[str, ...] = ()
    worlds: Sequence[Mapping[str, Any]] = ()
    execution: RecordedExecution | None = None
    held_out: tuple[str, ...] = ()
    contract: Contract | None = None

    @classmethod
    def read(cls, where: str | Path) -> Self:
        """Reads the record of a checkpoint: its folder, its shipped name, or a server's address.

        Raises:
            ValueError: The checkpoint is missing or broken, or its execution is unknown.
            RemoteError: The server does not answer.
        """
        if is_address(where):
            remote = remote_policy(where)
            return cls.of(str(where), remote.training, remote.contract)
        description = load_description(find_checkpoint(where))
        plain = description.get("training")
        contract = description.get("contract")
        return cls.of(
            str(where),
            plain if isinstance(plain, Mapping) else {},
            Contract.from_dict(contract) if isinstance(contract, Mapping) else None,
        )

    @classmethod
    def of(cls, where: str, plain: Mapping[str, Any], contract: Contract | None = None) -> Self:
        """Reads the entry `training` of a checkpoint; entries of another form are unknown."""
        tasks = plain.get("tasks")
        worlds = _list(plain.get("worlds"))
        execution = plain.get("execution")
        return cls(
            where,
            {str(task): str(tasks[task]) for task in tasks} if isinstance(tasks, Mapping) else {},
            tuple(map(str, _list(plain.get("instructions")))),
            tuple(map(str, _list(plain.get("robot_models")))),
            tuple(world for world in worlds if isinstance(world, Mapping)),
            RecordedExecution.of(execution) if isinstance(execution, Mapping) else None,
            tuple(map(str, _list(plain.get("held_out")))),
            contract,
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the known facts as plain data, which `of` reads."""
        execution = None if self.execution is None else self.execution.to_dict()
        entries = {
            "tasks": dict(self.tasks),
            "instructions": list(self.instructions),
            "robot_models": list(self.robot_models),
            "worlds": list(self.worlds),
            "execution": execution,
        }
        return {name: entry for name, entry in entries.items() if entry}

    @property
    def frame_rates(self) -> tuple[float, ...]:
        """The frame rates of the simulated demonstrations, Hz."""
        return tuple(sorted({world["frame_hz"] for world in self.worlds if "frame_hz" in world}))

    def task_option(self, task: str, name: str) -> list[object]:
        """Returns the different values of an option of a task's rule in the demonstrations.

        Simulated demonstrations record `start_spread` and `strict`, also where none was given.
        """
        found: list[object] = []
        for world in self.worlds:
            rule = world.get("versions", {}) if world.get("task") == task else {}
            if name in rule and rule[name] not in found:
                found.append(rule[name])
        return found

    def embodiments(self, task: str) -> list[object]:
        """Returns the different arms, `task.embodiment`, of a task's simulated demonstrations."""
        found = [world.get("embodiment") for world in self.worlds if world.get("task") == task]
        return list(dict.fromkeys(found))

    def embodiment(self, task: str) -> str | None:
        """Returns the other arm of all demonstrations of a task; None for that of its workcell."""
        found = self.embodiments(task)
        return str(found[0]) if len(found) == 1 and found[0] is not None else None

    def execution_overrides(self, given: Mapping[str, str]) -> list[str]:
        """Returns overrides with the recorded execution, without what a command line gives."""
        options = {} if self.execution is None else self.execution.options()
        return [
            f"{key}={word(value)}"
            for key, value in options.items()
            # The details belong to the recorded execution, not to another one.
            if key not in given and not ("execution" in given and key.startswith("execution."))
        ]

    def warn(self, chosen: Mapping[str, object]) -> None:
        """Logs one warning with the options of a command that differ from the record.

        `chosen` has the values by option: `task`, `task.options.start_spread`,
        `task.options.strict`, `task.embodiment`, `task.frame_hz`, `robot.model`, `prompt`, and
        those of `RecordedExecution.options`. Options of unknown facts are not compared.
        """
        known = self._known(str(chosen.get("task")))
        other = [name for name in chosen if known.get(name) and chosen[name] not in known[name]]
        if other:
            logger.warning(
                "The training of %s recorded %s; this command has %s.",
                self.where,
                ", ".join(f"{name}={' or '.join(map(word, known[name]))}" for name in other),
                ", ".join(f"{name}={word(chosen[name])}" for name in other),
            )

    def _known(self, task: str) -> dict[str, Sequence[object]]:
        """Returns the recorded values by option, with the rule of a task."""
        options = {} if self.execution is None else self.execution.options()
        rule = ("start_spread", "strict")
        return {
            "task": tuple(self.tasks),
            **{f"task.options.{name}": self.task_option(task, name) for name in rule},
            "task.embodiment": self.embodiments(task),
            "robot.model": self.robot_models,
            "task.frame_hz": self.frame_rates,
            "prompt": self.instructions,
            **{name: (value,) for name, value in options.items()},
        }


def given_values(arguments: Sequence[str]) -> dict[str, str]:
    """Returns the options of a command line by name, without the signs of Hydra before them."""
    parts = [argument.lstrip("+~").partition("=") for argument in arguments]
    return {key: value for key, sign, value in parts if sign}


def given_record(given: Mapping[str, str]) -> TrainingRecord | None:
    """Returns the record of the checkpoint that a command line gives.

    None if it gives none, or the record cannot be read, which is left to the command to report.
    """
    if "checkpoint" not in given:
        return None
    try:
        return TrainingRecord.read(given["checkpoint"])
    except (ValueError, RemoteError):
        return None


def _list(value: object) -> list[object]:
    """Returns a list; empty for other values."""
    return value if isinstance(value, list) else []


def word(value: object) -> str:
    """Returns a value as on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)
