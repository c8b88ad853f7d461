"""What every command does around its work: reads its configuration through Hydra, and answers a user's mistake in one line.

A command neither changes the working directory nor makes Hydra's `outputs/` folder; what it writes
is for its task to say. With `--multirun` Hydra keeps what it was asked for, and the logs of a
cluster's jobs, in `multirun/<date>/<time>`.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import hydra
from omegaconf import DictConfig

import stringline
from stringline.datasets.command.configuration import Configuration
from stringline.datasets.command.user_errors import explain

Task = Callable[[DictConfig], object]

MISTAKE = 2
DEFECT = 1
INTERRUPTED = 130
STOPPED = "Stopped. Run the same command to continue."

FULL_ERROR = "HYDRA_FULL_ERROR"
QUIET_HYDRA = (
    "hydra.run.dir=.",
    "hydra.sweep.subdir=.",
    "hydra.output_subdir=null",
    "hydra/job_logging=none",
    "hydra/hydra_logging=none",
)

_log = logging.getLogger("stringline")


def run(
    config_name: str, task: Task, *, folder: Path | None = None, stopped: str = STOPPED
) -> None:
    """Runs a command: `task` gets the configuration that the command line asks for.

    Beside Hydra's flags there are `--help`, which explains the command from the comment that opens
    its configuration file, and `--debug` (or HYDRA_FULL_ERROR=1), which shows where an error came
    from.

    Args:
        config_name: The primary configuration, without `.yaml`.
        task: The work.
        folder: Where the configuration files are; `stringline/configs` by default.
        stopped: What to say after Ctrl-C.

    Raises:
        SystemExit: With 2 after a user's mistake, 1 after a defect of the program, 130 after
            Ctrl-C.
    """
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = "--debug" in sys.argv or os.environ.get(FULL_ERROR) == "1"
    where = folder or Path(stringline.__file__).parent / "configs"
    command = _Command(
        Configuration(where.absolute(), config_name, Path(sys.argv[0]).name),
        arguments,
        debug,
        stopped,
    )
    command.start_logging()
    if {"--help", "-h"} & set(arguments):
        command.guarded(
            lambda: sys.stdout.write(command.configuration.help(command.overrides) + "\n")
        )
    else:
        command.guarded(lambda: command.through_hydra(task))


def start_logging(level: int) -> None:
    """Sends the log to standard error, a short line per message; other libraries speak from warnings on.

    Args:
        level: From which level on this package speaks.
    """
    logging.basicConfig(
        level=logging.WARNING,
        format="%(asctime)s %(levelname)-7s %(message)s",
        datefmt="%H:%M:%S",
        force=True,
    )
    for name in (
        "stringline",
        "__main__",
    ):  # The latter is a command's own module under `python -m`.
        logging.getLogger(name).setLevel(level)


@dataclass(frozen=True)
class _Command:
    """A command line that is being carried out."""

    configuration: Configuration
    arguments: Sequence[str]
    debug: bool
    stopped: str

    @property
    def overrides(self) -> list[str]:
        """Its `key=value` arguments."""
        return [
            argument
            for argument in self.arguments
            if not argument.startswith("-") and "=" in argument
        ]

    def start_logging(self) -> None:
        """Sends the log to standard error."""
        start_logging(logging.DEBUG if self.debug else logging.INFO)

    def through_hydra(self, task: Task) -> None:
        """Lets Hydra read the configuration and call the task; errors are answered before it prints its own words."""
        # Hydra's parser wants all values in one piece, so flags such as --multirun come behind
        # them.
        values = [
            argument
            for argument in self.arguments
            if argument.startswith("~") or argument in self.overrides
        ]
        flags = [argument for argument in self.arguments if argument not in values]
        sys.argv = [sys.argv[0], *QUIET_HYDRA, *values, *flags]
        asked = os.environ.get(FULL_ERROR)
        configuration = self.configuration
        configuration.check_kinds(values)

        def guarded_task(settings: DictConfig) -> None:
            if (
                logging.getLogger("stringline").level == logging.NOTSET
            ):  # In a job of a cluster this is a new process.
                self.start_logging()
            with _environment(FULL_ERROR, asked):
                self.guarded(lambda: task(settings))

        with _environment(
            FULL_ERROR, "1"
        ):  # Else Hydra prints what is wrong with a configuration and ends the process.
            hydra.main(
                version_base="1.3",
                config_path=str(configuration.folder),
                config_name=configuration.name,
            )(guarded_task)()

    def guarded(self, work: Callable[[], object]) -> None:
        """Does the work, and ends the process with a clear message where it fails."""
        try:
            work()
        except KeyboardInterrupt:
            sys.stderr.write(f"\n{self.stopped}\n")
            raise SystemExit(INTERRUPTED) from None
        except Exception as error:
            message = explain(error, self.configuration, self.overrides)
            if message is None or self.debug:
                _log.exception("The trace of the error:")
            if message is not None:
                sys.stderr.write(f"{self.configuration.command}: {message}\n")
            raise SystemExit(DEFECT if message is None else MISTAKE) from None


@contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    """Gives an environment variable a value, or none, for a while."""
    before = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before
