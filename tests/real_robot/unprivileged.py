"""Runs Python code without the permission to take real-time priority, also as root."""

import os
import subprocess
import sys


def run_unprivileged(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Returns the outcome of a script whose processes cannot have real-time priority."""
    command = ["prlimit", "--rtprio=0", sys.executable, "-c", script, *arguments]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
