"""The settings of a task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.sim.interpreters.environment_process import Interpreter


@dataclass(frozen=True)
class TaskSettings:
    """The settings of a task, as in `configs/task`; see `TaskEnvironment`.

    Attributes:
        name: The world; for a task of your own its import path, MODULE:CLASS (docs/my-robot.md).
        cameras: Cameras of the observations; if None, all of the world.
        image_size: Rows and columns of the images: one number for both, or [ROWS,COLUMNS].
        control_hz: Actions per second.
        frame_hz: Images per second; it divides control_hz.
        time_limit_s: Longest episode, s; about twice what an expert's episode takes.
        options: Changes of the world, such as table_height: 0.02 (m).
        embodiment: Another arm for kuka_pick and kuka_place: menagerie:ur5e, menagerie:panda, or a
            file (docs/my-robot.md); if None, that of the workcell.
        python: The interpreter of an environment that does not run in Stringline's own, such as
            metaworld/bin/python (docs/other-environments.md); if None, Stringline's own.
        answer_s: Longest time of an answer of such an environment, s; then it counts as hanging.
    """

    name: str
    cameras: tuple[str, ...] | None = None
    image_size: int | tuple[int, int] = 128
    control_hz: float = 50.0
    frame_hz: float = 12.5
    time_limit_s: float = 20.0
    options: Mapping[str, Any] = field(default_factory=dict)
    embodiment: str | None = None
    python: str | None = None
    answer_s: float = 60.0

    @property
    def interpreter(self) -> Interpreter:
        """The interpreter of an environment that does not run in Stringline's own."""
        return Interpreter(self.python, self.answer_s)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Reads the settings from a choice of `configs/task`.

        Raises:
            ValueError: A setting is unknown, the name is missing, or the options are not a mapping.
        """
        known = [each.name for each in fields(cls)]
        # A misspelt name, such as `option`, would otherwise have no effect.
        for name in plain:
            if name not in known:
                raise unknown_name("setting of a task", str(name), known)
        if "name" not in plain:
            raise ValueError(
                "The settings of a task lack its name; add task.name=hand_over_banana."
            )
        options = plain.get("options", {})
        if not isinstance(options, Mapping):
            raise ValueError(
                f"task.options is {options!r}; allowed: a mapping, such as {{table_height: 0.02}}."
            )
        chosen: dict[str, Any] = {str(name): value for name, value in plain.items()}
        if chosen.get("cameras") is not None:
            chosen["cameras"] = tuple(chosen["cameras"])
        if isinstance(size := chosen.get("image_size"), Sequence):  # A list of Hydra's is no list.
            chosen["image_size"] = tuple(size)
        chosen["options"] = _plain(options)
        embodiment = chosen.get("embodiment")
        if not isinstance(embodiment, str | None):
            raise ValueError(
                f"task.embodiment is {embodiment!r}; allowed: null, iiwa14, a file of an arm, or "
                "menagerie:NAME."
            )
        return cls(**chosen)


def with_interpreter(arguments: Sequence[str]) -> list[str]:
    """Returns a command line in which `python=PATH` is `task.python=PATH`."""
    return [f"task.{each}" if each.startswith("python=") else each for each in arguments]


def _plain(value: Any) -> Any:
    """Returns mappings and sequences of a configuration as dictionaries and lists."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value
