"""The entry point of every command: configuration through Hydra, help, and user errors in one line.

A command neither changes the working directory nor makes Hydra's `outputs/` folder. With
`--multirun` Hydra writes its configuration and the logs of cluster jobs to
`multirun/<date>/<time>`.
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

USER_ERROR = 2
PROGRAM_ERROR = 1
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
    """Runs a command: composes the configuration of the command line and passes it to `task`.

    Further flags are `--help`, which prints the opening comment of the configuration file, and
    `--debug` (or HYDRA_FULL_ERROR=1), which prints the traceback of an error. The process exits
    with 2 after a user error, 1 after an error of the program, 130 after Ctrl-C.

    Args:
        config_name: The primary configuration, without `.yaml`.
        task: The work of the command.
        folder: Folder of the configuration files; `stringline/configs` by default.
        stopped: Message after Ctrl-C.
    """
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = "--debug" in sys.argv or os.environ.get(FULL_ERROR) == "1"
    where = folder or Path(stringline.__file__).parent / "configs"
    configuration = Configuration(where.absolute(), config_name, Path(sys.argv[0]).name)
    command = _Command(
        configuration,
        arguments,
        debug,
        stopped,
    )
    command.start_logging()
    if {"--help", "-h"} & set(arguments):
        command.guarded(
            lambda: sys.stdout.write(
                configuration.help(configuration.without_null_choices(command.overrides)) + "\n"
            )
        )
    else:
        command.guarded(lambda: command.through_hydra(task))


@dataclass(frozen=True)
class _Command:
    """A command line and its execution."""

    configuration: Configuration
    arguments: Sequence[str]
    debug: bool
    stopped: str

    @property
    def overrides(self) -> list[str]:
        """The `key=value` arguments."""
        return [
            argument
            for argument in self.arguments
            if not argument.startswith("-") and "=" in argument
        ]

    def start_logging(self) -> None:
        """Sends the log to standard error, a line per message; other libraries from WARNING on."""
        logging.basicConfig(
            level=logging.WARNING,
            format="%(asctime)s %(levelname)-7s %(message)s",
            datefmt="%H:%M:%S",
            force=True,
        )
        for name in ("stringline", "__main__"):  # Under `python -m` a command is `__main__`.
            logging.getLogger(name).setLevel(logging.DEBUG if self.debug else logging.INFO)

    def through_hydra(self, task: Task) -> None:
        """Composes the configuration by Hydra and calls the task."""
        # Hydra's parser expects flags such as --multirun behind all values.
        values = [
            argument
            for argument in self.arguments
            if argument.startswith("~") or argument in self.overrides
        ]
        flags = [argument for argument in self.arguments if argument not in values]
        configuration = self.configuration
        values = configuration.without_null_choices(values)
        sys.argv = [sys.argv[0], *QUIET_HYDRA, *values, *flags]
        requested = os.environ.get(FULL_ERROR)
        configuration.check_kinds(values)

        def guarded_task(settings: DictConfig) -> None:
            # A job of a cluster runs in a new process, without a log so far.
            if logging.getLogger("stringline").level == logging.NOTSET:
                self.start_logging()
            self.guarded(lambda: configuration.check_optional_choices(values))
            with _environment(FULL_ERROR, requested):
                self.guarded(lambda: task(settings))

        # Otherwise Hydra prints configuration errors itself and exits.
        with _environment(FULL_ERROR, "1"):
            hydra.main(
                version_base="1.3",
                config_path=str(configuration.folder),
                config_name=configuration.name,
            )(guarded_task)()

    def guarded(self, work: Callable[[], object]) -> None:
        """Calls `work` and exits with a message if it fails."""
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
            raise SystemExit(PROGRAM_ERROR if message is None else USER_ERROR) from None


@contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    """Sets or removes an environment variable within a block."""
    before = os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before
