"""Commands in the process of a test, which saves the seconds of their imports.

Other tests have real processes.
"""

import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from unittest.mock import patch


def called(main: Callable[[], object], *options: str) -> subprocess.CompletedProcess[str]:
    """Calls a command with options, and returns its exit code and what it has printed."""
    arguments = ["stringline", *options]
    printed = StringIO()
    logged = StringIO()
    code: object = 0
    with redirect_stdout(printed), redirect_stderr(logged), patch.object(sys, "argv", arguments):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(arguments, code, printed.getvalue(), logged.getvalue())
