"""Python processes that end with the process that started them, also when that is killed."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO


def start_child(
    function: str,
    descriptors: Sequence[int] = (),
    *,
    stdin: IO[bytes] | int | None = None,
    output: IO[bytes] | None = None,
) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a fresh interpreter that calls a function, which calls `end_with_parent` first.

    It imports the module of the function only. multiprocessing's `spawn` would import the program
    that started it as well, torch included, and graphics contexts and threads do not survive a
    fork.

    Args:
        function: Module and name, such as `stringline.sim.rollout.workers:serve`. Its arguments are
            the descriptors and the lifeline.
        descriptors: File descriptors that the process inherits.
        stdin: Standard input; None: that of this process.
        output: File of both outputs; None: those of this process.

    Returns:
        The process, and the other end of its lifeline; closing it ends the process at once.
    """
    module, name = function.split(":")
    lifeline, own_end = os.pipe()
    passed = [*descriptors, lifeline]
    code = f"from {module} import {name}; {name}({', '.join(map(str, passed))})"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        pass_fds=passed,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=stdin,
        stdout=output,
        stderr=output,
    )
    os.close(lifeline)
    return process, own_end


def end_with_parent(lifeline: int) -> None:
    """Lets this process end when its parent has ended or closes its end of the lifeline.

    Ctrl-C reaches the whole process group, but the parent decides how to end, so it is ignored.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_wait_and_exit, args=[lifeline], daemon=True).start()


def _wait_and_exit(lifeline: int) -> None:
    # Otherwise an episode of a killed parent would be stored again by the process that continues.
    os.read(lifeline, 1)
    os._exit(1)
