"""Which errors are a user's, and what to answer to each: one line that says what was got and what would do."""

import errno
import re
import traceback
from collections.abc import Sequence
from pathlib import Path

from hydra.errors import (
    ConfigCompositionException,
    InstantiationException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf.errors import ConfigKeyError, MissingMandatoryValue

import stringline
from stringline.datasets.command.configuration import Configuration
from stringline.datasets.contract.arguments import unknown_name

_PACKAGE = f"{Path(stringline.__file__).parent}"

OUT_OF_MEMORY = (
    "Out of memory ({reason}). Take smaller batches or images, or fewer workers; "
    "a run that keeps checkpoints continues from its last one."
)


def explain(
    error: Exception, configuration: Configuration, overrides: Sequence[str] = ()
) -> str | None:
    """Returns the answer to an error that its user can mend, or None when the error is a defect of the program.

    A ValueError or RuntimeError counts as the user's only where this package raised it on purpose:
    from within other libraries it means that they were used wrongly.

    Args:
        error: What was raised.
        configuration: What the command was configured from.
        overrides: The command line's `key=value` arguments.
    """
    cause = _cause(error)
    if isinstance(
        cause,
        (
            MissingConfigException,
            OverrideParseException,
            ConfigCompositionException,
            MissingMandatoryValue,
        ),
    ):
        return _explain_configuration(cause, configuration, overrides)
    if isinstance(cause, MemoryError) or type(cause).__name__ == "OutOfMemoryError":
        return OUT_OF_MEMORY.format(reason=str(cause).partition("\n")[0] or type(cause).__name__)
    if isinstance(cause, OSError) and cause.errno is not None:
        return _explain_system(cause)
    return (
        str(cause)
        if isinstance(cause, (ValueError, RuntimeError, OSError)) and _raised_here(cause)
        else None
    )


def _cause(error: Exception) -> Exception:
    """Returns what a constructor raised where Hydra built an object, else the error itself."""
    return (
        error.__cause__
        if isinstance(error, InstantiationException) and isinstance(error.__cause__, Exception)
        else error
    )


def _explain_configuration(
    error: Exception, configuration: Configuration, overrides: Sequence[str]
) -> str:
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        return (
            f"{unknown_name(group, name, error.options)} All choices: {configuration.command} "
            f"--help"
        )
    if isinstance(error, OverrideParseException):
        return (
            f"Cannot read {error.override!r}. Options are written key=value; quote a value that "
            f"holds = , [ or a space."
        )
    if isinstance(error, MissingMandatoryValue):
        return (
            f"The option {error.full_key!r} has no value. Give it one: {configuration.command} "
            f"{error.full_key}=..."
        )
    if isinstance(error.__cause__, (ConfigKeyError, AttributeError)):
        return configuration.unknown_option(
            str(getattr(error.__cause__, "full_key", "")), overrides
        )
    named = re.search(
        r"'([^']+)'", str(error)
    )  # A group that the command does not choose from; Hydra names it in its text only.
    return (
        configuration.unknown_option(named[1], overrides)
        if named
        else str(error).partition("\n")[0]
    )


def _explain_system(error: OSError) -> str:
    """Says what the system refused; a full disk and a missing file are the common ones."""
    at = f": {error.filename}" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"The disk is full{at}. Nothing half-written is kept; make room and run the same "
            f"command to continue."
        )
    return f"{error.strerror}{at}."


def _raised_here(error: BaseException) -> bool:
    """Whether a `raise` of this package made the error, in this process or in a worker whose trace came along as text."""
    if "RemoteTraceback" in type(error.__cause__).__name__:
        trace = [line.strip() for line in str(error.__cause__).splitlines()]
        places = [number for number, line in enumerate(trace) if line.startswith('File "')]
        return (
            bool(places)
            and f'"{_PACKAGE}' in trace[places[-1]]
            and trace[places[-1] + 1].startswith("raise ")
        )
    last = traceback.extract_tb(error.__traceback__)[-1]
    return last.filename.startswith(_PACKAGE) and (last.line or "").startswith("raise ")
