"""The command `stringline-data`: everything that is done to recorded data, one verb each.

A further verb is a line in `TASKS`, a file `configs/data_<verb>.yaml` whose opening comment is its
help, and a function that takes the configuration. A verb's module is imported only when it is asked
for, so that no verb pays for another's libraries.
"""

import pkgutil
import sys
from pathlib import Path

import stringline
from stringline.datasets.command.application import MISTAKE, run
from stringline.datasets.command.configuration import Configuration
from stringline.datasets.contract.arguments import unknown_name

COMMAND = "stringline-data"
TASKS = {
    "export": "stringline.datasets.commands.transfer_commands:export_store",
    "import": "stringline.datasets.commands.transfer_commands:import_foreign",
    "verify": "stringline.datasets.commands.check_commands:verify",
    "summary": "stringline.datasets.commands.summary_command:summarise_store",
    "trim": "stringline.datasets.commands.edit_commands:trim_episodes",
    "delete": "stringline.datasets.commands.edit_commands:delete_episodes",
    "split": "stringline.datasets.commands.edit_commands:split",
    "merge": "stringline.datasets.commands.edit_commands:merge_stores",
    "relabel": "stringline.datasets.commands.edit_commands:relabel_episodes",
    "filter": "stringline.datasets.commands.edit_commands:filter_episodes",
    "migrate": "stringline.datasets.commands.check_commands:migrate_store",
    "archive": "stringline.datasets.commands.archive_command:archive_store",
    "expand": "stringline.datasets.commands.archive_command:expand_archive",
    "cache": "stringline.datasets.commands.cache_command:cache_store",
    "depth": "stringline.datasets.commands.depth_command:estimate_depth_of_store",
}


def main() -> None:
    """The command `stringline-data`.

    Raises:
        SystemExit: With 2 after a user's mistake.
    """
    verb = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if verb in ("--help", "-h"):
        sys.stdout.write(overview())
        return
    if verb not in TASKS:
        sys.stderr.write(
            f"{COMMAND}: {unknown_name('verb', verb, TASKS)} What each does: {COMMAND} --help\n"
        )
        raise SystemExit(MISTAKE)
    sys.argv = [f"{COMMAND} {verb}", *sys.argv[2:]]
    run(f"data_{verb}", pkgutil.resolve_name(TASKS[verb]))


def overview() -> str:
    """Returns the list of verbs, each with the first line of its help."""
    folder = Path(stringline.__file__).parent / "configs"
    lines = [
        (
            f"  {verb:<8}  "
            f"{Configuration(folder, f'data_{verb}', verb).introduction().partition(chr(10))[0]}"
        )
        for verb in TASKS
    ]
    return "\n".join(
        (
            f"{COMMAND} VERB [key=value ...]",
            "",
            *lines,
            "",
            f"More on one: {COMMAND} VERB --help",
            "",
        )
    )


if __name__ == "__main__":
    main()
