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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import hydra
from omegaconf import DictConfig, OmegaConf, open_dict

import stringline
from stringline.datasets.command.configuration import Configuration, plain_options
from stringline.datasets.command.help_text import help_text
from stringline.datasets.command.user_errors import explain
from stringline.datasets.contract.argument_checks import printable
from stringline.datasets.extensions.trust import ENVIRONMENT, OPTION, consented

Task = Callable[[DictConfig], object]
Complete = Callable[[Sequence[str]], Sequence[str]]
Result = TypeVar("Result")

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
    config_name: str,
    task: Task,
    *,
    folder: Path | None = None,
    stopped: str = STOPPED,
    complete: Complete = list,
) -> None:
    """Runs a command: composes the configuration of the command line and passes it to `task`.

    Further flags are `--help`, see `help_text`, and `--debug` (or HYDRA_FULL_ERROR=1), which prints
    the traceback of an error. The process exits with 2 after a user error, 1 after an error of the
    program, 130 after Ctrl-C.

    Args:
        config_name: The primary configuration, without `.yaml`.
        task: The work of the command.
        folder: Folder of the configuration files; `stringline/configs` by default.
        stopped: Message after Ctrl-C.
        complete: Adds to the arguments what other files decide, such as those of a checkpoint; its
            errors are those of the command.
    """
    command = _command(config_name, folder, stopped)
    completed = command.guarded(lambda: complete(command.arguments))
    command = replace(command, arguments=completed)
    if {"--help", "-h"} & set(command.arguments):
        command.guarded(command.show_help)
    else:
        command.guarded(lambda: command.through_hydra(task))


def show_help(config_name: str) -> None:
    """Prints the `--help` text of the command with a primary configuration."""
    command = _command(config_name, None, STOPPED)
    command.guarded(command.show_help)


def _command(config_name: str, folder: Path | None, stopped: str) -> "_Command":
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = "--debug" in sys.argv or os.environ.get(FULL_ERROR) == "1"
    where = folder or Path(stringline.__file__).parent / "configs"
    configuration = Configuration(where.absolute(), config_name, Path(sys.argv[0]).name)
    command = _Command(configuration, arguments, debug, stopped)
    start_logging(command.log_level)
    return command


class _Lines(logging.Formatter):
    """Formats messages so that names from data in them cannot forge lines or move the cursor."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Returns a message whose further lines are indented."""
        record.message = "\n  ".join(map(printable, record.message.split("\n")))
        return super().formatMessage(record)


def start_logging(level: int) -> None:
    """Sends the log to standard error, a line per message; other libraries from WARNING on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in ("stringline", "__main__"):  # Under `python -m` a command is `__main__`.
        logging.getLogger(name).setLevel(level)


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

    @property
    def log_level(self) -> int:
        """The level of this package's log."""
        return logging.DEBUG if self.debug else logging.INFO

    def show_help(self) -> None:
        """Prints the help text for the choices of the command line."""
        # A file of the user in place of a choice, such as suite=mine.yaml, has no description.
        known = [one for one in self.overrides if not one.endswith((".yaml", ".yml"))]
        choices = self.configuration.without_null_choices(known)
        sys.stdout.write(help_text(self.configuration, choices) + "\n")

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
        configuration.check_flags(flags)
        values = configuration.without_null_choices(values)
        chosen, plain = plain_options(configuration.folder, configuration.name, values)
        sys.argv = [sys.argv[0], *QUIET_HYDRA, *chosen, *flags]
        requested = os.environ.get(FULL_ERROR)
        configuration.check_single_choices(values)
        configuration.check_kinds(values)

        def guarded_task(settings: DictConfig) -> None:
            # A job of a cluster runs in a new process, without a log so far.
            if logging.getLogger("stringline").level == logging.NOTSET:
                start_logging(self.log_level)
            for key, value in plain.items():
                OmegaConf.update(settings, key, value)
            self.guarded(lambda: configuration.check_optional_choices(values))
            self.guarded(lambda: configuration.check_effects(settings, values))
            with _environment(FULL_ERROR, requested):
                self.guarded(lambda: _with_consent(settings, task))

        # Otherwise Hydra prints configuration errors itself and exits.
        with _environment(FULL_ERROR, "1"):
            hydra.main(
                version_base="1.3",
                config_path=str(configuration.folder),
                config_name=configuration.name,
            )(guarded_task)()

    def guarded(self, work: Callable[[], Result]) -> Result:
        """Returns the result of `work`, or exits with a message if it fails."""
        try:
            return work()
        except KeyboardInterrupt:
            sys.stderr.write(f"\n{self.stopped}\n")
            raise SystemExit(INTERRUPTED) from None
        except Exception as error:
            message = explain(error, self.configuration, self.overrides)
            if message is None or self.debug:
                _log.exception("The trace of the error:")
            if message is not None:
                lines = "\n".join(map(printable, message.split("\n")))
                sys.stderr.write(f"{self.configuration.command}: {lines}\n")
            raise SystemExit(PROGRAM_ERROR if message is None else USER_ERROR) from None


def _with_consent(settings: DictConfig, task: Task) -> None:
    """Calls the task; it and its processes may run the code of packages that the user named."""
    plain: Any = OmegaConf.to_container(settings)
    with open_dict(settings):
        settings.pop(OPTION, None)
    with _environment(ENVIRONMENT, consented(plain) or None):
        task(settings)


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
