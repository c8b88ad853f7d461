"""The console scripts: each imports the module of its command only to run it.

So `--help` and `--version` load neither torch nor the simulation, processes that a command spawns
import only what they use, and Ctrl-C during the imports ends the command in one line.
"""

import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from stringline.datasets.command.allocator import keep_freed_memory
from stringline.datasets.command.installed_version import installed_version
from stringline.datasets.command.missing_package import missing_package
from stringline.datasets.command.waiting_threads import wait_briefly

# As in application.py, whose import needs Hydra.
USER_ERROR = 2
INTERRUPTED = 130

COMMANDS = {
    "collect": "stringline.sim.collect",
    "compare": "stringline.sim.compare",
    "data": "stringline.datasets.data",
    "demo": "stringline.real_robot.demo",
    "deploy": "stringline.real_robot.deploy",
    "eval": "stringline.sim.evaluate",
    "experiment": "stringline.sim.experiment",
    "incident": "stringline.real_robot.incident",
    "perceive": "stringline.encoders.perceive",
    "replay": "stringline.sim.replay",
    "scenes": "stringline.sim.generate",
    "serve": "stringline.policies.serve",
    "teleop": "stringline.sim.teleoperate",
    "train": "stringline.sim.train",
    "view": "stringline.datasets.view",
}
"""The module of each command, which has a function `main`. Its configuration has the same name."""

OPTIONS_OF_VERBS = "data"


def start(command: str) -> None:
    """Runs a command.

    Args:
        command: A name in `COMMANDS`.
    """
    wait_briefly()
    keep_freed_memory()
    try:
        _run(command)
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped.\n")
        raise SystemExit(INTERRUPTED) from None
    except ImportError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        sys.stderr.write(f"{Path(sys.argv[0]).name} needs {missing}\n")
        raise SystemExit(USER_ERROR) from None


def _run(command: str) -> None:
    arguments = set(sys.argv[1:])
    if "--version" in arguments:
        sys.stdout.write(f"stringline {installed_version()}\n")
    elif {"--help", "-h"} & arguments and command != OPTIONS_OF_VERBS:
        from stringline.datasets.command.application import show_help

        show_help(command)
    else:
        import_module(COMMANDS[command]).main()


collect = partial(start, "collect")
compare = partial(start, "compare")
data = partial(start, "data")
demo = partial(start, "demo")
deploy = partial(start, "deploy")
evaluate = partial(start, "eval")
experiment = partial(start, "experiment")
incident = partial(start, "incident")
perceive = partial(start, "perceive")
replay = partial(start, "replay")
scenes = partial(start, "scenes")
serve = partial(start, "serve")
teleoperate = partial(start, "teleop")
train = partial(start, "train")
view = partial(start, "view")
