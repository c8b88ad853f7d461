"""A spawned process that serves its owner, ends with it, and ends within a bounded time."""

import contextlib
import multiprocessing
import weakref
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

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
