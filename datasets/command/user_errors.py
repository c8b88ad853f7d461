"""User errors and their one-line messages: what was got, and what is allowed."""

import dis
import errno
import re
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
from stringline.datasets.command.installation import graphics_error, missing_package
from stringline.datasets.contract.argument_checks import unknown_name, unknown_public_name

_PACKAGE = f"{Path(stringline.__file__).parent}"
_RAISE = dis.opmap["RAISE_VARARGS"]
_CONFIGURATION_ERRORS = (
    MissingConfigException,
    OverrideParseException,
    ConfigCompositionException,
    MissingMandatoryValue,
)

OUT_OF_MEMORY = (
    "Out of memory ({reason}). Use smaller batches or images, or fewer workers; a run with "
    "checkpoints continues from the last one."
)


def explain(
    error: Exception, configuration: Configuration, overrides: Sequence[str] = ()
) -> str | None:
    """Returns the message for a user error, or None for an error of the program.

    A ValueError or RuntimeError is a user error only if this package raised it: from within another
    library it means that the program used the library wrongly. `overrides` are the `key=value`
    arguments of the command line.
    """
    if isinstance(error, InstantiationException) and (target := _missing_target(error)):
        return target
    cause = _cause(error)
    if isinstance(cause, _CONFIGURATION_ERRORS):
        return _explain_configuration(cause, configuration, overrides)
    if isinstance(cause, MemoryError) or type(cause).__name__ == "OutOfMemoryError":
        return OUT_OF_MEMORY.format(reason=str(cause).partition("\n")[0] or type(cause).__name__)
    if isinstance(cause, OSError) and cause.errno is not None:
        return _explain_system(cause)
    if isinstance(cause, (ValueError, RuntimeError, OSError)) and raised_here(cause):
        return str(cause)
    imported = _explain_import(cause) if isinstance(cause, ImportError) else None
    return imported or graphics_error(cause)


def _missing_target(error: InstantiationException) -> str | None:
    """Returns the message for a `_target_` that Hydra cannot import."""
    found = re.match(r"Error locating target '([^']+)'", str(error))
    if found is None or error.__cause__ is None:
        return None
    target = found[1]
    ours = target.startswith("stringline.")
    if ours and target.removeprefix("stringline.") not in stringline.HOME:
        return str(unknown_public_name(target))
    reason = error.__cause__
    if ours:
        # A public name may need a library that is not installed or cannot be loaded.
        if not isinstance(reason, ImportError) or (reason.name or "").startswith("stringline"):
            return None
        return _explain_import(reason) or f"{target!r} cannot be imported: {reason}."
    return f"{target!r} cannot be imported: {reason.__cause__ or reason}."


def _explain_import(error: ImportError) -> str | None:
    """Returns the message for a missing package; None for an import that fails otherwise."""
    if raised_here(error):
        return str(error)
    missing = missing_package(error)
    return None if missing is None else f"This needs {missing}"


def _cause(error: Exception) -> Exception:
    """Returns the error of a constructor that Hydra called, or the error itself."""
    if isinstance(error, InstantiationException) and isinstance(error.__cause__, Exception):
        return error.__cause__
    return error


def _explain_configuration(
    error: Exception, configuration: Configuration, overrides: Sequence[str]
) -> str:
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        return (
            f"{unknown_name(group, name, error.options)} All choices: {configuration.command} "
            "--help"
        )
    if isinstance(error, OverrideParseException):
        return (
            f"Cannot parse {error.override!r}. Options are written key=value; quote a value that "
            "contains = , [ or a space."
        )
    if isinstance(error, MissingMandatoryValue):
        return (
            f"The option {error.full_key!r} needs a value: {configuration.command} "
            f"{error.full_key}=..."
        )
    if isinstance(error.__cause__, (ConfigKeyError, AttributeError)):
        return configuration.unknown_option(
            str(getattr(error.__cause__, "full_key", "")), overrides
        )
    # Hydra names a group that is not in the defaults only in the text of the error.
    if named := re.search(r"'([^']+)'", str(error)):
        return configuration.unknown_option(named[1], overrides)
    return str(error).partition("\n")[0]


def _explain_system(error: OSError) -> str:
    """Returns the message for an error of the operating system."""
    at = f": {error.filename}" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"The disk is full{at}. Partial files were removed; make room and run the same command "
            "again to continue."
        )
    return f"{error.strerror}{at}."


def raised_here(error: BaseException) -> bool:
    """Returns whether a `raise` of this package made the error, here or in a worker process."""
    if "RemoteTraceback" in type(error.__cause__).__name__:
        trace = [line.strip() for line in str(error.__cause__).splitlines()]
        places = [number for number, line in enumerate(trace) if line.startswith('File "')]
        return (
            bool(places)
            and f'"{_PACKAGE}' in trace[places[-1]]
            and trace[places[-1] + 1].startswith("raise ")
        )
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return False
    # Not the line of the source, which may have been edited since this process imported it.
    code = last.tb_frame.f_code
    return code.co_filename.startswith(_PACKAGE) and code.co_code[last.tb_lasti] == _RAISE
