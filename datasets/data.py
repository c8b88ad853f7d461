"""The command `stringline-data`: operations on recorded data, one verb each.

A verb consists of a line in `TASKS`, a file `configs/data/<verb>.yaml` whose opening comment is
the help text, and a function that takes the configuration. The module of a verb is imported on
use, so that no verb loads the libraries of another one.
"""

import pkgutil
import sys
from pathlib import Path

import stringline
from stringline.datasets.command.application import USER_ERROR, run, show_help
from stringline.datasets.command.configuration import Configuration
from stringline.datasets.contract.argument_checks import unknown_name

COMMAND = "stringline-data"
TASKS = {
    "export": "stringline.datasets.verbs.transfer_commands:export_store",
    "import": "stringline.datasets.verbs.transfer_commands:import_foreign",
    "verify": "stringline.datasets.verbs.store_commands:verify",
    "summary": "stringline.datasets.viewing.store_summary:summarise_store",
    "trim": "stringline.datasets.verbs.store_commands:trim_episodes",
    "delete": "stringline.datasets.verbs.store_commands:delete_episodes",
    "split": "stringline.datasets.verbs.store_commands:split",
    "merge": "stringline.datasets.verbs.store_commands:merge_stores",
    "calibrate": "stringline.datasets.verbs.store_commands:calibrate_episodes",
    "relabel": "stringline.datasets.verbs.store_commands:relabel_episodes",
    "filter": "stringline.datasets.verbs.store_commands:filter_episodes",
    "archive": "stringline.datasets.editing.archive:archive_store",
    "expand": "stringline.datasets.editing.archive:expand_archive",
    "cache": "stringline.datasets.verbs.store_commands:cache_store",
    "resample": "stringline.datasets.verbs.store_commands:resample_store",
    "clouds": "stringline.datasets.verbs.keyposes_command:make_clouds",
    "keyposes": "stringline.datasets.verbs.keyposes_command:count_store",
    "embodiment": "stringline.datasets.verbs.embodiment_command:describe_embodiment",
    "depth": "stringline.datasets.verbs.store_commands:estimate_depth_of_store",
    "images": "stringline.datasets.verbs.transfer_commands:convert_images",
    "annotations": "stringline.datasets.verbs.transfer_commands:write_annotations",
}


def main() -> None:
    """Runs the command `stringline-data`; exits with 2 after a user error."""
    verb = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if verb in ("--help", "-h"):
        sys.stdout.write(overview())
        return
    if verb not in TASKS:
        sys.stderr.write(
            f"{COMMAND}: {unknown_name('verb', verb, TASKS)} All verbs: {COMMAND} --help\n"
        )
        raise SystemExit(USER_ERROR)
    sys.argv = [f"{COMMAND} {verb}", *sys.argv[2:]]
    if {"--help", "-h"} & set(sys.argv):
        show_help(f"data/{verb}")
        return
    run(f"data/{verb}", pkgutil.resolve_name(TASKS[verb]))


def overview() -> str:
    """Returns the list of verbs with the first line of their help texts."""
    folder = Path(stringline.__file__).parent / "configs"
    width = max(map(len, TASKS))
    lines = []
    for verb in TASKS:
        text = Configuration(folder, f"data/{verb}", verb).introduction()
        lines.append(f"  {verb:<{width}}  {text.splitlines()[0]}\n")
    listed = "".join(lines)
    return f"{COMMAND} VERB [key=value ...]\n\n{listed}\nHelp for a verb: {COMMAND} VERB --help\n"


if __name__ == "__main__":
    main()
