"""A spawned process that serves its owner, ends with it, and ends within a bounded time.

Keys of a terminal, the stop of a service and a hang-up send signals to a whole group of processes.
The owner brakes the arms and ends its child processes in order. So the children ignore these
signals, and end when the owner requests it or disappears. Of the signals that stop a group the
owner alone stops: its heartbeat is missing then, and the device process holds the arms.
"""

import contextlib
import multiprocessing
import signal
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, Generic, NoReturn, Protocol, TypeVar

# Python has a handler for SIGINT. A terminal sends SIGQUIT at Ctrl-Backslash.
_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# A terminal sends SIGTSTP at Ctrl-Z; the others to a group in the background that uses it.
_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def leave_to_owner() -> None:
    """Ignores the signals in a spawned process, whose owner sends requests through a pipe."""
    for number in (signal.SIGINT, *_ENDS, *_STOPS):
        signal.signal(number, signal.SIG_IGN)


def end_as_by_ctrl_c() -> None:
    """Raises KeyboardInterrupt in this process, the owner, at the first signal to end."""
    for number in _ENDS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    for other in _ENDS:
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt


# Never forked: a copy of the owner would hold its ports, its threads' locks and its GPU.
_SPAWN = multiprocessing.get_context("spawn")


class _Channel(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Channel)


class ChildProcess(Generic[C]):
    """A daemon process at the other end of a channel.

    The channel is closed when the handle is collected or its interpreter exits, and by the system
    when the owner is killed. The child reads that as the end of its owner.

    Args:
        target: Function that the child calls with `args` and its end of the channel. It ends at the
            message of `stop`, and when the channel is closed.
        args: Picklable.
        channel: The two ends, of `multiprocessing.Pipe()` or `socket.socketpair()`.
        end_timeout_s: Time from the stop message until the child is killed, seconds.
        stop: Sends the message that ends the child; None closes the channel instead.

    Attributes:
        channel: The owner's end.
    """

    def __init__(
        self,
        target: Callable[..., None],
        args: tuple[Any, ...],
        channel: tuple[C, C],
        *,
        name: str,
        end_timeout_s: float,
        stop: Callable[[C], object] | None = None,
    ) -> None:
        self.channel, self._far_end = channel
        weakref.finalize(self, self.channel.close)
        self._end_timeout_s = end_timeout_s
        self._stop = stop
        self._process = _SPAWN.Process(
            target=target, args=(*args, self._far_end), name=name, daemon=True
        )

    def start(self) -> None:
        """Starts the process, which alone holds the far end of the channel from then on."""
        self._process.start()
        self._far_end.close()

    @property
    def pid(self) -> int | None:
        """Number of the process; None before the start."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs; it may be suspended."""
        return self._process.is_alive()

    def exit_code(self, timeout_s: float) -> int | None:
        """Waits and returns the exit code, negative after a signal; None if the process runs on."""
        self._process.join(timeout_s)
        return self._process.exitcode

    def end(self) -> bool:
        """Ends the process and closes the channel; returns whether the process ended by itself.

        Harmless before `start` and after the end.
        """
        voluntary = True
        if self._stop is None:
            self.channel.close()
        if self.pid is not None:
            if self._stop is not None:
                with contextlib.suppress(OSError, EOFError):
                    self._stop(self.channel)
            self._process.join(self._end_timeout_s)
            voluntary = not self.alive
            self.kill()
        self.channel.close()
        return voluntary

    def kill(self) -> None:
        """Ends the process by force, if it runs."""
        if self.alive:
            self._process.kill()
            self._process.join()
