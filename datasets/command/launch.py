"""The entry point of the console scripts, which imports the module of the command.

The import is part of the run: a missing library is reported in one line, and Ctrl-C ends quietly.
"""

import sys
from importlib import import_module
from pathlib import Path

from stringline.datasets.command.missing_package import missing_package
from stringline.datasets.contract.argument_checks import unknown_name

COMMANDS = {
    "stringline-demo": "stringline.real_robot.demo",
    "stringline-collect": "stringline.sim.collect",
    "stringline-data": "stringline.datasets.data",
    "stringline-teleop": "stringline.sim.teleoperate",
    "stringline-replay": "stringline.sim.replay",
    "stringline-view": "stringline.datasets.view",
    "stringline-serve": "stringline.policies.serve",
    "stringline-train": "stringline.sim.train",
    "stringline-eval": "stringline.sim.evaluate",
    "stringline-compare": "stringline.sim.compare",
    "stringline-deploy": "stringline.real_robot.deploy",
    "stringline-incident": "stringline.real_robot.incident",
}
"""The module of each command; its function `main` runs the command."""

# As in application.py, whose import needs Hydra.
_USER_ERROR = 2
_INTERRUPTED = 130


def main() -> None:
    """Runs the command with the name of the running program."""
    program = Path(sys.argv[0]).name
    if program not in COMMANDS:
        raise unknown_name("command", program, COMMANDS)
    try:
        module = import_module(COMMANDS[program])
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped.\n")
        raise SystemExit(_INTERRUPTED) from None
    except ImportError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        sys.stderr.write(f"{program} needs {missing}\n")
        raise SystemExit(_USER_ERROR) from None
    module.main()
