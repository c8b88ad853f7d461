"""Command lines that repeat an evaluation or one of its episodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stringline.datasets.command.command_line import command_line
from stringline.sim.worlds.task_settings import TaskSettings


@dataclass(frozen=True)
class RerunCommand:
    """The command lines of an evaluation on a single task.

    Attributes:
        checkpoint: The checkpoint, as the user named it.
        execute_steps: Control periods between two plans; None: whole chunks.
        output: Folder of the evaluation; repeated episodes get folders in it.
        overrides: Overrides of execution and robot; empty for the defaults.
    """

    checkpoint: str
    task: TaskSettings
    execute_steps: int | None
    output: Path
    overrides: Mapping[str, object] = field(default_factory=dict)

    def command(self, seed: int) -> str:
        """Returns a shell command that repeats one episode in a folder of its own."""
        return self._line(1, seed, self.output / "replays" / str(seed))

    def whole(self, seeds: int, first_seed: int) -> str:
        """Returns a shell command that repeats or continues the evaluation in its folder."""
        return self._line(seeds, first_seed, self.output)

    def _line(self, seeds: int, first_seed: int, output: Path) -> str:
        # Defaults may change, so the line has all settings on which the outcome depends.
        options = {f"++task.options.{name}": value for name, value in self.task.options.items()}
        values = {
            "checkpoint": self.checkpoint,
            "task": self.task.name,
            "task.time_limit_s": self.task.time_limit_s,
            "task.frame_hz": self.task.frame_hz,
            **options,
            "execute_steps": self.execute_steps,
            **self.overrides,
            "seeds": seeds,
            "first_seed": first_seed,
            "output": str(output),
        }
        return eval_line(values)


def eval_line(settings: Mapping[str, object]) -> str:
    """Returns a shell command of `stringline-eval` with settings in their order."""
    return command_line("stringline-eval", settings)
