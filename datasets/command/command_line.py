"""Command lines for a shell: settings as Hydra reads them, and the next command after a run."""

import logging
import re
import shlex
from collections.abc import Mapping

logger = logging.getLogger(__name__)

_WORDS = ("null", "true", "false", "on", "off", "yes", "no", "nan", "inf", "infinity")


def command_line(command: str, settings: Mapping[str, object]) -> str:
    """Returns a shell command with settings in their order."""
    given = [f"{key}={hydra_value(value)}" for key, value in settings.items()]
    return shlex.join([command, *given])


def report_next(command: str, settings: Mapping[str, object]) -> None:
    """Logs the command that usually follows; call it at the end of a run."""
    logger.info("Next: %s", command_line(command, settings))


def hydra_value(value: object) -> str:
    """Returns a value as Hydra's command line reads it, in quotes where necessary."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(hydra_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{hydra_value(each)}' for key, each in value.items())}}}"
    if not isinstance(value, str):
        return "null" if value is None else str(value)
    if (
        re.fullmatch(r"(\.{0,2}/|[A-Za-z_])[\w./:-]*", value, re.ASCII)
        and value.lower() not in _WORDS
    ):
        return value
    # Hydra reads a backslash as an escape only before a quote, so one at the end is doubled.
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{escaped[len(escaped) - trailing :]}'"
