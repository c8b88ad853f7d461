"""The command `stringline-data`: everything that is done to recorded data, one verb each.

A further verb is a line in `TASKS`, a file `configs/data_<verb>.yaml` whose opening comment is its help, and a function that
takes the configuration. A verb's module is imported only when it is asked for, so that no verb pays for another's libraries.
"""

import pkgutil
import sys
from pathlib import Path

import stringline
from stringline.datasets.application import MISTAKE, run
from stringline.datasets.configuration import Configuration
from stringline.datasets.names import unknown_name

COMMAND = "stringline-data"
TASKS = {
    "export": "stringline.datasets.verbs.exporting:export_store",
    "import": "stringline.datasets.verbs.importing:import_foreign",
    "verify": "stringline.datasets.verbs.verify:verify",
    "summary": "stringline.datasets.verbs.summary:summarise_store",
    "trim": "stringline.datasets.verbs.edit:trim_episodes",
    "delete": "stringline.datasets.verbs.edit:delete_episodes",
    "split": "stringline.datasets.verbs.edit:split",
    "merge": "stringline.datasets.verbs.edit:merge_stores",
    "relabel": "stringline.datasets.verbs.edit:relabel_episodes",
    "filter": "stringline.datasets.verbs.edit:filter_episodes",
    "migrate": "stringline.datasets.verbs.migrate:migrate_store",
    "archive": "stringline.datasets.verbs.archive:archive_store",
    "expand": "stringline.datasets.verbs.archive:expand_archive",
    "cache": "stringline.datasets.verbs.cache:cache_store",
    "depth": "stringline.datasets.verbs.depth:estimate_depth_of_store",
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
        sys.stderr.write(f"{COMMAND}: {unknown_name('verb', verb, TASKS)} What each does: {COMMAND} --help\n")
        raise SystemExit(MISTAKE)
    sys.argv = [f"{COMMAND} {verb}", *sys.argv[2:]]
    run(f"data_{verb}", pkgutil.resolve_name(TASKS[verb]))


def overview() -> str:
    """Returns the list of verbs, each with the first line of its help."""
    folder = Path(stringline.__file__).parent / "configs"
    lines = [
        f"  {verb:<8}  {Configuration(folder, f'data_{verb}', verb).introduction().partition(chr(10))[0]}" for verb in TASKS
    ]
    return "\n".join((f"{COMMAND} VERB [key=value ...]", "", *lines, "", f"More on one: {COMMAND} VERB --help", ""))


if __name__ == "__main__":
    main()
